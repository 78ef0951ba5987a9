"""Times as the policy defines them: text or epoch number to milliseconds, and the published step nearest to a mean.

All arithmetic is on integers and fractions. A time is a whole number of milliseconds since 1970-01-01T00:00Z.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from shoal.audit.calendar_days import day_of, month_length, months_until, start_of_month
from shoal.policy import TimeStep

__all__ = ["TimeGrid", "epoch_ms", "iso_ms"]

_ISO = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?"
)
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_DAY_MS = 86_400_000
_LENGTHS = {"s": Fraction(1000), "ms": Fraction(1), "us": Fraction(1, 1000), "days": Fraction(_DAY_MS)}
"""Milliseconds of one, by unit."""
_MONTHS = 12
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 0001 to 9999."""
_MAX_MAGNITUDE, _MIN_MAGNITUDE = 1e18, 1e-9
"""Numbers beyond are no times of these years, and smaller ones are 0."""


def iso_ms(text: str) -> int | None:
    """Return the milliseconds of a date, or of a date and time, in ISO 8601; None for any other text.

    A text without a zone is in UTC, and a date is its midnight in its zone. Fractions of a millisecond are rounded half
    to even.
    """
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(found[number] or 0) for number in range(1, 7))
    if not year or not 1 <= month <= _MONTHS or not 1 <= day <= month_length(year, month):
        return None
    offset = _offset_minutes(found[8])
    if hour > 23 or minute > 59 or second > 59 or offset is None:  # noqa: PLR2004 - the clock
        return None
    seconds = day_of(year, month, day) * 86_400 + hour * 3600 + (minute - offset) * 60 + second
    return _in_range(round(seconds * 1000 + Fraction(int((found[7] or "0").ljust(9, "0")), 10**6)))


def _offset_minutes(zone: str | None) -> int | None:
    """Return the minutes of a zone east of UTC; None if its hours or minutes do not exist."""
    if zone is None or zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[-2:])
    if hours > 23 or minutes > 59:  # noqa: PLR2004 - the clock
        return None
    return (hours * 60 + minutes) * (-1 if zone.startswith("-") else 1)


def epoch_ms(text: str, unit: str) -> int | None:
    """Return the milliseconds of an epoch number, given as a decimal; None outside the years 0001 to 9999.

    Fractions of a millisecond are rounded half to even.
    """
    magnitude = abs(float(text))
    if magnitude > _MAX_MAGNITUDE:
        return None
    exact = Fraction(Decimal(text)) if magnitude >= _MIN_MAGNITUDE else Fraction(0)
    return _in_range(round(exact * _LENGTHS[unit]))


def _in_range(milliseconds: int) -> int | None:
    return milliseconds if _FIRST_MS <= milliseconds <= _LAST_MS else None


class TimeGrid:
    """The publishable times of one attribute: the multiples of a step, or the starts of months or years, in UTC.

    Parameters
    ----------
    step : TimeStep
    unit : {"s", "ms", "us", "days"} or None
        Unit of published epoch numbers; None for texts.
    """

    def __init__(self, step: TimeStep, unit: str | None) -> None:
        self._step, self._unit = step, unit
        self._months = {"month": 1, "year": _MONTHS}.get(step.unit)

    def mean(self, values: Sequence[float]) -> str:
        """Return the mean of whole milliseconds as a published number or text, without quotation marks."""
        return self._text(self._nearest(Fraction(sum(map(int, values)), len(values))))

    def rounded(self, milliseconds: float) -> int:
        """Return the publishable time of the years 0001 to 9999 that is nearest to a time."""
        return self._nearest(Fraction(milliseconds))

    def parse(self, text: str) -> int | None:
        """Return the milliseconds of a published text if it is one of the grid in its only spelling; else None."""
        if self._unit is not None:
            if not _WHOLE.fullmatch(text) or len(text) > 18:  # noqa: PLR2004
                return None
            exact = int(text) * _LENGTHS[self._unit]
            found = _in_range(int(exact)) if exact.denominator == 1 else None
        else:
            found = iso_ms(text)
        return found if found is not None and self.rounded(found) == found and self._text(found) == text else None

    def _nearest(self, time: Fraction) -> int:
        if self._months is None:
            length = self._step.milliseconds
            # A time of these years is always within one step of a multiple that is inside them.
            return min(max(round(time / length), -(-_FIRST_MS // length)), _LAST_MS // length) * length
        # Ties go to the even count of months or years since 1970.
        count = self._count_until(time)
        below, above = self._start(count), self._start(count + 1)
        doubled = 2 * (time - below)
        width = above - below
        is_up = doubled > width or (doubled == width and count % 2)
        return above if is_up and above <= _LAST_MS else below  # the year 0001 begins with a month

    def _count_until(self, time: Fraction) -> int:
        """Return the number of months or years that begin after 1970-01-01 and not after a time."""
        return months_until(int(time // _DAY_MS)) // (self._months or 1)

    def _start(self, count: int) -> int:
        return start_of_month(count * (self._months or 1)) * _DAY_MS

    def _text(self, milliseconds: int) -> str:
        if self._unit is not None:
            return str(int(milliseconds / _LENGTHS[self._unit]))
        day, rest = divmod(milliseconds, _DAY_MS)
        months = months_until(day)
        years, month = divmod(months, _MONTHS)
        shown = f"{1970 + years:04}-{month + 1:02}-{day - start_of_month(months) + 1:02}"
        if self._step.is_date:
            return shown
        seconds = rest // 1000
        return f"{shown}T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"
