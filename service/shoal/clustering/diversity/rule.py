"""What clusters must satisfy in their protected attributes, as arrays for the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.arrays import Float64Vector, Int8Vector, Int64Matrix, Int64Vector

__all__ = [
    "DISTINCT",
    "ENTROPY",
    "EQUAL",
    "HIERARCHICAL",
    "NO_DIVERSITY",
    "NO_L",
    "ORDERED",
    "RECURSIVE",
    "DiversityRule",
    "LDiversity",
    "ValueReference",
    "build_diversity_rule",
]

NO_L, DISTINCT, ENTROPY, RECURSIVE = range(4)
"""Kinds of l-diversity."""
ORDERED, EQUAL, HIERARCHICAL = range(3)
"""Distances between two bins: by rank, 1 between any two, by the height of their lowest common ancestor."""


class LDiversity(NamedTuple):
    """A kind of l-diversity and its parameters."""

    kind: int  # DISTINCT, ENTROPY or RECURSIVE
    l: float  # noqa: E741 - the letter of the literature
    c: float = 0.0  # of recursive diversity


class ValueReference(NamedTuple):
    """The distribution that the values of one protected attribute are compared with.

    Attributes
    ----------
    distance : int
        `ORDERED`, `EQUAL` or `HIERARCHICAL`.
    weights : ndarray, shape (m,)
        Number of records, or share, of each bin; 0 or more, not all 0. Ordered bins ascend.
    paths : ndarray of int64, shape (m, levels), optional
        Of a hierarchical distance: the node of each bin at each level below the root, leaves first. A node is a number
        at its level. The bins are in the order of the tree: those below one node follow one another.
    """

    distance: int
    weights: NDArray[np.float64] | NDArray[np.int64]
    paths: Int64Matrix | None = None


class DiversityRule(NamedTuple):
    """What the q protected attributes of every cluster must satisfy, as arrays for the kernels.

    Attribute ``i`` has the bins ``bin_bounds[i]`` to ``bin_bounds[i + 1]`` of ``shares``, ``cumulative`` and ``paths``.
    Its part of ``cumulative_sums`` is one longer, so it begins at ``bin_bounds[i] + i``.
    """

    l_kind: int  # NO_L, DISTINCT, ENTROPY or RECURSIVE
    l: float  # noqa: E741 - the letter of the literature
    c: float  # of recursive diversity
    max_value_share: float  # largest share of one value among the records of a cluster; 1: none
    t: float  # largest distance of a cluster from the reference; 1: none
    distances: Int8Vector  # (q,): ORDERED, EQUAL or HIERARCHICAL
    bin_bounds: Int64Vector  # (q + 1,)
    shares: Float64Vector  # (bins,): share of the reference in each bin
    cumulative: Float64Vector  # (bins,): share of the reference up to and including each bin
    cumulative_sums: Float64Vector  # (bins + q,): sum of `cumulative` over all lower bins
    paths: Int64Matrix  # (bins, most levels): node of each bin at each level, leaves first; -1 beyond its levels
    node_shares: Float64Vector  # (nodes,): share of the reference below each node
    levels: Int64Vector  # (q,): levels below the root; 0 unless hierarchical


def build_diversity_rule(
    references: Sequence[ValueReference] = (),
    *,
    l: LDiversity | None = None,  # noqa: E741 - the letter of the literature
    max_value_share: float | None = None,
    t: float | None = None,
) -> DiversityRule:
    """Return what every cluster must satisfy, for the kernels.

    Parameters
    ----------
    references : sequence of ValueReference
        That of each protected attribute. Needed with ``t`` only; may be empty without it.
    l : LDiversity, optional
        Kind and parameters of l-diversity. By default none.
    max_value_share : float, optional
        Largest share of one value among the records of a cluster, above 0, at most 1. By default no limit.
    t : float, optional
        Largest earth mover's distance from the reference, 0 or more. By default no limit.

    Raises
    ------
    ValueError
        ``t`` without a reference, weights that are all 0, or bins that are not in the order of their tree.

    Notes
    -----
    Cost: O(bins × levels).
    """
    if t is not None and not references:
        raise ValueError("t needs the reference of each protected attribute")
    sizes = [len(reference.weights) for reference in references]
    totals = [reference.weights.sum() for reference in references]
    if not all(total > 0 for total in totals):
        raise ValueError("a reference needs a weight above 0")
    cumulative = [np.cumsum(one.weights) / one.weights.sum() for one in references]
    shares = [reference.weights / total for reference, total in zip(references, totals, strict=True)]
    paths, node_shares, levels = _trees(references, shares)
    return DiversityRule(
        NO_L if l is None else l.kind,
        0.0 if l is None else float(l.l),
        0.0 if l is None else float(l.c),
        1.0 if max_value_share is None else float(max_value_share),
        1.0 if t is None else float(t),
        np.array([reference.distance for reference in references], np.int8),
        np.cumsum([0, *sizes]),
        np.concatenate([np.zeros(0), *shares]),
        np.concatenate([np.zeros(0), *cumulative]),
        np.concatenate([np.zeros(0), *(np.append(0.0, np.cumsum(column)) for column in cumulative)]),
        paths,
        node_shares,
        levels,
    )


def _trees(
    references: Sequence[ValueReference], shares: list[Float64Vector]
) -> tuple[Int64Matrix, Float64Vector, Int64Vector]:
    """Return ``paths``, ``node_shares`` and ``levels`` of `DiversityRule`; nodes are numbered from 0 over all trees."""
    trees = [_tree_of(reference) for reference in references]
    levels = np.array([tree.shape[1] for tree in trees], np.int64)
    widest = int(levels.max(initial=0))
    paths, node_shares, count = [np.zeros((0, widest), np.int64)], [np.zeros(0)], 0
    for tree, own_shares in zip(trees, shares, strict=True):
        own = np.full((len(tree), widest), -1, np.int64)
        for level in range(tree.shape[1]):
            nodes = _nodes_of_level(tree[:, level:])
            own[:, level] = nodes + count
            node_shares.append(np.asarray(np.bincount(nodes, own_shares), np.float64))
            count += len(node_shares[-1])
        paths.append(own)
    return np.concatenate(paths), np.concatenate(node_shares), levels


def _tree_of(reference: ValueReference) -> Int64Matrix:
    """Return the paths (m, levels) of a reference; no levels unless its distance is hierarchical."""
    if reference.distance != HIERARCHICAL:
        return np.zeros((len(reference.weights), 0), np.int64)
    if reference.paths is None or not reference.paths.shape[1]:
        raise ValueError("a hierarchical distance needs the path of each bin")
    return reference.paths


def _nodes_of_level(paths: Int64Matrix) -> Int64Vector:
    """Return the node (m,) of each bin at the first level of ``paths`` (m, levels), from 0 in their order."""
    is_first = np.append(True, (paths[1:] != paths[:-1]).any(axis=1))
    if np.count_nonzero(is_first) > len(np.unique(paths[:, 0])):
        raise ValueError("the bins of a hierarchical distance must be in the order of their tree")
    return np.cumsum(is_first) - 1


NO_DIVERSITY = build_diversity_rule()
"""No constraint."""
