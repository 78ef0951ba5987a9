"""Long kernels are called piece by piece. Between two pieces, progress is told and Python handles signals."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, float], None]
"""Takes the name of a step, and the share of it that is done, from 0 to 1."""

OPERATIONS = 200_000_000
"""Operations of one piece: some tenths of a second."""
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
    progress = _receiver.progress
    if progress is None:
        return
    _receiver.progress = None  # what the function itself clusters is not told
    try:
        progress(step, share)
    finally:
        _receiver.progress = progress


def pieces(step: str, total: int, cost: float) -> Iterator[tuple[int, int]]:
    """Yield the bounds of consecutive pieces of ``total`` parts that cost so many operations each; tell what is done.

    It reads no clock, and a kernel returns the same bits whatever the pieces are.
    """
    size = max(1, int(OPERATIONS / max(cost, 1.0)))
    tell(step, 0.0)  # the first piece may wait for the compiler
    for first in range(0, total, size):
        end = min(first + size, total)
        yield first, end
        tell(step, end / total)


def search_cost(n: int, d: int) -> float:
    """Return about how many operations a search among n records of d attributes takes at most."""
    return float(d * min(n, LEAVES << (2 * min(d, 16))))
