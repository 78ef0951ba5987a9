"""Messages around records: key, headers and timestamp; exported messages; the envelopes of other programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, TypeAlias

import msgspec

from shoal.errors import InputError
from shoal.formats.block import MISMATCH, blank_missing, parse_values
from shoal.formats.causes import describe_cell
from shoal.formats.faults import DropReason, FaultReason, Reason, RecordFault
from shoal.formats.format import DEFAULT_MAX_BYTES, JsonLinesReader
from shoal.formats.json_text import DECODE_ERRORS, MAX_DEPTH, decode_members, rejection_reason, validate_strictly
from shoal.policy import Attribute, MessagePart, Policy, Role

Columns: TypeAlias = dict[str, Sequence[Any]]
Members: TypeAlias = Mapping[str, msgspec.Raw]

_MAX_LINE_BYTES = 16 * DEFAULT_MAX_BYTES
"""A longer line is not parsed; its record is too large."""

_FIELDS = frozenset({"value", "key", "headers", "timestamp", "topic", "partition", "offset"})
_FIELD_OF = {MessagePart.KEY: "key", MessagePart.HEADER: "headers", MessagePart.TIMESTAMP: "timestamp"}
_INVALID_UTF8 = b"\xff"
"""Takes the place of bytes that are not UTF-8, which JSON cannot contain."""
_INVALID_RECORD = b"[]"
"""Value of a line that is JSON but not a message. A decoder rejects it as invalid."""
_MAX_LINE_DEPTH = MAX_DEPTH + 1
"""One more than the depth of a record, because the record is nested in the line."""
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_TIMESTAMP = re.compile(rb"-?[0-9]{1,18}")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Characters that no text has: a key or header with one is a number or another binary value."""
_NULL = b"null"
_CONVERTED = {"schema", "payload"}
"""Members of the object that Kafka Connect's JsonConverter writes with ``schemas.enable``."""
_LENGTH_WITHOUT_VALUES = len(b'{"schema":,"payload":}')

_decode_text = msgspec.json.Decoder(str).decode
_decode_headers = msgspec.json.Decoder(list[tuple[str, msgspec.Raw]]).decode


