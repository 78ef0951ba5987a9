"""Loss if people have several records: of each rule, relative to rule nearest (Algorithm 2 with Note 1).

``python benchmarks/people.py values`` prints the loss under l-diversity and t-closeness instead.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from part import Part
from reference_data import data_folder, read_rows
from shoal import StreamAggregator
from shoal.arrays import Float64Matrix, Int64Vector
from shoal.tables import ClusterConstraints, microaggregate
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


PROTECTIONS: dict[str, dict[str, Any]] = {
    "`l: 3`, share 0.5": {"l": 3},
    "entropy 3": {"l": {"entropy": 3}},
    "recursive (2, 3)": {"l": {"recursive": [2, 3]}},
    "t = 0.4": {"t": 0.4},
}
PROTECTED_K, PROTECTED_DELTA, PROTECTED_PEOPLE = 10, 500, 1000
NUMBERS = ("age", "education-num", "capital-gain", "hours-per-week")


def values_lines() -> list[str]:
    """Measure tables and streams of people with several records whose occupation is protected; return a table."""
    rows = read_rows(data_folder(), "adult")[:RECORDS]
    values = np.array([[float(row[name]) for name in NUMBERS] for row in rows])
    values = (values - values.min(axis=0)) / np.ptp(values, axis=0)
    occupations = [row["occupation"] for row in rows]
    near = np.argsort(np.lexsort(values.T)) * PROTECTED_PEOPLE // RECORDS
    groups = {
        "one record each": np.arange(RECORDS),
        "random": np.random.default_rng(7).integers(0, PROTECTED_PEOPLE, RECORDS),
        "near": near,
    }
    lines = [
        "| people | constraint | table, no refinement | table, `descent` | `awo` | `block` |",
        "|---|---|---|---|---|---|",
    ]
    for name, people in groups.items():
        for constraint, protection in PROTECTIONS.items():
            of_tables = [_table_loss(values, people, occupations, how, protection) for how in ("none", "descent")]
            of_streams = [_stream_loss(values, people, occupations, rule, protection) for rule in RULES]
            cells = [f"{100 * loss:.2f}" for loss in (*of_tables, *of_streams)]
            lines.append(f"| {name} | {constraint} | {' | '.join(cells)} |")
    return lines


def _table_loss(
    values: Float64Matrix, people: Int64Vector, occupations: list[str], how: str, protection: dict[str, Any]
) -> float:
    codes = np.unique(people, return_inverse=True)[1]
    constraints = ClusterConstraints(codes if codes.max() + 1 < len(codes) else None, 0.5)
    labels = microaggregate(
        values, PROTECTED_K, "auto", how, confidential=occupations, constraints=constraints, **protection
    )
    return _loss(values, [np.flatnonzero(labels == label) for label in range(labels.max() + 1)])


def _stream_loss(
    values: Float64Matrix, people: Int64Vector, occupations: list[str], rule: str, protection: dict[str, Any]
) -> float:
    shares = {one: occupations.count(one) / len(occupations) for one in occupations}
    given = protection | ({"reference": shares} if "t" in protection else {})
    stream = StreamAggregator(k=PROTECTED_K, delta=PROTECTED_DELTA, rule=rule, **given)
    released = [stream.push(values, subjects=people.tolist(), confidential=occupations), stream.flush()]
    return _loss(values, [own for one in released for own in np.split(one.positions, one.offsets[1:-1]) if len(own)])


def _loss(values: Float64Matrix, clusters: list[Int64Vector]) -> float:
    """Return the squared error as a share of the total; a suppressed record counts as in `run_rule`."""
    means = np.broadcast_to(values.mean(axis=0), values.shape).copy()
    total = ((values - means) ** 2).sum()
    for members in clusters:
        means[members] = values[members].mean(axis=0)
    return float(((values - means) ** 2).sum() / total)


if __name__ == "__main__":
    print("\n".join(values_lines() if sys.argv[1:] == ["values"] else people_part().lines))
