"""The tree of a taxonomy as the audit reads it: common ancestors, medians and distances of leaves.

A node is a level and a name: level 0 holds the leaves, and the root is above the highest level. Equal names on two
levels are two nodes. A category that the taxonomy lacks is a leaf of its own directly below the root, so it differs
from every other one on all levels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from shoal.policy import Taxonomy

__all__ = ["Node", "TaxonomyTree"]


class Node(NamedTuple):
    """A leaf, an inner node or the root.

    Attributes
    ----------
    level : int
        0 for a leaf; the number of levels for the root.
    name : str
    """

    level: int
    name: str


class TaxonomyTree:
    """A taxonomy with the paths of its leaves.

    Parameters
    ----------
    taxonomy : Taxonomy

    Attributes
    ----------
    leaves, inner : frozenset of str
        Names of the leaves, and of all nodes above them. A name can be in both.
    """

    def __init__(self, taxonomy: Taxonomy) -> None:
        self.depth = len(taxonomy.paths[0])
        self.root = Node(self.depth, taxonomy.root)
        paths = [tuple(Node(level, name) for level, name in enumerate(path)) for path in taxonomy.paths]
        self._paths = {path[0].name: path for path in paths}
        self._from = {node: (None,) * node.level + path[node.level :] for path in paths for node in path}
        self.leaves = frozenset(self._paths)
        self.inner = frozenset(node.name for path in paths for node in path[1:]) | {self.root.name}

    def path(self, leaf: str) -> tuple[Node, ...]:
        """Return the nodes from a leaf up to the child of the root. A leaf of its own is on all of its levels."""
        return self._paths.get(leaf) or (Node(0, leaf),) * self.depth

    def ancestor(self, leaves: Sequence[str]) -> Node:
        """Return the lowest common ancestor; the leaf itself if all are equal."""
        paths = [self.path(name) for name in set(leaves)]
        for level in range(self.depth):
            found = {path[level] for path in paths}
            if len(found) == 1:
                return found.pop()
        return self.root

    def median(self, leaves: Sequence[str]) -> Node:
        """Return the lowest node above more than half of the leaves."""
        counts = Counter(leaves)
        for level in range(self.depth):
            weights: Counter[Node] = Counter()
            for leaf, count in counts.items():
                weights[self.path(leaf)[level]] += count
            node, weight = max(weights.items(), key=lambda item: item[1])
            if 2 * weight > len(leaves):
                return node
        return self.root

    def distance(self, leaf: str, node: Node) -> Fraction:
        """Return the height of the common ancestor of a leaf and a node, over the number of levels."""
        path = self.path(leaf)
        other = self.path(node.name) if node.level == 0 else self._from.get(node, (None,) * self.depth)
        common = (level for level in range(self.depth) if path[level] == other[level])
        return Fraction(min(common, default=self.depth), self.depth)
