"""Why a record is not released: the reasons, what is wrong with a refused record, and how many were refused.

No reason, fault or count contains a value of a record.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Self

from shoal.scales import remedies


class Reason(StrEnum):
    """Why a record is not released. The reasons are few and coarse, because a finer one could reveal a value."""

    UNDECODABLE = "undecodable"
    INVALID = "invalid"
    SUPPRESSED = "suppressed"
    TOO_LARGE = "too_large"


class DropReason(StrEnum):
    """Why a message is dropped: it contains no record, as the policy says (`skip`), or the policy quarantines none."""

    DELETES = "deletes"
    TOMBSTONES = "tombstones"
    SKIP = "skip"


DELETED_FIELD = "__deleted"
"""Debezium adds this field to rows that its transformation unwraps with the delete handling ``rewrite``."""

_NO_WORD = re.compile("[^a-z0-9]+")

_ABSENT = (
    "fill the values in, remove the records, or give the field another role: confidential and other publish it as it "
    "is, identifier leaves it out; missing: group releases records without a value"
)
_TYPE = "declare the type that the values have, or type: any"


class FaultReason(StrEnum):
    """What is wrong with a record or a field, as text. What is wrong with a value is in the module of its scale."""

    remedy: str
    """What to do about it; the text itself where it says it."""

    def __new__(cls, text: str, remedy: str = "") -> Self:
        """Make a member that is equal to its text."""
        member = str.__new__(cls, text)
        member._value_ = text
        member.remedy = remedy or text
        return member

    # A field of any role
    EMPTY = "empty", _ABSENT
    NULL = "null", _ABSENT
    MISSING_VALUE = "a value of missing_values", _ABSENT
    ABSENT = "missing", "correct the name of the field in the policy, or add the field to the records"
    NESTED = ("a list or an object", "give the field the role identifier, which leaves it out, or make the values flat")
    CONNECT_DECIMAL = (
        "a decimal as bytes",
        "set decimal.handling.mode=double in the connector of Debezium; of another, write decimals as numbers",
    )
    PLACEHOLDER = (
        "Debezium's placeholder for a value that it did not read",
        "set REPLICA IDENTITY FULL for the table, or give the field the role identifier, which leaves it out",
    )
    NOT_SUBJECT = (
        "not a valid subject",
        (
            "each record needs an identifier of its person, which is no value of missing_values; correct the values or "
            "the type of the field"
        ),
    )

    # A confidential or other field
    NOT_STRING = "not of type string", _TYPE
    NOT_INTEGER = "not of type integer", _TYPE
    NOT_NUMBER = "not of type number", _TYPE
    NOT_BOOLEAN = "not of type boolean", _TYPE
    NOT_ANY = "not of type any", _TYPE
    NOT_JSON_FIELD = (
        "not of type json",
        (
            "a value must be JSON (RFC 8259) with each name once in an object and no number beyond float64; correct "
            "the values"
        ),
    )
    LONG_JSON = "longer than its max_bytes", "raise max_bytes of the attribute, or shorten the values"
    NOT_NUMBER_AS_SCALE = (
        "not a number, as its scale needs",
        "correct the values, or give the attribute the scale that they have",
    )
    NOT_NUMBER_AS_REFERENCE = (
        "not a number, as the values of its reference are",
        "correct the values, or make the reference from a sample that has such values",
    )

    # A record as a whole
    OTHER_WIDTH = (
        "another number of cells than the header",
        "correct csv.delimiter and csv.quote in the policy, or the lines of the file",
    )
    REPEATED_HEADER = (
        "equals the header",
        "remove the lines that repeat the header; a file that was appended to or joined from several files has them",
    )
    NOT_CSV = (
        "invalid quotation marks or bytes for the CSV dialect of the policy, or a cell of more than 131,072 characters",
        "correct csv.quote, csv.escape and csv.encoding in the policy, or the lines of the file",
    )
    EMBEDDED = "a cell contains what looks like another record; close the quotation mark, or set csv.multiline: true"
    FIELD_NAMES = (
        "each field has its own name as its value",
        "remove the records that were made from the header of a CSV file",
    )
    NOT_JSON = (
        "not JSON",
        (
            "write each record as one JSON object (RFC 8259) in UTF-8, in a file on one line; if the file has another "
            "format, name it by the suffix or --format"
        ),
    )
    ARRAY = (
        "a JSON array, or a part of one",
        "write each object as a record of its own, in a file on one line: jq -c '.[]' FILE > NEW.jsonl",
    )
    SPREAD = (
        "a part of a JSON object that stands on several lines",
        "write each object on one line: jq -c . FILE > NEW.jsonl",
    )
    NOT_A_NUMBER = (
        "NaN or Infinity, which JSON does not have",
        "write null in their place, as to_json of pandas; json.dumps of Python refuses them with allow_nan=False",
    )
    ENCODED_TWICE = (
        "a text that holds JSON: the record was encoded twice",
        "encode each record once; of a file: jq -c fromjson FILE > NEW.jsonl",
    )
    OF_REGISTRY = (
        "five bytes of a schema registry before the record",
        (
            "write the topic as JSON without a registry: in Kafka Connect org.apache.kafka.connect.json.JsonConverter "
            "with schemas.enable=false, elsewhere a serializer of plain JSON"
        ),
    )
    COMPRESSED = (
        "compressed bytes",
        "compress no values: set compression.type of the producer instead; uncompress a file and name it .jsonl",
    )
    OF_PYTHON = "a dict as Python prints it, not JSON", "write each record with json.dumps"
    UTF16 = "UTF-16 or binary, not UTF-8", "convert a file of texts: iconv -f utf-16 -t utf-8 FILE > NEW.jsonl"
    NOT_UTF8 = ("not UTF-8, or nested too deeply", "write the records in UTF-8, with objects and lists at most 64 deep")
    NOT_OBJECT = "not a JSON object", "write each record as one JSON object"
    NOT_MESSAGE = (
        "not a message in the form of docs/files.md: value, and key, headers or timestamp if the policy reads them"
    )
    REPEATED_FIELD = "a field occurs twice; remove one of them"
    UNDECLARED = "a field that the policy does not declare", "declare it, or set undeclared: drop"
    DELETED = (
        "a field __deleted, which the policy does not declare",
        'set skip: {__deleted: ["true"]}, which leaves deleted rows out and needs no attribute',
    )
    DOTTED = (
        "missing; the records have its path as one name with dots",
        "name the attribute as the field, with its dots, and remove 'from'",
    )
    TOO_LARGE = (
        "longer than kafka.max_record_bytes, which is 900,000 by default",
        "raise kafka.max_record_bytes in the policy, or shorten the records",
    )
    DATED_AHEAD = "dated more than an hour ahead", "correct the clock of the producer; send the records again"
    UNKNOWN = "the record does not fit the policy"
    ENVELOPE = (
        "the key, a header or the timestamp does not fit the policy",
        "correct 'from', type or scale of the attributes that are read from them, or the messages",
    )

    # A key, header or timestamp
    NO_KEY = "the message has no key", "give each message a key, or read the attribute from the value: remove from: key"
    NO_HEADER = "the message has no header of its name, or several", "give each message one header of this name"
    NO_TIMESTAMP = "the message has no timestamp", "give each message a timestamp"
    BINARY_KEY = (
        "a key that is no text",
        "write keys as texts, with Kafka's StringSerializer, or read the attribute from the value: remove from: key",
    )
    BINARY_HEADER = "a header that is no text", "write the header as a text in UTF-8"
    LONG_PART = "a key or header longer than kafka.max_record_bytes", "shorten it"

    # A message around a record
    NOT_DEBEZIUM = "not a message of Debezium; correct unwrap in the policy, or the messages"
    NOT_CONNECT = "not a message of JsonConverter with schemas; correct unwrap in the policy, or set schemas.enable"
    NOT_CLOUDEVENT = "not an event in JSON format with JSON data; correct unwrap in the policy, or the events"
    IN_DEBEZIUM = "inside a message of Debezium; set unwrap: debezium"
    IN_EXPORT = (
        "a line of an exported topic, which holds the record in its field value",
        "give the values alone: jq -c '.value | fromjson? // .' FILE > NEW.jsonl; or read the key: from: key",
    )
    IN_CONNECT = "inside a message of JsonConverter with schemas; set unwrap: connect"
    IN_CLOUDEVENT = "inside an event in JSON format; set unwrap: cloudevents"
    DELETE = "a delete; set deletes: drop to leave such messages out"
    TOMBSTONE = "no value; set tombstones: drop to leave such messages out"


def fault_label(reason: str) -> str:
    """Return a short name for what is wrong with a record, for a metric. Guarantee: it is one of a fixed set."""
    try:
        return FaultReason(reason).name.lower()
    except ValueError:
        return _NO_WORD.sub("_", reason.lower()) if reason in remedies() else "other"


class RecordFault(NamedTuple):
    """One fault of a record. Its texts come from the policy and from this module, so a policy bounds their number."""

    reason: str
    """A `FaultReason`, or a text that says what to do about it."""
    field: str = ""
    """Name of the field; empty if the record as a whole is at fault."""
    column: int = 0
    """Number of the column in a CSV file, from 1; 0 if there is none."""
    detail: str = ""
    """What differs between records with the same fault; takes the place of ``reason`` in `location`."""
    names: tuple[str, ...] = ()
    """Fields that the policy does not declare. They can be values: `RefusalCounter` lists those of k records."""

    @property
    def kind(self) -> str:
        """Field and reason, alike for all records with this fault."""
        return f"{self.field}: {self.reason}" if self.field else self.reason

    @property
    def location(self) -> str:
        """Text that follows the line number of the record in an error."""
        if not self.field:
            return f": {self.detail or self.reason}"
        where = f"column {self.column} ({self.field})" if self.column else f"field {self.field}"
        return f", {where}: {self.detail or self.reason}"


NOTABLE_SHARE = 0.01
"""A larger share of refused records is reported by reason and field."""
SUPPRESSED_SHARE = 0.1
"""With a larger share of suppressed records, a release under l, t or max_value_share is not representative."""
NOT_REPRESENTATIVE = "the release is not representative of the input: suppressed records mostly have frequent values"
MAX_KINDS = 10
"""Kinds that `RefusalCounter.texts` lists."""
_MAX_NAMES, _MAX_NAME, _MAX_COUNTED_NAMES = 3, 40, 1000
"""Undeclared fields that are listed, their characters, and how many are counted."""


class RefusalCounter:
    """Counts refused records: ``total``, and by kind. Its memory is bounded by the number of fields of the policy.

    With ``k`` it lists some undeclared fields that at least k records have. Guarantee: no other name, which can be a
    value, is in a text.
    """

    def __init__(self, k: int = 0) -> None:
        self.total = 0
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._names: Counter[str] | None = Counter() if k else None
        self._k = k

    def add(self, reason: str, faults: Sequence[RecordFault], count: int = 1) -> None:
        """Count refused records that have the same faults, if they are known; each fault is counted."""
        self.total += count
        for field, text in {(fault.field, fault.reason) for fault in faults} or {("", "")}:
            self._counts[reason, field, text] += count
        if self._names is not None and len(self._names) < _MAX_COUNTED_NAMES:
            for name in dict.fromkeys(name for fault in faults for name in fault.names):
                self._names[name] += count

    def texts(self, records_in: int) -> list[str]:
        """Return a text for each kind, the most frequent first, such as ``1,350 of 7,874 invalid: weight: empty``."""
        return [text for text, _ in self.kinds(records_in)]

    def kinds(self, records_in: int) -> list[tuple[str, str]]:
        """Return text and remedy of each kind, the most frequent first; no remedy if the text says it."""
        ordered = self._ordered()
        found = []
        for (reason, field, fault), count in ordered[:MAX_KINDS]:
            remedy = _remedy_for(fault)
            text = f"{count:,} of {records_in:,} {': '.join(filter(None, (reason, field, fault)))}"
            if fault == FaultReason.UNDECLARED and (names := self._common_names()):
                text += f" ({_listed(names)})"
            found.append((text, "" if remedy == fault else remedy))
        rest = len(ordered) - MAX_KINDS
        return found + ([(f"{rest} more kind{'s' if rest > 1 else ''}", "")] if rest > 0 else [])

    def remedy(self) -> str:
        """Return what to do about the most frequent fault, with all its fields; an empty text if that is not known."""
        kinds = [(field, text) for (_, field, text), _ in self._ordered()]
        if not kinds:
            return ""
        first = kinds[0][1]
        remedy = _remedy_for(first)
        fields = ", ".join(dict.fromkeys(field for field, text in kinds[:MAX_KINDS] if field and text == first))
        return f"{fields}: {remedy}" if fields else remedy

    def _common_names(self) -> list[str]:
        names = self._names or Counter()
        return [name for name, count in names.most_common(_MAX_NAMES + 1) if count >= self._k]

    def _ordered(self) -> list[tuple[tuple[str, str, str], int]]:
        """Return the kinds with their counts, the most frequent first, and kinds with equal counts by their texts."""
        return sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))


def _listed(names: Sequence[str]) -> str:
    """Return some names of fields, each shortened."""
    shown = [f"'{name[:_MAX_NAME]}{'...' if len(name) > _MAX_NAME else ''}'" for name in names[:_MAX_NAMES]]
    return ", ".join([*shown, *(["..."] if len(names) > _MAX_NAMES else [])])


def is_notable(records_in: int, released: int, refused: int) -> bool:
    """Return whether nothing was released of an input that has records, or more than 1 % of them were refused."""
    return (records_in > 0 and released == 0) or refused > NOTABLE_SHARE * records_in


def is_representative(records_in: int, released: int, suppressed: int) -> bool:
    """Return whether so few records are suppressed that the values of the others are like those of the input."""
    # After a restart, records may be decided that an earlier process has counted as read.
    return released == 0 or suppressed <= SUPPRESSED_SHARE * max(records_in, released + suppressed)


def _remedy_for(reason: str) -> str:
    """Return what to do about a reason. A reason that is not a `FaultReason` says it itself."""
    try:
        return FaultReason(reason).remedy
    except ValueError:
        return remedies().get(reason, reason)
