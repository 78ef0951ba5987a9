"""The categories of a nominal attribute as arrays: the nodes of a taxonomy, or categories without one.

A node is a number. A category has its code: 0 or more. Codes below the number of leaves are the leaves of the taxonomy,
in its order; a category with a greater code is a leaf of its own directly below the root. The root is -1, and all other
inner nodes are below -1. NaN stands for a missing value. Code numbers have no other meaning: only equality counts.

A flat list of categories is a taxonomy of one level, in which no leaf is known in advance.
"""

from __future__ import annotations

import msgspec
import numpy as np

from shoal.arrays import BoolVector, Float64Vector, Int64Matrix, Int64Vector
from shoal.policy import Taxonomy

__all__ = ["ROOT_NODE", "CategoryTree"]

ROOT_NODE = -1
"""Number of the root."""

_MISSING, _BELOW_NODE = -1, -2
"""Entries of a path: of a missing value on all levels, and of an inner node on the levels below it."""


class CategoryTree:
    """The taxonomy of one nominal attribute, or none.

    Parameters
    ----------
    taxonomy : Taxonomy or None
        None for categories that are equally far from each other.

    Notes
    -----
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
        """Return the paths of nodes.

        Parameters
        ----------
        nodes : ndarray of float64, shape (n,)
            Numbers of nodes; NaN for a missing value.

        Returns
        -------
        ndarray of int64, shape (n, levels)
            From the leaves up. Entries have a meaning within their column only. A missing value differs from all nodes
            on all levels. An inner node differs from all categories on the levels below it.
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
        """Return the nodes of entries of paths at one level, shape (n,).

        At a level above 0 the entries must be those of inner nodes (`is_inner`).
        """
        nodes: Int64Vector
        if level == 0:
            nodes = np.where(entries < self.leaf_count, entries, entries - len(self._rows))
        else:
            nodes = ROOT_NODE - 1 - self._first_inner[level - 1] - entries
        return np.asarray(nodes, np.float64)

    def inner_text(self, node: int) -> str:
        """Return the name of an inner node, as a JSON string."""
        return self._root_text if node == ROOT_NODE else self._inner_texts[ROOT_NODE - 1 - node]


def _json_string(name: str) -> str:
    """Return the text of a JSON string."""
    return msgspec.json.encode(name).decode()
