"""The nesting of a record: one that is nested too deeply is not a record."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["within_depth"]

MAX_DEPTH = 64
"""Nested objects and arrays of a record, itself included."""


def within_depth(record: Mapping[str, object] | None) -> Mapping[str, object] | None:
    """Return a record; None if its objects and arrays are nested too deeply.

    Arrays are lists of values, and objects lists of pairs (tuples). Cost: O(size of the record).
    """
    level: list[object] = [] if record is None else list(record.values())
    for _ in range(MAX_DEPTH):
        level = [item for value in level if isinstance(value, list) for item in _items(value)]
        if not level:
            return record
    return None


def _items(value: list[object]) -> list[object]:
    """Return the values of an array or object; an empty one still counts as a level."""
    return [item[1] if isinstance(item, tuple) else item for item in value] or [None]
