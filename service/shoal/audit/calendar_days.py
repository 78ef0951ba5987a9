"""The Gregorian calendar in integers, without limits on the year. Day 0 is 1970-01-01."""

from __future__ import annotations

__all__ = ["day_of", "month_length", "months_until", "start_of_month"]

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
