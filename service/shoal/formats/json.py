"""JSON: `JsonDecoder` decodes messages with a typed decoder generated from the policy; `JsonEncoder` makes rows.

The fields of a row are in its outermost object, or inside objects (``to: path``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any, BinaryIO, get_args

import msgspec
import numpy as np

from shoal.arrays import BoolVector, Int64Vector
from shoal.errors import ParameterError
from shoal.formats.block import (
    MISMATCH,
    Block,
    BlockBuilder,
    ParsedRecords,
    describe_clustered,
    describe_json,
    describe_missing,
    json_or_mismatch,
    missing_of,
    reject_unless,
    stack_columns,
    to_mask,
)
from shoal.formats.causes import not_json
from shoal.formats.confidential_keys import describe_unplaced
from shoal.formats.encoder import OutputField, RecordEncoder, encode_json_values
from shoal.formats.faults import DELETED_FIELD, DropReason, FaultReason, Reason, RecordFault
from shoal.formats.format import DEFAULT_MAX_BYTES, JsonLinesReader, MessageFormat, ReadOptions, RecordSource
from shoal.formats.json_text import DECODE_ERRORS, decode_members, prescreen, rejection_reason, validate_strictly
from shoal.formats.messages import Columns, Envelope, EnvelopeReader, MessageExportReader, RecordedEnvelope, Unwrapper
from shoal.formats.subjects import describe_subject
from shoal.formats.values import as_lines
from shoal.policy import Attribute, FieldType, Policy, Role
from shoal.scales import scale_of
from shoal.scales.numeric import NOT_FINITE
from shoal.scales.scale import NumberText, ScaleColumn, ScaleReader, text_of

_UNCHANGED_TYPES: dict[FieldType, Any] = {
    "string": str | None,
    "integer": int | float | None,  # 42.0 is an integer in JSON; fractions are rejected later
    "number": int | float | None,
    "boolean": bool | None,
    "any": str | int | float | bool | None,
    "json": msgspec.Raw,
}
PLACEHOLDER = "__debezium_unavailable_value"
"""Debezium writes it for a large value that did not change and that it could not read."""
_ENVELOPE_FAULTS = {
    "debezium": (FaultReason.NOT_DEBEZIUM, FaultReason.IN_DEBEZIUM),
    "connect": (FaultReason.NOT_CONNECT, FaultReason.IN_CONNECT),
    "cloudevents": (FaultReason.NOT_CLOUDEVENT, FaultReason.IN_CLOUDEVENT),
}
"""For each ``unwrap``, that a message has no such envelope, and that a record has one."""
_FAUST_FIELD = "__faust"
"""Faust adds this field to the messages of its models. It names the model and says nothing about the person."""

_decode = msgspec.json.Decoder(float_hook=NumberText).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class JsonFormat(MessageFormat):
    """JSON lines, and messages in JSON. Files of a policy that reads envelopes hold exported messages."""

    def read(self, stream: BinaryIO, policy: Policy, encoder: RecordEncoder, options: ReadOptions) -> RecordSource:
        """Open an input; see `Format.read`."""
        name, max_bytes, with_columns, _ = options
        decoder = JsonDecoder(policy, encoder=encoder, max_bytes=max_bytes, with_columns=with_columns)
        if not policy.envelope_attributes:
            lines = JsonLinesReader(stream, max_bytes=max_bytes)
            blocks = ((decoder.decode(part), list(part)) for part in lines)
            return RecordSource(blocks, lambda line: find_json_faults(policy, line, in_array=lines.opens_array))
        messages = MessageExportReader(stream, policy, name=name)
        exported = (
            (decoder.decode(values, envelopes), list(zip(values, envelopes, strict=True)))
            for values, envelopes in messages
        )
        return RecordSource(exported, lambda message: _find_message_faults(policy, *message))

    def prepared(self, stream: BinaryIO, name: str) -> BinaryIO:
        """Return an array, or objects on several lines, as lines."""
        return as_lines(stream, name)

    def encoder(self, policy: Policy) -> JsonEncoder:
        """Return an encoder of published rows."""
        return JsonEncoder(policy)

    def decoder(self, policy: Policy, *, max_bytes: int = DEFAULT_MAX_BYTES) -> JsonDecoder:
        """Return a decoder of messages."""
        return JsonDecoder(policy, max_bytes=max_bytes)


class JsonEncoder(RecordEncoder):
    """Encodes compact JSON in UTF-8. An object (a path in ``to``) stands where its first field is declared."""

    def __init__(self, policy: Policy) -> None:
        fields = _nested_fields(policy.published)
        super().__init__(policy, fields, _json_template, encode_json_values, _encode_json_texts, around=(b"{", b"}"))


class JsonDecoder:
    """Decodes JSON messages: one object each, with every declared field, or an envelope with one (``unwrap``).

    ``max_bytes`` limits a message value, and its unchanged fields as ``encoder`` writes them for the output. With
    ``refuses_headers`` a record is invalid in which each of two or more declared fields has its own name as its
    value: the header of a CSV file that was read as a record.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        encoder: RecordEncoder | None = None,
        with_columns: bool = False,
        refuses_headers: bool = True,
    ) -> None:
        encoder = JsonEncoder(policy) if encoder is None else encoder
        self._policy = policy
        self._unwrap, self._has_envelopes = Unwrapper(policy), policy.unwrap is not None
        self._is_skipped = _Skipper(policy)
        self._builder = BlockBuilder(policy, encoder, max_bytes, with_columns=with_columns)
        self._max_bytes = max_bytes
        self._struct = _RecordStruct(policy)
        self._named_fields = _named_fields(policy, self._struct.getters) if refuses_headers else []
        self._checks_nested_keys = _has_nested_messages(policy)
        self._getters = dict(zip((a.name for a in policy.value_attributes), self._struct.getters, strict=True))
        without = {a.name for a in _without_placeholder(policy)}
        self._without_placeholder = [get for name, get in self._getters.items() if name in without]
        self._readers = [scale_of(attribute).reader(policy.missing_values) for attribute in policy.clustered]
        self._unchanged_fields = [attribute.name for attribute in policy.unchanged_fields]
        numbered = list(enumerate(policy.unchanged_fields))
        typed = [(number, missing_of(a, policy.missing_values)) for number, a in numbered]
        self._with_missing = [(number, missing) for number, missing in typed if missing]
        self._integers = [number for number, a in numbered if a.type == "integer"]
        self._json = [number for number, a in numbered if a.type == "json" and a.name in self._getters]
        self._subject = None if policy.subject is None else policy.subject.name
        self._envelope_reader = EnvelopeReader(policy.envelope_attributes, max_bytes, policy.missing_values)

    def decode(self, messages: Sequence[bytes | None], envelopes: Sequence[Envelope] | None = None) -> Block:
        """Return the accepted records of messages, and the index and reason of each rejected message.

        ``messages`` are values, None for a message without one. ``envelopes`` are required if the policy reads
        keys, headers or timestamps. Of several faults, a value that is too long, no JSON or of a wrong type
        decides first, then the envelope, then bounds and limits. No content of a message raises an error. Cost:
        about half the time of `json.loads`; it is least with about 500 messages per call.
        """
        if self._policy.envelope_attributes and envelopes is None:
            raise ParameterError("the policy reads keys, headers or timestamps: pass envelopes with the values")
        left_out: list[tuple[int, Reason | DropReason]] = []
        indexes, records = self._decode_records(messages, left_out)
        rejected = [(index, reason) for index, reason in left_out if isinstance(reason, Reason)]
        dropped = sorted((index, reason) for index, reason in left_out if isinstance(reason, DropReason))
        if headers := self._find_headers(records):
            rejected += [(indexes[i], Reason.INVALID) for i in headers]
            indexes, records = _remove(indexes, headers), _remove(records, headers)
        columns: Columns = {}
        if self._policy.envelope_attributes and envelopes is not None:
            columns, envelope_faults = self._envelope_reader.read([envelopes[i] for i in indexes])
            if envelope_faults:
                rejected += [(indexes[i], reason) for i, reason in envelope_faults.items()]
                indexes, records = _remove(indexes, envelope_faults), _remove(records, envelope_faults)
                columns = {name: _remove(column, envelope_faults) for name, column in columns.items()}
        block = self._builder.build(self._parsed_records(indexes, records, columns, rejected), rejected)
        return replace(block, dropped=dropped) if dropped else block

    def explain(self, message: bytes, envelope: Envelope | None = None) -> list[RecordFault]:
        """Return why a message was rejected; see `find_json_faults`."""
        return find_json_faults(self._policy, message, envelope)

    def build(self, parsed: ParsedRecords) -> Block:
        """Return the block of records whose fields another format has given types, as if they had been messages."""
        return self._builder.build(parsed, [])

    def _decode_records(
        self, messages: Sequence[bytes | None], left_out: list[tuple[int, Reason | DropReason]]
    ) -> tuple[Sequence[int], Sequence[Any]]:
        """Return the indexes and the typed records of the messages whose values have the types of the policy."""
        indexes, payloads = self._reject_by_size(messages, left_out)
        if self._has_envelopes:
            unwrapped = list(zip(indexes, map(self._unwrap, payloads), strict=True))
            left_out += [(index, record) for index, record in unwrapped if not isinstance(record, bytes)]
            found = [(index, record) for index, record in unwrapped if isinstance(record, bytes)]
            indexes, payloads = [index for index, _ in found], [record for _, record in found]
        if self._policy.skip and (skipped := [i for i, record in enumerate(payloads) if self._is_skipped(record)]):
            left_out += [(indexes[i], DropReason.SKIP) for i in skipped]
            indexes, payloads = _remove(indexes, skipped), _remove(payloads, skipped)
        records, failed = _decode_each(self._struct.decode, payloads)
        if failed:
            left_out += [(indexes[i], rejection_reason(payloads[i])) for i in failed]
            indexes, payloads = _remove(indexes, failed), _remove(payloads, failed)
        if self._has_envelopes:  # then the whole messages are checked already
            without = [i for i, record in enumerate(payloads) if self._lacks_value(record, records[i])]
            left_out += [(indexes[i], Reason.INVALID) for i in without]
            return _remove(indexes, without), _remove(records, without)
        invalid = []
        for i in prescreen(payloads, self._struct.count_keys(records)):
            if reason := validate_strictly(payloads[i], checks_nested_keys=self._checks_nested_keys):
                invalid.append(i)
                left_out.append((indexes[i], reason))
        if invalid:
            indexes, records = _remove(indexes, invalid), _remove(records, invalid)
        return indexes, records

    def _lacks_value(self, payload: bytes, record: object) -> bool:
        """Return whether a field holds Debezium's placeholder for a large value that has not changed."""
        if PLACEHOLDER.encode() not in payload:
            return False
        return any(_is_text(get(record), PLACEHOLDER) for get in self._without_placeholder)

    def _find_headers(self, records: Sequence[Any]) -> list[int]:
        """Return the indexes of records in which each field has its own name as its value. Cost: 40 ns per record."""
        if not self._named_fields:
            return []
        get_first, first = self._named_fields[0]
        if first not in map(get_first, records):
            return []
        return [i for i, record in enumerate(records) if all(_is_text(get(record), n) for get, n in self._named_fields)]

    def _reject_by_size(
        self, messages: Sequence[bytes | None], left_out: list[tuple[int, Reason | DropReason]]
    ) -> tuple[Sequence[int], Sequence[bytes]]:
        """Leave out messages without a value or with too large a value; return indexes and values of the others."""
        if None not in messages and max(map(len, messages), default=0) <= self._max_bytes:  # type: ignore[arg-type]
            return range(len(messages)), messages  # type: ignore[return-value]  # no None among them
        indexes, payloads = [], []
        for i, message in enumerate(messages):
            if message is None:
                left_out.append((i, self._unwrap.tombstone))
            elif len(message) > self._max_bytes:
                left_out.append((i, Reason.TOO_LARGE))
            else:
                indexes.append(i)
                payloads.append(message)
        return indexes, payloads

    def _parsed_records(
        self, indexes: Sequence[int], records: Sequence[Any], columns: Columns, rejected: list[tuple[int, Reason]]
    ) -> ParsedRecords:
        """Return the columns of the decoded records that have valid unchanged fields."""
        count = len(records)

        def column(name: str) -> Iterable[Any]:
            get = self._getters.get(name)
            return columns[name] if get is None else map(get, records)

        def clustered_column(reader: ScaleReader) -> ScaleColumn:
            get = self._getters.get(reader.attribute.name)
            return reader.read_part(columns[reader.attribute.name]) if get is None else reader.read(map(get, records))

        values, categories = stack_columns(list(map(clustered_column, self._readers)), count)
        unchanged_columns = [list(column(name)) for name in self._unchanged_fields]
        has_texts = self._json or self._with_missing
        is_valid = self._convert_texts(unchanged_columns, count) if has_texts else None
        parsed = ParsedRecords(
            index=np.array(indexes, dtype=np.int64),
            values=values,
            subjects=None if self._subject is None else list(column(self._subject)),
            unchanged_columns=unchanged_columns,
            categories=categories,
        )
        if is_valid is not None:
            parsed = reject_unless(is_valid, parsed, Reason.INVALID, rejected)
        return self._reject_fractions(parsed, rejected)

    def _convert_texts(self, columns: list[list[Any]], count: int) -> BoolVector:
        """Convert type json to canonical texts, and texts that mean null; return which records have no other texts."""
        is_valid = np.ones(count, np.bool_)
        for number, missing in self._with_missing:
            columns[number] = [None if type(value) is str and value in missing else value for value in columns[number]]
            is_valid &= to_mask((type(value) is not str for value in columns[number]), count)
        for number in self._json:
            columns[number] = list(map(json_or_mismatch, map(bytes, columns[number])))
            is_valid &= to_mask((text is not MISMATCH for text in columns[number]), count)
        return is_valid

    def _reject_fractions(self, parsed: ParsedRecords, rejected: list[tuple[int, Reason]]) -> ParsedRecords:
        """Return the records without fractions in integer fields."""
        columns = [parsed.unchanged_columns[number] for number in self._integers]
        float_columns = [column for column in columns if float in set(map(type, column))]
        if not float_columns:
            return parsed
        are_integers = (all(map(_is_integer_or_null, numbers)) for numbers in zip(*float_columns, strict=True))
        return reject_unless(to_mask(are_integers, len(parsed)), parsed, Reason.INVALID, rejected)


