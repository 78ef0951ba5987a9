"""The best partition along an order: clusters are runs of k to 2k - 1 neighbours (Hansen and Mukherjee)."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int32Vector, Int64Vector
from shoal.clustering.numba.jit import njit

__all__ = ["along", "along_line", "label_runs"]


@njit
def along(rows: Float64Matrix, k: int) -> Int64Vector:
    """Return where the run that ends before each place begins, in the best partition up to it; rows (n, d) in order.

    The loss of a run is gathered backwards from its end, record by record, so that nothing cancels.
    """
    n, d = rows.shape
    costs, begins = np.full(n + 1, np.inf), np.zeros(n + 1, np.int64)
    costs[0] = 0.0
    mean = np.zeros(d)
    for end in range(k, n + 1):
        mean[:] = 0.0
        loss = 0.0
        for size in range(1, min(2 * k - 1, end) + 1):
            step = 1.0 / size
            for j in range(d):
                away = rows[end - size, j] - mean[j]
                mean[j] += away * step
                loss += away * (rows[end - size, j] - mean[j])
            if size >= k and costs[end - size] + loss < costs[end]:
                costs[end], begins[end] = costs[end - size] + loss, end - size
    return begins


@njit
def along_line(line: Float64Vector, k: int) -> Int64Vector:
    """As `along` for one sorted attribute, in O(n log k).

    On a line the best beginning never moves back while the end moves on. The ends are decided k at a time: where their
    runs may begin is decided already, and the middle end halves what the others have to try.
    """
    n = line.size
    costs, begins = np.full(n + 1, np.inf), np.zeros(n + 1, np.int64)
    costs[0] = 0.0
    sums, squares = np.zeros(3 * k + 1), np.zeros(3 * k + 1)
    tasks = np.zeros((128, 4), np.int64)
    for start in range(k, n + 1, k):
        end = min(start + k, n + 1)
        first = max(start - 2 * k + 1, 0)
        for x in range(first, end - 1):  # about the middle of the stretch, so that little cancels
            value = line[x] - line[start - 1]
            sums[x - first + 1] = sums[x - first] + value
            squares[x - first + 1] = squares[x - first] + value * value
        tasks[0] = (start, end, first, end - 1 - k)
        waiting = 1
        while waiting > 0:
            waiting -= 1
            low, high, earliest, latest = tasks[waiting]
            if low >= high:
                continue
            middle = (low + high) // 2
            for begin in range(max(earliest, middle - 2 * k + 1), min(latest, middle - k) + 1):
                total = sums[middle - first] - sums[begin - first]
                loss = squares[middle - first] - squares[begin - first] - total * total / (middle - begin)
                if costs[begin] + loss < costs[middle]:
                    costs[middle], begins[middle] = costs[begin] + loss, begin
            tasks[waiting] = (low, middle, earliest, begins[middle])
            tasks[waiting + 1] = (middle + 1, high, begins[middle], latest)
            waiting += 2
    return begins


@njit
def label_runs(begins: Int64Vector, order: Int64Vector) -> Int32Vector:
    """Return the labels of the records of ``order``, the first run of the order first."""
    labels = np.zeros(order.size, np.int32)
    clusters, end = 0, order.size
    while end > 0:
        end = begins[end]
        clusters += 1
    end = order.size
    while end > 0:
        clusters -= 1
        for x in range(begins[end], end):
            labels[order[x]] = clusters
        end = begins[end]
    return labels
