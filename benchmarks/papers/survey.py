"""Survey: MD, MDAV and V-MDAV (its Table I)."""

from __future__ import annotations

from pathlib import Path

from shoal.tables import refined

from papers.common import Section, Table, beside, claim, clustered, grid, progress, scattered, standardised
from papers.costs import count_lines, timed_lines
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
SIMULATED = {
    ("scattered", "md"): (4.71, 7.21, 9.67, 22.38),
    ("scattered", "mdav"): (4.72, 7.37, 9.95, 21.74),
    ("scattered", "vmdav"): (4.57, 6.98, 9.82, 22.56),
    ("clustered", "md"): (3.53, 5.03, 7.03, 18.56),
    ("clustered", "mdav"): (3.57, 4.79, 6.86, 18.73),
    ("clustered", "vmdav"): (1.52, 3.85, 7.51, 19.99),
}
VMDAV = (0.2, 1.1)
METHODS = (("md", 0.0), ("mdav", 0.0), *(("vmdav", gamma) for gamma in VMDAV))
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
        *simulated_lines(),
        "γ = 0.2 gives *Scattered* and γ = 1.1 *Clustered*, each in all four cells; neither gives both.",
        "",
        "Not reproduced, and why:",
        "",
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
        [*lines, *count_lines()],
        [survey_figure(lines)],
        timed_lines(),
    )


def simulated_lines() -> list[str]:
    """Return the lines about the two simulated tables."""
    found = {
        "scattered": losses_of("scattered", scattered(DRAWS)),
        "clustered": losses_of("clustered", clustered(DRAWS)),
    }
    columns = tuple(f"k = {k}" for k in SIZES)
    return [
        "**Simulated tables**, 1,000 records of two attributes, whose draws were not published. *Scattered* is uniform",
        "in a square. *Clustered* has groups of 3 to 5 records; how far the records of a group lie apart is not said.",
        "Ours are uniform within 200 of a point in both attributes, in a square of 20,000 by 20,000. Printed / the",
        f"range of {DRAWS} draws; *(outside)* where the printed number is not in it.",
        "",
        *grid(("table", "method", *columns), [row for name in found for row in simulated_rows(name, found[name])]),
        "What V-MDAV saves of the loss of MDAV on the same draw, in %. Printed / range:",
        "",
        *grid(("table", "method", *columns), [row for name in found for row in gains(name, found[name])]),
        *grid(("The paper says", "here", "found"), simulated_claims(found["scattered"], found["clustered"])),
    ]


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


Losses = dict[tuple[str, float], list[list[float]]]


def losses_of(name: str, tables: list[Table]) -> Losses:
    """Return the losses of draws of a simulated table: for each method and gamma, one list for each k."""
    made: Losses = {}
    for method, gamma in METHODS:
        progress(f"survey, {name}, {NAMES[method]}")
        made[method, gamma] = [[_loss(table, method, k, gamma) for table in tables] for k in SIZES]
    return made


def simulated_rows(name: str, losses: Losses) -> list[list[str]]:
    """Return printed numbers for a simulated table beside the range of draws of ours."""
    return [
        [name, titled(*method), *map(beside, SIMULATED[name, method[0]], found)] for method, found in losses.items()
    ]


def gains(name: str, losses: Losses) -> list[list[str]]:
    """Return by how much V-MDAV loses less than MDAV, in %: printed, and the least and the most over the draws."""
    made, whole = [], SIMULATED[name, "mdav"]
    for method, gamma in METHODS[-len(VMDAV) :]:
        cells = []
        for k, (printed, plain) in enumerate(zip(SIMULATED[name, method], whole, strict=True)):
            found = [saved(a, b) for a, b in zip(losses[method, gamma][k], losses["mdav", 0.0][k], strict=True)]
            cells.append(f"{saved(printed, plain):.0f} / {min(found):.0f} to {max(found):.0f}")
        made.append([name, titled(method, gamma), *cells])
    return made


def simulated_claims(loose: Losses, tight: Losses) -> list[tuple[str, str, str]]:
    """Return what the paper says of the simulated tables, and what the draws of ours give."""
    plain = [sum(found) for found in loose["mdav", 0.0]]
    ratios = [sum(found) / base for way in METHODS[:3] for found, base in zip(loose[way], plain, strict=True)]
    won = {gamma: [_mean_saved(tight, gamma, k) for k in range(len(SIZES))] for gamma in VMDAV}
    found = [", ".join(f"{won[gamma][k]:.0f} % (γ = {gamma})" for gamma in VMDAV) for k in range(len(SIZES))]
    return [
        claim(
            "*Scattered*: the three behave alike",
            all(abs(ratio - 1) < 0.05 for ratio in ratios),
            f"on average {min(ratios):.2f} to {max(ratios):.2f} times the loss of MDAV (γ = {VMDAV[0]})",
        ),
        claim(
            "*Clustered*, k = 3 and 4: V-MDAV loses much less",
            all(won[gamma][k] > 10 for gamma in VMDAV for k in (0, 1)),
            f"saves on average {found[0]} at k = 3, {found[1]} at k = 4",
        ),
        claim(
            "*Clustered*, k = 5 and 10: V-MDAV behaves no better",
            all(won[gamma][k] < 1 for gamma in VMDAV for k in (2, 3)),
            f"saves on average {found[2]} at k = 5, {found[3]} at k = 10",
        ),
    ]


def _mean_saved(losses: Losses, gamma: float, k: int) -> float:
    pairs = zip(losses["vmdav", gamma][k], losses["mdav", 0.0][k], strict=True)
    return sum(saved(less, more) for less, more in pairs) / DRAWS


def saved(less: float, more: float) -> float:
    """Return by how many percent one loss is less than another."""
    return 100.0 * (1.0 - less / more)


def titled(method: str, gamma: float) -> str:
    """Return the name of a method with its gamma."""
    return NAMES[method] + (f", γ = {gamma}" if gamma else "")


def cell(printed: float, ours: float) -> str:
    """Return printed and ours, with the difference where there is one."""
    if abs(ours - printed) < HALF_A_DIGIT:
        return f"{printed:.2f} ="
    return f"{printed:.2f} / {ours:.2f} ({100.0 * (ours / printed - 1.0):+.2f} %)"


def _loss(values: Table, method: str, k: int, gamma: float) -> float:
    return refined(values, k, method, parameters={"gamma": gamma} if method == "vmdav" else None).loss