def find_json_faults(
    policy: Policy, message: bytes, envelope: Envelope | None = None, *, in_array: bool = False
) -> list[RecordFault]:
    """Return why a message was rejected: one fault for each field, or one for the whole record.

    ``in_array``: the file opens with an array, of which this line is a part.
    """
    record, content, fault = _find_record(policy, message, in_array=in_array)
    fault = fault or _find_fault_of_whole(policy, record)
    if fault is not None:
        return [fault]
    described = ((a.name, _describe_field(policy, a, record, content)) for a in policy.value_attributes)
    found = [RecordFault(reason, name) for name, reason in described if reason]
    if policy.undeclared == "quarantine" and (names := _undeclared(policy, record)):
        dotted = {".".join(a.path) for a in policy.value_attributes if RecordFault(FaultReason.DOTTED, a.name) in found}
        if names := [name for name in names if name not in dotted]:
            reason = FaultReason.DELETED if names == [DELETED_FIELD] else FaultReason.UNDECLARED
            found.append(RecordFault(reason, names=tuple(names)))
    if not found and envelope is not None:
        found = EnvelopeReader(policy.envelope_attributes, DEFAULT_MAX_BYTES).explain(policy, envelope)
    return found or [RecordFault(FaultReason.ENVELOPE if policy.envelope_attributes else FaultReason.UNKNOWN)]


