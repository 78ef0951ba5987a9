"""Validation of the parameters of a stream and of its blocks. Every fault is named; no value appears in a message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from shoal.arrays import Float64Matrix, Int64Matrix, Int64Vector
from shoal.errors import ParameterError
from shoal.policy import MAX_DELTA
from shoal.streams.held_records import CoordinateBlock
from shoal.streams.protection import Protection
from shoal.streams.rules import rule_faults
from shoal.streams.steering import position_faults
from shoal.tables.arguments import AnyArray, is_finite_number, is_integer

__all__ = ["AnyArray", "InputValidator", "are_expiry_limits", "is_integer", "parameter_faults"]


AnyNumber = TypeVar("AnyNumber", np.float64, np.int64)

MAX_POSITION = 1 << 62
"""Positions and expiry keys must lie within +-2^62, so that their differences fit 64 bits."""


def parameter_faults(k: int, delta: int, rule: str, position: object, max_share: float) -> list[str]:
    """Return everything that is wrong with the parameters of a stream, as messages; an empty list if all are valid."""
    faults = [
        f"{name}: must be a whole number" for name, value in (("k", k), ("delta", delta)) if not is_integer(value)
    ]
    if faults:
        return [*faults, *position_faults(position), *rule_faults(rule)]
    if k < 2:  # noqa: PLR2004 - a cluster needs two subjects
        faults.append("k: must be at least 2")
    if max(k, delta) > MAX_DELTA:
        faults.append(f"k, delta: must be at most {MAX_DELTA}")
    if delta < max(k - 1, 1):
        faults.append("delta: must be at least k - 1, or no cluster could be filled")
    if not is_finite_number(max_share) or not 0 < max_share <= 1:
        faults.append("max_share: must be above 0 and at most 1")
    elif k >= 2 and max_share * min(k, MAX_DELTA) < 1 - 1e-9:  # noqa: PLR2004
        faults.append("max_share: must be at least 1/k, or k subjects could not share a cluster")
    return [*faults, *position_faults(position), *rule_faults(rule)]


def are_expiry_limits(expiry_limits: object) -> bool:
    """Whether a value of any type is a sequence of integers from 0 to 2^62 - 1."""
    if not isinstance(expiry_limits, Sequence) or isinstance(expiry_limits, bytes):
        return False
    return all(is_integer(limit) and 0 <= limit < 1 << 62 for limit in expiry_limits)


class InputValidator:
    """Validates blocks against the parameters of the stream and against the last block.

    Parameters
    ----------
    dimensions, columns, codes : int
        Coordinates, expiry keys and category columns of a record.
    protection : Protection, optional
        What the protected attributes must satisfy.

    Attributes
    ----------
    last : int
        Position of the last record; -1 before the first.
    """

    def __init__(self, dimensions: int, columns: int, codes: int = 0, protection: Protection | None = None) -> None:
        self._protection = protection
        self._codes = codes
        self._dimensions = dimensions
        self._columns = columns
        self._last_keys = np.full(columns, -MAX_POSITION, np.int64)
        self._by_subject: bool | None = None
        self.last = -1

    def validate(
        self,
        coordinates: AnyArray,
        subjects: AnyArray | None,
        positions: AnyArray | None,
        expiry_keys: AnyArray | None,
        codes: AnyArray | None = None,
        values: AnyArray | None = None,
        bins: AnyArray | None = None,
    ) -> CoordinateBlock:
        """Return the arrays as a block, with positions and subjects filled in; the validator does not change.

        Parameters
        ----------
        coordinates, subjects, positions, expiry_keys, codes, values, bins
            As of `StreamClusterer.push`.

        Raises
        ------
        ParameterError
            Names the array and what it must be, never a value.
        """
        count = len(_expect(coordinates, "coordinates", np.float64, (None, self._dimensions)))
        if self._by_subject is not None and self._by_subject != (subjects is not None):
            raise ParameterError("subjects: given in some blocks only; give them in all blocks or in none")
        numbered = np.arange(self.last + 1, self.last + 1 + count) if positions is None else positions
        block = CoordinateBlock(
            _expect(coordinates, "coordinates", np.float64, (count, self._dimensions)),
            _expect(numbered if subjects is None else subjects, "subjects", np.int64, (count,)),
            _expect(numbered, "positions", np.int64, (count,)),
            _expect(self._keys_or_empty(expiry_keys, count), "expiry_keys", np.int64, (count, self._columns)),
            self._with_protected(self._codes_or_empty(codes, count), values, bins),
        )
        if count:
            self._check_content(block, numbered=positions is None)
        return block

    def _keys_or_empty(self, expiry_keys: AnyArray | None, count: int) -> AnyArray:
        if expiry_keys is None and self._columns:
            raise ParameterError(f"expiry_keys: missing, expiry_limits requires {self._columns} columns")
        return np.zeros((count, 0), np.int64) if expiry_keys is None else expiry_keys

    def _codes_or_empty(self, codes: AnyArray | None, count: int) -> Int64Matrix:
        if codes is None and self._codes:
            raise ParameterError(f"codes: missing, code_distances requires {self._codes} columns")
        if codes is None:
            return np.zeros((count, 0), np.int64)
        return _expect(codes, "codes", np.int64, (count, self._codes))

    def _with_protected(self, codes: Int64Matrix, values: AnyArray | None, bins: AnyArray | None) -> Int64Matrix:
        """Return the codes of category columns with those of protected attributes, and with their bins, behind them."""
        protection = self._protection
        if protection is None:
            return codes
        shape = (len(codes), protection.attributes)
        columns = [codes, _expect(values, "values", np.int64, shape)]
        if protection.has_bins:
            given = _expect(bins, "bins", np.int64, shape)
            if ((given < 0) | (given >= np.diff(protection.rule.bin_bounds))).any():
                raise ParameterError("bins: must be indices into the reference of their attribute")
            columns.append(given)
        return np.concatenate(columns, axis=1)

    def _check_content(self, block: CoordinateBlock, *, numbered: bool) -> None:
        if not np.isfinite(block.coordinates).all():
            raise ParameterError("coordinates: must be finite")
        if block.positions[-1] >= MAX_POSITION or not (numbered or self._ascends(block.positions)):
            raise ParameterError("positions: must ascend strictly, also between blocks, and be below 2^62")
        if self._columns:
            decreasing = (block.expiry_keys[0] < self._last_keys).any() or (
                block.expiry_keys[1:] < block.expiry_keys[:-1]
            ).any()
            if decreasing or (block.expiry_keys[-1] >= MAX_POSITION).any():
                raise ParameterError("expiry_keys: must not decrease, also between blocks, and be within +-2^62")

    def _ascends(self, positions: Int64Vector) -> bool:
        return bool(positions[0] > self.last and (positions[1:] > positions[:-1]).all())

    def validate_coordinates(self, coordinates: AnyArray, count: int) -> Float64Matrix:
        """Return new coordinates (count, d) of records that were validated before.

        Raises
        ------
        ParameterError
            As `validate`.
        """
        checked = _expect(coordinates, "coordinates", np.float64, (count, self._dimensions))
        if not np.isfinite(checked).all():
            raise ParameterError("coordinates: must be finite")
        return checked

    def remember(self, block: CoordinateBlock, *, by_subject: bool) -> None:
        """Make a validated block the one that the next block is compared with."""
        if len(block.positions):
            self._by_subject = by_subject
            self.last = int(block.positions[-1])
            self._last_keys = block.expiry_keys[-1].copy()


def _expect(array: object, name: str, dtype: type[AnyNumber], shape: tuple[int | None, ...]) -> NDArray[AnyNumber]:
    fits = isinstance(array, np.ndarray) and array.dtype == dtype and array.ndim == len(shape)
    if (
        isinstance(array, np.ndarray)
        and fits
        and all(size is None or size == found for size, found in zip(shape, array.shape, strict=True))
    ):
        return array
    wanted = f"({', '.join('n' if size is None else str(size) for size in shape)}{',' if len(shape) == 1 else ''})"
    raise ParameterError(f"{name}: must be an array of {dtype.__name__}, shape {wanted}")
