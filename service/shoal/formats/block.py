"""`Block`: decoded records as arrays, and the rejected messages with their reasons.

`FaultReason`: each reason for which a record is rejected, and what to do about it. None contains a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import compress
from typing import Any, NamedTuple, Self

from shoal.arrays import BoolVector, Float64Matrix, Int64Matrix, Int64Vector

__all__ = ["Block", "DropReason", "FaultReason", "ProtectedValues", "Reason", "remedy_for"]


class Reason(StrEnum):
    """Why a record is not released. The reasons are few and coarse, because a finer one could reveal a value."""

    UNDECODABLE = "undecodable"
    INVALID = "invalid"
    SUPPRESSED = "suppressed"
    TOO_LARGE = "too_large"


class DropReason(StrEnum):
    """Why a message is dropped: it is no record, and the policy says that such messages are not quarantined."""

    DELETES = "deletes"
    TOMBSTONES = "tombstones"


class ProtectedValues(NamedTuple):
    """The values of the q protected attributes of n records.

    Attributes
    ----------
    numbers : ndarray of int64, shape (n, q)
        Index of each value in ``keys``.
    keys : sequence of sequences of str or None
        The keys of the values of each attribute, each once, as of `ConfidentialKeys`.
    """

    numbers: Int64Matrix
    keys: Sequence[Sequence[str | None]]

    def select(self, records: BoolVector | slice) -> ProtectedValues:
        """Return the values of some records. The keys stay the same."""
        return ProtectedValues(self.numbers[records], self.keys)


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The n accepted records of a sequence of messages, and the messages that are rejected or dropped.

    Attributes
    ----------
    values : ndarray of float64, shape (n, d), C-contiguous
        One column per attribute of `Policy.clustered`. A number is in original units; a time is in ms since
        1970-01-01T00:00Z; an ordinal value is its rank, from 0; a nominal value is its index in ``categories``. A
        missing value of an attribute that may have one is NaN. All others are finite, none is a negative zero, and each
        is within the bounds of its attribute if it has bounds.
    subjects : ndarray of int64, shape (n,)
        Keyed hash of the normalised subject, or a running number if every record belongs to a different person. Only
        equality has a meaning.
    unchanged_fields : list of bytes, length n
        The unchanged fields of each record, encoded for the output by the encoder that the decoder was given. Only
        that encoder can interpret them.
    index : ndarray of int64, shape (n,), strictly increasing
        Index of each accepted record in the messages.
    rejected : list of (int, Reason)
        Index and reason of each rejected message, by increasing index.
    clipped : int
        Number of values that were outside their bounds and were moved to them.
    unchanged_columns : sequence of sequences
        One column of n typed values per unchanged field, if the decoder was created with ``with_columns``; else
        empty. Tables need them to measure how confidential values are distributed.
    categories : sequence of sequences of str
        One sequence per nominal attribute of `Policy.clustered`: the categories of this block, each once, as the texts
        of JSON scalars (``"M"`` with its quotation marks, ``true``, ``250``). Indices have a meaning within the block
        only.
    dropped : sequence of (int, DropReason)
        Index and reason of each dropped message, by increasing index. Every message is in ``index``, in ``rejected`` or
        here.
    protected : ProtectedValues or None
        The values of the protected attributes (`Policy.protected`) of a stream; None if there are none.
    """

    values: Float64Matrix
    subjects: Int64Vector
    unchanged_fields: list[bytes]
    index: Int64Vector
    rejected: list[tuple[int, Reason]]
    clipped: int
    unchanged_columns: Sequence[Sequence[Any]] = ()
    categories: Sequence[Sequence[str]] = ()
    dropped: Sequence[tuple[int, DropReason]] = ()
    protected: ProtectedValues | None = None

    def __len__(self) -> int:
        return len(self.unchanged_fields)

    def filter(self, mask: BoolVector) -> Block:
        """Return the records where the mask, of shape (n,), is true. ``rejected`` and ``clipped`` stay the same."""
        selectors = mask.tolist()
        return replace(
            self,
            values=self.values[mask],
            subjects=self.subjects[mask],
            unchanged_fields=list(compress(self.unchanged_fields, selectors)),
            index=self.index[mask],
            unchanged_columns=[list(compress(column, selectors)) for column in self.unchanged_columns],
            protected=None if self.protected is None else self.protected.select(mask),
        )

    def slice(self, records: slice) -> Block:
        """Return consecutive records. ``rejected`` and ``clipped`` stay the same."""
        if records == slice(0, len(self)):
            return self
        return replace(
            self,
            values=self.values[records],
            subjects=self.subjects[records],
            unchanged_fields=self.unchanged_fields[records],
            index=self.index[records],
            unchanged_columns=[column[records] for column in self.unchanged_columns],
            protected=None if self.protected is None else self.protected.select(records),
        )

    def __repr__(self) -> str:
        """Return counts only, because a block can appear in a traceback."""
        return f"Block(records={len(self)}, rejected={len(self.rejected)}, clipped={self.clipped})"


