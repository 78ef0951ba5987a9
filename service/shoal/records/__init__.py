"""The border: messages and files in, records as arrays; published decimals and kept fields in, bytes out."""

from shoal.records.block import Block, Decoder, Reason
from shoal.records.columns import exact_of, number_of
from shoal.records.csv_decoder import CsvCells, CsvDecoder
from shoal.records.encoder import CsvEncoder, Encoder, RecordEncoder
from shoal.records.envelope import Envelope
from shoal.records.faults import cell_fault, json_fault
from shoal.records.files import CsvReader, JsonLines, StoppedReading
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
    "Encoder",
    "Envelope",
    "JsonDecoder",
    "JsonLines",
    "MessageExportReader",
    "Reason",
    "RecordEncoder",
    "StoppedReading",
    "cell_fault",
    "exact_of",
    "json_fault",
    "number_of",
]
