"""Approximate: MDAV on key attributes (its running example, Fig. 4 to 6)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from reference_data import read_rows
from shoal import microaggregate
from shoal.tables import refined
from shoal.tables.literature.approximate import dependency_tree, discretized, key_attributes

from papers.common import LIMIT, Curve, Figure, Panel, Section, Table, claim, grid, progress, standardised, zscores
from papers.embedded import ADULT, approximate_lines
from papers.reference import loss_share

__all__ = ["EXAMPLE", "MATRIX", "adult_codes", "adult_lines", "census_like", "example_lines", "section"]

RECORDS = 500_000
CARDINALITIES = (78, 2, 17, 6, 9, 8, 83, 50, 50)
SHARES, SIZES, ATTRIBUTES = (20, 40, 60, 80, 100), (5, 10, 15, 20, 25), (5, 6, 7, 8, 9)
K = 20
DRAWS = 10
SEED, FACTORS, NOISE, SKEW = 7, 3, 0.8, 1.5
EXAMPLE = np.array(
    [
        [0, 0, 0, 1, 1, 1],
        [0, 1, 1, 0, 1, 0],
        [1, 1, 0, 1, 0, 0],
        [0, 0, 1, 1, 1, 1],
        [0, 1, 1, 1, 0, 0],
        [0, 0, 1, 0, 0, 1],
        [1, 1, 1, 0, 0, 1],
        [0, 1, 1, 0, 0, 0],
        [1, 1, 1, 0, 1, 1],
        [0, 1, 1, 1, 0, 1],
        [0, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1, 1],
    ]
)
MATRIX = (
    (1.3796, 1.5339, 1.8777, 1.8777, 1.8126),
    (1.3753, 1.7772, 1.6681, 1.3180),
    (1.3368, 1.6217, 1.6217),
    (1.9586, 1.9586),
    (1.7510,),
)
"""Printed: of A1 with A2 to A6, of A2 with A3 to A6, and so on."""
DRAWN = [(0, 1), (1, 2), (1, 3), (1, 5), (2, 4)]
"""Edges of the printed tree, attributes from 0."""


class Run(NamedTuple):
    """MDAV and its approximation on one table."""

    keys: int
    losses: tuple[float, float]
    seconds: tuple[float, float]


def census_like(n: int = RECORDS) -> NDArray[np.int64]:
    """Return a generated table of the paper's shape: nine discrete attributes of its cardinalities.

    Three Gaussian factors and noise; the ranks of each attribute, skewed, are cut into as many values as it has.
    """
    random = np.random.default_rng(SEED)
    factors, loadings = random.standard_normal((n, FACTORS)), random.standard_normal((FACTORS, len(CARDINALITIES)))
    hidden = factors @ loadings + NOISE * random.standard_normal((n, len(CARDINALITIES)))
    ranks = (np.argsort(np.argsort(hidden, axis=0, kind="stable"), axis=0, kind="stable") + 0.5) / n
    codes: NDArray[np.int64] = np.minimum((ranks**SKEW * CARDINALITIES).astype(np.int64), np.array(CARDINALITIES) - 1)
    return codes


def adult_codes(folder: Path) -> NDArray[np.int64]:
    """Return the paper's attributes of Adult as codes (32,561, 9); categories are numbered in alphabetical order."""
    rows = read_rows(folder, "adult")
    columns = [np.array([int(row[name]) if name == "age" else row[name] for row in rows]) for name in ADULT]
    return np.stack([np.unique(column, return_inverse=True)[1] for column in columns], axis=1).astype(np.int64)


