"""The options of the command line for algorithm, refinement and parameters."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from shoal.clustering.static import BudgetUsed, Parameter, check_parameters, default_budget, parameters_of
from shoal.errors import ConfigError
from shoal.files.background import progress_bar
from shoal.pipeline import AlgorithmSpec

__all__ = ["parse_algorithm_options"]

AUTO = "auto"
BLOCKS = "blocks"
"""Quasi-identifiers per block. No message lists it: with several blocks the joint record is not k-anonymous."""
LONGEST_S = 1e6
BUDGETED = {"anneal": "annealing", "exact": "choosing"}
"""Refinements that end when their budget is used up, and the labels of their progress bars."""
_KINDS: dict[type, str] = {float: "a number", int: "a whole number"}
"""What a parameter must be, by the type of its default. A text can be anything."""


def parse_algorithm_options(algorithm: str, refine: str | None, given: Sequence[str], seed: int) -> AlgorithmSpec:
    """Return how a table is partitioned, from the options of a command.

    Parameters
    ----------
    algorithm : str
        ``auto`` or the name of an algorithm.
    refine : str, optional
        Name of a refinement. By default ``descent`` after ``auto`` and ``none`` after a named algorithm.
    given : sequence of str
        ``NAME=VALUE``: parameters of the algorithm, and for all algorithms ``time_s`` (seconds that annealing or the
        exact refinement may take, all blocks together) and ``blocks``. Without ``time_s`` the number of changes is
        fixed, so that the same seed gives the same table.
    seed : int
        Seed of all random choices, 0 or more.

    Raises
    ------
    ConfigError
        If a parameter is unknown or its value has the wrong type.
    ParameterError
        If a value is outside its range.
    """
    if seed < 0:
        raise ConfigError("--seed: must be 0 or more")
    refine = refine or ("descent" if algorithm == AUTO else "none")
    own = {} if algorithm == AUTO else parameters_of(algorithm)
    known = own | {BLOCKS: 1} | ({"time_s": 30.0} if refine in BUDGETED else {})
    read = _read(algorithm, given, known)
    if own:
        check_parameters(algorithm, {name: value for name, value in read.items() if name in own})
    time_s = float(read.pop("time_s")) if "time_s" in read else None
    blocks = int(read.pop(BLOCKS)) if BLOCKS in read else None
    if (blocks is not None and blocks < 1) or (time_s is not None and not 0 < time_s < LONGEST_S):
        raise ConfigError(f"--param: blocks must be 1 or more, time_s above 0 and below {LONGEST_S:g}")
    return AlgorithmSpec(
        algorithm, refine, seed, read, _budget_for(refine, time_s) if refine in BUDGETED else None, blocks or 0
    )


def _read(algorithm: str, given: Sequence[str], known: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Return the values of ``NAME=VALUE``, each of its parameter's type."""
    read: dict[str, Parameter] = {}
    for word in given:
        name, is_pair, text = word.partition("=")
        listed = ", ".join(each for each in known if each != BLOCKS) or "no parameter"
        if not is_pair:
            raise ConfigError(f"--param: needs NAME=VALUE; {algorithm} has {listed}")
        if name not in known:
            raise ConfigError(f"--param: unknown name; {algorithm} has {listed}; remove it, or correct the name")
        if name in read:
            raise ConfigError(f"--param {name}: given twice")
        try:
            read[name] = type(known[name])(text)
        except ValueError:
            raise ConfigError(f"--param {name}: needs {_KINDS[type(known[name])]}") from None
    return read


def _budget_for(refine: str, time_s: float | None) -> Callable[[int, int], BudgetUsed]:
    """Return what makes the budget of each block, in seconds or in changes, with a progress bar."""

    def budget_for(n: int, blocks: int) -> BudgetUsed:
        share_of = default_budget(n) if time_s is None else _budget_of_seconds(time_s / blocks)
        bar = progress_bar(desc=BUDGETED[refine], total=100, bar_format="{desc}: {bar} {elapsed}")

        def budget_used(tried: int) -> float:
            share = share_of(tried)
            bar.update(min(100.0, 100.0 * share) - bar.n)
            if share >= 1:
                bar.close()
            return share

        return budget_used

    return budget_for


def _budget_of_seconds(time_s: float) -> BudgetUsed:
    """Return a budget of seconds that starts with its first call."""
    began: list[float] = []

    def budget_used(_: int) -> float:
        now = time.monotonic()
        began[:] = began or [now]
        return (now - began[0]) / time_s

    return budget_used