class Envelope(Protocol):
    """A message without its value."""

    @property
    def key(self) -> bytes | None:
        """Key of the message."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """Headers in order; a name may occur twice."""

    @property
    def timestamp(self) -> int:
        """Timestamp of the broker in ms; negative if the message has none."""


@dataclass(slots=True)
class EnvelopeReader:
    """Reads attributes from key, headers and timestamp; ``max_bytes`` limits a key and a header."""

    attributes: Sequence[Attribute]
    max_bytes: int
    missing_values: Sequence[str] = ()

    def read(self, envelopes: Sequence[Envelope]) -> tuple[Columns, dict[int, Reason]]:
        """Return values by name of attribute, and the reasons of rejected envelopes, whose values mean nothing.

        Unchanged fields have values of their types, the timestamp is int, and all others are texts. Cost: about
        0.5 µs per attribute and envelope.
        """
        rejected: dict[int, Reason] = {}
        return {a.name: self._read_column(a, envelopes, rejected) for a in self.attributes}, rejected

    def _read_column(
        self, attribute: Attribute, envelopes: Sequence[Envelope], rejected: dict[int, Reason]
    ) -> Sequence[Any]:
        if attribute.source.part is MessagePart.TIMESTAMP:
            times = [envelope.timestamp for envelope in envelopes]
            _reject(rejected, (index for index, time in enumerate(times) if time < 0))
            return times
        cells = self._read_cells(_part_getter(attribute), envelopes, rejected)
        if attribute.role is Role.IDENTIFIER or attribute.is_clustered:
            return cells
        values, all_match = parse_values(blank_missing(cells, attribute, self.missing_values), attribute.type)
        if not all_match:
            _reject(rejected, (index for index, value in enumerate(values) if value is MISMATCH))
        return values

    def explain(self, policy: Policy, envelope: Envelope) -> list[RecordFault]:
        """Return what is wrong with the parts of an envelope, one fault for each attribute; empty if nothing is."""
        found = ((attribute, self._describe(policy, attribute, envelope)) for attribute in self.attributes)
        return [RecordFault(reason, attribute.name) for attribute, reason in found if reason]

    def _describe(self, policy: Policy, attribute: Attribute, envelope: Envelope) -> str:
        if attribute.source.part is MessagePart.TIMESTAMP:
            return FaultReason.NO_TIMESTAMP if envelope.timestamp < 0 else ""
        is_key = attribute.source.part is MessagePart.KEY
        content = _part_getter(attribute)(envelope)
        if content is None:
            return FaultReason.NO_KEY if is_key else FaultReason.NO_HEADER
        cell, reason = self._decode_cell(content)
        if reason is Reason.TOO_LARGE:
            return FaultReason.LONG_PART
        if reason is not None:
            return FaultReason.BINARY_KEY if is_key else FaultReason.BINARY_HEADER
        return describe_cell(policy, attribute, cell)

    def _read_cells(
        self, get: Callable[[Envelope], bytes | None], envelopes: Sequence[Envelope], rejected: dict[int, Reason]
    ) -> list[str]:
        cells: list[str] = []
        for index, content in enumerate(map(get, envelopes)):
            cell, reason = self._decode_cell(content)
            cells.append(cell)
            if reason is not None:
                rejected.setdefault(index, reason)
        return cells

    def _decode_cell(self, content: bytes | None) -> tuple[str, Reason | None]:
        if content is None:
            return "", Reason.INVALID
        if len(content) > self.max_bytes:
            return "", Reason.TOO_LARGE
        try:
            text = content.decode()
        except UnicodeDecodeError:
            return "", Reason.UNDECODABLE
        # A number of 8 bytes is text by luck: of each person or of none, it has a control character or no valid bytes.
        return (text, None) if text.isprintable() or not _CONTROL.search(text) else ("", Reason.UNDECODABLE)


class Unwrapper:
    """Finds the record in a message of Debezium, Kafka Connect or CloudEvents, or why the message has none.

    The whole message, with its envelope, must be strict JSON. Cost: about 5 µs for a message of 500 bytes.
    """

    def __init__(self, policy: Policy) -> None:
        self._kind = policy.unwrap
        self._checked_schema = b""
        self._delete = DropReason.DELETES if policy.deletes == "drop" else Reason.INVALID
        self.tombstone = DropReason.TOMBSTONES if policy.tombstones == "drop" else Reason.UNDECODABLE
        """What happens to a message without a value."""

    def __call__(self, message: bytes) -> bytes | Reason | DropReason:
        """Return the record, as the bytes of a JSON value; or why the message is rejected or dropped."""
        content = self.find(message)
        if content is FaultReason.TOMBSTONE:
            return self.tombstone
        return self._delete if isinstance(content, FaultReason) else content

    def find(self, message: bytes) -> bytes | FaultReason | Reason:
        """Return the record, or that the message is a delete or a tombstone, or why it cannot be unwrapped."""
        members = decode_members(message)
        if not members:
            return rejection_reason(message, checks_nested_keys=True)
        if reason := self._fault_of(message, members):
            return reason
        if self._kind == "cloudevents":
            return _event_data(members)
        return _payload(members) if self._kind == "connect" else _after(members)

    def _fault_of(self, message: bytes, members: Members) -> Reason | None:
        """Return why a message is not strict JSON. The schema is the same in most messages, and is checked once."""
        if members.keys() != _CONVERTED:
            return validate_strictly(message, checks_nested_keys=True)
        schema, payload = bytes(members["schema"]), bytes(members["payload"])
        # A member that occurs twice would make the message longer.
        if schema == self._checked_schema and len(message) == _LENGTH_WITHOUT_VALUES + len(schema) + len(payload):
            is_null = payload == _NULL
            return None if is_null else validate_strictly(payload, MAX_DEPTH - 1, checks_nested_keys=True)
        reason = validate_strictly(message, checks_nested_keys=True)
        if reason is None:
            self._checked_schema = schema
        return reason


@dataclass(frozen=True, slots=True)
class RecordedEnvelope:
    """The envelope of an exported message, or why its line is not a message."""

    key: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int
    fault: FaultReason | None = None


_EMPTY_ENVELOPE = RecordedEnvelope(None, (), -1)
_NO_MESSAGE = RecordedEnvelope(None, (), -1, FaultReason.NOT_MESSAGE)


class MessageExportReader:
    """Exported messages with their envelopes, in the form that `shoal verify` reads: 1 to 512 at once.

    Each line is a JSON object with ``value`` and the other fields that the policy reads (docs/files.md). An object in
    place of a text stands for bytes that are not UTF-8. The first line decides whether the file has this form: if not,
    it raises InputError. Any other line that does not have it becomes an undecodable or invalid record.
    """

    def __init__(self, stream: BinaryIO, policy: Policy, *, name: str = "input") -> None:
        self._lines = JsonLinesReader(stream, max_bytes=_MAX_LINE_BYTES)
        self._name = name
        self._required = {_FIELD_OF[a.source.part]: a for a in reversed(policy.envelope_attributes)}
        self._line_number = 0

    def __iter__(self) -> Iterator[tuple[Sequence[bytes | None], Sequence[RecordedEnvelope]]]:
        for lines in self._lines:
            messages = list(map(self._parse, lines))
            yield [value for value, _ in messages], [envelope for _, envelope in messages]

    def _parse(self, line: bytes) -> tuple[bytes | None, RecordedEnvelope]:
        self._line_number += 1
        if len(line) > _MAX_LINE_BYTES:
            return line, _EMPTY_ENVELOPE
        if validate_strictly(line, _MAX_LINE_DEPTH) is None:
            fields = decode_members(line)
        else:
            line = _STRING.sub(_replace_lone_surrogate, line)
            fields = decode_members(line) if validate_strictly(line, _MAX_LINE_DEPTH) is None else {}
        required = {"value", *self._required}
        if self._line_number == 1 and not required <= fields.keys():
            raise self._error(next((name for name in ("value", *self._required) if name not in fields), ""))
        if not required <= fields.keys() <= _FIELDS:
            is_json = rejection_reason(line, _MAX_LINE_DEPTH) is not Reason.UNDECODABLE
            return (_INVALID_RECORD, _NO_MESSAGE) if is_json else (_INVALID_UTF8, _EMPTY_ENVELOPE)
        try:
            envelope = self._envelope(fields)
        except DECODE_ERRORS:
            return _INVALID_RECORD, _NO_MESSAGE
        value = bytes(fields["value"])
        return (value if value.startswith(b"{") else _content_of(fields["value"])), envelope

    def _envelope(self, fields: Members) -> RecordedEnvelope:
        """Return the parts of the envelope that the policy reads. The others are not parsed."""
        time = bytes(fields["timestamp"]) if "timestamp" in self._required else b"-1"
        headers = _decode_headers(fields["headers"]) if "headers" in self._required else []
        return RecordedEnvelope(
            _content_of(fields["key"]) if "key" in self._required else None,
            [(name, _content_of(text)) for name, text in headers],
            int(time) if _TIMESTAMP.fullmatch(time) else -1,
        )

    def _error(self, field: str) -> InputError:
        attribute = self._required.get(field) or next(iter(self._required.values()))
        names = ", ".join(["value", *sorted(self._required)])
        return InputError(
            f"{self._name}, line {self._line_number}: not a message with {names}; attributes.{attribute.name} is read "
            f"from {attribute.source}: give a JSON object with these fields on every line, or remove 'from' from the "
            "policy"
        )


def _reject(rejected: dict[int, Reason], indexes: Iterable[int]) -> None:
    for index in indexes:
        rejected.setdefault(index, Reason.INVALID)


def _part_getter(attribute: Attribute) -> Callable[[Envelope], bytes | None]:
    """Return the function that returns the key, or the one header of the attribute's name, or None."""
    if attribute.source.part is MessagePart.KEY:
        return lambda envelope: envelope.key
    name = attribute.source.header

    def get_header(envelope: Envelope) -> bytes | None:
        contents = [content for header, content in envelope.headers if header == name]
        # With several headers of the name, it is unknown which one is meant.
        return contents[0] if len(contents) == 1 else None

    return get_header


