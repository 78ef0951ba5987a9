"""Scale ``numeric``: means of clusters on a grid.

Means do not depend on the order of the members: sums are exact and are rounded once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from shoal.arrays import BoolMatrix, Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.kernels.sums import FIRST_INEXACT, divide_by_steps, divide_sums, sum_clusters
from shoal.policy import BLANKS, JSON_NUMBER, Attribute, Scale, WrittenNumbers
from shoal.scales.scale import (
    DECIMAL,
    INVALID,
    AttributeScale,
    ColumnNeed,
    NumberText,
    Publisher,
    ScaleColumn,
    ScaleFault,
    ScaleReader,
)

INTEGER = r"-?(?:0|[1-9][0-9]*)"
"""Regular expression of a JSON integer, without groups."""

NOT_FINITE = ScaleFault(
    "not a finite number",
    "a quasi-identifier must be a number; if the field is a category or a time, set its scale: nominal, ordinal or "
    "time; if it is another text, give it another role: confidential and other publish it as it is, identifier leaves "
    "it out; if it is a number, correct the values, or set csv.decimal",
)
_WITH_SIGNS = ScaleFault(
    "a text of a number with separators of thousands, a sign such as % or €, or quotation marks of JSON",
    "set thousands or symbol of the attribute, such as thousands: ',' or symbol: '%', and csv.decimal",
)
_SIGNED = re.compile(r"[^0-9]{0,4}[0-9]{1,3}(?:[., '’\u00a0\u202f]?[0-9]{3})*(?:[.,][0-9]+)?[^0-9]{0,4}")
_OTHERWISE_WRITTEN = ScaleFault(
    "not a number in the form of thousands and symbol",
    "correct the values, or thousands, symbol and csv.decimal in the policy",
)
NOT_WHOLE = ScaleFault("not a whole number", "set integer: false, or correct the values")


class NumericScale(AttributeScale, scale=Scale.NUMERIC):
    """Numbers are coordinates; a cluster publishes the mean, on the grid of the resolution."""

    is_amount = True
    faults = (NOT_FINITE, NOT_WHOLE, _WITH_SIGNS, _OTHERWISE_WRITTEN)
    pattern = JSON_NUMBER.pattern
    off_scale = NOT_FINITE
    one_type = "set {}.resolution to another step"

    @property
    def column_need(self) -> ColumnNeed | None:
        """Numbers; with a declared form of their texts any column."""
        return None if self.attribute.written else ColumnNeed("numbers", "must be a column of numbers")

    def cause(self, written: object) -> ScaleFault:
        """Return what is wrong with a text, by its form."""
        if self.attribute.written:
            return _OTHERWISE_WRITTEN
        return _WITH_SIGNS if isinstance(written, str) and _SIGNED.fullmatch(written.strip(BLANKS)) else NOT_FINITE

    def grid_step(self, *, is_exact: bool) -> Decimal | None:
        """Return the resolution; None if a value may be missing, as each attribute then has other members."""
        return None if self.attribute.may_be_missing else self.attribute.publication_step(table=is_exact)

    @property
    def smallest_step(self) -> float:
        """The resolution of a stream."""
        return float(self.attribute.publication_step())

    def explain(self, value: float) -> ScaleFault | None:
        """Return what is wrong with a number."""
        if math.isfinite(value) and self.attribute.integer and not value.is_integer():
            return NOT_WHOLE
        return super().explain(value)

    @property
    def json_type(self) -> Any:  # noqa: ANN401 - a type or a union of types
        """A number; null and a text may be a missing value, and a text a number in a declared form."""
        if self.attribute.may_be_missing:
            return float | str | None
        return float | str if self.attribute.written else float

    @property
    def published_types(self) -> set[type]:
        """Integers, if the step of tables is one."""
        step = self.attribute.publication_step(table=True)
        return {int} if step and step == step.to_integral_value() else {float}

    def reader(self, missing_values: Iterable[str], *, has_commas: bool = False) -> ScaleReader:
        """Return what converts numbers."""
        return _NumericReader(self.attribute, missing_values, has_commas=has_commas)

    def publisher(self, *, is_exact: bool, is_table: bool) -> Publisher:  # noqa: ARG002
        """Return what computes means."""
        return _Means(self.attribute.publication_step(table=is_exact))


class _Means(Publisher):
    """The mean, on the grid of one resolution."""

    def __init__(self, resolution: Decimal) -> None:
        self._grid = PublicationGrid([resolution])

    def publish(self, values: Float64Vector, bounds: Int64Vector) -> tuple[list[str], Float64Vector]:
        """Return the means; see `PublicationGrid.published`."""
        texts, means = self._grid.published(values[:, None], bounds)
        return [row[0] for row in texts], means[:, 0]


def exact_means(values: Float64Matrix, cluster_bounds: Int64Vector) -> Float64Matrix:
    """Return the means (G, d) of clusters: the floats nearest to the exact means, independent of the order of members.

    The members (E, d) are finite and are not modified; cluster g is ``values[cluster_bounds[g]:cluster_bounds[g +
    1]]``, not empty. Ties go to the even float, and zero has no sign.
    """
    return MemberSums(values, cluster_bounds).means()


class MemberSums:
    """Sums of clusters: ``totals`` plus residuals, float64 (G, d), where ``exact``; elsewhere not representable."""

    def __init__(self, values: Float64Matrix, cluster_bounds: Int64Vector) -> None:
        self._values = np.require(values, np.float64, ["C", "W"])  # as kernels need them
        self._bounds = cluster_bounds
        self.totals = np.empty((len(cluster_bounds) - 1, values.shape[1]))
        self._residuals = np.empty_like(self.totals)
        self.exact: BoolMatrix = np.empty(self.totals.shape, np.bool_)
        sum_clusters(self._values, cluster_bounds, self.totals, self._residuals, self.exact)

    def means(self) -> Float64Matrix:
        """Return the means, each rounded once."""
        means, certain = np.empty_like(self.totals), np.empty_like(self.exact)
        divide_sums(self.totals, self._residuals, self.exact, self._bounds, means, certain)
        for cluster, column in np.argwhere(~certain).tolist():
            total, size = self.exact_total(cluster, column)
            means[cluster, column] = float(Fraction(total) / size) + 0.0
        return means

    def exact_total(self, cluster: int, column: int) -> tuple[float | Fraction, int]:
        """Return the exact sum of one attribute of a cluster, and the size of the cluster."""
        first, last = self._bounds[cluster : cluster + 2].tolist()
        if not self.exact[cluster, column]:
            return sum(map(Fraction, self._values[first:last, column].tolist()), Fraction()), last - first
        total, rest = float(self.totals[cluster, column]), float(self._residuals[cluster, column])
        return Fraction(total) + Fraction(rest) if rest else total, last - first


CACHED_TEXTS = 1 << 12
"""Texts cached per attribute and partition; more than the multiples of a resolution between usual bounds."""


class Published(NamedTuple):
    """Published values of G clusters."""

    texts: list[list[str]]  # for each cluster its d values, as JSON scalars
    values: Float64Matrix  # (G, d): the same as values of the scale


class PublicationGrid:
    """The grid of published values: multiples of a resolution per attribute; the exact mean for 0."""

    def __init__(self, resolutions: list[Decimal]) -> None:
        self.resolutions = resolutions
        self._steps = [_Step(resolution) if resolution else None for resolution in resolutions]
        self._fractions = np.array([(0.0, 0.0, 1.0) if step is None else step.fraction for step in self._steps])
        self._fractions = self._fractions.reshape(-1, 3).T.copy()

    def published(self, values: Float64Matrix, cluster_bounds: Int64Vector) -> Published:
        """Return the published values of clusters ``values[cluster_bounds[g]:cluster_bounds[g + 1]]``, not empty.

        The values (E, d) are finite, and are not modified.

        Definition: with a resolution r, the exact rational mean of the members' floats is divided by r, rounded to an
        integer with ties to even, multiplied by r and written with the decimals of r; zero has no sign. With r = 0 it
        is rounded to the nearest float, ties to even, and written by ``repr``: it is never outside the range of the
        members. Neither depends on the order of the members.

        Cost: 2 ns per value and 0.2 µs per number; some µs more where the mean is too close to a tie for floats.
        """
        sums = MemberSums(values, cluster_bounds)
        published, certain = np.empty_like(sums.totals), np.empty_like(sums.exact)
        multiples: Int64Matrix = np.empty(published.shape, np.int64)
        with np.errstate(over="ignore", invalid="ignore"):  # a quotient that overflows is not certain
            are_certain = divide_by_steps(
                sums.totals, sums.exact, cluster_bounds, self._fractions, multiples, published, certain
            )
        columns: list[list[int]] = multiples.T.tolist()
        if not are_certain:
            for cluster, column in np.argwhere(~certain).tolist():
                if (step := self._steps[column]) is not None:
                    multiple = step.nearest(*sums.exact_total(cluster, column))
                    columns[column][cluster] = multiple
                    published[cluster, column] = multiple * step.whole / step.unit
        texts = []
        means = sums.means() if None in self._steps else published
        for column, step in enumerate(self._steps):
            if step is None:
                published[:, column] = means[:, column]
                texts.append(list(map(repr, means[:, column].tolist())))
            else:
                texts.append(step.texts(columns[column]))
        return Published([list(row) for row in zip(*texts, strict=True)], published)


class _Step:
    """A resolution above 0, as the fraction ``whole`` / ``unit``."""

    def __init__(self, resolution: Decimal) -> None:
        above, below = resolution.as_integer_ratio()
        self._decimals = max(0, -int(resolution.as_tuple().exponent))
        self._written: dict[int, str] = {}
        self.unit: int = 10**self._decimals
        self.whole: int = above * self.unit // below
        is_exact = max(self.whole, self.unit) <= FIRST_INEXACT
        self.fraction = self.unit / self.whole, float(self.whole) if is_exact else math.inf, float(self.unit)
        """What `divide_by_steps` needs; with an infinite whole nothing is certain."""

    def nearest(self, total: float | Fraction, size: int) -> int:
        """Return the multiple nearest to ``total`` / ``size``, computed exactly; ties to even."""
        above, below = total.as_integer_ratio()
        whole = below * size * self.whole
        number, rest = divmod(above * self.unit, whole)
        is_up = 2 * rest > whole or (2 * rest == whole and number % 2 == 1)
        return number + 1 if is_up else number

    def texts(self, multiples: list[int]) -> list[str]:
        """Write multiples of the resolution with its decimals."""
        if len(self._written) > CACHED_TEXTS:
            self._written.clear()
        return [self._written.get(multiple) or self._write(multiple) for multiple in multiples]

    def _write(self, multiple: int) -> str:
        number = multiple * self.whole
        text = str(abs(number)).zfill(self._decimals + 1)
        if self._decimals:
            text = f"{text[: -self._decimals]}.{text[-self._decimals :]}"
        text = f"-{text}" if number < 0 else text
        self._written[multiple] = text
        return text


_PLAIN_BYTES = b"0123456789+-.eE, \t"
"""In texts of these bytes, Python's parsers accept decimal numbers and nothing else."""


