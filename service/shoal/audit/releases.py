"""Reads the released rows and checks each of them by itself: columns, canonical form, grid, bounds.

A row is compared with others by its quasi-identifiers as printed and by the values of its unchanged fields. Its text
must be the canonical one: compact JSON, or CSV with the fewest quotes. A second way of writing the same value could
carry information, such as 1e2 for 100.0 or an escape for a letter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shoal.audit.csv_cells import csv_line
from shoal.audit.fields import (
    FIELD_SEPARATOR,
    canonical_decimal,
    released_reader,
    source_form,
)
from shoal.audit.json_documents import document_text, released_document_reader
from shoal.audit.json_values import json_text
from shoal.audit.originals import is_export_of
from shoal.audit.parquet_bytes import compare_parquet
from shoal.audit.parsing import (
    RELEASED_ENVELOPE,
    RELEASED_EXPORT,
    Form,
    InputFile,
    JsonNumber,
    Record,
    as_record,
    first_line_names,
    released_records,
)
from shoal.audit.published_values import NO_VALUE, PublishedNumbers, PublishedValues
from shoal.audit.scales import DecimalSign
from shoal.audit.structure import FieldPaths, column_name, nested_order, output_path
from shoal.audit.table_parsing import NumberWriter, has_encoded_lines, is_parquet, released_header
from shoal.audit.verdict import CheckCounter
from shoal.policy import Attribute, CsvDialect, Policy, Role, Scale

__all__ = ["CanonicalCsv", "CanonicalJson", "PartitionRows", "ReleasedRows", "read_release"]

_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


@dataclass(slots=True)
class PartitionRows:
    """The released rows of one partition, in their order.

    Attributes
    ----------
    quasi, unchanged : list of str
        Texts of the quasi-identifiers and of the unchanged fields of each row.
    lines : list of int
        Number of each row in the file, from 1; a header does not count.
    is_ascending : bytearray
        1 where a row is not below the row before it in byte order.
    texts : list of str
        The rows as published; empty unless ``stores_texts``.
    """

    quasi: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    is_ascending: bytearray = field(default_factory=bytearray)
    texts: list[str] = field(default_factory=list)
    stores_texts: bool = False
    _last: str = ""

    def __len__(self) -> int:
        return len(self.quasi)

    def add(self, line: int, text: str, quasi: str, unchanged: str) -> None:
        """Append one row."""
        # The order of code points is that of UTF-8 bytes.
        self.is_ascending.append(self._last <= text)
        self._last = text
        self.quasi.append(quasi)
        self.unchanged.append(unchanged)
        self.lines.append(line)
        if self.stores_texts:
            self.texts.append(text)


@dataclass(slots=True)
class ReleasedRows:
    """All released rows by partition, the checks on single rows and on the file, and what these cannot decide.

    ``envelope``: which of ``key`` and ``headers`` the lines of an export have.
    """

    by_partition: dict[int, PartitionRows]
    checks: list[CheckCounter]
    is_export: bool
    undecided: tuple[str, ...] = ()
    envelope: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return sum(map(len, self.by_partition.values()))


def read_release(
    policy: Policy,
    file: InputFile,
    published: Sequence[PublishedValues],
    *,
    original: InputFile,
    is_export: bool | None = None,
    stores_texts: bool = False,
) -> ReleasedRows:
    """Read the released file and check every row by itself.

    Parameters
    ----------
    policy : Policy
    file : InputFile
    published : sequence of PublishedValues
        One per quasi-identifier.
    original : InputFile
        The original.
    is_export : bool, optional
        Whether the file is an export of a topic; None: decide by its first line.
    stores_texts : bool
        Whether to store the rows as published. Those of an export are stored in any case.

    Raises
    ------
    InputError
        The file cannot be read at all. A malformed row is a broken check, not an error.
    """
    form = file.form
    exported = is_export_of(policy, file, RELEASED_EXPORT, RELEASED_ENVELOPE) if is_export is None else is_export
    checker = _RowChecker(policy, form, original.form, published, is_binary=is_parquet(file.path))
    header = released_header(file.path, file.dialect) if form == "csv" else None
    if header is not None:
        # A header shows field names even if no row follows.
        checker.check_header(*header)
    partitions: dict[int, PartitionRows] = {}
    writers = {column_name(one.attribute): one.grid.canonical for one in published if isinstance(one, PublishedNumbers)}
    rows = released_records(file, is_export=exported, number_writers=writers)
    envelope = CheckCounter("envelope", "released messages have neither a key nor headers")
    for line, (partition, text, record, is_bare) in enumerate(rows, 1):
        quasi, unchanged = checker.check(line, text, record)
        sorted_by = checker.json_row(record) if checker.has_other_rows else text
        partitions.setdefault(partition, PartitionRows(stores_texts=stores_texts or exported)).add(
            line, sorted_by, quasi, unchanged
        )
        if is_bare is not None:
            envelope.expect(is_bare, line)
    if exported:
        checks = [*checker.checks, *([envelope] if envelope.examined else [])]
        shown = RELEASED_ENVELOPE & first_line_names(file.path) if envelope.examined else frozenset()
        return ReleasedRows(partitions, checks, exported, envelope=shown)
    check, doubt = _check_bytes(policy, file, original, writers)
    return ReleasedRows(partitions, [*checker.checks, check], exported, (doubt,) if doubt else ())


def _check_bytes(
    policy: Policy, file: InputFile, original: InputFile, writers: Mapping[str, NumberWriter]
) -> tuple[CheckCounter, str]:
    """Check that the file has no bytes but those of its rows; return also why this cannot be decided, or ""."""
    check = CheckCounter("bytes", "the file has the bytes that Shoal writes for its rows, and no others", "file")
    if is_parquet(file.path):
        found = compare_parquet(file.path, policy, writers, original.path if is_parquet(original.path) else None)
        if found.doubt:
            check.skip(found.doubt)
            return check, found.doubt
        is_sound = found.is_sound
    else:
        # The rows themselves are checked one by one.
        is_sound = has_encoded_lines(file.path, file.dialect if file.form == "csv" else CsvDialect())
    check.expect(is_sound, "released")
    return check, ""


class _RowChecker:
    """Checks columns, canonical form, grid and bounds of single rows, and returns the texts to compare them by."""

    def __init__(
        self, policy: Policy, form: Form, original: Form, published: Sequence[PublishedValues], *, is_binary: bool
    ) -> None:
        self._columns = CheckCounter("columns", "every row has exactly the published fields, in order")
        self._hidden = CheckCounter("hidden", "no identifier and no undeclared field appears")
        self._spelling = CheckCounter("spelling", "every value is written in its canonical form")
        self._grid = CheckCounter("grid", "quasi-identifiers are multiples of their resolution")
        self._bounds = CheckCounter(
            "bounds", "quasi-identifiers are within their bounds, plus or minus half a resolution"
        )
        self._values = CheckCounter(
            "values", "categories and times are among those that the policy allows, and missing where it allows that"
        )
        self._has_values = any(not one.is_number for one in published)
        self._dialect = policy.csv_output
        self._rows = JsonRows(policy)
        # The rows of Parquet are sorted as JSON, which may have objects and values of type json.
        self.has_other_rows = is_binary and not self._rows.is_plain
        has_columns = form == "csv" or is_binary
        self._fields = FieldPaths(
            {_column_path(a) if has_columns else output_path(a): a.name for a in policy.published}
        )
        self._paths, self._names = nested_order(self._fields.paths), list(self._fields.paths.values())
        self._has_one_column = form == "csv" and len(self._paths) == 1
        self._quasi = [(one.attribute.name, one) for one in published]
        sign = DecimalSign(policy.csv_output.decimal if form == "csv" else ".")
        self._unchanged = [
            (
                a.name,
                released_document_reader(form, is_binary=is_binary)
                if a.type == "json"
                else released_reader(a.type, source_form(a, original), form, sign),
            )
            for a in policy.unchanged_fields
        ]
        self._canonical = CanonicalCsv(policy) if form == "csv" else CanonicalJson(policy, has_columns=is_binary)
        self._known: dict[tuple[str, str], tuple[bool, bool]] = {}
        self._interned: dict[str, str] = {}

    @property
    def checks(self) -> list[CheckCounter]:
        values = [self._values] if self._has_values else []
        return [self._columns, self._hidden, self._spelling, self._grid, *values, self._bounds]

    def check_header(self, text: str, names: list[str]) -> None:
        columns = [path[0] for path in self._fields.paths]
        self._columns.expect(names == columns, "header")
        self._spelling.expect(text == csv_line(names, self._dialect), "header")
        self._hidden.expect(not set(names) - set(columns), "header")

    def json_row(self, record: Record | None) -> str:
        """Return the JSON row by which a row of Parquet is sorted."""
        return "" if record is None else self._rows.text(record)

    def check(self, line: int, text: str, record: Record | None) -> tuple[str, str]:
        """Check one row; return its texts of quasi-identifiers and of unchanged fields."""
        if self._has_one_column and not text:
            # The row of a file with one column is an empty line if the value is missing.
            record = {self._paths[0][0]: ""}
        fields = [] if record is None else self._fields.items(record)
        paths = [path for path, _ in fields]
        self._columns.expect(paths == self._paths, line)
        self._hidden.expect(paths == self._paths or self._fields.paths.keys() >= set(paths), line)
        if record is None:
            return NO_VALUE, NO_VALUE
        self._spelling.expect(self._canonical.matches(text, record), line)
        record = {self._fields.paths[path]: value for path, value in fields if path in self._fields.paths}
        if not all(name in record for name in self._names):
            return NO_VALUE, NO_VALUE
        quasi = FIELD_SEPARATOR.join([self._check_value(line, name, one, record[name]) for name, one in self._quasi])
        unchanged = FIELD_SEPARATOR.join([read(record[name]) or NO_VALUE for name, read in self._unchanged])
        return self._interned.setdefault(quasi, quasi), unchanged

    def _check_value(self, line: int, name: str, published: PublishedValues, value: object) -> str:
        text = published.text_of(value)
        known = self._known.get((name, text))
        if known is None:
            known = self._known[name, text] = (published.allows(text), published.within_bounds(text))
        (self._grid if published.is_number else self._values).expect(known[0], line)
        self._bounds.expect(known[1], line)
        return text


# ---------------------------------------------------------------- canonical form


class JsonRows:
    """Writes rows of Parquet as the JSON rows by whose bytes they are sorted, with their objects."""

    def __init__(self, policy: Policy) -> None:
        columns = {output_path(a): column_name(a) for a in policy.published}
        self._columns = {path: columns[path] for path in nested_order(columns)}
        self._documents = {column_name(a) for a in policy.unchanged_fields if a.type == "json"}
        self.is_plain = not self._documents and all(len(path) == 1 for path in columns)

    def text(self, record: Record) -> str:
        """Return the text of a row, given as a mapping from column to value."""
        row: dict[str, object] = {}
        for path, column in self._columns.items():
            *above, last = path
            inner = row
            for name in above:
                found = inner.setdefault(name, {})
                inner = found if isinstance(found, dict) else {}
            inner[last] = self._value(column, record.get(column))
        return _object_text(row)

    def _value(self, column: str, value: object) -> str:
        if column in self._documents and isinstance(value, str):
            return value
        return value if isinstance(value, JsonNumber) else _canonical_value(value)


def _object_text(value: object) -> str:
    if not isinstance(value, dict):
        return str(value)
    return "{" + ",".join(f"{json_text(name)}:{_object_text(inner)}" for name, inner in value.items()) + "}"


class CanonicalJson:
    """The canonical form of a JSON row: no white space, the fewest escapes, one form for all numbers of a value.

    ``has_columns``: whether the row was read from Parquet, whose columns contain no objects.
    """

    def __init__(self, policy: Policy, *, has_columns: bool = False) -> None:
        place = _column_path if has_columns else output_path
        self._quasi = {place(a) for a in policy.quasi_identifiers if a.scale is Scale.NUMERIC}
        self._documents = {place(a) for a in policy.unchanged_fields if a.type == "json" and not has_columns}
        self._objects = FieldPaths({place(a): a.name for a in policy.published}).objects

    def matches(self, text: str, record: Record) -> bool:
        """Whether a row is in its canonical form, whatever its values are."""
        return text == self._object(record, ())

    def _object(self, record: Record, above: tuple[str, ...]) -> str:
        fields = (f"{json_text(name)}:{self._value((*above, name), value)}" for name, value in record.items())
        return "{" + ",".join(fields) + "}"

    def _value(self, path: tuple[str, ...], value: object) -> str:
        inner = as_record(value) if path in self._objects else None
        if inner is not None:
            return self._object(inner, path)
        # The grid check prescribes the decimals of quasi-identifiers.
        if isinstance(value, JsonNumber) and path in self._quasi:
            return value
        if path in self._documents:
            return document_text(value) or ""
        return _canonical_value(value)


def _column_path(attribute: Attribute) -> tuple[str, ...]:
    return (column_name(attribute),)


def _canonical_value(value: object) -> str:
    if isinstance(value, JsonNumber):
        return value if _is_canonical_number(value) else ""
    if isinstance(value, str):
        return json_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null"


def _is_canonical_number(text: str) -> bool:
    return _JSON_NUMBER.fullmatch(text) is not None and text == canonical_decimal(text)


class CanonicalCsv:
    """The canonical form of a CSV row: only cells that need quotes have them; numbers as in JSON."""

    def __init__(self, policy: Policy) -> None:
        self._types = {a.name: a.type for a in policy.published if a.role is not Role.QUASI_IDENTIFIER}
        self._dialect = policy.csv_output
        self._sign = DecimalSign(policy.csv_output.decimal)

    def matches(self, text: str, record: Record) -> bool:
        """Whether a row is in its canonical form, whatever its values are."""
        cells = {name: str(cell) for name, cell in record.items()}
        return text == csv_line(list(cells.values()), self._dialect) and all(
            self._is_canonical(name, cell) for name, cell in cells.items()
        )

    def _is_canonical(self, name: str, cell: str) -> bool:
        # Quasi-identifiers are checked against their grid; a text has one form only.
        match self._types.get(name, "any"):
            case "integer" | "number":
                return not cell or _is_canonical_number(self._sign.to_point(cell))
            case "boolean":
                return cell in {"", "true", "false"}
            case _:
                return True