def _describe_field(policy: Policy, attribute: Attribute, record: dict[str, Any], content: bytes) -> str:
    """Return what is wrong with a field of a record, whose text is ``content``; empty if it is valid."""
    value = _value_at(record, attribute.path)
    if value is msgspec.UNSET:
        is_flat = len(attribute.path) > 1 and ".".join(attribute.path) in record
        return describe_missing(attribute, FaultReason.DOTTED if is_flat else FaultReason.ABSENT)
    if value == PLACEHOLDER and attribute in _without_placeholder(policy):
        return FaultReason.PLACEHOLDER
    if attribute.type == "json":
        return describe_json(attribute, _text_at(content, attribute.path))
    return _describe_value(policy, attribute, value)


def _find_record(policy: Policy, message: bytes, *, in_array: bool) -> tuple[dict[str, Any], bytes, RecordFault | None]:
    """Return fields and text of the record in a message, and why the message has none; None if it has one."""
    fields, fault = _decode_object(message, checks_nested_keys=_has_nested_messages(policy), in_array=in_array)
    if fault is not None or policy.unwrap is None:
        return fields, message, fault
    content = Unwrapper(policy).find(message)
    if isinstance(content, FaultReason):
        return {}, message, RecordFault(content)
    record = _decode(content) if isinstance(content, bytes) else None
    if not isinstance(content, bytes) or not isinstance(record, dict):
        return {}, message, RecordFault(_ENVELOPE_FAULTS[policy.unwrap][0])
    return record, content, None


