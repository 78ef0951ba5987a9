"""What is left of the variation of columns after their trend: squared deviations from the means of windows."""

from __future__ import annotations

from typing import Self

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int64Matrix, Int64Vector

__all__ = ["WindowSums"]


class WindowSums:
    """Sums of each window of offsets, over blocks of records.

    Parameters
    ----------
    columns : int
        Number of columns c.

    Notes
    -----
    Each window has count, mean and sum of squared deviations, to which blocks are added without a second pass (Chan et
    al. 1983). A mean is kept as the difference from a value of its window, because a difference of times is exact. So
    the sum of squares of equal values is 0.
    Memory: four numbers for each column of a window that is not closed.
    """

    def __init__(self, columns: int) -> None:
        self._closed = np.zeros(columns)
        self._windows = np.zeros(0, np.int64)
        self._counts: Int64Matrix = np.zeros((0, columns), np.int64)
        self._origins, self._means, self._squares = (np.zeros((0, columns)) for _ in range(3))

    def __len__(self) -> int:
        """Return the number of windows that are not closed."""
        return len(self._windows)

    @classmethod
    def of(cls, windows: Int64Vector, values: Float64Matrix) -> Self:
        """Return the sums of one block.

        Parameters
        ----------
        windows : ndarray of int64, shape (E,)
            Window of each record; E >= 1.
        values : ndarray of float64, shape (E, c)
            NaN where a value is missing.
        """
        found = cls(values.shape[1])
        order = np.argsort(windows, kind="stable")
        found._windows, starts, sizes = np.unique(windows[order], return_index=True, return_counts=True)
        ordered = values[order]
        present = ~np.isnan(ordered)
        found._origins = np.nan_to_num(np.fmin.reduceat(ordered, starts, axis=0), nan=0.0)
        differences = np.where(present, ordered - found._origins.repeat(sizes, axis=0), 0.0)
        found._counts = np.add.reduceat(present.astype(np.int64), starts, axis=0)
        found._means = np.add.reduceat(differences, starts, axis=0) / np.maximum(found._counts, 1)
        centred = np.where(present, differences - found._means.repeat(sizes, axis=0), 0.0)
        found._squares = np.add.reduceat(centred * centred, starts, axis=0)
        return found

    @property
    def squares(self) -> Float64Vector:
        """Sum over all windows of the squared deviations from the mean of the window (c,)."""
        total: Float64Vector = self._closed + self._squares.sum(axis=0)
        return total

    def merge(self, other: WindowSums) -> None:
        """Add the sums of other records. Closed windows stay closed: only their sums are added."""
        windows = np.union1d(self._windows, other._windows)
        counts, origins, means, squares = self._placed(windows)
        more, their_origins, their_means, their_squares = other._placed(windows)
        origins = np.where(counts > 0, origins, their_origins)
        step = np.where(more > 0, their_origins - origins + their_means - means, 0.0)
        share = more / np.maximum(counts + more, 1)
        self._windows, self._counts, self._origins = windows, counts + more, origins
        self._means, self._squares = means + step * share, squares + their_squares + step * step * (counts * share)
        self._closed = self._closed + other._closed

    def _placed(self, windows: Int64Vector) -> tuple[Int64Matrix, Float64Matrix, Float64Matrix, Float64Matrix]:
        """Return counts, origins, means and squares of these windows, 0 of those that have no sums."""
        places = np.searchsorted(windows, self._windows)
        counts = np.zeros((len(windows), len(self._closed)), np.int64)
        origins, means, squares = (np.zeros(counts.shape) for _ in range(3))
        counts[places], origins[places] = self._counts, self._origins
        means[places], squares[places] = self._means, self._squares
        return counts, origins, means, squares

    def close_before(self, window: int) -> None:
        """Keep only the sum of the windows before this one. No record of them may be added afterwards."""
        first = int(np.searchsorted(self._windows, window))
        if first:
            self._closed = self._closed + self._squares[:first].sum(axis=0)
            self._windows, self._counts = self._windows[first:], self._counts[first:]
            self._origins = self._origins[first:]
            self._means, self._squares = self._means[first:], self._squares[first:]

    def close(self) -> None:
        """Close all windows."""
        if len(self):
            self.close_before(int(self._windows[-1]) + 1)
