"""What each rule loses beside rule nearest (Algorithm 2), at equal k and delta, on many streams."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from shoal.engine import Partitioner
from shoal.kernel.arrays import Float64Matrix
from streams import MOST, streams

__all__ = ["BY_K", "Row", "about_loss", "loss_rows", "rule_of", "summary"]

BY_K = "by k"
"""Block from k = 7 on, awo below."""
RULES = ("greedy", "awo", "block", BY_K)
SETTINGS = [(k, delta) for k in (3, 5, 10, 50) for delta in (100, 500, 2000) if not (k == 50 and delta == 100)]
SEEDS = 5


@dataclass(frozen=True, slots=True)
class Run:
    """Mean squared error of what was released, and how many were not."""

    mse: float
    suppressed: int


@dataclass(frozen=True, slots=True)
class Row:
    """One stream and setting: MSE of each rule over that of nearest (geometric mean of seeds)."""

    stream: str
    records: int
    k: int
    delta: int
    ratios: dict[str, float]
    suppressed: dict[str, int]


def rule_of(name: str, k: int) -> str:
    """Return the rule behind the name of a column."""
    return name if name != BY_K else "block" if k >= 7 else "awo"


def run(values: Float64Matrix, k: int, delta: int, rule: str) -> Run:
    """Push a whole stream."""
    engine = Partitioner(k, delta, values.shape[1], rule=rule)
    calls = [*(engine.push(values[start : start + 512]) for start in range(0, len(values), 512)), engine.flush()]
    squares, released = 0.0, 0
    for decided in calls:
        members = values[decided.positions]
        if len(members):
            sizes = np.diff(decided.offsets)
            means = np.add.reduceat(members, decided.offsets[:-1]) / sizes[:, None]
            squares += float(((members - means.repeat(sizes, axis=0)) ** 2).sum())
            released += len(members)
    return Run(squares / released, sum(len(decided.suppressed) for decided in calls))


def loss_rows() -> list[Row]:
    """Return a row for each stream and setting."""
    rows = []
    for stream, seeds in streams(SEEDS):
        for k, delta in SETTINGS:
            base = [run(values, k, delta, "nearest") for values in seeds]
            ratios, suppressed = {}, {"nearest": sum(one.suppressed for one in base)}
            for rule in RULES:
                found = [run(values, k, delta, rule_of(rule, k)) for values in seeds]
                ratios[rule] = float(
                    np.exp(np.mean([np.log(one.mse / other.mse) for one, other in zip(found, base, strict=True)]))
                )
                suppressed[rule] = sum(one.suppressed for one in found)
            rows.append(Row(stream, len(seeds[0]), k, delta, ratios, suppressed))
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def summary(rows: list[Row], rule: str) -> tuple[float, float]:
    """Return the geometric mean of a rule's ratios, and the largest."""
    found = np.array([row.ratios[rule] for row in rows])
    return float(np.exp(np.log(found).mean())), float(found.max())


def about_loss(rows: list[Row]) -> list[str]:
    """Write the lines about what each rule loses."""
    longer = [row for row in rows if row.delta < row.records / 2]
    by_stream = {row.stream: [one for one in longer if one.stream == row.stream] for row in longer}
    by_setting = {(k, delta): [row for row in longer if (row.k, row.delta) == (k, delta)] for k, delta in SETTINGS}
    lines = [
        "## Loss of each rule beside Algorithm 2",
        "",
        "Mean squared error of what was released over that of rule `nearest` at the same k and δ; geometric mean of",
        f"settings and the worst in brackets. {SEEDS} seeds of what is shuffled or made up, {MOST:,} records at most,",
        f"k and δ from {', '.join(f'({k}, {delta})' for k, delta in SETTINGS)}; streams of more than 2 δ records.",
        "",
        f"| stream | {' | '.join(RULES)} |",
        f"|---|{'---|' * len(RULES)}",
        *(f"| {name} | {_cells(found)} |" for name, found in by_stream.items()),
        f"| **all** | {_cells(longer)} |",
        "",
        f"| k | δ | {' | '.join(RULES)} |",
        f"|---|---|{'---|' * len(RULES)}",
        *(f"| {k} | {delta} | {_cells(found)} |" for (k, delta), found in by_setting.items()),
        "",
    ]
    lost = {rule: sum(row.suppressed[rule] for row in longer) for rule in ("nearest", *RULES)}
    return [
        *lines,
        "Suppressed, all streams: " + ", ".join(f"{rule} {count:,}" for rule, count in lost.items()) + ".",
        "",
    ]


def _cells(rows: list[Row]) -> str:
    return " | ".join("{:.2f} ({:.2f})".format(*summary(rows, rule)) for rule in RULES)


if __name__ == "__main__":
    print("\n".join(about_loss(loss_rows())))
