"""Split streams into lines and batches as the bytes arrive, and read JSON lines.

A file is never read as a whole, and a batch is passed on without waiting until it is full.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, TypeVar

from shoal.errors import InputError
from shoal.records.json_decoder import DEFAULT_MAX_BYTES

__all__ = ["BATCH_SIZE", "JsonLinesReader", "StoppedReading", "Utf8Stream", "read_batches", "read_lines"]

BATCH_SIZE = 512
"""Maximum number of messages in a batch. The objects of about 1000 messages no longer fit the processor's cache."""

_CHUNK_BYTES = 1 << 16
_REPLACEMENT = "shoal.replacement"
codecs.register_error(_REPLACEMENT, lambda error: ("\udcff", getattr(error, "end", 1)))

Item = TypeVar("Item", bytes, list[str] | None)


class StoppedReading(Exception):  # noqa: N818 - not an error
    """Raised by a stream to stop its reader. A line or record that is incomplete is dropped."""


class JsonLinesReader:
    """The lines of a stream as messages.

    Parameters
    ----------
    stream : binary file object
        A file opened in binary mode, or a pipe. It is not closed.
    max_bytes : int
        Maximum length of a line. A longer line is cut to some bytes more, so that a decoder rejects it as too large.

    Yields
    ------
    list of bytes
        1 to 512 lines without their ends, as soon as they have arrived. Blank lines at the end of the file and a byte
        order mark at its beginning are dropped.
    """

    def __init__(self, stream: BinaryIO, *, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._stream = stream
        self._max_bytes = max_bytes

    def __iter__(self) -> Iterator[Sequence[bytes]]:
        # A line that is cut off must be too long also without a byte order mark.
        lines = read_lines(self._stream, self._max_bytes + len(codecs.BOM_UTF8))
        return read_batches(_without_byte_order_mark(lines), b"")


class Utf8Stream:
    """Converts a stream from another encoding to UTF-8.

    Bytes that cannot be decoded become the byte FF, which no UTF-8 text contains.

    Parameters
    ----------
    stream : binary file object
        Read as bytes arrive. It is not closed.
    encoding : str
        Name of a codec of the standard library.
    name : str
        Name of the stream in errors.
    """

    def __init__(self, stream: BinaryIO, encoding: str, name: str = "input") -> None:
        self._read = _reader_of(stream)
        self._encoding, self._name = encoding, name
        self._decoder = codecs.getincrementaldecoder(encoding)(_REPLACEMENT)
        self._is_at_end = False

    def read1(self, size: int) -> bytes:
        """Return at least one byte as soon as there are any, or no bytes at the end of the stream.

        Raises
        ------
        InputError
            The encoding needs a byte order mark, and the stream has none.
        """
        text = ""
        while not (text or self._is_at_end):
            chunk = self._read(size)
            self._is_at_end = not chunk
            try:
                text = self._decoder.decode(chunk, final=self._is_at_end)
            except UnicodeError:
                raise InputError(
                    f"{self._name}, line 1: no byte order mark, which {self._encoding} needs; give csv.encoding "
                    "utf-16-le or utf-16-be"
                ) from None
        return text.encode("utf-8", "surrogateescape")


def read_lines(stream: BinaryIO | Utf8Stream, max_bytes: int, line_end: bytes = b"\n") -> Iterator[list[bytes]]:
    """Yield lines without their ends as they arrive, any number at once. A longer line is cut to max_bytes + 1."""
    read = _reader_of(stream)
    rest, is_skipping = b"", False
    while chunk := read(_CHUNK_BYTES):
        if is_skipping:
            end = chunk.find(line_end)
            if end < 0:
                continue
            chunk, is_skipping = chunk[end:], False
        lines = (rest + chunk).split(line_end)
        rest = lines.pop()
        if len(rest) > max_bytes:
            rest, is_skipping = rest[: max_bytes + 1], True
        if lines:
            yield lines
    if rest:
        yield [rest]


def read_batches(parts: Iterable[Sequence[Item]], blank: Item) -> Iterator[Sequence[Item]]:
    """Yield batches of at most `BATCH_SIZE` items. Blank items at the end of the stream are dropped."""
    pending_blanks = 0
    for part in parts:
        items = _without_blank_end(part)
        if items:
            for start in range(0, pending_blanks, BATCH_SIZE):
                yield [blank] * min(BATCH_SIZE, pending_blanks - start)
            for start in range(0, len(items), BATCH_SIZE):
                yield items[start : start + BATCH_SIZE]
            pending_blanks = 0
        pending_blanks += len(part) - len(items)


def _reader_of(stream: BinaryIO | Utf8Stream) -> Callable[[int], bytes]:
    """Return the method that reads what has arrived. The stream of a followed file has no ``read1``."""
    return stream.read1 if hasattr(stream, "read1") else stream.read


def _without_byte_order_mark(parts: Iterator[list[bytes]]) -> Iterator[list[bytes]]:
    for first in parts:
        yield [first[0].removeprefix(codecs.BOM_UTF8), *first[1:]]
        yield from parts


def _without_blank_end(items: Sequence[Item]) -> Sequence[Item]:
    end = len(items)
    while end and _is_blank(items[end - 1]):
        end -= 1
    return items[:end]


def _is_blank(item: bytes | list[str] | None) -> bool:
    return not item.strip() if isinstance(item, bytes) else item == []
