"""Lines of the failed cases of a verdict, counted as every command counts them: from 1, a CSV header included."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from shoal.audit.parsing import InputFile
from shoal.audit.table_parsing import csv_record_lines, is_parquet
from shoal.audit.verdict import Verdict

__all__ = ["add_lines"]


def add_lines(verdict: Verdict, *, original: InputFile, released: InputFile) -> Verdict:
    """Return the verdict with the line of each row and each record that a broken check lists.

    Rows are numbered from 1 and records from 0, both without a header. A row of a CSV file may span several lines. Rows
    of a Parquet file have no lines.

    Notes
    -----
    Cost: one pass over a CSV file with failed cases, O(n) time.
    """
    sources = {"row": (released, 1), "record": (original, 0)}
    found = {
        unit: _lines_of(
            {place - first for check in verdict.checks if check.unit == unit for place in _numbers(check.places)}, file
        )
        for unit, (file, first) in sources.items()
    }
    checks = []
    for check in verdict.checks:
        lines = found.get(check.unit, {})
        first = sources[check.unit][1] if check.unit in sources else 0
        numbers = [place - first for place in _numbers(check.places)]
        checks.append(replace(check, lines=tuple(lines[number] for number in numbers if number in lines)))
    return replace(verdict, checks=tuple(checks))


def _numbers(places: Iterable[int | str]) -> list[int]:
    return [place for place in places if isinstance(place, int)]


def _lines_of(numbers: set[int], file: InputFile) -> dict[int, int]:
    """Return the line on which each of some records, numbered from 0, begins."""
    if not numbers or is_parquet(file.path):
        return {}
    if file.form != "csv":
        return {number: number + 1 for number in numbers}
    lines = enumerate(csv_record_lines(file.path, file.dialect))
    return {number: line for number, line in lines if number in numbers}
