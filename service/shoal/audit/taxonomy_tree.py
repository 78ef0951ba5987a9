"""The tree of a taxonomy as the audit reads it: common ancestors, medians and distances of leaves.

A node is a level and a name: level 0 holds the leaves, and the root is above the highest level. A category that the
taxonomy lacks is a leaf of its own directly below the root, so it differs from every other one on all levels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from shoal.policy import Taxonomy

__all__ = ["TaxonomyTree"]

_UNKNOWN = "\x00"
"""Marks the nodes of a category that the taxonomy lacks, so that no node of the tree equals them."""


class TaxonomyTree:
    """A taxonomy with the paths of its leaves.

    Parameters
    ----------
    taxonomy : Taxonomy
    """

    def __init__(self, taxonomy: Taxonomy) -> None:
        self.root = taxonomy.root
        self.depth = len(taxonomy.paths[0])
        self._paths = {path[0]: tuple(path) for path in taxonomy.paths}
        self._inner = {
            path[level]: ("",) * level + tuple(path[level:])
            for path in taxonomy.paths
            for level in reversed(range(1, self.depth))
        }
        self.leaves = frozenset(self._paths)
        self.nodes = frozenset(name for path in taxonomy.paths for name in path) | {self.root}

    def ancestor(self, leaves: Sequence[str]) -> str:
        """Return the name of the lowest common ancestor; the leaf itself if all are equal."""
        names = set(leaves)
        if len(names) == 1:
            return names.pop()
        paths = [self._path(name) for name in names]
        for level in range(1, self.depth):
            found = {path[level] for path in paths}
            if len(found) == 1:
                return found.pop()
        return self.root

    def median(self, leaves: Sequence[str]) -> str:
        """Return the name of the lowest node above more than half of the leaves."""
        counts = Counter(leaves)
        inside = dict(counts)
        name = self.root
        for level in reversed(range(self.depth)):
            weights: Counter[str] = Counter()
            for leaf, count in inside.items():
                weights[self._path(leaf)[level]] += count
            node, weight = max(weights.items(), key=lambda item: item[1])
            if 2 * weight <= len(leaves):
                return name
            if node.startswith(_UNKNOWN):
                return node.removeprefix(_UNKNOWN)
            name = node
            inside = {leaf: count for leaf, count in inside.items() if self._path(leaf)[level] == node}
        return name

    def distance(self, leaf: str, published: str, *, is_leaf: bool) -> Fraction:
        """Return the height of the common ancestor of a leaf and a published node, over the number of levels.

        ``is_leaf``: whether the published name is that of a leaf. Equal names can be those of leaf and inner node.
        """
        path = self._path(leaf)
        other = self._path(published) if is_leaf else self._path_from(published)
        common = (level for level in range(self.depth) if path[level] == other[level])
        return Fraction(min(common, default=self.depth), self.depth)

    def _path_from(self, node: str) -> tuple[str, ...]:
        """Return the path of an inner node: that of a leaf below it, without what is below the node."""
        return self._inner.get(node, ("",) * self.depth)

    def _path(self, leaf: str) -> tuple[str, ...]:
        return self._paths.get(leaf) or (_UNKNOWN + leaf,) * self.depth
