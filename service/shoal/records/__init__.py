"""Decode messages and files into arrays, and encode published records into bytes.

A record passes through four steps:

1. A reader (`JsonLinesReader`, `CsvReader`, `MessageExportReader`) splits a file into messages. Messages from Kafka
   skip this step. `parquet.ParquetReader` yields rows as columns (`parquet_rows`), which skip the next one where their
   types are those of the policy.
2. A decoder (`JsonDecoder`, `CsvDecoder`) checks the messages against the policy and returns a `Block`:
   quasi-identifiers and steering attributes as float64 (`scales`: numbers, times, ranks, indices of categories), hashed
   subjects, and unchanged fields that are already encoded for the output.
   Every other message is rejected with a `Reason`, or dropped if the policy says so (`DropReason`).
3. Other packages form clusters and compute the centroids.
4. An encoder (`JsonEncoder`, `CsvEncoder`) combines centroids and unchanged fields into the published bytes.

No error, log line or `Reason` contains an attribute value.
"""

from shoal.records.block import Block, DropReason, ProtectedValues, Reason
from shoal.records.columns import to_exact_number, to_number
from shoal.records.confidential_keys import NO_BIN, ConfidentialKeys, Key, ReferenceBins
from shoal.records.csv_decoder import CsvCells, CsvDecoder
from shoal.records.csv_reader import CsvReader
from shoal.records.encoder import CsvEncoder, JsonEncoder, RecordEncoder
from shoal.records.envelope import Envelope
from shoal.records.fault_reasons import FaultReason
from shoal.records.faults import RecordFault, find_csv_faults, find_json_faults
from shoal.records.json_decoder import DEFAULT_MAX_BYTES, JsonDecoder
from shoal.records.line_reader import JsonLinesReader, StoppedReading
from shoal.records.message_export import MessageExportReader, RecordedEnvelope
from shoal.records.numerals import FIRST_INEXACT, is_json_number
from shoal.records.refusals import NOT_REPRESENTATIVE, RefusalCounter, is_notable, is_representative

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
