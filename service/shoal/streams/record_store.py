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
    protected : ndarray of int64, shape (n, 2 q)
        Codes and bins of protected values as of `ValueIndex`.
    """

    values: Float64Matrix
    expiry_keys: Int64Matrix
    unchanged_fields: NDArray[np.object_]
    numbers: Float64Matrix
    protected: Int64Matrix


class RecordStore:
    """Ring buffer of records by position; holds at least the last ``capacity`` positions.

    Parameters
    ----------
    capacity : int
    width : int
        Number of values of a record.
    numbers : int
        Number of its confidential numbers.
    protected : int
        Number of codes and bins of its protected values.
    """

    def __init__(self, capacity: int, width: int, numbers: int = 0, protected: int = 0) -> None:
        size = 1 << capacity.bit_length()
        self._mask = size - 1
        self._columns = StoredRecords(
            np.empty((size, width)),
            np.full((size, 2), -1, np.int64),
            np.full(size, b"", np.object_),
            np.empty((size, numbers)),
            np.empty((size, protected), np.int64),
        )

    def put(self, positions: Int64Vector, records: StoredRecords) -> None:
        """Store the records of these positions, shape (n,)."""
        cells = positions & self._mask
        for column, contents in zip(self._columns, records, strict=True):
            column[cells] = contents

    def get(self, positions: Int64Vector) -> StoredRecords:
        """Return the records of these positions, shape (n,)."""
        cells = positions & self._mask
        return StoredRecords(*(column[cells] for column in self._columns))
