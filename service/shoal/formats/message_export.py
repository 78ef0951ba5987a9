"""`MessageExportReader`: read messages with key, headers and timestamp from a file of JSON lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import msgspec

from shoal.errors import InputError
from shoal.formats.block import FaultReason, Reason
from shoal.formats.json import DEFAULT_MAX_BYTES, JsonLinesReader
from shoal.formats.json_text import validate_strictly
from shoal.policy import MessagePart, Policy

__all__ = ["MessageExportReader", "RecordedEnvelope"]

MAX_LINE_BYTES = 16 * DEFAULT_MAX_BYTES
"""A longer line is not parsed; its record is too large."""

_FIELDS = frozenset({"value", "key", "headers", "timestamp", "partition", "offset"})
_FIELD_OF = {MessagePart.KEY: "key", MessagePart.HEADER: "headers", MessagePart.TIMESTAMP: "timestamp"}
_INVALID_UTF8 = b"\xff"
"""Takes the place of bytes that are not UTF-8, which JSON cannot contain."""
_INVALID_RECORD = b"[]"
"""Value of a line that is JSON but not a message. A decoder rejects it as invalid."""
_MAX_DEPTH = 65
"""One more than the depth of a record, because the record is nested in the line."""

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_TIMESTAMP = re.compile(rb"-?[0-9]{1,18}")
_decode_any = msgspec.json.Decoder(msgspec.Raw).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_headers = msgspec.json.Decoder(list[tuple[str, msgspec.Raw]]).decode


@dataclass(frozen=True, slots=True)
class RecordedEnvelope:
    """The envelope of an exported message, or why its line is no message."""

    key: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int
    fault: FaultReason | None = None


_EMPTY_ENVELOPE = RecordedEnvelope(None, (), -1)
_NO_MESSAGE = RecordedEnvelope(None, (), -1, FaultReason.NOT_MESSAGE)


class MessageExportReader:
    """Exported messages with their envelopes, in the format that `shoal verify` reads too.

    Each line is a JSON object with the fields

    - ``value``: the record, its text, or null;
    - ``key``: a text or null;
    - ``headers``: a list of ``[name, text or null]``;
    - ``timestamp``: ms;
    - ``partition`` and ``offset``: ignored.

    ``value`` is required, and so are the fields that the policy reads. An object in place of a text stands for bytes
    that are not UTF-8. The first line decides whether the file has this format. Any other line that does not have it
    becomes an undecodable or invalid record.

    Parameters
    ----------
    stream : binary file object
        It is not closed.
    policy : Policy
        Its envelope attributes.
    name : str
        Name of the file in errors.

    Yields
    ------
    (list of bytes or None, list of RecordedEnvelope)
        1 to 512 values and their envelopes, as soon as they have arrived.

    Raises
    ------
    InputError
        The first line is not such an object. The content of the fields is checked by the decoder.
    """

    def __init__(self, stream: BinaryIO, policy: Policy, *, name: str = "input") -> None:
        self._lines = JsonLinesReader(stream, max_bytes=MAX_LINE_BYTES)
        self._name = name
        self._required = {_FIELD_OF[a.source.part]: a for a in reversed(policy.envelope_attributes)}
        self._line_number = 0

    def __iter__(self) -> Iterator[tuple[Sequence[bytes | None], Sequence[RecordedEnvelope]]]:
        for lines in self._lines:
            messages = list(map(self._parse, lines))
            yield [value for value, _ in messages], [envelope for _, envelope in messages]

    def _parse(self, line: bytes) -> tuple[bytes | None, RecordedEnvelope]:
        self._line_number += 1
        if len(line) > MAX_LINE_BYTES:
            return line, _EMPTY_ENVELOPE
        if validate_strictly(line, _MAX_DEPTH) is None:
            fields = _parse_fields(line)
        else:
            line = _STRING.sub(_replace_lone_surrogate, line)
            fields = _parse_fields(line) if validate_strictly(line, _MAX_DEPTH) is None else {}
        required = {"value", *self._required}
        if self._line_number == 1 and not required <= fields.keys():
            raise self._error(next((name for name in ("value", *self._required) if name not in fields), ""))
        if not required <= fields.keys() <= _FIELDS:
            return (_INVALID_RECORD, _NO_MESSAGE) if _is_json(line) else (_INVALID_UTF8, _EMPTY_ENVELOPE)
        try:
            envelope = self._envelope(fields)
        except (msgspec.MsgspecError, ValueError):
            return _INVALID_RECORD, _NO_MESSAGE
        value = bytes(fields["value"])
        return (value if value.startswith(b"{") else _content_of(fields["value"])), envelope

    def _envelope(self, fields: dict[str, msgspec.Raw]) -> RecordedEnvelope:
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


def _parse_fields(line: bytes) -> dict[str, msgspec.Raw]:
    """Return the fields of a line; none if the line is not an object."""
    try:
        return _decode_members(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}


def _is_json(line: bytes) -> bool:
    try:
        _decode_any(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return validate_strictly(line, _MAX_DEPTH) is not Reason.UNDECODABLE


def _replace_lone_surrogate(string: re.Match[bytes]) -> bytes:
    """Replace a string with a lone surrogate, which some exports write for invalid bytes, by a list.

    A list in place of a text stands for bytes that are not UTF-8.
    """
    try:
        _decode_text(string[0]).encode()
    except (msgspec.MsgspecError, ValueError):
        return b"[]"
    return string[0]


def _content_of(text: msgspec.Raw) -> bytes | None:
    """Return the bytes of a key, header or value that is written as a JSON text; None for null."""
    written = bytes(text)
    if written == b"null":
        return None
    try:
        return _decode_text(written).encode()
    except (msgspec.MsgspecError, ValueError):
        return _INVALID_UTF8
