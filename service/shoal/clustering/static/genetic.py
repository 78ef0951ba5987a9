"""MDAV, and then a genetic search within groups of its clusters."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Int32Vector, Int64Vector
from shoal.clustering.static import genetic_kernel as kernel
from shoal.clustering.static.centroids import centroids_of
from shoal.clustering.static.mdav import mdav

__all__ = ["genetic"]

CHANCES = kernel.Chances(population=10, crossover=0.5, mutation=0.1)
"""Table 1 of the paper."""
TWO = 2


def genetic(
    values: Float64Matrix, k: int, *, macro: int = 6, steps: int = 2, generations: int = 10_000, seed: int = 0
) -> Int32Vector:
    """Partition records by MDAV into macrogroups, and each of these by a genetic algorithm.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d), C-contiguous
        Coordinates; finite; not modified.
    k : int
        Smallest cluster, 2 <= k <= n.
    macro : int
        Size of a macrogroup in clusters of k (the paper's K / k), at least 2.
    steps : int
        2: MDAV forms clusters of k, and again macrogroups of their centroids; 1: MDAV forms macrogroups of records.
    generations : int
        Of each macrogroup.
    seed : int
        Of all random choices.

    Returns
    -------
    ndarray of int32, shape (n,)
        Cluster of each record, numbered by macrogroup.

    Notes
    -----
    Guarantees: sizes of k to 2k - 1; in two steps no more loss than MDAV (Lemma 1 of [1]_), whose clusters are the
    first chromosome of each macrogroup. The best chromosome takes the place of the worst in every generation, without
    which the lemma would not hold.
    The paper leaves open: what to do with illegal sizes (repaired here: a small cluster is dissolved into the nearest
    with room, a large one split or relieved), whether mutation is by gene or chromosome (by chromosome, one gene). This
    reading comes within 1 % of its Table 2. Its line 4, "while RR < 2k - 1", is a misprint.
    Cost: MDAV's, and O(population macro k d) per generation and macrogroup: seconds for thousands of records.
    Refinement by descent does better in a hundredth of the time; this is here as the paper's method.

    References
    ----------
    .. [1] A. Martínez-Ballesté, A. Solanas, J. Domingo-Ferrer and J. M. Mateo-Sanz, "A Genetic Approach to
       Multivariate Microaggregation for Database Privacy", ICDE Workshops 2007. doi:10.1109/ICDEW.2007.4400989
    """
    start = mdav(values, k) if steps == TWO else np.full(len(values), -1, np.int32)
    groups = mdav(centroids_of(values, start), macro)[start] if steps == TWO else mdav(values, macro * k)
    labels, clusters = np.empty(len(values), np.int32), 0
    random = np.random.default_rng(seed)
    for members in np.split(np.argsort(groups, kind="stable"), np.cumsum(np.bincount(groups))[:-1]):
        found = _search(values[members], start[members], k, generations, random)
        names, own = np.unique(found, return_inverse=True)
        labels[members] = own + clusters
        clusters += len(names)
    return labels


def _search(
    values: Float64Matrix, start: Int32Vector, k: int, generations: int, random: np.random.Generator
) -> Int64Vector:
    """Return the labels of one macrogroup; too few records for two clusters are one."""
    if len(values) < TWO * k:
        return np.zeros(len(values), np.int64)
    chromosome = start.astype(np.int64)
    if start[0] >= 0:
        chromosome = np.unique(start, return_inverse=True)[1].astype(np.int64)
    return kernel.evolve(values - values.mean(axis=0), chromosome, k, generations, CHANCES, random)
