"""Read the taxonomies of a policy: CSV files, or trees in the policy itself.

A tree in the policy is a mapping from the name of each node to its children, or a list of leaves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from shoal.errors import InputError
from shoal.policy.loader import FieldPath
from shoal.policy.schema import Document
from shoal.policy.taxonomy import Taxonomy
from shoal.policy.taxonomy_file import read_taxonomy_file
from shoal.policy.taxonomy_rows import MAX_LEVELS, RowFault, TaxonomyRow, check_rows

__all__ = ["TaxonomyFault", "read_taxonomies"]

MAX_FAULTS = 5
"""Faults that are reported of one taxonomy. One mistake, such as a wrong delimiter, shows in every row."""
_FILE_NAME = re.compile(r"\.(csv|tsv|txt|xlsx?)$", re.IGNORECASE)


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
            if isinstance(source, str):
                header, rows, wrong = read_taxonomy_file(folder, source)
            else:
                header, rows, wrong = (), _rows_of_tree(source, path), []
        except _TreeError as error:
            faults.append(TaxonomyFault(path, str(error), error.place))
            continue
        except InputError as error:
            faults.append(TaxonomyFault(path, str(error), path))
            continue
        found = [
            TaxonomyFault(path, f"{source} line {row.line}: {message}" if row.line else message, row.place or path)
            for row, message in sorted((*wrong, *check_rows(rows, document.missing_texts)), key=_line_of)
        ]
        faults += found[:MAX_FAULTS]
        if not found:
            taxonomies[name] = Taxonomy.of_rows([row.cells for row in rows], header)
    return taxonomies, faults


def _line_of(fault: RowFault) -> int:
    return fault.row.line


def _rows_of_tree(tree: object, path: FieldPath) -> list[TaxonomyRow]:
    """Return a row per leaf. The name of a leaf that is less deep than others is repeated on the levels below."""
    rows = list(_walk(tree, (), path))
    if not rows:
        raise _TreeError("must name at least one value", path)
    if all(_FILE_NAME.search(row.cells[0]) for row in rows):
        raise _TreeError("its only values are names of files; give one file as a text: taxonomy: FILE", path)
    depth = max(len(row.cells) for row in rows)
    return [row._replace(cells=(row.cells[0],) * (depth - len(row.cells)) + row.cells) for row in rows]


def _walk(tree: object, above: tuple[str, ...], path: FieldPath) -> Iterator[TaxonomyRow]:
    if len(above) > MAX_LEVELS + 1:
        raise _TreeError(f"has more than {MAX_LEVELS} levels below the root", path)
    if isinstance(tree, dict):
        for key, below in tree.items():
            name, place = str(key).strip(), (*path, str(key))
            if below is None or (isinstance(below, dict | list) and not below):
                yield TaxonomyRow((name, *above), place=place)
            else:
                yield from _walk(below, (name, *above), place)
    elif isinstance(tree, list):
        for index, item in enumerate(tree):
            yield from _walk(item, above, (*path, str(index)))
    else:
        yield TaxonomyRow((_name_of(tree, path), *above), place=path)


def _name_of(leaf: object, place: FieldPath) -> str:
    """Return the text of a leaf: that of a boolean is its JSON text."""
    if isinstance(leaf, bool):
        return "true" if leaf else "false"
    if isinstance(leaf, str | int):
        return str(leaf).strip()
    raise _TreeError("has a value that is neither a text nor an integer; put it in quotes", place)
