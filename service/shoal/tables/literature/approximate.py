"""Approximate microaggregation: MDAV on the few attributes that say most about the others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int32Vector, Int64Matrix, Int64Vector
from shoal.errors import ParameterError
from shoal.tables.mdav import mdav

DECIMALS = 12  # decimals to which the weights of edges are compared, so that rounding decides no tie
MEASURES = ("variation", "rajski", "mutual-information")


class DependencyTree(NamedTuple):
    """How m attributes depend on each other."""

    weights: Float64Matrix  # (m, m): the smaller, the more two attributes say about each other
    edges: list[tuple[int, int]]  # of the minimum spanning tree, in ascending order of weight
    keys: list[int]  # key attributes, most connected first


def approximate(values: Float64Matrix, k: int, *, bins: int = 10, measure: str = "variation") -> Int32Vector:
    """Partition records by MDAV on the key attributes of their dependency tree.

    An attribute with more than ``bins`` distinct values is cut into bins of nearly equal size. ``measure`` is the
    weight of an edge: ``variation`` of information as in the paper; ``rajski``, the same divided by the joint entropy;
    ``mutual-information``, its negative; ParameterError for another one.

    Fewer attributes lose far more than the paper says: 1.1 to 2 times the loss of MDAV on numbers for k of 20, up to 6
    times for k of 3, and 3.7 to 40 times on Adult, whose attributes have few values. The paper has discrete attributes
    only; without bins, an attribute of distinct values would determine every other. Its step 7 is never needed (see
    `mdav`). Cost: O(d² n log n) for the tree, and that of `mdav`.

    References
    ----------
    .. [1] X. Sun, H. Wang, J. Li and Y. Zhang, "An Approximate Microaggregation Approach for Microdata Protection",
       Expert Systems with Applications 39(2), 2012, Algorithms 1 and 2.
    """
    if measure not in MEASURES:
        raise ParameterError(f"algorithm 'approximate': measure: needs one of {', '.join(MEASURES)}")
    codes = np.stack([discretized(column, bins) for column in values.T], axis=1)
    return mdav(np.ascontiguousarray(values[:, dependency_tree(codes, measure).keys]), k)


def dependency_tree(codes: Int64Matrix, measure: str = "variation") -> DependencyTree:
    """Return weights, minimum spanning tree and key attributes of discrete attributes, given by codes (n, m) from 0.

    Weights are 2 H(A, B) - H(A) - H(B) in bits, a metric (Definition 3 of the paper). Ties go to the lowest attributes.
    Two errors in the paper's example are not followed: its tree is not minimal, and two entropies are exchanged.
    """
    m = codes.shape[1]
    entropies = [_entropy(codes[:, a]) for a in range(m)]
    weights = np.zeros((m, m))
    for a in range(m):
        for b in range(a + 1, m):
            joint = _entropy(codes[:, a] * (int(codes[:, b].max()) + 1) + codes[:, b])
            weights[a, b] = weights[b, a] = _weight(entropies[a], entropies[b], joint, measure)
    edges = _minimum_spanning_tree(weights)
    return DependencyTree(weights, edges, key_attributes(edges, m))


def key_attributes(edges: list[tuple[int, int]], m: int) -> list[int]:
    """Return the most connected of m attributes until their degrees add up to m (Definition 5); ties to the first."""
    degrees = np.bincount(np.array(edges, np.int64).ravel(), minlength=m)
    order = sorted(range(m), key=lambda a: (-degrees[a], a))
    return order[: int(np.searchsorted(np.cumsum(degrees[order]), m)) + 1]


def discretized(column: Float64Vector, bins: int) -> Int64Vector:
    """Return codes (n,) of the distinct values if there are at most ``bins``, else the bins of their mid-ranks."""
    _, inverse, counts = np.unique(column, return_inverse=True, return_counts=True)
    if len(counts) <= bins:
        return inverse.astype(np.int64)
    mid_ranks = (np.cumsum(counts) - counts / 2.0) / len(column)
    return np.minimum((mid_ranks * bins).astype(np.int64), bins - 1)[inverse]


def _weight(one: float, other: float, joint: float, measure: str) -> float:
    """Return the weight of an edge from two entropies and the joint entropy."""
    variation = 2.0 * joint - one - other
    if measure == "rajski":
        return variation / joint if joint > 0.0 else 0.0
    return variation if measure == "variation" else joint - one - other


def _entropy(codes: Int64Vector) -> float:
    """Return the entropy in bits."""
    counts = np.unique(codes, return_counts=True)[1]
    shares = counts / len(codes)
    return float(-(shares * np.log2(shares)).sum())


def _minimum_spanning_tree(weights: Float64Matrix) -> list[tuple[int, int]]:
    """Return the edges in the order in which Kruskal's algorithm finds them."""
    m = len(weights)
    candidates = sorted((round(float(weights[a, b]), DECIMALS), a, b) for a in range(m) for b in range(a + 1, m))
    trees = list(range(m))
    edges = []
    for _, a, b in candidates:
        if trees[a] != trees[b]:
            edges.append((a, b))
            trees = [trees[b] if tree == trees[a] else tree for tree in trees]
    return edges
