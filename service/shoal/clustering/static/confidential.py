"""How far the confidential values of a cluster are from those of the table."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Vector, Int32Vector, Int64Vector
from shoal.clustering.static import emd
from shoal.clustering.static.emd import Spectrum

__all__ = ["Confidential", "distances_of", "spectrum_of"]


class Confidential(NamedTuple):
    """One confidential attribute of n records.

    ``bins`` int64 (n,): 0, 1, ... by value; equal values have equal bins. ``ordered``: whether values lie on a line,
    each 1 / (m - 1) from the next of m; else all are equally far from each other.
    """

    bins: Int64Vector
    ordered: bool


def spectrum_of(attributes: tuple[Confidential, ...]) -> Spectrum:
    """Return the attributes and their distribution in the table, for the kernels."""
    counts = [np.bincount(attribute.bins) for attribute in attributes]
    shares = [count / count.sum() for count in counts]
    reaches = [np.cumsum(count) / count.sum() for count in counts]
    return Spectrum(
        bins=np.stack([attribute.bins for attribute in attributes]),
        starts=np.cumsum([0, *map(len, counts)]),
        shares=np.concatenate(shares),
        reach=np.concatenate(reaches),
        sums=np.concatenate([np.append(0.0, np.cumsum(reach)) for reach in reaches]),
        ordered=np.array([attribute.ordered for attribute in attributes]),
    )


def distances_of(attributes: tuple[Confidential, ...], attribute: int, labels: Int32Vector) -> Float64Vector:
    """Return the earth mover's distance of each cluster (G,) from the table, for one attribute.

    Parameters
    ----------
    attributes : tuple of Confidential
        Of n records.
    attribute : int
        Which of them.
    labels : ndarray of int32, shape (n,)
        Cluster of each record, from 0, none empty.

    Notes
    -----
    Ordered values: the mean over distinct values of the difference of the two cumulative shares, formula (1) of [1]_;
    others: half the sum of the differences of shares. From 0 to 1. O(n log n).

    References
    ----------
    .. [1] J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation: A Unified Primitive for Anonymization of
       Data Sets and Data Streams", ICDM Workshops 2017. doi:10.1109/ICDMW.2017.141
    """
    spectrum = spectrum_of((attributes[attribute],))
    order = np.lexsort((spectrum.bins[0], labels))
    offsets = np.append(0, np.cumsum(np.bincount(labels)))
    return emd.distances(spectrum, 0, order, offsets)
