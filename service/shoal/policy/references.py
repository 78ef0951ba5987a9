"""Read the references of a policy: CSV files with the header ``value,share`` and one row per confidential value."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple, TypeAlias

from shoal.errors import InputError
from shoal.policy.attribute import Reference
from shoal.policy.schema import AttributeSection, Document, FieldPath, Finding, did_you_mean
from shoal.policy.taxonomy import read_rows
from shoal.policy.texts import (
    JSON_NUMBER,
    MAX_CATEGORY_BYTES,
    fold_characters,
    fold_text,
    is_finite_number,
    is_long_category,
)

REFERENCE_HEADER = ("value", "share")
MAX_FAULTS = 5
"""Faults that are reported of one reference. One mistake, such as decimal commas, shows in every row."""
SUM_TOLERANCE = 1e-6
"""Largest difference of the sum of all shares from 1. Shares are rounded when they are written."""


class _ReferenceRow(NamedTuple):
    """A row of the file: the text (None for a missing value), the share as written, and the line."""

    text: str | None
    share: str
    line: int


_RowFault: TypeAlias = tuple[int, str]
"""The line of a row, and what is wrong with it."""


def read_references(document: Document, folder: Path) -> tuple[dict[str, Reference], list[Finding]]:
    """Return the references of confidential attributes by the attribute's name, and all faults, without values."""
    references: dict[str, Reference] = {}
    faults: list[Finding] = []
    missing = frozenset(document.missing_texts)
    for name, attribute in document.attributes.items():
        if attribute.reference is None or attribute.role != "confidential":
            continue
        path = ("attributes", name, "reference")
        try:
            rows, wrong = _read_rows(folder, attribute.reference, missing)
        except InputError as error:
            faults.append((path, str(error)))
            continue
        wrong += _check_rows(rows, attribute)
        found = [f"{attribute.reference} line {line}: {message}" for line, message in sorted(wrong)]
        if not found:
            found = [f"{attribute.reference}: {message}" for message in _check_shares(rows)]
        faults += [(path, message) for message in found[:MAX_FAULTS]]
        if not found:
            # The sum of the shares differs from 1 by rounding only.
            shares = [float(row.share) for row in rows]
            total = math.fsum(shares)
            references[name] = Reference(tuple(row.text for row in rows), tuple(share / total for share in shares))
    return references, faults


def without_references(document: Document) -> Document:
    """Return a document whose attributes name no reference."""
    attributes = {name: a.model_copy(update={"reference": None}) for name, a in document.attributes.items()}
    return document.model_copy(update={"attributes": attributes})


def is_of_reference(path: FieldPath) -> bool:
    """Return whether a field is the reference of an attribute."""
    return path[:1] == ("attributes",) and path[2:3] == ("reference",)


def _read_rows(folder: Path, name: str, missing: Collection[str]) -> tuple[list[_ReferenceRow], list[_RowFault]]:
    """Return the rows of a file that have two cells, and the faults of all others."""
    found = [
        (line, [unicodedata.normalize("NFC", cell).strip() for cell in cells])
        for line, cells in read_rows(folder, name)
        if len(cells) > 1 or any(cells)
    ]
    if not found:
        raise InputError(f"{name}: is empty; give the header value,share and one row per value")
    _require_header(name, found[0][1])
    wrong = [(line, _describe_width(len(cells))) for line, cells in found[1:] if len(cells) != len(REFERENCE_HEADER)]
    texts = {"", *map(fold_characters, missing)}
    rows = [
        _ReferenceRow(None if fold_characters(cells[0]) in texts else cells[0], cells[1], line)
        for line, cells in found[1:]
        if len(cells) == len(REFERENCE_HEADER)
    ]
    return rows, wrong


def _require_header(name: str, cells: Sequence[str]) -> None:
    if tuple(cell.lower() for cell in cells) == REFERENCE_HEADER:
        return
    hints = [did_you_mean(cell, REFERENCE_HEADER) for cell in cells if cell.lower() not in REFERENCE_HEADER]
    hint = next(filter(None, hints), "") if len(cells) == len(REFERENCE_HEADER) else ""
    raise InputError(f"{name} line 1: must be the header value,share" + (f"; {hint}" if hint else ""))


def _describe_width(count: int) -> str:
    if count < len(REFERENCE_HEADER):
        return "has one cell; give a value and its share"
    return f"has {count} cells; give a value and its share, and put a value with a delimiter in quotes"


def _check_rows(rows: Sequence[_ReferenceRow], attribute: AttributeSection) -> Iterator[_RowFault]:
    """Yield each row with a share that is none, with a value of another kind, or with a value of a row before."""
    lines: dict[object, int] = {}
    order = frozenset(fold_characters(str(item)) for item in attribute.order or ())
    for row in rows:
        if fault := _fault_of_share(row.share):
            yield row.line, fault
        if row.text is not None and (fault := _fault_of_value(row.text, attribute, order)):
            yield row.line, fault
            continue
        first = lines.setdefault(fold_text(row.text, attribute.type), row.line)
        if first != row.line:
            what = "the missing value" if row.text is None else "the value"
            yield (row.line, f"{what} occurs twice, also in line {first}; add the shares and remove one row")


def _fault_of_share(text: str) -> str:
    if "," in text:
        return "the share must be a number from 0 to 1, with a point and no comma"
    if not JSON_NUMBER.fullmatch(text):
        return "the share must be a number from 0 to 1" + (", not a percentage" if "%" in text else "")
    return "" if 0 <= float(text) <= 1 else "the share must be from 0 to 1"


def _fault_of_value(text: str, attribute: AttributeSection, order: Collection[str]) -> str:
    """Return why a value cannot be one of the attribute; empty if it can."""
    if attribute.type != "json" and is_long_category(text):
        return f"the value has more than {MAX_CATEGORY_BYTES:,} bytes as JSON; shorten it"
    if attribute.scale == "ordinal":
        is_known = not order or fold_characters(text) in order
        return "" if is_known else "the value is not in the order of the attribute; correct its spelling"
    return _fault_of_type(text, attribute)


def _fault_of_type(text: str, attribute: AttributeSection) -> str:
    is_number = is_finite_number(text)
    if (attribute.scale == "numeric" or attribute.type in {"integer", "number"}) and not is_number:
        return "the value must be a number; a missing value is an empty cell"
    if attribute.type == "integer" and Decimal(text) % 1:
        return "the value must be a whole number"
    if attribute.type == "boolean" and text.lower() not in {"true", "false"}:
        return "the value must be true or false; a missing value is an empty cell"
    if attribute.type == "json" and not _is_json(text):
        return "the value must be JSON; write a text with its quotation marks"
    return ""


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _check_shares(rows: Sequence[_ReferenceRow]) -> Iterator[str]:
    """Yield what is wrong with the distribution as a whole."""
    shares = [float(row.share) for row in rows]
    if sum(share > 0 for share in shares) < 2:  # noqa: PLR2004 - one value alone is in every cluster
        yield "must give at least two values a share above 0, or no cluster can differ from it"
    elif abs((total := math.fsum(shares)) - 1) > SUM_TOLERANCE:
        hint = "; give shares, not percentages" if abs(total - 100) <= 1 else ""
        yield f"the shares must add up to 1 within {SUM_TOLERANCE:g}, and add up to {total:.7g}{hint}"
