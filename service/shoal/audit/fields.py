"""Turns the fields of a record into what is compared: quasi-identifiers, unchanged fields and subject.

Equal values become equal texts or numbers whatever their spelling; different values stay different. A record that
does not fit the policy is unusable: no cluster may hold it. Nothing here is shared with the decoders of the engine.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TypeAlias

from shoal.audit.arithmetic import canonical_float
from shoal.audit.json_documents import document_reader
from shoal.audit.json_values import json_text
from shoal.audit.parsing import Form, JsonNumber, Record
from shoal.audit.scales import (
    ABSENT,
    BLANKS,
    POINT,
    Categories,
    DecimalSign,
    decimal_number,
    is_decimal,
    is_encodable,
    value_reader,
)
from shoal.audit.spellings import EVERY_STEP, has_long_mark_sequence, one_spelling
from shoal.audit.structure import Dropped, MessageStructure
from shoal.audit.value_keys import comparable_fields
from shoal.policy import Attribute, FieldType, MessagePart, Policy, Role, Scale

__all__ = [
    "FIELD_SEPARATOR",
    "MOST_CATEGORY_BYTES",
    "RecordReader",
    "UnchangedReader",
    "UsableRecord",
    "canonical_decimal",
    "merged_subject",
    "released_reader",
    "source_form",
    "unchanged_reader",
]

UnchangedReader: TypeAlias = Callable[[object], str | None]

MOST_CATEGORY_BYTES = 1_000
"""Bytes of a category as JSON. A record with a longer one is too large, whatever ``kafka.max_record_bytes`` is."""

FIELD_SEPARATOR = "\x00"
"""Separates the texts of unchanged fields. JSON text holds no raw NUL, so no field contains it."""

_INTEGER = re.compile(r"[+-]?[0-9]+")
_MAX_INTEGER_LENGTH = 4300
"""Characters; longer integers are not numbers (the limit of Python's int)."""


@dataclass(frozen=True, slots=True)
class UsableRecord:
    """A record that fits the policy.

    Attributes
    ----------
    values : tuple of float
        Quasi-identifiers in the order of the policy, as `shoal.audit.scales` reads them.
    unchanged : str
        Texts of the unchanged fields, separated by `FIELD_SEPARATOR`.
    subject : str or None
        Normalised subject; None if every record is a subject of its own.
    category_bytes : int
        Bytes of the published categories as JSON, which are limited together with the unchanged fields.
    """

    values: tuple[float, ...]
    unchanged: str
    subject: str | None
    category_bytes: int = 0


class RecordReader:
    """Reads records of an original into what a release of them would show.

    Parameters
    ----------
    policy : Policy
        Names, roles and types, and the part of a message that each attribute is read from.
    original, released : {"csv", "jsonl"}
        Form of the records, and form of the rows that they are compared with.
    is_parquet : bool
        Whether the records are rows of Parquet, which are not compared with the names of their columns.
    """

    def __init__(self, policy: Policy, original: Form, released: Form, *, is_parquet: bool = False) -> None:
        self._structure = MessageStructure(policy, original)
        self._refuses_headers = original == "jsonl" and not is_parquet
        self._names = {attribute.name for attribute in policy.value_attributes}
        self._optional = {a.name for a in policy.value_attributes if original == "jsonl" and _may_be_absent(a)}
        self._required = self._names - self._optional
        self._from_envelope = [(attribute.name, str(attribute.source)) for attribute in policy.envelope_attributes]
        self._refuses_undeclared = policy.undeclared == "quarantine"
        # Faust adds the name of its model to every record.
        self._ignored = {"__faust"} - self._names if original == "jsonl" else set()
        sign = DecimalSign(policy.csv.decimal if original == "csv" else ".")
        # Steering attributes are not published, but a record without a usable one does not fit the policy.
        self._known = [
            Categories(are_leaves=a.taxonomy is not None) if a.scale is Scale.NOMINAL else None
            for a in policy.clustered
        ]
        self._quasi = [
            (a.name, value_reader(a, source_form(a, original), sign, policy.missing_values, categories))
            for a, categories in zip(policy.clustered, self._known, strict=True)
        ]
        self._width, self._has_categories = len(policy.quasi_identifiers), any(self._known)
        self.categories = self._known[: self._width]
        released_sign = DecimalSign(policy.csv_output.decimal if released == "csv" else ".")
        self._unchanged = [
            (
                a.name,
                document_reader(source_form(a, original), released, a.max_bytes)
                if a.type == "json"
                else unchanged_reader(a.type, source_form(a, original), released, sign, released_sign),
            )
            for a in policy.unchanged_fields
        ]
        self._comparable = comparable_fields(policy, released)
        self._subject, self._sign = policy.subject, sign
        self._no_subjects = self._missing_subjects(policy)
        encoding = policy.csv_output.encoding
        # Only CSV has other encodings than those of Unicode.
        self._encoding = encoding if released == "csv" and not encoding.startswith("utf-") else None

    def content(self, message: Record | None) -> Record | Dropped | None:
        """Return the fields of a message by the names of their attributes, why it is dropped, or None."""
        return self._structure.content(message)

    def read(self, record: Record | None, envelope: Record) -> UsableRecord | None:
        """Read the fields of one record; None if it is unusable."""
        if record is None or not record.keys() >= self._required:
            return None
        if self._refuses_headers and self._structure.is_header(record):
            return None
        has_more = self._optional or len(record) != len(self._names)
        if self._refuses_undeclared and has_more and not record.keys() <= self._names | self._ignored:
            return None
        if self._from_envelope:
            # A field of the value with the name of such an attribute is undeclared.
            if not all(source in envelope for _, source in self._from_envelope):
                return None
            record = {**record, **{name: envelope[source] for name, source in self._from_envelope}}
        return self._usable(record)

    def _usable(self, record: Record) -> UsableRecord | None:
        if self._optional:
            record = {**dict.fromkeys(self._optional, ABSENT), **record}
        values = [value for name, read in self._quasi if (value := read(record[name])) is not None]
        unchanged = [text for name, read in self._unchanged if (text := read(record[name])) is not None]
        if len(values) < len(self._quasi) or len(unchanged) < len(self._unchanged):
            return None
        if self._encoding is not None and not is_encodable("".join(unchanged), self._encoding):
            return None
        if not all(is_comparable(unchanged[place]) for place, is_comparable in self._comparable):
            return None
        subject = None if self._subject is None else self._subject_text(record[self._subject.name], self._subject)
        if self._subject is not None and (subject is None or subject in self._no_subjects):
            return None
        size = self._category_bytes(values) if self._has_categories else 0
        if size is None:
            return None
        return UsableRecord(tuple(values[: self._width]), FIELD_SEPARATOR.join(unchanged), subject, size)

    def _category_bytes(self, values: list[float]) -> int | None:
        """Return the bytes of the published categories as JSON.

        It is None if a category is longer than the limit, or the encoding of the release lacks a letter of one.
        """
        texts = [
            "" if known is None or math.isnan(value) else known.json_text(value)
            for known, value in zip(self._known, values, strict=True)
        ]
        lengths = [len(text.encode()) for text in texts]
        if max(lengths) > MOST_CATEGORY_BYTES:
            return None
        if self._encoding is not None and not is_encodable("".join(texts[: self._width]), self._encoding):
            return None
        return sum(lengths[: self._width])

    @staticmethod
    def _missing_subjects(policy: Policy) -> frozenset[str]:
        """Return the normalised subjects that stand for a missing one."""
        if policy.subject is None:
            return frozenset()
        texts = [_spelt_subject(text, policy.subject) for text in policy.missing_values]
        return frozenset(text for text in texts if text is not None)

    def _subject_text(self, value: object, subject: Attribute) -> str | None:
        if subject.type != "string" and isinstance(value, str) and self._sign.is_comma:
            text = value.replace(",", ".")
            value = text if decimal_number(text.strip()) is not None else value
        return _spelt_subject(value, subject)


def _may_be_absent(attribute: Attribute) -> bool:
    return attribute.may_be_missing and attribute.role in {Role.QUASI_IDENTIFIER, Role.STEERING}


def source_form(attribute: Attribute, original: Form) -> Form:
    """Return how an attribute is written: keys and headers are texts, as cells are; timestamps are JSON numbers."""
    match attribute.source.part:
        case MessagePart.VALUE:
            return original
        case MessagePart.TIMESTAMP:
            return "jsonl"
        case _:
            return "csv"


# ---------------------------------------------------------------- the subject


def _spelt_subject(value: object, subject: Attribute) -> str | None:
    """Return one text per subject, with the steps of ``normalize``; None if the value cannot be a subject."""
    if isinstance(value, str) and not isinstance(value, JsonNumber):
        if subject.normalize:
            value = one_spelling(value, subject.normalize)
        elif has_long_mark_sequence(value):
            return None
    return _normalised_subject(value, subject.type)


def _normalised_subject(value: object, kind: FieldType) -> str | None:
    """Return one text per subject, whatever the spelling; None if the value cannot be a subject of this type."""
    if isinstance(value, bool):
        return str(value).lower() if kind in {"boolean", "any"} else None
    if not isinstance(value, str) or not is_encodable(value) or not _is_typed(value):
        return None
    text = unicodedata.normalize("NFC", value).strip()
    if kind == "string":
        return None if isinstance(value, JsonNumber) else text or None
    if kind == "boolean":
        return text.lower() if text.lower() in {"true", "false"} else None
    number = _exact(text)
    if number is None:
        return text or None if kind == "any" else None
    return None if kind == "integer" and number[1] < 0 else f"{number[0]}e{number[1]}"


def merged_subject(text: str, kind: FieldType) -> str | None:
    """Return the subject that a normalised one would be with every step of ``normalize``; None if it would be none."""
    return _normalised_subject(one_spelling(text, EVERY_STEP), kind)


def _is_typed(text: str) -> bool:
    """Whether a JSON number is an integer of at most 4,300 characters, or a finite float64; any other text is."""
    if not isinstance(text, JsonNumber):
        return True
    if _INTEGER.fullmatch(text):
        return len(text) <= _MAX_INTEGER_LENGTH
    return not math.isinf(float(text))


def _exact(text: str) -> tuple[str, int] | None:
    """Return a decimal number as digits without trailing zeros and a power of ten; None if the text is no number."""
    if not is_decimal(text):
        return None
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation:
        return None
    integer = "".join(map(str, digits)).lstrip("0")
    short = integer.rstrip("0")
    if not short:
        return "0", 0
    return "-" * sign + short, int(exponent) + len(integer) - len(short)


# ---------------------------------------------------------------- unchanged fields


def unchanged_reader(
    kind: FieldType, original: Form, released: Form, sign: DecimalSign = POINT, released_sign: DecimalSign = POINT
) -> UnchangedReader:
    """Return the function from the value of an unchanged field to the text by which it is compared.

    The function returns None for a value of another type. Its text is JSON: where the type admits all of them, 1, "1"
    and true are three values. 1e2, 100.0 and 100 are one value. The decimal signs are those of the original's cells
    and of the released cells.
    """
    if original == "csv":
        read = _CSV[kind]
        if sign.is_comma and kind in {"integer", "number"}:
            return lambda cell: read(sign.to_point(str(cell)))
        return read
    if released == "csv" and kind in {"string", "any"}:
        return _string_as_cell if kind == "string" else lambda value: _any_as_cell(value, released_sign)
    return _JSON[kind]


def released_reader(
    kind: FieldType, original: Form, released: Form, released_sign: DecimalSign = POINT
) -> UnchangedReader:
    """Return the same for released rows: its texts equal those of `unchanged_reader` where the values are equal."""
    if original == "jsonl" and released == "csv" and kind == "any":
        return _cell_text
    return unchanged_reader(kind, released, released, released_sign, released_sign)


def _string_as_cell(value: object) -> str | None:
    text = _string(value)
    return '""' if text == "null" else text


def _any_as_cell(value: object, released_sign: DecimalSign) -> str | None:
    """Return the text of the cell that a JSON value becomes; null becomes the empty cell."""
    text = _any(value)
    if text is None or text == "null":
        return text and '""'
    if text.startswith('"'):
        return text
    return json_text(released_sign.from_point(text) if isinstance(value, JsonNumber) else text)


def _any(value: object) -> str | None:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, JsonNumber):
        return canonical_decimal(value)
    return json_text(value) if isinstance(value, str) and is_encodable(value) else None


