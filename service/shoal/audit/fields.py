"""Fields to what counts: who, where, and what is published unchanged.

In: a record as read, its numbers as written. Out: for each kind of field one text or number by which two
spellings of one value are equal and two values are not. A record that does not fit the policy is unusable: no
cluster may hold it.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TypeAlias

from shoal.audit.arithmetic import spelled
from shoal.audit.reading import Form, Record, Token
from shoal.policy import Attribute, FieldType, MessagePart, Policy

__all__ = [
    "Fields",
    "KeptReader",
    "Points",
    "Usable",
    "decimal_number",
    "form_of_source",
    "kept_reader",
    "quoted",
    "released_reader",
    "value_of",
]

KeptReader: TypeAlias = Callable[[object], str | None]

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LONGEST_INTEGER = 4300
"""Digits; longer ones are no numbers to anybody."""

quoted = json.JSONEncoder(ensure_ascii=False).encode
"""A string as JSON text with as few escapes as there can be."""


@dataclass(frozen=True, slots=True)
class Usable:
    """What the judge keeps of a record that fits the policy."""

    values: tuple[float, ...]
    kept: str
    subject: str | None


class Fields:
    """Reads records of one form into what a release of another form would show of them.

    Parameters
    ----------
    policy : Policy
        Names, roles, types, and the part of a message that each attribute is read from.
    original, released : {"csv", "jsonl"}
        How the records are written, and how the rows are to which they are compared.
    """

    def __init__(self, policy: Policy, original: Form, released: Form) -> None:
        self._names = {attribute.name for attribute in policy.value_attributes}
        self._around = [(attribute.name, str(attribute.source)) for attribute in policy.envelope_attributes]
        self._closed = policy.undeclared == "quarantine"
        # The field in which Faust names its model is in nobody's way.
        self._spared = {"__faust"} - self._names if original == "jsonl" else set()
        points = Points(policy.csv.decimal if original == "csv" else ".")
        self._quasi = [
            (a.name, _Coordinate(a, _number_reader(form_of_source(a, original), points)))
            for a in policy.quasi_identifiers
        ]
        shown = Points(policy.csv_output.decimal if released == "csv" else ".")
        self._kept = [
            (a.name, kept_reader(a.type, form_of_source(a, original), released, points, shown))
            for a in policy.passthrough
        ]
        self._subject, self._points = policy.subject, points

    def take(self, record: Record | None, around: Record) -> Usable | None:
        """Read one record; None if it is unusable."""
        if record is None or not record.keys() >= self._names:
            return None
        if self._closed and len(record) != len(self._names) and record.keys() != self._names | self._spared:
            return None
        if self._around:
            # What the value holds under the name of a key is undeclared.
            if not all(source in around for _, source in self._around):
                return None
            record = {**record, **{name: around[source] for name, source in self._around}}
        return self._usable(record)

    def _usable(self, record: Record) -> Usable | None:
        values = [value for name, read in self._quasi if (value := read(record[name])) is not None]
        kept = [text for name, read in self._kept if (text := read(record[name])) is not None]
        if len(values) < len(self._quasi) or len(kept) < len(self._kept):
            return None
        subject = None if self._subject is None else self._person(record[self._subject.name], self._subject)
        if subject is None and self._subject is not None:
            return None
        # No JSON text holds a raw NUL, so it can part the fields.
        return Usable(tuple(values), "\x00".join(kept), subject)

    def _person(self, value: object, subject: Attribute) -> str | None:
        if subject.type != "string" and isinstance(value, str) and self._points.are_commas:
            text = value.replace(",", ".")
            value = text if decimal_number(text.strip()) is not None else value
        return _person(value, subject.type)


def form_of_source(attribute: Attribute, original: Form) -> Form:
    """How an attribute is written: keys and headers are texts, as cells are; timestamps are numbers."""
    match attribute.source.part:
        case MessagePart.VALUE:
            return original
        case MessagePart.TIMESTAMP:
            return "jsonl"
        case _:
            return "csv"


class Points:
    """Decimal signs of a dialect of CSV: brings numbers to points, and back."""

    def __init__(self, decimal: str = ".") -> None:
        self._decimal = decimal
        self.are_commas = decimal != "."

    def put(self, cell: str) -> str:
        """Write a cell with points; one that has a point where none may be is no number any more."""
        if not self.are_commas:
            return cell
        return "." if "." in cell else cell.replace(self._decimal, ".")

    def taken(self, number: str) -> str:
        """Write a number as a cell of the dialect."""
        return number.replace(".", self._decimal)


POINTS = Points()


# ---------------------------------------------------------------- quasi-identifiers


class _Coordinate:
    """The clipped float64 value of a quasi-identifier, or None."""

    __slots__ = ("_clip", "_high", "_integer", "_low", "_number")

    def __init__(self, attribute: Attribute, number: Callable[[object], float | None]) -> None:
        self._low, self._high = attribute.limits
        self._clip, self._integer, self._number = attribute.clip, attribute.integer, number

    def __call__(self, value: object) -> float | None:
        number = self._number(value)
        if number is None or not math.isfinite(number) or (self._integer and not number.is_integer()):
            return None
        clipped = min(max(number, self._low), self._high)
        return clipped if self._clip or clipped == number else None


def _json_number(value: object) -> float | None:
    return float(value) if isinstance(value, Token) else None


def _number_reader(form: Form, points: Points) -> Callable[[object], float | None]:
    return _json_number if form == "jsonl" else lambda value: decimal_number(points.put(str(value).strip()))


def decimal_number(text: str) -> float | None:
    """Return the float64 next to an ASCII decimal text; None for anything else."""
    return float(text) if _DECIMAL.fullmatch(text) else None


# ---------------------------------------------------------------- the subject


def _person(value: object, kind: FieldType) -> str | None:
    """One text per person, however the name was spelled; None where there is nobody."""
    if isinstance(value, bool):
        return str(value).lower() if kind in {"boolean", "any"} else None
    if not isinstance(value, str) or not _is_text(value):
        return None
    text = unicodedata.normalize("NFC", value).strip()
    if kind == "string":
        return None if isinstance(value, Token) else text or None
    if kind == "boolean":
        return text.lower() if text.lower() in {"true", "false"} else None
    number = _exact(text)
    if number is None:
        return text or None if kind == "any" else None
    return None if kind == "integer" and number[1] < 0 else f"{number[0]}e{number[1]}"


def _exact(text: str) -> tuple[str, int] | None:
    """Digits without zeros at the end and the power of ten they are times of; None if it is no number."""
    if not _DECIMAL.fullmatch(text):
        return None
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation:
        return None
    whole = "".join(map(str, digits)).lstrip("0")
    short = whole.rstrip("0")
    if not short:
        return "0", 0
    return "-" * sign + short, int(exponent) + len(whole) - len(short)


# ---------------------------------------------------------------- fields published as they are


def kept_reader(
    kind: FieldType, original: Form, released: Form, points: Points = POINTS, shown: Points = POINTS
) -> KeptReader:
    """Return the function from a value to the text it is compared by (None: not of this type).

    The text is JSON: 1, "1" and true are three values where the type lets them be three; 1e2, 100.0 and 100 are
    one, as numbers go by value. ``points`` are those of the original's cells, ``shown`` those of the release's.
    """
    if original == "csv":
        read = _CSV[kind]
        if points.are_commas and kind in {"integer", "number"}:
            return lambda cell: read(points.put(str(cell)))
        return read
    if released == "csv" and kind in {"string", "any"}:
        return _string_as_cell if kind == "string" else lambda value: _any_as_cell(value, shown)
    return _JSON[kind]


def released_reader(kind: FieldType, original: Form, released: Form, shown: Points = POINTS) -> KeptReader:
    """Return the same for the rows of a release; the texts of both are equal where the values are."""
    if original == "jsonl" and released == "csv" and kind == "any":
        return _cell_text
    return kept_reader(kind, released, released, shown, shown)


def _string_as_cell(value: object) -> str | None:
    text = _string(value)
    return '""' if text == "null" else text


def _any_as_cell(value: object, shown: Points) -> str | None:
    """Turn into text, as every cell is; null is the empty one."""
    text = _any(value)
    if text is None or text == "null":
        return text and '""'
    if text.startswith('"'):
        return text
    return quoted(shown.taken(text) if isinstance(value, Token) else text)


def _is_text(value: str) -> bool:
    """Whether UTF-8 can hold it: a lone surrogate cannot be published."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _any(value: object) -> str | None:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Token):
        return value_of(value)
    return quoted(value) if isinstance(value, str) and _is_text(value) else None


