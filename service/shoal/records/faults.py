"""What is wrong with a record of a finished table: which column and why, in words that hold no value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from shoal.policy import Attribute, FieldType, Policy
from shoal.records.block import Reason
from shoal.records.columns import MISFIT, numbers, pointed, to_number, typed
from shoal.records.embedded_record_check import EmbeddedRecordCheck
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
_UNCLEAR = ": the record does not fit the policy"


def describe_csv_fault(policy: Policy, columns: Sequence[str], cells: Sequence[str] | None) -> str:
    """Say what is wrong with the cells of a CSV record that was refused.

    Parameters
    ----------
    policy : Policy
        What it does not fit.
    columns : sequence of str
        The header.
    cells : sequence of str or None
        As `CsvReader` yields them.

    Returns
    -------
    str
        What follows the number of the line in a message: column (number from 1, and name) if it is one, and reason;
        never a value.
    """
    if cells is None:
        return ": quotation marks or bytes that are no CSV in the policy's dialect"
    if len(cells) != len(columns):
        return f": {len(cells)} cells, and the header has {len(columns)}"
    if EmbeddedRecordCheck(policy, columns).among([[cell] for cell in cells]):
        return ": a cell holds what would be another record: close the quotation mark, or say csv.multiline: true"
    for attribute in policy.attributes:
        place = columns.index(attribute.name)
        said = _cell(policy, attribute, cells[place])
        if said:
            return f", column {place + 1} ({attribute.name}): {said}"
    return _UNCLEAR


def describe_json_fault(policy: Policy, message: bytes) -> str:
    """Say what is wrong with a JSON message that was refused: field and reason; never a value."""
    record, said = _object(message)
    if said:
        return said
    for attribute in policy.value_attributes:
        if attribute.name not in record:
            return f", field {attribute.name}: missing"
        said = _value(attribute, record[attribute.name])
        if said:
            return f", field {attribute.name}: {said}"
    if policy.undeclared == "quarantine" and len(record) > len(policy.value_attributes):
        return ": a field that the policy does not declare: declare it, or say undeclared: drop"
    return _UNCLEAR


def _object(message: bytes) -> tuple[dict[str, Any], str]:
    """Return the fields, and what is wrong with the object as such; empty if nothing is."""
    try:
        record = _decode(message)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}, ": no JSON"
    if not isinstance(record, dict):
        return {}, ": no JSON object; there must be one on each line"
    reason = validate_strictly(message)
    if reason is Reason.INVALID:
        return {}, ": a field stands twice; take one of them out"
    return record, "" if reason is None else ": no UTF-8, or nested too deeply"


def _cell(policy: Policy, attribute: Attribute, cell: str) -> str:
    has_commas = policy.csv.decimal == ","
    if attribute in policy.quasi_identifiers:
        if not cell.strip():
            return "empty"
        return _number(attribute, float(numbers(pointed([cell]) if has_commas else [cell])[0]))
    if attribute.subject:
        text = cell.replace(",", ".") if has_commas and attribute.type in {"integer", "number"} else cell
        return _subject(attribute, text)
    if attribute in policy.passthrough:
        return _kept_cell(attribute, pointed([cell])[0] if has_commas and attribute.type != "string" else cell)
    return ""


def _kept_cell(attribute: Attribute, cell: str) -> str:
    values, _ = typed([cell], attribute.type)
    return f"not of type {attribute.type}" if values[0] is MISFIT else ""


def _value(attribute: Attribute, value: Any) -> str:  # noqa: ANN401 - any JSON
    is_number = isinstance(value, int | NumberText) and not isinstance(value, bool)
    if attribute.role == "quasi_identifier":
        if value is None:
            return "null"
        number = to_number(value) if is_number else None
        return _number(attribute, np.nan if number is None else number)
    if attribute.role == "identifier":
        return _subject(attribute, value) if attribute.subject else ""
    if value is None:
        return ""
    if isinstance(value, NumberText):
        value = float(value)
    if type(value) not in _TYPES[attribute.type]:
        return "a list or an object" if isinstance(value, list | dict) else f"not of type {attribute.type}"
    is_whole = not isinstance(value, float) or value.is_integer()
    return "" if attribute.type != "integer" or is_whole else "not of type integer"


def _number(attribute: Attribute, value: float) -> str:
    if not np.isfinite(value):
        return "not a finite number"
    if attribute.integer and not value.is_integer():
        return "not a whole number"
    low, high = attribute.limits
    return "" if attribute.clip or low <= value <= high else "outside its bounds"


def _subject(attribute: Attribute, value: object) -> str:
    return "" if normaliser(attribute.type)([value])[0] else "names nobody"
