"""Earth mover's distance (EMD) between the confidential values of a cluster and those of the reference.

References
----------
.. [1] N. Li, T. Li and S. Venkatasubramanian, "t-Closeness: Privacy Beyond k-Anonymity and l-Diversity", ICDE 2007.
   doi:10.1109/ICDE.2007.367856
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Vector, Int32Vector, Int64Vector
from shoal.clustering.diversity import (
    EQUAL,
    ORDERED,
    DiversityRule,
    ValueReference,
    build_diversity_rule,
    distance_of,
)
from shoal.clustering.numba.jit import njit

__all__ = ["ConfidentialAttribute", "cluster_distances", "emd_of_clusters"]


class ConfidentialAttribute(NamedTuple):
    """One confidential attribute of n records.

    Attributes
    ----------
    bins : ndarray of int64, shape (n,)
        Bin of each value in the reference, 0 to m - 1; ordered bins ascend, and equal values have equal bins.
    ordered : bool
        Without ``reference``: whether the values are ordered, and neighbouring values are 1 / (m - 1) apart. Otherwise
        they are categories, and any two of them are 1 apart.
    reference : ValueReference, optional
        What the distribution in a cluster is compared with, and the distance of two bins. By default the distribution
        in the table, and the distance that ``ordered`` says.
    values : ndarray of int64, shape (n,), optional
        Code of each value, of which only equality counts; for l-diversity and the largest share of a value. By default
        the bins. It is needed where different values have one bin of a given reference.
    """

    bins: Int64Vector
    ordered: bool
    reference: ValueReference | None = None
    values: Int64Vector | None = None

    @property
    def codes(self) -> Int64Vector:
        """Code of each value (n,)."""
        return self.bins if self.values is None else self.values

    def compared_with(self) -> ValueReference:
        """Return the reference; by default that of the table. O(n)."""
        return self.reference or ValueReference(ORDERED if self.ordered else EQUAL, np.bincount(self.bins))


def emd_of_clusters(attribute: ConfidentialAttribute, labels: Int32Vector) -> Float64Vector:
    """Return the earth mover's distance of each cluster from the reference, for one attribute.

    Parameters
    ----------
    attribute : ConfidentialAttribute
        Of n records.
    labels : ndarray of int32, shape (n,)
        Cluster of each record, from 0; no cluster is empty.

    Returns
    -------
    ndarray of float64, shape (clusters,)
        Distances from 0 to 1.

    Notes
    -----
    Ordered values: the mean, over the distinct values but the last, of the absolute difference of the two cumulative
    shares (formula (1) of [1]_). Categories: half the sum of the absolute differences of the shares. With a taxonomy:
    the mean of the latter over its levels.
    Cost: O(n log n).

    References
    ----------
    .. [1] J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation: A Unified Primitive for Anonymization of
       Data Sets and Data Streams", ICDM Workshops 2017. doi:10.1109/ICDMW.2017.141
    """
    rule = build_diversity_rule([attribute.compared_with()], t=0.0)
    order = np.lexsort((attribute.bins, labels))
    cluster_bounds = np.append(0, np.cumsum(np.bincount(labels)))
    return cluster_distances(rule, attribute.bins[order], cluster_bounds)


@njit
def cluster_distances(rule: DiversityRule, bins: Int64Vector, cluster_bounds: Int64Vector) -> Float64Vector:
    """Return the distance of each cluster from the reference of the only attribute, shape (clusters,).

    ``bins`` (n,) are those of the records by cluster and, within a cluster, ascending. Cluster g is
    ``bins[cluster_bounds[g]:cluster_bounds[g + 1]]``. O(size log bins) per cluster.
    """
    found = np.empty(cluster_bounds.size - 1)
    for cluster in range(found.size):
        found[cluster] = distance_of(rule, 0, bins[cluster_bounds[cluster] : cluster_bounds[cluster + 1]])
    return found
