"""Decode messages and files into arrays, and encode published records into bytes.

`Format` is how records are read and written; `format.py` lists the formats by name and suffix.
"""

from shoal.formats.block import Block, to_exact_number
from shoal.formats.confidential_keys import NO_BIN, ConfidentialKeys, Key, ProtectedValues, ReferenceBins
from shoal.formats.csv import CsvEncoder
from shoal.formats.encoder import RecordEncoder, fixed_texts
from shoal.formats.faults import (
    DELETED_FIELD,
    NOT_REPRESENTATIVE,
    DropReason,
    FaultReason,
    Reason,
    RecordFault,
    RefusalCounter,
    fault_label,
    is_notable,
    is_representative,
)
from shoal.formats.format import (
    DEFAULT_MAX_BYTES,
    Format,
    FormatEntry,
    MessageDecoder,
    ReadOptions,
    RecordSource,
    StoppedReading,
    format_named,
    format_of_suffix,
    message_format,
    streamed_formats,
)
from shoal.formats.json import JsonDecoder, JsonEncoder
from shoal.formats.json_text import is_json_number
from shoal.formats.messages import Envelope
from shoal.scales.numeric import to_number
from shoal.scales.scale import FIRST_INEXACT

__all__ = [
    "DEFAULT_MAX_BYTES",
    "DELETED_FIELD",
    "FIRST_INEXACT",
    "NOT_REPRESENTATIVE",
    "NO_BIN",
    "Block",
    "ConfidentialKeys",
    "CsvEncoder",
    "DropReason",
    "Envelope",
    "FaultReason",
    "Format",
    "FormatEntry",
    "JsonDecoder",
    "JsonEncoder",
    "Key",
    "MessageDecoder",
    "ProtectedValues",
    "ReadOptions",
    "Reason",
    "RecordEncoder",
    "RecordFault",
    "RecordSource",
    "ReferenceBins",
    "RefusalCounter",
    "StoppedReading",
    "fault_label",
    "fixed_texts",
    "format_named",
    "format_of_suffix",
    "is_json_number",
    "is_notable",
    "is_representative",
    "message_format",
    "streamed_formats",
    "to_exact_number",
    "to_number",
]
