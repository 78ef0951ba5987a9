"""Messages as lines of a file: a JSON object each, with the value and what stood around it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import msgspec

from shoal.errors import InputError
from shoal.policy import MessagePart, Policy
from shoal.records.block import Reason
from shoal.records.files import JsonLinesReader
from shoal.records.json_decoder import DEFAULT_MAX_BYTES
from shoal.records.strict_json import validate_strictly

__all__ = ["MessageExportReader", "RecordedEnvelope"]

LONGEST_LINE = 16 * DEFAULT_MAX_BYTES
"""Of a longer one nothing is read: its record is too large."""

_FIELDS = frozenset({"value", "key", "headers", "timestamp", "partition", "offset"})
_FIELD_OF = {MessagePart.KEY: "key", MessagePart.HEADER: "headers", MessagePart.TIMESTAMP: "timestamp"}
_NO_TEXT = b"\xff"
"""Stands for bytes that are not UTF-8, which JSON cannot hold."""
_NO_RECORD = b"[]"
"""Stands for the value of a line that is JSON, and no message."""
_DEEPEST = 65
"""The value may be as deep as one of its own."""

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_by_name = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_text = msgspec.json.Decoder(str).decode
_well_formed = msgspec.json.Decoder(msgspec.Raw).decode
_TIME = re.compile(rb"-?[0-9]{1,18}")
_headers = msgspec.json.Decoder(list[tuple[str, msgspec.Raw]]).decode


@dataclass(frozen=True, slots=True)
class RecordedEnvelope:
    """An envelope that was written down."""

    key: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int


class MessageExportReader:
    """Messages with their envelopes, as `shoal verify` reads them.

    Each line is an object of ``value`` (the record, or its text, or null) and ``key`` (a text or null), ``headers``
    (a list of ``[name, text or null]``) and ``timestamp`` (ms), of which those must be there that the policy reads;
    ``partition`` and ``offset`` may be there. An object in place of a text stands for bytes that are not UTF-8. Whether
    it is a file of messages is told by its first line; any other that is none is an undecodable or invalid record.

    Parameters
    ----------
    stream : binary file object
        Read, not closed.
    policy : Policy
        What it reads from the envelope.
    name : str
        What to call the file in messages.

    Yields
    ------
    (list of bytes or None, list of Around)
        1 to 512 values and their envelopes, as soon as they have arrived.

    Raises
    ------
    InputError
        The first line is no such object. What stands in the parts of a message is for the decoder to judge.
    """

    def __init__(self, stream: BinaryIO, policy: Policy, *, name: str = "input") -> None:
        self._lines = JsonLinesReader(stream, max_bytes=LONGEST_LINE)
        self._name = name
        self._needed = {
            _FIELD_OF[attribute.source.part]: attribute for attribute in reversed(policy.envelope_attributes)
        }
        self._number = 0

    def __iter__(self) -> Iterator[tuple[Sequence[bytes | None], Sequence[RecordedEnvelope]]]:
        for lines in self._lines:
            pairs = list(map(self._message, lines))
            yield [value for value, _ in pairs], [around for _, around in pairs]

    def _message(self, line: bytes) -> tuple[bytes | None, RecordedEnvelope]:
        self._number += 1
        if len(line) > LONGEST_LINE:
            return line, _NOTHING
        if validate_strictly(line, _DEEPEST) is None:
            found = _parts(line)
        else:
            line = _STRING.sub(_text_or_list, line)
            found = _parts(line) if validate_strictly(line, _DEEPEST) is None else {}
        if self._number == 1 and not {"value", *self._needed} <= found.keys():
            raise self._refusal(next((name for name in ("value", *self._needed) if name not in found), ""))
        if not {"value", *self._needed} <= found.keys() <= _FIELDS:
            return (_NO_RECORD if _is_json(line) else None), _NOTHING
        try:
            around = self._around(found)
        except (msgspec.MsgspecError, ValueError):
            return _NO_RECORD, _NOTHING
        value = bytes(found["value"])
        return (value if value.startswith(b"{") else _bytes(found["value"])), around

    def _around(self, found: dict[str, msgspec.Raw]) -> RecordedEnvelope:
        """What the policy reads of the envelope; the rest is not looked at."""
        time = bytes(found["timestamp"]) if "timestamp" in self._needed else b"-1"
        return RecordedEnvelope(
            _bytes(found["key"]) if "key" in self._needed else None,
            [(name, _bytes(text)) for name, text in _headers(found["headers"])] if "headers" in self._needed else (),
            int(time) if _TIME.fullmatch(time) else -1,
        )

    def _refusal(self, field: str) -> InputError:
        attribute = self._needed.get(field) or next(iter(self._needed.values()))
        names = ", ".join(["value", *sorted(self._needed)])
        return InputError(
            f"{self._name}, line {self._number}: not a message with {names}; attributes.{attribute.name} is read from "
            f"{attribute.source}: give a JSON object of these on every line, the first among them, or leave 'from' out"
        )


_NOTHING = RecordedEnvelope(None, (), -1)


def _parts(line: bytes) -> dict[str, msgspec.Raw]:
    """Fields of a line that was looked at; none if it is no object."""
    try:
        return _by_name(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}


def _is_json(line: bytes) -> bool:
    try:
        _well_formed(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return validate_strictly(line, _DEEPEST) is not Reason.UNDECODABLE


def _text_or_list(string: re.Match[bytes]) -> bytes:
    """Put a list, which is no text to anybody, for a string with half a character: what bytes became in some export."""
    try:
        _text(string[0]).encode()
    except (msgspec.MsgspecError, ValueError):
        return b"[]"
    return string[0]


def _bytes(text: msgspec.Raw) -> bytes | None:
    """Bytes of a part of a message."""
    written = bytes(text)
    if written == b"null":
        return None
    try:
        return _text(written).encode()
    except (msgspec.MsgspecError, ValueError):
        return _NO_TEXT
