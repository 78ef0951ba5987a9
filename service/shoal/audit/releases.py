"""Reads the released rows and checks each of them by itself: columns, canonical form, grid, bounds.

The text of a row must be the canonical one: compact JSON, or CSV with the fewest quotes. Values of an original that
were copied and not read would have other texts, such as 1e2 for 100.0. Of a Parquet file the values count.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import le

import numpy as np

from shoal.audit.fields import (
    FIELD_SEPARATOR,
    BoolVector,
    FieldPaths,
    Texts,
    column_name,
    document_text,
    nested_order,
    output_path,
    released_document_reader,
    released_reader,
    source_form,
)
from shoal.audit.originals import csv_cell, csv_line, is_export_of
from shoal.audit.reading import (
    RELEASED_ENVELOPE,
    RELEASED_EXPORT,
    FieldColumns,
    Form,
    InputFile,
    JsonNumber,
    Record,
    ReleasedRecord,
    as_record,
    canonical_decimal,
    first_line_names,
    is_parquet,
    json_text,
    released_header,
    released_parts,
    released_records,
    scalar_of,
)
from shoal.audit.scales import JUDGED_SCALES, NO_VALUE, DecimalSign, PublishedNumbers, PublishedValues
from shoal.audit.verdict import CheckCounter
from shoal.policy import JSON_NUMBER, Attribute, Policy, Role


@dataclass(slots=True)
class PartitionRows:
    """The released rows of one partition, in their order."""

    keeps_texts: bool = False  # whether `texts` are kept, which a release needs whose clusters are not adjacent
    quasi: Texts = field(default_factory=Texts)
    unchanged: Texts = field(default_factory=Texts)
    lines: array[int] = field(default_factory=lambda: array("I"))  # number of each row in the file, without a header
    texts: Texts = field(default_factory=Texts)  # the rows by whose bytes they are sorted
    _ascends: bytearray = field(default_factory=bytearray)
    _last: str = ""

    def __len__(self) -> int:
        return len(self.quasi)

    @property
    def is_sorted(self) -> bool:
        """Whether all rows are in byte order."""
        return all(self._ascends)

    @property
    def ascends(self) -> BoolVector:
        """Whether each row is not below the row before it, shape (n,)."""
        return np.frombuffer(self._ascends, np.bool_)

    def is_ascending(self, index: int) -> bool:
        """Whether a row is not below the row before it. In UTF-8 the order of bytes is the order of code points."""
        return bool(self._ascends[index])

    def add(self, line: int, text: str, quasi: str, unchanged: str) -> None:
        """Append one row."""
        self._ascends.append(not self.lines or self._last <= text)
        self._last = text
        if self.keeps_texts:
            self.texts.append(text)
        self.quasi.append(quasi)
        self.unchanged.append(unchanged)
        self.lines.append(line)

    def extend(self, line: int, texts: Sequence[str], quasi: Sequence[str], unchanged: Sequence[str]) -> None:
        """Append rows that follow each other; ``line``: the number of the first one."""
        self._ascends.append(not self.lines or self._last <= texts[0])
        self._ascends.extend(map(le, texts, texts[1:]))
        self._last = texts[-1]
        if self.keeps_texts:
            self.texts.extend(texts)
        self.quasi.extend(quasi)
        self.unchanged.extend(unchanged)
        self.lines.extend(range(line, line + len(texts)))


@dataclass(slots=True)
class ReleasedRows:
    """All released rows by partition, and the checks on single rows."""

    by_partition: dict[int, PartitionRows]
    checks: list[CheckCounter]
    is_export: bool
    envelope: frozenset[str] = frozenset()  # which of key and headers the lines of an export have

    def __len__(self) -> int:
        return sum(map(len, self.by_partition.values()))


def read_release(
    policy: Policy,
    file: InputFile,
    published: Sequence[PublishedValues],
    *,
    original: InputFile,
    is_export: bool | None = None,
) -> ReleasedRows:
    """Read the released file and check every row by itself. A malformed row is a broken check, not an error."""
    exported = is_export_of(policy, file, RELEASED_EXPORT, RELEASED_ENVELOPE) if is_export is None else is_export
    checker = _RowChecker(policy, file.form, original.form, published, is_binary=is_parquet(file.path))
    header = released_header(file.path, file.dialect) if file.form == "csv" else None
    if header is not None:
        # A header shows field names even if no row follows.
        checker.check_header(*header)
    partitions: dict[int, PartitionRows] = {}
    keeps_texts = policy.stream is not None and policy.stream.is_ordered
    writers = {column_name(one.attribute): one.grid.canonical for one in published if isinstance(one, PublishedNumbers)}
    envelope = CheckCounter("envelope", "released messages have neither a key nor headers")
    rows: Iterable[ReleasedRecord | FieldColumns]
    if exported or is_parquet(file.path):
        rows = released_records(file, is_export=exported, number_writers=writers)
    else:
        rows = released_parts(file, checker.columns_of)
    line = 1
    for row in rows:
        partition = 0 if isinstance(row, FieldColumns) else row.partition
        if partition not in partitions:
            partitions[partition] = PartitionRows(keeps_texts)
        if isinstance(row, FieldColumns):
            checker.check_columns(row, line, partitions[partition])
            line += len(row.lines)
            continue
        partitions[partition].add(line, *checker.check(line, row.text, row.record))
        if row.is_bare is not None:
            envelope.expect(row.is_bare, line)
        line += 1
    if not envelope.examined:
        return ReleasedRows(partitions, checker.checks, exported)
    shown = RELEASED_ENVELOPE & first_line_names(file.path)
    return ReleasedRows(partitions, [*checker.checks, envelope], exported, shown)


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
        self._is_csv, self._is_binary, self._dialect = form == "csv", is_binary, policy.csv_output
        place = _column_path if self._is_csv or is_binary else output_path
        self._fields = FieldPaths({place(a): a.name for a in policy.published})
        self._paths, self._names = nested_order(self._fields.paths), list(self._fields.paths.values())
        self._has_one_column = self._is_csv and len(self._paths) == 1
        self._quasi = [(one.attribute.name, one) for one in published]
        sign = DecimalSign(policy.csv_output.decimal if self._is_csv else ".")
        self._unchanged = [
            (
                a.name,
                released_document_reader(form, is_binary=is_binary)
                if a.type == "json"
                else released_reader(a.type, source_form(a, original), form, sign),
            )
            for a in policy.unchanged_fields
        ]
        self._published, self._readers = dict(self._quasi), dict(self._unchanged)
        self._cells = CanonicalCells(policy)
        self._rows = CanonicalRows(policy, has_columns=is_binary)
        # Whether a value is allowed and inside its bounds, once for each of those met lately.
        self._judged = lru_cache(4096)(lambda one, text: (one.allows(text), one.within_bounds(text)))

    @property
    def checks(self) -> list[CheckCounter]:
        values = [self._values] if self._has_values else []
        return [self._columns, self._hidden, self._spelling, self._grid, *values, self._bounds]

    def check_header(self, text: str, names: list[str]) -> None:
        columns = [path[0] for path in self._fields.paths]
        self._columns.expect(names == columns, "header")
        self._spelling.expect(text == csv_line(names, self._dialect), "header")
        self._hidden.expect(not set(names) - set(columns), "header")

    def check(self, line: int, text: str, record: Record | None) -> tuple[str, str, str]:
        """Check one row; return the text by which it is sorted, and those of quasi-identifiers and unchanged fields."""
        if self._has_one_column and not text:
            # The row of a file with one column is an empty line if the value is missing.
            record = {self._paths[0][0]: ""}
        fields = [] if record is None else self._fields.items(record)
        paths = [path for path, _ in fields]
        self._columns.expect(paths == self._paths, line)
        self._hidden.expect(paths == self._paths or self._fields.paths.keys() >= set(paths), line)
        if record is None:
            return text, NO_VALUE, NO_VALUE
        canonical = self._cells.text(record) if self._is_csv else self._rows.text(record)
        self._spelling.expect(canonical == text if not self._is_binary else canonical is not None, line)
        record = {self._fields.paths[path]: value for path, value in fields if path in self._fields.paths}
        row = (canonical or "") if self._is_binary else text
        if not all(name in record for name in self._names):
            return row, NO_VALUE, NO_VALUE
        quasi = FIELD_SEPARATOR.join([self._check_value(line, one, record[name]) for name, one in self._quasi])
        unchanged = FIELD_SEPARATOR.join([read(record[name]) or NO_VALUE for name, read in self._unchanged])
        return row, quasi, unchanged

    def columns_of(self, names: Sequence[str]) -> Sequence[str]:
        """Return the columns of rows that have exactly the published fields, in order; none of other rows."""
        return names if [(name,) for name in names] == self._paths and self._fields.is_flat else ()

    def check_columns(self, part: FieldColumns, line: int, rows: PartitionRows) -> None:
        """Check and add rows whose fields are those that are published: all at once if they break no check."""
        texts: dict[str, list[str]] = {}
        for name, cells in part.cells.items():
            own = {cell: self._sound_text(name, cell) for cell in set(cells)}
            if None in own.values():
                self._check_each(part, line, rows)
                return
            texts[name] = [own[cell] or "" for cell in cells]
        count = len(part.lines)
        numbers = sum(one.is_number for _, one in self._quasi)
        for check, cases in (
            *((one, 1) for one in (self._columns, self._hidden, self._spelling)),
            *((self._grid, numbers), (self._values, len(self._quasi) - numbers), (self._bounds, len(self._quasi))),
        ):
            check.examined += cases * count
        quasi, unchanged = ([texts[name] for name, _ in fields] for fields in (self._quasi, self._unchanged))
        rows.extend(line, part.lines, _joined(quasi, count), _joined(unchanged, count))

    def _check_each(self, part: FieldColumns, line: int, rows: PartitionRows) -> None:
        for number, (text, *cells) in enumerate(zip(part.lines, *part.cells.values(), strict=True), line):
            values = cells if self._is_csv else map(scalar_of, cells)
            rows.add(number, *self.check(number, text, dict(zip(part.cells, values, strict=True))))

    def _sound_text(self, name: str, cell: str) -> str | None:
        """Return the text by which a cell or scalar is compared; None if it breaks a check."""
        value = cell if self._is_csv else scalar_of(cell)
        written = self._cells.written(name, cell) if self._is_csv else self._rows.written(name, value)
        if written != cell:
            return None
        read = self._readers.get(name)
        if read is not None:
            return read(value) or NO_VALUE
        published = self._published[name]
        text = published.text_of(value)
        return text if all(self._judged(published, text)) else None

    def _check_value(self, line: int, published: PublishedValues, value: object) -> str:
        text = published.text_of(value)
        is_allowed, is_inside = self._judged(published, text)
        (self._grid if published.is_number else self._values).expect(is_allowed, line)
        self._bounds.expect(is_inside, line)
        return text


class CanonicalRows:
    """Writes rows as JSON in their canonical form: no white space, the fewest escapes, one text for each number.

    With ``has_columns`` they are rows of Parquet, sorted by the bytes that they would have as JSON, with their objects.
    """

    def __init__(self, policy: Policy, *, has_columns: bool = False) -> None:
        self._quasi = {output_path(a) for a in policy.quasi_identifiers if JUDGED_SCALES[a.scale].is_amount}
        self._documents = {output_path(a) for a in policy.unchanged_fields if a.type == "json"}
        paths = {output_path(a): column_name(a) for a in policy.published}
        self._objects = FieldPaths(paths).objects
        self._columns = [(path, paths[path]) for path in nested_order(paths)] if has_columns else None

    def text(self, record: Record) -> str | None:
        """Return the text of a row, whatever its values are; None if a value has none."""
        return self._object(record if self._columns is None else self._nested(record, self._columns), ())

    def written(self, name: str, value: object) -> str | None:
        """Return the text of a field of the row itself; None if it has none."""
        return self._value((name,), value)

    @staticmethod
    def _nested(record: Record, columns: Iterable[tuple[tuple[str, ...], str]]) -> Record:
        row: dict[str, object] = {}
        for path, column in columns:
            inner = row
            for name in path[:-1]:
                inner = inner.setdefault(name, {})  # type: ignore[assignment]
            inner[path[-1]] = record.get(column)
        return row

    def _object(self, record: Record, above: tuple[str, ...]) -> str | None:
        texts = [(json_text(name), self._value((*above, name), value)) for name, value in record.items()]
        return None if any(text is None for _, text in texts) else "{" + ",".join(f"{n}:{t}" for n, t in texts) + "}"

    def _value(self, path: tuple[str, ...], value: object) -> str | None:
        inner = value if isinstance(value, dict) else as_record(value) if path in self._objects else None
        if inner is not None:
            return self._object(inner, path)
        if path in self._documents and self._columns is None:
            return document_text(value)
        # The grid check prescribes the decimals of quasi-identifiers.
        if isinstance(value, JsonNumber):
            return value if path in self._quasi or _is_canonical_number(value) else None
        if path in self._documents and isinstance(value, str):
            return value
        return json_text(value) if value is None or isinstance(value, bool | str) else None


def _joined(columns: Sequence[Sequence[str]], count: int) -> Sequence[str]:
    """Return the texts of the fields of each of so many rows as one."""
    if len(columns) == 1:
        return columns[0]
    return list(map(FIELD_SEPARATOR.join, zip(*columns, strict=True))) if columns else [""] * count


def _column_path(attribute: Attribute) -> tuple[str, ...]:
    return (column_name(attribute),)


def _is_canonical_number(text: str) -> bool:
    return JSON_NUMBER.fullmatch(text) is not None and text == canonical_decimal(text)


class CanonicalCells:
    """Writes rows as CSV in their canonical form: only cells that need quotes have them; numbers as in JSON."""

    def __init__(self, policy: Policy) -> None:
        self._types = {column_name(a): a.type for a in policy.published if a.role is not Role.QUASI_IDENTIFIER}
        self._dialect = policy.csv_output
        self._sign = DecimalSign(policy.csv_output.decimal)

    def text(self, record: Record) -> str | None:
        """Return the text of a row; None if a cell is not in its canonical form."""
        cells = {name: str(cell) for name, cell in record.items()}
        is_canonical = all(self._is_canonical(name, cell) for name, cell in cells.items())
        return csv_line(list(cells.values()), self._dialect) if is_canonical else None

    def written(self, name: str, cell: str) -> str | None:
        """Return the text of a cell; None if it is not in its canonical form."""
        return csv_cell(cell, self._dialect) if self._is_canonical(name, cell) else None

    def _is_canonical(self, name: str, cell: str) -> bool:
        # Quasi-identifiers are checked against their grid; a text has one form only.
        match self._types.get(name, "any"):
            case "integer" | "number":
                return not cell or _is_canonical_number(self._sign.to_point(cell))
            case "boolean":
                return cell in {"", "true", "false"}
            case _:
                return True
