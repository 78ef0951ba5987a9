"""What the command line says of algorithm, refinement and parameters."""

from __future__ import annotations

import time
from collections.abc import Sequence

from shoal.engine.static import Pace, parameters_of
from shoal.errors import ConfigError
from shoal.flow import Choice
from shoal.pipe.bar import bar

__all__ = ["choice_of"]

AUTO = "auto"
LONGEST_S = 1e6


def choice_of(algorithm: str, refine: str | None, given: Sequence[str], seed: int) -> Choice:
    """Read ``NAME=VALUE`` as the algorithm's parameters say, and two for all of them: ``blocks`` and ``time_s``.

    A named algorithm is left as it is unless a refinement is named too; `auto` is refined by descent. ``time_s``: how
    long annealing may take.

    Raises
    ------
    ConfigError
        A parameter that is none, or no value of its type.
    """
    if seed < 0:
        raise ConfigError("--seed: must be 0 or more")
    refine = refine or ("descent" if algorithm == AUTO else "none")
    own = {} if algorithm == AUTO else parameters_of(algorithm)
    known = own | {"blocks": 1} | ({"time_s": 30.0} if refine == "anneal" else {})
    read: dict[str, float | str] = {}
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
    blocks, time_s = int(read.pop("blocks", 0)), float(read.pop("time_s", 0.0))
    if blocks < 0 or ("blocks=0" in given) or not (0 <= time_s < LONGEST_S):
        raise ConfigError(f"--param: blocks must be 1 or more, time_s above 0 and below {LONGEST_S:g}")
    return Choice(algorithm, refine, seed, read, _by_clock(time_s) if time_s else None, blocks)


def _by_clock(time_s: float) -> Pace:
    """Return the pace of an annealing that takes so long from its first change on, shown by a bar."""
    began: list[float] = []
    shown = bar(desc="annealing", total=100, bar_format="{desc}: {bar} {elapsed}")

    def pace(_: int) -> float:
        if not began:
            began.append(time.monotonic())
        share = (time.monotonic() - began[0]) / time_s
        shown.update(min(100.0, 100.0 * share) - shown.n)
        return share

    return pace
