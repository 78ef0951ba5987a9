"""Names of partitioners and what can be set of each: one table, so that a new one is a file and a line."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from shoal.arrays import Float64Matrix, Int32Vector
from shoal.clustering.static.approximate import approximate
from shoal.clustering.static.genetic import genetic
from shoal.clustering.static.hilbert import hilbert
from shoal.clustering.static.md import md
from shoal.clustering.static.mdav import mdav
from shoal.clustering.static.t_closeness import TClosePartition, steered, strict
from shoal.clustering.static.univariate import optimal
from shoal.clustering.static.vmdav import vmdav
from shoal.errors import ParameterError

__all__ = [
    "ALGORITHMS",
    "RANGES",
    "T_CLOSE_ALGORITHMS",
    "Parameter",
    "check_parameters",
    "close_algorithm",
    "parameters_of",
    "partition",
]

Parameter: TypeAlias = float | str
Algorithm: TypeAlias = Callable[..., Int32Vector]
"""(values, k, *, parameters of its own) to labels; ``seed`` is one of them where it matters."""

ALGORITHMS: dict[str, Algorithm] = {
    "md": md,
    "mdav": mdav,
    "vmdav": vmdav,
    "hilbert": hilbert,
    "optimal": optimal,
    "genetic": genetic,
    "approximate": approximate,
}

T_CLOSE_ALGORITHMS: dict[str, Callable[..., TClosePartition]] = {"steered": steered, "strict": strict}
"""(values, k, confidential attribute, t, *, parameters of its own) to labels and buckets."""


RANGES: dict[str, dict[str, tuple[float, float]]] = {
    "vmdav": {"gamma": (0, 1e9)},
    "genetic": {"macro": (2, 10**6), "steps": (1, 2), "generations": (0, 10**9)},
    "approximate": {"bins": (2, 10**6)},
    "steered": {"weight": (0, 1e9)},
}
"""Least and largest value of each parameter that is a number; the default always fits."""


def parameters_of(name: str) -> dict[str, Parameter]:
    """Return the parameters of an algorithm with their defaults, without the seed."""
    own = inspect.signature(_algorithm(name)).parameters.values()
    return {p.name: p.default for p in own if p.kind is p.KEYWORD_ONLY and p.name != "seed"}


def check_parameters(name: str, given: Mapping[str, Parameter]) -> None:
    """Raise `ParameterError` with all that is wrong with parameters of an algorithm."""
    known, ranges = parameters_of(name), RANGES.get(name, {})
    faults = [_fault(key, value, known, ranges.get(key)) for key, value in given.items()]
    if any(faults):
        raise ParameterError(f"algorithm '{name}': " + "; ".join(filter(None, faults)))


def partition(
    values: Float64Matrix, k: int, name: str, seed: int = 0, parameters: Mapping[str, Parameter] | None = None
) -> Int32Vector:
    """Return the labels an algorithm gives to checked values.

    Raises
    ------
    ParameterError
        If there is no such algorithm, or it has no such parameter or not of that type or range.
    """
    if name in T_CLOSE_ALGORITHMS:
        raise ParameterError(f"algorithm '{name}': needs privacy.t, to which it keeps")
    given = _given(name, parameters)
    if "seed" in inspect.signature(ALGORITHMS[name]).parameters:
        given["seed"] = seed
    return ALGORITHMS[name](values, k, **given)


def close_algorithm(name: str, parameters: Mapping[str, Parameter] | None = None) -> Callable[..., TClosePartition]:
    """Return an algorithm that knows what is confidential, with its parameters; raises as `partition` does."""
    return partial(T_CLOSE_ALGORITHMS[name], **_given(name, parameters))


def _algorithm(name: str) -> Callable[..., object]:
    found = ALGORITHMS.get(name) or T_CLOSE_ALGORITHMS.get(name)
    if found is None:
        raise ParameterError(f"algorithm: unknown, use one of auto, {', '.join([*ALGORITHMS, *T_CLOSE_ALGORITHMS])}")
    return found


def _given(name: str, parameters: Mapping[str, Parameter] | None) -> dict[str, Parameter]:
    given = dict(parameters or {})
    check_parameters(name, given)
    return given


def _fault(key: str, value: Parameter, known: Mapping[str, Parameter], limits: tuple[float, float] | None) -> str:
    """Say what is wrong with a parameter; empty if nothing is."""
    if key not in known:
        return f"no parameter '{key}', there is {', '.join(known) or 'none'}"
    wanted = type(known[key])
    if not isinstance(value, (int, float) if wanted is float else wanted) or isinstance(value, bool):
        return f"{key}: needs a value of type {wanted.__name__}"
    if limits is None or isinstance(value, str) or value == known[key] or limits[0] <= value <= limits[1]:
        return ""
    return f"{key}: must be from {limits[0]:.10g} to {limits[1]:.10g}; without it, it is {_spelled(known[key])}"


def _spelled(default: Parameter) -> str:
    return "as large as need be" if default == math.inf else str(default)
