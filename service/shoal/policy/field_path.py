"""Paths to fields inside the objects of a message: ``patient.birth_date``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from shoal.policy.loader import FieldPath
from shoal.policy.text_checks import has_lone_surrogate

__all__ = ["collisions", "fault_of_path", "split_path"]

MAX_DEPTH = 20
"""Names in a path. No message needs more, and decoders recurse once per name."""
_INDEX = re.compile(r"\[[^\]]*\]")


def split_path(text: str) -> FieldPath:
    """Return the names of a dotted path, the outermost first."""
    return tuple(text.split("."))


def fault_of_path(text: str, *, is_output: bool = False) -> str:
    """Return what is wrong with a dotted path, and the remedy; an empty text if it is valid."""
    names = split_path(text)
    if _INDEX.search(text) or any(name.isascii() and name.isdigit() for name in names):
        remedy = (
            "give a field of an object, because lists are not written"
            if is_output
            else "read the whole list as a confidential attribute of type json, or let the producer write the item "
            "into a field of its own"
        )
        return f"names an item of a list; {remedy}"
    if not all(name.strip() for name in names):
        return "has an empty name between two dots, at its start or at its end; remove a dot"
    if len(names) > MAX_DEPTH:
        return f"has more than {MAX_DEPTH} names; move the field further out"
    if has_lone_surrogate(text):
        return "contains a lone surrogate, which no message can contain; correct the name"
    return ""


def collisions(paths: Iterable[tuple[str, FieldPath]]) -> Iterator[tuple[str, str, bool]]:
    """Yield each attribute whose field is the field of another attribute, contains it or is inside it.

    Parameters
    ----------
    paths : iterable of (str, tuple of str)
        Name of each attribute and the path to its field.

    Yields
    ------
    (str, str, bool)
        The attribute, the one before it with which it collides, and whether both have the same field.
    """
    fields: dict[FieldPath, str] = {}
    objects: dict[FieldPath, str] = {}
    for name, path in paths:
        outer = [path[:length] for length in range(1, len(path))]
        for taken in (path, *outer):
            if taken in fields:
                yield name, fields[taken], taken == path
                break
        else:
            if path in objects:
                yield name, objects[path], False
        fields.setdefault(path, name)
        for prefix in outer:
            objects.setdefault(prefix, name)
