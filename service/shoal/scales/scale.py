"""`AttributeScale`: what the scale of an attribute does with its values. Each scale is one module of this package.

A value is a float64: a number, a rank, the code of a category, or ms since 1970. A scale says how texts and JSON
values become such values (parse, by a `ScaleReader`); how these become coordinates and codes, on which distances are
computed (embed); what a cluster publishes of its members (publish); how far that is from their values (loss); and what
is wrong with a value (explain).

The module of a scale has one subclass, ``class TimeScale(AttributeScale, scale=Scale.TIME)``, which registers itself.
Outside `policy`, `scales` and `audit`, code asks an attribute or its scale; it compares
no scales.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import compress
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np

from shoal.arrays import BoolVector, Float64Vector, Int64Matrix, Int64Vector
from shoal.policy import BLANKS, Attribute, MessagePart, Scale

INVALID, MISSING = np.inf, np.nan

_SCALAR = re.compile(r"true|false|-?[0-9]+")
"""A text that a truth value or a whole number can have."""

_WHOLE_WITH_POINT = re.compile(r"(0|-?[1-9][0-9]*)\.0+")

DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
"""A decimal number in a text cell."""

FIRST_INEXACT = 2.0**53
"""From this value on, several integers can have the same float64."""

_encode_text = msgspec.json.Encoder().encode

CategoryTexts: TypeAlias = Mapping[int, str]
"""Text of the JSON scalar of each category of an attribute, by its code."""


class ScaleFault(NamedTuple):
    """What is wrong with a value, in words without the value, and what to do about it."""

    reason: str
    remedy: str


class ColumnNeed(NamedTuple):
    """What a column of a typed format must hold, in words, and what to do else."""

    kind: Literal["numbers", "texts", "plain texts"]
    words: str
    remedy: str = ""


OUTSIDE_BOUNDS = ScaleFault("outside its bounds", "widen the bounds, or set out_of_bounds: clip")


class Publisher(ABC):
    """Computes what clusters publish of one attribute."""

    @abstractmethod
    def publish(self, values: Float64Vector, bounds: Int64Vector) -> tuple[list[str], Float64Vector]:
        """Return what G >= 1 clusters publish, as JSON scalars and as values of the scale.

        Cluster g is ``values[bounds[g]:bounds[g + 1]]``; it is not empty, and none of its values is missing. The result
        does not depend on the order of the members in their cluster.
        """

    def count(self, values: Float64Vector) -> None:  # noqa: B027 - most scales need no counts
        """Take note of all values (n,) of a table, before its clusters are published."""


class ScaleColumn(NamedTuple):
    """One column of `ParsedRecords.values`; ``categories`` are texts, None for a scale without codes."""

    values: Float64Vector
    categories: Sequence[str] | None = None


class ScaleReader(ABC):
    """Converts the values of one attribute.

    ``missing_values`` are texts that stand for a missing value. A number means missing if it equals the number in one
    of these texts; a whole number or truth value of a category, if its text is one of them.
    ``has_commas``: decimal numbers in cells have commas.
    """

    has_numbers = False
    """Whether values are numbers, not categories or texts."""

    def __init__(self, attribute: Attribute, missing_values: Iterable[str], *, has_commas: bool = False) -> None:
        self.attribute = attribute
        self._missing_values = frozenset(missing_values)
        self._missing_scalars = frozenset(filter(_SCALAR.fullmatch, self._missing_values))
        numbers = map(float, filter(DECIMAL.fullmatch, self._missing_values))
        self._missing_numbers = frozenset(filter(math.isfinite, numbers))
        self._has_commas = has_commas

    def read(self, values: Iterable[Any]) -> ScaleColumn:
        """Convert values of the types that `json_type` allows. None and UNSET (an absent field) are missing."""
        column = list(values)
        missing = self._missing_values
        if set(map(type, column)) <= {str} and missing.isdisjoint(column):
            return self._parse(column)
        is_present = [
            value not in missing if type(value) is str else value is not None and value is not msgspec.UNSET
            for value in column
        ]
        if self._missing_scalars and not self.has_numbers:
            is_present = [
                present and (type(value) is str or text_of(value) not in self._missing_scalars)
                for value, present in zip(column, is_present, strict=True)
            ]
        return self._parse_present(column, is_present, self._parse)

    def read_cells(self, cells: Sequence[str]) -> ScaleColumn:
        """Convert text cells. Blanks and tabs around a value are ignored."""
        stripped = [cell.strip(BLANKS) for cell in cells]
        missing = self._missing_values
        if missing.isdisjoint(stripped):
            return self._parse_cells(stripped)
        return self._parse_present(stripped, [cell not in missing for cell in stripped], self._parse_cells)

    def read_part(self, column: Sequence[Any]) -> ScaleColumn:
        """Convert keys, headers or timestamps: text cells, or the timestamps of messages in ms as int."""
        if self.attribute.source.part is not MessagePart.TIMESTAMP:
            return self.read_cells(column)
        return self.read_timestamps(column)

    def read_timestamps(self, column: Sequence[int]) -> ScaleColumn:
        """Convert timestamps of messages in ms."""
        return self.read(column)

    def read_value(self, value: Any) -> float:  # noqa: ANN401 - any JSON scalar
        """Convert one JSON scalar that is not missing by its text; a number is an int or `NumberText`."""
        return float(self.read([float(value) if isinstance(value, NumberText) else value]).values[0])

    @property
    def has_missing_numbers(self) -> bool:
        """Whether some numbers stand for a missing value."""
        return self.has_numbers and bool(self._missing_numbers)

    def drop_missing_numbers(self, numbers: Float64Vector) -> Float64Vector:
        """Return numbers, with NaN for those that stand for a missing value."""
        if not self._missing_numbers:
            return numbers
        return np.where(np.isin(numbers, list(self._missing_numbers)), MISSING, numbers)

    def are_valid(self, values: Float64Vector) -> BoolVector:
        """Return which converted values are valid, whatever their bounds."""
        return np.isfinite(values) | (np.isnan(values) & self.attribute.may_be_missing)

    def _parse_present(
        self, column: Sequence[Any], is_present: Sequence[bool], parse: Callable[[Sequence[Any]], ScaleColumn]
    ) -> ScaleColumn:
        """Parse the values that are present."""
        parsed = parse(list(compress(column, is_present)))
        values = np.full(len(column), MISSING, dtype=np.float64)
        values[np.array(is_present, dtype=np.bool_)] = parsed.values
        return ScaleColumn(values, parsed.categories)

    @abstractmethod
    def _parse(self, column: Sequence[Any]) -> ScaleColumn:
        """Convert values of JSON types, of which none is missing."""

    def _parse_cells(self, cells: Sequence[str]) -> ScaleColumn:
        """Convert text cells without blanks around them, of which none is missing."""
        return self._parse(cells)


class AttributeScale(ABC):
    """One attribute on its scale; ``tree`` and ``texts`` are of a `CategoryIndex`, for a scale with codes."""

    is_coded: ClassVar[bool] = False
    """Whether values are codes, of which only equality counts. They have no coordinate."""
    has_categories: ClassVar[bool] = False
    """Whether a cluster publishes a category, not a number."""
    has_trend: ClassVar[bool] = False
    """Whether values may grow with the offsets of a stream."""
    is_amount: ClassVar[bool] = False
    """Whether values are amounts, which can be added up and are published as JSON numbers."""
    artificial_categories: ClassVar[tuple[str, ...]] = ()
    """Categories of the artificial records by which kernels are compiled, of a scale with codes."""
    one_type: ClassVar[str] = "give its values one type in the input"
    """What to do where published scalars have several types; {} is the place of the attribute in the policy."""
    faults: ClassVar[tuple[ScaleFault, ...]] = ()
    """What `explain` can return, besides `OUTSIDE_BOUNDS`."""

    def __init__(self, attribute: Attribute, tree: object = None, texts: CategoryTexts | None = None) -> None:  # noqa: ARG002
        self.attribute = attribute

    def __init_subclass__(cls, *, scale: Scale) -> None:
        """Register the class of a scale."""
        SCALES[scale] = cls

    @property
    def json_type(self) -> Any:  # noqa: ANN401 - a type or a union of types
        """The type that a value must have in JSON; a number is decoded as `NumberText` where its text decides."""
        return str | int | float | bool | None if self.attribute.may_be_missing else str | int | float | bool

    @property
    def column_need(self) -> ColumnNeed | None:
        """What a typed column must hold; None if values of any type may be on the scale."""
        return None

    @abstractmethod
    def reader(self, missing_values: Iterable[str], *, has_commas: bool = False) -> ScaleReader:
        """Return what converts values; ``missing_values`` are those of the policy."""

    @property
    def must_agree(self) -> bool:
        """Whether a cluster publishes a code only if all members have it."""
        return False

    def code_distances(self, apart: float, missing: float) -> Float64Vector:  # noqa: ARG002 - ``apart`` is for codes
        """Return the squared distance of two records in each column of `codes` in which they differ.

        ``apart`` is that of two categories, ``missing`` that of a number and none.
        """
        return np.full(1 if self.attribute.missing == "group" else 0, missing)

    def codes(self, values: Float64Vector) -> Int64Matrix:
        """Return the columns of codes (n, c): under ``missing: group`` one that tells whether the value is missing."""
        return np.isnan(values)[:, None].astype(np.int64)

    def values_at(self, shares: Float64Vector) -> Float64Vector:
        """Return values (n,) of artificial records at shares of the range of the attribute, from 0 to 1."""
        low, high = self.attribute.bounds or (0.0, 1.0)
        return low + shares * (high - low)

    def grid_step(self, *, is_exact: bool) -> Decimal | None:  # noqa: ARG002
        """Return the step of published means (0: exact, as in tables); None if no grid can publish them."""
        return None

    @property
    def smallest_step(self) -> float:
        """Difference of two neighbouring published values, in the unit of values; 0 if there is none."""
        return 0.0

    @abstractmethod
    def publisher(self, *, is_exact: bool, is_table: bool) -> Publisher:
        """Return what computes published values; ``is_table`` says that it sees all records of a table."""

    @property
    @abstractmethod
    def pattern(self) -> str:
        """Regular expression of the JSON scalars that a cluster may publish, without groups and without null."""

    @property
    @abstractmethod
    def published_types(self) -> set[type] | None:
        """Types of the scalars that a table publishes; None if they are those of the input."""

    def distances(self, values: Float64Vector, published: Float64Vector) -> Float64Vector | None:  # noqa: ARG002
        """Return the distances (n,) from published values; None if they are differences over the range."""
        return None

    @property
    @abstractmethod
    def off_scale(self) -> ScaleFault:
        """What is wrong with a value that is not on the scale."""

    def cause(self, written: object) -> ScaleFault:  # noqa: ARG002 - few scales know the form of other values
        """Return what is wrong with a value of the input that is not on the scale, by its form."""
        return self.off_scale

    def explain(self, value: float) -> ScaleFault | None:
        """Return what is wrong with a value that is not missing; None if nothing is. Infinity is not on the scale."""
        if not math.isfinite(value):
            return self.off_scale
        low, high = self.attribute.limits
        return None if self.is_coded or self.attribute.clip or low <= value <= high else OUTSIDE_BOUNDS


SCALES: dict[Scale, type[AttributeScale]] = {}
"""The class of each scale."""


def scale_of(attribute: Attribute, tree: object = None, texts: CategoryTexts | None = None) -> AttributeScale:
    """Return an attribute on its scale."""
    return SCALES[attribute.scale](attribute, tree, texts)


def remedies() -> dict[str, str]:
    """Return what to do about each reason that `AttributeScale.explain` can return."""
    return dict([OUTSIDE_BOUNDS, *(fault for one in SCALES.values() for fault in one.faults)])


def cluster_of_each(bounds: Int64Vector) -> Int64Vector:
    """Return the number of the cluster of each member."""
    return np.arange(len(bounds) - 1).repeat(np.diff(bounds))


class NumberText(str):
    """The text of a JSON number with a point or an exponent. The type distinguishes it from a JSON string."""

    __slots__ = ()


def integral_to_int(number: float) -> int | float:
    """Return an integral float64 as the integer of its shortest decimal text, and any other float64 unchanged.

    So 1e2, 100.0 and 100 are published as the same bytes, and 1e23 as the same bytes as its 24 digits.
    """
    if not number.is_integer():
        return number
    return int(number) if abs(number) < FIRST_INEXACT else int(Decimal(repr(number)))


def text_of(value: object) -> str | None:
    """Return a text, or the JSON text of a boolean or integer (also 1.0, as programs write 1); None for any other."""
    if type(value) is str:
        return value
    if isinstance(value, float):
        value = integral_to_int(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else None


def whole_text(text: str) -> str | None:
    """Return the text of a whole number without its point, as of 2.0, which programs write for 2; None for others."""
    match = _WHOLE_WITH_POINT.fullmatch(text)
    return None if match is None else match[1]


def json_text(text: str) -> str | None:
    """Return a text as a JSON string; None if it contains surrogates, which no encoding can represent."""
    try:
        return _encode_text(text).decode()
    except UnicodeEncodeError:
        return None