def section(folder: Path) -> Section:
    """Compute the running example and Fig. 4 to 6."""
    codes = census_like().astype(float)
    order = np.random.default_rng(SEED).permutation(len(codes))
    by_share = {share: run(zscores(codes[order[: len(codes) * share // 100]]), K, f"{share} %") for share in SHARES}
    by_k = {k: run(zscores(codes), k, f"k = {k}") for k in SIZES}
    by_attributes = {m: run(zscores(codes[:, :m]), K, f"{m} attributes") for m in ATTRIBUTES}
    return Section(
        "Approximate",
        "X. Sun, H. Wang, J. Li and Y. Zhang, *An Approximate Microaggregation Approach for Microdata Protection*, "
        "Expert Systems with Applications 39(2), 2012",
        [*example_lines(), *_figure_lines(by_share, by_k, by_attributes), *adult_lines(folder), *real_lines(folder)],
        [_seconds_figure(by_share, by_k, by_attributes), _keys_figure(by_share), _loss_figure(by_share, by_k)],
        _timed_lines(by_share, by_k, by_attributes),
    )


def example_lines() -> list[str]:
    """Return the lines about the running example of twelve records."""
    found = dependency_tree(EXAMPLE)
    cells = [
        f"{printed:.4f} ="
        if f"{found.weights[a, b]:.4f}" == f"{printed:.4f}"
        else f"{printed:.4f} / {found.weights[a, b]:.4f}"
        for a, row in enumerate(MATRIX)
        for b, printed in enumerate(row, a + 1)
    ]
    entries = iter(cells)
    rows = [(f"A{a + 1}", *("" for _ in range(a)), *(next(entries) for _ in range(5 - a))) for a in range(5)]
    ours, drawn = (sum(float(found.weights[edge]) for edge in edges) for edges in (found.edges, DRAWN))
    named = ", ".join(f"A{a + 1}–A{b + 1}" for a, b in found.edges)
    keys = ", ".join(f"A{a + 1}" for a in sorted(found.keys))
    entropies = [_entropy(EXAMPLE[:, a]) for a in range(2)]
    joint = _entropy(EXAMPLE[:, 0] * 2 + EXAMPLE[:, 1])
    claims = [
        claim(
            "P(A1 = 1) = 1/3, P(A3 = 0) = 1/6, P(A1 = 1, A3 = 0) = 1/12",
            bool(_shares() == (4, 2, 1)),
            "4, 2 and 1 of 12 records",
        ),
        claim("H(A1, A2) = 1.5546", abs(joint - 1.5546) < 5e-5, f"{joint:.4f}"),
        claim(
            "H(A1 given A2) = 0.6363, H(A2 given A1) = 0.7433",
            abs(joint - entropies[1] - 0.6363) < 5e-5,
            f"the other way round: {joint - entropies[1]:.4f}, {joint - entropies[0]:.4f}",
        ),
        claim(
            "The tree of its Fig. 2 (with A2–A4) is the lightest",
            abs(ours - drawn) < 1e-4,
            f"it weighs {drawn:.4f}; {named} weighs {ours:.4f}",
        ),
        claim("The key attributes are A2 and A3", sorted(found.keys) == [1, 2], keys),
        claim(
            "There are at most m / 2 key attributes (Theorem 2)",
            len(key_attributes([(0, 1), (1, 2)], 3)) <= 1.5,
            "m = 3 attributes in a row need 2; ⌈m / 2⌉ is the bound",
        ),
    ]
    return [
        "**Running example** (its Table 1), dependency of each two of six attributes in bits; printed / ours:",
        "",
        *grid(("", *(f"A{a}" for a in range(2, 7))), rows),
        *grid(("The paper says", "here", "found"), claims),
        "Other slips: Algorithm 2, step 6, *between k and k − 1* means k and 2k − 1; the proof of Theorem 1 has a",
        "term −H(C) too many in line (4), its claim is true.",
        "",
    ]


def _shares() -> tuple[int, int, int]:
    one, three = EXAMPLE[:, 0] == 1, EXAMPLE[:, 2] == 0
    return int(one.sum()), int(three.sum()), int((one & three).sum())


def _entropy(codes: NDArray[np.int64]) -> float:
    shares = np.unique(codes, return_counts=True)[1] / len(codes)
    return float(-(shares * np.log2(shares)).sum())


def run(values: Table, k: int, what: str) -> Run:
    """Return loss in % and processor seconds of MDAV and of its approximation, without compilation."""
    progress(f"approximate, {what}")
    losses, seconds = [], []
    for algorithm in ("mdav", "approximate"):
        refined(values[:1000], k, algorithm)
        began = time.process_time()
        found = refined(
            values, k, algorithm, parameters={"bins": max(CARDINALITIES)} if algorithm == "approximate" else None
        )
        seconds.append(time.process_time() - began)
        losses.append(100.0 * found.loss / values.size)
    codes = np.stack([np.unique(column, return_inverse=True)[1] for column in values.T], axis=1).astype(np.int64)
    return Run(len(dependency_tree(codes).keys), (losses[0], losses[1]), (seconds[0], seconds[1]))


Runs = dict[int, Run]


def _figure_lines(by_share: Runs, by_k: Runs, by_attributes: Runs) -> list[str]:
    return [
        "**Fig. 4 to 6**. The paper's table (500,000 records of an American census with nine discrete attributes)",
        "is not available; it is replaced by a generated one of its size and cardinalities (`census_like`), so that",
        f"only what the text says about the curves can be checked. k = {K} where the paper gives none; loss in % of",
        "SST. The paper's curves have no numbers beside them.",
        "",
        *_loss_tables(by_share, by_k, by_attributes),
        "Why it loses so much: an attribute of few values is near to every other by this measure, becomes the hub",
        "of the tree and so a key. The paper's own table may be kinder: its Fig. 6 shows tens of percent for both.",
        "",
    ]


def adult_lines(folder: Path) -> list[str]:
    """Return the lines about Adult, an extract of another American census with the paper's nine attributes."""
    codes = adult_codes(folder).astype(float)
    order = np.random.default_rng(SEED).permutation(len(codes))
    counts = [len(np.unique(column)) for column in codes.T]
    tables = _loss_tables(
        {s: run(zscores(codes[order[: len(codes) * s // 100]]), K, f"Adult, {s} %") for s in SHARES},
        {k: run(zscores(codes), k, f"Adult, k = {k}") for k in SIZES},
        {m: run(zscores(codes[:, :m]), K, f"Adult, {m} attributes") for m in ATTRIBUTES},
    )
    return [
        f"The same on Adult ({len(codes):,} records of an American census, the paper's nine attributes, of",
        f"{', '.join(map(str, counts))} values; categories numbered in alphabetical order, because the paper does not",
        "give its numbers):",
        "",
        *tables,
        *approximate_lines(folder, codes.astype(np.int64), SIZES),
    ]


def _loss_tables(by_share: Runs, by_k: Runs, by_attributes: Runs) -> list[str]:
    rows = [
        *(
            (f"{share} % of the records", run.keys, *(f"{loss:.2f}" for loss in run.losses))
            for share, run in by_share.items()
        ),
        *((f"k = {k}", run.keys, *(f"{loss:.2f}" for loss in run.losses)) for k, run in by_k.items()),
        *(
            (f"first {m} attributes", run.keys, *(f"{loss:.2f}" for loss in run.losses))
            for m, run in by_attributes.items()
        ),
    ]
    every = [*by_share.values(), *by_k.values()]
    worst = max(run.losses[1] / run.losses[0] for run in every)
    claims = [
        claim(
            "The approximation loses a little more than MDAV",
            worst < 1.2,
            f"with nine attributes {min(r.losses[1] / r.losses[0] for r in every):.1f} to {worst:.1f} times as much",
        ),
        claim(
            "Loss grows with k",
            all(
                a.losses[way] < b.losses[way]
                for way in (0, 1)
                for a, b in zip(by_k.values(), list(by_k.values())[1:], strict=False)
            ),
            "for both",
        ),
        claim(
            "Fewer than half of the attributes are keys",
            all(2 * run.keys <= len(CARDINALITIES) + 1 for run in every),
            ", ".join(sorted({str(run.keys) for run in every})) + " of 9",
        ),
    ]
    return [
        *grid(("", "key attributes (Fig. 5)", "MDAV, loss (Fig. 6)", "approximate, loss"), rows),
        *grid(("The paper says", "here", "found"), claims),
    ]


def real_lines(folder: Path) -> list[str]:
    """Return the lines about the reference tables, compared with equally many attributes drawn at random."""
    rows = []
    for name in ("census", "eia", "tarragona"):
        values = standardised(folder, name)
        n, d = values.shape
        codes = np.stack([discretized(column, 10) for column in values.T], axis=1)
        count = len(dependency_tree(codes).keys)
        random = np.random.default_rng(SEED)
        drawn = [np.ascontiguousarray(values[:, random.permutation(d)[:count]]) for _ in range(DRAWS)]
        for k in (3, K):
            whole, keys = (100.0 * refined(values, k, a).loss / (n * d) for a in ("mdav", "approximate"))
            others = [100.0 * loss_share(values, microaggregate(some, k, "mdav")) for some in drawn]
            rows.append((name, k, count, f"{whole:.2f}", f"{keys:.2f}", f"{min(others):.2f} to {max(others):.2f}"))
    return [
        "On the reference tables, attributes cut into ten bins, loss in %; beside the keys as many attributes drawn at",
        f"random, {DRAWS} times:",
        "",
        *grid(("table", "k", "keys", "MDAV", "approximate", "drawn at random"), rows),
    ]


def _timed_lines(by_share: Runs, by_k: Runs, by_attributes: Runs) -> list[str]:
    rows = [
        *((f"{share} %", *(f"{s:.1f}" for s in run.seconds)) for share, run in by_share.items()),
        *((f"k = {k}", *(f"{s:.1f}" for s in run.seconds)) for k, run in by_k.items()),
        *((f"{m} attributes", *(f"{s:.1f}" for s in run.seconds)) for m, run in by_attributes.items()),
    ]
    first, last = by_k[SIZES[0]], by_k[SIZES[-1]]
    claims = [
        claim(
            "The approximation is quicker throughout",
            all(r.seconds[1] < r.seconds[0] for r in [*by_share.values(), *by_k.values()]),
            "in processor seconds",
        ),
        claim("Seconds grow with the records", by_share[20].seconds[0] < by_share[100].seconds[0], "for MDAV"),
        claim(
            "Seconds grow with k",
            first.seconds[0] < last.seconds[0],
            f"they fall, {first.seconds[0]:.1f} to {last.seconds[0]:.1f} s: fewer clusters are looked for",
        ),
    ]
    return [
        "Fig. 4, processor seconds on the machine of the run:",
        "",
        *grid(("", "MDAV, s", "approximate, s"), rows),
        *grid(("The paper says", "here", "found"), claims),
    ]


def _loss_figure(by_share: Runs, by_k: Runs) -> Figure:
    panels = [_panel("k = 20", "records, %", "loss, %", by_share, 0), _panel("all records", "k", "loss, %", by_k, 0)]
    return Figure("approximate-6", "Fig. 6: loss of MDAV (MA) and of its approximation (AMA)", panels)


def _seconds_figure(by_share: Runs, by_k: Runs, by_attributes: Runs) -> Figure:
    panels = [
        _panel("k = 20", "records, %", "seconds", by_share, 1),
        _panel("all records", "k", "seconds", by_k, 1),
        _panel("k = 20", "attributes", "seconds", by_attributes, 1),
    ]
    return Figure("approximate-4", "Fig. 4: processor seconds", panels)


def _keys_figure(by_share: Runs) -> Figure:
    shares, most = list(by_share), len(CARDINALITIES)
    curves = [
        Curve("MA", shares, [most] * len(shares)),
        Curve("AMA", shares, [run.keys for run in by_share.values()]),
        Curve("printed: less than half", shares, [most / 2] * len(shares), LIMIT),
    ]
    return Figure("approximate-5", "Fig. 5: key attributes", [Panel("k = 20", "records, %", "attributes", curves)])


def _panel(title: str, across: str, up: str, runs: Runs, seconds: int) -> Panel:
    pairs = [run.seconds if seconds else run.losses for run in runs.values()]
    curves = [Curve(name, list(runs), [pair[i] for pair in pairs]) for i, name in enumerate(("MA", "AMA"))]
    return Panel(title, across, up, curves)
