"""The border: messages and files in, records as arrays; published decimals and kept fields in, bytes out."""

from shoal.records.block import Block, Decoder, Reason
from shoal.records.columns import to_exact_number, to_number
from shoal.records.csv_decoder import CsvCells, CsvDecoder
from shoal.records.encoder import CsvEncoder, JsonEncoder, RecordEncoder
from shoal.records.envelope import Envelope
from shoal.records.faults import describe_csv_fault, describe_json_fault
from shoal.records.files import CsvReader, JsonLinesReader, StoppedReading
from shoal.records.json_decoder import DEFAULT_MAX_BYTES, JsonDecoder
from shoal.records.message_export import MessageExportReader
from shoal.records.numerals import FIRST_INEXACT

__all__ = [
    "DEFAULT_MAX_BYTES",
    "FIRST_INEXACT",
    "Block",
    "CsvCells",
    "CsvDecoder",
    "CsvEncoder",
    "CsvReader",
    "Decoder",
    "Envelope",
    "JsonDecoder",
    "JsonEncoder",
    "JsonLinesReader",
    "MessageExportReader",
    "Reason",
    "RecordEncoder",
    "StoppedReading",
    "describe_csv_fault",
    "describe_json_fault",
    "to_exact_number",
    "to_number",
]
