"""Shared by all papers: the reference tables, and the parts of a section of the page."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from reference_data import read_rows

__all__ = [
    "LIMIT",
    "PRINTED",
    "Curve",
    "Figure",
    "Panel",
    "Section",
    "Table",
    "beside",
    "claim",
    "clustered",
    "clustered_draw",
    "columns_of",
    "grid",
    "progress",
    "scaled_to_one",
    "scattered",
    "scattered_draw",
    "standardised",
    "zscores",
]

Table = NDArray[np.float64]
ROOT = Path(__file__).resolve().parents[2]


class Curve(NamedTuple):
    """One line of a figure; with ``high``, ranges from y to it. ``kind`` is that of a line of ours, or as below."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    kind: str = "ours"
    high: Sequence[float] = ()


PRINTED = "printed"
"""Kind of points that a paper prints: large crosses without a line."""
LIMIT = "limit"
"""Kind of a bound or a line to compare with: thin, grey and dotted."""


class Panel(NamedTuple):
    """One pair of axes."""

    title: str
    across: str
    up: str
    curves: Sequence[Curve]


class Figure(NamedTuple):
    """A figure, its file name ``papers-NAME.svg`` and its caption."""

    name: str
    about: str
    panels: Sequence[Panel]


class Section(NamedTuple):
    """The section of the page about one paper."""

    title: str
    source: str
    lines: list[str]
    """The same in every run; figures follow them."""
    figures: list[Figure]
    timed: list[str]
    """Lines with seconds, which differ from run to run."""


def columns_of(folder: Path, name: str, columns: Sequence[str] = ()) -> Table:
    """Return columns of a reference table as numbers; without names all, of ``eia`` the eleven that the papers use."""
    rows = read_rows(folder, name)
    names = list(columns) or list(rows[0])
    if name == "eia" and not columns:
        names = ["UTILITYID", *names[names.index("RESREVENUE") :]]
    return np.array([[float(row[column]) for column in names] for row in rows])


def zscores(values: Table) -> Table:
    """Return each column minus its mean, divided by its population standard deviation, as in all papers."""
    scaled: Table = (values - values.mean(axis=0)) / values.std(axis=0)
    return scaled


def standardised(folder: Path, name: str) -> Table:
    """Return a reference table as z-scores."""
    return zscores(columns_of(folder, name))


def scaled_to_one(values: Table) -> Table:
    """Return each column scaled to [0, 1] by its range."""
    low = values.min(axis=0)
    scaled: Table = (values - low) / (values.max(axis=0) - low)
    return scaled


SIMULATED, SIDE, SPREAD = 1_000, 1e4, 200.0
"""Records of a simulated table, half the side of its square, and the largest shift of a member (our choice)."""


def scattered(draws: int) -> list[Table]:
    """Return draws of the papers' *Scattered*, as z-scores."""
    random = np.random.default_rng(1)
    return [scattered_draw(SIMULATED, random) for _ in range(draws)]


def scattered_draw(records: int, random: np.random.Generator | None = None) -> Table:
    """Return points uniform in a square, as z-scores."""
    return zscores((random or np.random.default_rng(1)).uniform(-SIDE, SIDE, (records, 2)))


def clustered(draws: int) -> list[Table]:
    """Return draws of a table like the papers' *Clustered*, as z-scores."""
    random = np.random.default_rng(1)
    return [clustered_draw(SIMULATED, random) for _ in range(draws)]


def clustered_draw(records: int, random: np.random.Generator | None = None) -> Table:
    """Return groups of 3 to 5 records, as z-scores: a point in the square, each record at most 200 from it."""
    random = random or np.random.default_rng(1)
    sizes = group_sizes(records, random)
    centres = random.uniform(-SIDE, SIDE, (len(sizes), 2))
    return zscores(np.repeat(centres, sizes, axis=0) + random.uniform(-SPREAD, SPREAD, (records, 2)))


def group_sizes(records: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Return sizes from 3 to 5, drawn until they add up to all records; the last is drawn anew if they cannot."""
    sizes: list[int] = []
    while (left := records - sum(sizes)) > 0:
        if left in {1, 2}:
            sizes.pop()
        else:
            sizes.append(left if left in {3, 4, 5} else int(random.integers(3, 6)))
    return np.array(sizes)


def grid(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return a Markdown table with an empty line after it."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows), ""]


def claim(said: str, holds: bool, found: str) -> tuple[str, str, str]:  # noqa: FBT001 - the flag is the result
    """Return a table row: a statement of a paper, whether it holds here, and what was found."""
    return said, "yes" if holds else "**no**", found


def progress(line: str) -> None:
    """Print a line of progress."""
    print(f"papers: {line}", file=sys.stderr, flush=True)


def beside(printed: float, ours: list[float]) -> str:
    """Return a printed number beside the range of draws, and whether it lies outside of it."""
    low, high = round(min(ours), 2), round(max(ours), 2)
    outside = "" if low <= printed <= high else " (outside)"
    return f"{printed:.2f} / {low:.2f} to {high:.2f}{outside}"
