"""Describe why a record of a file was rejected: which column or field, and why. No description contains a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from shoal.policy import Attribute, FieldType, Policy
from shoal.records.block import Reason
from shoal.records.columns import MISMATCH, parse_numbers, parse_values, replace_decimal_commas, to_number
from shoal.records.csv_decoder import EmbeddedRecordCheck
from shoal.records.numerals import NumberText
from shoal.records.strict_json import validate_strictly
from shoal.records.subjects import normaliser

__all__ = ["describe_csv_fault", "describe_json_fault"]

_TYPES: dict[FieldType, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int, float),
    "number": (int, float),
    "boolean": (bool,),
    "any": (str, int, float, bool),
}
_decode = msgspec.json.Decoder(float_hook=NumberText).decode
_UNKNOWN = ": the record does not fit the policy"


def describe_csv_fault(policy: Policy, columns: Sequence[str], cells: Sequence[str] | None) -> str:
    """Describe why a CSV record was rejected.

    Parameters
    ----------
    policy : Policy
    columns : sequence of str
        The header.
    cells : sequence of str or None
        As `CsvReader` yields them.

    Returns
    -------
    str
        Text that follows the line number in an error: the column (number from 1, and name), if one is at fault, and
        the reason.
    """
    if cells is None:
        return ": invalid quotation marks or bytes for the CSV dialect of the policy"
    if len(cells) != len(columns):
        return f": {len(cells)} cells, but the header has {len(columns)}"
    if EmbeddedRecordCheck(policy, columns).find([[cell] for cell in cells]):
        return ": a cell contains what looks like another record; close the quotation mark, or set csv.multiline: true"
    for attribute in policy.attributes:
        column = columns.index(attribute.name)
        reason = _describe_cell(policy, attribute, cells[column])
        if reason:
            return f", column {column + 1} ({attribute.name}): {reason}"
    return _UNKNOWN


def describe_json_fault(policy: Policy, message: bytes) -> str:
    """Describe why a JSON message was rejected: the field, if one is at fault, and the reason."""
    record, reason = _decode_object(message)
    if reason:
        return reason
    for attribute in policy.value_attributes:
        if attribute.name not in record:
            return f", field {attribute.name}: missing"
        reason = _describe_value(attribute, record[attribute.name])
        if reason:
            return f", field {attribute.name}: {reason}"
    if policy.undeclared == "quarantine" and len(record) > len(policy.value_attributes):
        return ": a field that the policy does not declare; declare it, or set undeclared: drop"
    return _UNKNOWN


def _decode_object(message: bytes) -> tuple[dict[str, Any], str]:
    """Return the fields, and why the message is not a valid object; empty if it is one."""
    try:
        record = _decode(message)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}, ": not JSON"
    if not isinstance(record, dict):
        return {}, ": not a JSON object; each line must be one object"
    reason = validate_strictly(message)
    if reason is Reason.INVALID:
        return {}, ": a field occurs twice; remove one of them"
    return record, "" if reason is None else ": not UTF-8, or nested too deeply"


def _describe_cell(policy: Policy, attribute: Attribute, cell: str) -> str:
    has_commas = policy.csv.decimal == ","
    if attribute in policy.quasi_identifiers:
        if not cell.strip():
            return "empty"
        cells = replace_decimal_commas([cell]) if has_commas else [cell]
        return _describe_number(attribute, float(parse_numbers(cells)[0]))
    if attribute.subject:
        text = cell.replace(",", ".") if has_commas and attribute.type in {"integer", "number"} else cell
        return _describe_subject(attribute, text)
    if attribute in policy.unchanged_fields:
        is_converted = has_commas and attribute.type != "string"
        return _describe_unchanged_cell(attribute, replace_decimal_commas([cell])[0] if is_converted else cell)
    return ""


def _describe_unchanged_cell(attribute: Attribute, cell: str) -> str:
    values, _ = parse_values([cell], attribute.type)
    return f"not of type {attribute.type}" if values[0] is MISMATCH else ""


def _describe_value(attribute: Attribute, value: Any) -> str:  # noqa: ANN401 - any JSON
    is_number = isinstance(value, int | NumberText) and not isinstance(value, bool)
    if attribute.role == "quasi_identifier":
        if value is None:
            return "null"
        number = to_number(value) if is_number else None
        return _describe_number(attribute, np.nan if number is None else number)
    if attribute.role == "identifier":
        return _describe_subject(attribute, value) if attribute.subject else ""
    if value is None:
        return ""
    if isinstance(value, NumberText):
        value = float(value)
    if type(value) not in _TYPES[attribute.type]:
        return "a list or an object" if isinstance(value, list | dict) else f"not of type {attribute.type}"
    is_integer = not isinstance(value, float) or value.is_integer()
    return "" if attribute.type != "integer" or is_integer else "not of type integer"


def _describe_number(attribute: Attribute, value: float) -> str:
    if not np.isfinite(value):
        return "not a finite number"
    if attribute.integer and not value.is_integer():
        return "not a whole number"
    low, high = attribute.limits
    return "" if attribute.clip or low <= value <= high else "outside its bounds"


def _describe_subject(attribute: Attribute, value: object) -> str:
    return "" if normaliser(attribute.type, attribute.normalize)([value])[0] else "not a valid subject"
