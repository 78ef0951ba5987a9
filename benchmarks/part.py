"""What a part of the benchmark hands back: lines of the page, and limits with what was found."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Limit", "Part"]


class Limit(NamedTuple):
    """A figure that must not be above its limit, or below it."""

    name: str
    found: float
    limit: float
    at_most: bool

    @property
    def is_kept(self) -> bool:
        """Whether it holds; what is no number does not."""
        return self.found <= self.limit if self.at_most else self.found >= self.limit


class Part(NamedTuple):
    """A part of docs/reports/benchmarks.md."""

    lines: list[str]
    limits: list[Limit]
