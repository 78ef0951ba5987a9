"""Inputs of all formats as blocks of decoded records, for streams and tables.

Follow a source: read a growing file, a FIFO or standard input until the command is stopped.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from select import select
from threading import Event
from types import ModuleType
from typing import Any, BinaryIO

from shoal.errors import ConfigError, InputError
from shoal.files.files import PIPE, FileFormat, standard_input
from shoal.formats import (
    DEFAULT_MAX_BYTES,
    Block,
    CsvDecoder,
    CsvReader,
    FaultReason,
    JsonDecoder,
    JsonLinesReader,
    MessageExportReader,
    Reason,
    RecordedEnvelope,
    RecordEncoder,
    RecordFault,
    StoppedReading,
    find_csv_faults,
    find_json_faults,
)
from shoal.policy import Policy

__all__ = ["FollowedFile", "RecordSource", "import_parquet", "open_followed", "open_source"]


@dataclass(frozen=True, slots=True)
class RecordSource:
    """An open input; its header, if it has one, was read and is valid.

    Attributes
    ----------
    blocks : iterator of (Block, sequence)
        Decoded records, and the raw records from which they were decoded.
    line_of : callable
        Returns the line (in Parquet: the row) of a record, from 1, for the number of the record, from 0.
    faults_of : callable
        Finds why a raw record was rejected.
    schema : pyarrow.Schema or None
        Schema of a Parquet file.
    """

    blocks: Iterator[tuple[Block, Sequence[Any]]]
    line_of: Callable[[int], int]
    faults_of: Callable[[Any], list[RecordFault]]
    schema: Any = None

    def describe(self, record: Any, reason: Reason) -> list[RecordFault]:  # noqa: ANN401 - as in ``blocks``
        """Return why a raw record was rejected with a reason; never empty."""
        if reason is not Reason.TOO_LARGE:
            return self.faults_of(record)
        return [fault for fault in self.faults_of(record) if fault.reason == FaultReason.LONG_JSON] or [
            RecordFault(FaultReason.TOO_LARGE)
        ]


def import_parquet() -> ModuleType:
    """Return the module that reads and writes Parquet.

    Raises
    ------
    ConfigError
        The package pyarrow is not installed.
    """
    try:
        return import_module("shoal.formats.parquet")
    except ModuleNotFoundError:
        raise ConfigError("Parquet needs pyarrow: install shoal[parquet]") from None


def open_source(
    source: BinaryIO,
    source_format: FileFormat,
    policy: Policy,
    encoder: RecordEncoder,
    name: str,
    *,
    with_columns: bool = False,
) -> RecordSource:
    """Open an input. A CSV header is read now, records when they are asked for.

    Parameters
    ----------
    source : binary file object
        Input.
    source_format : {"csv", "jsonl", "parquet"}
        Format of the input.
    policy : Policy
        Attributes of the records.
    encoder : RecordEncoder
        JsonEncoder of the output format.
    name : str
        Name of the input in messages.
    with_columns : bool
        Whether blocks contain the unchanged fields also as columns of typed values.

    Raises
    ------
    InputError
        The header does not fit the policy, or the policy uses fields that the format does not have.
    """
    name = "standard input" if name == PIPE else name
    max_bytes = DEFAULT_MAX_BYTES if policy.kafka is None else policy.kafka.max_record_bytes
    blocks: Iterator[tuple[Block, Sequence[Any]]]
    if source_format == "csv":
        reader = CsvReader(source, policy, name=name)
        cells = CsvDecoder(policy, reader.columns, encoder=encoder, max_bytes=max_bytes, with_columns=with_columns)
        blocks = ((cells.decode(part), list(part)) for part in reader)
        return RecordSource(blocks, reader.line_of, lambda record: find_csv_faults(policy, reader.columns, record))
    decoder = JsonDecoder(
        policy,
        encoder=encoder,
        max_bytes=max_bytes,
        with_columns=with_columns,
        refuses_headers=source_format != "parquet",
    )
    if source_format == "parquet":
        rows = import_parquet().ParquetReader(source, policy, name=name)
        blocks = (block for group in rows for block in group.decode(decoder, max_bytes))
        return RecordSource(blocks, _line_of, lambda record: find_json_faults(policy, record), rows.schema)
    if policy.envelope_attributes:
        messages = MessageExportReader(source, policy, name=name)
        blocks = (
            (decoder.decode(values, envelopes), list(zip(values, envelopes, strict=True)))
            for values, envelopes in messages
        )
        return RecordSource(blocks, _line_of, lambda message: _find_message_faults(policy, *message))
    lines = JsonLinesReader(source, max_bytes=max_bytes)
    return RecordSource(
        ((decoder.decode(part), list(part)) for part in lines),
        _line_of,
        lambda record: find_json_faults(policy, record),
    )


def _find_message_faults(policy: Policy, value: bytes | None, envelope: RecordedEnvelope) -> list[RecordFault]:
    if envelope.fault is not None:
        return [RecordFault(envelope.fault)]
    return [RecordFault(FaultReason.TOMBSTONE)] if value is None else find_json_faults(policy, value)


def _line_of(number: int) -> int:
    return number + 1


POLL_S = 0.1
"""Time between two checks whether a file has grown."""

_TAIL_BYTES = 4096
"""Last bytes read, compared before new ones are read: a file may be truncated and filled between two checks."""


class FollowedFile:
    """Reads bytes as they are written, until ``stop`` is set; the end of a file does not end it.

    Parameters
    ----------
    descriptor : int
        Of a file, a FIFO or standard input; not closed.
    path : str
        Path of the file, to detect that it was replaced; ``-`` for standard input.
    stop : Event
        Set to end reading.

    Attributes
    ----------
    on_idle : callable
        Called about ten times a second while there is no data.
    fault : InputError or None
        Why reading ended without ``stop``.
    """

    def __init__(self, descriptor: int, path: str, stop: Event) -> None:
        self._descriptor, self._path, self._stop = descriptor, path, stop
        self._name = "standard input" if path == PIPE else path
        self._is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._offset = os.lseek(descriptor, 0, os.SEEK_CUR) if self._is_file else 0
        self._tail = b""
        self.on_idle: Callable[[], None] = lambda: None
        self.fault: InputError | None = None

    def read1(self, size: int) -> bytes:
        """Return the next bytes, at most ``size``, as soon as there are any; none at the end of a pipe.

        Raises
        ------
        StoppedReading
            ``stop`` was set, or the file was changed; see ``fault``.
        """
        while not self._stop.is_set():
            chunk = self._chunk(size)
            if chunk:
                self._require_same_tail()
                self._offset += len(chunk)
                self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
                return chunk
            if chunk is not None and self._path == PIPE and not self._is_file:
                return b""
            self._require_same_file()
            self.on_idle()
            self._stop.wait(POLL_S)
        raise StoppedReading

    def _chunk(self, size: int) -> bytes | None:
        """Return the available bytes; none at the end; None if that is not known yet."""
        if not self._is_file and not select([self._descriptor], [], [], 0)[0]:
            return None
        try:
            return os.read(self._descriptor, size)
        except BlockingIOError:
            return None
        except OSError as error:
            raise InputError(f"{self._name}: cannot be read: {error.strerror}") from None

    def _require_same_tail(self) -> None:
        """Stop if the bytes before the new ones are not those that were read: the file was replaced."""
        if self._is_file and self._tail:
            start = self._offset - len(self._tail)
            if os.pread(self._descriptor, len(self._tail), start) != self._tail:
                self._end("was truncated and written again")

    def _require_same_file(self) -> None:
        if not self._is_file:
            return
        opened = os.fstat(self._descriptor)
        if opened.st_size < self._offset:
            self._end("was truncated")
        if self._path != PIPE:
            try:
                current = os.stat(self._path)  # noqa: PTH116 - the same call as above
            except OSError:
                self._end("was removed")
            else:
                if (current.st_dev, current.st_ino) != (opened.st_dev, opened.st_ino):
                    self._end("was replaced")

    def _end(self, event: str) -> None:
        self.fault = InputError(
            f"{self._name}: {event} while it was followed; all records read before are written, start again with the "
            "records after them"
        )
        raise StoppedReading


@contextmanager
def open_followed(path: str, stop: Event) -> Iterator[FollowedFile]:
    """Open a file, a FIFO or standard input to follow it.

    Raises
    ------
    InputError
        The source cannot be opened.
    """
    if path == PIPE:
        yield FollowedFile(standard_input().fileno(), path, stop)
        return
    try:
        # Opening a FIFO without a writer must not block: the command could not be stopped.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        yield FollowedFile(descriptor, path, stop)
    finally:
        os.close(descriptor)
