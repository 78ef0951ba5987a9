"""The step of published times: ``15min``, ``h``, ``day``, ``month``, ``year``.

The times of a policy, such as bounds: ISO 8601, or a number of s, ms, us or days since 1970.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Final, Literal, Self, TypeAlias, cast

__all__ = ["FIRST_MS", "LAST_MS", "MS_PER_UNIT", "TimeStep", "TimeUnit", "format_time", "parse_time"]

TimeUnit: TypeAlias = Literal["s", "min", "h", "day", "month", "year"]

_MS: dict[TimeUnit, int] = {
    "s": 1_000,
    "min": 60_000,
    "h": 3_600_000,
    "day": 86_400_000,
    "month": 2_629_746_000,
    "year": 31_556_952_000,
}
"""Length of each unit in ms; of a month and a year the mean of the Gregorian calendar."""
_TEXT = re.compile(r"([1-9][0-9]{0,5})?(s|min|h|day|month|year)")


@dataclass(frozen=True, slots=True)
class TimeStep:
    """``count`` units of time. Steps of months and years have the count 1."""

    count: int
    unit: TimeUnit

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the step of a text like ``15min`` or ``month``; None for any other text."""
        found = _TEXT.fullmatch(text)
        if found is None or (found[1] and found[2] in {"month", "year"}):
            return None
        return cls(int(found[1] or 1), cast("TimeUnit", found[2]))

    @property
    def milliseconds(self) -> int:
        """Length in ms; for months and years the mean length."""
        return self.count * _MS[self.unit]

    @property
    def is_date(self) -> bool:
        """Whether published values are dates without a time of day."""
        return self.unit in {"month", "year"} or (self.unit == "day")

    @property
    def is_whole_days(self) -> bool:
        """Whether every published value is the begin of a day."""
        return self.is_date or self.milliseconds % _MS["day"] == 0

    def __str__(self) -> str:
        """Return the text of the policy."""
        return f"{self.count if self.count > 1 else ''}{self.unit}"


FIRST_MS: Final = -62_135_596_800_000
"""0001-01-01T00:00Z in ms since 1970-01-01T00:00Z."""
LAST_MS: Final = 253_402_300_799_999
"""The last ms of the year 9999."""
_DAY_MS, _HOUR_MS, _MINUTE_MS, _SECOND_MS = 86_400_000, 3_600_000, 60_000, 1_000
MS_PER_UNIT: Final = {"s": Decimal(1000), "ms": Decimal(1), "us": Decimal("0.001"), "days": Decimal(_DAY_MS)}
"""Length of the unit of a number, in ms."""
_ISO = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9](?:\.[0-9]{1,9})?))?"
    r")?(Z|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9])?"
)


def parse_time(value: str | float, unit: str | None) -> float | None:
    """Return a time in whole ms since 1970-01-01T00:00Z (half to even); None if it is not valid.

    Parameters
    ----------
    value : str or float
        A text in the form of ISO 8601 if ``unit`` is None, else a number.
    unit : {"s", "ms", "us", "days"} or None
        Unit of numbers.
    """
    if unit is None:
        milliseconds = _parse_iso(value) if isinstance(value, str) else None
    elif isinstance(value, str):
        milliseconds = None
    else:
        milliseconds = Decimal(repr(value)) * MS_PER_UNIT[unit]
    if milliseconds is None or not milliseconds.is_finite():
        return None
    whole = milliseconds.to_integral_value() if abs(milliseconds) <= LAST_MS + 1 else milliseconds
    return float(whole) if FIRST_MS <= whole <= LAST_MS else None


def format_time(milliseconds: float, unit: str | None) -> str | float:
    """Return a time as `parse_time` reads it: in whole ms since 1970-01-01T00:00Z, from year 1 to 9999."""
    if unit is not None:
        return milliseconds * 1000 if unit == "us" else milliseconds / float(MS_PER_UNIT[unit])
    days, rest = divmod(int(milliseconds), _DAY_MS)
    day = date.fromordinal(days + date(1970, 1, 1).toordinal())
    seconds, fraction = divmod(rest, _SECOND_MS)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{day.isoformat()}T{hour:02}:{minute:02}:{second:02}" + (f".{fraction:03}Z" if fraction else "Z")


def _parse_iso(text: str) -> Decimal | None:
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, zone = found.groups()
    try:
        days = date(int(year), int(month), int(day)).toordinal() - date(1970, 1, 1).toordinal()
    except ValueError:
        return None
    time = int(hour or 0) * _HOUR_MS + int(minute or 0) * _MINUTE_MS + Decimal(second or 0) * _SECOND_MS
    return days * _DAY_MS + time - _offset_ms(zone)


def _offset_ms(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    digits = zone[1:].replace(":", "")
    offset = int(digits[:2]) * _HOUR_MS + int(digits[2:]) * _MINUTE_MS
    return -offset if zone[0] == "-" else offset
