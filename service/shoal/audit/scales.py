"""What each scale does with values: reads them as float64, and says what a cluster publishes of them.

A number is itself, a time its milliseconds since 1970, an ordinal value its rank and a nominal value the code of its
category. A missing value is NaN. None stands for a value that makes the record unusable.

All arithmetic is exact. A float64 is an integer over a power of two, and a time is a whole number of milliseconds. So
sums, means and rounding to the grid need no tolerance.

Published values are compared as texts: of a number with a decimal point, or empty; of any other value its JSON form. A
cell of CSV is a JSON string.

A node of a taxonomy is a level and a name: level 0 holds the leaves, and the root is above the highest level. Equal
names on two levels are two nodes. A category that the taxonomy lacks is a leaf of its own directly below the root.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from shoal.audit.reading import INTEGER, Form, JsonNumber, canonical_decimal, is_encodable, is_text, json_text
from shoal.policy import (
    BLANKS,
    JSON_NUMBER,
    Attribute,
    MessagePart,
    Policy,
    Scale,
    Taxonomy,
    TimeStep,
    WrittenNumbers,
)

_POINT_ZERO = re.compile(r"(0|-?[1-9][0-9]*)\.0+")
BoolVector: TypeAlias = npt.NDArray[np.bool_]
FloatVector: TypeAlias = npt.NDArray[np.float64]
Int64Vector: TypeAlias = npt.NDArray[np.int64]
_MAX_WHOLE, _MAX_MEMBERS = 2.0**40, 1 << 22
"""Sums of smaller numbers over fewer members fit 63 bits."""
_MAX_LENGTH = 400  # no finite float64 printed on a grid has more characters


class ExactGrid:
    """The grid of publishable values of one quasi-identifier; step 0 publishes means as the nearest float64.

    ``is_binary``: whether the release is a Parquet file. Its means are float64 unless the resolution is whole, and
    neighbouring multiples of the resolution may be one float64.
    """

    def __init__(self, attribute: Attribute, *, table: bool, is_binary: bool = False) -> None:
        resolution = attribute.publication_step(table=table)
        exponent = resolution.as_tuple().exponent
        self._decimals = max(0, -exponent) if isinstance(exponent, int) else 0
        self._step = int(Fraction(resolution) * 10**self._decimals)
        self._has_floats = is_binary and bool(self._step % 10**self._decimals)
        fraction = rf"\.[0-9]{{{self._decimals}}}" if self._decimals else ""
        self._pattern = re.compile(rf"-?(?:0|[1-9][0-9]*){fraction}" if self._step else JSON_NUMBER)
        self._limits = None
        if attribute.bounds is not None:
            low, high = (Decimal(repr(bound)) for bound in attribute.bounds)
            self._limits = (low - resolution / 2, high + resolution / 2)

    def mean(self, values: Sequence[float]) -> str:
        """Return the mean of finite values as published text, rounded once, half to even: to the grid or float64."""
        ratios = [value.as_integer_ratio() for value in values]
        common = max(denominator for _, denominator in ratios)  # a power of two, as all of them
        total = sum(numerator * (common // denominator) for numerator, denominator in ratios)
        return self.ratio(total, common * len(values))

    def ratio(self, total: int, divisor: int) -> str:
        """Return an exact ratio as published text, rounded once as by `mean`."""
        if not self._step:
            return repr(total / divisor + 0.0)  # the nearest float64; adding 0.0 turns minus zero into zero
        scaled = divisor * self._step
        steps, rest = divmod(total * 10**self._decimals, scaled)
        if 2 * rest > scaled or (2 * rest == scaled and steps % 2):  # half to even
            steps += 1
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
        """Write a number of a binary column: as the grid value that it equals, exactly or as float64, else in full."""
        if not self._step:
            return repr(float(value) + 0.0)
        numerator, denominator = value.as_integer_ratio()
        steps = round(Fraction(numerator * 10**self._decimals, denominator * self._step))
        if isinstance(value, int):
            text = self._text(steps * self._step)
            return text if steps * self._step == value * 10**self._decimals else repr(value)
        # At a power of two the nearest multiple may be nearer to the float64 below, and its neighbour to this one.
        texts = [self._text((steps + other) * self._step) for other in (0, 1, -1)]
        return next((text for text in texts if float(text) == value), repr(value))

    def within_bounds(self, text: str) -> bool:
        """Whether a text is a number inside the bounds, widened by half a grid step on both sides."""
        if len(text) > _MAX_LENGTH or not JSON_NUMBER.fullmatch(text) or not math.isfinite(float(text)):
            return False
        if self._limits is None:
            return True
        try:
            return self._limits[0] <= Decimal(text) <= self._limits[1]
        except InvalidOperation:  # the exponent exceeds even the range of Decimal
            return False

    def _text(self, scaled: int) -> str:
        sign, digits = "-" if scaled < 0 else "", str(abs(scaled)).zfill(self._decimals + 1)
        if not self._decimals:
            return sign + digits
        return f"{sign}{digits[: -self._decimals]}.{digits[-self._decimals :]}"


_ISO = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?"
)
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_DAY_MS = 86_400_000
_MONTHS = 12
_LENGTHS = {
    "s": Fraction(1000),
    "ms": Fraction(1),
    "us": Fraction(1, 1000),
    "ns": Fraction(1, 1_000_000),
    "days": Fraction(_DAY_MS),
}
"""Milliseconds of one, by unit; a calendar year has no length."""
_MONTH_OR_YEAR = re.compile(r"([0-9]{4})(-[0-9]{2})?")
_MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DIGITS = {"Y": "{4}", "m": "{1,2}", "d": "{1,2}", "H": "{1,2}", "M": "{1,2}", "S": "{1,2}", "f": "{1,9}"}
"""How many digits the parts of a time have that a format names."""
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 0001 to 9999
_MAX_MAGNITUDE, _MIN_MAGNITUDE = 1e21, 1e-9  # numbers beyond are no times of these years, and smaller ones are 0


def iso_ms(text: str) -> int | None:
    """Return the milliseconds, half to even, of an ISO 8601 date or time, without a zone in UTC; None for others."""
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    hour, minute, second = (int(found[number] or 0) for number in range(4, 7))
    days, offset = _days(text[:10]), _offset_minutes(found[8])
    if days is None or hour > 23 or minute > 59 or second > 59 or offset is None:  # noqa: PLR2004 - the clock
        return None
    seconds = days * 86_400 + hour * 3600 + (minute - offset) * 60 + second
    if found[7] is None:
        return _in_range(seconds * 1000)
    return _in_range(round(seconds * 1000 + Fraction(int(found[7].ljust(9, "0")), 10**6)))


@lru_cache(4096)
def _days(date: str) -> int | None:
    """Return the days of a date since 1970; None if it does not exist."""
    try:
        return int(np.datetime64(date, "D").astype(np.int64))
    except ValueError:
        return None


def coarse_ms(text: str, step: TimeStep) -> int | None:
    """Return the first millisecond of a month or a year in ISO 8601, where steps are no finer; None for others."""
    found = _MONTH_OR_YEAR.fullmatch(text)
    if found is None or step.unit not in ({"month", "year"} if found[2] else {"year"}):
        return None
    return iso_ms(f"{found[1]}{found[2] or '-01'}-01")


def formatted_ms(text: str, formats: Sequence[re.Pattern[str]]) -> int | None:
    """Return the milliseconds of a text in one of some formats, of which at most one fits; None for others."""
    found = next((match for match in (one.fullmatch(text) for one in formats) if match), None)
    if found is None:
        return None
    part = {name: value for name, value in found.groupdict().items() if value is not None}
    name = part.get("b", "").upper()
    month = str(_MONTH_NAMES.index(name) + 1) if name else part.get("m", "1")
    date = f"{part['Y']}-{month:0>2}-{part.get('d', '1'):0>2}"
    time = "T" + ":".join(f"{part.get(field, '0'):0>2}" for field in "HMS")
    return iso_ms(f"{date}{time}{'.' + part['f'] if 'f' in part else ''}{part.get('z', '')}")


def format_patterns(formats: Sequence[str]) -> list[re.Pattern[str]]:
    """Return what matches texts of each format. Numbers with others beside them have two digits, else one or two."""
    return [re.compile(_pattern(text)) for text in formats]


def _pattern(text: str) -> str:
    pieces, is_fixed = [], re.compile("%[YmdHMS]")
    position = 0
    while position < len(text):
        if text[position] != "%":
            pieces.append(re.escape(text[position]))
            position += 1
            continue
        name = text[position + 1]
        beside = is_fixed.match(text[position + 2 : position + 4]) or is_fixed.match(
            text[max(position - 2, 0) : position]
        )
        if name == "z":
            pieces.append("(?P<z>Z|[+-][0-9]{2}:?[0-9]{2})")
        elif name == "b":
            pieces.append("(?P<b>(?ai:" + "|".join(_MONTH_NAMES) + "))")
        else:
            length = _DIGITS[name].replace("{1,2}", "{2}") if beside else _DIGITS[name]
            pieces.append(f"(?P<{name}>[0-9]{length})")
        position += 2
    return "".join(pieces)


def _offset_minutes(zone: str | None) -> int | None:
    """Return the minutes of a zone east of UTC; None if its hours or minutes do not exist."""
    if zone is None or zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[-2:])
    if hours > 23 or minutes > 59:  # noqa: PLR2004 - the clock
        return None
    return (hours * 60 + minutes) * (-1 if zone.startswith("-") else 1)


def epoch_ms(text: str, unit: str) -> int | None:
    """Return the milliseconds of a decimal epoch number, rounded half to even; None outside the years 0001 to 9999."""
    magnitude = abs(float(text))
    if magnitude > _MAX_MAGNITUDE:
        return None
    if unit == "years":
        year = Fraction(Decimal(text)) if magnitude >= 1 else Fraction(0)
        return iso_ms(f"{int(year):04}-01-01") if year.denominator == 1 and year >= 1 else None
    exact = Fraction(Decimal(text)) if magnitude >= _MIN_MAGNITUDE else Fraction(0)
    return _in_range(round(exact * _LENGTHS[unit]))


def _in_range(milliseconds: int) -> int | None:
    return milliseconds if _FIRST_MS <= milliseconds <= _LAST_MS else None


class TimeGrid:
    """The publishable times of one attribute: the multiples of a step, or the starts of months or years, in UTC."""

    def __init__(self, step: TimeStep, unit: str | None) -> None:
        self._step, self._unit = step, unit
        self._months = {"month": 1, "year": _MONTHS}.get(step.unit)

    def mean(self, values: Sequence[float]) -> str:
        """Return the mean of whole milliseconds as a published number or text, without quotation marks."""
        return self.ratio(sum(map(int, values)), len(values))

    def ratio(self, total: int, count: int) -> str:
        """Return the mean of so many whole milliseconds with this sum."""
        return self._text(self._nearest(Fraction(total, count)))

    def rounded(self, milliseconds: float) -> int:
        """Return the publishable time of the years 0001 to 9999 that is nearest to a time."""
        return self._nearest(Fraction(milliseconds))

    def parse(self, text: str) -> int | None:
        """Return the milliseconds of a published text if it is one of the grid in its only spelling; else None."""
        if self._unit is not None:
            if not _WHOLE.fullmatch(text) or len(text) > 21:  # noqa: PLR2004
                return None
            if self._unit == "years":
                return epoch_ms(text, "years")
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
        months = np.datetime64(int(time // _DAY_MS), "D").astype("datetime64[M]").astype(np.int64)
        return int(months) // (self._months or 1)

    def _start(self, count: int) -> int:
        month = np.datetime64(count * (self._months or 1), "M")
        return int(month.astype("datetime64[D]").astype(np.int64)) * _DAY_MS

    def _text(self, milliseconds: int) -> str:
        if self._unit not in {None, "years"}:
            return str(int(milliseconds / _LENGTHS[str(self._unit)]))
        day, rest = divmod(milliseconds, _DAY_MS)
        shown = str(np.datetime64(day, "D"))
        if self._unit == "years":
            return str(int(shown[:4]))
        if self._step.is_date:
            return shown
        seconds = rest // 1000
        return f"{shown}T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


ValueReader: TypeAlias = Callable[[object], float | None]
ABSENT = object()  # stands for a field that a JSON object does not have
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


class Categories:
    """The categories of one nominal attribute in the order of their first records: JSON scalars, or names of leaves."""

    def __init__(self, *, are_leaves: bool = False) -> None:
        self.texts: list[str] = []
        self._are_leaves = are_leaves
        self.counts: Counter[int] = Counter()
        self._codes: dict[str, int] = {}

    def code(self, text: str) -> float:
        """Return the code of a category."""
        found = self._codes.setdefault(text, len(self.texts))
        if found == len(self.texts):
            self.texts.append(text)
        return float(found)

    def json_text(self, code: float) -> str:
        """Return a category as JSON."""
        text = self.texts[int(code)]
        return json_text(text) if self._are_leaves else text


class DecimalSign:
    """Converts the numbers of a CSV dialect to numbers with a decimal point, and back."""

    def __init__(self, sign: str = ".") -> None:
        self._sign = sign
        self.is_comma = sign != "."

    def to_point(self, cell: str) -> str:
        """Write a cell with a decimal point. One that has a point where the dialect has a comma is no number."""
        if not self.is_comma:
            return cell
        return "." if "." in cell else cell.replace(self._sign, ".")

    def from_point(self, number: str) -> str:
        """Write a number as a cell of the dialect."""
        return number.replace(".", self._sign)


POINT = DecimalSign()


def decimal_number(text: str) -> float | None:
    """Return the float64 nearest to an ASCII decimal number; None for any other text."""
    return float(text) if _DECIMAL.fullmatch(text) else None


def _ignore() -> None:
    """Do nothing."""


def value_reader(
    attribute: Attribute,
    form: Form,
    sign: DecimalSign,
    missing_values: tuple[str, ...],
    categories: Categories | None,
    on_clip: Callable[[], None] = _ignore,
) -> ValueReader:
    """Return the function from the value of a field, or `ABSENT`, to its float64; ``missing_values`` may be numbers."""
    judged = JUDGED_SCALES[attribute.scale]
    read = judged.reader(attribute, OriginalForm(form, sign, categories, on_clip))
    if not attribute.may_be_missing and judged.is_amount and set(missing_values) <= {""}:
        return read  # an empty cell and null are no numbers, so the record is unusable in any case
    missing, found = frozenset(missing_values), math.nan if attribute.may_be_missing else None
    is_number = _missing_number(attribute, form, sign, missing)

    def is_missing(value: object) -> bool:
        if form == "csv":
            return str(value).strip(BLANKS) in missing or is_number(value)
        return value is None or value is ABSENT or (is_text(value) and value in missing) or is_number(value)

    return lambda value: found if is_missing(value) else read(value)


def _missing_number(
    attribute: Attribute, form: Form, sign: DecimalSign, missing: frozenset[str]
) -> Callable[[object], bool]:
    """Return whether a value means a missing one as a number, or as the text of a number or truth value."""
    if JUDGED_SCALES[attribute.scale].has_texts(attribute):
        return lambda value: isinstance(value, bool | JsonNumber) and _name(value, form) in missing
    numbers = {number for number in map(decimal_number, missing) if number is not None and math.isfinite(number)}
    if not numbers:
        return lambda _: False
    if attribute.written is not None:
        number = _written_reader(attribute.written, form)
        return lambda value: number(value) in numbers
    if form == "jsonl":
        return lambda value: isinstance(value, JsonNumber) and float(value) in numbers
    return lambda value: decimal_number(sign.to_point(str(value).strip(BLANKS))) in numbers


def _bounded_reader(attribute: Attribute, number: ValueReader, on_clip: Callable[[], None]) -> ValueReader:
    """Return the function to the clipped float64 of a number or a time, or None."""
    (low, high), is_clipped, is_whole = attribute.limits, attribute.clip, attribute.integer

    def read(value: object) -> float | None:
        found = number(value)
        if found is None or not math.isfinite(found) or (is_whole and not found.is_integer()):
            return None
        clipped = min(max(found, low), high)
        if clipped != found:
            if not is_clipped:
                return None
            on_clip()
        return clipped

    return read


def _number_reader(form: Form, sign: DecimalSign) -> ValueReader:
    return _json_number if form == "jsonl" else lambda value: decimal_number(sign.to_point(str(value).strip(BLANKS)))


def _written_reader(written: WrittenNumbers, form: Form) -> ValueReader:
    """Return the function from a JSON number, or a text in a declared form, to its float64."""

    def read(value: object) -> float | None:
        if form == "csv" or is_text(value):
            return written_number(str(value).strip(BLANKS), written)
        return _json_number(value)

    return read


_GAPS = " \u00a0\u202f"  # a blank, and those at which no line is broken


def written_number(text: str, written: WrittenNumbers) -> float | None:
    """Return the float64 nearest to a number with separators of thousands and a symbol; None for any other text."""
    signs, rest = _split_sign(text)
    after, rest = _split_sign(_without_symbol(rest, written.symbol))
    whole, point, fraction = rest.partition(written.decimal)
    digits = _joined_groups(whole, {" ": _GAPS, "'": "'’"}.get(written.thousands, written.thousands))
    if digits is None or (signs and after) or bool(point) != bool(fraction):
        return None
    digits += fraction
    if not digits.isascii() or not digits.isdigit():
        return None
    try:
        found: float = int(digits) / 10 ** len(fraction)
    except (OverflowError, ValueError):  # beyond the largest float64, or too many digits
        return None
    return -found if "-" in signs + after else found


def _split_sign(text: str) -> tuple[str, str]:
    return (text[0], text[1:]) if text[:1] in {"+", "-"} else ("", text)


def _without_symbol(text: str, symbol: str) -> str:
    """Remove a symbol before or behind a text, with one blank between them."""
    if symbol and text.startswith(symbol):
        rest = text[len(symbol) :]
        return rest[1:] if rest[:1] and rest[0] in _GAPS else rest
    if symbol and text.endswith(symbol):
        rest = text[: -len(symbol)]
        return rest[:-1] if rest[-1:] and rest[-1] in _GAPS else rest
    return text


def _joined_groups(whole: str, separators: str) -> str | None:
    """Return the digits of a whole number; None if separators do not stand before each third digit from the right."""
    groups = [""]
    for letter in whole:
        if letter in separators:
            groups.append("")
        else:
            groups[-1] += letter
    if len(groups) > 1 and (not 1 <= len(groups[0]) <= 3 or {*map(len, groups[1:])} != {3}):  # noqa: PLR2004
        return None
    return "".join(groups)


def _json_number(value: object) -> float | None:
    return float(value) if isinstance(value, JsonNumber) else None


def _time_reader(attribute: Attribute, form: Form, sign: DecimalSign) -> ValueReader:
    # Timestamps of messages are milliseconds, whatever the unit of published times is.
    unit = "ms" if attribute.source.part is MessagePart.TIMESTAMP else attribute.unit
    formats = format_patterns(attribute.formats)

    def read(value: object) -> float | None:
        text = _text(value, form) if unit is None or form == "csv" else value if isinstance(value, JsonNumber) else None
        if text is None:
            return None
        if formats:
            found = formatted_ms(text, formats)
        elif unit is None:
            found = iso_ms(text)
            found = coarse_ms(text, attribute.time_step) if found is None else found
        else:
            number = sign.to_point(text)
            found = None if decimal_number(number) is None else epoch_ms(number, unit)
        return None if found is None else float(found)

    return read


def _text(value: object, form: Form) -> str | None:
    """Return the text of a cell without blanks around it, or a JSON string as it is; None for other values."""
    if form == "csv":
        return str(value).strip(BLANKS)
    return value if is_text(value) else None


def _name(value: object, form: Form) -> str | None:
    """Return the text by which a category is matched: of a string, a truth value or a whole number."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, JsonNumber):
        digits = canonical_decimal(value)
        return digits if digits is not None and INTEGER.fullmatch(digits) else None
    text = _text(value, form)
    return text if text is not None and is_encodable(text) else None


