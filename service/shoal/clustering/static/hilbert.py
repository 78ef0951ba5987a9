"""Hilbert's curve through the records, and the best partition along it."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Int32Vector, Int64Vector
from shoal.clustering.static import hansen_mukherjee as path
from shoal.clustering.static import hilbert_kernel as curve

__all__ = ["hilbert", "order_along_curve"]

FINEST = 31
"""Bits of an attribute at most."""


def hilbert(values: Float64Matrix, k: int) -> Int32Vector:
    """Partition records into runs of k to 2k - 1 along Hilbert's curve.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d), C-contiguous
        Coordinates; finite; not modified.
    k : int
        Smallest cluster, 2 <= k <= n.

    Returns
    -------
    ndarray of int32, shape (n,)
        Cluster of each record, numbered along the curve.

    Notes
    -----
    The order is that of the curve, each attribute cut into up to 2³¹ cells over its range; the partition is the best
    there is along that order [1]_. A start for refinement: by itself it loses more than MDAV.
    Cost: O(n (log n + k d)).

    References
    ----------
    .. [1] J. Domingo-Ferrer, A. Martínez-Ballesté, J. M. Mateo-Sanz and F. Sebé, "Efficient Multivariate Data-Oriented
       Microaggregation", VLDB Journal 15(4), 2006 (a path, then Hansen and Mukherjee). doi:10.1007/s00778-006-0007-0
    .. [2] J. Skilling, "Programming the Hilbert Curve", AIP Conference Proceedings 707, 2004. doi:10.1063/1.1751381
    """
    order = order_along_curve(values)
    return path.label_runs(path.along(values[order], k), order)


def order_along_curve(values: Float64Matrix) -> Int64Vector:
    """Return the records in order of the curve; those of one cell in order of the table.

    Of more than 124 attributes only the first 124 steer the curve.
    """
    seen = values[:, : 2 * curve.WORD_BITS]
    keys = curve.places(seen, min(FINEST, 2 * curve.WORD_BITS // seen.shape[1]))
    return np.lexsort((keys[1], keys[0]))
