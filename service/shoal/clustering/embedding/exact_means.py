"""Means of clusters that do not depend on the order of the members: exact sums, rounded once."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from shoal.arrays import BoolMatrix, Float64Matrix, Int64Vector
from shoal.clustering.numba.exact_sums import divide_sums, sum_clusters

__all__ = ["MemberSums", "exact_means"]


def exact_means(values: Float64Matrix, cluster_bounds: Int64Vector) -> Float64Matrix:
    """Return the means of clusters: the floats nearest to the exact means, independent of the order of members.

    Parameters
    ----------
    values : ndarray of float64, shape (E, d)
        Members, cluster after cluster; finite; not modified.
    cluster_bounds : ndarray of int64, shape (G + 1,)
        Cluster g is ``values[cluster_bounds[g]:cluster_bounds[g + 1]]``, and not empty.

    Returns
    -------
    ndarray of float64, shape (G, d)
        New; in the units of ``values``. Ties go to the even float, and zero has no sign.
    """
    return MemberSums(values, cluster_bounds).means()


class MemberSums:
    """Sums of clusters: ``totals`` plus residuals, both float64 (G, d), where ``exact``; elsewhere not representable.

    Parameters are those of `exact_means`.
    """

    def __init__(self, values: Float64Matrix, cluster_bounds: Int64Vector) -> None:
        self._values = np.require(values, np.float64, ["C", "W"])  # as kernels need them
        self._bounds = cluster_bounds
        self.totals = np.empty((len(cluster_bounds) - 1, values.shape[1]))
        self._residuals = np.empty_like(self.totals)
        self.exact: BoolMatrix = np.empty(self.totals.shape, np.bool_)
        sum_clusters(self._values, cluster_bounds, self.totals, self._residuals, self.exact)

    def means(self) -> Float64Matrix:
        """Return the means, each rounded once."""
        means, certain = np.empty_like(self.totals), np.empty_like(self.exact)
        divide_sums(self.totals, self._residuals, self.exact, self._bounds, means, certain)
        for cluster, column in np.argwhere(~certain).tolist():
            total, size = self.exact_total(cluster, column)
            means[cluster, column] = float(Fraction(total) / size) + 0.0
        return means

    def exact_total(self, cluster: int, column: int) -> tuple[float | Fraction, int]:
        """Return the exact sum of one attribute of a cluster, and the size of the cluster."""
        first, last = self._bounds[cluster : cluster + 2].tolist()
        if not self.exact[cluster, column]:
            return sum(map(Fraction, self._values[first:last, column].tolist()), Fraction()), last - first
        total, rest = float(self.totals[cluster, column]), float(self._residuals[cluster, column])
        return Fraction(total) + Fraction(rest) if rest else total, last - first
