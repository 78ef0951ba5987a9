"""Pauses between attempts: they grow with each failure, and a random part keeps workers from retrying together."""

from __future__ import annotations

import random
from collections.abc import Callable

__all__ = ["LONGEST_S", "backoff_s", "jittered"]

_BACKOFF_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

LONGEST_S = _BACKOFF_S[-1]
"""Mean of the longest pause (s)."""

_random: Callable[[], float] = random.random
"""Returns numbers between 0 and 1; tests replace it."""


def jittered(mean_s: float) -> float:
    """Return a random pause.

    All workers of a group lose a broker at the same moment. With equal pauses, they would all come back at the same
    moments too, and a coordinator that restarts would get their requests at once.

    Parameters
    ----------
    mean_s : float
        Mean of the pause (s).

    Returns
    -------
    float
        Uniformly distributed between 0.5 and 1.5 times ``mean_s`` (s).
    """
    return mean_s * (0.5 + _random())


def backoff_s(failures: int) -> float:
    """Return the pause (s) after this many failures before the present one: 0.1 s to 5 s on average."""
    return jittered(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])
