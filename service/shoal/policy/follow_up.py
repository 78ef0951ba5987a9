"""Faults that only follow from another fault: they are not reported beside it."""

from __future__ import annotations

from shoal.policy.loader import FieldPath
from shoal.policy.scale_checks import SCALE_FIELDS

__all__ = ["is_follow_up"]

_DEPENDENT = {"scale": (*SCALE_FIELDS, "reference"), "unit": ("bounds", "resolution"), "type": ("scale", "reference")}
"""The fields of an attribute that are checked by another field of it."""
_NEEDED_BY = {
    "protect": {("privacy",), ("privacy", "l"), ("privacy", "t"), ("privacy", "max_value_share")},
    "reference": {("privacy",), ("privacy", "t"), ("stream",)},
    "bounds": {("steering",), ("steering", "dependence"), ("stream",)},
}
"""The fields outside the attributes by which a field of a confidential attribute is checked."""


def is_follow_up(path: FieldPath, known: FieldPath) -> bool:
    """Return whether a fault at ``path`` may only show that the field ``known`` was removed for a fault of its own."""
    return (
        _covers(path, known)
        or _depends(path, known)
        or _is_checked_outside(path, known)
        or _is_part(path, known)
        or _may_be_lacking(path, known)
    )


def _covers(path: FieldPath, known: FieldPath) -> bool:
    """Return whether a field with a fault is ``path``, contains it, or is in an item of its list."""
    return path[: len(known)] == known or (path == known[: len(path)] and known[len(path)].isdigit())


def _depends(path: FieldPath, known: FieldPath) -> bool:
    """Return whether ``known`` is a scale or a unit by which the field at ``path`` is checked."""
    if path[:1] != ("attributes",) or path[:2] != known[:2] or len(path) < 3 or len(known) != 3:  # noqa: PLR2004
        return False
    return path[2] in _DEPENDENT.get(known[2], ())


def _is_checked_outside(path: FieldPath, known: FieldPath) -> bool:
    """Return whether ``known`` is a field outside the attributes by which the field at ``path`` is checked."""
    return path[:1] == ("attributes",) and len(path) > 2 and known[:2] in _NEEDED_BY.get(path[2], ())  # noqa: PLR2004


def _is_part(path: FieldPath, known: FieldPath) -> bool:
    """Return whether ``known`` was the form of l-diversity in the section at ``path``."""
    return path == ("privacy", "l") == known[:2]


def _may_be_lacking(path: FieldPath, known: FieldPath) -> bool:
    """Return whether ``known`` may be what the attributes as a whole lack: an attribute, or the mark of the subject."""
    is_attribute = known[:1] == ("attributes",) and (len(known) == 2 or known[2:] == ("subject",))  # noqa: PLR2004
    return path == ("attributes",) and (is_attribute or known == ("subject",))
