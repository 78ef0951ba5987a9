"""Messages as lines of a file: a JSON object each, with the value and what stood around it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import msgspec

from shoal.errors import InputError
from shoal.policy import Place, Policy
from shoal.records.files import JsonLines
from shoal.records.json_decoder import DEFAULT_MAX_BYTES
from shoal.records.scan import closer_look

__all__ = ["Around", "WrappedLines"]

LONGEST_LINE = 16 * DEFAULT_MAX_BYTES
"""Of a longer one nothing is read: its record is too large."""

_FIELDS = frozenset({"value", "key", "headers", "timestamp", "partition", "offset"})
_FIELD_OF = {Place.KEY: "key", Place.HEADER: "headers", Place.TIMESTAMP: "timestamp"}
_NO_TEXT = b"\xff"
"""Stands for bytes that are not UTF-8, which JSON cannot hold."""

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_by_name = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_text = msgspec.json.Decoder(str).decode
_time = msgspec.json.Decoder(int).decode
_headers = msgspec.json.Decoder(list[tuple[str, msgspec.Raw]]).decode


@dataclass(frozen=True, slots=True)
class Around:
    """An envelope that was written down."""

    key: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int


class WrappedLines:
    """Messages with their envelopes, as `shoal verify` reads them.

    Each line is an object of ``value`` (the record, or its text, or null) and ``key`` (a text or null), ``headers``
    (a list of ``[name, text or null]``) and ``timestamp`` (ms), of which those must be there that the policy reads;
    ``partition`` and ``offset`` may be there. An object in place of a text stands for bytes that are not UTF-8.

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
        A line is no such object. What stands in its parts is for the decoder to judge.
    """

    def __init__(self, stream: BinaryIO, policy: Policy, *, name: str = "input") -> None:
        self._lines = JsonLines(stream, max_bytes=LONGEST_LINE)
        self._name = name
        self._needed = {_FIELD_OF[attribute.source.place]: attribute for attribute in reversed(policy.from_envelope)}
        self._number = 0

    def __iter__(self) -> Iterator[tuple[Sequence[bytes | None], Sequence[Around]]]:
        for lines in self._lines:
            pairs = list(map(self._message, lines))
            yield [value for value, _ in pairs], [around for _, around in pairs]

    def _message(self, line: bytes) -> tuple[bytes | None, Around]:
        self._number += 1
        if len(line) > LONGEST_LINE:
            return line, Around(None, (), -1)
        try:
            if closer_look(line) is not None:
                line = _STRING.sub(_text_or_list, line)
            if closer_look(line) is None:
                return self._opened(_by_name(line))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass
        raise self._refusal("value")

    def _opened(self, found: dict[str, msgspec.Raw]) -> tuple[bytes | None, Around]:
        missing = [name for name in ("value", *self._needed) if name not in found]
        if missing or not found.keys() <= _FIELDS:
            raise self._refusal(missing[0] if missing else "")
        around = Around(
            _bytes(found["key"]) if "key" in found else None,
            [(name, _bytes(text)) for name, text in _headers(found["headers"])] if "headers" in found else (),
            _time(found["timestamp"]) if "timestamp" in found else -1,
        )
        value = bytes(found["value"])
        return (value if value.startswith(b"{") else _bytes(found["value"])), around

    def _refusal(self, field: str) -> InputError:
        attribute = self._needed.get(field) or next(iter(self._needed.values()))
        names = ", ".join(["value", *sorted(self._needed)])
        return InputError(
            f"{self._name}, line {self._number}: not a message with {names}; attributes.{attribute.name} is read from "
            f"{attribute.source}: give a JSON object of these on every line, or leave 'from' out"
        )


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
