"""The centroid as the policy defines it, in whole numbers.

A float64 is a whole number over a power of two; so sums, the mean and the rounding to the grid are exact here
and need no tolerance. Nothing is shared with the arithmetic that is judged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from shoal.policy import Attribute

__all__ = ["ExactGrid", "spelled"]

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")

_LEAST_PLAIN = -5
"""Power of ten of the first digit, from which on fractions are written without an exponent."""

_LONGEST = 400
"""No float64 within its range, printed on a grid, is longer."""


class ExactGrid:
    """The published values of one quasi-identifier.

    Parameters
    ----------
    attribute : Attribute
        Its bounds and resolution.
    table : bool
        Whether the defaults of tables hold instead of those of streams.

    Notes
    -----
    A step is ``_step / 10**_decimals`` with both whole.
    """

    def __init__(self, attribute: Attribute, *, table: bool) -> None:
        resolution = attribute.publication_step(table=table)
        exponent = resolution.as_tuple().exponent
        self._decimals = max(0, -exponent) if isinstance(exponent, int) else 0
        self._step = _scaled(resolution, self._decimals)
        tail = rf"\.[0-9]{{{self._decimals}}}" if self._decimals else ""
        self._form = re.compile(rf"-?(?:0|[1-9][0-9]*){tail}" if self._step else _NUMBER)
        self._limits = None
        if attribute.bounds is not None:
            low, high = (Decimal(repr(bound)) for bound in attribute.bounds)
            self._limits = (low - resolution / 2, high + resolution / 2)

    def mean(self, values: Sequence[float]) -> str | None:
        """Print the mean, rounded to the grid, ties to even; None where no number can hold it.

        Parameters
        ----------
        values : sequence of float
            Clipped values of the members of one cluster, at least one, finite.
        """
        if not self._step:
            try:
                return repr(math.fsum(values) / len(values) + 0.0)
            except OverflowError:
                return None
        ratios = [value.as_integer_ratio() for value in values]
        common = max(below for _, below in ratios)  # powers of two: the largest is a multiple of all
        total = sum(above * (common // below) for above, below in ratios)
        steps = _half_even(total * 10**self._decimals, common * len(values) * self._step)
        return self._text(steps * self._step)

    def holds(self, text: str) -> bool:
        """Whether a text is a value of the grid in its one spelling."""
        if not self._form.fullmatch(text):
            return False
        if not self._step:
            return text == repr(float(text) + 0.0)
        if len(text) > _LONGEST:
            return False
        whole = int(text.replace(".", ""))
        return whole % self._step == 0 and not (whole == 0 and text.startswith("-"))

    def spelled(self, value: float) -> str:
        """Write a number, of which only the float64 is known, as the value of the grid that it is; else as it is."""
        if not self._step:
            return repr(float(value) + 0.0)
        above, below = float(value).as_integer_ratio()
        text = self._text(_half_even(above * 10**self._decimals, below * self._step) * self._step)
        return text if float(text) == value else repr(value)

    def within(self, text: str) -> bool:
        """Whether a text is a number inside the bounds, half a step aside."""
        if len(text) > _LONGEST or not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
            return False
        if self._limits is None:
            return True
        try:
            number = Decimal(text)
        except InvalidOperation:  # an exponent that not even a decimal can have
            return False
        return self._limits[0] <= number <= self._limits[1]

    def _text(self, whole: int) -> str:
        sign, digits = "-" if whole < 0 else "", str(abs(whole)).zfill(self._decimals + 1)
        if not self._decimals:
            return sign + digits
        return f"{sign}{digits[: -self._decimals]}.{digits[-self._decimals :]}"


def _scaled(number: Decimal, decimals: int) -> int:
    above, below = number.as_integer_ratio()
    return int(above * 10**decimals // below)


def _half_even(above: int, below: int) -> int:
    """Round a ratio to the nearest whole number, halves to the even one; ``below`` is positive."""
    whole, rest = divmod(above, below)
    twice = 2 * rest
    return whole + (twice > below or (twice == below and whole % 2 == 1))


def spelled(value: float) -> str:
    """Write a finite float64 in its one spelling: a whole one as an integer, others in the fewest digits.

    Below 0.00001 a fraction has an exponent, without a plus sign and without zeros in front.
    """
    number = Decimal(repr(value))
    if value.is_integer():
        return str(int(number))
    if number.adjusted() >= _LEAST_PLAIN:
        return f"{number:f}"
    sign, digits, _ = number.as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}{'.' * bool(rest)}{''.join(rest)}e{number.adjusted()}"
