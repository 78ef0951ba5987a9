"""Loss of each rule if people have several records within delta, relative to rule nearest (Algorithm 2 with Note 1)."""

from __future__ import annotations

import sys

import numpy as np
from part import Part
from shoal.arrays import Int64Vector
from stream_figures import run_rule
from streams import streams

__all__ = ["people_part"]

DELTA, RECORDS, SEEDS = 100, 3000, 1
RULES = ("awo", "block")
SETTINGS = (5, 10, 20)
NAMES = ("Census, 13 attributes, shuffled", "EIA, shuffled", "Adult, shuffled", "uniform, 4", "drifting mixture, 4")


def _people(count: int, seed: int) -> dict[str, Int64Vector]:
    random = np.random.default_rng([seed, 3])
    return {
        "one record per person": np.arange(count, dtype=np.int64),
        **{f"{some:,} people": random.integers(0, some, count) for some in (1000, 300, 60)},
        "Zipf's law, 1.1": random.zipf(1.1, count).astype(np.int64) % 5000,
        "Zipf's law, 1.3": random.zipf(1.3, count).astype(np.int64) % 500,
    }


def people_part() -> Part:
    """Measure, and return the lines about people with several records."""
    ratios: dict[tuple[str, int, str], list[float]] = {}
    for name, seeds in streams(SEEDS):
        if name not in NAMES:
            continue
        for seed, values in enumerate(seeds):
            rows = values[:RECORDS]
            for subjects, people in _people(len(rows), seed).items():
                for k in SETTINGS:
                    base = run_rule(rows, k, DELTA, "nearest", people=people).mse_of_all
                    for rule in RULES:
                        found = run_rule(rows, k, DELTA, rule, people=people).mse_of_all
                        ratios.setdefault((subjects, k, rule), []).append(found / base)
        print(f"people: {name}", file=sys.stderr, flush=True)
    columns = [(k, rule) for k in SETTINGS for rule in RULES]
    lines = [
        "## People with several records",
        "",
        f"Loss over that of `nearest`, δ = {DELTA}, `max_share` 0.5; a suppressed record counts as if the",
        f"mean of all had been released for it. Geometric mean of {len(NAMES)} streams of {RECORDS:,} records, the",
        "worst in brackets. If a cluster of `block` has too few people, `awo` releases the oldest record.",
        "",
        f"| subjects | {' | '.join(f'{rule}, k = {k}' for k, rule in columns)} |",
        f"|---|{'---|' * len(columns)}",
        *(
            f"| {subjects} | {' | '.join(_cell(ratios[subjects, k, rule]) for k, rule in columns)} |"
            for subjects in dict.fromkeys(key[0] for key in ratios)
        ),
        "",
    ]
    return Part(lines, [])


def _cell(ratios: list[float]) -> str:
    return f"{np.exp(np.mean(np.log(ratios))):.2f} ({max(ratios):.2f})"


if __name__ == "__main__":
    print("\n".join(people_part().lines))
