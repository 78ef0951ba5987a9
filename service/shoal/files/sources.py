"""Inputs of all formats as blocks of decoded records, for streams and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, BinaryIO

from shoal.errors import ConfigError
from shoal.files.outputs import PIPE, FileFormat
from shoal.policy import Policy
from shoal.records import (
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
    find_csv_faults,
    find_json_faults,
)

__all__ = ["RecordSource", "import_parquet", "open_source"]


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
        return import_module("shoal.records.parquet")
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
