"""Long kernels are called piece by piece. Between two pieces, progress is told and Python handles signals."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, float], None]
"""Takes the name of a step, and the share of it that is done, from 0 to 1."""

OPERATIONS = 200_000_000
"""Operations of one piece: some tenths of a second."""
LONGER, SHORT_S = 16, 0.02
"""Parts often cost far less than is assumed. So a piece of less than this time (s) grows, to so many times its size."""
LEAVES = 64
"""Records of a leaf of a k-d tree; a search looks at about four raised to the number of attributes of them."""


class _Receiver(threading.local):
    """What the progress of the calling thread is told to."""

    progress: Progress | None = None


_receiver = _Receiver()


@contextmanager
def telling(progress: Progress | None) -> Iterator[None]:
    """Context in which the progress of this thread is told to a function; None: to the one of the context around it."""
    before = _receiver.progress
    _receiver.progress = progress or before
    try:
        yield
    finally:
        _receiver.progress = before


def tell(step: str, share: float) -> None:
    """Tell how much of a step is done."""
    if _receiver.progress is not None:
        _receiver.progress(step, share)


def pieces(step: str, total: int, cost: float) -> Iterator[tuple[int, int]]:
    """Yield the bounds of consecutive pieces of ``total`` parts that cost at most so many operations each.

    Tells what is done. Short pieces grow, so that a call costs little of their time. A kernel returns the same bits
    whatever the pieces are.
    """
    size, first = max(1, int(OPERATIONS / max(cost, 1.0))), 0
    largest = LONGER * size
    while first < total:
        began_s, end = time.monotonic(), min(first + size, total)
        yield first, end
        tell(step, end / total)
        first = end
        if time.monotonic() - began_s < SHORT_S:
            size = min(2 * size, largest)


def search_cost(n: int, d: int) -> float:
    """Return about how many operations a search among n records of d attributes takes at most."""
    return float(d * min(n, LEAVES << (2 * min(d, 16))))
