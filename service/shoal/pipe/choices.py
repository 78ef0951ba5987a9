"""What the command line says of algorithm, refinement and parameters."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.engine.static import parameters_of
from shoal.errors import ConfigError
from shoal.flow import Choice

__all__ = ["choice_of"]

AUTO = "auto"


def choice_of(algorithm: str, refine: str | None, given: Sequence[str], seed: int) -> Choice:
    """Read ``NAME=VALUE`` as the algorithm's parameters say.

    A named algorithm is left as it is unless a refinement is named too; `auto` is refined by descent.

    Raises
    ------
    ConfigError
        A parameter that is none, or no value of its type.
    """
    if seed < 0:
        raise ConfigError("--seed: must be 0 or more")
    known = {} if algorithm == AUTO else parameters_of(algorithm)
    parameters: dict[str, float | str] = {}
    for word in given:
        name, is_pair, text = word.partition("=")
        if not is_pair or name not in known:
            raise ConfigError(f"--param: needs NAME=VALUE; {algorithm} has {', '.join(known) or 'no parameters'}")
        if name in parameters:
            raise ConfigError(f"--param {name}: given twice")
        try:
            parameters[name] = type(known[name])(text)
        except ValueError:
            raise ConfigError(f"--param {name}: needs a value of type {type(known[name]).__name__}") from None
    return Choice(algorithm, refine or ("descent" if algorithm == AUTO else "none"), seed, parameters)