def _known_name(value: object, form: Form, known: Container[str]) -> str | None:
    """Return the text of a category. A cell 2.0 means 2 where the policy has only that: programs write such numbers."""
    name = _name(value, form)
    if form == "csv" and name is not None and name not in known and (found := _POINT_ZERO.fullmatch(name)):
        return found[1] if found[1] in known else name
    return name


def _nominal_reader(attribute: Attribute, form: Form, categories: Categories) -> ValueReader:
    code, taxonomy = categories.code, attribute.taxonomy

    def text(value: object) -> float | None:
        name = _name(value, form)
        return None if name is None else code(name)

    if attribute.prefixes:
        return text

    def flat(value: object) -> float | None:
        name = _name(value, form)
        return None if name is None else code(json_text(name) if is_text(value) else name)

    if taxonomy is None:
        return flat
    leaves, is_closed = frozenset(path[0] for path in taxonomy.paths), attribute.unknown == "quarantine"

    def leaf(value: object) -> float | None:
        name = _known_name(value, form, leaves)
        return None if name is None or (is_closed and name not in leaves) else code(name)

    return leaf


def _ordinal_reader(attribute: Attribute, form: Form) -> ValueReader:
    ranks = {str(item): float(rank) for rank, item in enumerate(attribute.order)}

    def read(value: object) -> float | None:
        name = _known_name(value, form, ranks)
        return None if name is None else ranks.get(name)

    return read


