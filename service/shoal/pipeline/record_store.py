"""The contents of records until they are decided."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.arrays import Float64Matrix, Int64Matrix, Int64Vector

__all__ = ["RecordStore", "StoredRecords"]


class StoredRecords(NamedTuple):
    """Contents of n records.

    Attributes
    ----------
    values : ndarray of float64, shape (n, d)
    expiry_keys : ndarray of int64, shape (n, 2)
    unchanged_fields : ndarray of object, shape (n,)
        Encoded as bytes.
    numbers : ndarray of float64, shape (n, m)
        Confidential numbers as of `ConfidentialNumbers`.
    """

    values: Float64Matrix
    expiry_keys: Int64Matrix
    unchanged_fields: NDArray[np.object_]
    numbers: Float64Matrix


class RecordStore:
    """Ring buffer of records by position; holds at least the last ``capacity`` positions.

    Parameters
    ----------
    capacity : int
    width : int
        Number of values of a record.
    numbers : int
        Number of its confidential numbers.
    """

    def __init__(self, capacity: int, width: int, numbers: int = 0) -> None:
        size = 1 << capacity.bit_length()
        self._mask = size - 1
        self._values = np.empty((size, width))
        self._expiry_keys = np.full((size, 2), -1, np.int64)
        self._unchanged_fields = np.full(size, b"", np.object_)
        self._numbers = np.empty((size, numbers))

    def put(self, positions: Int64Vector, records: StoredRecords) -> None:
        """Store the records of these positions, shape (n,)."""
        cells = positions & self._mask
        self._values[cells], self._expiry_keys[cells], self._unchanged_fields[cells], self._numbers[cells] = records

    def get(self, positions: Int64Vector) -> StoredRecords:
        """Return the records of these positions, shape (n,)."""
        cells = positions & self._mask
        return StoredRecords(
            self._values[cells], self._expiry_keys[cells], self._unchanged_fields[cells], self._numbers[cells]
        )
