"""The buffer of a stream: the held records and the slice of a block that is being processed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.clustering.stream.held_records import COMPACTIONS, GAP_COUNT, HEAD, TAIL, HeldRecords, empty_held

__all__ = ["Buffer", "CoordinateBlock"]

SLICE = 1024
"""Records that are staged at a time. A longer block is processed slice by slice."""


class CoordinateBlock(NamedTuple):
    """Validated records as they arrive.

    Attributes
    ----------
    coordinates : float64 (n, d)
    subjects, positions : int64 (n,)
    expiry_keys : int64 (n, C)
    amounts : float64 (n, a)
    codes : int64 (n, c + q or c + 2 q)
        Category columns, then value codes of the protected attributes, then their bins if there is a t.
    """

    coordinates: Float64Matrix
    subjects: Int64Vector
    positions: Int64Vector
    expiry_keys: Int64Matrix
    amounts: Float64Matrix
    codes: Int64Matrix


class Buffer:
    """The held records and the staged slice, in arrays that are allocated once.

    Parameters
    ----------
    delta : int
        Largest delay; at most ``delta + 1`` records are held.
    dimensions, columns, amounts : int
        Coordinates, expiry keys and amounts of a record.
    code_distances : ndarray of float64, shape (c,), optional
        Squared distance of each category column.
    protected : int
        Rows of value codes and bins behind those of the category columns.
    codes_must_agree : ndarray of bool, shape (c,), optional
        Whether a cluster publishes a code of a category column only if all members have it; by default not.

    Attributes
    ----------
    held : HeldRecords
        The arrays that kernels read and write.
    capacity : int
        Slots: ``delta + 1``, and a slice or half of delta. A larger capacity would need fewer compactions.
    """

    def __init__(
        self,
        delta: int,
        dimensions: int,
        columns: int,
        amounts: int = 0,
        code_distances: Float64Vector | None = None,
        protected: int = 0,
        codes_must_agree: BoolVector | None = None,
    ) -> None:
        self.capacity = delta + 1 + max(SLICE, delta // 2)
        distances = np.zeros(0) if code_distances is None else code_distances
        self.held: HeldRecords = empty_held(
            self.capacity, dimensions, columns, amounts, distances, protected, codes_must_agree
        )

    def __len__(self) -> int:
        return int(self.held.extent[TAIL] - self.held.extent[HEAD] - self.held.gap_state[GAP_COUNT])

    def positions(self) -> Int64Vector:
        """Return a copy of the held positions, ascending."""
        return self.held.positions[self._slots()]

    def oldest(self) -> tuple[int, Int64Vector]:
        """Return position and expiry keys (C,) of the oldest held record; there must be one."""
        slot = int(self._slots()[0])
        return int(self.held.positions[slot]), self.held.expiry_keys[:, slot].copy()

    def subjects(self) -> Int64Vector:
        """Return a copy of the held records' subjects."""
        return self.held.subjects[self._slots()]

    def _slots(self, arriving: int = 0) -> Int64Vector:
        """Return the slots of the held records and of ``arriving`` staged ones."""
        head, end = int(self.held.extent[HEAD]), int(self.held.extent[TAIL]) + arriving
        slots: Int64Vector = np.flatnonzero(~self.held.removed[head:end])
        return slots + head

    def stage(self, block: CoordinateBlock, start: int) -> int:
        """Copy the next slice of a block behind the held records, where it is not yet held; return its length."""
        stop = min(start + SLICE, len(block.positions))
        count = stop - start
        if self.held.extent[TAIL] + count > self.capacity:
            self.compact()
        tail = self.held.extent[TAIL]
        target = slice(tail, tail + count)
        self.held.coordinates[:, target] = block.coordinates[start:stop].T
        self.held.positions[target] = block.positions[start:stop]
        self.held.subjects[target] = block.subjects[start:stop]
        self.held.expiry_keys[:, target] = block.expiry_keys[start:stop].T
        self.held.amounts[:, target] = block.amounts[start:stop].T
        if len(self.held.codes):
            self.held.codes[:, target] = block.codes[start:stop].T
        return count

    def replace_coordinates(self, coordinates: Float64Matrix) -> None:
        """Replace the coordinates (held, d) of the held records. Codes stay; an existing cell index becomes invalid."""
        self.compact()
        self.held.coordinates[:, : len(self)] = coordinates.T

    def compact(self, arriving: int = 0) -> None:
        """Close all gaps and move the held records to the first slots; ``arriving`` staged records stay behind them."""
        held, slots = self.held, self._slots(arriving)
        for array in (held.coordinates, held.positions, held.subjects, held.expiry_keys, held.amounts, held.codes):
            array[..., : len(slots)] = array[..., slots]
        held.removed[:] = False
        held.extent[:] = 0, len(slots) - arriving
        held.gap_state[GAP_COUNT] = 0
        held.gap_state[COMPACTIONS] += 1
