"""Finished tables: own kernels beside each other and beside what else can be installed; loss and seconds of one run."""

from __future__ import annotations

import csv
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from shoal import microaggregate
from shoal.engine.static.refinement import loss_of
from shoal.kernel.static import mdav
from table_peers import about_peers

__all__ = ["FASTER", "LESS", "StaticSets", "about_static_sets", "static_sets"]

FASTER, LESS = 8.0, 0.86
"""Limits: MDAV through the tree against the scan, n = 50,000; loss of ``auto`` with descent against MDAV's."""

Table = NDArray[np.float64]
Labels = NDArray[np.int32]
DATA = Path(os.environ.get("SHOAL_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
ANNEALING_S = 30.0


class StaticSets(NamedTuple):
    """Rows of the tables, lines about other programs, and what the limits are about."""

    speed: list[str]
    losses: list[str]
    peers: list[str]
    faster: float
    less: float


def _timed(function: Callable[[], Labels], rounds: int = 1) -> tuple[Labels, float]:
    """Return the labels and the least processor seconds of some rounds."""
    labels, seconds = function(), float("inf")  # compiled, and everything at hand
    for _ in range(rounds):
        began = time.process_time()
        labels = function()
        seconds = min(seconds, time.process_time() - began)
    return labels, seconds


def _z(values: Table) -> Table:
    scaled: Table = (values - values.mean(axis=0)) / values.std(axis=0)
    return scaled


def _reference(name: str) -> Table:
    with (DATA / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = list(rows[0])
    if name == "eia":
        names = ["UTILITYID", *names[names.index("RESREVENUE") :]]
    return _z(np.array([[float(row[column]) for column in names] for row in rows]))


def _for_seconds(seconds: float) -> Callable[[int], float]:
    began = time.perf_counter()
    return lambda _: (time.perf_counter() - began) / seconds


def _scaling() -> tuple[list[str], float, float]:
    """Return the rows about generated tables, the ratio of MDAV's two ways, and the ratio of losses."""
    random = np.random.default_rng(1)
    lines, faster, less = [], 0.0, 0.0
    for name, n, d, table in (
        ("uniform", 50_000, 4, random.random((50_000, 4))),
        ("uniform", 100_000, 4, random.random((100_000, 4))),
        ("uniform", 1_000_000, 4, random.random((1_000_000, 4))),
        ("lognormal", 50_000, 10, np.exp(random.standard_normal((50_000, 10)))),
    ):
        values = _z(table)
        plain = _timed(lambda values=values: mdav.by_scan(values, 10), 2) if n == 50_000 else None  # type: ignore[misc]
        labels, tree_s = _timed(lambda values=values: microaggregate(values, 10, "mdav"), 3)  # type: ignore[misc]
        refined, refined_s = _timed(lambda values=values: microaggregate(values, 10, "auto", "descent"))  # type: ignore[misc]
        ratio = loss_of(values, refined) / loss_of(values, labels)
        if plain:
            assert (plain[0] == labels).all()
        scan = f"{plain[1]:.2f} | {plain[1] / tree_s:.1f}" if plain else "- | -"
        lines.append(f"| {name} | {n:,} | {d} | {scan} | {tree_s:.2f} | {refined_s:.1f} | {ratio:.3f} |")
        faster, less = (plain[1] / tree_s, less) if plain and d == 4 else (faster, less)
        less = ratio if (n, d) == (100_000, 4) else less
        print(lines[-1], file=sys.stderr)
    return lines, faster, less


def _losses(seconds: float) -> list[str]:
    """Return the rows about the reference tables."""
    lines = []
    for name in ("census", "eia", "tarragona"):
        values = _reference(name)
        for k in (3, 5, 10):
            ways: list[Callable[[], Labels]] = [
                lambda values=values, k=k: microaggregate(values, k, "mdav"),  # type: ignore[misc]
                lambda values=values, k=k: microaggregate(values, k, "vmdav"),  # type: ignore[misc]
                lambda values=values, k=k: microaggregate(values, k, "auto", "descent"),  # type: ignore[misc]
            ]
            found = [_timed(way) for way in ways]
            annealed = microaggregate(values, k, "auto", "anneal", pace=_for_seconds(seconds))
            cells = [f"{loss_of(values, labels):.2f} ({1000 * spent:.0f} ms)" for labels, spent in found]
            lines.append(f"| {name} | {k} | " + " | ".join([*cells, f"{loss_of(values, annealed):.2f}"]) + " |")
            print(lines[-1], file=sys.stderr)
    return lines


def static_sets(annealing_s: float = ANNEALING_S) -> StaticSets:
    """Measure everything."""
    speed, faster, less = _scaling()
    return StaticSets(speed, _losses(annealing_s), about_peers(), faster, less)


def about_static_sets(found: StaticSets) -> list[str]:
    """Write the lines of the page."""
    return [
        "## Finished tables",
        "",
        "k = 10, one core, processor seconds. The scan is our own plain MDAV; the tree gives the same labels. Loss of",
        "`auto` with descent as a share of MDAV's.",
        "",
        "| table | n | d | MDAV, scan | x | MDAV, tree | `auto` + descent | loss |",
        "|---|---|---|---|---|---|---|---|",
        *found.speed,
        "",
        f"Limits: tree {FASTER:.0f} x scan at n = 50,000; loss {LESS} at n = 100,000.",
        "",
        "Sum of squared errors on the reference tables; the last column after annealing for a time. For Census, k = 3,",
        "the lowest published one that we could read is 767.",
        "",
        f"| table | k | `mdav` | `vmdav` | `auto` + descent | + anneal, {ANNEALING_S:.0f} s |",
        "|---|---|---|---|---|---|",
        *found.losses,
        "",
        *found.peers,
    ]


if __name__ == "__main__":
    print("\n".join(about_static_sets(static_sets(float(sys.argv[1]) if len(sys.argv) > 1 else ANNEALING_S))))
