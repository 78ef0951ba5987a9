"""Usual causes of input that holds no records, recognized by form: before a header, and in place of a JSON object.

A cause names one key or command that mends it, and no value.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Callable, Sequence
from itertools import islice

import msgspec

from shoal.formats.block import (
    MISMATCH,
    Column,
    blank_missing,
    describe_converted,
    describe_json,
    describe_missing,
    parse_values,
)
from shoal.formats.confidential_keys import describe_unplaced
from shoal.formats.faults import FaultReason
from shoal.formats.json_text import canonical_number
from shoal.formats.subjects import describe_subject
from shoal.policy import BLANKS, Attribute, Policy, Role
from shoal.scales import SCALES, scale_of
from shoal.scales.numeric import replace_decimal_commas

MOST_LINES = 100
"""First lines of a CSV file among which a header is sought."""
_SEP_LINE = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
_DELIMITERS = {",": "','", ";": "';'", "\t": "tab", "|": "'|'"}
_decode = msgspec.json.Decoder().decode


def header_cause(lines: Sequence[str], policy: Policy) -> str:
    """Return why line 1 of a CSV file is not its header; an empty text if no cause is known.

    ``lines`` are the first lines of the file. The cause may name columns of the policy, which are no values.
    """
    lines = [line.rstrip("\r\n") for line in islice(lines, MOST_LINES)]
    declared = [attribute.name for attribute in policy.attributes]
    if _SEP_LINE.fullmatch(lines[0].strip(BLANKS)):
        return (
            "a line sep= for Excel stands before the header; remove it, which needs the command tail -n +2 FILE > NEW"
        )
    given = policy.csv.delimiter
    for delimiter in (given, *(one for one in _DELIMITERS if one != given)):
        for number, line in enumerate(lines, 1):
            if set(declared) <= set(_cells(line, policy, delimiter)):
                return _found_header(number, delimiter, given)
    cells = _cells(lines[0], policy, given)
    names = {name.casefold() for name in declared}
    if len(cells) < len(declared) or names & {cell.casefold() for cell in cells}:
        return ""
    shown = given.join(declared) if len(cells) == len(declared) else given.join((*declared, "..."))
    command = shlex.join(["sed", f"1i {shown}", "FILE"])
    return (
        "no declared column is named here; if this line is a record, write the names of the columns above it, in the "
        f"order of the file: {command} > NEW; else correct the names in the policy"
    )


def width_cause(lines: Sequence[str], header: Sequence[str], policy: Policy) -> str:
    """Return why the lines below a header have another number of cells than it; empty if they have as many.

    ``lines`` are the first lines of the file, the header included.
    """
    delimiter = policy.csv.delimiter
    below = [_cells(line, policy, delimiter) for line in islice(lines, 1, MOST_LINES) if line.strip()]
    below = below[:-1] if len(below) > 1 else below  # the last line may be incomplete
    widths = {len(cells) for cells in below}
    if widths == {len(header) - 1} and not header[-1].strip(BLANKS):
        end = r"\t" if delimiter == "\t" else delimiter
        command = shlex.join(["sed", rf"1s/{end}\r*$//", "FILE"])
        return (
            "the header ends with a delimiter and has one cell more than the lines below; remove the delimiter: "
            f"{command} > NEW"
        )
    if widths != {len(header) + 1} or len(below) < 2:  # noqa: PLR2004 - one line may be wrong by itself
        return ""
    if not any(cells[-1].strip(BLANKS) for cells in below):
        command = shlex.join(["sed", rf"2,$s/{delimiter}\(\r*\)$/\1/", "FILE"])
        return f"the lines below end with a delimiter, the header does not; remove the delimiter: {command} > NEW"
    command = shlex.join(["sed", f"1s/^/row{delimiter}/", "FILE"])
    return (
        "the lines below have one cell more than the header, as files of R with row names; name their first column: "
        f"{command} > NEW, and declare row as an identifier or set undeclared: drop"
    )


def not_json(message: bytes, *, in_array: bool = False) -> FaultReason:
    """Return what is in place of a JSON object; ``in_array``: the first line of the file opens an array.

    Cost: some µs per message of 200 bytes; a message is read at most three times.
    """
    text = message.strip()
    value = _value_of(text)
    if isinstance(value, str) and isinstance(_value_of(value.encode(errors="replace")), dict):
        return FaultReason.ENCODED_TWICE
    found = _of_bytes(message)
    if found is None and (in_array or isinstance(value, list) or _is_of_array(text)):
        return FaultReason.ARRAY
    found = found or next((cause for cause, has_form in _FORMS if has_form(text)), None)
    is_json = value is not None or text == b"null"
    return found or (FaultReason.NOT_OBJECT if is_json else FaultReason.NOT_JSON)


_MARKS_OF_BYTES = (
    (FaultReason.COMPRESSED, (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh")),
    (FaultReason.UTF16, (b"\xff\xfe", b"\xfe\xff")),
)


def _of_bytes(message: bytes) -> FaultReason | None:
    """Return what bytes are that are no text in UTF-8; None if they are one."""
    if marked := next((cause for cause, starts in _MARKS_OF_BYTES if message.startswith(starts)), None):
        return marked
    if message[:1] == b"\0" and len(message) > 5:  # noqa: PLR2004 - a zero byte and a number of four bytes
        return FaultReason.OF_REGISTRY
    if b"\0" in message:
        return FaultReason.UTF16
    try:
        message.decode()
    except UnicodeDecodeError:
        return FaultReason.NOT_UTF8
    return None


def _found_header(number: int, delimiter: str, given: str) -> str:
    """Return what to do where a line has all declared names, with the given delimiter or another one."""
    parts = []
    if number > 1:
        parts.append(f"the header is on line {number}; remove the lines before it: tail -n +{number} FILE > NEW")
    if delimiter != given:
        shown = _DELIMITERS[delimiter]
        parts.append(f"the columns are separated by {shown}; set csv.delimiter: {shown}")
    return "; and ".join(parts)


def _cells(line: str, policy: Policy, delimiter: str) -> list[str]:
    """Return the cells of a line without blanks around them."""
    options = policy.csv.reader_options | {"strict": False, "delimiter": delimiter}
    try:
        cells = next(csv.reader([line], **options), [])
    except csv.Error:
        return []
    return [cell.strip(BLANKS) for cell in cells]


def _value_of(text: bytes) -> object:
    """Return a JSON value; None for null and for what is not JSON."""
    try:
        value: object = _decode(text)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return None
    return value


def _is_of_array(text: bytes) -> bool:
    """Return whether a line is a bracket, or an object with a bracket or a comma around it."""
    return text.startswith(b"[") or text in {b"]", b"],"} or isinstance(_value_of(text.rstrip(b",] \t")), dict)


def _has_not_a_number(text: bytes) -> bool:
    """Return whether a text is JSON but for NaN or Infinity, which Python's parser takes."""
    if b"NaN" not in text and b"Infinity" not in text:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def describe_cell(policy: Policy, attribute: Attribute, cell: str, *, has_commas: bool = False) -> str:
    """Return what is wrong with the cell, key or header of an attribute; empty if it is valid."""
    text = cell.strip(BLANKS)
    if attribute.is_clustered:
        if text in policy.missing_values:
            return describe_missing(attribute, FaultReason.MISSING_VALUE if text else FaultReason.EMPTY)
        if not text.strip() and SCALES[attribute.scale].is_amount:
            return FaultReason.EMPTY
        reader = scale_of(attribute).reader(policy.missing_values, has_commas=has_commas)
        return describe_converted(reader, float(reader.read_cells([cell]).values[0]), text)
    if attribute.type == "json" and attribute.role is not Role.IDENTIFIER:
        return describe_json(attribute, text.encode()) if text else ""
    if attribute.role is not Role.IDENTIFIER:
        (cell,) = blank_missing([cell], attribute, policy.missing_values)
    (cell,) = with_points([cell], attribute) if has_commas else [cell]
    if attribute.role is Role.IDENTIFIER:
        return describe_subject(policy, attribute, cell) if attribute.subject else ""
    (value,), _ = parse_values([cell], attribute.type)
    return (
        FaultReason(f"not of type {attribute.type}")
        if value is MISMATCH
        else describe_unplaced(policy, attribute, value)
    )


def with_points(cells: Column, attribute: Attribute) -> Column:
    """Replace the decimal commas of numbers; also of those of a subject, which is the same in every dialect."""
    if not attribute.subject:
        return replace_decimal_commas(cells) if attribute.type in {"integer", "number"} else cells
    if attribute.type == "string":
        return cells
    texts = [cell.replace(",", ".") for cell in cells]
    return [text if canonical_number(text.strip()) else cell for text, cell in zip(texts, cells, strict=True)]


_FORMS: tuple[tuple[FaultReason, Callable[[bytes], bool]], ...] = (
    (FaultReason.SPREAD, lambda text: text in {b"{", b"}", b"},"} or re.match(rb'"[^"]*"\s*:', text) is not None),
    (FaultReason.OF_PYTHON, lambda text: text.startswith(b"{'")),
    (FaultReason.NOT_A_NUMBER, _has_not_a_number),
)
"""Causes by the form of a text that is no JSON object."""
