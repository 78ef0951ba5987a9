"""A taxonomy: the tree over the values of a nominal attribute."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

__all__ = ["ROOT", "Taxonomy"]

ROOT = "*"
"""Name of the root where the file names none."""


@dataclass(frozen=True)
class Taxonomy:
    """A tree in which all leaves are equally deep.

    Attributes
    ----------
    paths : tuple of tuple of str
        For each leaf its name and those of its ancestors up to the child of the root: `levels` names, the leaf first.
        A node is its name at its level: equal names at two levels are two nodes.
    root : str
        Name of the root.
    header : tuple of str
        The first line of its file; empty without a file. It is no part of the tree.
    """

    paths: tuple[tuple[str, ...], ...]
    root: str = ROOT
    header: tuple[str, ...] = field(default=(), compare=False)

    @property
    def levels(self) -> int:
        """Number of levels below the root: 1 for a flat list of values."""
        return len(self.paths[0])

    @cached_property
    def leaves(self) -> dict[str, int]:
        """Index of each leaf in `paths`, by name."""
        return {path[0]: index for index, path in enumerate(self.paths)}

    @cached_property
    def digest(self) -> str:
        """SHA-256 in hexadecimal of the tree, whatever the order of its leaves and the form of the file."""
        content = json.dumps([self.root, sorted(self.paths)], ensure_ascii=True)
        return hashlib.sha256(content.encode()).hexdigest()

    @classmethod
    def of_rows(cls, rows: Sequence[Sequence[str]], header: tuple[str, ...] = ()) -> Taxonomy:
        """Return the tree of rows from leaf to root. If all rows end with one name, it is that of the root."""
        tops = {row[-1] for row in rows}
        if len(tops) == 1 and len(rows[0]) > 1:
            return cls(tuple(tuple(row[:-1]) for row in rows), tops.pop(), header)
        return cls(tuple(tuple(row) for row in rows), header=header)

    @property
    def may_lack_header(self) -> bool:
        """Whether the first line of the file may be a leaf: nothing in the other rows shows that it is none."""
        return len(self.header) == self.levels