class Node(NamedTuple):
    """A leaf (level 0), an inner node or the root (the number of levels)."""

    level: int
    name: str


class TaxonomyTree:
    """A taxonomy; ``leaves``, ``inner``: names of the leaves, and of all nodes above them. A name can be in both."""

    def __init__(self, taxonomy: Taxonomy) -> None:
        self.depth = len(taxonomy.paths[0])
        self.root = Node(self.depth, taxonomy.root)
        paths = [tuple(Node(level, name) for level, name in enumerate(path)) for path in taxonomy.paths]
        self._paths = {path[0].name: path for path in paths}
        self._from = {node: (None,) * node.level + path[node.level :] for path in paths for node in path}
        self.leaves = frozenset(self._paths)
        self.inner = frozenset(node.name for path in paths for node in path[1:]) | {self.root.name}

    def path(self, leaf: str) -> tuple[Node, ...]:
        """Return the nodes from a leaf up to the child of the root. A leaf of its own is on all of its levels."""
        return self._paths.get(leaf) or (Node(0, leaf),) * self.depth

    def ancestor(self, leaves: Sequence[str]) -> Node:
        """Return the lowest common ancestor; the leaf itself if all are equal."""
        paths = [self.path(name) for name in set(leaves)]
        for level in range(self.depth):
            found = {path[level] for path in paths}
            if len(found) == 1:
                return found.pop()
        return self.root

    def median(self, leaves: Sequence[str]) -> Node:
        """Return the lowest node above more than half of the leaves."""
        counts = Counter(leaves)
        for level in range(self.depth):
            weights: Counter[Node] = Counter()
            for leaf, count in counts.items():
                weights[self.path(leaf)[level]] += count
            node, weight = max(weights.items(), key=lambda item: item[1])
            if 2 * weight > len(leaves):
                return node
        return self.root

    def distance(self, leaf: str, node: Node) -> Fraction:
        """Return the height of the common ancestor of a leaf and a node, over the number of levels."""
        path = self.path(leaf)
        other = self.path(node.name) if node.level == 0 else self._from.get(node, (None,) * self.depth)
        common = (level for level in range(self.depth) if path[level] == other[level])
        return Fraction(min(common, default=self.depth), self.depth)


