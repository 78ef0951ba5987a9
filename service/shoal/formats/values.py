"""Files that hold JSON values, not lines of JSON: an array, or objects on several lines. They are read as lines.

Such a file begins with a bracket, or with a line that holds nothing but a brace.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import BinaryIO, cast

from shoal.errors import InputError

MAX_VALUES_BYTES = 64 << 20
"""Such a file is read at once: a longer one is refused."""
_CHUNK_BYTES = 1 << 16
_BLANKS = " \t\r\n"
_BLANK_BYTES = _BLANKS.encode()
_LINE_ENDS = str.maketrans("\r\n", "  ")
# Values are only separated here, and no number is computed. A record is checked when it is decoded.
_decode_at = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str).raw_decode


def as_lines(stream: BinaryIO, name: str) -> BinaryIO:
    """Return a finished input as lines of JSON. Values of an array, or on several lines, become one line each.

    An array that is empty, or that something follows, is a line. InputError if the values cannot be separated.
    """
    read: Callable[[int], bytes] = stream.read1 if hasattr(stream, "read1") else stream.read
    head = b""
    while _is_open(head) and (chunk := read(_CHUNK_BYTES)):
        head += chunk
    if not has_values(head):
        return cast("BinaryIO", _Pieces(iter([head]), read))
    content = bytearray(head)
    while len(content) <= MAX_VALUES_BYTES and (chunk := read(_CHUNK_BYTES)):
        content += chunk
    if len(content) > MAX_VALUES_BYTES:
        raise InputError(
            f"{name}: a JSON array, or objects on several lines, in more than {MAX_VALUES_BYTES >> 20} MiB; write each "
            "object on one line: jq -c '.[]' FILE > NEW.jsonl, or jq -c . for objects without an array"
        )
    lines = list(json_values(bytes(content), name))
    return cast("BinaryIO", _Pieces(iter([bytes(content)]) if lines in ([], [None]) else _joined(lines), read))


def has_values(head: bytes) -> bool:
    """Return whether a file that begins with these bytes holds values, not lines."""
    text = head.removeprefix(codecs.BOM_UTF8).lstrip(_BLANK_BYTES)
    return text.startswith(b"[") or (text.startswith(b"{") and text[1:].lstrip(b" \t\r").startswith(b"\n"))


_NOT_JSON = (
    "not JSON (RFC 8259) in UTF-8, in an array or in objects on several lines; correct the file, or write each record "
    "as one JSON object on one line"
)


def json_values(content: bytes, name: str) -> Iterator[str | None]:
    """Yield the text of each value on one line; None alone if the content is an array that something follows."""
    try:
        text = content.removeprefix(codecs.BOM_UTF8).decode()
        found = list(_elements(text)) if text.lstrip(_BLANKS).startswith("[") else list(_sequence(text))
    except json.JSONDecodeError as error:
        raise InputError(f"{name}, line {error.lineno}: {_NOT_JSON}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{name}: {_NOT_JSON}") from None
    yield from found


def _elements(text: str) -> Iterator[str | None]:
    """Yield the elements of an array."""
    place, end = _skip(text, _skip(text, 0) + 1), 0
    found: list[str] = []
    if text[place : place + 1] != "]":
        while not end:
            _, stop = _decode_at(text, place)
            found.append(text[place:stop].translate(_LINE_ENDS))
            place = _skip(text, stop)
            if text[place : place + 1] == "]":
                end = place
            elif text[place : place + 1] != ",":
                raise json.JSONDecodeError("", text, place)
            else:
                place = _skip(text, place + 1)
    is_followed = _skip(text, (end or place) + 1) < len(text)
    yield from [None] if is_followed else found


def _sequence(text: str) -> Iterator[str]:
    place = _skip(text, 0)
    while place < len(text):
        _, stop = _decode_at(text, place)
        yield text[place:stop].translate(_LINE_ENDS)
        place = _skip(text, stop)


def _skip(text: str, place: int) -> int:
    while text[place : place + 1] and text[place] in _BLANKS:
        place += 1
    return place


def _is_open(head: bytes) -> bool:
    """Return whether it is not known yet how a file begins."""
    text = head.removeprefix(codecs.BOM_UTF8).lstrip(_BLANK_BYTES)
    return not text or (text.startswith(b"{") and not text[1:].lstrip(b" \t\r"))


def _joined(lines: list[str | None]) -> Iterator[bytes]:
    rest = iter(lines)
    while part := list(islice(rest, 512)):
        yield "".join(f"{line}\n" for line in part).encode()


class _Pieces:
    """Bytes that were read already, and then those of the stream."""

    def __init__(self, pieces: Iterator[bytes], read: Callable[[int], bytes]) -> None:
        self._pieces, self._read = pieces, read

    def read1(self, size: int) -> bytes:
        """Return the next bytes, none at the end."""
        return next(filter(None, self._pieces), b"") or self._read(size)
