"""Tables of the page as pictures: what a paper prints beside what is here, and the range of draws where there are some.

The cells are those of the page: ``printed =``, ``printed / ours``, ``printed / least to most``, or ours alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from papers.common import PRINTED, Curve, Figure, Panel

__all__ = ["Cell", "genetic_figure", "read_cell", "survey_figure"]

NUMBER = re.compile(r"\d+(?:\.\d+)?")


class Cell(NamedTuple):
    """What a cell of the page says."""

    printed: float | None
    low: float
    high: float


Curves = dict[str, dict[str, list[tuple[float, Cell]]]]
"""By table and row or column: where a cell is, and what it says."""


def read_cell(text: str) -> Cell:
    """Return the numbers of a cell."""
    first, _, ours = text.removesuffix("=").partition(" / ")
    own = [float(number) for number in NUMBER.findall((ours or first).split("(")[0])]
    return Cell(float(NUMBER.findall(first)[0]) if ours or "=" in text else None, own[0], own[-1])


def survey_figure(lines: Iterable[str]) -> Figure:
    """Return Table I as a figure: one panel for each table, loss against k."""
    curves: Curves = {}
    for head, cells in _rows(lines, ["table", "method"]):
        found = [(float(k.removeprefix("k = ")), read_cell(cell)) for k, cell in zip(head[2:], cells[2:], strict=True)]
        curves.setdefault(cells[0], {}).setdefault(cells[1].replace("`", ""), found)
    panels = [Panel(name, "k", "loss / that of MDAV here", _curves(own, "MDAV")) for name, own in curves.items()]
    return Figure("survey-1", "Table I: loss of the three methods, printed and here", panels)


def genetic_figure(lines: Iterable[str]) -> Figure:
    """Return Table 2 as a figure: one panel for each table, loss against the size of macrogroups."""
    curves: Curves = {}
    for head, cells in _rows(lines, ["table", "K", "MDAV"]):
        for name, cell in zip(head[2:], cells[2:], strict=True):
            if "macrogroups" not in name:
                own = curves.setdefault(cells[0], {}).setdefault(name.strip("`"), [])
                own.append((float(cells[1]), read_cell(cell)))
    panels = [Panel(name, "K", "sum of squared errors", _curves(own)) for name, own in curves.items()]
    return Figure("genetic-2", "Table 2: loss of MDAV, and of a genetic search in one and two steps", panels)


def _rows(lines: Iterable[str], start: list[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield head and cells of each row of the tables whose heads start so."""
    head: list[str] = []
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if cells and head[: len(start)] == start and not cells[0].startswith("---"):
            yield head, cells
        head = (head or cells) if cells else []


def _curves(own: dict[str, list[tuple[float, Cell]]], over: str = "") -> list[Curve]:
    """Return ours, as ranges where some cells have them, and the printed points; over the middle of one of ours."""
    units = [(cell.low + cell.high) / 2 if over else 1.0 for _, cell in own.get(over, next(iter(own.values())))]
    made, printed = [], []
    for name, points in own.items():
        x, cells = [size for size, _ in points], [cell for _, cell in points]
        low, high = (
            [getattr(cell, end) / unit for cell, unit in zip(cells, units, strict=True)] for end in Cell._fields[1:]
        )
        made.append(Curve(name, x, low, high=high if low != high else []))
        told = [(size, cell.printed / unit) for (size, cell), unit in zip(points, units, strict=True) if cell.printed]
        printed.append(Curve(f"printed: {name}", [size for size, _ in told], [number for _, number in told], PRINTED))
    return [*made, *printed]
