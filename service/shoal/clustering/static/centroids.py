"""Centroids of clusters."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Int32Vector

__all__ = ["centroids_of"]


def centroids_of(values: Float64Matrix, labels: Int32Vector) -> Float64Matrix:
    """Return the centroids (G, d) of clusters of records (n, d), by their labels (n,) from 0; none is empty. O(n d)."""
    counts = np.bincount(labels)
    return np.stack([np.bincount(labels, column) / counts for column in values.T], axis=1)
