"""`FaultReason`: each reason for which a record is rejected, and what to do about it. None contains a value."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

__all__ = ["FaultReason", "remedy_for"]

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
