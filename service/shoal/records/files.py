"""Files and pipes to messages, a slice at a time: never the whole file, and never waiting for a full slice."""

from __future__ import annotations

import codecs
import csv
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, TypeVar

from shoal.errors import InputError
from shoal.policy import Policy
from shoal.records.backslashes import Backslashes
from shoal.records.block import SLICE
from shoal.records.csv_decoder import CsvCells
from shoal.records.encodings import Recoded
from shoal.records.json_decoder import DEFAULT_MAX_BYTES

__all__ = ["CsvReader", "JsonLinesReader", "StoppedReading"]

_CHUNK_BYTES = 1 << 16
_BOM = "\ufeff"
_LONGEST_CSV_LINE = 1 << 24
"""Bytes of memory that a file without line ends may take."""

Item = TypeVar("Item", bytes, CsvCells)


class StoppedReading(Exception):  # noqa: N818 - nothing went wrong
    """Raised by a stream that is not to be read any more; a line or record that was begun is not one."""


class JsonLinesReader:
    """The lines of a stream as messages.

    Parameters
    ----------
    stream : binary file object
        A file opened in binary mode, or a pipe; read, not closed.
    max_bytes : int
        Longest line; of a longer one only so much is kept that a decoder sees that it is too large.

    Yields
    ------
    list of bytes
        1 to 512 lines without their ends, as soon as they have arrived. Messages are identified by the number of
        their line, from 0: the sum of the lengths so far. Blank lines at the end of the file are no messages, and a
        byte order mark at its beginning is no part of the first.
    """

    def __init__(self, stream: BinaryIO, *, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._stream = stream
        self._max_bytes = max_bytes

    def __iter__(self) -> Iterator[Sequence[bytes]]:
        return _slices(_unmarked(_lines(self._stream, self._max_bytes)), b"")


class CsvReader:
    """The records of a CSV file as lists of cells.

    In the policy's dialect (a byte order mark is tolerated), with one header line with the names of the policy. A
    quoted cell that is never closed takes up to 131,072 characters of what follows with it, as one record.

    Parameters
    ----------
    stream : binary file object
        A file opened in binary mode, or a pipe; read, not closed. The header is read at once.
    policy : Policy
    name : str
        What to call the file in messages.

    Attributes
    ----------
    columns : tuple of str
        The header, for `CsvDecoder`.

    Yields
    ------
    list of (list of str, or None)
        The cells of 1 to 512 records, as soon as they have arrived; None for broken quoting, bytes that are not
        UTF-8 or a cell of more than 131,072 characters. Records are identified by their number, from 0, not
        counting the header: the sum of the lengths so far. Blank lines at the end of the file are no records.

    Raises
    ------
    InputError
        The header is missing or does not fit the policy.
    """

    def __init__(self, stream: BinaryIO, policy: Policy, *, name: str = "input") -> None:
        dialect = policy.csv
        is_utf8 = dialect.encoding in {"utf-8", "utf-8-sig"}
        # A line feed ends lines with a carriage return before it too.
        self._end = "\r" if dialect.line_end == "\r" else "\n"
        source = stream if is_utf8 else Recoded(stream, dialect.encoding, name)
        self._slices = _lines(source, _LONGEST_CSV_LINE, self._end.encode())
        self._pending: deque[str] = deque()
        self._read, self._longer = 0, array("q")
        self._broken_bytes = False
        self._ends_with_returns = False
        self._backslashes = Backslashes(dialect.quote, dialect.delimiter) if dialect.escape == "backslash" else None
        self._reader = csv.reader(self._feed(), **dialect.reader_options)
        _require_values(policy, name)
        header = self._header(name)
        self._first = self._reader.line_num + 1
        if not header and self._ends_with_returns:
            raise InputError(f"{name}, line 1: lines end with carriage returns alone; give csv.line_end: cr")
        self.columns = _checked_header(header, policy, name)

    def line_of(self, number: int) -> int:
        """Return the line of the file, from 1, on which a record (by its number, from 0) begins."""
        longer = zip(self._longer[::2], self._longer[1::2], strict=True)
        return self._first + number + sum(lines for record, lines in longer if record <= number)

    def __iter__(self) -> Iterator[Sequence[CsvCells]]:
        blank: CsvCells = []
        return _slices(self._records(), blank)

    def _records(self) -> Iterator[Sequence[CsvCells]]:
        while self._pending or self._refill():
            yield self._slice()

    def _slice(self) -> Sequence[CsvCells]:
        """All records that begin in the lines at hand."""
        records: list[CsvCells] = []
        while self._pending:
            before = self._reader.line_num
            try:
                records.append(next(self._reader))
            except csv.Error:
                records.append(None)
                if self._backslashes is not None:
                    self._backslashes.restart()
            except StoppedReading:
                break
            self._read += 1
            if self._reader.line_num - before > 1:
                self._longer.extend((self._read, self._reader.line_num - before - 1))
        if self._broken_bytes:
            self._broken_bytes = False
            return [cells if cells is not None and _is_text(cells) else None for cells in records]
        return records

    def _feed(self) -> Iterator[str]:
        """Lines for the csv module, which asks for more than is at hand only inside a quoted cell."""
        while self._pending or self._refill():
            # In no variable: what waits for the next line must not keep the last one.
            if self._backslashes is None:
                yield self._pending.popleft()
            else:
                yield self._backslashes.doubled(self._pending.popleft())

    def _refill(self) -> bool:
        lines = next(self._slices, None)
        if lines is None:
            return False
        block = self._end.encode().join(lines)
        try:
            text = block.decode()
        except UnicodeDecodeError:
            self._broken_bytes = True
            text = block.decode(errors="surrogateescape")
        self._pending.extend([line + self._end for line in text.split(self._end)])
        return True

    def _header(self, name: str) -> list[str]:
        """Cells of the first line; empty if there is none that can be read."""
        if not self._refill():
            raise InputError(f"{name}, line 1: the file is empty; give at least a header with the names of the columns")
        self._pending[0] = self._pending[0].removeprefix(_BOM)
        self._ends_with_returns = "\r" in self._pending[0].removesuffix("\n").removesuffix("\r")
        try:
            header = next(self._reader)
        except csv.Error:
            return []
        return header if _is_text(header) else []


def _require_values(policy: Policy, name: str) -> None:
    for attribute in policy.envelope_attributes:
        raise InputError(
            f"{name}: attributes.{attribute.name} is read from {attribute.source}, which no CSV file has: give "
            "messages as JSON lines with key, headers, timestamp and value, or leave 'from' out"
        )


def _checked_header(header: Sequence[str], policy: Policy, name: str) -> tuple[str, ...]:
    """Refuse a header that does not fit.

    What the policy declares is named first: in a file without a header, the first line holds somebody's values.
    """
    place = f"{name}, line 1: "
    if not any(header):
        raise InputError(
            f"{place}no header that can be read in {policy.csv.encoding}; give the names of the columns, or the right "
            "csv.encoding"
        )
    declared = [attribute.name for attribute in policy.attributes]
    for column in declared:
        if column not in header:
            remedy = "add it, or remove it from the policy"
            if len(header) == 1 < len(declared):
                remedy += "; if it is there, give the csv.delimiter that parts the columns"
            raise InputError(f"{place}column '{column}' is missing; {remedy}")
    for column in header:
        if header.count(column) > 1:
            raise InputError(f"{place}column '{column}' stands twice; rename or remove one of them")
        if column not in declared and policy.undeclared == "quarantine":
            raise InputError(f"{place}column '{column}' is not declared; declare it, or say undeclared: drop")
    return tuple(header)


def _lines(stream: BinaryIO | Recoded, max_bytes: int, line_end: bytes = b"\n") -> Iterator[list[bytes]]:
    """Lines without their ends as they arrive, in any number at once; overlong ones cut."""
    read: Callable[[int], bytes] = stream.read1 if hasattr(stream, "read1") else stream.read
    rest, skipping = b"", False
    while chunk := read(_CHUNK_BYTES):
        if skipping:
            end = chunk.find(line_end)
            if end < 0:
                continue
            chunk, skipping = chunk[end:], False
        lines = (rest + chunk).split(line_end)
        rest = lines.pop()
        if len(rest) > max_bytes:
            rest, skipping = rest[: max_bytes + 1], True
        if lines:
            yield lines
    if rest:
        yield [rest]


def _unmarked(parts: Iterator[list[bytes]]) -> Iterator[list[bytes]]:
    """Take the byte order mark off the first line."""
    for first in parts:
        yield [first[0].removeprefix(codecs.BOM_UTF8), *first[1:]]
        yield from parts


def _slices(parts: Iterable[Sequence[Item]], blank: Item) -> Iterator[Sequence[Item]]:
    """Cut into slices; blank items count only once something follows them."""
    blanks = 0
    for part in parts:
        used = _without_blank_end(part)
        if used:
            for start in range(0, blanks, SLICE):
                yield [blank] * min(SLICE, blanks - start)
            for start in range(0, len(used), SLICE):
                yield used[start : start + SLICE]
            blanks = 0
        blanks += len(part) - len(used)


def _without_blank_end(items: Sequence[Item]) -> Sequence[Item]:
    end = len(items)
    while end and _is_blank(items[end - 1]):
        end -= 1
    return items[:end]


def _is_blank(item: bytes | CsvCells) -> bool:
    return not item.strip() if isinstance(item, bytes) else item == []


def _is_text(cells: Iterable[str]) -> bool:
    """Whether no byte of the cells had to be smuggled in because it is not UTF-8."""
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:
        return False
    return True
