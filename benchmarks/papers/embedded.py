"""Tables with categories as points: what the genetic and the approximate approach do on mixed attributes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from reference_data import read_rows
from shoal import microaggregate
from shoal.kernels.sums import dense_coordinates
from shoal.tables import refined
from shoal.tables.literature.approximate import dependency_tree
from shoal.tables.measures import loss_of

from papers.common import Table, columns_of, grid, progress, zscores

__all__ = [
    "ADULT",
    "REGIONS",
    "EmbeddedTable",
    "adult_points",
    "approximate_lines",
    "eia_points",
    "genetic_lines",
    "scaled_block",
]

ADULT = (
    "age",
    "sex",
    "education",
    "marital-status",
    "race",
    "workclass",
    "native-country",
    "occupation",
    "salary-class",
)
"""The nine attributes of paper *approximate*, in its order."""
TAXONOMIES = {"marital-status", "occupation", "workclass"}

REGIONS = {
    "Northeast": "CT MA ME NH NJ NY PA RI VT",
    "Midwest": "IA IL IN KS MI MN MO ND NE OH SD WI",
    "South": "AL AR DC DE FL GA KY LA MD MS NC OK SC TN TX VA WV",
    "West": "AK AZ CA CO HI ID MT NM NV OR UT WA WY",
}
"""The census regions of the United States and their states."""
AMOUNTS = ("RESREVENUE", "RESSALES", "TOTREVENUE", "TOTSALES")
MACRO, K = 18, 3


class EmbeddedTable(NamedTuple):
    """A table as points (n, D) with total sum of squares ``total``."""

    points: Table
    total: float


def scaled_block(levels: list[NDArray[np.int64]]) -> Table:
    """Return the points of a nominal attribute, scaled to a total variance of 1.

    Parameters
    ----------
    levels
        Code of each record's node on each level of the taxonomy, the leaves first; one level for a flat attribute.
    """
    codes = np.stack(levels, axis=1)
    distances = np.full(len(levels), 1 / len(levels))
    points = dense_coordinates(np.empty((len(codes), 0)), codes, distances)
    block: Table = points / np.sqrt(points.var(axis=0).sum())
    return block


def eia_points(folder: Path, *, by_region: bool) -> EmbeddedTable:
    """Return EIA's month (ordinal), state (flat, or by census region) and four amounts, each with a variance of 1."""
    rows = read_rows(folder, "eia")
    region_of = {state: region for region, states in REGIONS.items() for state in states.split()}
    states = [row["STATE"].strip() for row in rows]
    levels = [np.unique(states, return_inverse=True)[1]]
    if by_region:
        levels.append(np.unique([region_of[state] for state in states], return_inverse=True)[1])
    numeric = zscores(columns_of(folder, "eia", ("MONTH", *AMOUNTS)))
    points = np.ascontiguousarray(np.hstack([numeric, scaled_block([level.astype(np.int64) for level in levels])]))
    return EmbeddedTable(points, float(((points - points.mean(axis=0)) ** 2).sum()))


def genetic_lines(folder: Path) -> list[str]:
    """Return the lines about the genetic approach on tables with a nominal attribute."""
    rows = []
    for name, by_region in (("flat", False), ("by census region", True)):
        table = eia_points(folder, by_region=by_region)
        losses = [refined(table.points, K, "mdav").loss]
        for steps in (1, 2):
            progress(f"genetic, EIA with states {name}, {steps} step{'s' if steps > 1 else ''}")
            found = refined(table.points, K, "genetic", parameters={"macro": MACRO // K, "steps": steps})
            losses.append(found.loss)
        losses.append(refined(table.points, K, "mdav", "descent").loss)
        rows.append((f"state {name}", table.points.shape[1], *(f"{100 * loss / table.total:.3f}" for loss in losses)))
    return [
        "**Categories**, which the paper does not have: EIA's month as ranks, its 51 states as categories, and four",
        "amounts, each scaled to a variance of 1; the states are points whose squared distance is 0 or 1, or half of",
        f"that within a census region. Loss in % of SST, k = {K}, K = {MACRO}.",
        "",
        *grid(("EIA", "coordinates", "MDAV", "one step", "two steps", "`descent`"), rows),
    ]


def adult_points(folder: Path) -> tuple[Table, list[slice]]:
    """Return the nine attributes of Adult as points, each with a variance of 1, and the columns of each attribute.

    Age is a number, education has ranks, marital status, workclass and occupation have taxonomies, the others are flat.
    """
    rows = read_rows(folder, "adult")
    blocks = []
    for name in ADULT:
        column = [row[name] for row in rows]
        if name == "age":
            blocks.append(zscores(np.array([[float(text)] for text in column])))
        elif name == "education":
            years = [[float(row["education-num"])] for row in rows]
            blocks.append(zscores(np.array(years)))
        else:
            blocks.append(scaled_block(_levels(folder, name, column)))
    ends = np.cumsum([0, *(block.shape[1] for block in blocks)])
    return np.ascontiguousarray(np.hstack(blocks)), [slice(*pair) for pair in pairwise(ends.tolist())]


def _levels(folder: Path, name: str, column: list[str]) -> list[NDArray[np.int64]]:
    """Return the codes of a nominal column on each level below the root of its taxonomy."""
    nodes: dict[str, tuple[str, ...]] = {text: (text,) for text in column}
    if name in TAXONOMIES:
        taxonomy = read_rows(folder, f"hierarchies/adult_{name}")
        nodes = {row["level0"]: tuple(row.values())[:-1] for row in taxonomy}
    levels = zip(*(nodes[text] for text in column), strict=True)
    return [np.unique(level, return_inverse=True)[1].astype(np.int64) for level in levels]


def approximate_lines(folder: Path, codes: NDArray[np.int64], sizes: Sequence[int]) -> list[str]:
    """Return the lines about key attributes on Adult with each attribute by its scale.

    ``codes`` (n, 9) are its columns as codes.
    """
    points, columns = adult_points(folder)
    keys = dependency_tree(codes).keys
    known = np.ascontiguousarray(np.hstack([points[:, columns[key]] for key in keys]))
    rows = []
    for k in sizes:
        progress(f"approximate, Adult by scale, k = {k}")
        total = len(points) * len(ADULT)
        losses = [loss_of(points, microaggregate(some, k, "mdav")) for some in (points, known)]
        rows.append((f"k = {k}", *(f"{100 * loss / total:.2f}" for loss in losses)))
    return [
        "The same with each attribute by its scale, with a variance of 1: age is a number, education has ranks, and",
        "the categories of the other seven are points; their squared distance is that in the taxonomies of",
        "tests/data/hierarchies (marital status, workclass, occupation), or else 0 or 1.",
        f"The key attributes are {' and '.join(ADULT[key] for key in keys)}.",
        "",
        *grid(("", "MDAV, loss", "approximate, loss"), rows),
    ]
