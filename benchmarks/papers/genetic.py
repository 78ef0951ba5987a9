"""Genetic: MDAV into macrogroups, and a genetic search in each (its Table 2)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from shoal import microaggregate
from shoal.tables import refined

from papers.common import Section, Table, beside, grid, progress, standardised, zscores
from papers.embedded import genetic_lines
from papers.pictures import genetic_figure

__all__ = ["PUBLISHED", "SCATTERED", "Printed", "macrogroups", "scattered_rows", "scattered_tables", "section"]

K = 3
HEAD = (
    "table",
    "K",
    "MDAV",
    "one step: macrogroups",
    "one step",
    "two steps: macrogroups",
    "two steps",
    "`descent`",
)
MACRO = (12, 18, 27)


class Printed(NamedTuple):
    """One row of Table 2 without its percentages."""

    groups_one: int
    one: float
    groups_two: int
    two: float


PUBLISHED = {
    ("census", 12): Printed(90, 865.04, 91, 768),
    ("census", 18): Printed(60, 879.94, 61, 767),
    ("census", 27): Printed(40, 919.88, 41, 789),
    ("eia", 12): Printed(341, 414.56, 342, 189),
    ("eia", 18): Printed(227, 295.78, 228, 186),
    ("eia", 27): Printed(151, 333.26, 152, 197),
}
SCATTERED = {12: Printed(83, 5.11, 83, 4.28), 18: Printed(55, 4.91, 56, 4.33), 27: Printed(37, 4.71, 38, 4.58)}
SCATTERED_MDAV = 4.71
DRAWS = 5


def section(folder: Path) -> Section:
    """Compute Table 2."""
    lines = [
        "**Table 2**, k = 3, sum of squared errors. Printed / ours; a genetic search draws at random and the paper",
        "names no seed, so that only similar numbers can be expected. 10,000 generations of 10 chromosomes, seed 0.",
        "",
        *grid(
            HEAD,
            [row for name in ("census", "eia") for row in _rows(folder, name)],
        ),
        "Last column: MDAV refined by descent, in a hundredth of the time.",
        "",
        "*Scattered*, 1,000 records of two attributes uniform from -10,000 to 10,000, is a draw that was not",
        f"published. Printed, and the least and the most of {DRAWS} draws of ours:",
        "",
        *grid(HEAD, scattered_rows()),
        *genetic_lines(folder),
        "Not reproduced, and why:",
        "",
        "- *Clustered*: a draw that was not published, and neither was by how much its clusters are shifted.",
        "- Macrogroups of the two steps: ours are one fewer in every row except that of *Scattered*, K = 12. MDAV of",
        "  the centroids gives as many as ours; an empty macrogroup or one for leftovers would explain the printed",
        "  ones.",
        "- The paper does not say how illegal sizes are treated, or whether mutation is by gene or chromosome:",
        "  repaired here, and by chromosome, which comes nearest. Line 4 of its Algorithm 1 is a misprint: the loop",
        "  goes on while 2k records or more remain.",
        "",
    ]
    return Section(
        "Genetic",
        "A. Martínez-Ballesté, A. Solanas, J. Domingo-Ferrer and J. M. Mateo-Sanz, *A Genetic Approach to Multivariate "
        "Microaggregation for Database Privacy*, ICDE Workshops 2007, doi:10.1109/ICDEW.2007.4400989",
        lines,
        [genetic_figure(lines)],
        [],
    )


def macrogroups(values: Table, size: int) -> tuple[int, int]:
    """Return how many macrogroups of ``size`` records one step makes, and two (of size / 3 clusters of MDAV)."""
    labels = microaggregate(values, K, "mdav")
    centroids = np.stack([np.bincount(labels, column) for column in values.T], axis=1) / np.bincount(labels)[:, None]
    one, two = microaggregate(values, size, "mdav"), microaggregate(centroids, size // K, "mdav")
    return int(one.max()) + 1, int(two.max()) + 1


def scattered_tables(draws: int = DRAWS) -> list[Table]:
    """Return draws of the table *Scattered*, as z-scores."""
    random = np.random.default_rng(1)
    return [zscores(random.uniform(-1e4, 1e4, (1_000, 2))) for _ in range(draws)]


def scattered_rows(draws: int = DRAWS) -> list[list[str]]:
    """Return the rows of *Scattered*: printed numbers beside the range of draws."""
    tables, made = scattered_tables(draws), []
    plain = _range([refined(values, K, "mdav").loss for values in tables])
    descended = _range([refined(values, K, "mdav", "descent").loss for values in tables])
    for size, printed in SCATTERED.items():
        groups = [macrogroups(values, size) for values in tables]
        losses = []
        for steps in (1, 2):
            progress(f"genetic, scattered, K = {size}, {steps} step{'s' if steps > 1 else ''}")
            losses.append([_loss(values, size, steps) for values in tables])
        one, two = ({pair[step] for pair in groups} for step in (0, 1))
        made.append(
            [
                "scattered",
                str(size),
                f"{SCATTERED_MDAV} / {plain}",
                f"{printed.groups_one} / {' or '.join(map(str, sorted(one)))}",
                beside(printed.one, losses[0]),
                f"{printed.groups_two} / {' or '.join(map(str, sorted(two)))}",
                beside(printed.two, losses[1]),
                descended,
            ]
        )
    return made


def _range(losses: list[float]) -> str:
    return f"{min(losses):.2f} to {max(losses):.2f}"


def _loss(values: Table, size: int, steps: int) -> float:
    return refined(values, K, "genetic", parameters={"macro": size // K, "steps": steps}).loss


def _rows(folder: Path, name: str) -> list[list[str]]:
    values = standardised(folder, name)
    plain, descended = refined(values, K, "mdav").loss, refined(values, K, "mdav", "descent").loss
    made = []
    for size in MACRO:
        printed, groups = PUBLISHED[name, size], macrogroups(values, size)
        losses = []
        for steps in (1, 2):
            progress(f"genetic, {name}, K = {size}, {steps} step{'s' if steps > 1 else ''}")
            losses.append(_loss(values, size, steps))
        made.append(
            [
                name,
                str(size),
                f"{plain:.2f}",
                f"{printed.groups_one} / {groups[0]}",
                f"{printed.one:.2f} / {losses[0]:.2f}",
                f"{printed.groups_two} / {groups[1]}",
                f"{printed.two:.0f} / {losses[1]:.2f}",
                f"{descended:.2f}",
            ]
        )
    return made