def _find_fault_of_whole(policy: Policy, record: dict[str, Any]) -> RecordFault | None:
    """Return the fault of an object that was made from a header, or is an envelope without fields of the policy."""
    paths = [attribute.path for attribute in policy.value_attributes]
    if len(paths) > 1 and all(_value_at(record, path) == path[-1] for path in paths):
        return RecordFault(FaultReason.FIELD_NAMES)
    envelope = _envelope_of(record) if record.keys().isdisjoint(path[0] for path in paths) else ""
    if envelope:
        return RecordFault(_ENVELOPE_FAULTS[envelope][1])
    is_export = {"partition", "offset", "value"} <= record.keys() and {path[0] for path in paths}.isdisjoint(record)
    return RecordFault(FaultReason.IN_EXPORT) if is_export else None


def _envelope_of(record: dict[str, Any]) -> str:
    """Return the value of ``unwrap`` for what has no field of the policy but the form of an envelope; else empty."""
    if record.keys() == {"schema", "payload"}:
        return (isinstance(record["payload"], dict) and _envelope_of(record["payload"])) or "connect"
    if isinstance(record.get("op"), str) and "after" in record:
        return "debezium"
    return "cloudevents" if {"specversion", "data"} <= record.keys() else ""


def _decode_object(
    message: bytes, *, checks_nested_keys: bool, in_array: bool
) -> tuple[dict[str, Any], RecordFault | None]:
    """Return the fields, and why the message is not a valid object; None if it is one."""
    try:
        record = _decode(message)
    except DECODE_ERRORS:
        record = None
    if not isinstance(record, dict):
        return {}, RecordFault(not_json(message, in_array=in_array))
    reason = validate_strictly(message, checks_nested_keys=checks_nested_keys)
    if reason is None:
        return record, None
    return {}, RecordFault(FaultReason.REPEATED_FIELD if reason is Reason.INVALID else FaultReason.NOT_UTF8)