def value_of(text: str) -> str | None:
    """Write a decimal number in its one spelling, integers exactly, others by their float64; None if none holds it."""
    if _INTEGER.fullmatch(text):
        return str(int(text)) if len(text) <= _LONGEST_INTEGER else None
    value = float(text)
    return spelled(value) if math.isfinite(value) else None


def _string(value: object) -> str | None:
    text = _any(value)
    return text if text is not None and (text == "null" or text.startswith('"')) else None


def _number(value: object) -> str | None:
    return _any(value) if value is None or isinstance(value, Token) else None


def _integer(value: object) -> str | None:
    text = _number(value)
    return text if text is not None and (text == "null" or _INTEGER.fullmatch(text)) else None


def _boolean(value: object) -> str | None:
    return _any(value) if value is None or isinstance(value, bool) else None


_JSON: dict[FieldType, KeptReader] = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "any": _any,
}


def _cell_text(value: object) -> str | None:
    return quoted(str(value))


def _cell_number(value: object) -> str | None:
    text = str(value).strip()
    if not text:
        return "null"
    return value_of(text) if _DECIMAL.fullmatch(text) else None


def _cell_integer(value: object) -> str | None:
    text = _cell_number(value)
    return text if text is not None and (text == "null" or _INTEGER.fullmatch(text)) else None


def _cell_boolean(value: object) -> str | None:
    text = str(value).strip().lower()
    return (text or "null") if text in {"", "true", "false"} else None


_CSV: dict[FieldType, KeptReader] = {
    "string": _cell_text,
    "integer": _cell_integer,
    "number": _cell_number,
    "boolean": _cell_boolean,
    "any": _cell_text,
}