def parse_numbers(cells: Sequence[str]) -> Float64Vector:
    """Parse a column of cells; NaN for what is no finite ASCII decimal number. Cost: about 0.05 µs per cell."""
    parsed = parse_at_once(cells, float)
    if parsed is None:
        parsed = [parse_number(cell) for cell in cells]
    column = np.fromiter(parsed, np.float64, len(cells))
    column[np.isinf(column)] = np.nan
    return column


def replace_decimal_commas(cells: Sequence[str]) -> list[str]:
    """Replace decimal commas by points. A cell that contains a point becomes a text that is not a number."""
    return [cell.replace(",", ".") if "." not in cell else "." for cell in cells]


_GAP = "[ \u00a0\u202f]"
_SEPARATORS = {" ": _GAP, "'": "['’]"}


class WrittenForm:
    """Turns texts of numbers in a declared form into plain ones: with a point, without separators and symbol."""

    def __init__(self, written: WrittenNumbers) -> None:
        gap, decimal, symbol = f"{_GAP}?", re.escape(written.decimal), re.escape(written.symbol)
        self._separator = re.compile(_SEPARATORS.get(written.thousands, re.escape(written.thousands or "\0")))
        whole = rf"[0-9]{{1,3}}(?:{self._separator.pattern}[0-9]{{3}})+|[0-9]+"
        around = (
            (f"(?P<before>{symbol}{gap})?", f"(?P<after>{gap}{symbol})?") if symbol else ("(?P<before>)", "(?P<after>)")
        )
        number = rf"(?:(?P<whole>{whole})(?:{decimal}(?P<part>[0-9]+))?|{decimal}(?P<only>[0-9]+))"
        self._form = re.compile(rf"(?P<sign>[+-]?){around[0]}(?P<late>[+-]?){number}{around[1]}")

    def plain(self, text: str) -> str:
        """Return a plain number; a text that is none, if the text has another form."""
        found = self._form.fullmatch(text.strip(BLANKS))
        if found is None or (found["sign"] and found["late"]) or (found["before"] and found["after"]):
            return "."
        whole = self._separator.sub("", found["whole"] or "0")
        return f"{found['sign']}{found['late']}{whole}.{found['part'] or found['only'] or '0'}"