def canonical_decimal(text: str) -> str | None:
    """Write a decimal number in its canonical form: integers exactly, others as float64; None if it overflows."""
    if _INTEGER.fullmatch(text):
        return str(int(text)) if len(text) <= _MAX_INTEGER_LENGTH else None
    value = float(text)
    return canonical_float(value) if math.isfinite(value) else None


def _string(value: object) -> str | None:
    text = _any(value)
    return text if text is not None and (text == "null" or text.startswith('"')) else None


def _number(value: object) -> str | None:
    return _any(value) if value is None or isinstance(value, JsonNumber) else None


def _integer(value: object) -> str | None:
    text = _number(value)
    return text if text is not None and (text == "null" or _INTEGER.fullmatch(text)) else None


def _boolean(value: object) -> str | None:
    return _any(value) if value is None or isinstance(value, bool) else None


_JSON: dict[FieldType, UnchangedReader] = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "any": _any,
}


def _cell_text(value: object) -> str | None:
    return json_text(str(value))


def _cell_number(value: object) -> str | None:
    text = str(value).strip(BLANKS)
    if not text:
        return "null"
    return canonical_decimal(text) if is_decimal(text) else None


def _cell_integer(value: object) -> str | None:
    text = _cell_number(value)
    return text if text is not None and (text == "null" or _INTEGER.fullmatch(text)) else None


def _cell_boolean(value: object) -> str | None:
    text = str(value).strip(BLANKS).lower()
    return (text or "null") if text in {"", "true", "false"} else None


_CSV: dict[FieldType, UnchangedReader] = {
    "string": _cell_text,
    "integer": _cell_integer,
    "number": _cell_number,
    "boolean": _cell_boolean,
    "any": _cell_text,
}