class PrefixTree(TaxonomyTree):
    """A tree of texts whose groups are their first characters; ``prefixes``: how many, the lowest group first."""

    def __init__(self, prefixes: Sequence[int]) -> None:
        self.depth = 1 + len(prefixes)
        self.root = Node(self.depth, "*")
        self._lengths = prefixes
        self.leaves = frozenset()
        self.inner = frozenset({"*"})

    def path(self, leaf: str) -> tuple[Node, ...]:
        """Return the nodes from a text up to its first characters."""
        return Node(0, leaf), *(Node(level, leaf[:length]) for level, length in enumerate(self._lengths, 1))

    def groups(self, leaves: Sequence[str]) -> frozenset[str]:
        """Return the names of all nodes above texts."""
        return frozenset(leaf[:length] for leaf in leaves for length in self._lengths) | self.inner

    def distance(self, leaf: str, node: Node) -> Fraction:
        """Return the height of the common ancestor of a text and a node, over the number of levels."""
        path, other = self.path(leaf), self.path(node.name)
        common = (level for level in range(node.level, self.depth) if path[level] == other[level])
        return Fraction(min(common, default=self.depth), self.depth)


def tree_of(attribute: Attribute) -> TaxonomyTree | None:
    """Return the tree of a nominal attribute; None without one."""
    if attribute.prefixes:
        return PrefixTree(attribute.prefixes)
    return None if attribute.taxonomy is None else TaxonomyTree(attribute.taxonomy)


