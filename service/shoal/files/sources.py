"""Files of every form as parts that a decoder takes: one door for the stream and for tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, BinaryIO

from shoal.errors import ConfigError
from shoal.files.outputs import PIPE, Form
from shoal.policy import Policy
from shoal.records import (
    DEFAULT_MAX_BYTES,
    Block,
    CsvDecoder,
    CsvReader,
    JsonDecoder,
    JsonLinesReader,
    MessageExportReader,
    RecordEncoder,
    describe_csv_fault,
    describe_json_fault,
)

__all__ = ["Source", "open_source", "parquet"]


@dataclass(frozen=True, slots=True)
class Source:
    """An input that has been opened; its header, where it has one, has been read and fits.

    ``blocks`` yields the records of each part with what they were decoded from; ``line_of`` gives the line, from 1, of
    a record by its number from 0 (in Parquet: the row); ``fault_of`` says what is wrong with one that was refused,
    without its values; ``schema`` is that of a Parquet file.
    """

    blocks: Iterator[tuple[Block, list[Any]]]
    line_of: Callable[[int], int]
    fault_of: Callable[[Any], str]
    schema: Any = None


def parquet() -> ModuleType:
    """Return the module that reads and writes Parquet.

    Raises
    ------
    ConfigError
        What it needs is not installed.
    """
    try:
        return import_module("shoal.records.parquet")
    except ModuleNotFoundError:
        raise ConfigError("Parquet needs pyarrow: install shoal[parquet]") from None


def open_source(
    source: BinaryIO, form: Form, policy: Policy, encoder: RecordEncoder, name: str, *, keep: bool = False
) -> Source:
    """Read a CSV header at once, and the rest when it is asked for.

    Parameters
    ----------
    source : binary file object
        What to read.
    form : {"csv", "jsonl", "parquet"}
        How it is written.
    policy : Policy
        What the fields mean.
    encoder : RecordEncoder
        Of the output.
    name : str
        What to call the input in messages.
    keep : bool
        Whether blocks shall hold the kept fields as typed values.

    Raises
    ------
    InputError
        The header does not fit, or the policy reads what such a file has not.
    """
    name = "standard input" if name == PIPE else name
    longest = DEFAULT_MAX_BYTES if policy.kafka is None else policy.kafka.max_record_bytes
    if form == "csv":
        reader = CsvReader(source, policy, name=name)
        cells = CsvDecoder(policy, reader.columns, encoder=encoder, max_bytes=longest, with_columns=keep)
        blocks = ((cells.decode(part), list(part)) for part in reader)
        return Source(blocks, reader.line_of, lambda record: describe_csv_fault(policy, reader.columns, record))
    messages = JsonDecoder(policy, encoder=encoder, max_bytes=longest, with_columns=keep)
    if form == "parquet":
        rows = parquet().ParquetReader(source, policy, name=name)
        taken = ((messages.decode(part), list(part)) for part in rows)
        return Source(taken, _line, lambda record: describe_json_fault(policy, record), rows.schema)
    if policy.envelope_attributes:
        wrapped = MessageExportReader(source, policy, name=name)
        around = ((messages.decode(values, envelopes), list(values)) for values, envelopes in wrapped)
        return Source(around, _line, lambda _: ": the message does not fit the policy")
    plain = ((messages.decode(part), list(part)) for part in JsonLinesReader(source, max_bytes=longest))
    return Source(plain, _line, lambda record: describe_json_fault(policy, record))


def _line(number: int) -> int:
    return number + 1
