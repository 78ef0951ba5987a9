"""CASTLE beside Algorithm 2 and Shoal's rules, on the same streams: loss, delay, reordering, speed."""

from __future__ import annotations

import sys
import time

import numpy as np
from castle import CENTROIDS, MIDPOINTS, castle_figures
from loss import AUTO
from numpy_twin import nearest_numpy
from part import Limit, Part
from shoal.arrays import Float64Matrix
from shoal.policy import resolve_rule
from stream_figures import StreamFigures, mean_figures, run_rule
from streams import streams

__all__ = ["castle_part"]

SETTINGS = ((5, 100), (10, 100), (10, 500), (50, 500))
SEEDS = 3
SHARES = (0.5, 1.0, 4.0)
"""beta, the most clusters at a time, in units of delta / k; the best of them counts."""
RULES = ("nearest", "awo", "block")

Cell = tuple[StreamFigures, StreamFigures, dict[str, StreamFigures], float]
"""CASTLE with midpoints, with centroids; the rules; records a second of Algorithm 2 in plain numpy."""


def castle_part() -> Part:
    """Measure, and write the lines."""
    began = time.monotonic()
    cells = {(name, k, delta): _cell(seeds, k, delta) for name, seeds in streams(SEEDS) for k, delta in SETTINGS}
    minutes = (time.monotonic() - began) / 60
    fewer = [cell[0].mse / cell[2][resolve_rule(AUTO, key[1])].mse for key, cell in cells.items()]
    means = [cell[1].mse / cell[2][resolve_rule(AUTO, key[1])].mse for key, cell in cells.items()]
    less, less_by_means = (float(np.exp(np.log(found).mean())) for found in (fewer, means))
    tried = ", ".join(f"{share:g}" for share in SHARES)
    return Part(
        [
            "## CASTLE",
            "",
            "Cao, Carminati, Ferrari, Tan 2011, written from the paper in plain numpy (`benchmarks/castle.py`), with",
            f"as many clusters at a time as suits each stream best of {tried} δ/k; {SEEDS} seeds. MSE over",
            "that of Algorithm 2: with the middles of its intervals as values, and with the means of its clusters",
            "instead, which it does not publish.",
            "Records alone in a cluster (it lets them take one that has left) count as released,",
            f"suppressed ones do not. Speed: plain numpy Algorithm 2 as 1. It took {minutes:.1f} minutes.",
            "",
            (
                "| stream | k | δ | CASTLE, middles | CASTLE, means | awo | block "
                "| mean delay: CASTLE / nearest / awo / block | mean move | suppressed by CASTLE | its speed |"
            ),
            "|---|---|---|---|---|---|---|---|---|---|---|",
            *(_line(*key, cell) for key, cell in cells.items()),
            "",
            f"Geometric mean of CASTLE's loss over that of `{AUTO}`: **{less:.2f}** with middles,",
            f"{less_by_means:.2f} with means.",
            "",
        ],
        [Limit("loss of CASTLE over ours", less, 1.5, at_most=False)],
    )


def _cell(seeds: list[Float64Matrix], k: int, delta: int) -> Cell:
    tried = []
    for share in SHARES:
        runs = [castle_figures(values, k, delta, max(2, round(share * delta / k))) for values in seeds]
        tried.append(tuple(mean_figures([run[name] for run in runs]) for name in (MIDPOINTS, CENTROIDS)))
    middles, means = min(tried, key=lambda pair: pair[0].mse)
    began = time.process_time()
    nearest_numpy(seeds[0], k, delta)
    plain = len(seeds[0]) / (time.process_time() - began)
    rules = {rule: mean_figures([run_rule(values, k, delta, rule) for values in seeds]) for rule in RULES}
    print(f"castle: k = {k}, delta = {delta}: {middles.mse / rules['nearest'].mse:.2f}", file=sys.stderr, flush=True)
    return middles, means, rules, plain


def _line(name: str, k: int, delta: int, cell: Cell) -> str:
    middles, means, rules, plain = cell
    base = rules["nearest"]
    ratios = [run.mse / base.mse for run in (middles, means, rules["awo"], rules["block"])]
    every = (middles, *rules.values())
    delays, moves = (" / ".join(f"{getattr(run, field):.0f}" for run in every) for field in ("delay", "moved"))
    lost = middles.suppressed / (middles.released + middles.suppressed)
    return (
        f"| {name} | {k} | {delta} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} | {delays} | {moves} "
        f"| {lost:.2%} | {middles.per_s / plain:.2f} |"
    )


if __name__ == "__main__":
    print("\n".join(castle_part().lines))
