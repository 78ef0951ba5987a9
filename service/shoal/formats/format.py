"""`Format`: how records are read and written; the formats by name and suffix; and streams as lines.

A new format is one module with a subclass of `Format`, and one entry of `_ENTRIES`. A stream is split into batches as
its bytes arrive: a batch is passed on without waiting until it is full.
"""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol, TypeVar, cast

from shoal.errors import ConfigError, InputError
from shoal.formats.block import Block
from shoal.formats.encoder import RecordEncoder
from shoal.formats.faults import FaultReason, Reason, RecordFault
from shoal.policy import Policy

DEFAULT_MAX_BYTES = 900_000

BATCH_SIZE = 512
"""Maximum number of messages in a batch. The objects of about 1000 messages no longer fit the processor's cache."""

_CHUNK_BYTES = 1 << 16
_REPLACEMENT = "shoal.replacement"
codecs.register_error(_REPLACEMENT, lambda error: ("\udcff", getattr(error, "end", 1)))

Item = TypeVar("Item", bytes, list[str] | None)


class ReadOptions(NamedTuple):
    """How an input is read."""

    name: str = "input"
    """In messages."""
    max_bytes: int = DEFAULT_MAX_BYTES
    with_columns: bool = False
    """Whether blocks also contain the unchanged fields as typed columns."""
    partition: Mapping[str, str | None] = MappingProxyType({})
    """Columns in the names of the folders of a Parquet file, as ``year=2024``; None for a missing value."""


class Format(ABC):
    """How records are read from files and written to them. One object serves all policies and holds no state."""

    @abstractmethod
    def read(self, stream: BinaryIO, policy: Policy, encoder: RecordEncoder, options: ReadOptions) -> RecordSource:
        """Open an input. A header is read now, records when they are asked for.

        The stream is not closed. Its ``read1``, or else ``read``, returns bytes as they arrive, and may raise
        `StoppedReading`. ``encoder`` is that of the output, which may have another format. InputError if the header
        does not fit the policy, or the policy uses fields that the format does not have.
        """

    def prepared(self, stream: BinaryIO, name: str) -> BinaryIO:  # noqa: ARG002
        """Return an input that has an end in the form that `read` takes; InputError if it has none."""
        return stream

    @abstractmethod
    def encoder(self, policy: Policy) -> RecordEncoder:
        """Return an encoder of one output; ConfigError if it cannot represent a name or category of the policy."""


class MessageDecoder(Protocol):
    """Decodes the messages of a topic."""

    def decode(self, messages: Sequence[bytes | None], envelopes: Sequence[Any] | None = None) -> Block:
        """Return the records of message values; `Envelope` if the policy reads keys, headers or timestamps."""

    def explain(self, message: bytes, envelope: Any = None) -> list[RecordFault]:  # noqa: ANN401 - an `Envelope`
        """Return why a message was rejected, in words without values; never empty."""


class MessageFormat(Format):
    """A format in which the messages of a topic can be."""

    @abstractmethod
    def decoder(self, policy: Policy, *, max_bytes: int = DEFAULT_MAX_BYTES) -> MessageDecoder:
        """Return a decoder of messages of at most ``max_bytes`` bytes, whose blocks suit `encoder`."""


@dataclass(frozen=True, slots=True)
class RecordSource:
    """An open input; its header, if it has one, was read and is valid."""

    blocks: Iterator[tuple[Block, Sequence[Any]]]
    """Decoded records, and the raw records from which they were decoded."""
    faults_of: Callable[[Any], list[RecordFault]]
    """Finds why a raw record was rejected; at least one fault."""
    line_of: Callable[[int], int] = lambda number: number + 1
    """Returns the line (or row) of a record, from 1, for the number of the record, from 0."""
    unit: Literal["line", "row"] = "line"
    schema: Any = None
    """Types of the columns, for an encoder of the same format; None if the format has none."""

    def refused(self, block: Block, records: Sequence[Any]) -> Iterator[tuple[int, Reason, list[RecordFault]]]:
        """Yield index, reason and faults, in words without values and never none, of each rejected record."""
        for index, reason in block.rejected:
            faults = self.faults_of(records[index])
            if reason is Reason.TOO_LARGE:
                too_long = [fault for fault in faults if fault.reason == FaultReason.LONG_JSON]
                faults = too_long or [RecordFault(FaultReason.TOO_LARGE)]
            yield index, reason, faults


@dataclass(frozen=True, slots=True)
class FormatEntry:
    """A format by name and suffix. Its module is imported when it is used."""

    name: str
    title: str
    suffixes: tuple[str, ...]
    """Of file names, in lower case; messages name the first."""
    source: str
    """Module and class that define it (``module:class``)."""
    is_streamed: bool = True
    """Whether it is read and written from start to end, as pipes and streams need: ``--format`` can name it."""
    package: str = ""
    """Package that the module needs and that only an extra installs."""

    def load(self) -> Format:
        """Return the format; ConfigError if the package that it needs is not installed."""
        module, _, name = self.source.partition(":")
        try:
            loaded: Format = getattr(import_module(module), name)()
        except ModuleNotFoundError:
            if not self.package:
                raise
            extra = f"shoal[{self.name}]"
            raise ConfigError(
                f"{self.title} needs {self.package}: install {extra}, as with pip install '{extra}'"
            ) from None
        return loaded


