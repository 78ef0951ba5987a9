"""The rules for the rows of a taxonomy: together they are one tree, in which a name means one node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from shoal.policy.category_limit import MAX_CATEGORY_BYTES, is_long_category
from shoal.policy.loader import FieldPath
from shoal.policy.taxonomy import ROOT
from shoal.policy.text_checks import has_lone_surrogate

__all__ = ["MAX_LEVELS", "RowFault", "TaxonomyRow", "check_rows"]

MAX_LEVELS = 32
"""Limit on the levels below the root. Each is a column of distances."""


class TaxonomyRow(NamedTuple):
    """The names from a leaf to the root; where they are: the line of a file, or a place in the policy."""

    cells: tuple[str, ...]
    line: int = 0
    place: FieldPath = ()


class RowFault(NamedTuple):
    """A row with a fault, and what is wrong with it."""

    row: TaxonomyRow
    message: str


def check_rows(rows: Sequence[TaxonomyRow], missing_values: Collection[str]) -> Iterator[RowFault]:
    """Yield each row that does not fit into one tree with those before it.

    Parameters
    ----------
    rows : sequence of TaxonomyRow
        Equally many cells each.
    missing_values : collection of str
        Texts that no leaf may have.
    """
    if not rows:
        return
    if len(rows[0].cells) > MAX_LEVELS + 1:
        yield RowFault(rows[0], f"has more than {MAX_LEVELS} levels below the root")
        return
    leaves: dict[str, TaxonomyRow] = {}
    parents: dict[tuple[int, str], tuple[str, TaxonomyRow]] = {}
    fitting: list[TaxonomyRow] = []
    for row in rows:
        if message := (
            _fault_of_names(row, missing_values) or _fault_of_leaf(row, leaves) or _fault_of_groups(row, parents)
        ):
            yield RowFault(row, message)
        else:
            fitting.append(row)
    yield from _check_names(fitting)


def _fault_of_names(row: TaxonomyRow, missing_values: Collection[str]) -> str:
    """Return what is wrong with the names of a row, whatever the other rows are; empty if nothing is."""
    if "" in row.cells:
        return "a name is empty; give every leaf a name on every level"
    if any(map(has_lone_surrogate, row.cells)):
        return "contains a lone surrogate, which no message can contain; correct the name"
    if any(map(is_long_category, row.cells)):
        return f"a name has more than {MAX_CATEGORY_BYTES:,} bytes as JSON; shorten it"
    if row.cells[0] in missing_values:
        return "the leaf is a text that means a missing value; remove it here, or from missing_values"
    return ""


def _fault_of_leaf(row: TaxonomyRow, leaves: dict[str, TaxonomyRow]) -> str:
    """Return a fault if a row before has the same leaf; ``leaves`` are those before it, and get this one."""
    first = leaves.setdefault(row.cells[0], row)
    return "" if first is row else f"the leaf occurs twice{_also(first)}; remove one"


def _fault_of_groups(row: TaxonomyRow, parents: dict[tuple[int, str], tuple[str, TaxonomyRow]]) -> str:
    for level, (name, parent) in enumerate(zip(row.cells[1:-1], row.cells[2:], strict=True), 1):
        known, first = parents.setdefault((level, name), (parent, row))
        if known != parent:
            return f"the name on level {level} is below two different names{_also(first)}; rename one"
    return ""


def _check_names(rows: Sequence[TaxonomyRow]) -> Iterator[RowFault]:
    """Yield the rows with a name that another node has, too: a published name would mean two nodes.

    A node may have the name of the group directly above it: a leaf without groups is repeated on the levels above it.
    """
    has_root = len({row.cells[-1] for row in rows}) == 1 and bool(rows) and len(rows[0].cells) > 1
    places: defaultdict[str, dict[int, TaxonomyRow]] = defaultdict(dict)
    for row in rows:
        for level, name in enumerate(row.cells):
            places[name].setdefault(level, row)
    repeated = {name: levels for name, levels in places.items() if len(levels) > 1}
    for row in rows:
        if not has_root and ROOT in row.cells:
            yield RowFault(row, f"{ROOT} is the name of the root here; give all rows one last name, or rename it")
        elif message := next(_faults_of_repeated(row, repeated), ""):
            yield RowFault(row, message)


def _faults_of_repeated(row: TaxonomyRow, repeated: Mapping[str, Mapping[int, TaxonomyRow]]) -> Iterator[str]:
    """Yield the faults of names that are on several levels; ``repeated`` has a row for each such name and level."""
    for level, name in enumerate(row.cells):
        for other, first in repeated.get(name, {}).items():
            if other > level and any(cell != name for cell in row.cells[level : other + 1]):
                what = f"the name on level {level}" if level else "the name of the leaf"
                yield f"{what} is that of another group, on level {other}{_also(first)}; rename one"


def _also(row: TaxonomyRow) -> str:
    return f", also in line {row.line}" if row.line else ""
