"""Read the taxonomies of a policy: CSV files, or trees in the policy itself.

A file has a header and one row per leaf, from the leaf to the root; cells are separated by ``;`` or ``,``. A tree in
the policy is a mapping from the name of each node to its children, or a list of leaves.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from shoal.errors import InputError
from shoal.policy.category_limit import MAX_CATEGORY_BYTES, is_long_category
from shoal.policy.loader import FieldPath
from shoal.policy.schema import Document
from shoal.policy.taxonomy import Taxonomy

__all__ = ["TaxonomyFault", "read_taxonomies"]

MAX_BYTES = 32 << 20
"""Limit on a file. It bounds memory; all codes of a national classification of diseases take less than a third."""
MAX_LEVELS = 32
"""Limit on the levels below the root. Each is a column of distances."""
MAX_FAULTS = 5
"""Faults that are reported of one taxonomy. One mistake, such as a wrong delimiter, shows in every row."""


class TaxonomyFault(NamedTuple):
    """A fault of a taxonomy: the field that names it, the message, and the place in the policy whose line is shown."""

    path: FieldPath
    message: str
    place: FieldPath


class _TreeError(InputError):
    """A tree in the policy that has no rows, and the place of the fault."""

    def __init__(self, message: str, place: FieldPath) -> None:
        super().__init__(message)
        self.place = place


class _Row(NamedTuple):
    """The names from a leaf to the root; where they are: the line of a file, or a place in the policy."""

    cells: tuple[str, ...]
    line: int = 0
    place: FieldPath = ()


def read_taxonomies(document: Document, folder: Path) -> tuple[dict[str, Taxonomy], list[TaxonomyFault]]:
    """Return the taxonomies of nominal attributes by the attribute's name, and all faults.

    Parameters
    ----------
    document : Document
    folder : Path
        Folder of the policy, to which paths of files are relative.
    """
    taxonomies: dict[str, Taxonomy] = {}
    faults: list[TaxonomyFault] = []
    for name, attribute in document.attributes.items():
        source = attribute.taxonomy
        if source is None or attribute.scale != "nominal":
            continue
        path = ("attributes", name, "taxonomy")
        try:
            rows = _rows_of_file(folder, source) if isinstance(source, str) else _rows_of_tree(source, path)
        except _TreeError as error:
            faults.append(TaxonomyFault(path, str(error), error.place))
            continue
        except InputError as error:
            faults.append(TaxonomyFault(path, str(error), path))
            continue
        found = [
            TaxonomyFault(path, f"{source} line {row.line}: {message}" if row.line else message, row.place or path)
            for row, message in _check_rows(rows, [""] if document.missing_values is None else document.missing_values)
        ]
        faults += found[:MAX_FAULTS]
        if not found:
            taxonomies[name] = Taxonomy.of_rows([row.cells for row in rows])
    return taxonomies, faults


def _rows_of_file(folder: Path, name: str) -> list[_Row]:
    text = _read(folder, name)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter_of(text), strict=True)
    rows: list[_Row] = []
    try:
        rows.extend(_Row(tuple(cell.strip() for cell in cells), reader.line_num) for cells in reader if cells)
    except csv.Error:
        raise InputError(f"{name} line {reader.line_num}: a quotation mark is missing, or a cell is too long") from None
    if len(rows) < 2:  # noqa: PLR2004 - a header and a leaf
        raise InputError(f"{name}: must have a header and one row per leaf")
    header, leaves = rows[0], rows[1:]
    if all("\t" in cell for cell in (header.cells[0], leaves[0].cells[0])):
        raise InputError(f"{name}: separates cells by tabs; separate them by ; or ,")
    if _is_like_values(header, leaves):
        raise InputError(
            f"{name} line {header.line}: repeats a name of the rows below, so it is a leaf and no header; add a header "
            "with names of its own"
        )
    for row in leaves:
        if len(row.cells) != len(header.cells):
            raise InputError(
                f"{name} line {row.line}: has {len(row.cells)} cells, but the header has {len(header.cells)}; give "
                "every leaf a name on every level"
            )
    return leaves


def _read(folder: Path, name: str) -> str:
    """Return the text of a file.

    Raises
    ------
    InputError
        It cannot be read, is too large, or is not UTF-8.
    """
    try:
        path = folder / name
        if not path.exists():
            raise InputError(f"{name}: no such file; its path is relative to the folder of the policy")
        if not path.is_file():
            raise InputError(f"{name}: is no file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise InputError(f"{name}: is larger than {MAX_BYTES >> 20} MiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{name}: not UTF-8; save the file as UTF-8") from None


def _delimiter_of(text: str) -> str:
    """Return the delimiter of the first of two lines that has one."""
    for line in text.splitlines()[:2]:
        for delimiter in (";", ","):
            if delimiter in line:
                return delimiter
    return ";"


def _is_like_values(header: _Row, rows: Sequence[_Row]) -> bool:
    """Return whether a name of an inner node is in the first line: then the file has no header."""
    names = {(level, name) for row in rows for level, name in enumerate(row.cells[1:])}
    return any(node in names for node in enumerate(header.cells[1:]))


def _rows_of_tree(tree: object, path: FieldPath) -> list[_Row]:
    """Return a row per leaf. The name of a leaf that is less deep than others is repeated on the levels below."""
    rows = list(_walk(tree, (), path))
    if not rows:
        raise _TreeError("must name at least one value", path)
    depth = max(len(row.cells) for row in rows)
    return [row._replace(cells=(row.cells[0],) * (depth - len(row.cells)) + row.cells) for row in rows]


def _walk(tree: object, above: tuple[str, ...], path: FieldPath) -> Iterator[_Row]:
    if len(above) > MAX_LEVELS + 1:
        raise _TreeError(f"has more than {MAX_LEVELS} levels below the root", path)
    if isinstance(tree, dict):
        for key, below in tree.items():
            name, place = str(key).strip(), (*path, str(key))
            if below is None or (isinstance(below, dict | list) and not below):
                yield _Row((name, *above), place=place)
            else:
                yield from _walk(below, (name, *above), place)
    elif isinstance(tree, list):
        for index, item in enumerate(tree):
            yield from _walk(item, above, (*path, str(index)))
    else:
        yield _Row((_name_of(tree, path), *above), place=path)


def _name_of(leaf: object, place: FieldPath) -> str:
    """Return the text of a leaf: that of a boolean is its JSON text."""
    if isinstance(leaf, bool):
        return "true" if leaf else "false"
    if isinstance(leaf, str | int):
        return str(leaf).strip()
    raise _TreeError("has a value that is neither a text nor an integer; put it in quotes", place)


def _check_rows(rows: Sequence[_Row], missing_values: Sequence[str]) -> Iterator[tuple[_Row, str]]:
    """Yield each row that does not fit into one tree with those before it, and why."""
    if len(rows[0].cells) > MAX_LEVELS + 1:
        yield rows[0], f"has more than {MAX_LEVELS} levels below the root"
        return
    leaves: dict[str, _Row] = {}
    parents: dict[tuple[int, str], tuple[str, _Row]] = {}
    for row in rows:
        if fault := _fault_of_names(row.cells, missing_values):
            yield row, fault
            continue
        if row.cells[0] in leaves:
            yield row, f"the leaf occurs twice{_also(leaves[row.cells[0]])}; remove one"
            continue
        leaves[row.cells[0]] = row
        for level, (name, parent) in enumerate(zip(row.cells[1:-1], row.cells[2:], strict=True), 1):
            known, first = parents.setdefault((level, name), (parent, row))
            if known != parent:
                yield row, f"the name on level {level} is below two different names{_also(first)}; rename one"
                break


def _fault_of_names(names: Sequence[str], missing_values: Sequence[str]) -> str:
    """Return what is wrong with the names from a leaf to the root, whatever the other rows are; empty if nothing is."""
    if "" in names:
        return "a name is empty; give every leaf a name on every level"
    if any("\ud800" <= letter <= "\udfff" for name in names for letter in name):
        return "contains a lone surrogate, which no message can contain; correct the name"
    if any(map(is_long_category, names)):
        return f"a name has more than {MAX_CATEGORY_BYTES:,} bytes as JSON; shorten it"
    if names[0] in missing_values:
        return "the leaf is a text that means a missing value; remove it here, or from missing_values"
    return ""


def _also(row: _Row) -> str:
    return f", also in line {row.line}" if row.line else ""
