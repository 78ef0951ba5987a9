"""Names of partitioners and what can be set of each: one table, so that a new one is a file and a line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from shoal.engine.static.approximate import approximate
from shoal.engine.static.closed import Close, steered, strict
from shoal.engine.static.genetic import genetic
from shoal.engine.static.hilbert import hilbert
from shoal.engine.static.md import md
from shoal.engine.static.mdav import mdav
from shoal.engine.static.optimal import optimal
from shoal.engine.static.vmdav import vmdav
from shoal.errors import ParameterError
from shoal.kernel.arrays import Float64Matrix, Int32Vector

__all__ = ["ALGORITHMS", "CLOSE", "Parameter", "close_algorithm", "parameters_of", "partition"]

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

CLOSE: dict[str, Callable[..., Close]] = {"steered": steered, "strict": strict}
"""(values, k, confidential attribute, t, *, parameters of its own) to labels and buckets."""


def parameters_of(name: str) -> dict[str, Parameter]:
    """Return the parameters of an algorithm with their defaults, without the seed."""
    own = inspect.signature(_algorithm(name)).parameters.values()
    return {p.name: p.default for p in own if p.kind is p.KEYWORD_ONLY and p.name != "seed"}


def partition(
    values: Float64Matrix, k: int, name: str, seed: int = 0, parameters: Mapping[str, Parameter] | None = None
) -> Int32Vector:
    """Return the labels an algorithm gives to checked values.

    Raises
    ------
    ParameterError
        If there is no such algorithm, or it has no such parameter or not of that type or range.
    """
    if name in CLOSE:
        raise ParameterError(f"algorithm '{name}': needs privacy.t, to which it keeps")
    given = _given(name, parameters)
    if "seed" in inspect.signature(ALGORITHMS[name]).parameters:
        given["seed"] = seed
    return ALGORITHMS[name](values, k, **given)


def close_algorithm(name: str, parameters: Mapping[str, Parameter] | None = None) -> Callable[..., Close]:
    """Return an algorithm that knows what is confidential, with its parameters; raises as `partition` does."""
    return partial(CLOSE[name], **_given(name, parameters))


def _algorithm(name: str) -> Callable[..., object]:
    found = ALGORITHMS.get(name) or CLOSE.get(name)
    if found is None:
        raise ParameterError(f"algorithm: unknown, use one of auto, {', '.join([*ALGORITHMS, *CLOSE])}")
    return found


def _given(name: str, parameters: Mapping[str, Parameter] | None) -> dict[str, Parameter]:
    given, known = dict(parameters or {}), parameters_of(name)
    faults = [_fault(key, value, known) for key, value in given.items()]
    if any(faults):
        raise ParameterError(f"algorithm '{name}': " + "; ".join(filter(None, faults)))
    return given


def _fault(key: str, value: Parameter, known: Mapping[str, Parameter]) -> str:
    """Say what is wrong with a parameter; empty if nothing is."""
    if key not in known:
        return f"no parameter '{key}', there is {', '.join(known) or 'none'}"
    wanted = type(known[key])
    fits = isinstance(value, (int, float) if wanted is float else wanted) and not isinstance(value, bool)
    return "" if fits else f"{key}: needs a value of type {wanted.__name__}"
