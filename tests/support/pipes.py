"""A pipe for tests of readers."""

from __future__ import annotations

import io
from collections.abc import Iterable


class PiecewisePipe(io.RawIOBase):
    """A pipe that returns given pieces one by one and counts its reads."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.pieces = list(pieces)
        self.reads = 0

    def read(self, size: int = -1) -> bytes:
        assert size > 0
        self.reads += 1
        return self.pieces.pop(0) if self.pieces else b""
