"""The contents of records until they are decided."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.arrays import Float64Matrix, Int64Matrix, Int64Vector

__all__ = ["RecordStore", "StoredRecords"]


class StoredRecords(NamedTuple):
    """Values (n, d), expiry keys (n, 2) and encoded unchanged fields (n,) of records."""

    values: Float64Matrix
    expiry_keys: Int64Matrix
    unchanged_fields: NDArray[np.object_]


class RecordStore:
    """Ring buffer of records by position; holds at least the last ``capacity`` positions.

    Parameters
    ----------
    capacity : int
    width : int
        Number of values of a record.
    """

    def __init__(self, capacity: int, width: int) -> None:
        size = 1 << capacity.bit_length()
        self._mask = size - 1
        self._values = np.empty((size, width))
        self._expiry_keys = np.full((size, 2), -1, np.int64)
        self._unchanged_fields = np.full(size, b"", np.object_)

    def put(self, positions: Int64Vector, records: StoredRecords) -> None:
        """Store the records of these positions, shape (n,)."""
        cells = positions & self._mask
        self._values[cells], self._expiry_keys[cells], self._unchanged_fields[cells] = records

    def get(self, positions: Int64Vector) -> StoredRecords:
        """Return the records of these positions, shape (n,)."""
        cells = positions & self._mask
        return StoredRecords(self._values[cells], self._expiry_keys[cells], self._unchanged_fields[cells])
