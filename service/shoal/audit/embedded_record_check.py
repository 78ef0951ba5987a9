"""Cells in which a stray quotation mark left the records of other people.

In: a record of CSV by name. Out: whether it holds another one.
"""

from __future__ import annotations

import csv
import math

from shoal.audit.fields import Points, decimal_number
from shoal.audit.reading import Record
from shoal.policy import CsvDialect, Policy

__all__ = ["EmbeddedRecordFinder"]


class EmbeddedRecordFinder:
    """Finds originals of CSV in which a cell holds what would be a record by itself; nobody may publish these.

    Parameters
    ----------
    policy : Policy
        Its dialect and quasi-identifiers. ``csv.multiline`` allows such cells.
    """

    def __init__(self, policy: Policy) -> None:
        self._dialect: CsvDialect = policy.csv
        self._points = Points(policy.csv.decimal)
        self._quasi = [attribute.name for attribute in policy.quasi_identifiers]

    def holds_another(self, record: Record) -> bool:
        """Whether one of the cells does, or two lines of it are the ends of two records."""
        cells = [str(cell) for cell in record.values()]
        if self._dialect.multiline or not any(mark in cell for cell in cells for mark in "\r\n"):
            return False
        names = list(record)
        for place, cell in enumerate(cells):
            lines = cell.replace("\r\n", "\n").replace("\r", "\n").split("\n")
            if len(lines) < 2:  # noqa: PLR2004 - one line is no other record
                continue
            if any(self._is_record(names, way) for line in lines for way in self._ways(line)):
                return True
            before, behind = cells[:place] + self._plain(lines[0]), self._plain(lines[-1]) + cells[place + 1 :]
            if self._is_record(names, before) and self._is_record(names, behind):
                return True
        return False

    def _plain(self, line: str) -> list[str]:
        return [cell.strip(" \t").strip(self._dialect.quote) for cell in line.split(self._dialect.delimiter)]

    def _ways(self, line: str) -> list[list[str]]:
        """Cells of a line with quotation marks that mean nothing, and with those that do."""
        reader = csv.reader([line], delimiter=self._dialect.delimiter, quotechar=self._dialect.quote)
        return [self._plain(line), *reader]

    def _is_record(self, names: list[str], cells: list[str]) -> bool:
        if len(cells) != len(names):
            return False
        found = dict(zip(names, cells, strict=True))
        values = [decimal_number(self._points.put(found[name].strip(" \t"))) for name in self._quasi]
        return all(value is not None and math.isfinite(value) for value in values)
