"""Scale ``time``: whole numbers of ms since 1970-01-01T00:00Z, which float64 holds for the years 1 to 9999."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_HALF_EVEN, Context
from functools import cached_property
from typing import Any

import numpy as np

from shoal.arrays import BoolVector, Float64Vector, Int64Vector
from shoal.policy import BLANKS, FIRST_MS, LAST_MS, MS_PER_UNIT, EpochUnit, Scale, TimeStep
from shoal.scales.numeric import INTEGER, replace_decimal_commas
from shoal.scales.scale import (
    DECIMAL,
    INVALID,
    MISSING,
    AttributeScale,
    ColumnNeed,
    NumberText,
    Publisher,
    ScaleColumn,
    ScaleFault,
    ScaleReader,
)

_UNIT = "correct the values or the unit; leave unit out for times in ISO 8601"
_NOT_TIMES: dict[EpochUnit | None, ScaleFault] = {
    None: ScaleFault("not a time in ISO 8601", "write times as 2026-07-14 or 2026-07-14T09:30:00Z, or set unit"),
    "s": ScaleFault("not a number of seconds since 1970", _UNIT),
    "ms": ScaleFault("not a number of milliseconds since 1970", _UNIT),
    "us": ScaleFault("not a number of microseconds since 1970", _UNIT),
    "ns": ScaleFault("not a number of nanoseconds since 1970", _UNIT),
    "days": ScaleFault("not a number of days since 1970", _UNIT),
    "years": ScaleFault("not the number of a year", "correct the values or the unit"),
}
_OTHER_FORM = ScaleFault("not a time in the form of format", "correct the values, or add their form to format")
_LONG = re.compile(r"[0-9]{18,19}")
_NANOSECONDS = ScaleFault("a number, perhaps of nanoseconds since 1970", "set unit: ns")
_FORMS_OF_TEXTS = (
    (
        re.compile(r"[0-9]{4}"),
        ScaleFault("a year, but the resolution is finer", "set resolution: year; and unit: years if it is a number"),
    ),
    (
        re.compile(r"[0-9]{4}-[0-9]{2}"),
        ScaleFault("a month without a day, but the resolution is finer", "set resolution: month or year"),
    ),
    (re.compile(r"[0-9]{9,10}"), ScaleFault("a number, perhaps of seconds since 1970", "set unit: s")),
    (re.compile(r"[0-9]{12,13}"), ScaleFault("a number, perhaps of milliseconds since 1970", "set unit: ms")),
    (re.compile(r"[0-9]{15,16}"), ScaleFault("a number, perhaps of microseconds since 1970", "set unit: us")),
    (_LONG, _NANOSECONDS),
    (
        re.compile(r"[0-9]{1,4}[./-][0-9]{1,2}[./-][0-9]{1,4}.*", re.DOTALL),
        ScaleFault(
            "a date in another form than ISO 8601",
            'set format, such as "%d/%m/%Y" for 31/12/1987 or "%m/%d/%Y" for 12/31/1987',
        ),
    ),
)
"""What is wrong with texts of some forms, where times in ISO 8601 are expected."""
_WITH_UNIT = ScaleFault("a text of a time, not a number as unit says", "leave unit out, or write numbers")
_DATE = r'"-?[0-9]{1,5}-[0-9]{2}-[0-9]{2}"'
_DATE_TIME = r'"-?[0-9]{1,5}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"'
"""Half a step before the first or after the last time is not in the years 1 to 9999."""
_DAY_MS = int(MS_PER_UNIT["days"])


class TimeScale(AttributeScale, scale=Scale.TIME):
    """Times are coordinates; a cluster publishes the mean, rounded to a step."""

    has_trend = True
    faults = (*_NOT_TIMES.values(), *(fault for _, fault in _FORMS_OF_TEXTS), _OTHER_FORM, _WITH_UNIT)

    @property
    def smallest_step(self) -> float:
        """The step in ms."""
        return float(self.attribute.time_step.milliseconds)

    @property
    def pattern(self) -> str:
        """A whole number of the unit, or a date or time in the form of ISO 8601."""
        if self.attribute.unit is not None:
            return INTEGER
        return _DATE if self.attribute.time_step.is_date else _DATE_TIME

    @property
    def off_scale(self) -> ScaleFault:
        """The value is no time in the form or unit of the policy."""
        return _OTHER_FORM if self.attribute.formats else _NOT_TIMES[self.attribute.unit]

    def cause(self, written: object) -> ScaleFault:
        """Return what is wrong with a value, by the form of its text."""
        text = str(written).strip(BLANKS)
        if self.attribute.formats:
            return _OTHER_FORM
        if self.attribute.unit in {"s", "ms", "us"} and _LONG.fullmatch(text):
            return _NANOSECONDS
        if _FORM.fullmatch(text.translate(_DIGITS_TO_ZERO)):  # without a unit: a time that does not exist
            return self.off_scale if self.attribute.unit is None else _WITH_UNIT
        if self.attribute.unit is not None:
            return self.off_scale
        return next((fault for form, fault in _FORMS_OF_TEXTS if form.fullmatch(text)), self.off_scale)

    @property
    def json_type(self) -> Any:  # noqa: ANN401 - a type or a union of types
        """A text; with a unit any value, whose text decides."""
        if self.attribute.unit is not None:
            return Any
        return super().json_type if self.attribute.may_be_missing else str

    @property
    def column_need(self) -> ColumnNeed:
        """Texts; numbers with a unit."""
        if self.attribute.unit is not None:
            return ColumnNeed("numbers", "of scale time with a unit must be a column of numbers", "; remove unit")
        if self.attribute.formats:
            return ColumnNeed("plain texts", "of scale time with a format must be a column of texts", "; remove format")
        return ColumnNeed("texts", "of scale time must be a column of texts, dates or timestamps; set unit")

    @property
    def published_types(self) -> set[type]:
        """Texts; integers with a unit."""
        return {str} if self.attribute.unit is None else {int}

    def reader(self, missing_values: Iterable[str], *, has_commas: bool = False) -> ScaleReader:
        """Return what converts times."""
        kind = _TextTimeReader if self.attribute.unit is None else _EpochTimeReader
        return kind(self.attribute, missing_values, has_commas=has_commas)

    def values_at(self, shares: Float64Vector) -> Float64Vector:
        """Return times, which are whole numbers."""
        return np.rint(super().values_at(shares))

    def publisher(self, *, is_exact: bool, is_table: bool) -> Publisher:  # noqa: ARG002
        """Return what computes rounded means."""
        return TimePublisher(self.attribute.time_step, self.attribute.unit)


class TimePublisher(Publisher):
    """The exact mean of times, rounded to the nearest multiple of a step since 1970-01-01T00:00Z.

    They are written as numbers of ``unit``; without one in the form of ISO 8601.

    Sums are integers, so the mean is exact. Ties go to the even multiple. Steps of months and years are those of the
    Gregorian calendar in UTC; the mean is rounded to the nearest start of one, ties to the one with an even number
    since January 1970 or since 1970. A result may lie half a step outside the bounds. If the nearest multiple is
    outside the years 0001 to 9999, the next one inside is published.
    """

    def __init__(self, step: TimeStep, unit: EpochUnit | None) -> None:
        self._step, self._unit = step, unit

    def publish(self, values: Float64Vector, bounds: Int64Vector) -> tuple[list[str], Float64Vector]:
        """Return the rounded means as JSON strings in the form of ISO 8601, or as numbers of the unit; and in ms."""
        sizes = np.diff(bounds)
        whole, rest = _exact_means(values.astype(np.int64), bounds)
        number, start, length = self._step_before(whole)
        # The mean exceeds the middle of the step by (2 * rest / size - missing) / 2, where 0 <= rest < size.
        missing = np.clip(length - 2 * (whole - start), -1, 2) * sizes
        is_up = (2 * rest > missing) | ((2 * rest == missing) & (number % 2 == 1))
        end = start + length
        rounded = np.where((is_up & (end <= LAST_MS)) | (start < FIRST_MS), end, start)
        return self._texts(rounded), rounded.astype(np.float64)

    def _step_before(self, times: Int64Vector) -> tuple[Int64Vector, Int64Vector, Int64Vector]:
        """Return of the step that contains each time: its number since 1970, its start and its length (ms)."""
        if self._step.unit in {"month", "year"}:
            unit = "M" if self._step.unit == "month" else "Y"
            number = times.astype("M8[ms]").astype(f"M8[{unit}]").astype(np.int64)
            start, end = (
                count.astype(f"M8[{unit}]").astype("M8[ms]").astype(np.int64) for count in (number, number + 1)
            )
            return number, start, end - start
        length = np.full(len(times), self._step.milliseconds)
        number = times // length
        return number, number * length, length

    def _texts(self, times: Int64Vector) -> list[str]:
        """Write times (ms)."""
        if self._unit is not None:
            return [str(number) for number in _numbers_of(times, self._unit)]
        precision, zone = ("D", "") if self._step.is_date else ("s", "Z")
        written = np.datetime_as_string(times.astype("M8[ms]").astype(f"M8[{precision}]"))
        return [f'"{text}{zone}"' for text in written.tolist()]


def _numbers_of(times: Int64Vector, unit: EpochUnit) -> list[int]:
    """Return times (ms) as whole numbers of a unit, which may be too large for int64."""
    if unit == "years":
        years: list[int] = (times.astype("M8[ms]").astype("M8[Y]").astype(np.int64) + 1970).tolist()
        return years
    factor = _PARTS_OF_MS.get(unit)
    return [time * factor if factor else time // int(MS_PER_UNIT[unit]) for time in times.tolist()]


def _exact_means(times: Int64Vector, bounds: Int64Vector) -> tuple[Int64Vector, Int64Vector]:
    """Return for each cluster the mean as whole ms, rounded down, and the rest of the division by its size.

    Days and milliseconds are added apart: a sum of milliseconds of 40,000 members could exceed int64.
    """
    sizes = np.diff(bounds)
    days, in_day = np.divmod(times, _DAY_MS)
    whole_days, left_days = np.divmod(np.add.reduceat(days, bounds[:-1]), sizes)
    whole, rest = np.divmod(left_days * _DAY_MS + np.add.reduceat(in_day, bounds[:-1]), sizes)
    return whole_days * _DAY_MS + whole, rest


_DIGITS_TO_ZERO = str.maketrans("123456789", "000000000")

_FORM = re.compile(
    r"(?P<year>0000)-(?P<month>00)-(?P<day>00)"
    r"(?:[T ](?P<hour>00):(?P<minute>00)(?::(?P<second>00)(?:\.(?P<fraction>0{1,9}))?)?"
    r")?(?:Z|[+-](?P<zone_hour>00):?(?P<zone_minute>00))?"
)
"""A time with every digit replaced by 0."""
_MONTH, _YEAR = re.compile(r"(?P<year>0000)-(?P<month>00)"), re.compile(r"(?P<year>0000)")

_LAST = {"hour": 23, "minute": 59, "second": 59, "zone_hour": 23, "zone_minute": 59}

_MAX_MAGNITUDES = {"s": 10**12, "ms": 10**15, "us": 10**18, "ns": 10**21, "days": 10**9, "years": 10**4}
"""No number of a year up to 9999 is as large, and int64 holds each in ms."""

_PARTS_OF_MS = {"us": 1_000, "ns": 1_000_000}

_MIN_MAGNITUDE = 1e-9
"""A smaller number of any unit is 0 ms."""

_MAX_INT64_DIGITS = 18

_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, rounding=ROUND_HALF_EVEN)


def parse_iso_times(texts: Sequence[str], forms: Sequence[re.Pattern[str]] = (_FORM,)) -> Float64Vector:
    """Parse texts of some forms to whole ms (half to even); infinity for what is no time of the years 1 to 9999 in UTC.

    The forms are ``YYYY-MM-DD`` and ``YYYY-MM-DDTHH:MM[:SS[.f]]`` with 1 to 9 digits of a fraction, ``T`` or a
    blank, and a zone ``Z``, ``+HH:MM`` or ``+HHMM``; without one in UTC. A date is its midnight in its zone. Cost:
    about 0.2 µs per text if n is 500 and all have one form; 50 µs for each further form.
    """
    times = np.full(len(texts), INVALID, dtype=np.float64)
    for form, indexes in _group_by_form(texts).items():
        match = next((found for one in forms if (found := one.fullmatch(form))), None)
        if match is None:
            continue
        if len(indexes) == len(texts):
            return _parse_alike(texts, match)
        times[indexes] = _parse_alike([texts[index] for index in indexes], match)
    return times


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FIELDS = {
    "Y": "(?P<year>0000)",
    "m": "(?P<month>00?)",
    "d": "(?P<day>00?)",
    "b": f"(?P<name>(?i:{'|'.join(_MONTHS)}))",
    "H": "(?P<hour>00?)",
    "M": "(?P<minute>00?)",
    "S": "(?P<second>00?)",
    "f": "(?P<fraction>0{1,9})",
    "z": "(?:Z|[+-](?P<zone_hour>00):?(?P<zone_minute>00))",
}
_TOKENS = re.compile(r"((?:%[YmdHMS]){2,}|%.)")


def forms_of(formats: Sequence[str], step: TimeStep) -> list[re.Pattern[str]]:
    """Return the forms of texts, each digit replaced by 0: those of the policy, or of ISO 8601.

    A date of ISO 8601 may have no day where steps are months, and no month where they are years. A number without
    another beside it has one or two digits.
    """
    if not formats:
        coarse = {"month": (_MONTH,), "year": (_MONTH, _YEAR)}
        return [_FORM, *coarse.get(step.unit, ())]
    found = []
    for text in formats:
        literals, fields = _TOKENS.split(text)[::2], _TOKENS.split(text)[1::2]
        runs = ["".join(_FIELDS[name] for name in field[1::2]) for field in fields]
        runs = [run.replace("00?", "00") if run.count("(") > 1 else run for run in runs]
        plain = [re.escape(literal.translate(_DIGITS_TO_ZERO)) for literal in literals]
        found.append(re.compile("".join(map("".join, zip(plain, [*runs, ""], strict=True))), re.ASCII))
    return found


def parse_epoch_times(texts: Sequence[str], unit: EpochUnit) -> Float64Vector:
    """Parse decimal numbers of a unit to whole ms (half to even); infinity for any other text or year.

    Cost: about 0.1 µs per whole number, 2 µs per text otherwise.
    """
    has_plain_bytes = not "".join(texts).encode().translate(None, b"0123456789-")
    if has_plain_bytes and max(map(len, texts), default=0) <= _MAX_INT64_DIGITS:
        with contextlib.suppress(ValueError):  # a sign that is not at the start, or an empty text
            return convert_epoch_times(list(map(int, texts)), unit)
    return np.fromiter((_parse_epoch_time(text, unit) for text in texts), np.float64, len(texts))


def convert_epoch_times(numbers: Sequence[int], unit: EpochUnit) -> Float64Vector:
    """Convert whole numbers as `parse_epoch_times` converts texts. Cost: about 0.05 µs per number."""
    try:
        column = np.fromiter(numbers, np.int64, len(numbers))
    except OverflowError:  # a number of more than 64 bits
        return parse_epoch_times(list(map(str, numbers)), unit)
    most = min(_MAX_MAGNITUDES[unit], np.iinfo(np.int64).max)
    column = np.clip(column, -most, most)
    if unit == "years":
        starts = (column - 1970).astype("M8[Y]").astype("M8[ms]").astype(np.int64)
        return np.where(column >= 1, _within_years(starts), INVALID)
    factor = _PARTS_OF_MS.get(unit)
    return _within_years(_divide_half_even(column, factor) if factor else column * int(MS_PER_UNIT[unit]))


class _TimeReader(ScaleReader):
    """Times in ms; timestamps of messages are such already."""

    def read_timestamps(self, column: Sequence[int]) -> ScaleColumn:
        is_missing = np.isnan(self.drop_missing_numbers(np.array(column, dtype=np.float64)))
        return ScaleColumn(np.where(is_missing, MISSING, convert_epoch_times(column, "ms")))


class _TextTimeReader(_TimeReader):
    """Times as texts, in ms."""

    def _parse(self, column: Sequence[Any]) -> ScaleColumn:
        texts = [value if type(value) is str else "" for value in column]
        return ScaleColumn(parse_iso_times(texts, self._forms))

    @cached_property
    def _forms(self) -> list[re.Pattern[str]]:
        return forms_of(self.attribute.formats, self.attribute.time_step)


class _EpochTimeReader(_TimeReader):
    """Times as numbers of a unit, in ms."""

    has_numbers = True

    def read_value(self, value: Any) -> float:  # noqa: ANN401 - any JSON scalar
        return float(self.read([value]).values[0])

    def _parse(self, column: Sequence[Any]) -> ScaleColumn:
        if set(map(type, column)) <= {int} and not self._missing_numbers:
            return ScaleColumn(convert_epoch_times(column, self.attribute.unit or "ms"))
        return self._parse_texts(list(map(_number_text, column)))

    def _parse_cells(self, cells: Sequence[str]) -> ScaleColumn:
        return self._parse_texts(replace_decimal_commas(cells) if self._has_commas else cells)

    def _parse_texts(self, texts: Sequence[str]) -> ScaleColumn:
        times = parse_epoch_times(texts, self.attribute.unit or "ms")
        if self._missing_numbers:
            # The number counts as it was written: it need not be a time of the years 1 to 9999.
            times[[DECIMAL.fullmatch(text) is not None and float(text) in self._missing_numbers for text in texts]] = (
                MISSING
            )
        return ScaleColumn(times)


def _number_text(value: object) -> str:
    """Return the decimal text of a number; an empty text for a value of another type."""
    if isinstance(value, NumberText):
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return repr(value) if is_number else ""


def _group_by_form(texts: Sequence[str]) -> dict[str, list[int]]:
    """Return the indexes of the texts of each form. A form has every digit replaced by 0."""
    forms = "\n".join(texts).translate(_DIGITS_TO_ZERO).split("\n")
    if len(forms) != len(texts):  # a text contains a line end
        forms = [text.translate(_DIGITS_TO_ZERO) for text in texts]
    if len(set(forms)) == 1:
        return {forms[0]: list(range(len(texts)))}
    groups: dict[str, list[int]] = {}
    for index, form in enumerate(forms):
        groups.setdefault(form, []).append(index)
    return groups


def _parse_alike(texts: Sequence[str], form: re.Match[str]) -> Float64Vector:
    """Parse texts of one form."""
    digits = np.frombuffer("".join(texts).encode(), dtype=np.uint8).reshape(len(texts), -1).astype(np.int64) - ord("0")

    def part(name: str) -> Int64Vector:
        start, stop = form.span(name)
        number: Int64Vector = (digits[:, start:stop] * 10 ** np.arange(stop - start - 1, -1, -1)).sum(axis=1)
        return number

    parts = {name for name, text in form.groupdict().items() if text is not None}
    first = np.full(len(texts), _MONTHS.index(form["name"].lower()) + 1 if "name" in parts else 1)
    month = part("month") if "month" in parts else first
    day = part("day") if "day" in parts else np.ones(len(texts), np.int64)
    is_valid, milliseconds = _parse_days(part("year"), month, day)
    for name, factor in (("hour", 3_600_000), ("minute", 60_000), ("second", 1_000)):
        if name in parts:
            count = part(name)
            is_valid &= count <= _LAST[name]
            milliseconds += count * factor
    if "fraction" in parts:
        milliseconds += _round_fraction(part("fraction"), len(form["fraction"]))
    if "zone_hour" in parts:
        hours, minutes = part("zone_hour"), part("zone_minute")
        is_valid &= (hours <= _LAST["zone_hour"]) & (minutes <= _LAST["zone_minute"])
        is_east = digits[:, form.start("zone_hour") - 1] == ord("+") - ord("0")
        milliseconds += np.where(is_east, -1, 1) * (hours * 60 + minutes) * 60_000
    return np.where(is_valid, _within_years(milliseconds), INVALID)


def _parse_days(year: Int64Vector, month: Int64Vector, day: Int64Vector) -> tuple[BoolVector, Int64Vector]:
    """Return which dates exist, and the ms of their midnights since 1970."""
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    first = months.astype("datetime64[D]").astype(np.int64)
    length = (months + 1).astype("datetime64[D]").astype(np.int64) - first
    exists = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= length)  # noqa: PLR2004 - months
    return exists, (first + day - 1) * _DAY_MS


def _round_fraction(fraction: Int64Vector, places: int) -> Int64Vector:
    """Return a fraction of a second in ms, rounded half to even."""
    if places <= 3:  # noqa: PLR2004 - the places of ms
        return fraction * int(10 ** (3 - places))
    return _divide_half_even(fraction, 10 ** (places - 3))


def _divide_half_even(numbers: Int64Vector, divisor: int) -> Int64Vector:
    whole, rest = np.divmod(numbers, divisor)
    rounded: Int64Vector = whole + ((2 * rest > divisor) | ((2 * rest == divisor) & (whole % 2 == 1)))
    return rounded


def _within_years(milliseconds: Int64Vector) -> Float64Vector:
    is_valid = (milliseconds >= FIRST_MS) & (milliseconds <= LAST_MS)
    return np.where(is_valid, milliseconds, INVALID).astype(np.float64)


def _parse_epoch_time(text: str, unit: EpochUnit) -> float:
    if not DECIMAL.fullmatch(text):
        return INVALID
    magnitude = abs(float(text))
    if magnitude < _MIN_MAGNITUDE and unit != "years":
        return 0.0
    if magnitude > _MAX_MAGNITUDES[unit]:
        return INVALID
    if unit == "years":
        whole = float(text)
        return float(convert_epoch_times([int(whole)], unit)[0]) if whole.is_integer() else INVALID
    exact = _EXACT.multiply(_EXACT.create_decimal(text), MS_PER_UNIT[unit])
    milliseconds = int(exact.to_integral_value(ROUND_HALF_EVEN))
    return float(milliseconds) if FIRST_MS <= milliseconds <= LAST_MS else INVALID