NO_VALUE = "\x02"
"""Text of an unreadable value. Recomputed texts are JSON, numbers or cells, so it equals none of them."""


class PublishedValues(ABC):
    """The published values of one quasi-identifier."""

    is_number = False
    has_moments = False

    def __init__(self, attribute: Attribute, form: Form) -> None:
        self.attribute, self._is_csv = attribute, form == "csv"
        self.missing = '""' if self._is_csv else "null"
        self._may_be_missing = attribute.may_be_missing

    def of_clusters(self, values: FloatVector, subjects: Int64Vector, sizes: Int64Vector) -> list[str]:
        """Return the texts that clusters publish whose members follow each other; no size is 0.

        ``values``: of all members, NaN where a value is missing.
        """
        return self._of_clusters(values, sizes, self._have_most(values, subjects, sizes))

    def _have_most(self, values: FloatVector, subjects: Int64Vector, sizes: Int64Vector) -> BoolVector:
        """Return whether more than half of the people of each cluster have a value in any of their records."""
        is_present = ~np.isnan(values)
        if is_present.all():
            return np.ones(len(sizes), np.bool_)
        cluster = np.repeat(np.arange(len(sizes)), sizes)
        order = np.lexsort((subjects, cluster))
        cluster, of_one = cluster[order], subjects[order]
        firsts = np.flatnonzero((np.diff(cluster, prepend=-1) != 0) | (np.diff(of_one, prepend=-1) != 0))
        with_value = np.logical_or.reduceat(is_present[order], firsts)
        people = np.bincount(cluster[firsts], minlength=len(sizes))
        return 2 * np.bincount(cluster[firsts][with_value], minlength=len(sizes)) > people

    def _of_clusters(self, values: FloatVector, sizes: Int64Vector, has_most: BoolVector) -> list[str]:
        """Return the texts of clusters; of those where `has_most` is False the missing one."""
        groups = np.split(values, np.cumsum(sizes)[:-1])
        return [
            self._of_present(own[~np.isnan(own)].tolist()) if most else self.missing
            for own, most in zip(groups, has_most.tolist(), strict=True)
        ]

    def allows(self, text: str) -> bool:
        """Whether the policy allows a published text, apart from bounds."""
        return (self._may_be_missing and text == self.missing) or self._allows_present(text)

    def within_bounds(self, text: str) -> bool:
        """Whether a published text is missing or inside the bounds, widened by half a step on both sides."""
        return (self._may_be_missing and text == self.missing) or self._is_inside(text)

    def text_of(self, value: object) -> str:
        """Return the text of a value that was read from a released row; `NO_VALUE` if it has another type."""
        if self._is_csv:
            return json_text(str(value))
        if value is None:
            return "null"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, JsonNumber):
            return str(value)
        return json_text(value) if isinstance(value, str) else NO_VALUE

    def number_of(self, text: str) -> float:
        """Return a published number, or the milliseconds of a time; NaN if it is missing."""
        return math.nan if text == self.missing else self._number(text)

    def sum_of_distances(
        self, values: FloatVector, subjects: Int64Vector, sizes: Int64Vector, texts: Sequence[str]
    ) -> float:
        """Return the sum over members of the distance in [0, 1] of a rank or category from the published one."""
        groups, has_most = np.split(values, np.cumsum(sizes)[:-1]), self._have_most(values, subjects, sizes)
        return sum(map(self._cluster_distance, groups, texts, has_most.tolist()))

    def _cluster_distance(self, values: FloatVector, text: str, most: bool) -> float:  # noqa: FBT001 - for map
        present = values[~np.isnan(values)].tolist()
        # An empty cell can also be the category that is an empty text.
        if not most:
            return float(len(present))
        return len(values) - len(present) + self._total_distance(present, text)

    def _number(self, text: str) -> float:
        raise NotImplementedError

    def _total_distance(self, values: Sequence[float], text: str) -> float:
        raise NotImplementedError

    @abstractmethod
    def _of_present(self, values: Sequence[float]) -> str:
        """Return the text of members that all have a value."""

    @abstractmethod
    def _allows_present(self, text: str) -> bool:
        """Whether the text stands for an allowed value."""

    def _is_inside(self, text: str) -> bool:  # noqa: ARG002 - categories have no bounds
        return True

    def _shown(self, json_text: str) -> str:
        """Return the text of a JSON scalar in the form of the release: a cell has the type of a string."""
        return f'"{json_text}"' if self._is_csv and not json_text.startswith('"') else json_text


