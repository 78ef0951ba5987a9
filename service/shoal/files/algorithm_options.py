"""What the command line says of algorithm, refinement and parameters."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from shoal.clustering.static import Pace, Parameter, check_parameters, parameters_of, steady_pace
from shoal.errors import ConfigError
from shoal.files.background import progress_bar
from shoal.pipeline import AlgorithmSpec

__all__ = ["parse_algorithm_options"]

AUTO = "auto"
LONGEST_S = 1e6
PACED = {"anneal": "annealing", "exact": "choosing"}
"""Refinements that go on until their pace says that they are over, and what their bar is called."""


def parse_algorithm_options(algorithm: str, refine: str | None, given: Sequence[str], seed: int) -> AlgorithmSpec:
    """Read ``NAME=VALUE`` as the algorithm's parameters say, and two for all of them: ``blocks`` and ``time_s``.

    A named algorithm is left as it is unless a refinement is named too; `auto` is refined by descent. ``time_s``: how
    long annealing or the exact choice may take, of all blocks together; without it, so many changes are tried that the
    same seed gives the same table.

    Raises
    ------
    ConfigError
        A parameter that is none, or no value of its type.
    ParameterError
        A value outside its range.
    """
    if seed < 0:
        raise ConfigError("--seed: must be 0 or more")
    refine = refine or ("descent" if algorithm == AUTO else "none")
    own = {} if algorithm == AUTO else parameters_of(algorithm)
    known = own | {"blocks": 1} | ({"time_s": 30.0} if refine in PACED else {})
    read = _read(algorithm, given, known)
    if own:
        check_parameters(algorithm, {name: value for name, value in read.items() if name in own})
    time_s = float(read.pop("time_s")) if "time_s" in read else None
    blocks = int(read.pop("blocks")) if "blocks" in read else None
    if (blocks is not None and blocks < 1) or (time_s is not None and not 0 < time_s < LONGEST_S):
        raise ConfigError(f"--param: blocks must be 1 or more, time_s above 0 and below {LONGEST_S:g}")
    return AlgorithmSpec(
        algorithm, refine, seed, read, _pacing(refine, time_s) if refine in PACED else None, blocks or 0
    )


def _read(algorithm: str, given: Sequence[str], known: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Return the values of ``NAME=VALUE``, each of its parameter's type."""
    read: dict[str, Parameter] = {}
    for word in given:
        name, is_pair, text = word.partition("=")
        if not is_pair or name not in known:
            raise ConfigError(f"--param: needs NAME=VALUE; {algorithm} has {', '.join(known)}")
        if name in read:
            raise ConfigError(f"--param {name}: given twice")
        try:
            read[name] = type(known[name])(text)
        except ValueError:
            raise ConfigError(f"--param {name}: needs a value of type {type(known[name]).__name__}") from None
    return read


def _pacing(refine: str, time_s: float | None) -> Callable[[int, int], Pace]:
    """Return what makes the pace of each block, shown by a bar: by the clock, or by changes."""

    def pacing(n: int, blocks: int) -> Pace:
        share_of = steady_pace(n) if time_s is None else _by_clock(time_s / blocks)
        bar = progress_bar(desc=PACED[refine], total=100, bar_format="{desc}: {bar} {elapsed}")

        def pace(tried: int) -> float:
            share = share_of(tried)
            bar.update(min(100.0, 100.0 * share) - bar.n)
            if share >= 1:
                bar.close()
            return share

        return pace

    return pacing


def _by_clock(time_s: float) -> Pace:
    """Return the pace of what may take so long from its first change on."""
    began: list[float] = []

    def pace(_: int) -> float:
        now = time.monotonic()
        began[:] = began or [now]
        return (now - began[0]) / time_s

    return pace