class _NumericReader(ScaleReader):
    """Numbers. Where no value may be missing, the decoder of JSON has checked the types already."""

    has_numbers = True

    def __init__(self, attribute: Attribute, missing_values: Iterable[str], *, has_commas: bool = False) -> None:
        super().__init__(attribute, missing_values, has_commas=has_commas)
        self._form = WrittenForm(attribute.written) if attribute.written else None

    def _plain(self, cells: Sequence[str]) -> Sequence[str]:
        if self._form is not None:
            return [self._form.plain(cell) for cell in cells]
        return replace_decimal_commas(cells) if self._has_commas else cells

    def read(self, values: Iterable[Any]) -> ScaleColumn:
        if not self.attribute.may_be_missing and self._form is None:
            return ScaleColumn(self.drop_missing_numbers(np.fromiter(values, np.float64)))
        return super().read(values)

    def read_cells(self, cells: Sequence[str]) -> ScaleColumn:
        # The parser of numbers ignores blanks itself, and only a number can be mistaken for a value that is present.
        if not self.attribute.may_be_missing and self._missing_values == {""}:
            return ScaleColumn(parse_numbers(self._plain(cells)))
        return super().read_cells(cells)

    def read_timestamps(self, column: Sequence[int]) -> ScaleColumn:
        return ScaleColumn(self.drop_missing_numbers(np.array(column, dtype=np.float64)))

    def read_value(self, value: Any) -> float:  # noqa: ANN401 - any JSON scalar
        is_number = isinstance(value, int | NumberText) and not isinstance(value, bool)
        if self._form is not None and type(value) is str:
            value, is_number = self._form.plain(value), True
        number = to_number(value) if is_number else None
        return float(self.drop_missing_numbers(np.array([INVALID if number is None else number]))[0])

    def _parse(self, column: Sequence[Any]) -> ScaleColumn:
        if self._form is not None:
            column = [parse_number(self._form.plain(value)) if type(value) is str else value for value in column]
            column = [INVALID if value != value else value for value in column]  # noqa: PLR0124 - NaN alone differs
        elif not set(map(type, column)) <= {float}:
            column = [value if type(value) is float else INVALID for value in column]
        return ScaleColumn(self.drop_missing_numbers(np.fromiter(column, np.float64, len(column))))

    def _parse_cells(self, cells: Sequence[str]) -> ScaleColumn:
        numbers = parse_numbers(self._plain(cells))
        return ScaleColumn(self.drop_missing_numbers(np.where(np.isnan(numbers), INVALID, numbers)))


def parse_at_once(cells: Sequence[str], parse: Callable[[str], Any]) -> list[Any] | None:
    """Parse all cells, or return None if one of them needs a closer check."""
    if ",".join(cells).encode().translate(None, _PLAIN_BYTES):
        return None
    try:
        return list(map(parse, cells))
    except ValueError:
        return None


def parse_number(cell: str) -> float:
    """Parse one text cell; NaN if it is no decimal number."""
    text = cell.strip(BLANKS)
    return float(text) if DECIMAL.fullmatch(text) else math.nan


def to_number(value: object) -> float | None:
    """Convert one value of any type to a float64: NaN for null and a blank text, None if it is not a number."""
    if value is None or (isinstance(value, str) and not value.strip(BLANKS)):
        return math.nan
    if isinstance(value, str):
        number = parse_number(value)
        return None if math.isnan(number) else number
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return math.inf if value > 0 else -math.inf
