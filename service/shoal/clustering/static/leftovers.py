"""Fewer than k records that no cluster was formed of: they join one that is there."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Int32Vector
from shoal.clustering.numba.jit import njit

__all__ = ["join_as_block", "join_one_by_one"]


@njit
def _centroids(values: Float64Matrix, labels: Int32Vector, clusters: int) -> Float64Matrix:
    """Return the centroids of all clusters; label -1 belongs to none."""
    centres, counts = np.zeros((clusters, values.shape[1])), np.zeros(clusters)
    for i in range(labels.size):
        if labels[i] >= 0:
            counts[labels[i]] += 1.0
            for j in range(values.shape[1]):
                centres[labels[i], j] += values[i, j]
    for label in range(clusters):
        for j in range(values.shape[1]):
            centres[label, j] /= counts[label]
    return centres


@njit
def _first_nearest(centres: Float64Matrix, values: Float64Matrix, row: int) -> int:
    best, label = np.inf, 0
    for other in range(centres.shape[0]):
        distance = 0.0
        for j in range(values.shape[1]):
            away = values[row, j] - centres[other, j]
            distance += away * away
        if distance < best:
            best, label = distance, other
    return label


@njit
def join_one_by_one(values: Float64Matrix, labels: Int32Vector, clusters: int) -> None:
    """Give each record of label -1 to the cluster with the centroid nearest to it; centroids do not move meanwhile."""
    centres = _centroids(values, labels, clusters)
    for i in range(labels.size):
        if labels[i] < 0:
            labels[i] = _first_nearest(centres, values, i)


@njit
def join_as_block(values: Float64Matrix, labels: Int32Vector, clusters: int) -> None:
    """Give all records of label -1 to the cluster with the centroid nearest to theirs."""
    centre, count = np.zeros((1, values.shape[1])), 0
    for i in range(labels.size):
        if labels[i] < 0:
            count += 1
            for j in range(values.shape[1]):
                centre[0, j] += values[i, j]
    if count == 0:
        return
    for j in range(values.shape[1]):
        centre[0, j] /= count
    label = _first_nearest(_centroids(values, labels, clusters), centre, 0)
    for i in range(labels.size):
        if labels[i] < 0:
            labels[i] = label