_ENTRIES = {
    entry.name: entry
    for entry in (
        FormatEntry("csv", "CSV", (".csv",), "shoal.formats.csv:CsvFormat"),
        FormatEntry("jsonl", "JSON lines", (".jsonl", ".json", ".ndjson"), "shoal.formats.json:JsonFormat"),
        FormatEntry(
            "parquet",
            "Parquet",
            (".parquet",),
            "shoal.formats.parquet:ParquetFormat",
            is_streamed=False,
            package="pyarrow",
        ),
        FormatEntry(
            "xlsx",
            "a workbook (.xlsx)",
            (".xlsx",),
            "shoal.formats.xlsx:XlsxFormat",
            is_streamed=False,
            package="openpyxl",
        ),
    )
}
"""The formats that Shoal has. ``--format`` lists them in this order."""


def format_named(name: str) -> FormatEntry:
    """Return the format of a name; ConfigError if none has it."""
    if name not in _ENTRIES:
        raise ConfigError(f"--format: unknown format; give one of {', '.join(_ENTRIES)}")
    return _ENTRIES[name]


def format_of_suffix(suffix: str) -> FormatEntry | None:
    """Return the format of files whose names end with a suffix in lower case; None if none has it."""
    return next((entry for entry in _ENTRIES.values() if suffix in entry.suffixes), None)


def streamed_formats() -> tuple[FormatEntry, ...]:
    """Return the formats of pipes and streams: the choices of ``--format``."""
    return tuple(entry for entry in _ENTRIES.values() if entry.is_streamed)


def message_format(policy: Policy) -> MessageFormat:  # noqa: ARG001 - until a policy can name another one
    """Return the format of the messages of a policy's topics: JSON."""
    return cast("MessageFormat", format_named("jsonl").load())


class StoppedReading(Exception):  # noqa: N818 - not an error
    """Raised by a stream to stop its reader. A line or record that is incomplete is dropped."""


class JsonLinesReader:
    """The lines of a stream as messages: 1 to 512 lines without their ends, as soon as they have arrived.

    Blank lines at the end of the file and a byte order mark at its beginning are dropped. A line of more than
    ``max_bytes`` is cut to some bytes more, so that a decoder rejects it as too large. The stream is not closed.
    """

    def __init__(self, stream: BinaryIO, *, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self.opens_array = False
        """Whether the first line opens a JSON array; known when it was read."""

    def __iter__(self) -> Iterator[Sequence[bytes]]:
        # A line that is cut off must still be too long without a byte order mark.
        lines = read_lines(self._stream, self._max_bytes + len(codecs.BOM_UTF8))
        for number, part in enumerate(read_batches(_without_byte_order_mark(lines), b"")):
            if number == 0:
                self.opens_array = part[0].lstrip().startswith(b"[")
            yield part


class Utf8Stream:
    """Converts a stream to UTF-8 as bytes arrive; what cannot be decoded becomes the byte FF, which UTF-8 lacks."""

    def __init__(self, stream: BinaryIO, encoding: str, name: str = "input") -> None:
        self._read = _reader_of(stream)
        self._encoding, self._name = encoding, name
        self._decoder = codecs.getincrementaldecoder(encoding)(_REPLACEMENT)
        self._is_at_end = False

    def read1(self, size: int) -> bytes:
        """Return bytes as soon as there are any, none at the end; InputError without a needed byte order mark."""
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


def require_columns(policy: Policy, name: str, what: str) -> None:
    """Require that every attribute can be a column of ``what``, such as a CSV file; else InputError."""
    no_file_has = f"which no {what} has; give messages as JSON lines"
    for attribute in policy.envelope_attributes:
        raise InputError(
            f"{name}: attributes.{attribute.name} is read from {attribute.source}, {no_file_has} with key, headers, "
            "timestamp and value, or remove 'from' from the policy"
        )
    for attribute in policy.value_attributes:
        if attribute.path != (attribute.name,):
            raise InputError(
                f"{name}: attributes.{attribute.name} is read from the field {'.'.join(attribute.path)} of "
                f"messages, {no_file_has}, or remove 'from' from the policy"
            )
    if policy.unwrap is not None:
        raise InputError(
            f"{name}: unwrap: {policy.unwrap} opens the envelopes of messages, {no_file_has}, or remove unwrap from "
            "the policy"
        )


def require_names(found: Sequence[str], policy: Policy, name: str) -> None:
    """Require that columns are those of the policy, each once; else InputError."""
    declared = [attribute.name for attribute in policy.attributes]
    for column in (*declared, *policy.skip):
        if found.count(column) != 1:
            raise InputError(f"{name}: column '{column}' is missing or occurs twice; correct the file or the policy")
    extra = next((column for column in found if column not in {*declared, *policy.skip}), None)
    if policy.undeclared == "quarantine" and extra is not None:
        raise InputError(f"{name}: column '{extra}' is not declared; declare it, or set undeclared: drop")


def _reader_of(stream: BinaryIO | Utf8Stream) -> Callable[[int], bytes]:
    """Return the method that reads what has arrived. A raw stream has no ``read1``."""
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
