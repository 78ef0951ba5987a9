"""Optimal partitions of ordered records into runs (Hansen and Mukherjee): of one attribute, or along a curve."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int32Vector, Int64Matrix, Int64Vector
from shoal.errors import ParameterError
from shoal.kernels.jit import njit, njit_inline
from shoal.kernels.pieces import pieces

ONE_ATTRIBUTE = "algorithm: 'optimal' takes one attribute; use 'auto' for several"


def optimal(values: Float64Matrix, k: int) -> Int32Vector:
    """Partition the records of one attribute with the least possible sum of squared errors; clusters ascend.

    Guarantee: no partition into clusters of k or more has a lower loss, up to rounding. Clusters have k to 2k - 1
    records. More than one attribute raises ParameterError: finding the optimum is then NP-hard.
    Cost: O(n log n) to sort and O(n log k) for the partition, instead of the O(n k) of [1]_: on a line, the best start
    of a cluster never moves back while its end moves forward.

    References
    ----------
    .. [1] S. L. Hansen and S. Mukherjee, "A Polynomial Algorithm for Optimal Univariate Microaggregation", IEEE TKDE
       15(4), 2003. doi:10.1109/TKDE.2003.1209020
    """
    if values.shape[1] != 1:
        raise ParameterError(ONE_ATTRIBUTE)
    line = values[:, 0]
    order = np.argsort(line, kind="stable")
    return label_runs(best_runs_of_line(line[order], k), order)


def best_runs(rows: Float64Matrix, k: int) -> Int64Vector:
    """Return the start of the last run in the best partition of the first ``end`` ordered rows, (n + 1,). O(n k d)."""
    n, d = rows.shape
    costs, starts = np.full(n + 1, np.inf), np.zeros(n + 1, np.int64)
    costs[0] = 0.0
    for first, last in pieces("runs", n + 1, 4 * k * d):
        _extend_runs(rows, k, max(first, k), last, costs, starts)
    return starts


@njit
def _extend_runs(rows: Float64Matrix, k: int, first: int, last: int, costs: Float64Vector, starts: Int64Vector) -> None:
    """Decide the runs that end at some rows, when those before are decided; ``costs`` (n + 1,) are the least losses."""
    d = rows.shape[1]
    mean = np.zeros(d)
    for end in range(first, last):
        mean[:] = 0.0
        loss = 0.0
        for size in range(1, min(2 * k - 1, end) + 1):  # backwards, one row at a time, so that nothing cancels
            step = 1.0 / size
            for j in range(d):
                away = rows[end - size, j] - mean[j]
                mean[j] += away * step
                loss += away * (rows[end - size, j] - mean[j])
            if size >= k and costs[end - size] + loss < costs[end]:
                costs[end], starts[end] = costs[end - size] + loss, end - size


@njit
def best_runs_of_line(line: Float64Vector, k: int) -> Int64Vector:
    """Return what `best_runs` returns, for one sorted attribute (n,), in O(n log k).

    Ends are decided k at a time, when all starts that their runs can have are decided. The middle end is decided first:
    its start limits the starts that the ends on either side need to try, as the best start never moves back.
    """
    n = line.size
    costs, starts = np.full(n + 1, np.inf), np.zeros(n + 1, np.int64)
    costs[0] = 0.0
    sums, squares = np.zeros(3 * k + 1), np.zeros(3 * k + 1)
    tasks = np.zeros((128, 4), np.int64)
    for batch in range(k, n + 1, k):
        end = min(batch + k, n + 1)
        first = max(batch - 2 * k + 1, 0)
        for x in range(first, end - 1):  # relative to a value in the middle of the batch, so that little cancels
            value = line[x] - line[batch - 1]
            sums[x - first + 1] = sums[x - first] + value
            squares[x - first + 1] = squares[x - first] + value * value
        tasks[0] = (batch, end, first, end - 1 - k)
        pending = 1
        while pending > 0:
            pending -= 1
            low, high, earliest, latest = tasks[pending]
            if low >= high:
                continue
            middle = (low + high) // 2
            for start in range(max(earliest, middle - 2 * k + 1), min(latest, middle - k) + 1):
                total = sums[middle - first] - sums[start - first]
                loss = squares[middle - first] - squares[start - first] - total * total / (middle - start)
                if costs[start] + loss < costs[middle]:
                    costs[middle], starts[middle] = costs[start] + loss, start
            tasks[pending] = (low, middle, earliest, starts[middle])
            tasks[pending + 1] = (middle + 1, high, starts[middle], latest)
            pending += 2
    return starts


@njit
def label_runs(starts: Int64Vector, order: Int64Vector) -> Int32Vector:
    """Return the labels (n,) of the records listed in ``order``, given a result of `best_runs`; run 0 comes first."""
    labels = np.zeros(order.size, np.int32)
    clusters, end = 0, order.size
    while end > 0:
        end = starts[end]
        clusters += 1
    end = order.size
    while end > 0:
        clusters -= 1
        for x in range(starts[end], end):
            labels[order[x]] = clusters
        end = starts[end]
    return labels


MAX_BITS = 31  # bits of one attribute at most
WORD_BITS = 62  # bits used of each of the two words of a key; the words stay positive


def hilbert(values: Float64Matrix, k: int) -> Int32Vector:
    """Partition records into runs of k to 2k - 1 along a Hilbert curve; clusters are numbered along the curve.

    Each attribute is cut into up to 2³¹ cells over its range; records are ordered by their cell on the curve [2]_, and
    the partition is the optimal one along that order [1]_. It is a start for refinement: alone, it loses more than
    MDAV. Cost: O(n (log n + k d)).

    References
    ----------
    .. [1] J. Domingo-Ferrer, A. Martínez-Ballesté, J. M. Mateo-Sanz and F. Sebé, "Efficient Multivariate Data-Oriented
       Microaggregation", VLDB Journal 15(4), 2006 (a path, then Hansen and Mukherjee). doi:10.1007/s00778-006-0007-0
    .. [2] J. Skilling, "Programming the Hilbert Curve", AIP Conference Proceedings 707, 2004. doi:10.1063/1.1751381
    """
    order = order_along_curve(values)
    return label_runs(best_runs(values[order], k), order)


def order_along_curve(values: Float64Matrix) -> Int64Vector:
    """Return the records (n,) in the order of the curve; keys have 124 bits, so the first 124 attributes are used."""
    used = values[:, : 2 * WORD_BITS]
    keys = curve_keys(used, min(MAX_BITS, 2 * WORD_BITS // used.shape[1]))
    return np.lexsort((keys[1], keys[0]))


@njit
def curve_keys(values: Float64Matrix, bits: int) -> Int64Matrix:
    """Return the position of each record (n, d) on the curve as words (2, n), for ``2**bits`` cells per attribute."""
    n, d = values.shape
    low, scale = np.zeros(d), np.zeros(d)
    for j in range(d):
        low[j] = values[:, j].min()
        spread = values[:, j].max() - low[j]
        scale[j] = ((1 << bits) - 1) / spread if spread > 0.0 else 0.0
    keys = np.zeros((2, n), np.int64)
    cell = np.zeros(d, np.int64)
    for i in range(n):
        for j in range(d):
            cell[j] = int((values[i, j] - low[j]) * scale[j])
        _axes_to_transpose(cell, bits)
        used = 0
        for bit in range(bits - 1, -1, -1):
            for j in range(d):
                word = used // WORD_BITS
                keys[word, i] = (keys[word, i] << 1) | ((cell[j] >> bit) & 1)
                used += 1
    return keys


@njit_inline
def _axes_to_transpose(cell: Int64Vector, bits: int) -> None:
    """Replace the coordinates of a cell by the bits of its position on the curve (Skilling's transform).

    The bits of the position, highest first, are then bit ``bits - 1`` of each coordinate, bit ``bits - 2`` of each, ...
    """
    d = cell.size
    for level in range(bits - 1, 0, -1):
        lower = (1 << level) - 1
        for j in range(d):
            if (cell[j] >> level) & 1:
                cell[0] ^= lower
            else:
                swapped = (cell[0] ^ cell[j]) & lower
                cell[0] ^= swapped
                cell[j] ^= swapped
    for j in range(1, d):
        cell[j] ^= cell[j - 1]
    mask = 0
    for level in range(bits - 1, 0, -1):
        if (cell[d - 1] >> level) & 1:
            mask ^= (1 << level) - 1
    for j in range(d):
        cell[j] ^= mask