def _value_at(record: dict[str, Any], path: Sequence[str]) -> Any:  # noqa: ANN401 - any JSON
    """Return the value at a path; UNSET if it is absent, as all fields of what is no object are."""
    value: Any = record
    for name in path:
        value = value.get(name, msgspec.UNSET) if isinstance(value, dict) else msgspec.UNSET
    return value


def _text_at(record: bytes, path: Sequence[str]) -> bytes:
    """Return the text of the value at a path that exists."""
    for name in path:
        record = bytes(_decode_members(record)[name])
    return record


def _undeclared(policy: Policy, record: dict[str, Any]) -> list[str]:
    """Return the fields that the policy does not declare, at any depth, as paths with dots."""
    fields = {attribute.path for attribute in policy.value_attributes} | {(_FAUST_FIELD,)}
    fields |= {(name,) for name in policy.skip}
    objects = {path[:depth] for path in fields for depth in range(len(path))}
    pending: list[tuple[tuple[str, ...], dict[str, Any]]] = [((), record)]
    found = []
    for path, members in pending:  # the list grows
        for name, value in members.items():
            if (*path, name) in objects and isinstance(value, dict):
                pending.append(((*path, name), value))
            elif (*path, name) not in fields | objects:
                found.append(".".join((*path, name)))
    return found


def _describe_value(policy: Policy, attribute: Attribute, value: Any) -> str:  # noqa: ANN401 - any JSON
    if attribute.is_clustered:
        return _describe_clustered_value(policy, attribute, value)
    if attribute.role is Role.IDENTIFIER:
        return describe_subject(policy, attribute, value) if attribute.subject else ""
    return "" if value is None else _describe_unchanged_value(policy, attribute, value)


def _describe_clustered_value(policy: Policy, attribute: Attribute, value: Any) -> str:  # noqa: ANN401 - any JSON
    if value is None:
        return describe_missing(attribute, FaultReason.NULL)
    if type(value) is str and value in policy.missing_values:
        return describe_missing(attribute, FaultReason.MISSING_VALUE if value else FaultReason.EMPTY)
    scale = scale_of(attribute)
    if scale.is_amount and _is_connect_decimal(policy, value):
        return FaultReason.CONNECT_DECIMAL
    if isinstance(value, list | dict):
        return FaultReason.NESTED
    found = scale.reader(policy.missing_values).read_value(value)
    if np.isnan(found):
        return describe_missing(attribute, FaultReason.MISSING_VALUE)
    return describe_clustered(attribute, found, value)


