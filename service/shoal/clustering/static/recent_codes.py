"""Codes of the texts and values of a stream that occurred lately."""

from __future__ import annotations

from collections.abc import Hashable

__all__ = ["RecentCodes"]


class RecentCodes:
    """Gives each key a code, in the order of their first occurrence.

    Parameters
    ----------
    delta : int
        A key keeps its code for at least this many records after its last occurrence.

    Notes
    -----
    Codes are never reused. Memory: the keys of 2 delta records and two blocks.
    """

    def __init__(self, delta: int) -> None:
        self._delta = delta
        self._recent: dict[Hashable, int] = {}
        self._older: dict[Hashable, int] = {}
        self._seen = self._next = 0

    def code_of(self, key: Hashable) -> int:
        """Return the code of a key."""
        code = self._recent.get(key)
        if code is None:
            code = self._older.get(key, self._next)
            self._next += code == self._next
            self._recent[key] = code
        return code

    def remember(self, count: int) -> None:
        """Count accepted records. Keys without an occurrence among the last delta records are dropped eventually."""
        self._seen += count
        if self._seen > self._delta:
            self._recent, self._older, self._seen = {}, self._recent, 0
