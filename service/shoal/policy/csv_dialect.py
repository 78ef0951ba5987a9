"""How CSV files are written: `csv` of the policy, for files and pipes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from shoal.policy.loader import FieldPath
from shoal.policy.schema import DialectSection, Document

__all__ = ["CsvDialect", "check_dialects", "dialects"]

_ENDS = {"lf": "\n", "crlf": "\r\n", "cr": "\r"}


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """One way of writing CSV; by default that of RFC 4180 with lines ended as on Unix.

    ``escape`` is what a quotation mark inside a quoted cell is written with: itself (``doubled``) or a backslash.
    ``line_end`` is the characters themselves. ``multiline`` allows cells that hold what would be records.
    """

    delimiter: str = ","
    quote: str = '"'
    escape: str = "doubled"
    decimal: str = "."
    encoding: str = "utf-8"
    line_end: str = "\n"
    multiline: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """What a `csv.reader` must be told, once backslashes are brought to doubled quotation marks.

        Its own escapes drop a backslash before any character, and a line end behind one ends no record.
        """
        return {"delimiter": self.delimiter, "quotechar": self.quote, "doublequote": True, "strict": True}


def dialects(document: Document) -> tuple[CsvDialect, CsvDialect]:
    """Dialects of the input and of the output; what is not said of the output is as in the input."""
    section = document.csv
    if section is None:
        return CsvDialect(), CsvDialect()
    source = _changed(CsvDialect(), section)
    return source, source if section.output is None else _changed(source, section.output)


def check_dialects(document: Document) -> Iterator[tuple[FieldPath, str]]:
    """All that is wrong with ``csv`` as a whole."""
    source, target = dialects(document)
    for path, dialect in ((("csv", "decimal"), source), (("csv", "output", "decimal"), target)):
        if dialect.delimiter == dialect.decimal:
            yield path, "the comma cannot part both cells and digits: give another delimiter, such as ';'"
            return


def _changed(dialect: CsvDialect, section: DialectSection) -> CsvDialect:
    said = section.model_dump(exclude_none=True, exclude={"output"})
    if "line_end" in said:
        said["line_end"] = _ENDS[said["line_end"]]
    if said.get("delimiter") == "tab":
        said["delimiter"] = "\t"
    return replace(dialect, **said)
