"""Reads the values of quasi-identifiers and steering attributes, by their scale, as float64.

A number is itself, a time its milliseconds since 1970, an ordinal value its rank and a nominal value the code of its
category. A missing value is NaN. None stands for a value that makes the record unusable.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from shoal.audit.arithmetic import canonical_float
from shoal.audit.json_values import json_text
from shoal.audit.parsing import Form, JsonNumber
from shoal.audit.times import epoch_ms, iso_ms
from shoal.policy import Attribute, MessagePart, Scale

__all__ = [
    "ABSENT",
    "BLANKS",
    "POINT",
    "Categories",
    "DecimalSign",
    "ValueReader",
    "decimal_number",
    "is_decimal",
    "is_encodable",
    "value_reader",
]

ValueReader: TypeAlias = Callable[[object], float | None]

ABSENT = object()
"""Stands for a field that a JSON object does not have."""

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_MAX_INTEGER_LENGTH = 4300
"""Characters; longer integers are not numbers (the limit of Python's int)."""
BLANKS = " \t"
"""What is ignored around a text cell. Other white space, such as a no-break space or a line end, is not."""


class Categories:
    """The categories of one nominal attribute in the order of their first records.

    ``counts``: how many members of clusters have each category, by its code.
    Without a taxonomy a category is the text of a JSON scalar; with one it is the name of a leaf.
    """

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


def is_decimal(text: str) -> bool:
    """Whether a text is an ASCII decimal number."""
    return _DECIMAL.fullmatch(text) is not None


def decimal_number(text: str) -> float | None:
    """Return the float64 nearest to an ASCII decimal number; None for any other text."""
    return float(text) if _DECIMAL.fullmatch(text) else None


def is_encodable(value: str, encoding: str = "utf-8") -> bool:
    """Whether an encoding has all characters of a text; a lone surrogate cannot be published in any."""
    if value.isascii():
        return True
    try:
        value.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def value_reader(
    attribute: Attribute, form: Form, sign: DecimalSign, missing_values: tuple[str, ...], categories: Categories | None
) -> ValueReader:
    """Return the function from the value of a field, or `ABSENT`, to its float64.

    Parameters
    ----------
    attribute : Attribute
        A quasi-identifier or steering attribute.
    form : {"csv", "jsonl"}
        How the field is written.
    sign : DecimalSign
        Of the original's cells.
    missing_values : tuple of str
        Texts that stand for a missing value. So do equal numbers, and categories with the text of one.
    categories : Categories or None
        Gets the categories of a nominal attribute.
    """
    read = _present_reader(attribute, form, sign, categories)
    if not attribute.may_be_missing and attribute.scale is Scale.NUMERIC and set(missing_values) <= {""}:
        return read  # an empty cell and null are no numbers, so the record is unusable in any case
    missing, found = frozenset(missing_values), math.nan if attribute.may_be_missing else None
    is_number = _missing_number(attribute, form, sign, missing)
    if form == "csv":
        return lambda value: found if str(value).strip(BLANKS) in missing or is_number(value) else read(value)
    return lambda value: (
        found if value is None or value is ABSENT or _is_in(value, missing) or is_number(value) else (read(value))
    )


def _is_in(value: object, missing: frozenset[str]) -> bool:
    return isinstance(value, str) and not isinstance(value, JsonNumber) and value in missing


def _missing_number(
    attribute: Attribute, form: Form, sign: DecimalSign, missing: frozenset[str]
) -> Callable[[object], bool]:
    """Return whether a value means a missing one as a number, or as the text of a number or truth value."""
    is_text = attribute.scale is Scale.TIME and attribute.unit is None
    if attribute.scale in {Scale.NOMINAL, Scale.ORDINAL} or (
        is_text and attribute.source.part is not MessagePart.TIMESTAMP
    ):
        return lambda value: isinstance(value, bool | JsonNumber) and _name(value, form) in missing
    numbers = {number for number in map(decimal_number, missing) if number is not None and math.isfinite(number)}
    if not numbers:
        return lambda _: False
    if form == "jsonl":
        return lambda value: isinstance(value, JsonNumber) and float(value) in numbers
    return lambda value: decimal_number(sign.to_point(str(value).strip(BLANKS))) in numbers


def _present_reader(attribute: Attribute, form: Form, sign: DecimalSign, categories: Categories | None) -> ValueReader:
    match attribute.scale:
        case Scale.NOMINAL:
            return _nominal_reader(attribute, form, categories or Categories())
        case Scale.ORDINAL:
            return _ordinal_reader(attribute, form)
        case Scale.TIME:
            return _BoundedReader(attribute, _time_reader(attribute, form, sign))
        case _:
            return _BoundedReader(attribute, _number_reader(form, sign))


# ---------------------------------------------------------------- numbers and times


class _BoundedReader:
    """Returns the clipped float64 of a number or a time, or None."""

    __slots__ = ("_clip", "_high", "_integer", "_low", "_number")

    def __init__(self, attribute: Attribute, number: ValueReader) -> None:
        self._low, self._high = attribute.limits
        self._clip, self._integer, self._number = attribute.clip, attribute.integer, number

    def __call__(self, value: object) -> float | None:
        number = self._number(value)
        if number is None or not math.isfinite(number) or (self._integer and not number.is_integer()):
            return None
        clipped = min(max(number, self._low), self._high)
        return clipped if self._clip or clipped == number else None


def _number_reader(form: Form, sign: DecimalSign) -> ValueReader:
    return _json_number if form == "jsonl" else lambda value: decimal_number(sign.to_point(str(value).strip(BLANKS)))


def _json_number(value: object) -> float | None:
    return float(value) if isinstance(value, JsonNumber) else None


def _time_reader(attribute: Attribute, form: Form, sign: DecimalSign) -> ValueReader:
    # Timestamps of messages are milliseconds, whatever the unit of published times is.
    unit = "ms" if attribute.source.part is MessagePart.TIMESTAMP else attribute.unit

    def read(value: object) -> float | None:
        text = _text(value, form) if unit is None or form == "csv" else value if isinstance(value, JsonNumber) else None
        if text is None:
            return None
        if unit is None:
            return _float_or_none(iso_ms(text))
        number = sign.to_point(text)
        return _float_or_none(epoch_ms(number, unit)) if is_decimal(number) else None

    return read


def _float_or_none(number: int | None) -> float | None:
    return None if number is None else float(number)


# ---------------------------------------------------------------- categories


def _text(value: object, form: Form) -> str | None:
    """Return the text of a cell without blanks around it, or a JSON string as it is; None for other values."""
    if form == "csv":
        return str(value).strip(BLANKS)
    return value if isinstance(value, str) and not isinstance(value, JsonNumber) else None


def _name(value: object, form: Form) -> str | None:
    """Return the text by which a category is matched: of a string, a truth value or a whole number."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, JsonNumber):
        return _whole_number(value)
    text = _text(value, form)
    return text if text is not None and is_encodable(text) else None


def _whole_number(text: str) -> str | None:
    """Return the digits of a whole number: exactly, or those of its float64 if it has a point or an exponent."""
    if _INTEGER.fullmatch(text):
        return str(int(text)) if len(text) <= _MAX_INTEGER_LENGTH else None
    number = float(text)
    return canonical_float(number) if number.is_integer() else None


def _nominal_reader(attribute: Attribute, form: Form, categories: Categories) -> ValueReader:
    code, taxonomy = categories.code, attribute.taxonomy

    def flat(value: object) -> float | None:
        name = _name(value, form)
        if name is None:
            return None
        is_text = isinstance(value, str) and not isinstance(value, JsonNumber)
        return code(json_text(name) if is_text else name)

    if taxonomy is None:
        return flat
    leaves = frozenset(path[0] for path in taxonomy.paths) if attribute.unknown == "quarantine" else None

    def leaf(value: object) -> float | None:
        name = _name(value, form)
        return None if name is None or (leaves is not None and name not in leaves) else code(name)

    return leaf


def _ordinal_reader(attribute: Attribute, form: Form) -> ValueReader:
    ranks = {str(item): float(rank) for rank, item in enumerate(attribute.order)}

    def read(value: object) -> float | None:
        name = _name(value, form)
        return None if name is None else ranks.get(name)

    return read
