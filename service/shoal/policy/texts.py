"""What texts of a policy mean: categories, numbers, equal confidential values, and times."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Final, Literal, Self, TypeAlias, cast

from shoal.policy.schema import FieldType

BLANKS = " \t"
"""What is stripped from both ends of the cells of CSV files."""


def has_lone_surrogate(text: str) -> bool:
    """Return whether a text contains a half of a character of UTF-16, which UTF-8 cannot encode."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)


JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
"""A JSON number (RFC 8259, section 6)."""


def is_finite_number(text: str) -> bool:
    """Return whether a text is a JSON number of ordinary size: sums of two such numbers can be formed exactly.

    A reference, an order or a taxonomy has no other numbers. A confidential value of a record may be larger: every JSON
    number with an exponent of up to 18 digits is one (`shoal.formats.is_json_number`).
    """
    if not JSON_NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        return False
    return float(text) != 0 or not any(digit in text.lower().partition("e")[0] for digit in "123456789")


MAX_CATEGORY_BYTES = 1_000
"""Most bytes of a category as JSON: it can be published with another record, whose row must not become too large."""


def is_long_category(text: str) -> bool:
    """Return whether a text, written as a JSON string, exceeds `MAX_CATEGORY_BYTES`."""
    return len(json.dumps(text, ensure_ascii=False).encode(errors="surrogatepass")) > MAX_CATEGORY_BYTES


def has_repeated_value(texts: Iterable[str], kind: FieldType | None) -> bool:
    """Return whether two texts mean the same value of a type, such as 1 and 1.0."""
    folded = [fold_text(text, kind) for text in texts]
    return len(set(folded)) < len(folded)


def fold_characters(text: str) -> str:
    """Return the text in the Unicode form NFKC, without format characters (category Cf) and surrounding whitespace.

    Cost: 0.1 µs for an ASCII text, else about 0.1 µs per character.
    """
    if text.isascii():
        return text.strip()
    # First: what they separate may be one letter.
    visible = "".join(letter for letter in text if unicodedata.category(letter) != "Cf")
    return unicodedata.normalize("NFKC", visible).strip()


def fold_text(text: str | None, kind: FieldType | None) -> object:
    """Return what is equal for two texts of one value of a type."""
    if text is None:
        return None
    if kind == "json":
        return _fold_document(text)
    text = fold_characters(text)
    if kind == "string":
        return text
    if kind == "boolean":
        return text.lower()
    try:
        return Decimal(text) if JSON_NUMBER.fullmatch(text) else text
    except InvalidOperation:  # an exponent beyond that of any Decimal
        return text


def _fold_document(text: str) -> object:
    """Return what is equal for two texts of one JSON document; the text itself if it is no JSON."""
    try:
        # A number with a point or an exponent has the value of its float64, as in a record.
        return _fold_value(json.loads(text, parse_int=Decimal, parse_float=lambda one: Decimal(repr(float(one)))))
    except (ValueError, RecursionError):
        return text


def _fold_value(value: object) -> object:
    if isinstance(value, dict):
        members = Counter((fold_characters(name), _fold_value(item)) for name, item in value.items())
        return "object", frozenset(members.items())
    if isinstance(value, list):
        return "array", tuple(map(_fold_value, value))
    # True == 1 in Python: the kind keeps them apart.
    return type(value).__name__, fold_characters(value) if isinstance(value, str) else value


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
_STEP = re.compile(r"([1-9][0-9]{0,5})?(s|min|h|day|month|year)")


