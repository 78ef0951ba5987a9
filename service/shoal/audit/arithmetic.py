"""Exact arithmetic on the publication grid, in integers.

A float64 is an integer over a power of two. Sums, means and rounding to the grid are therefore exact here and need no
tolerance. This module shares no code with the arithmetic that produced the release.

The Gregorian calendar in integers, without limits on the year. Day 0 is 1970-01-01.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from shoal.policy import Attribute

__all__ = ["ExactGrid", "canonical_float", "day_of", "month_length", "months_until", "start_of_month"]

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")

_MIN_PLAIN_EXPONENT = -5
"""Fractions whose first digit stands for at least 10**-5 are written without an exponent."""

_MAX_LENGTH = 400
"""No finite float64 printed on a grid has more characters."""


class ExactGrid:
    """The grid of publishable values of one quasi-identifier.

    Parameters
    ----------
    attribute : Attribute
        Gives bounds and resolution.
    table : bool
        Whether the default resolution of tables applies instead of that of streams.
    is_binary : bool
        Whether the release is a Parquet file. Its means are float64 unless the resolution is whole, and neighbouring
        multiples of the resolution may be one float64.

    Notes
    -----
    The grid step is ``_step / 10**_decimals``; both are integers. A step of 0 means that means are published as
    the nearest float64.
    """

    def __init__(self, attribute: Attribute, *, table: bool, is_binary: bool = False) -> None:
        resolution = attribute.publication_step(table=table)
        exponent = resolution.as_tuple().exponent
        self._decimals = max(0, -exponent) if isinstance(exponent, int) else 0
        self._step = _scaled(resolution, self._decimals)
        self._has_floats = is_binary and bool(self._step % 10**self._decimals)
        fraction = rf"\.[0-9]{{{self._decimals}}}" if self._decimals else ""
        self._pattern = re.compile(rf"-?(?:0|[1-9][0-9]*){fraction}" if self._step else _NUMBER)
        self._limits = None
        if attribute.bounds is not None:
            low, high = (Decimal(repr(bound)) for bound in attribute.bounds)
            self._limits = (low - resolution / 2, high + resolution / 2)

    def mean(self, values: Sequence[float]) -> str:
        """Return the mean of the values as published text, rounded once, half to even: to the grid, or to float64.

        Parameters
        ----------
        values : sequence of float
            Clipped values of the members of one cluster: at least one, all finite.

        Notes
        -----
        Without a step the result is within the range of the values, since both ends of it are float64. In a binary
        release of float64 it is what `canonical` returns for the float64 nearest to the multiple.
        """
        ratios = [value.as_integer_ratio() for value in values]
        common = max(
            denominator for _, denominator in ratios
        )  # all are powers of two: the largest is a multiple of all
        total = sum(numerator * (common // denominator) for numerator, denominator in ratios)
        if not self._step:
            return repr(float(Fraction(total, common * len(values))) + 0.0)  # adding 0.0 turns minus zero into zero
        steps = _half_even(total * 10**self._decimals, common * len(values) * self._step)
        text = self._text(steps * self._step)
        return self.canonical(float(text)) if self._has_floats else text

    def contains(self, text: str) -> bool:
        """Whether a text is a value of the grid in its canonical form."""
        if not self._pattern.fullmatch(text):
            return False
        if not self._step:
            return text == repr(float(text) + 0.0)
        if len(text) > _MAX_LENGTH:
            return False
        scaled = int(text.replace(".", ""))
        return scaled % self._step == 0 and not (scaled == 0 and text.startswith("-"))

    def canonical(self, value: float) -> str:
        """Write a number read from a binary column: as a grid value that is equal to it, else in its shortest form.

        Different numbers have different texts. An integer is compared exactly, and a float64 as float64.
        """
        if not self._step:
            return repr(float(value) + 0.0)
        numerator, denominator = value.as_integer_ratio()
        steps = _half_even(numerator * 10**self._decimals, denominator * self._step)
        if isinstance(value, int):
            text = self._text(steps * self._step)
            return text if steps * self._step == value * 10**self._decimals else repr(value)
        # At a power of two the nearest multiple may be nearer to the float64 below, and its neighbour to this one.
        texts = [self._text((steps + other) * self._step) for other in (0, 1, -1)]
        return next((text for text in texts if float(text) == value), repr(value))

    def within_bounds(self, text: str) -> bool:
        """Whether a text is a number inside the bounds, widened by half a grid step on both sides."""
        if len(text) > _MAX_LENGTH or not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
            return False
        if self._limits is None:
            return True
        try:
            number = Decimal(text)
        except InvalidOperation:  # the exponent exceeds even the range of Decimal
            return False
        return self._limits[0] <= number <= self._limits[1]

    def _text(self, scaled: int) -> str:
        sign, digits = "-" if scaled < 0 else "", str(abs(scaled)).zfill(self._decimals + 1)
        if not self._decimals:
            return sign + digits
        return f"{sign}{digits[: -self._decimals]}.{digits[-self._decimals :]}"


def _scaled(number: Decimal, decimals: int) -> int:
    numerator, denominator = number.as_integer_ratio()
    return int(numerator * 10**decimals // denominator)


def _half_even(numerator: int, denominator: int) -> int:
    """Round a ratio with a positive denominator to the nearest integer, ties to even."""
    quotient, remainder = divmod(numerator, denominator)
    doubled = 2 * remainder
    return quotient + (doubled > denominator or (doubled == denominator and quotient % 2 == 1))


def canonical_float(value: float) -> str:
    """Write a finite float64 in its canonical form: integral values as integers, others in the fewest digits.

    Fractions below 0.00001 have an exponent, without plus sign and leading zeros.
    """
    number = Decimal(repr(value))
    if value.is_integer():
        return str(int(number))
    if number.adjusted() >= _MIN_PLAIN_EXPONENT:
        return f"{number:f}"
    sign, digits, _ = number.as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}{'.' * bool(rest)}{''.join(rest)}e{number.adjusted()}"


_MONTHS = 12
_FIRST_YEAR = 1970
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
"""The calendar repeats after 400 years."""


def month_length(year: int, month: int) -> int:
    """Return the number of days of a month from 1 to 12."""
    is_leap = not year % 4 and (year % 100 != 0 or not year % _CYCLE_YEARS)
    return _LENGTHS[month - 1] + (is_leap and month == 2)  # noqa: PLR2004 - February


def day_of(year: int, month: int, day: int) -> int:
    """Return the day of an existing date."""
    return _days_before(year) + sum(month_length(year, earlier) for earlier in range(1, month)) + day - 1


def start_of_month(count: int) -> int:
    """Return the first day of a month, given as the number of months since January 1970."""
    years, month = divmod(count, _MONTHS)
    return day_of(_FIRST_YEAR + years, month + 1, 1)


def months_until(day: int) -> int:
    """Return the month of a day as the number of months since January 1970."""
    year = _FIRST_YEAR + day * _CYCLE_YEARS // _CYCLE_DAYS
    while _days_before(year) > day:
        year -= 1
    while _days_before(year + 1) <= day:
        year += 1
    month, rest = 1, day - _days_before(year)
    while rest >= month_length(year, month):
        rest -= month_length(year, month)
        month += 1
    return (year - _FIRST_YEAR) * _MONTHS + month - 1


def _days_before(year: int) -> int:
    """Return the first day of a year."""

    def leap_days(last: int) -> int:
        return last // 4 - last // 100 + last // _CYCLE_YEARS

    return (year - _FIRST_YEAR) * 365 + leap_days(year - 1) - leap_days(_FIRST_YEAR - 1)
