"""The categories of nominal attributes as numbers: the nodes of a taxonomy, and one code for each held text.

A node is a number. A category has its code: 0 or more. Codes below the number of leaves are the leaves of the taxonomy,
in its order; a category with a greater code is a leaf of its own directly below the root. The root is -1, and all other
inner nodes are below -1. NaN stands for a missing value. Code numbers have no other meaning: only equality counts.

A flat list of categories is a taxonomy of one level, in which no leaf is known in advance.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec
import numpy as np

from shoal.arrays import BoolVector, Float64Vector, Int64Matrix, Int64Vector
from shoal.policy import Taxonomy

__all__ = ["ROOT_NODE", "CategoryTree", "HeldCodes"]


ROOT_NODE = -1
"""Number of the root."""

_MISSING, _BELOW_NODE = -1, -2
"""Entries of a path: of a missing value on all levels, and of an inner node on the levels below it."""


class CategoryTree:
    """The taxonomy of one nominal attribute; without one, categories are equally far from each other.

    The path of a node has one entry per level, from the leaves up to the children of the root. Two categories have
    equal entries from the level of their lowest common ancestor on. So the number of different entries is the height of
    that ancestor, and the root's height is the number of levels.
    Memory: one row of integers per node, built once.
    """

    def __init__(self, taxonomy: Taxonomy | None) -> None:
        paths = () if taxonomy is None else taxonomy.paths
        self.levels = 1 if taxonomy is None else taxonomy.levels
        self.leaf_texts = [_json_string(path[0]) for path in paths]
        self._root_text = _json_string("*" if taxonomy is None else taxonomy.root)
        ids: list[dict[str, int]] = [{} for _ in range(self.levels)]
        leaves = [[known.setdefault(name, len(known)) for known, name in zip(ids, path, strict=True)] for path in paths]
        self._inner_texts = [_json_string(name) for known in ids[1:] for name in known]
        self._first_inner: Int64Vector = np.cumsum([0, *(len(known) for known in ids[1:])])
        rows = np.full((len(leaves) + 1 + len(self._inner_texts), self.levels), _BELOW_NODE, np.int64)
        rows[: len(leaves)] = np.array(leaves, np.int64).reshape(len(leaves), self.levels)
        for level in range(1, self.levels):
            first = len(leaves) + 1 + self._first_inner[level - 1]
            above = rows[: len(leaves), level:]
            rows[first + above[:, 0], level:] = above
        self._rows: Int64Matrix = rows

    @property
    def leaf_count(self) -> int:
        """Number of leaves of the taxonomy; 0 without one."""
        return len(self.leaf_texts)

    def paths(self, nodes: Float64Vector) -> Int64Matrix:
        """Return the paths of nodes (n, levels), from the leaves up. Entries have a meaning within their column only.

        A missing value (NaN) differs from all nodes on all levels, and an inner node from all categories on the levels
        below it.
        """
        missing = np.isnan(nodes)
        if not self.leaf_texts:
            # Every category is a leaf below the root.
            return np.where(missing, float(_MISSING), nodes + len(self._rows)).astype(np.int64)[:, None]
        numbers = np.where(missing, ROOT_NODE, nodes).astype(np.int64)
        rows = np.where(numbers < 0, self.leaf_count - 1 - numbers, numbers)
        unknown = numbers >= self.leaf_count
        paths: Int64Matrix = self._rows[np.where(unknown, self.leaf_count, rows)]
        paths[unknown] = (numbers[unknown] + len(self._rows))[:, None]
        paths[missing] = _MISSING
        return paths

    def is_inner(self, entries: Int64Vector) -> BoolVector:
        """Return whether entries of paths above level 0 are inner nodes, shape (n,).

        Others belong to missing values and to categories that the taxonomy lacks.
        """
        is_inner: BoolVector = (entries >= 0) & (entries < len(self._rows))
        return is_inner

    def node_at(self, level: int, entries: Int64Vector) -> Float64Vector:
        """Return the nodes of entries of paths at one level; above level 0 they must be those of inner nodes."""
        nodes: Int64Vector
        if level == 0:
            nodes = np.where(entries < self.leaf_count, entries, entries - len(self._rows))
        else:
            nodes = ROOT_NODE - 1 - self._first_inner[level - 1] - entries
        return np.asarray(nodes, np.float64)

    def inner_text(self, node: int) -> str:
        """Return the name of an inner node, as a JSON string."""
        return self._root_text if node == ROOT_NODE else self._inner_texts[ROOT_NODE - 1 - node]


FEWEST_TO_DROP = 512
"""Texts of an attribute from which codes without a held record are dropped."""


class HeldCodes:
    """Gives each text a code for as long as a record with it is held. No code is given twice.

    The ``fixed`` texts have the codes 0, 1, ... and keep them. Memory: if `drop_unused` is called for each block, about
    `FEWEST_TO_DROP` more, or as many as records are held.
    """

    def __init__(self, fixed: Iterable[str] = ()) -> None:
        self.texts = dict(enumerate(fixed))
        """Text of each code."""
        self._codes = {text: code for code, text in self.texts.items()}
        self._fixed = self._next = len(self.texts)
        self._limit = self._fixed + FEWEST_TO_DROP

    @property
    def is_large(self) -> bool:
        """Whether `drop_unused` should be called."""
        return len(self._codes) > self._limit

    def is_fixed(self, text: str) -> bool:
        """Return whether a text is one of the fixed ones."""
        return self._codes.get(text, self._fixed) < self._fixed

    def code_of(self, text: str) -> int:
        """Return the code of a text."""
        code = self._codes.get(text)
        if code is None:
            code, self._next = self._next, self._next + 1
            self._codes[text], self.texts[code] = code, text
        return code

    def drop_unused(self, used: Collection[int]) -> None:
        """Drop codes that no held record has. The number that stays is at most half of the next limit."""
        for text, code in [(text, code) for text, code in self._codes.items() if code >= self._fixed]:
            if code not in used:
                del self._codes[text], self.texts[code]
        self._limit = max(self._fixed + FEWEST_TO_DROP, 2 * len(self._codes))


def _json_string(name: str) -> str:
    """Return the text of a JSON string."""
    return msgspec.json.encode(name).decode()
