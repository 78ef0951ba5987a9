"""Parses the text of a record, and says what came of it.

The strictness of this reader decides which originals are usable, so it is not shared with the decoders of the engine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias

from shoal.audit.json_values import JsonObject, json_document, json_text
from shoal.audit.nesting import within_depth

__all__ = ["Outcome", "Record", "as_original", "as_record", "has_lone_surrogate", "read_original", "record_of"]

Record: TypeAlias = Mapping[str, object]

_SURROGATE = re.compile("[\ud800-\udfff]")


class Outcome(Enum):
    """What came of reading the text of a record.

    `UNDECODABLE`: it is no JSON or CSV. `NO_RECORD`: it is, but no object with names that differ, or no row of the
    columns with values. `UNCLEAR`: one of the two.
    """

    RECORD = "record"
    UNDECODABLE = "undecodable"
    NO_RECORD = "no record"
    UNCLEAR = "unclear"


def record_of(text: bytes | str) -> Record | None:
    """Parse one record with its numbers as `JsonNumber`."""
    try:
        return as_record(json_document(text.decode() if isinstance(text, bytes) else text))
    except ValueError:
        return None


def has_lone_surrogate(value: object) -> bool:
    """Whether a text inside a value has half a surrogate pair, which no UTF-8 can express."""
    return _SURROGATE.search(json_text(value)) is not None


def read_original(text: bytes | str) -> tuple[Record | None, Outcome]:
    """Parse one record of an original, and return what came of it."""
    try:
        value = json_document(text.decode() if isinstance(text, bytes) else text)
    except ValueError:
        return None, Outcome.UNDECODABLE
    return as_original(value)


def as_original(value: object) -> tuple[Record | None, Outcome]:
    """Return a parsed value as a record, and what came of it."""
    record = as_record(value)
    if record is not None:
        shallow = within_depth(record)
        return shallow, Outcome.UNDECODABLE if shallow is None else Outcome.RECORD
    try:
        is_unclear = within_depth({"": value}) is None or has_lone_surrogate(value)
    except RecursionError:
        is_unclear = True
    return None, Outcome.UNCLEAR if is_unclear else Outcome.NO_RECORD


def as_record(value: object) -> Record | None:
    """Return a JSON object as a mapping; None for any other value and for repeated names."""
    if not isinstance(value, JsonObject):
        return None
    record = dict(value)
    return record if len(record) == len(value) else None