_ABSENT = (
    "fill the values in, remove the records, or give the field another role: confidential and other publish it as it "
    "is, identifier leaves it out; missing: group releases records without a value"
)
_TYPE = "declare the type that the values have, or type: any"
_UNIT = "correct the values or the unit; leave unit out for times in ISO 8601"


class FaultReason(StrEnum):
    """What is wrong with a record or a field, as text.

    Attributes
    ----------
    remedy : str
        What to do about it. By default the text itself, which then says it.
    """

    remedy: str

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
    NESTED = (
        "a list or an object",
        "give the field the role identifier, which leaves it out, or make the values flat",
    )
    NOT_SUBJECT = (
        "not a valid subject",
        (
            "each record needs an identifier of its person, which is no value of missing_values; correct the values or "
            "the type of the field"
        ),
    )

    # A quasi-identifier or a steering attribute
    NOT_FINITE = (
        "not a finite number",
        (
            "a quasi-identifier must be a number; if the field is a category or a time, set its scale: nominal, "
            "ordinal or time; if it is another text, give it another role: confidential and other publish it as it "
            "is, identifier leaves it out; if it is a number, correct the values, or set csv.decimal"
        ),
    )
    NOT_WHOLE = "not a whole number", "set integer: false, or correct the values"
    OUTSIDE_BOUNDS = "outside its bounds", "widen the bounds, or set out_of_bounds: clip"
    NOT_IN_ORDER = "not in its order", "add the category to order, or correct the values"
    NOT_IN_TAXONOMY = "not in the taxonomy", "add the category to the taxonomy, or set unknown: root"
    NOT_CATEGORY = (
        "not a text, truth value or whole number",
        "write categories as texts, or set scale: numeric",
    )
    NOT_TIME = "not a time in ISO 8601", "write times as 2026-07-14 or 2026-07-14T09:30:00Z, or set unit"
    NOT_SECONDS = "not a number of seconds since 1970", _UNIT
    NOT_MILLISECONDS = "not a number of milliseconds since 1970", _UNIT
    NOT_MICROSECONDS = "not a number of microseconds since 1970", _UNIT
    NOT_DAYS = "not a number of days since 1970", _UNIT

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
    NOT_UTF8 = (
        "not UTF-8, or nested too deeply",
        "write the records in UTF-8, with objects and lists at most 64 deep",
    )
    NOT_OBJECT = "not a JSON object; each line must be one object"
    NOT_MESSAGE = (
        "not a message in the form of docs/files.md: value, and key, headers or timestamp if the policy reads them"
    )
    REPEATED_FIELD = "a field occurs twice; remove one of them"
    UNDECLARED = "a field that the policy does not declare; declare it, or set undeclared: drop"
    TOO_LARGE = (
        "longer than kafka.max_record_bytes, which is 900,000 by default",
        "raise kafka.max_record_bytes in the policy, or shorten the records",
    )
    UNKNOWN = "the record does not fit the policy"
    ENVELOPE = (
        "the key, a header or the timestamp does not fit the policy",
        "correct 'from', type or scale of the attributes that are read from them, or the messages",
    )

    # A message around a record
    NOT_DEBEZIUM = "not a message of Debezium; correct unwrap in the policy, or the messages"
    NOT_CONNECT = "not a message of JsonConverter with schemas; correct unwrap in the policy, or set schemas.enable"
    NOT_CLOUDEVENT = "not an event in JSON format with JSON data; correct unwrap in the policy, or the events"
    IN_DEBEZIUM = "inside a message of Debezium; set unwrap: debezium"
    IN_CONNECT = "inside a message of JsonConverter with schemas; set unwrap: connect"
    IN_CLOUDEVENT = "inside an event in JSON format; set unwrap: cloudevents"
    DELETE = "a delete; set deletes: drop to leave such messages out"
    TOMBSTONE = "no value; set tombstones: drop to leave such messages out"


def remedy_for(reason: str) -> str:
    """Return what to do about a reason. A reason that is no `FaultReason` says it itself."""
    try:
        return FaultReason(reason).remedy
    except ValueError:
        return reason