@dataclass(frozen=True, slots=True)
class TimeStep:
    """``count`` units of time. Steps of months and years have the count 1."""

    count: int
    unit: TimeUnit

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the step of a text like ``15min`` or ``month``; None for any other text."""
        found = _STEP.fullmatch(text)
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
        return self.unit in {"day", "month", "year"}

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
MS_PER_UNIT: Final = {
    "s": Decimal(1000),
    "ms": Decimal(1),
    "us": Decimal("0.001"),
    "ns": Decimal("0.000001"),
    "days": Decimal(86_400_000),
}
"""Length of the unit of a number, in ms. Years, the numbers of calendar years, have no length."""
_ISO = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9](?:\.[0-9]{1,9})?))?"
    r")?(Z|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9])?"
)


def parse_time(value: str | float, unit: str | None) -> float | None:
    """Return a text in ISO 8601, or with a unit a number, in whole ms since 1970 (half to even); None if not valid."""
    if unit is None:
        milliseconds = _parse_iso(value) if isinstance(value, str) else None
    elif isinstance(value, str):
        milliseconds = None
    elif unit == "years":
        milliseconds = _parse_iso(f"{int(value):04}-01-01") if value in range(1, 10_000) else None
    else:
        milliseconds = Decimal(repr(value)) * MS_PER_UNIT[unit]
    if milliseconds is None or not milliseconds.is_finite():
        return None
    whole = milliseconds.to_integral_value() if abs(milliseconds) <= LAST_MS + 1 else milliseconds
    return float(whole) if FIRST_MS <= whole <= LAST_MS else None


def format_time(milliseconds: float, unit: str | None) -> str | float:
    """Return a time as `parse_time` reads it: in whole ms since 1970-01-01T00:00Z, from year 1 to 9999."""
    if unit not in {None, "years"}:
        factor = {"us": 1e3, "ns": 1e6}.get(str(unit))
        return milliseconds * factor if factor else milliseconds / float(MS_PER_UNIT[str(unit)])
    days, rest = divmod(int(milliseconds), _MS["day"])
    day = date.fromordinal(days + date(1970, 1, 1).toordinal())
    if unit == "years":
        return day.year
    seconds, fraction = divmod(rest, _MS["s"])
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{day.isoformat()}T{hour:02}:{minute:02}:{second:02}" + (f".{fraction:03}Z" if fraction else "Z")


_DIRECTIVE = re.compile(r"%(.?)", re.DOTALL)
_DIRECTIVES = {"Y": "9999", "m": "9", "d": "9", "b": "mon", "H": "9", "M": "9", "S": "9", "f": "frac", "z": "zone"}
"""Directives of a time format, each with a text that stands for its values."""
_NEEDED = {"d": "mb", "H": "d", "M": "H", "S": "M", "f": "S", "z": "H"}
"""What a directive needs: a part of a time has no meaning without the next larger one."""


def time_format_fault(formats: Sequence[str], step: TimeStep) -> str:
    """Return what is wrong with the formats of time texts that are published at a step; empty if nothing is."""
    shapes: dict[str, str] = {}
    for text in formats:
        if fault := _form_fault(text) or _precision_fault(text, step):
            return fault
        shape = _shape(text)
        if shape in shapes:
            return f"'{shapes[shape]}' and '{text}' fit the same texts, which can be two times; remove one"
        shapes[shape] = text
    return ""


def _form_fault(text: str) -> str:
    names = _DIRECTIVE.findall(text)
    found = set(names)
    if unknown := [name for name in names if name not in _DIRECTIVES]:
        return (
            f"'%{unknown[0]}' is not known; give %Y (4 digits), %m or %b (Jan), %d, %H (24 hours), %M, %S, %f and %z; "
            "write years with 4 digits and hours from 0 to 23 in the input"
        )
    if re.search("[0-9]", _DIRECTIVE.sub("", text)):
        return "has a digit of its own, which would fit any digit; give %H, %M, %S or %f for parts that are always 0"
    is_plain = text.isascii() and text.isprintable()
    if not is_plain or "Y" not in found or len(found) < len(names) or found >= {"m", "b"}:
        return "must be printable ASCII with %Y, and with no part of a time twice"
    lacks = next((name for name in names if not found & set(_NEEDED.get(name, name))), None)
    return f"has %{lacks} without what it is a part of" if lacks else ""


def _precision_fault(text: str, step: TimeStep) -> str:
    found = set(_DIRECTIVE.findall(text))
    if step.unit != "year" and not found & {"m", "b"}:
        return "has no month, but the resolution is finer than a year; set resolution: year"
    if step.unit not in {"year", "month"} and "d" not in found:
        return "has no day, but the resolution is finer than a month; set resolution: month or year"
    return ""


def _shape(text: str) -> str:
    """Return a text that is the same for two formats that fit the same texts, digits for digits.

    Numbers without anything between them have fixed lengths.
    """
    runs = re.sub(r"(?:%[YmdHMS]){2,}", lambda run: "9" * (2 * run[0].count("Y") + len(run[0])), text)
    return _DIRECTIVE.sub(lambda found: _DIRECTIVES[found[1]], runs)


def _parse_iso(text: str) -> Decimal | None:
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, zone = found.groups()
    try:
        days = date(int(year), int(month), int(day)).toordinal() - date(1970, 1, 1).toordinal()
    except ValueError:
        return None
    time = int(hour or 0) * _MS["h"] + int(minute or 0) * _MS["min"] + Decimal(second or 0) * _MS["s"]
    return days * _MS["day"] + time - _offset_ms(zone)


def _offset_ms(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    digits = zone[1:].replace(":", "")
    offset = int(digits[:2]) * _MS["h"] + int(digits[2:]) * _MS["min"]
    return -offset if zone[0] == "-" else offset
