"""The held records, bounded by delta, oldest first; and the border where a block is checked whole before it enters."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import NamedTuple, TypeAlias, TypeVar
from unicodedata import normalize

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shoal.arrays import Float64Matrix, Int64Matrix, Int64Vector
from shoal.clustering.stream.held import EPOCH, GAPS, HEAD, TAIL, HeldRecords, empty_held
from shoal.errors import ParameterError

__all__ = ["Buffer", "CoordinateBlock", "InputValidator", "SubjectEncoder", "as_array"]

SLICE = 1024
"""Records laid behind the held ones at a time; a longer block is taken slice by slice."""

FARTHEST = 1 << 62
"""Positions and marks stay within +-2^62, so that their differences fit 64 bits."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,17})?")

AnyArray: TypeAlias = NDArray[np.generic]
AnyNumber = TypeVar("AnyNumber", np.float64, np.int64)


class CoordinateBlock(NamedTuple):
    """n records as they arrive.

    ``coordinates`` (n, d), ``amounts`` (n, a) float64; ``subjects``, ``positions`` (n,), ``marks`` (n, C) int64.
    """

    coordinates: Float64Matrix
    subjects: Int64Vector
    positions: Int64Vector
    marks: Int64Matrix
    amounts: Float64Matrix


class Buffer:
    """Room for the held records and one slice, allocated once.

    Parameters
    ----------
    delta : int
        Largest delay; never are more than ``delta + 1`` records held.
    dimensions, columns, amounts : int
        Attributes, mark columns and amounts of each record.

    Attributes
    ----------
    held : Held
        The arrays that the kernels work on.
    capacity : int
        ``delta + 1`` and a slice, or half of delta: the more room, the more seldom all are moved to the front.
    """

    def __init__(self, delta: int, dimensions: int, columns: int, amounts: int = 0) -> None:
        self.capacity = delta + 1 + max(SLICE, delta // 2)
        self.held: HeldRecords = empty_held(self.capacity, dimensions, columns, amounts)

    def __len__(self) -> int:
        return int(self.held.line[TAIL] - self.held.line[HEAD] - self.held.gaps[GAPS])

    def positions(self) -> Int64Vector:
        """Return a copy of the held positions, ascending."""
        return self.held.positions[self._places()]

    def subjects(self) -> Int64Vector:
        """Return a copy of the held records' subjects."""
        return self.held.subjects[self._places()]

    def _places(self, arriving: int = 0) -> Int64Vector:
        """Return where records stand, ``arriving`` ones behind the held ones too."""
        head, end = int(self.held.line[HEAD]), int(self.held.line[TAIL]) + arriving
        places: Int64Vector = np.flatnonzero(~self.held.gone[head:end])
        return places + head

    def stage(self, block: CoordinateBlock, start: int) -> int:
        """Lay the next slice of a block behind the held records, not yet one of them; return its length."""
        stop = min(start + SLICE, len(block.positions))
        count = stop - start
        if self.held.line[TAIL] + count > self.capacity:
            self.move_to_front()
        tail = self.held.line[TAIL]
        room = slice(tail, tail + count)
        self.held.coordinates[:, room] = block.coordinates[start:stop].T
        self.held.positions[room] = block.positions[start:stop]
        self.held.subjects[room] = block.subjects[start:stop]
        self.held.marks[:, room] = block.marks[start:stop].T
        self.held.amounts[:, room] = block.amounts[start:stop].T
        return count

    def replace(self, coordinates: Float64Matrix) -> None:
        """Give the held records other coordinates (held, d); an index over the former ones is out of date."""
        self.move_to_front()
        self.held.coordinates[:, : len(self)] = coordinates.T

    def move_to_front(self, arriving: int = 0) -> None:
        """Close all gaps; ``arriving`` records of a slice stay behind the held ones. Places are others afterwards."""
        held, places = self.held, self._places(arriving)
        for array in (held.coordinates, held.positions, held.subjects, held.marks, held.amounts):
            array[..., : len(places)] = array[..., places]
        held.gone[:] = False
        held.line[:] = 0, len(places) - arriving
        held.gaps[GAPS] = 0
        held.gaps[EPOCH] += 1


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
        self._marks = np.full(columns, -FARTHEST, np.int64)
        self._by_subject: bool | None = None
        self.last = -1

    def check(
        self,
        coordinates: AnyArray,
        subjects: AnyArray | None,
        positions: AnyArray | None,
        marks: AnyArray | None,
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
            _expect(self._marks_or_none(marks, count), "marks", np.int64, (count, self._columns)),
            _expect(self._amounts_or_none(amounts, count), "amounts", np.float64, (count, self._amounts)),
        )
        if count:
            self._check_content(block, numbered=positions is None)
        return block

    def _marks_or_none(self, marks: AnyArray | None, count: int) -> AnyArray:
        if marks is None and self._columns:
            raise ParameterError(f"marks: missing, {self._columns} columns were announced by reach")
        return np.zeros((count, 0), np.int64) if marks is None else marks

    def _amounts_or_none(self, amounts: AnyArray | None, count: int) -> AnyArray:
        if amounts is None and self._amounts:
            raise ParameterError(f"amounts: missing, {self._amounts} columns were announced by dominance")
        return np.zeros((count, 0)) if amounts is None else amounts

    def _check_content(self, block: CoordinateBlock, *, numbered: bool) -> None:
        if not np.isfinite(block.coordinates).all():
            raise ParameterError("coordinates: must be finite")
        if not np.isfinite(block.amounts).all():
            raise ParameterError("amounts: must be finite")
        if block.positions[-1] >= FARTHEST or not (numbered or self._ascends(block.positions)):
            raise ParameterError("positions: must ascend strictly, from block to block too, and stay below 2^62")
        if self._columns:
            falling = (block.marks[0] < self._marks).any() or (block.marks[1:] < block.marks[:-1]).any()
            if falling or (block.marks[-1] >= FARTHEST).any():
                raise ParameterError("marks: must not fall, from block to block neither, and stay within +-2^62")

    def _ascends(self, positions: Int64Vector) -> bool:
        return bool(positions[0] > self.last and (positions[1:] > positions[:-1]).all())

    def checked_coordinates(self, coordinates: AnyArray, count: int) -> Float64Matrix:
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
            self._marks = block.marks[-1].copy()


class SubjectEncoder:
    """Codes of subjects: integers stand for themselves, strings are numbered as they come, by the one text of a person.

    Trimmed, in Unicode's composed form, and numbers by their value: "7", "07" and "7.0 " are one.

    Parameters
    ----------
    delta : int
        Records for which a string keeps its code after it was last seen, at least.

    Notes
    -----
    A stream has one of the two. Codes are never used again. Memory: the strings of 2 delta records and two blocks.
    """

    def __init__(self, delta: int) -> None:
        self._delta = delta
        self._recent: dict[str, int] = {}
        self._older: dict[str, int] = {}
        self._seen = 0
        self._next = 0
        self._kind = self._offered = ""

    def codes(self, subjects: ArrayLike, count: int) -> Int64Vector:
        """Return one code per subject; call `keep` once the records have been taken.

        Raises
        ------
        ParameterError
            Not ``count`` integers or strings, or strings where there were integers before.
        """
        given = as_array(subjects, "subjects")
        if given.dtype == object and all(isinstance(name, str) for name in given.ravel()):
            given = given.astype(np.str_)
        kind = {"i": "integers", "u": "integers", "U": "strings"}.get(given.dtype.kind)
        if kind is None or given.shape != (count,):
            raise ParameterError(f"subjects: must be integers or strings, shape ({count},)")
        if self._kind not in {"", kind}:
            raise ParameterError(f"subjects: {kind} in this block, {self._kind} before")
        self._offered = kind
        if kind == "integers":
            return given.astype(np.int64)
        return np.array([self._code(_one_text(name)) for name in given.tolist()], np.int64)

    def keep(self, count: int) -> None:
        """Count records as taken; strings that none of the last delta of them bore are forgotten in time."""
        if count:
            self._kind = self._offered
        self._seen += count
        if self._seen > self._delta:
            self._recent, self._older, self._seen = {}, self._recent, 0

    def _code(self, name: str) -> int:
        code = self._recent.get(name)
        if code is None:
            code = self._older.get(name, self._next)
            self._next += code == self._next
            self._recent[name] = code
        return code


def _one_text(name: str) -> str:
    text = normalize("NFC", name).strip()
    if not _NUMBER.fullmatch(text):
        return text
    sign, digits, exponent = Decimal(text).as_tuple()
    whole = "".join(map(str, digits)).lstrip("0")
    short = whole.rstrip("0")
    return f"{'-' * sign}{short}e{int(exponent) + len(whole) - len(short)}" if short else "0"


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
