"""Algorithm 2 in plain numpy, one Python step per record, without any optimisation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["nearest_numpy"]


def nearest_numpy(values: NDArray[np.float64], k: int, delta: int) -> list[NDArray[np.int64]]:
    """Clusters of the expiring record and its k - 1 nearest, by partial sorting; no subjects, no weights.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d)
        Scaled by the caller; not modified.
    k, delta : int
        Cluster size, and largest delay in records.

    Returns
    -------
    list of ndarray of int64
        Positions of each cluster. What is held at the end stays held.
    """
    held = np.empty(0, np.int64)
    clusters = []
    for position in range(len(values)):
        held = np.append(held, position)
        if position - held[0] < delta:
            continue
        if len(held) < k:
            held = held[1:]
            continue
        difference = values[held] - values[held[0]]
        distance = np.einsum("ij,ij->i", difference, difference)
        distance[0] = -1.0
        chosen = np.argpartition(distance, k - 1)[:k]
        clusters.append(held[chosen])
        held = np.delete(held, chosen)
    return clusters
