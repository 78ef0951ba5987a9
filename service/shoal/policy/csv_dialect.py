"""The CSV dialect of the input and of the output: section ``csv`` of a policy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from shoal.policy.loader import FieldPath
from shoal.policy.schema import DialectSection, Document

__all__ = ["CsvDialect", "check_dialects", "resolve_dialects"]

_LINE_ENDS = {"lf": "\n", "crlf": "\r\n", "cr": "\r"}


@dataclass(frozen=True, slots=True)
class CsvDialect:
    r"""One CSV dialect. The default is RFC 4180 with ``\n`` as the line end.

    Attributes
    ----------
    delimiter, quote, decimal : str
        One character each.
    escape : {"doubled", "backslash"}
        How a quotation mark inside a quoted cell is written: twice, or after a backslash.
    encoding : str
        Name of a codec of the standard library.
    line_end : str
        The characters themselves.
    multiline : bool
        Whether a cell may contain lines that would be valid records by themselves.
    """

    delimiter: str = ","
    quote: str = '"'
    escape: str = "doubled"
    decimal: str = "."
    encoding: str = "utf-8"
    line_end: str = "\n"
    multiline: bool = False

    @property
    def reader_options(self) -> dict[str, Any]:
        """Arguments for `csv.reader`, for text in which quotation marks are doubled.

        The option ``escapechar`` of `csv.reader` is not used: it drops a backslash before any character, and a
        backslash at the end of a line continues the record on the next line.
        """
        return {"delimiter": self.delimiter, "quotechar": self.quote, "doublequote": True, "strict": True}


def resolve_dialects(document: Document) -> tuple[CsvDialect, CsvDialect]:
    """Return the dialects of the input and of the output. The output inherits what it does not set."""
    section = document.csv
    if section is None:
        return CsvDialect(), CsvDialect()
    source = _override(CsvDialect(), section)
    return source, source if section.output is None else _override(source, section.output)


def check_dialects(document: Document) -> Iterator[tuple[FieldPath, str]]:
    """Check that no dialect uses one character both as delimiter and as decimal sign."""
    source, target = resolve_dialects(document)
    for path, dialect in ((("csv", "decimal"), source), (("csv", "output", "decimal"), target)):
        if dialect.delimiter == dialect.decimal:
            yield path, "is also the delimiter; give another delimiter, such as ';'"
            return


def _override(dialect: CsvDialect, section: DialectSection) -> CsvDialect:
    """Return the dialect with the settings of a section."""
    settings = section.model_dump(exclude_none=True, exclude={"output"})
    if "line_end" in settings:
        settings["line_end"] = _LINE_ENDS[settings["line_end"]]
    if settings.get("delimiter") == "tab":
        settings["delimiter"] = "\t"
    return replace(dialect, **settings)