def _is_connect_decimal(policy: Policy, value: Any) -> bool:  # noqa: ANN401 - any JSON
    """Return whether a value has the form in which Debezium and Kafka Connect write a decimal: bytes in base64."""
    if isinstance(value, dict):
        return value.keys() == {"scale", "value"}
    return policy.unwrap in {"debezium", "connect"} and type(value) is str


def _describe_unchanged_value(policy: Policy, attribute: Attribute, value: Any) -> str:  # noqa: ANN401 - any JSON
    if isinstance(value, NumberText):
        value = float(value)
        if not np.isfinite(value):
            return NOT_FINITE.reason
    if isinstance(value, list | dict):
        return FaultReason.NESTED
    if type(value) is str and value in missing_of(attribute, policy.missing_values):
        return describe_unplaced(policy, attribute, None)
    is_of_type = type(value) in get_args(_UNCHANGED_TYPES[attribute.type])
    is_of_type &= attribute.type != "integer" or _is_integer_or_null(value)
    return describe_unplaced(policy, attribute, value) if is_of_type else FaultReason(f"not of type {attribute.type}")


def _find_message_faults(policy: Policy, value: bytes | None, envelope: RecordedEnvelope) -> list[RecordFault]:
    if envelope.fault is not None:
        return [RecordFault(envelope.fault)]
    return [RecordFault(FaultReason.TOMBSTONE)] if value is None else find_json_faults(policy, value, envelope)


def _field_type(policy: Policy, attribute: Attribute) -> Any:  # noqa: ANN401 - a type or a union of types
    """Return the type that the value of an attribute must have in JSON."""
    if attribute.is_clustered:
        return scale_of(attribute).json_type
    if attribute.role is not Role.IDENTIFIER:
        kind = _UNCHANGED_TYPES[attribute.type]
        return kind | str if missing_of(attribute, policy.missing_values) else kind
    if not attribute.subject:
        return msgspec.Raw
    return str if attribute.type == "string" else Any


def _named_fields(policy: Policy, getters: Sequence[Callable[[Any], Any]]) -> list[tuple[Callable[[Any], Any], str]]:
    """Return getter and name of each declared field, texts first; none if a field cannot have its name as its value."""
    fields = list(zip(policy.value_attributes, getters, strict=True))
    types = [_field_type(policy, attribute) for attribute, _ in fields]
    if len(fields) < 2 or not all(kind in {Any, str, msgspec.Raw} or str in get_args(kind) for kind in types):  # noqa: PLR2004
        return []
    ordered = sorted(zip(types, fields, strict=True), key=lambda one: one[0] is msgspec.Raw)
    return [(get, attribute.path[-1]) for _, (attribute, get) in ordered]


def _without_placeholder(policy: Policy) -> list[Attribute]:
    """Return the attributes that must not hold Debezium's placeholder; a clustered one may if it means missing."""
    if policy.unwrap != "debezium":
        return []
    may_be_missing = PLACEHOLDER in policy.missing_values
    return [
        a
        for a in policy.attributes
        if a.subject or (a.role is not Role.IDENTIFIER and not (a.is_clustered and may_be_missing))
    ]


def _is_text(value: object, text: str) -> bool:
    """Whether a value of a decoded record is a text, and this one."""
    if isinstance(value, msgspec.Raw):
        value = msgspec.json.decode(value) if bytes(value).startswith(b'"') else None
    return type(value) is str and value == text


def _is_integer_or_null(number: object) -> bool:
    """Whether a number or null is no fraction; 42.0 is none."""
    return not isinstance(number, float) or number.is_integer()


def _decode_each(decode: Callable[[bytes], Any], payloads: Iterable[bytes]) -> tuple[list[Any], list[int]]:
    """Decode payloads. Return the decoded records, and the indexes of the payloads that cannot be decoded."""
    records: list[Any] = []
    failed: list[int] = []
    decoded = map(decode, payloads)
    while True:
        try:
            # If this raises an error, the list keeps the records so far, and the map continues with the next payload.
            records.extend(decoded)
        except DECODE_ERRORS:
            failed.append(len(records) + len(failed))
        else:
            return records, failed


