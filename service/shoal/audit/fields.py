"""Fields to what counts: who, where, and what is published unchanged.

In: a record as read. Out: for each kind of field one text or number by which two spellings of one value are
equal and two values are not. A record that does not fit the policy is unusable: no cluster may hold it.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from shoal.audit.reading import Form, Record, Token
from shoal.policy import Attribute, FieldType, Policy

__all__ = ["Fields", "KeptReader", "Usable", "decimal_number", "kept_reader", "quoted"]

KeptReader: TypeAlias = Callable[[object], str | None]

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_ROUND_NUMBER = re.compile(r"(-?)0*([0-9]+)(?:\.0*)?")

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
        Names, roles and types.
    original, released : {"csv", "jsonl"}
        How the records are written, and how the rows are to which they are compared.
    """

    def __init__(self, policy: Policy, original: Form, released: Form) -> None:
        self._names = {attribute.name for attribute in policy.attributes}
        self._closed = policy.undeclared == "quarantine"
        number = _json_number if original == "jsonl" else _csv_number
        self._quasi = [(a.name, _Coordinate(a, number)) for a in policy.quasi_identifiers]
        self._kept = [(a.name, kept_reader(a.type, original, released)) for a in policy.kept]
        self._subject = policy.subject

    def take(self, record: Record | None) -> Usable | None:
        """Read one record; None if it is unusable."""
        if record is None or not record.keys() >= self._names:
            return None
        if self._closed and len(record) != len(self._names):
            return None
        values = [value for name, read in self._quasi if (value := read(record[name])) is not None]
        kept = [text for name, read in self._kept if (text := read(record[name])) is not None]
        if len(values) < len(self._quasi) or len(kept) < len(self._kept):
            return None
        subject = None if self._subject is None else _person(record[self._subject.name], self._subject.type)
        if subject is None and self._subject is not None:
            return None
        # No JSON text holds a raw NUL, so it can part the fields.
        return Usable(tuple(values), "\x00".join(kept), subject)


# ---------------------------------------------------------------- quasi-identifiers


class _Coordinate:
    """The clipped float64 value of a quasi-identifier, or None."""

    __slots__ = ("_clip", "_high", "_integer", "_low", "_number")

    def __init__(self, attribute: Attribute, number: Callable[[object], float | None]) -> None:
        self._low, self._high = attribute.bounds or (-math.inf, math.inf)
        self._clip, self._integer, self._number = attribute.clip, attribute.integer, number

    def __call__(self, value: object) -> float | None:
        number = self._number(value)
        if number is None or not math.isfinite(number) or (self._integer and not number.is_integer()):
            return None
        clipped = min(max(number, self._low), self._high)
        return clipped if self._clip or clipped == number else None


def _json_number(value: object) -> float | None:
    if type(value) is float:
        return value
    if type(value) is not int:
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _csv_number(value: object) -> float | None:
    return decimal_number(str(value).strip())


def decimal_number(text: str) -> float | None:
    """Return the float64 next to an ASCII decimal text; None for anything else."""
    return float(text) if _DECIMAL.fullmatch(text) else None


# ---------------------------------------------------------------- the subject


def _person(value: object, kind: FieldType) -> str | None:
    """One text per person, however the name was spelled; None where there is nobody."""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str):
        text = unicodedata.normalize("NFC", value).strip()
    elif isinstance(value, int):
        text = str(value)
    elif isinstance(value, float) and math.isfinite(value):
        text = str(int(value)) if value.is_integer() else repr(value)
    else:
        return None
    if kind in {"any", "integer", "number"} and (round_number := _ROUND_NUMBER.fullmatch(text)):
        sign, digits = round_number.groups()
        return digits if digits == "0" else sign + digits
    return text or None


# ---------------------------------------------------------------- fields published as they are


def kept_reader(kind: FieldType, original: Form, released: Form) -> KeptReader:
    """Return the function from a value to the text it is compared by (None: not of this type).

    The text is JSON: so 1, 1.0, "1" and true are four values where the type lets them be four, and
    1e2 and 100.0 are one.
    """
    if original == "csv":
        return _CSV[kind]
    read = _JSON[kind]
    if released == "csv" and kind in {"string", "any"}:
        return lambda value: _as_cell(read(value))
    return read


def _as_cell(text: str | None) -> str | None:
    """Turn into text, as every cell is; null is the empty one."""
    if text is None or text.startswith('"'):
        return text
    return '""' if text == "null" else quoted(text)


def _any(value: object) -> str | None:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Token):
        return _any(_untoken(value))
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, int):
        return str(value)
    return _float(value) if isinstance(value, float) else None


def _untoken(token: Token) -> object:
    """Read the number as the standard library would have; NaN if it is too long for it."""
    if not _INTEGER.fullmatch(token):
        return float(token)
    try:
        return int(token)
    except ValueError:
        return math.nan


def _float(value: float) -> str | None:
    # Plus zero: minus zero is no other value.
    return repr(value + 0.0) if math.isfinite(value) else None


def _string(value: object) -> str | None:
    text = _any(value)
    return text if text is not None and (text == "null" or text.startswith('"')) else None


def _number(value: object) -> str | None:
    if isinstance(value, Token):
        value = _untoken(value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = _any(value)
    return text if text is not None and text not in {"true", "false"} and not text.startswith('"') else None


def _integer(value: object) -> str | None:
    text = _number(value)
    return text if text is not None and (text == "null" or _INTEGER.fullmatch(text)) else None


def _boolean(value: object) -> str | None:
    text = _any(value)
    return text if text in {"null", "true", "false"} else None


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
    return _number(Token(text)) if _DECIMAL.fullmatch(text) else None


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
