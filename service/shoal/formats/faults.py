"""Find what is wrong with a record that was rejected: which columns or fields, and why. No fault contains a value.

How many records were refused, by reason and field (`RefusalCounter`). It holds no value of a record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from shoal.formats.block import FaultReason, Reason, remedy_for
from shoal.formats.columns import (
    MISMATCH,
    ScaleReader,
    is_clustered,
    parse_values,
    replace_decimal_commas,
    scale_reader,
    to_number,
)
from shoal.formats.confidential_keys import describe_unplaced
from shoal.formats.csv import EmbeddedRecordCheck, RepeatedHeaderCheck
from shoal.formats.fields import FAUST_FIELD, has_nested_messages, path_of
from shoal.formats.json_text import canonical_json, validate_strictly
from shoal.formats.messages import Content, Unwrapper
from shoal.formats.numerals import NumberText
from shoal.formats.subjects import normaliser
from shoal.policy import Attribute, FieldType, Policy, Role, Scale

__all__ = [
    "NOT_REPRESENTATIVE",
    "RecordFault",
    "RefusalCounter",
    "find_csv_faults",
    "find_json_faults",
    "is_notable",
    "is_representative",
]


class RecordFault(NamedTuple):
    """One fault of a record. Its texts come from the policy and from this module, so that a policy bounds their number.

    Attributes
    ----------
    reason : str
        What is wrong: a `FaultReason`, or a text that says what to do about it.
    field : str
        Name of the field; empty if the record as a whole is at fault.
    column : int
        Number of the column in a CSV file, from 1; 0 if there is none.
    detail : str
        What differs between records with the same fault; takes the place of ``reason`` in `location`.
    """

    reason: str
    field: str = ""
    column: int = 0
    detail: str = ""

    @property
    def kind(self) -> str:
        """Field and reason, alike for all records with this fault."""
        return f"{self.field}: {self.reason}" if self.field else self.reason

    @property
    def location(self) -> str:
        """Text that follows the line number of the record in an error."""
        if not self.field:
            return f": {self.detail or self.reason}"
        where = f"column {self.column} ({self.field})" if self.column else f"field {self.field}"
        return f", {where}: {self.detail or self.reason}"


_TYPES: dict[FieldType, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int, float),
    "number": (int, float),
    "boolean": (bool,),
    "any": (str, int, float, bool),
}
_NOT_OF_TYPE: dict[FieldType, FaultReason] = {
    "string": FaultReason.NOT_STRING,
    "integer": FaultReason.NOT_INTEGER,
    "number": FaultReason.NOT_NUMBER,
    "boolean": FaultReason.NOT_BOOLEAN,
    "any": FaultReason.NOT_ANY,
}
_NOT_ON_SCALE = {
    Scale.NUMERIC: FaultReason.NOT_FINITE,
    Scale.ORDINAL: FaultReason.NOT_IN_ORDER,
    Scale.NOMINAL: FaultReason.NOT_CATEGORY,
}
_NOT_TIMES = {
    None: FaultReason.NOT_TIME,
    "s": FaultReason.NOT_SECONDS,
    "ms": FaultReason.NOT_MILLISECONDS,
    "us": FaultReason.NOT_MICROSECONDS,
    "days": FaultReason.NOT_DAYS,
}
_decode = msgspec.json.Decoder(float_hook=NumberText).decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_NO_ENVELOPE = {
    "debezium": FaultReason.NOT_DEBEZIUM,
    "connect": FaultReason.NOT_CONNECT,
    "cloudevents": FaultReason.NOT_CLOUDEVENT,
}
_WRAPPED = {
    "debezium": FaultReason.IN_DEBEZIUM,
    "connect": FaultReason.IN_CONNECT,
    "cloudevents": FaultReason.IN_CLOUDEVENT,
}


def find_csv_faults(policy: Policy, columns: Sequence[str], cells: Sequence[str] | None) -> list[RecordFault]:
    """Find why a CSV record was rejected.

    Parameters
    ----------
    policy : Policy
    columns : sequence of str
        The header.
    cells : sequence of str or None
        As `CsvReader` yields them.

    Returns
    -------
    list of RecordFault
        One for each field at fault, or one for the whole record; never empty.

    Notes
    -----
    Cost: about 2 µs per field.
    """
    if cells is None:
        return [RecordFault(FaultReason.NOT_CSV)]
    if len(cells) != len(columns):
        return [RecordFault(FaultReason.OTHER_WIDTH, detail=f"{len(cells)} cells, but the header has {len(columns)}")]
    columns_of_one = [[cell] for cell in cells]
    if RepeatedHeaderCheck(policy, columns).find(columns_of_one):
        return [RecordFault(FaultReason.REPEATED_HEADER)]
    has_line_ends = any("\n" in cell or "\r" in cell for cell in cells)
    if has_line_ends and EmbeddedRecordCheck(policy, columns).find(columns_of_one):
        return [RecordFault(FaultReason.EMBEDDED)]
    found = []
    for attribute in policy.attributes:
        column = columns.index(attribute.name)
        if reason := _describe_cell(policy, attribute, cells[column]):
            found.append(RecordFault(reason, attribute.name, column + 1))
    return found or [RecordFault(FaultReason.UNKNOWN)]


def find_json_faults(policy: Policy, message: bytes) -> list[RecordFault]:
    """Find why a JSON message was rejected; as `find_csv_faults`.

    Notes
    -----
    Cost: about 10 µs for a message of 200 bytes.
    """
    record, content, fault = _find_record(policy, message)
    fault = fault or _find_fault_of_whole(policy, record)
    if fault is not None:
        return [fault]
    found = []
    for attribute in policy.value_attributes:
        value = _value_at(record, path_of(attribute))
        if value is msgspec.UNSET:
            reason = _describe_missing(attribute, FaultReason.ABSENT)
        elif attribute.type == "json":
            reason = _describe_json(attribute, _text_at(content, path_of(attribute)))
        else:
            reason = _describe_value(policy, attribute, value)
        if reason:
            found.append(RecordFault(reason, attribute.name))
    if policy.undeclared == "quarantine" and _has_undeclared(policy, record):
        found.append(RecordFault(FaultReason.UNDECLARED))
    return found or [RecordFault(FaultReason.ENVELOPE if policy.envelope_attributes else FaultReason.UNKNOWN)]


def _find_record(policy: Policy, message: bytes) -> tuple[dict[str, Any], bytes, RecordFault | None]:
    """Return fields and text of the record in a message, and why there is no record; None if there is one."""
    fields, fault = _decode_object(message, checks_nested_keys=has_nested_messages(policy))
    if fault is not None or policy.unwrap is None:
        return fields, message, fault
    content = Unwrapper(policy).find(message)
    if content is Content.DELETE:
        return {}, message, RecordFault(FaultReason.DELETE)
    if content is Content.TOMBSTONE:
        return {}, message, RecordFault(FaultReason.TOMBSTONE)
    if not isinstance(content, bytes):
        return {}, message, RecordFault(_NO_ENVELOPE[policy.unwrap])
    fields = _decode(content)
    return fields, content, None if isinstance(fields, dict) else RecordFault(_NO_ENVELOPE[policy.unwrap])


def _find_fault_of_whole(policy: Policy, record: dict[str, Any]) -> RecordFault | None:
    """Return the fault of an object that was made from a header, or is an envelope without fields of the policy."""
    paths = [path_of(attribute) for attribute in policy.value_attributes]
    if len(paths) > 1 and all(_value_at(record, path) == path[-1] for path in paths):
        return RecordFault(FaultReason.FIELD_NAMES)
    envelope = _envelope_of(record) if record.keys().isdisjoint(path[0] for path in paths) else ""
    return RecordFault(_WRAPPED[envelope]) if envelope else None


def _envelope_of(record: dict[str, Any]) -> str:
    """Return the value of ``unwrap`` for what has no field of the policy but the form of an envelope; else empty."""
    if record.keys() == {"schema", "payload"}:
        return (isinstance(record["payload"], dict) and _envelope_of(record["payload"])) or "connect"
    if isinstance(record.get("op"), str) and "after" in record:
        return "debezium"
    return "cloudevents" if {"specversion", "data"} <= record.keys() else ""


def _decode_object(message: bytes, *, checks_nested_keys: bool) -> tuple[dict[str, Any], RecordFault | None]:
    """Return the fields, and why the message is not a valid object; None if it is one."""
    try:
        record = _decode(message)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}, RecordFault(FaultReason.NOT_JSON)
    if not isinstance(record, dict):
        return {}, RecordFault(FaultReason.NOT_OBJECT)
    reason = validate_strictly(message, checks_nested_keys=checks_nested_keys)
    if reason is None:
        return record, None
    return {}, RecordFault(FaultReason.REPEATED_FIELD if reason is Reason.INVALID else FaultReason.NOT_UTF8)


def _value_at(record: dict[str, Any], path: Sequence[str]) -> Any:  # noqa: ANN401 - any JSON
    """Return the value at a path; UNSET if it is absent, as all fields of an object that is null are.

    The fields of a value that is no object are absent, too: such a record is invalid for this reason.
    """
    value: Any = record
    for name in path:
        value = value.get(name, msgspec.UNSET) if isinstance(value, dict) else msgspec.UNSET
    return value


def _text_at(record: bytes, path: Sequence[str]) -> bytes:
    """Return the text of the value at a path that exists."""
    for name in path:
        record = bytes(_decode_fields(record)[name])
    return record


def _has_undeclared(policy: Policy, record: dict[str, Any]) -> bool:
    """Return whether a record has a field that the policy does not declare, at any depth."""
    fields = {path_of(attribute) for attribute in policy.value_attributes} | {(FAUST_FIELD,)}
    objects = {path[:depth] for path in fields for depth in range(len(path))}
    pending: list[tuple[tuple[str, ...], dict[str, Any]]] = [((), record)]
    for path, members in pending:  # the list grows
        for name, value in members.items():
            if (*path, name) in objects and isinstance(value, dict):
                pending.append(((*path, name), value))
            elif (*path, name) not in fields | objects:
                return True
    return False


def _describe_cell(policy: Policy, attribute: Attribute, cell: str) -> str:
    has_commas = policy.csv.decimal == ","
    if is_clustered(attribute):
        text = cell.strip(" \t")
        if text in policy.missing_values:
            return _describe_missing(attribute, FaultReason.MISSING_VALUE if text else FaultReason.EMPTY)
        if not text.strip() and attribute.scale is Scale.NUMERIC:
            return FaultReason.EMPTY
        reader = scale_reader(attribute, policy, has_commas=has_commas)
        return _describe_converted(reader, float(reader.read_cells([cell]).values[0]))
    if attribute.subject:
        text = cell.replace(",", ".") if has_commas and attribute.type in {"integer", "number"} else cell
        return _describe_subject(policy, attribute, text)
    if attribute.role is not Role.IDENTIFIER:
        is_converted = has_commas and attribute.type in {"integer", "number"}
        return _describe_unchanged_cell(policy, attribute, replace_decimal_commas([cell])[0] if is_converted else cell)
    return ""


def _describe_unchanged_cell(policy: Policy, attribute: Attribute, cell: str) -> str:
    if attribute.type == "json":
        text = cell.strip(" \t").encode()
        return _describe_json(attribute, text) if text else ""
    (value,), _ = parse_values([cell], attribute.type)
    return _NOT_OF_TYPE[attribute.type] if value is MISMATCH else describe_unplaced(policy, attribute, value)


def _describe_value(policy: Policy, attribute: Attribute, value: Any) -> str:  # noqa: ANN401 - any JSON
    if is_clustered(attribute):
        return _describe_clustered_value(policy, attribute, value)
    if attribute.role is Role.IDENTIFIER:
        return _describe_subject(policy, attribute, value) if attribute.subject else ""
    if value is None:
        return ""
    return _describe_unchanged_value(attribute, value) or describe_unplaced(policy, attribute, _plain(value))


def _describe_clustered_value(policy: Policy, attribute: Attribute, value: Any) -> str:  # noqa: ANN401 - any JSON
    if value is None:
        return _describe_missing(attribute, FaultReason.NULL)
    if type(value) is str and value in policy.missing_values:
        return _describe_missing(attribute, FaultReason.MISSING_VALUE if value else FaultReason.EMPTY)
    if isinstance(value, list | dict):
        return FaultReason.NESTED
    reader = scale_reader(attribute, policy)
    if attribute.scale is Scale.NUMERIC:
        is_number = isinstance(value, int | NumberText) and not isinstance(value, bool)
        number = to_number(value) if is_number else None
        found = reader.drop_missing_numbers(np.array([np.inf if number is None else number]))
        return _describe_converted(reader, float(found[0]))
    if isinstance(value, NumberText) and (attribute.scale is not Scale.TIME or attribute.unit is None):
        value = float(value)
    found = reader.read([value]).values
    if np.isnan(found[0]):
        return _describe_missing(attribute, FaultReason.MISSING_VALUE)
    return _describe_clustered(attribute, float(found[0]))


def _plain(value: object) -> object:
    """Return a number as float, as a record has it."""
    return float(value) if isinstance(value, NumberText) else value


def _describe_unchanged_value(attribute: Attribute, value: Any) -> str:  # noqa: ANN401 - any JSON
    if isinstance(value, NumberText):
        value = float(value)
        if not np.isfinite(value):
            return FaultReason.NOT_FINITE
    if type(value) not in _TYPES[attribute.type]:
        return FaultReason.NESTED if isinstance(value, list | dict) else _NOT_OF_TYPE[attribute.type]
    is_integer = not isinstance(value, float) or value.is_integer()
    return "" if attribute.type != "integer" or is_integer else FaultReason.NOT_INTEGER


def _describe_json(attribute: Attribute, text: bytes) -> str:
    try:
        canonical = canonical_json(text)
    except ValueError:
        return FaultReason.NOT_JSON_FIELD
    return FaultReason.LONG_JSON if canonical is not None and len(canonical.encode()) > attribute.max_bytes else ""


def _describe_missing(attribute: Attribute, reason: str) -> str:
    return "" if attribute.may_be_missing else reason


def _describe_converted(reader: ScaleReader, value: float) -> str:
    """Return what is wrong with a value that is not missing by its text, but may be missing as a number."""
    if reader.has_missing_numbers and np.isnan(value):
        return _describe_missing(reader.attribute, FaultReason.MISSING_VALUE)
    return _describe_clustered(reader.attribute, value)


def _describe_clustered(attribute: Attribute, value: float) -> str:
    """Return what is wrong with a value that is not missing, as `ScaleReader` converted it."""
    if not np.isfinite(value):
        if attribute.scale is Scale.TIME:
            return _NOT_TIMES[attribute.unit]
        if attribute.scale is Scale.NOMINAL and attribute.taxonomy is not None and attribute.unknown == "quarantine":
            return FaultReason.NOT_IN_TAXONOMY
        return _NOT_ON_SCALE[attribute.scale]
    if attribute.is_nominal:
        return ""
    if attribute.integer and not value.is_integer():
        return FaultReason.NOT_WHOLE
    low, high = attribute.limits
    return "" if attribute.clip or low <= value <= high else FaultReason.OUTSIDE_BOUNDS


def _describe_subject(policy: Policy, attribute: Attribute, value: object) -> str:
    normalise = normaliser(attribute.type, attribute.normalize, policy.missing_values)
    return "" if normalise([value])[0] else FaultReason.NOT_SUBJECT


NOTABLE_SHARE = 0.01
"""A larger share of refused records is reported by reason and field."""

SUPPRESSED_SHARE = 0.1
"""With a larger share of suppressed records, a release under l, t or max_value_share is not representative."""

NOT_REPRESENTATIVE = "the release is not representative of the input: suppressed records mostly have frequent values"

MAX_KINDS = 10
"""Kinds that `RefusalCounter.texts` lists."""


class RefusalCounter:
    """Counts refused records. Its memory is bounded by the number of fields of the policy.

    Attributes
    ----------
    total : int
        Number of refused records.
    """

    def __init__(self) -> None:
        self.total = 0
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def add(self, reason: str, faults: Sequence[RecordFault], count: int = 1) -> None:
        """Count refused records that have the same faults.

        Parameters
        ----------
        reason : str
            As in the reference of the record.
        faults : sequence of RecordFault
            Each is counted: a record that lacks two fields counts for both. Empty if they are not known.
        count : int
            Number of these records.
        """
        self.total += count
        for field, text in {(fault.field, fault.reason) for fault in faults} or {("", "")}:
            self._counts[reason, field, text] += count

    def texts(self, records_in: int) -> list[str]:
        """Return a text for each kind, the most frequent first. A record with several faults is in several texts.

        Parameters
        ----------
        records_in : int
            Records that were read.

        Returns
        -------
        list of str
            Such as ``1,350 of 7,874 invalid: creatinine: empty``.
        """
        ordered = self._ordered()
        texts = [f"{count:,} of {records_in:,} {': '.join(filter(None, kind))}" for kind, count in ordered[:MAX_KINDS]]
        rest = len(ordered) - MAX_KINDS
        return texts + ([f"{rest} more kind{'s' if rest > 1 else ''}"] if rest > 0 else [])

    def remedy(self) -> str:
        """Return what to do about the most frequent fault, with all its fields; an empty text if that is not known."""
        kinds = [(field, text) for (_, field, text), _ in self._ordered()]
        if not kinds:
            return ""
        first = kinds[0][1]
        remedy = remedy_for(first)
        fields = ", ".join(dict.fromkeys(field for field, text in kinds[:MAX_KINDS] if field and text == first))
        return f"{fields}: {remedy}" if fields else remedy

    def _ordered(self) -> list[tuple[tuple[str, str, str], int]]:
        """Return the kinds with their counts, the most frequent first, and kinds with equal counts by their texts."""
        return sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))


def is_notable(records_in: int, released: int, refused: int) -> bool:
    """Return whether nothing was released of an input that has records, or more than 1 % of them were refused."""
    return (records_in > 0 and released == 0) or refused > NOTABLE_SHARE * records_in


def is_representative(records_in: int, released: int, suppressed: int) -> bool:
    """Return whether so few records are suppressed that the values of the others are like those of the input.

    An empty release has no values. After a restart, records may be decided that an earlier process has counted as read.
    """
    return released == 0 or suppressed <= SUPPRESSED_SHARE * max(records_in, released + suppressed)
