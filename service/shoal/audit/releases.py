"""The released rows: what each shows, and what is wrong with it by itself.

A row is compared by its quasi-identifiers as printed and its kept fields by value; how it is written is judged
here, row by row, against the one text it may have.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.audit.arithmetic import ExactGrid
from shoal.audit.check_counter import CheckCounter
from shoal.audit.fields import Points, form_of_source, released_reader
from shoal.audit.originals import is_export
from shoal.audit.reading import RELEASED_EXPORT, File, Form, Record, Token, released_records
from shoal.audit.spelling import CsvSpelling, JsonSpelling
from shoal.audit.tables import released_header
from shoal.policy import Policy

__all__ = ["ReleasedRows", "Rows", "read_release"]

NO_ROW = "\x02"
"""Equal to no recomputed text: those are JSON."""


@dataclass(slots=True)
class Rows:
    """The rows of one partition in their order: ``quasi`` and ``kept`` are what they are compared by.

    ``rises[i]`` tells whether row i is not below row i - 1 in byte order; ``lines[i]`` is its number in the
    file, from 1 (headers do not count); ``texts`` are the rows as they stand, where asked for.
    """

    quasi: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    rises: bytearray = field(default_factory=bytearray)
    last: str = ""
    texts: list[str] = field(default_factory=list)
    keeps_texts: bool = False

    def __len__(self) -> int:
        return len(self.quasi)

    def add(self, line: int, text: str, quasi: str, kept: str) -> None:
        """Append one row."""
        # Code points and UTF-8 bytes have the same order.
        self.rises.append(self.last <= text)
        self.last = text
        self.quasi.append(quasi)
        self.kept.append(kept)
        self.lines.append(line)
        if self.keeps_texts:
            self.texts.append(text)


@dataclass(slots=True)
class ReleasedRows:
    """All rows by partition, and the checks that need nothing else."""

    parts: dict[int, Rows]
    checks: list[CheckCounter]
    wrapped: bool

    def __len__(self) -> int:
        return sum(map(len, self.parts.values()))


class _RowReader:
    """Reads one row: columns, spelling, grid and bounds are noted, the texts to compare by returned."""

    def __init__(self, policy: Policy, form: Form, original: Form, grids: list[ExactGrid]) -> None:
        self.columns = CheckCounter("columns", "every row has exactly the published fields, in order")
        self.hidden = CheckCounter("hidden", "no identifier and no undeclared field appears")
        self.spelling = CheckCounter("spelling", "every value is written in its one spelling")
        self.grid = CheckCounter("grid", "quasi-identifiers are multiples of their resolution")
        self.bounds = CheckCounter("bounds", "quasi-identifiers are within their bounds, half a step aside")
        self._names = [attribute.name for attribute in policy.published]
        self._quasi = [(a.name, grid) for a, grid in zip(policy.quasi_identifiers, grids, strict=True)]
        self._points = Points(policy.csv_output.decimal if form == "csv" else ".")
        self._kept = [
            (a.name, released_reader(a.type, form_of_source(a, original), form, self._points))
            for a in policy.passthrough
        ]
        self._spelling = CsvSpelling(policy) if form == "csv" else JsonSpelling(policy)
        # A JSON number comes as `Token`: one in quotes is none. A cell is always text.
        self._number = str if form == "csv" else Token
        self._judged: dict[tuple[str, str], tuple[bool, bool]] = {}
        self._interned: dict[str, str] = {}

    @property
    def checks(self) -> list[CheckCounter]:
        return [self.columns, self.hidden, self.spelling, self.grid, self.bounds]

    def read_header(self, names: list[str]) -> None:
        self.columns.expect(names == self._names, "header")
        self.hidden.expect(not set(names) - set(self._names), "header")

    def read(self, line: int, text: str, record: Record | None) -> tuple[str, str]:
        """Quasi-identifiers and kept fields to compare by."""
        names = [] if record is None else list(record)
        self.columns.expect(names == self._names, line)
        self.hidden.expect(names == self._names or not set(names) - set(self._names), line)
        if record is None:
            return NO_ROW, NO_ROW
        self.spelling.expect(self._spelling.is_kept(text, record), line)
        if not all(name in record for name in self._names):
            return NO_ROW, NO_ROW
        quasi = "\x00".join([self._coordinate(line, name, grid, record[name]) for name, grid in self._quasi])
        kept = "\x00".join([read(record[name]) or NO_ROW for name, read in self._kept])
        return self._interned.setdefault(quasi, quasi), kept

    def _coordinate(self, line: int, name: str, grid: ExactGrid, value: object) -> str:
        text = self._points.put(str(value)) if isinstance(value, self._number) else NO_ROW
        judged = self._judged.get((name, text))
        if judged is None:
            judged = self._judged[name, text] = (grid.holds(text), grid.within(text))
        self.grid.expect(judged[0], line)
        self.bounds.expect(judged[1], line)
        return text


def read_release(
    policy: Policy,
    file: File,
    grids: list[ExactGrid],
    *,
    original: Form,
    wrapped: bool | None = None,
    keeps_texts: bool = False,
) -> ReleasedRows:
    """Read the released file and judge every row by itself; ``original`` is the form of what it was made of.

    Raises
    ------
    InputError
        The file cannot be read at all; a row that is none is a broken check, not an error.
    """
    form = file.form
    exported = is_export(policy, file, RELEASED_EXPORT) if wrapped is None else wrapped
    reader = _RowReader(policy, form, original, grids)
    header = released_header(file.path, file.dialect) if form == "csv" else None
    if header is not None:
        # A header alone shows fields too, even if no row follows.
        reader.read_header(header)
    parts: dict[int, Rows] = {}
    spellers = {a.name: grid.spelled for a, grid in zip(policy.quasi_identifiers, grids, strict=True)}
    for line, (partition, text, record) in enumerate(released_records(file, wrapped=exported, spellers=spellers), 1):
        parts.setdefault(partition, Rows(keeps_texts=keeps_texts)).add(line, text, *reader.read(line, text, record))
    return ReleasedRows(parts, reader.checks, exported)
