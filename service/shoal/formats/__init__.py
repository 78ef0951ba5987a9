"""Decode messages and files into arrays, and encode published records into bytes."""

from shoal.formats.block import Block, DropReason, FaultReason, ProtectedValues, Reason
from shoal.formats.columns import to_exact_number, to_number
from shoal.formats.confidential_keys import NO_BIN, ConfidentialKeys, Key, ReferenceBins
from shoal.formats.csv import CsvCells, CsvDecoder, CsvReader
from shoal.formats.encoder import CsvEncoder, JsonEncoder, RecordEncoder
from shoal.formats.faults import (
    NOT_REPRESENTATIVE,
    RecordFault,
    RefusalCounter,
    find_csv_faults,
    find_json_faults,
    is_notable,
    is_representative,
)
from shoal.formats.json import DEFAULT_MAX_BYTES, JsonDecoder, JsonLinesReader, StoppedReading
from shoal.formats.message_export import MessageExportReader, RecordedEnvelope
from shoal.formats.messages import Envelope
from shoal.formats.numerals import FIRST_INEXACT, is_json_number

__all__ = [
    "DEFAULT_MAX_BYTES",
    "FIRST_INEXACT",
    "NOT_REPRESENTATIVE",
    "NO_BIN",
    "Block",
    "ConfidentialKeys",
    "CsvCells",
    "CsvDecoder",
    "CsvEncoder",
    "CsvReader",
    "DropReason",
    "Envelope",
    "FaultReason",
    "JsonDecoder",
    "JsonEncoder",
    "JsonLinesReader",
    "Key",
    "MessageExportReader",
    "ProtectedValues",
    "Reason",
    "RecordEncoder",
    "RecordFault",
    "RecordedEnvelope",
    "ReferenceBins",
    "RefusalCounter",
    "StoppedReading",
    "find_csv_faults",
    "find_json_faults",
    "is_json_number",
    "is_notable",
    "is_representative",
    "to_exact_number",
    "to_number",
]
