"""A taxonomy: the tree over the values of a nominal attribute, from a CSV file or a tree in the policy.

A file has a header and one row per leaf, from the leaf to the root; its cells are separated by ``;`` or ``,``. A tree
in the policy is a mapping from the name of each node to its children, or a list of leaves.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeAlias

from shoal.errors import Fault, InputError, PolicyError
from shoal.policy.schema import Document, FieldPath, Finding
from shoal.policy.texts import MAX_CATEGORY_BYTES, has_lone_surrogate, is_long_category

ROOT = "*"
"""Name of the root where the file names none."""


@dataclass(frozen=True)
class Taxonomy:
    """A tree in which all leaves are equally deep.

    Attributes
    ----------
    paths : tuple of tuple of str
        For each leaf its name and those of its ancestors up to the child of the root: `levels` names, the leaf first.
        A node is its name at its level: equal names at two levels are two nodes.
    root : str
        Name of the root.
    header : tuple of str
        The first line of its file; empty without a file. It is no part of the tree.
    left_out : int
        Number of leaves that mean a missing value. They are no part of the tree.
    """

    paths: tuple[tuple[str, ...], ...]
    root: str = ROOT
    header: tuple[str, ...] = field(default=(), compare=False)
    left_out: int = field(default=0, compare=False)

    @property
    def levels(self) -> int:
        """Number of levels below the root: 1 for a flat list of values."""
        return len(self.paths[0])

    @cached_property
    def leaves(self) -> dict[str, int]:
        """Index of each leaf in `paths`, by name."""
        return {path[0]: index for index, path in enumerate(self.paths)}

    @cached_property
    def digest(self) -> str:
        """SHA-256 in hexadecimal of the tree, whatever the order of its leaves and the form of the file."""
        content = json.dumps([self.root, sorted(self.paths)], ensure_ascii=True)
        return hashlib.sha256(content.encode()).hexdigest()

    @classmethod
    def of_rows(cls, rows: Sequence[Sequence[str]], header: tuple[str, ...] = (), left_out: int = 0) -> Taxonomy:
        """Return the tree of rows from leaf to root. If all rows end with one name, it is that of the root."""
        tops = {row[-1] for row in rows}
        if len(tops) == 1 and len(rows[0]) > 1:
            return cls(tuple(tuple(row[:-1]) for row in rows), tops.pop(), header, left_out)
        return cls(tuple(tuple(row) for row in rows), header=header, left_out=left_out)


MAX_LEVELS = 32
"""Limit on the levels below the root. Each is a column of distances."""


class TaxonomyRow(NamedTuple):
    """The names from a leaf to the root; where they are: the line of a file, or a place in the policy."""

    cells: tuple[str, ...]
    line: int = 0
    place: FieldPath = ()


_Misfit: TypeAlias = tuple[TaxonomyRow, str]
"""A row with a fault, and what is wrong with it."""


def _check_rows(rows: Sequence[TaxonomyRow]) -> Iterator[_Misfit]:
    """Yield each row, of equally many cells, that does not fit into one tree with those before it."""
    if not rows:
        return
    if len(rows[0].cells) > MAX_LEVELS + 1:
        yield rows[0], f"has more than {MAX_LEVELS} levels below the root"
        return
    leaves: dict[str, TaxonomyRow] = {}
    parents: dict[tuple[int, str], tuple[str, TaxonomyRow]] = {}
    fitting: list[TaxonomyRow] = []
    for row in rows:
        if message := (_fault_of_names(row) or _fault_of_leaf(row, leaves) or _fault_of_groups(row, parents)):
            yield row, message
        else:
            fitting.append(row)
    yield from _check_names(fitting)


def _fault_of_names(row: TaxonomyRow) -> str:
    """Return what is wrong with the names of a row, whatever the other rows are; empty if nothing is."""
    if "" in row.cells:
        return "a name is empty; give every leaf a name on every level"
    if any(map(has_lone_surrogate, row.cells)):
        return "contains a lone surrogate, which no message can contain; correct the name"
    if any(map(is_long_category, row.cells)):
        return f"a name has more than {MAX_CATEGORY_BYTES:,} bytes as JSON; shorten it"
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


def _check_names(rows: Sequence[TaxonomyRow]) -> Iterator[_Misfit]:
    """Yield the rows with a name of another node, but of the group directly above, as of a leaf without groups."""
    has_root = len({row.cells[-1] for row in rows}) == 1 and bool(rows) and len(rows[0].cells) > 1
    places: defaultdict[str, dict[int, TaxonomyRow]] = defaultdict(dict)
    for row in rows:
        for level, name in enumerate(row.cells):
            places[name].setdefault(level, row)
    repeated = {name: levels for name, levels in places.items() if len(levels) > 1}
    for row in rows:
        if not has_root and ROOT in row.cells:
            yield row, f"{ROOT} is the name of the root here; give all rows one last name, or rename it"
        elif message := next(_faults_of_repeated(row, repeated), ""):
            yield row, message


def _faults_of_repeated(row: TaxonomyRow, repeated: Mapping[str, Mapping[int, TaxonomyRow]]) -> Iterator[str]:
    """Yield the faults of names that are on several levels; ``repeated`` has a row for each such name and level."""
    for level, name in enumerate(row.cells):
        for other, first in repeated.get(name, {}).items():
            if other > level and any(cell != name for cell in row.cells[level : other + 1]):
                what = f"the name on level {level}" if level else "the name of the leaf"
                yield f"{what} is that of another group, on level {other}{_also(first)}; rename one"


def _also(row: TaxonomyRow) -> str:
    return f", also in line {row.line}" if row.line else ""


def replace_taxonomies(document: Document, files: Mapping[str, str | Path]) -> tuple[Document, list[Finding]]:
    """Return a document that reads taxonomies from other files (by attribute, as given here), and the faults."""
    changed = dict(document.attributes)
    known = [f"attributes.{name}" for name, attribute in changed.items() if attribute.taxonomy is not None]
    faults: list[Finding] = []
    for name, file in files.items():
        path = ("attributes", name, "taxonomy")
        if f"attributes.{name}" not in known:
            remedy = f"name one of those that have one: {', '.join(known)}" if known else "no attribute has one"
            faults.append((path, f"missing, so no other file can be given for it; {remedy}"))
        elif _is_absent(file):
            faults.append((path, f"{file}: no such file"))
        else:
            changed[name] = changed[name].model_copy(update={"taxonomy": str(Path(file).absolute())})
    return document.model_copy(update={"attributes": changed}), faults


def _is_absent(file: str | Path) -> bool:
    try:
        return not Path(file).exists()
    except OSError:
        return False  # it is reported when the file is read


MAX_BYTES = 32 << 20
"""Limit on a file. It bounds memory; all codes of a national classification of diseases take less than a third."""

_UNDECODED = re.compile("[\udc80-\udcff]")
"""A byte that is not UTF-8, as the error handler surrogateescape decodes it."""


def _read_named_file(folder: Path, name: str) -> str:
    """Return the text of a file; its name is relative to the folder of the policy."""
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
    text = content.decode("utf-8-sig", "surrogateescape")
    if wrong := _UNDECODED.search(text):
        line = text.count("\n", 0, wrong.start()) + 1
        raise InputError(f"{name} line {line}: not UTF-8; save the file as UTF-8")
    return text


def read_rows(folder: Path, name: str) -> list[tuple[int, list[str]]]:
    """Return the rows of a CSV file that the policy names, each with its line; blank lines are left out."""
    text = _read_named_file(folder, name)
    first = filter(str.strip, text.splitlines())  # the header, and the next line: a header can be one cell
    found = (delimiter for line in islice(first, 2) for delimiter in (";", ",") if delimiter in line)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=next(found, ";"), strict=True)
    try:
        return [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if cells]
    except csv.Error:
        raise InputError(f"{name} line {reader.line_num}: a quotation mark is missing, or a cell is too long") from None


def _read_file(folder: Path, name: str) -> tuple[tuple[str, ...], list[TaxonomyRow], list[_Misfit]]:
    """Return the first line of a file, the rows that have as many cells, and the faults of all others."""
    rows = [TaxonomyRow(tuple(cells), line) for line, cells in read_rows(folder, name)]
    if len(rows) < 2:  # noqa: PLR2004 - a header and a leaf
        raise InputError(f"{name}: must have a header and one row per leaf")
    header, leaves = rows[0], rows[1:]
    _check_columns(name, header, leaves[0])
    width = len(header.cells)
    whole = [row for row in leaves if len(row.cells) == width]
    remedy = f"cells, but the header has {width}; give every leaf a name on every level"
    wrong = [(row, f"has {len(row.cells)} {remedy}") for row in leaves if len(row.cells) != width]
    return header.cells, whole, [*_check_header(header, whole), *wrong]


def _check_columns(name: str, header: TaxonomyRow, leaf: TaxonomyRow) -> None:
    """Refuse a file with another delimiter, and one without groups."""
    if all("\t" in cell for cell in (header.cells[0], leaf.cells[0])):
        raise InputError(f"{name}: separates cells by tabs; separate them by ; or ,")
    if len(header.cells) == 1 and "|" in header.cells[0]:
        raise InputError(f"{name}: separates cells by |; separate them by ; or ,")
    if len(header.cells) == len(leaf.cells) == 1:
        raise InputError(f"{name}: has one column; give the leaf and its groups, or leave taxonomy out")


def _check_header(header: TaxonomyRow, rows: Sequence[TaxonomyRow]) -> Iterator[_Misfit]:
    """Yield the fault of a first line that is a leaf: the tree would lack it."""
    names = {(level, name) for row in rows for level, name in enumerate(row.cells[1:])}
    form = _form_of(header.cells[0])
    if any(node in names for node in enumerate(header.cells[1:])):
        words = "repeats a name of the rows below, so it is a leaf and no header; add a header with names of its own"
        yield header, words
    elif "9" in form and any(_form_of(row.cells[0]) == form for row in rows):
        words = "its first name has the form of the leaves below, so it is a leaf and no header"
        yield header, f"{words}; add a header with names of another form"


def _form_of(name: str) -> str:
    """Return a name with each digit as 9 and each letter as x, such as x99.9 for a code of a disease."""
    return re.sub(r"[^\W\d_]", "x", re.sub(r"\d", "9", name))


MAX_FAULTS = 5
"""Faults that are reported of one taxonomy. One mistake, such as a wrong delimiter, shows in every row."""
_FILE_NAME = re.compile(r"\.(csv|tsv|txt|xlsx?)$", re.IGNORECASE)


def read_taxonomies(
    document: Document, folder: Path
) -> tuple[dict[str, Taxonomy], list[tuple[FieldPath, str, FieldPath]]]:
    """Return taxonomies by attribute, and faults: the field, the message, and the place whose line is shown."""
    taxonomies: dict[str, Taxonomy] = {}
    faults: list[tuple[FieldPath, str, FieldPath]] = []
    missing = frozenset(document.missing_texts) - {""}
    for name, attribute in document.attributes.items():
        source, path = attribute.taxonomy, ("attributes", name, "taxonomy")
        if source is None or attribute.scale != "nominal":
            continue
        try:
            header, rows, wrong = _read_source(source, folder, path)
        except PolicyError as error:
            faults += [(path, fault.message, fault.path) for fault in error.faults]
            continue
        except InputError as error:
            faults.append((path, str(error), path))
            continue
        present = [row for row in rows if row.cells[0] not in missing]
        wrong += _check_rows(present)
        for row, message in sorted(wrong, key=lambda misfit: misfit[0].line)[:MAX_FAULTS]:
            faults.append((path, f"{source} line {row.line}: {message}" if row.line else message, row.place or path))
        if not present:
            faults.append((path, "has no leaf that is not in missing_values; add one", path))
        elif not wrong:
            left_out = len(rows) - len(present)
            taxonomies[name] = Taxonomy.of_rows([row.cells for row in present], header, left_out)
    return taxonomies, faults


def _read_source(
    source: object, folder: Path, path: FieldPath
) -> tuple[tuple[str, ...], list[TaxonomyRow], list[_Misfit]]:
    """Return the first line of a file, the rows of the file or the tree in the policy, and faults of rows."""
    return _read_file(folder, source) if isinstance(source, str) else ((), _rows_of_tree(source, path), [])


def _rows_of_tree(tree: object, path: FieldPath) -> list[TaxonomyRow]:
    """Return a row per leaf. The name of a leaf that is less deep than others is repeated on the levels below."""
    rows = list(_walk(tree, (), path))
    if not rows:
        raise PolicyError([Fault(path, "must name at least one value")])
    if all(_FILE_NAME.search(row.cells[0]) for row in rows):
        raise PolicyError([Fault(path, "its only values are names of files; give one file as a text: taxonomy: FILE")])
    depth = max(len(row.cells) for row in rows)
    return [row._replace(cells=(row.cells[0],) * (depth - len(row.cells)) + row.cells) for row in rows]


def _walk(tree: object, above: tuple[str, ...], path: FieldPath) -> Iterator[TaxonomyRow]:
    if len(above) > MAX_LEVELS + 1:
        raise PolicyError([Fault(path, f"has more than {MAX_LEVELS} levels below the root")])
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
    raise PolicyError([Fault(place, "has a value that is neither a text nor an integer; put it in quotes")])