def _of_most(texts: Iterable[str], has_most: BoolVector, missing: str) -> list[str]:
    """Return the texts of the clusters of which most people have a value; the missing one for the others."""
    found = iter(texts)
    return [next(found) if most else missing for most in has_most.tolist()]


class PublishedNumbers(PublishedValues):
    """Exact means on the grid of a numeric attribute."""

    is_number = True
    has_moments = True

    def __init__(
        self, attribute: Attribute, form: Form, *, table: bool, is_binary: bool = False, sign: DecimalSign | None = None
    ) -> None:
        super().__init__(attribute, form)
        self.missing = "" if self._is_csv else "null"
        self.grid = ExactGrid(attribute, table=table, is_binary=is_binary)
        self._sign = sign or DecimalSign()
        # A JSON number is read as `JsonNumber`, a quoted one as str. A cell is always str.
        self._type = str if self._is_csv else JsonNumber

    def text_of(self, value: object) -> str:
        """Return a number with a decimal point."""
        if isinstance(value, self._type):
            return self._sign.to_point(str(value))
        return "null" if value is None else NO_VALUE

    def _of_clusters(self, values: FloatVector, sizes: Int64Vector, has_most: BoolVector) -> list[str]:
        """Return the texts of clusters from exact sums: of the whole parts, and of the fractions as multiples of 2^-62.

        A fraction is an integer over a power of two. Its multiple is added in two halves, so no sum exceeds 63 bits.
        """
        is_present, starts = ~np.isnan(values), np.cumsum(sizes) - sizes
        known = np.where(is_present, values, 0.0)
        whole = np.trunc(known)
        fractions = (known - whole) * 2.0**62
        is_exact = np.abs(whole).max() < _MAX_WHOLE and bool((fractions == np.rint(fractions)).all())
        if not is_exact or sizes.max() >= _MAX_MEMBERS:
            return super()._of_clusters(values, sizes, has_most)
        multiples = fractions.astype(np.int64)
        halves = (whole.astype(np.int64), multiples >> 31, multiples & ((1 << 31) - 1), is_present.astype(np.int64))
        *sums, present = (np.add.reduceat(half, starts) for half in halves)
        ratios = zip(*(half[has_most].tolist() for half in (*sums, present)), strict=True)
        texts = (
            self.grid.ratio((one << 62) + (high << 31) + low, count << 62)
            if high or low
            else self.grid.ratio(one, count)
            for one, high, low, count in ratios
        )
        return _of_most(texts, has_most, self.missing)

    def _of_present(self, values: Sequence[float]) -> str:
        return self.grid.mean(values)

    def _allows_present(self, text: str) -> bool:
        return self.grid.contains(text)

    def _is_inside(self, text: str) -> bool:
        return self.grid.within_bounds(text)

    def _number(self, text: str) -> float:
        return float(text)


class PublishedTimes(PublishedValues):
    """Means of times, on the step of the policy."""

    has_moments = True

    def __init__(self, attribute: Attribute, form: Form) -> None:
        super().__init__(attribute, form)
        self._grid = TimeGrid(attribute.time_step, attribute.unit)
        self._has_quotes = attribute.unit is None or self._is_csv
        self._limits = (
            None if attribute.bounds is None else tuple(self._grid.rounded(limit) for limit in attribute.limits)
        )

    def _of_clusters(self, values: FloatVector, sizes: Int64Vector, has_most: BoolVector) -> list[str]:
        """Return the texts of clusters from sums of whole milliseconds, which 63 bits hold."""
        if int(sizes.max()) * max(-_FIRST_MS, _LAST_MS) >= 1 << 63:
            return super()._of_clusters(values, sizes, has_most)
        is_present, starts = ~np.isnan(values), np.cumsum(sizes) - sizes
        sums = np.add.reduceat(np.where(is_present, values, 0.0).astype(np.int64), starts)
        present = np.add.reduceat(is_present.astype(np.int64), starts)
        ratios = zip(sums[has_most].tolist(), present[has_most].tolist(), strict=True)
        texts = (self._quoted(self._grid.ratio(total, count)) for total, count in ratios)
        return _of_most(texts, has_most, self.missing)

    def _of_present(self, values: Sequence[float]) -> str:
        return self._quoted(self._grid.mean(values))

    def _quoted(self, text: str) -> str:
        return f'"{text}"' if self._has_quotes else text

    def _parse(self, text: str) -> int | None:
        if self._has_quotes:
            return self._grid.parse(text[1:-1]) if text[:1] == text[-1:] == '"' else None
        return self._grid.parse(text)

    def _allows_present(self, text: str) -> bool:
        return self._parse(text) is not None

    def _is_inside(self, text: str) -> bool:
        found = self._parse(text)
        return found is None or self._limits is None or self._limits[0] <= found <= self._limits[1]

    def _number(self, text: str) -> float:
        found = self._parse(text)
        return math.nan if found is None else float(found)


