"""The best partition of one attribute."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Int32Vector
from shoal.clustering.static import hansen_mukherjee as path
from shoal.errors import ParameterError

__all__ = ["optimal"]


def optimal(values: Float64Matrix, k: int) -> Int32Vector:
    """Partition the records of one attribute with the least sum of squared errors there is.

    Parameters
    ----------
    values : ndarray of float64, shape (n, 1), C-contiguous
        Coordinates; finite; not modified.
    k : int
        Smallest cluster, 2 <= k <= n.

    Returns
    -------
    ndarray of int32, shape (n,)
        Cluster of each record, numbered from the lowest value to the highest.

    Raises
    ------
    ParameterError
        With more than one attribute: the best partition is then NP-hard to find.

    Notes
    -----
    Guarantee: no partition into clusters of k or more has a lower sum (up to rounding). Clusters have k to 2k - 1.
    Cost: O(n log n) to sort and O(n log k) for the partition, instead of the O(n k) of [1]_: on a line the best
    beginning of a cluster never moves back while its end moves on.

    References
    ----------
    .. [1] S. L. Hansen and S. Mukherjee, "A Polynomial Algorithm for Optimal Univariate Microaggregation", IEEE TKDE
       15(4), 2003. doi:10.1109/TKDE.2003.1209020
    """
    if values.shape[1] != 1:
        raise ParameterError("algorithm: 'optimal' takes one attribute; use 'auto' for several")
    line = values[:, 0]
    order = np.argsort(line, kind="stable")
    return path.label_runs(path.along_line(line[order], k), order)
