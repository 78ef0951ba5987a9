"""Centroids of clusters, the loss of a partition, and leftover records that join the cluster with the nearest one."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Int32Vector
from shoal.kernels.distances import squared_distance
from shoal.kernels.jit import njit

__all__ = ["centroids_of", "join_as_block", "loss_of"]


def centroids_of(values: Float64Matrix, labels: Int32Vector) -> Float64Matrix:
    """Return the centroid of each cluster.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d)
        Coordinates.
    labels : ndarray of int32, shape (n,)
        Cluster of each record, from 0; no cluster is empty.

    Returns
    -------
    ndarray of float64, shape (clusters, d)
        O(n d).
    """
    counts = np.bincount(labels)
    return np.stack([np.bincount(labels, column) / counts for column in values.T], axis=1)


def loss_of(values: Float64Matrix, labels: Int32Vector) -> float:
    """Return the loss of a partition: the sum of squared distances of the records to the centroids of their clusters.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d)
        Coordinates.
    labels : ndarray of int32, shape (n,)
        Cluster of each record, from 0.
    """
    counts = np.bincount(labels)
    residues = ((column - (np.bincount(labels, column) / counts)[labels]) for column in values.T)
    return float(sum(np.square(residue).sum() for residue in residues))  # a dot product would start BLAS threads


@njit
def join_as_block(values: Float64Matrix, labels: Int32Vector, clusters: int) -> None:
    """Assign all records of label -1, as one block, to the cluster with the centroid nearest to the block's.

    ``labels`` (n,) is changed in place; ``clusters`` is the number of clusters, numbered from 0. O(n d).
    """
    sums, counts = np.zeros((clusters + 1, values.shape[1])), np.zeros(clusters + 1)  # the last is that of the block
    for i in range(labels.size):
        cluster = labels[i] if labels[i] >= 0 else clusters
        counts[cluster] += 1.0
        sums[cluster] += values[i]
    if counts[clusters] == 0.0:
        return
    block, distances = sums[clusters] / counts[clusters], np.zeros(clusters)
    for cluster in range(clusters):
        sums[cluster] /= counts[cluster]
        distances[cluster] = squared_distance(sums, cluster, block)
    nearest = np.argmin(distances)
    for i in range(labels.size):
        if labels[i] < 0:
            labels[i] = nearest