class PublishedRanks(PublishedValues):
    """Lower medians of an ordinal attribute, as items of its order."""

    def __init__(self, attribute: Attribute, form: Form) -> None:
        super().__init__(attribute, form)
        self._texts = [self._shown(json_text(item)) for item in attribute.order]

    def _of_clusters(self, values: FloatVector, sizes: Int64Vector, has_most: BoolVector) -> list[str]:
        """Return the texts of clusters from their ranks, sorted in each of them."""
        is_present, cluster = ~np.isnan(values), np.repeat(np.arange(len(sizes)), sizes)
        ranks = np.sort(cluster[is_present] * len(self._texts) + values[is_present].astype(np.int64)) % len(self._texts)
        present = np.bincount(cluster[is_present], minlength=len(sizes))
        middle = (np.cumsum(present) - present + (present - 1) // 2)[has_most]
        return _of_most((self._texts[rank] for rank in ranks[middle].tolist()), has_most, self.missing)

    def _of_present(self, values: Sequence[float]) -> str:
        return self._texts[int(sorted(values)[(len(values) - 1) // 2])]

    def _allows_present(self, text: str) -> bool:
        return text in self._texts

    def _number(self, text: str) -> float:
        return float(self._texts.index(text))

    def _total_distance(self, values: Sequence[float], text: str) -> float:
        rank = self._texts.index(text)
        return sum(abs(value - rank) for value in values) / max(len(self._texts) - 1, 1)


class PublishedCategories(PublishedValues):
    """Modes of a nominal attribute; with a taxonomy also common ancestors and tree medians."""

    def __init__(self, attribute: Attribute, form: Form, *, table: bool, missing_values: tuple[str, ...] = ()) -> None:
        super().__init__(attribute, form)
        self._is_table, self._publish = table, attribute.publish
        self.categories = Categories(are_leaves=attribute.has_groups)
        # A whole number or truth value is missing if its text stands for a missing value.
        self._missing_texts = frozenset(map(json_text, missing_values)).union(
            text for text in missing_values if not text.startswith('"')
        )
        self._tree = tree_of(attribute)
        self._nodes: frozenset[str] | None = None
        if self._tree is not None and attribute.unknown == "quarantine":
            names = self._tree.leaves | (frozenset() if attribute.publish == "mode" else self._tree.inner)
            self._nodes = frozenset(self._shown(json_text(name)) for name in names)

    @property
    def inner_nodes(self) -> frozenset[str]:
        """The texts of the nodes above leaves, which may be published although no record has them."""
        if self._tree is None or self._publish == "mode":
            return frozenset()
        tree = self._tree
        inner = tree.groups(self.categories.texts) if isinstance(tree, PrefixTree) else tree.inner
        return frozenset(self._shown(json_text(name)) for name in inner)

    def shown_category(self, category: str) -> str:
        """Return the published text of a category."""
        return self._shown(category if self._tree is None else json_text(category))

    def _of_clusters(self, values: FloatVector, sizes: Int64Vector, has_most: BoolVector) -> list[str]:
        """Return the texts of clusters; of modes from the count of each category of each cluster.

        The most frequent category has the largest score: its count, then its count in a table, then its place among
        all categories in descending order.
        """
        texts, in_table = self.categories.texts, np.zeros(len(self.categories.texts), np.int64)
        if self._is_table:
            for code, count in self.categories.counts.items():
                in_table[int(code)] = count
        most = int(in_table.max(initial=0)) + 1
        has_modes = self._tree is None or self._publish == "mode"
        if not has_modes or not texts or (int(sizes.max()) + 1) * most * len(texts) >= 1 << 62:
            return super()._of_clusters(values, sizes, has_most)
        is_present, cluster = ~np.isnan(values), np.repeat(np.arange(len(sizes)), sizes)
        pairs, counts = np.unique(
            cluster[is_present] * len(texts) + values[is_present].astype(np.int64), return_counts=True
        )
        own, codes = np.divmod(pairs, len(texts))
        descending = sorted(range(len(texts)), key=lambda code: self._sort_key(texts[code]), reverse=True)
        places = np.empty(len(texts), np.int64)
        places[descending] = np.arange(len(texts))
        scores = (counts * most + in_table[codes]) * len(texts) + places[codes]
        firsts = np.flatnonzero(np.diff(own, prepend=-1))
        best = np.zeros(len(sizes), np.int64)
        best[own[firsts]] = np.maximum.reduceat(scores, firsts) % len(texts) if len(firsts) else 0
        shown = [self.shown_category(texts[code]) for code in descending]
        modes = (shown[place] for place in best[has_most].tolist())
        return _of_most(modes, has_most, self.missing)

    def sum_of_distances(
        self, values: FloatVector, subjects: Int64Vector, sizes: Int64Vector, texts: Sequence[str]
    ) -> float:
        """Return the sum over clusters: without a taxonomy the members whose category is not the published one."""
        if self._tree is not None or not self.categories.texts:
            return super().sum_of_distances(values, subjects, sizes, texts)
        places: dict[str, int] = {}
        shown = np.array([places.setdefault(self.shown_category(one), len(places)) for one in self.categories.texts])
        published = np.repeat(np.array([places.get(text, -1) for text in texts]), sizes)
        is_missing = np.isnan(values)
        is_other = is_missing | (shown[np.where(is_missing, 0, values).astype(np.int64)] != published)
        starts = np.cumsum(sizes) - sizes
        present, others = (np.add.reduceat(one.astype(np.int64), starts) for one in (~is_missing, is_other))
        return float(np.where(self._have_most(values, subjects, sizes), others, present).sum())

    def _sort_key(self, text: str) -> str:
        return text if self._tree is None else json_text(text)

    def _of_present(self, values: Sequence[float]) -> str:
        if self._tree is None or self._publish == "mode":
            return self.shown_category(self._mode(values))
        return self._shown(json_text(self._node(self._tree, [self.categories.texts[int(one)] for one in values]).name))

    def _node(self, tree: TaxonomyTree, leaves: Sequence[str]) -> Node:
        return tree.ancestor(leaves) if self._publish == "ancestor" else tree.median(leaves)

    def _mode(self, values: Sequence[float]) -> str:
        counts, texts, in_table = Counter(map(int, values)), self.categories.texts, self.categories.counts
        ranks = {code: (count, in_table[code] if self._is_table else 0) for code, count in counts.items()}
        most = max(ranks.values())
        # The order of code points is that of UTF-8 bytes.
        return min((texts[code] for code, rank in ranks.items() if rank == most), key=self._sort_key)

    def _allows_present(self, text: str) -> bool:
        if self._nodes is not None:
            return text in self._nodes
        if text in self._missing_texts:
            return text in self.inner_nodes
        if self._is_csv:
            return True
        if self._tree is not None:
            return text.startswith('"')
        return text.startswith('"') or text in {"true", "false"} or text.removeprefix("-").isdigit()

    def _total_distance(self, values: Sequence[float], text: str) -> float:
        counts = Counter(self.categories.texts[int(value)] for value in values)
        if self._tree is None:
            return float(sum(count for name, count in counts.items() if self.shown_category(name) != text))
        # The text names a node, but not its level: leaf, inner node and root can have one name.
        mode = self._publish == "mode"
        node = Node(0, json.loads(text)) if mode else self._node(self._tree, list(counts.elements()))
        return float(sum(count * self._tree.distance(name, node) for name, count in counts.items()))


def published_values(
    policy: Policy, form: Form, *, table: bool, has_table_grids: bool, is_binary: bool = False
) -> list[PublishedValues]:
    """Return the published values of each quasi-identifier."""
    release = ReleaseForm(
        policy,
        form,
        DecimalSign(policy.csv_output.decimal if form == "csv" else "."),
        is_table=table,
        has_table_grids=has_table_grids,
        is_binary=is_binary,
    )
    return [JUDGED_SCALES[attribute.scale].published(attribute, release) for attribute in policy.quasi_identifiers]


class ReleaseForm(NamedTuple):
    """What the judge knows of a release before it reads a row; ``sign`` is that of its numbers."""

    policy: Policy
    form: Form
    sign: DecimalSign
    is_table: bool
    has_table_grids: bool
    is_binary: bool


class OriginalForm(NamedTuple):
    """What the judge knows of the original before it reads a value.

    ``categories`` are those of a nominal attribute; ``on_clip`` is called for each value outside the bounds.
    """

    form: Form
    sign: DecimalSign
    categories: Categories | None
    on_clip: Callable[[], None] = _ignore


class JudgedScale(ABC):
    """What the judge knows of one scale. A scale that `JUDGED_SCALES` lacks cannot be judged."""

    is_amount: ClassVar[bool] = False
    """Whether values are amounts, which JSON writes as numbers, and an empty text is none."""
    has_categories: ClassVar[bool] = False  # whether values are codes of categories
    is_clock: ClassVar[bool] = False  # whether values can grow with the offsets of a stream

    def has_texts(self, attribute: Attribute) -> bool:  # noqa: ARG002
        """Return whether values are texts, so that a missing number is one by its text."""
        return False

    @abstractmethod
    def reader(self, attribute: Attribute, original: OriginalForm) -> ValueReader:
        """Return the function from a value that is not missing to its float64."""

    @abstractmethod
    def published(self, attribute: Attribute, release: ReleaseForm) -> PublishedValues:
        """Return the published values of a quasi-identifier."""


class JudgedNumbers(JudgedScale):
    """Scale ``numeric``."""

    is_amount = True

    def reader(self, attribute: Attribute, original: OriginalForm) -> ValueReader:
        """Return the function to clipped numbers."""
        number = _number_reader(original.form, original.sign)
        if attribute.written is not None:
            number = _written_reader(attribute.written, original.form)
        return _bounded_reader(attribute, number, original.on_clip)

    def published(self, attribute: Attribute, release: ReleaseForm) -> PublishedValues:
        """Return means on the grid."""
        return PublishedNumbers(
            attribute, release.form, table=release.has_table_grids, is_binary=release.is_binary, sign=release.sign
        )


class _JudgedTimes(JudgedScale):
    is_clock = True

    def has_texts(self, attribute: Attribute) -> bool:
        return attribute.unit is None and attribute.source.part is not MessagePart.TIMESTAMP

    def reader(self, attribute: Attribute, original: OriginalForm) -> ValueReader:
        return _bounded_reader(attribute, _time_reader(attribute, original.form, original.sign), original.on_clip)

    def published(self, attribute: Attribute, release: ReleaseForm) -> PublishedValues:
        return PublishedTimes(attribute, release.form)


class _JudgedRanks(JudgedScale):
    def has_texts(self, attribute: Attribute) -> bool:  # noqa: ARG002
        return True

    def reader(self, attribute: Attribute, original: OriginalForm) -> ValueReader:
        return _ordinal_reader(attribute, original.form)

    def published(self, attribute: Attribute, release: ReleaseForm) -> PublishedValues:
        return PublishedRanks(attribute, release.form)


class _JudgedCategories(JudgedScale):
    has_categories = True

    def has_texts(self, attribute: Attribute) -> bool:  # noqa: ARG002
        return True

    def reader(self, attribute: Attribute, original: OriginalForm) -> ValueReader:
        return _nominal_reader(attribute, original.form, original.categories or Categories())

    def published(self, attribute: Attribute, release: ReleaseForm) -> PublishedValues:
        missing_values = release.policy.missing_values
        return PublishedCategories(attribute, release.form, table=release.is_table, missing_values=missing_values)


JUDGED_SCALES: dict[str, JudgedScale] = {
    Scale.NUMERIC: JudgedNumbers(),
    Scale.ORDINAL: _JudgedRanks(),
    Scale.NOMINAL: _JudgedCategories(),
    Scale.TIME: _JudgedTimes(),
}