def _remove(items: Sequence[Any], indexes: Iterable[int]) -> list[Any]:
    """Return the items without those at these indexes."""
    removed = set(indexes)
    return [item for index, item in enumerate(items) if index not in removed]


def _nested_fields(attributes: Sequence[Attribute]) -> list[OutputField]:
    """Return the fields of a record in the order of the output; an object stands where its first field is declared."""
    paths = {attribute.to: attribute for attribute in attributes}
    ordered = list(_ordered(paths))
    fields = []
    for number, path in enumerate(ordered):
        before = _common(path, ordered[number - 1] if number else ())
        after = _common(path, ordered[number + 1] if number + 1 < len(ordered) else ())
        fields.append(OutputField(paths[path], path[before:-1], len(path) - 1 - after))
    return fields


def _ordered(paths: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Yield paths so that those into one object are adjacent, at any depth."""
    below: dict[str, list[tuple[str, ...]]] = {}
    for path in paths:
        below.setdefault(path[0], []).append(path[1:])
    for name, rests in below.items():
        yield from ((name, *rest) for rest in (rests if rests == [()] else _ordered(rests)))


def _common(path: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Return how many objects, the outermost first, contain both fields."""
    common = 0
    for name, other_name in zip(path[:-1], other[:-1], strict=False):
        if name != other_name:
            break
        common += 1
    return common


def _json_template(field: OutputField) -> bytes:
    """Return the template of a field with the objects that it opens and closes; ``%b`` stands for the value."""
    names = [msgspec.json.encode(name).replace(b"%", b"%%") for name in (*field.opens, field.attribute.to[-1])]
    return b":{".join(names) + b":%b" + b"}" * field.closes


def _encode_json_texts(texts: Sequence[str | None]) -> list[bytes]:
    return [b"null" if text is None else text.encode() for text in texts]


def _has_nested_messages(policy: Policy) -> bool:
    """Return whether no key may be repeated at any depth: records have envelopes, or fields inside objects."""
    return policy.unwrap is not None or any(len(attribute.path) > 1 for attribute in policy.value_attributes)


@dataclass(slots=True)
class _Node:
    """A key of a record: of a field, or of an object with fields."""

    attribute: str
    """Name of the key in the Struct, because a key need not be a Python identifier."""
    declared: Attribute | None = None
    children: dict[str, _Node] = field(default_factory=dict)

    def is_optional(self) -> bool:
        """Whether the key may be absent: an object may if all fields in it may."""
        if self.declared is not None:
            return self.declared.may_be_missing
        return all(child.is_optional() for child in self.children.values())

    def names(self) -> Iterator[str]:
        """Yield the keys inside this object, at any depth."""
        for name, child in self.children.items():
            yield name
            yield from child.names()


class _Skipper:
    """Tells whether a record has one of the texts of ``skip`` in their fields of its outermost object.

    What is not strict JSON, or repeats a key, is not skipped: the decoder rejects it. Cost: 0.1 µs per record without
    such a field, 1 µs with one.
    """

    def __init__(self, policy: Policy) -> None:
        self._fields = [(name, name.encode(), frozenset(texts)) for name, texts in policy.skip.items()]
        self._checks_nested_keys = _has_nested_messages(policy)

    def __call__(self, record: bytes) -> bool:
        # A name with a character of its own can be written with an escape.
        if b"\\" not in record and not any(name in record for _, name, _ in self._fields):
            return False
        members = decode_members(record)
        found = any(name in members and _text_of_member(members[name]) in texts for name, _, texts in self._fields)
        return found and validate_strictly(record, checks_nested_keys=self._checks_nested_keys) is None


def _text_of_member(value: msgspec.Raw) -> str | None:
    """Return a string, or the text of a truth value or whole number; None for any other value."""
    found = _decode(value)
    return text_of(float(found)) if isinstance(found, NumberText) else text_of(found)


class _RecordStruct:
    """Decodes records to Structs of msgspec, one Struct for each object that contains declared fields.

    ``decode`` raises an error for other types than declared, and for undeclared fields that the policy rejects; it
    does not find a key that occurs twice (see `prescreen`). ``getters`` return the values of fields; UNSET if
    absent.
    """

    def __init__(self, policy: Policy) -> None:
        self._rejects_undeclared = policy.undeclared == "quarantine"
        self._ignored = {_FAUST_FIELD, *policy.skip}
        self._root, self._type_of = _Node(""), partial(_field_type, policy)
        lines = list(map(self._insert, policy.value_attributes))
        self.getters = [_getter(line) for line in lines]
        self._optional = list(_optional_lines(self._root, ()))
        names = list(self._root.names())
        self._n_keys = len(names)
        known = [*names, *self._ignored]
        needs_escapes = any(character in '"\\' or character < " " for name in known for character in name)
        struct = self._define(self._root, has_keys=not needs_escapes)
        decode: Callable[[bytes], Any] = msgspec.json.Decoder(struct, float_hook=NumberText).decode
        # A Struct cannot have keys that need escapes in JSON: its own names replace them before the record is decoded.
        self.decode = decode if not needs_escapes else lambda message: decode(self._rename(self._root, message))

    def count_keys(self, records: Sequence[Any]) -> int | Int64Vector:
        """Return how many declared keys each record has, with those of objects; one number if all have as many."""
        if not self._optional:
            return self._n_keys
        counts = np.full(len(records), self._n_keys, np.int64)
        for line in self._optional:
            values = list(map(_getter(line), records))
            if msgspec.UNSET in values:
                counts -= np.fromiter((value is msgspec.UNSET for value in values), np.bool_, len(records))
        return counts

    def _insert(self, declared: Attribute) -> tuple[_Node, ...]:
        """Add a field to the tree; return the nodes from the outermost object to it."""
        node, line = self._root, []
        for name in declared.path:
            node = node.children.setdefault(name, _Node(f"f{len(node.children)}"))
            line.append(node)
        node.declared = declared
        return tuple(line)

    def _define(self, node: _Node, *, has_keys: bool) -> type[msgspec.Struct]:
        """Return the Struct of an object, with its keys or with the attributes of the Struct in place of them."""
        required: list[Any] = []
        optional: list[Any] = []
        keys = {}
        for name, child in node.children.items():
            kind = self._define(child, has_keys=has_keys) if child.declared is None else self._type_of(child.declared)
            keys[child.attribute] = name
            if not child.is_optional():
                required.append((child.attribute, kind))
            else:
                optional.append((child.attribute, kind | None if child.declared is None else kind, msgspec.UNSET))
        if node is self._root and self._rejects_undeclared:
            for number, name in enumerate(sorted(self._ignored - node.children.keys())):
                optional.append((f"ignored{number}", msgspec.Raw, msgspec.UNSET))
                keys[f"ignored{number}"] = name
        return msgspec.defstruct(
            "Record",
            [*required, *optional],
            rename=keys if has_keys else None,
            forbid_unknown_fields=self._rejects_undeclared,
            gc=False,
        )

    def _rename(self, node: _Node, text: bytes) -> bytes:
        """Replace keys by the names in the Struct; leave undeclared fields out, or raise if they are rejected."""
        if node.declared is not None or (node is not self._root and not text.startswith(b"{")):
            return text
        values = _decode_members(text)
        ignored = self._ignored if node is self._root else set()
        if self._rejects_undeclared and not values.keys() <= node.children.keys() | ignored:
            raise msgspec.ValidationError
        renamed = [
            b'"%b":%b' % (child.attribute.encode(), self._rename(child, bytes(values[name])))
            for name, child in node.children.items()
            if name in values
        ]
        return b"{" + b",".join(renamed) + b"}"


def _optional_lines(node: _Node, line: tuple[_Node, ...]) -> Iterator[tuple[_Node, ...]]:
    """Yield the nodes from the outermost object to each key that may be absent."""
    for child in node.children.values():
        if child.is_optional():
            yield (*line, child)
        yield from _optional_lines(child, (*line, child))


def _getter(line: Sequence[_Node]) -> Callable[[Any], Any]:
    """Return the function that returns the value of a key, or UNSET if the record does not have the key."""
    names = [node.attribute for node in line]
    if not any(node.is_optional() for node in line[:-1]):
        return attrgetter(".".join(names))

    def get(record: Any) -> Any:  # noqa: ANN401 - a Struct that is defined at run time
        for name in names[:-1]:
            record = getattr(record, name)
            if record is None or record is msgspec.UNSET:
                return msgspec.UNSET
        return getattr(record, names[-1])

    return get
