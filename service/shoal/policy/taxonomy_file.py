"""Read the file of a taxonomy: a header and one row per leaf, from the leaf to the root.

Cells are separated by ``;`` or ``,``.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from shoal.errors import InputError
from shoal.policy.named_file import delimiter_of, read_named_file
from shoal.policy.taxonomy_rows import RowFault, TaxonomyRow

__all__ = ["TaxonomyFile", "read_taxonomy_file"]


class TaxonomyFile(NamedTuple):
    """What a file contains: its first line, the rows that have as many cells, and the faults of all others."""

    header: tuple[str, ...]
    rows: list[TaxonomyRow]
    faults: list[RowFault]


def read_taxonomy_file(folder: Path, name: str) -> TaxonomyFile:
    """Read the taxonomy of a file; `check_rows` checks that its rows are one tree.

    Parameters
    ----------
    folder : Path
        The folder of the policy.
    name : str
        Path of the file, relative to the folder.

    Raises
    ------
    InputError
        The file cannot be read, or is no table with at least two columns.
    """
    text = read_named_file(folder, name)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter_of(text), strict=True)
    rows: list[TaxonomyRow] = []
    try:
        rows.extend(TaxonomyRow(tuple(cell.strip() for cell in cells), reader.line_num) for cells in reader if cells)
    except csv.Error:
        raise InputError(f"{name} line {reader.line_num}: a quotation mark is missing, or a cell is too long") from None
    if len(rows) < 2:  # noqa: PLR2004 - a header and a leaf
        raise InputError(f"{name}: must have a header and one row per leaf")
    header, leaves = rows[0], rows[1:]
    _check_columns(name, header, leaves[0])
    width = len(header.cells)
    whole = [row for row in leaves if len(row.cells) == width]
    wrong = [_wrong_width(row, width) for row in leaves if len(row.cells) != width]
    return TaxonomyFile(header.cells, whole, [*_check_header(header, whole), *wrong])


def _wrong_width(row: TaxonomyRow, width: int) -> RowFault:
    return RowFault(
        row, f"has {len(row.cells)} cells, but the header has {width}; give every leaf a name on every level"
    )


def _check_columns(name: str, header: TaxonomyRow, leaf: TaxonomyRow) -> None:
    """Refuse a file with another delimiter, and one without groups."""
    if all("\t" in cell for cell in (header.cells[0], leaf.cells[0])):
        raise InputError(f"{name}: separates cells by tabs; separate them by ; or ,")
    if len(header.cells) == 1 and "|" in header.cells[0]:
        raise InputError(f"{name}: separates cells by |; separate them by ; or ,")
    if len(header.cells) == len(leaf.cells) == 1:
        raise InputError(f"{name}: has one column; give the leaf and its groups, or leave taxonomy out")


def _check_header(header: TaxonomyRow, rows: Sequence[TaxonomyRow]) -> Iterator[RowFault]:
    """Yield the fault of a first line that is a leaf: the tree would lack it."""
    names = {(level, name) for row in rows for level, name in enumerate(row.cells[1:])}
    if any(node in names for node in enumerate(header.cells[1:])):
        message = "repeats a name of the rows below, so it is a leaf and no header; add a header with names of its own"
        yield RowFault(header, message)
        return
    form = _form_of(header.cells[0])
    if "9" in form and any(_form_of(row.cells[0]) == form for row in rows):
        yield RowFault(
            header,
            "its first name has the form of the leaves below, so it is a leaf and no header; add a header with names "
            "of another form",
        )


def _form_of(name: str) -> str:
    """Return a name with each digit as 9 and each letter as x, such as x99.9 for a code of a disease."""
    return re.sub(r"[^\W\d_]", "x", re.sub(r"\d", "9", name))
