"""The algorithms by name and the parameters of each; a new algorithm is one module and one entry here."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from shoal.arrays import Float64Matrix, Int32Vector
from shoal.clustering.static.approximate import approximate
from shoal.clustering.static.genetic import genetic
from shoal.clustering.static.hansen_mukherjee import optimal
from shoal.clustering.static.hilbert import hilbert
from shoal.clustering.static.md import md
from shoal.clustering.static.mdav import mdav
from shoal.clustering.static.t_closeness import TClosePartition, steered, strict
from shoal.clustering.static.vmdav import vmdav
from shoal.errors import ParameterError

__all__ = [
    "ALGORITHMS",
    "PARAMETER_RANGES",
    "T_CLOSE_ALGORITHMS",
    "Parameter",
    "check_parameters",
    "parameters_of",
    "partition",
    "t_close_algorithm",
]

Parameter: TypeAlias = float | str
Algorithm: TypeAlias = Callable[..., Int32Vector]
"""Takes values, k and its own parameters as keywords (among them ``seed`` if it draws), and returns labels."""

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
"""Take values, k, one confidential attribute, t and their own parameters as keywords."""

PARAMETER_RANGES: dict[str, dict[str, tuple[float, float]]] = {
    "vmdav": {"gamma": (0, 1e9)},
    "genetic": {"macro": (2, 10**6), "steps": (1, 2), "generations": (0, 10**9)},
    "approximate": {"bins": (2, 10**6)},
    "steered": {"weight": (0, 1e9)},
}
"""Smallest and largest value of each numeric parameter; the default is always valid."""


def parameters_of(name: str) -> dict[str, Parameter]:
    """Return the parameters of an algorithm with their defaults, without the seed.

    Raises
    ------
    ParameterError
        If there is no such algorithm.
    """
    own = inspect.signature(_algorithm(name)).parameters.values()
    return {p.name: p.default for p in own if p.kind is p.KEYWORD_ONLY and p.name != "seed"}


def check_parameters(name: str, given: Mapping[str, Parameter]) -> None:
    """Check the parameters of an algorithm.

    Raises
    ------
    ParameterError
        With all faults: an unknown name, a wrong type, a value outside its range; or if there is no such algorithm.
    """
    known, ranges = parameters_of(name), PARAMETER_RANGES.get(name, {})
    faults = [_fault(key, value, known, ranges.get(key)) for key, value in given.items()]
    if any(faults):
        raise ParameterError(f"algorithm '{name}': " + "; ".join(filter(None, faults)))


def partition(
    values: Float64Matrix, k: int, name: str, seed: int = 0, parameters: Mapping[str, Parameter] | None = None
) -> Int32Vector:
    """Return the labels (n,) that an algorithm gives to checked values (n, d).

    Raises
    ------
    ParameterError
        As `check_parameters`, or if the algorithm needs a confidential attribute and t.
    """
    if name in T_CLOSE_ALGORITHMS:
        raise ParameterError(f"algorithm '{name}': needs privacy.t")
    keywords = _checked_parameters(name, parameters)
    if "seed" in inspect.signature(ALGORITHMS[name]).parameters:
        keywords["seed"] = seed
    return ALGORITHMS[name](values, k, **keywords)


def t_close_algorithm(name: str, parameters: Mapping[str, Parameter] | None = None) -> Callable[..., TClosePartition]:
    """Return an algorithm of `T_CLOSE_ALGORITHMS` with its parameters set; raises as `check_parameters`."""
    return partial(T_CLOSE_ALGORITHMS[name], **_checked_parameters(name, parameters))


def _algorithm(name: str) -> Callable[..., object]:
    found = ALGORITHMS.get(name) or T_CLOSE_ALGORITHMS.get(name)
    if found is None:
        raise ParameterError(f"algorithm: unknown, use one of auto, {', '.join([*ALGORITHMS, *T_CLOSE_ALGORITHMS])}")
    return found


def _checked_parameters(name: str, parameters: Mapping[str, Parameter] | None) -> dict[str, Parameter]:
    given = dict(parameters or {})
    check_parameters(name, given)
    return given


def _fault(key: str, value: Parameter, known: Mapping[str, Parameter], limits: tuple[float, float] | None) -> str:
    """Return what is wrong with one parameter; empty if nothing is."""
    if key not in known:
        return f"no parameter '{key}', there is {', '.join(known) or 'none'}"
    wanted = type(known[key])
    if not isinstance(value, (int, float) if wanted is float else wanted) or isinstance(value, bool):
        return f"{key}: needs a value of type {wanted.__name__}"
    if limits is None or isinstance(value, str) or value == known[key] or limits[0] <= value <= limits[1]:
        return ""
    return f"{key}: must be from {limits[0]:.10g} to {limits[1]:.10g}; the default is {_default_text(known[key])}"


def _default_text(default: Parameter) -> str:
    return "as large as needed" if default == math.inf else str(default)