def _payload(members: Members) -> bytes | FaultReason | Reason:
    """Return the payload of a message of JsonConverter."""
    if members.keys() != _CONVERTED:
        return Reason.INVALID
    payload = bytes(members["payload"])
    return FaultReason.TOMBSTONE if payload == _NULL else payload


def _after(members: Members) -> bytes | FaultReason | Reason:
    """Return the row after the change that a message of Debezium describes."""
    if members.keys() == _CONVERTED:
        payload = _payload(members)
        if not isinstance(payload, bytes):
            return payload
        members = decode_members(payload)
    try:
        operation = _decode_text(members["op"])
    except (KeyError, *DECODE_ERRORS):
        return Reason.INVALID
    after = bytes(members.get("after", _NULL))
    return FaultReason.DELETE if operation == "d" or after == _NULL else after


def _event_data(members: Members) -> bytes | Reason:
    """Return the data of an event in the JSON format of CloudEvents."""
    if "specversion" not in members or "data_base64" in members or "data" not in members:
        return Reason.INVALID
    return bytes(members["data"])


def _replace_lone_surrogate(string: re.Match[bytes]) -> bytes:
    """Replace a string with a lone surrogate, which some exports write for bytes that are not UTF-8, by a list."""
    try:
        _decode_text(string[0]).encode()
    except DECODE_ERRORS:
        return b"[]"
    return string[0]


def _content_of(text: msgspec.Raw) -> bytes | None:
    """Return the bytes of a key, header or value that is written as a JSON text; None for null."""
    written = bytes(text)
    if written == b"null":
        return None
    try:
        return _decode_text(written).encode()
    except DECODE_ERRORS:
        return _INVALID_UTF8
