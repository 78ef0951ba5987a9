"""Read the taxonomies of a policy: CSV files, or trees in the policy itself.

A file has a header and one row per leaf, from the leaf to the root; cells are separated by ``;`` or ``,``. A tree in
the policy is a mapping from each node to its children.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from shoal.policy.loader import FieldPath
from shoal.policy.schema import Document
from shoal.policy.taxonomy import Taxonomy

__all__ = ["read_taxonomies"]

Finding: TypeAlias = tuple[FieldPath, str]
Row: TypeAlias = tuple[str, ...]


def read_taxonomies(document: Document, folder: Path) -> tuple[dict[str, Taxonomy], list[Finding]]:
    """Return the taxonomies by attribute, and the faults. Paths of files are relative to ``folder``."""
    taxonomies: dict[str, Taxonomy] = {}
    findings: list[Finding] = []
    for name, attribute in document.attributes.items():
        source = attribute.taxonomy
        if source is None or attribute.scale != "nominal":
            continue
        try:
            rows = _rows_of_file(folder / source) if isinstance(source, str) else _rows_of_tree(source)
            taxonomies[name] = Taxonomy.of_rows(rows)
        except (OSError, ValueError, csv.Error, IndexError):
            findings.append((("attributes", name, "taxonomy"), "is no taxonomy that can be read"))
    return taxonomies, findings


def _rows_of_file(path: Path) -> list[Row]:
    text = path.read_text(encoding="utf-8-sig")
    delimiter = ";" if ";" in text.partition("\n")[0] else ","
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    return [tuple(cell.strip() for cell in row) for row in rows if row][1:]


def _rows_of_tree(tree: object) -> list[Row]:
    rows = list(_walk(tree, ()))
    depth = max(map(len, rows))
    return [(row[0],) * (depth - len(row)) + row for row in rows]


def _walk(tree: object, above: Row) -> Iterator[Row]:
    if isinstance(tree, dict):
        for name, below in tree.items():
            if not below and not isinstance(below, str):
                yield name, *above
            else:
                yield from _walk(below, (name, *above))
    elif isinstance(tree, list):
        for item in tree:
            yield from _walk(item, above)
    else:
        yield str(tree), *above
