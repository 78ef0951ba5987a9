"""Tables with categories as points: what the genetic and the approximate approach and dependence do with them."""

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

from papers import reference
from papers.common import Curve, Figure, Panel, Table, claim, columns_of, grid, progress, zscores

__all__ = [
    "ADULT",
    "REGIONS",
    "CategoryPoint",
    "EmbeddedTable",
    "adult_points",
    "approximate_lines",
    "category_distances",
    "dependence_figure",
    "dependence_lines",
    "dependence_points",
    "eia_points",
    "genetic_lines",
    "predicted_loss",
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
CONFIDENTIAL = ("marital-status", "workclass", "occupation")
"""The attributes of Adult that are confidential for *dependence*; the other six are quasi-identifiers."""
SIZES = (10, 50, 200)
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


class CategoryPoint(NamedTuple):
    """Losses of one partition, and the diversity of its confidential categories."""

    known: float
    """D_X."""
    hamming: float
    """D_Y: share of the records whose category is not the one that their cluster predicts best."""
    taxonomy: float
    """D_Y: mean height of the lowest common ancestor of the two, over the levels."""
    diversity: float
    """l_avg: values of the least diverse attribute, mean over clusters."""


CategoryCurves = dict[tuple[str, int, float], CategoryPoint]


def category_distances(levels: list[NDArray[np.int64]]) -> tuple[NDArray[np.int64], Table]:
    """Return the categories of records as codes, and the distance of each two in the taxonomy: from 0 to 1.

    ``levels`` as of `scaled_block`; with one level the distance is that of Hamming.
    """
    leaves, first, codes = np.unique(levels[0], return_index=True, return_inverse=True)
    apart = np.zeros((len(leaves), len(leaves)))
    for level in levels:
        apart += level[first][:, None] != level[first]
    return codes.astype(np.int64), apart / len(levels)


def predicted_loss(codes: NDArray[np.int64], apart: Table, labels: NDArray[np.int32]) -> float:
    """Return the mean distance of records from the category of least distance to their cluster: D_Y of III.B."""
    counts = np.zeros((int(labels.max()) + 1, len(apart)))
    np.add.at(counts, (labels, codes), 1.0)
    return float((counts @ apart).min(axis=1).sum() / len(codes))


def dependence_points(
    folder: Path, lambdas: Sequence[float], sizes: Sequence[int] = SIZES
) -> tuple[CategoryCurves, tuple[float, float]]:
    """Return the losses of MDAV on (X, βY), the categories Y flat or by taxonomies, and both D_Y of one cluster."""
    points, columns = adult_points(folder)
    rows = read_rows(folder, "adult")
    known = np.ascontiguousarray(
        np.hstack([points[:, columns[i]] for i, name in enumerate(ADULT) if name not in CONFIDENTIAL])
    )
    levels = [_levels(folder, name, [row[name] for row in rows]) for name in CONFIDENTIAL]
    measures = [[category_distances(own[:1]) for own in levels], [category_distances(own) for own in levels]]
    codes = np.stack([own for own, _ in measures[0]], axis=1)
    blocks = {
        "Hamming": np.hstack([scaled_block(own[:1]) for own in levels]),
        "taxonomy": np.hstack([scaled_block(own) for own in levels]),
    }
    share, found = len(CONFIDENTIAL) / (len(ADULT) - len(CONFIDENTIAL)), {}

    def losses(labels: NDArray[np.int32]) -> tuple[float, float]:
        flat, by_taxonomy = (float(np.mean([predicted_loss(*own, labels) for own in each])) for each in measures)
        return flat, by_taxonomy

    for name, k, lam in ((name, k, lam) for name in blocks for k in sizes for lam in lambdas):
        progress(f"dependence, Adult by {name}, k = {k}, λ = {lam}")
        labels = microaggregate(reference.weighted_attributes(known, blocks[name], lam, share), k, "mdav")
        least = reference.diversity(codes.astype(float), labels, 1.0)
        found[name, k, lam] = CategoryPoint(reference.loss_share(known, labels), *losses(labels), least)
    return found, losses(np.zeros(len(rows), np.int32))


def dependence_lines(curves: CategoryCurves, whole: tuple[float, float], shown: Sequence[float]) -> list[str]:
    """Return the lines about confidential categories."""
    sizes = sorted({k for _, k, _ in curves})
    rows = [
        (name, k, *("{:.4f} / {:.4f} / {:.4f} / {:.2f}".format(*curves[name, k, lam]) for lam in shown))
        for name in ("Hamming", "taxonomy")
        for k in sizes
    ]
    return [
        "**Categories** (III.B), which the paper proposes and does not measure: Adult, confidential",
        f"{', '.join(CONFIDENTIAL)}, the other six of *approximate* as quasi-identifiers, each attribute with a",
        "variance of 1. A cluster predicts for each confidential attribute the category at the least distance from",
        "its records; D_Y is the mean distance from it: by Hamming the share of records that have another category,",
        "by the taxonomy the height of the lowest common ancestor over the levels. MDAV on (X, βY) has Y as points",
        "whose squared distance is one of the two. D_X / D_Y by Hamming / D_Y by taxonomy / l_avg (values of the",
        f"least diverse attribute); all records as one cluster: D_Y {whole[0]:.4f} and {whole[1]:.4f}.",
        "",
        *grid(("points by", "k", *(f"λ = {lam}" for lam in shown)), rows),
        *grid(("The paper says of numbers", "of categories", "found"), _category_claims(curves, sizes)),
        "Shoal's `steering.dependence` takes confidential numbers only. With categories a small weight already fills",
        "clusters with one category, which is then known of everybody in them.",
        "",
    ]


def _category_claims(curves: CategoryCurves, sizes: list[int]) -> list[tuple[str, str, str]]:
    lambdas = sorted({lam for _, _, lam in curves})
    plain, slight = ([curves["Hamming", k, lam] for k in sizes] for lam in lambdas[:2])
    favoured = [
        *([own.known for own in plain], [curves["Hamming", k, lambdas[-1]].hamming for k in sizes]),
        [curves["taxonomy", k, lambdas[-1]].taxonomy for k in sizes],
    ]
    steps = [
        (before > after, lam)
        for name, side in (("Hamming", "hamming"), ("taxonomy", "taxonomy"))
        for k in sizes
        for lam, (before, after) in zip(
            lambdas[1:], pairwise(getattr(curves[name, k, lam], side) for lam in lambdas), strict=True
        )
    ]
    rises = [lam for falls, lam in steps if not falls]
    where = ", ".join(map(str, sorted(set(rises))))
    cost = [after.known / before.known - 1.0 for before, after in zip(plain, slight, strict=True)]
    gain = [1.0 - after.hamming / before.hamming for before, after in zip(plain, slight, strict=True)]
    return [
        claim(
            "D_Y falls as λ grows, roughly",
            len(rises) < 0.2 * len(steps),
            f"in {len(steps) - len(rises)} of {len(steps)} steps; it rises at λ = {where}",
        ),
        claim(
            "Both grow with k (at the λ that favours them)",
            all(a < b for own in favoured for a, b in pairwise(own)),
            "everywhere",
        ),
        claim(
            "A small λ costs little D_X and gains much D_Y, most at a low k",
            all(a < b for a, b in zip(cost, gain, strict=True)) and gain == sorted(gain, reverse=True),
            f"λ = {lambdas[1]}, Hamming: "
            + ", ".join(
                f"k = {k}: D_X +{100 * a:.0f} %, D_Y −{100 * b:.0f} %"
                for k, a, b in zip(sizes, cost, gain, strict=True)
            ),
        ),
        claim(
            "Hardly any loss of diversity",
            slight[0].diversity > 0.8 * plain[0].diversity,
            f"k = {sizes[0]}, λ = {lambdas[1]}: {plain[0].diversity:.2f} to {slight[0].diversity:.2f} values",
        ),
    ]


def dependence_figure(curves: CategoryCurves) -> Figure:
    """Return D_Y against D_X for both distances, and the diversity."""
    sizes, lambdas = sorted({k for _, k, _ in curves}), sorted({lam for _, _, lam in curves})
    panels = [
        Panel(
            f"by {name}",
            "D_X",
            f"D_Y by {name}",
            [
                Curve(
                    f"k = {k}",
                    [curves[name, k, lam].known for lam in lambdas],
                    [getattr(curves[name, k, lam], name.lower()) for lam in lambdas],
                )
                for k in sizes
            ],
        )
        for name in ("Hamming", "taxonomy")
    ]
    diverse = [
        Curve(f"k = {k}, {name}", lambdas, [curves[name, k, lam].diversity for lam in lambdas])
        for k in sizes
        for name in ("Hamming", "taxonomy")
    ]
    panels.append(Panel("diversity", "λ", "l_avg", diverse))
    return Figure("dependence-categories", "Confidential categories: loss against loss, and diversity", panels)
