"""Survey: MD, MDAV and V-MDAV (its Table I)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from shoal.tables import refined

from papers.common import Section, Table, beside, grid, progress, standardised, zscores
from papers.pictures import survey_figure

__all__ = ["PUBLISHED", "cell", "rows", "section"]

SIZES = (3, 4, 5, 10)
PUBLISHED = {
    ("census", "md"): (803.09, 1072.70, 1264.51, 2021.27),
    ("census", "mdav"): (799.18, 1053.78, 1276.02, 1997.03),
    ("census", "vmdav"): (798.49, 1055.51, 1260.56, 1974.75),
    ("eia", "md"): (212.60, 347.45, 751.44, 1671.78),
    ("eia", "mdav"): (217.38, 302.18, 750.20, 1728.31),
    ("eia", "vmdav"): (240.70, 337.87, 511.20, 1270.90),
}
SCATTERED = {"md": (4.71, 7.21, 9.67, 22.38), "mdav": (4.72, 7.37, 9.95, 21.74), "vmdav": (4.57, 6.98, 9.82, 22.56)}
NAMES = {"md": "MD", "mdav": "MDAV", "vmdav": "V-MDAV"}
GAMMAS = {("eia", 10): 1.1}
"""Where another gamma than 0.2 gives the printed number."""
DRAWS = 20
HALF_A_DIGIT = 0.00501


def section(folder: Path) -> Section:
    """Compute Table I."""
    narrow = _loss(standardised(folder, "eia"), "vmdav", 10, 0.2)
    lines = [
        "**Table I**, sum of squared errors of z-scores. In each cell: printed / ours; `=` where ours is the",
        "printed number to its last digit. Lowest line: what Shoal would choose.",
        "",
        *grid(
            ("table", "method", *(f"k = {k}" for k in SIZES)),
            [row for name in ("census", "eia") for row in rows(folder, name)],
        ),
        "Not reproduced, and why:",
        "",
        "- *Clustered* is a random draw that was not published, and neither is the spread of its clusters.",
        f"- *Scattered* is another, of 1,000 points uniform in a square. {DRAWS} draws of ours give:",
        "",
        *grid(("method", *(f"k = {k}" for k in SIZES)), scattered()),
        "- MDAV on Census, k = 4 and 10: the printed numbers were not met by any variant of ties, endings or",
        "  precision that was tried; another implementation, in C++, gives ours. EIA, k = 4 is printed cut, not",
        "  rounded.",
        "- MD on Census, k = 3 and 4, EIA, k = 5: within 0.04 %.",
        "- V-MDAV: the paper does not name its gamma. 0.2 is here, but for EIA, k = 10, where 1.1 gives the printed",
        f"  number and 0.2 gives {narrow:.2f}. On Census, k = 5 and 10 depend on where leftovers go: each by itself",
        "  to the nearest cluster gives the 1260.56 of k = 5, all together, as here, the 798.49 of k = 3; no one",
        "  rule gives the row.",
        "",
    ]
    return Section(
        "Survey: MD, MDAV, V-MDAV",
        "J. Domingo-Ferrer, A. Solanas and A. Martínez-Ballesté, *Privacy in Statistical Databases: k-Anonymity "
        "Through "
        "Microaggregation*, IEEE GrC 2006",
        lines,
        [survey_figure(lines)],
        [],
    )


def rows(folder: Path, name: str) -> list[list[str]]:
    """Return the rows of one table: three methods, and the default of Shoal."""
    values, made = standardised(folder, name), []
    for method, title in NAMES.items():
        progress(f"survey, {name}, {title}")
        cells = [
            cell(printed, _loss(values, method, k, GAMMAS.get((name, k), 0.2)))
            for printed, k in zip(PUBLISHED[name, method], SIZES, strict=True)
        ]
        made.append([name, title, *cells])
    best = [f"{refined(values, k, 'auto', 'descent').loss:.2f}" for k in SIZES]
    return [*made, [name, "`auto` + `descent`", *best]]


def scattered() -> list[list[str]]:
    """Return printed numbers for the simulated table beside the range of draws of ours."""
    random = np.random.default_rng(1)
    tables = [zscores(random.uniform(-1e4, 1e4, (1_000, 2))) for _ in range(DRAWS)]
    made = []
    for method, title in NAMES.items():
        progress(f"survey, scattered, {title}")
        cells = []
        for printed, k in zip(SCATTERED[method], SIZES, strict=True):
            losses = [_loss(table, method, k, 0.2) for table in tables]
            cells.append(beside(printed, losses))
        made.append([title, *cells])
    return made


def cell(printed: float, ours: float) -> str:
    """Return printed and ours, with the difference where there is one."""
    if abs(ours - printed) < HALF_A_DIGIT:
        return f"{printed:.2f} ="
    return f"{printed:.2f} / {ours:.2f} ({100.0 * (ours / printed - 1.0):+.2f} %)"


def _loss(values: Table, method: str, k: int, gamma: float) -> float:
    return refined(values, k, method, parameters={"gamma": gamma} if method == "vmdav" else None).loss
