"""V."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, TypeGuard, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shoal.arrays import Float64Matrix, Int64Vector
from shoal.clustering.stream.buffer import CoordinateBlock
from shoal.clustering.stream.rules import rule_faults
from shoal.clustering.stream.steering import is_finite_number, position_faults
from shoal.errors import ParameterError
from shoal.policy import LARGEST_DELTA

__all__ = ["AnyArray", "InputValidator", "are_expiry_limits", "as_array", "is_integer", "parameter_faults"]

AnyArray: TypeAlias = NDArray[np.generic]

AnyNumber = TypeVar("AnyNumber", np.float64, np.int64)

MAX_POSITION = 1 << 62
"""Positions and marks stay within +-2^62, so that their differences fit 64 bits."""


def parameter_faults(
    k: int, delta: int, rule: str, position: object, max_share: float, *, has_dominance: bool = False
) -> list[str]:
    """Say all that is wrong with the parameters of a stream; empty if nothing is."""
    faults = [
        f"{name}: must be a whole number" for name, value in (("k", k), ("delta", delta)) if not is_integer(value)
    ]
    if faults:
        return [*faults, *position_faults(position), *rule_faults(rule, has_dominance=has_dominance)]
    if k < 2:  # noqa: PLR2004 - one person alone is no cluster
        faults.append("k: must be at least 2")
    if max(k, delta) > LARGEST_DELTA:
        faults.append(f"k, delta: must be at most {LARGEST_DELTA}")
    if delta < max(k - 1, 1):
        faults.append("delta: must be at least k - 1, or no cluster could ever be filled")
    if not is_finite_number(max_share) or not 0 < max_share <= 1:
        faults.append("max_share: must be above 0 and at most 1")
    elif k >= 2 and max_share * min(k, LARGEST_DELTA) < 1 - 1e-9:  # noqa: PLR2004
        faults.append("max_share: must be at least 1/k, or k people could not share a cluster")
    return [*faults, *position_faults(position), *rule_faults(rule, has_dominance=has_dominance)]


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a parameter, whatever its kind, is a whole number."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def are_expiry_limits(expiry_limits: object) -> bool:
    """Whether a parameter is a sequence of whole numbers, 0 or more, that fit 62 bits."""
    if not isinstance(expiry_limits, Sequence) or isinstance(expiry_limits, bytes):
        return False
    return all(is_integer(width) and 0 <= width < 1 << 62 for width in expiry_limits)


class InputValidator:
    """Checks blocks against what came before; remembers the last position and the last marks.

    Parameters
    ----------
    dimensions, columns, amounts : int
        What a record must have.
    """

    def __init__(self, dimensions: int, columns: int, amounts: int = 0) -> None:
        self._amounts = amounts
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
        amounts: AnyArray | None = None,
    ) -> CoordinateBlock:
        """Return the block if every record of it can be taken; nothing is remembered yet.

        Raises
        ------
        ParameterError
            Naming the array and what it must be, never a value.
        """
        count = len(_expect(coordinates, "coordinates", np.float64, (None, self._dimensions)))
        if self._by_subject is not None and self._by_subject != (subjects is not None):
            raise ParameterError("subjects: given in some blocks and left out in others; a stream has them or has not")
        numbered = np.arange(self.last + 1, self.last + 1 + count) if positions is None else positions
        block = CoordinateBlock(
            _expect(coordinates, "coordinates", np.float64, (count, self._dimensions)),
            _expect(numbered if subjects is None else subjects, "subjects", np.int64, (count,)),
            _expect(numbered, "positions", np.int64, (count,)),
            _expect(self._keys_or_empty(expiry_keys, count), "expiry_keys", np.int64, (count, self._columns)),
            _expect(self._amounts_or_empty(amounts, count), "amounts", np.float64, (count, self._amounts)),
        )
        if count:
            self._check_content(block, numbered=positions is None)
        return block

    def _keys_or_empty(self, expiry_keys: AnyArray | None, count: int) -> AnyArray:
        if expiry_keys is None and self._columns:
            raise ParameterError(f"expiry_keys: missing, {self._columns} columns were announced by expiry_limits")
        return np.zeros((count, 0), np.int64) if expiry_keys is None else expiry_keys

    def _amounts_or_empty(self, amounts: AnyArray | None, count: int) -> AnyArray:
        if amounts is None and self._amounts:
            raise ParameterError(f"amounts: missing, {self._amounts} columns were announced by dominance")
        return np.zeros((count, 0)) if amounts is None else amounts

    def _check_content(self, block: CoordinateBlock, *, numbered: bool) -> None:
        if not np.isfinite(block.coordinates).all():
            raise ParameterError("coordinates: must be finite")
        if not np.isfinite(block.amounts).all():
            raise ParameterError("amounts: must be finite")
        if block.positions[-1] >= MAX_POSITION or not (numbered or self._ascends(block.positions)):
            raise ParameterError("positions: must ascend strictly, from block to block too, and stay below 2^62")
        if self._columns:
            falling = (block.expiry_keys[0] < self._last_keys).any() or (
                block.expiry_keys[1:] < block.expiry_keys[:-1]
            ).any()
            if falling or (block.expiry_keys[-1] >= MAX_POSITION).any():
                raise ParameterError("expiry_keys: must not fall, from block to block neither, and stay within +-2^62")

    def _ascends(self, positions: Int64Vector) -> bool:
        return bool(positions[0] > self.last and (positions[1:] > positions[:-1]).all())

    def validate_coordinates(self, coordinates: AnyArray, count: int) -> Float64Matrix:
        """Return coordinates of so many records that were let in before, if they can be theirs.

        Raises
        ------
        ParameterError
            As `check`.
        """
        checked = _expect(coordinates, "coordinates", np.float64, (count, self._dimensions))
        if not np.isfinite(checked).all():
            raise ParameterError("coordinates: must be finite")
        return checked

    def remember(self, block: CoordinateBlock, *, by_subject: bool) -> None:
        """Take a checked block as the one that the next is checked against."""
        if len(block.positions):
            self._by_subject = by_subject
            self.last = int(block.positions[-1])
            self._last_keys = block.expiry_keys[-1].copy()


def as_array(given: ArrayLike, name: str) -> AnyArray:
    """Return any array-like as an array.

    Raises
    ------
    ParameterError
        Rows of unequal length.
    """
    try:
        return np.asarray(given)
    except ValueError:
        raise ParameterError(f"{name}: rows must have the same length") from None


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
