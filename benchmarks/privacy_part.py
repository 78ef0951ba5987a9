"""The part of the page on differential privacy: docs/adr/0024-differential-privacy.md draws on it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from differential_privacy import (
    DELTA,
    DRAWS,
    EPSILONS,
    LONGEST,
    NOISES,
    REPLACED,
    SIZES,
    Data,
    K,
    best_loss,
    least_size_by_distance,
    least_size_by_ratio,
    loss_of,
    own_loss,
    spread_of,
    tables_of,
)
from papers.common import Curve, Figure, Panel, grid
from papers.figures import draw
from part import Part
from reference_data import data_folder, read_rows

__all__ = ["privacy_part"]

FIGURES = Path(__file__).resolve().parents[1] / "docs" / "reports" / "figures"


def _figure(tables: Sequence[Data]) -> Figure:
    panels = []
    for data in (tables[0], tables[2]):
        sizes = [size for size in SIZES if size <= data.block]
        curves = [Curve("no noise", sizes, [loss_of(data.name, size) for size in sizes])]
        for epsilon in EPSILONS:
            lost = [min(loss_of(data.name, size, NOISES[0], epsilon), 10.0) for size in sizes]
            curves.append(Curve(f"ε = {epsilon:g}", sizes, lost))
        panels.append(Panel(data.name, "k", "loss (cut at 10; 1: one mean for all)", curves))
    return Figure("privacy-noise", "", panels)


def privacy_part() -> Part:
    """Measure, draw, and write the lines."""
    began = time.monotonic()
    tables = tables_of()
    draw(_figure(tables), FIGURES, "")
    rows = []
    for data in tables:
        own, fixed = own_loss(data.values), loss_of(data.name, K)
        for noise in NOISES:
            cells = [
                "{:.2f} (k = {})".format(*best_loss(data.name, data.block, noise, epsilon)) for epsilon in EPSILONS
            ]
            at_k = f"{loss_of(data.name, K, noise, 1.0):.1f}"
            rows.append([data.name, noise.name, f"{own:.3f}", f"{fixed:.3f}", at_k, *cells])
    spread = [[rule, *spread_of(tables[3].values, rule)] for rule in ("nearest", "awo", "block")]
    lines = [
        "## What differential privacy would cost",
        "",
        "An experiment for docs/adr/0024-differential-privacy.md (`benchmarks/differential_privacy.py`); none of it is",
        "in the product. Each block of consecutive records is ordered along a fixed curve and cut into clusters of k,",
        "so that no cluster changes by more than one record if a record is replaced. Noise is added to the centroids",
        "for all of them together. Loss is squared error over the total: **1 is the loss of one mean for all**.",
        f"The least loss over k from {SIZES[0]} on, mean of {DRAWS} draws of noise. ε is that of one record; a person",
        "with r records in one or several blocks has r ε. Bounds of Census are its range, which would have to be",
        "public.",
        "",
        *grid(
            [
                *("data", "noise", f"`block`, k = {K}, no noise", f"fixed order, k = {K}, no noise"),
                *(f"k = {K}, ε = 1", *(f"best k, ε = {epsilon:g}" for epsilon in EPSILONS)),
            ],
            rows,
        ),
        "![loss against k at several ε](figures/privacy-noise.svg)",
        "",
        f"The rules of the product are not insensitive. One record of {LONGEST:,} of Adult (6 attributes, k = {K},",
        f"δ = {DELTA}) is replaced by another, {REPLACED} times: clusters that are different then, and the share of",
        "streams in which a cluster changes all of whose records arrived more than δ after it.",
        "",
        *grid(
            ["rule", "clusters that change", "changes beyond δ"],
            [[f"`{rule}`", f"{changed:.1f}", f"{far:.0%}"] for rule, changed, far in spread],
        ),
        *_about_sizes(),
        f"It took {(time.monotonic() - began) / 60:.1f} minutes.",
        "",
    ]
    return Part(lines, [])


def _about_sizes() -> list[str]:
    counts = Counter(row["occupation"] for row in read_rows(data_folder(), "adult"))
    shares = np.array(sorted(counts.values()), np.float64) / counts.total()
    by_distance = [[f"equal distance at most {t}", least_size_by_distance(shares, t)] for t in (0.3, 0.2, 0.1, 0.05)]
    by_ratio = [
        [f"ratio at most exp({epsilon:g})", least_size_by_ratio(shares, epsilon)] for epsilon in (4.0, 2.0, 1.0, 0.5)
    ]
    return [
        f"The least cluster whose occupations are so close to those of Adult ({len(shares)} values, the rarest with a",
        f"share of {shares[0]:.5f}), however its records are chosen:",
        "",
        *grid(["t-closeness by", "records"], [*by_distance, *by_ratio]),
    ]


if __name__ == "__main__":
    part = privacy_part()
    print("\n".join(part.lines))
