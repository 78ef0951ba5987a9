"""Loss of each rule relative to rule nearest (Algorithm 2), at equal k and delta, on many streams."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from part import Limit, Part
from shoal.arrays import Float64Matrix
from shoal.policy import resolve_rule
from stream_figures import run_rule
from streams import MOST, other_streams, streams

__all__ = ["AUTO", "Row", "loss_part", "loss_rows", "summary"]

AUTO = "auto"
RULES = ("greedy", "awo", "block", AUTO)
SETTINGS = [(k, delta) for k in (3, 5, 10, 50) for delta in (100, 500, 2000)]
SEEDS = 5
MEAN, WORST, FEWER, WAITING = 0.82, 1.02, 0.001, 1.0
"""Limits: geometric mean and worst of the losses of `auto`, share of records that only nearest releases, delay."""


@dataclass(frozen=True, slots=True)
class Row:
    """One stream and setting: MSE of each rule over that of nearest (geometric mean of seeds), and the counts.

    ``of_all``: the same, with each suppressed record replaced by the mean of all records; ``fewer``: the share of
    records that only nearest released; ``delay``: the largest, as a share of delta.
    """

    stream: str
    is_other: bool
    records: int
    k: int
    delta: int
    ratios: dict[str, float]
    of_all: dict[str, float]
    suppressed: dict[str, int]
    fewer: dict[str, float]
    delay: float

    @property
    def is_long(self) -> bool:
        """Whether the stream is longer than 2 delta; a shorter one is decided on at its end."""
        return self.delta < self.records / 2

    @property
    def is_even(self) -> bool:
        """Whether nearest released as many records; if it suppresses outliers, its loss is that of the others."""
        return -self.fewer[AUTO] <= FEWER


def loss_rows() -> list[Row]:
    """Return a row for each stream and setting."""
    rows = []
    for name, is_other, seeds in _every_stream():
        for k, delta in SETTINGS:
            rows.append(_row(name, is_other, seeds, k, delta))
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def _every_stream() -> Iterator[tuple[str, bool, list[Float64Matrix]]]:
    yield from ((name, False, seeds) for name, seeds in streams(SEEDS))
    yield from ((name, True, seeds) for name, seeds in other_streams(SEEDS))


def _row(name: str, is_other: bool, seeds: list[Float64Matrix], k: int, delta: int) -> Row:  # noqa: FBT001
    flows = {rule: [run_rule(values, k, delta, rule) for values in seeds] for rule in ("nearest", *RULES[:-1])}
    flows[AUTO] = flows[resolve_rule(AUTO, k)]
    base = flows["nearest"]
    released = sum(one.released for one in base)
    return Row(
        *(name, is_other, len(seeds[0]), k, delta),
        {rule: _ratio([one.mse for one in found], [one.mse for one in base]) for rule, found in flows.items()},
        {
            rule: _ratio([one.mse_of_all for one in found], [one.mse_of_all for one in base])
            for rule, found in flows.items()
        },
        {rule: sum(one.suppressed for one in found) for rule, found in flows.items()},
        {rule: 1.0 - sum(one.released for one in found) / released for rule, found in flows.items()},
        max(one.delay_most for found in flows.values() for one in found) / delta,
    )


def _ratio(found: list[float], base: list[float]) -> float:
    return float(np.exp(np.mean(np.log(np.array(found) / np.array(base)))))


def summary(rows: list[Row], rule: str) -> tuple[float, float]:
    """Return the geometric mean of a rule's ratios, and the largest."""
    found = np.array([row.ratios[rule] for row in rows])
    return float(np.exp(np.log(found).mean())), float(found.max())


def loss_part() -> Part:
    """Measure, and return the lines about the loss of each rule."""
    began = time.monotonic()
    rows = loss_rows()
    minutes = (time.monotonic() - began) / 60
    known, others = ([row for row in rows if row.is_long and row.is_other == flag] for flag in (False, True))
    ends = [row for row in rows if not row.is_long]
    lines = [
        "## Loss of each rule relative to Algorithm 2",
        "",
        "Mean squared error of the released records, divided by that of rule `nearest` at the same k and δ. Geometric",
        f"mean over the settings, the worst in brackets. {SEEDS} seeds of shuffled and generated data, at most",
        f"{MOST:,} records; k = 3, 5, 10, 50 and δ = 100, 500, 2,000; streams of more than 2 δ records. It took",
        f"{minutes:.1f} minutes.",
        "",
        *_by_stream("data used to choose constants", known),
        *_by_stream("data not used to choose constants", others),
        *_by_setting([*known, *others]),
        f"Streams of at most 2 δ records, which are decided on at their end: {_summaries(ends)}.",
        "",
    ]
    return Part([*lines, *_counts([*known, *others])], _limits(rows, others))


def _limits(rows: list[Row], others: list[Row]) -> list[Limit]:
    return [
        Limit("loss on data not used to choose constants, mean", summary(others, AUTO)[0], MEAN, at_most=True),
        Limit(
            "loss, worst setting with equal counts",
            max(row.ratios[AUTO] for row in rows if row.is_even),
            WORST,
            at_most=True,
        ),
        Limit("loss of all, worst setting", max(row.of_all[AUTO] for row in rows), WORST, at_most=True),
        Limit("released fewer than nearest, share", max(row.fewer[AUTO] for row in rows), FEWER, at_most=True),
        Limit("delay, share of delta", max(row.delay for row in rows), WAITING, at_most=True),
    ]


def _by_stream(title: str, rows: list[Row]) -> list[str]:
    names = dict.fromkeys(row.stream for row in rows)
    return [
        f"| {title} | {' | '.join(RULES)} |",
        f"|---|{'---|' * len(RULES)}",
        *(f"| {name} | {_cells([row for row in rows if row.stream == name])} |" for name in names),
        f"| **all** | {_cells(rows)} |",
        "",
    ]


def _by_setting(rows: list[Row]) -> list[str]:
    return [
        f"| k | δ | {' | '.join(RULES)} |",
        f"|---|---|{'---|' * len(RULES)}",
        *(f"| {k} | {d} | {_cells([row for row in rows if (row.k, row.delta) == (k, d)])} |" for k, d in SETTINGS),
        "",
    ]


def _counts(rows: list[Row]) -> list[str]:
    lost = {rule: sum(row.suppressed[rule] for row in rows) for rule in ("nearest", *RULES)}
    fewer = max(row.fewer[AUTO] for row in rows)
    uneven = [row for row in rows if not row.is_even]
    return [
        f"In {len(uneven)} of {len(rows)} settings `nearest` suppresses more than {FEWER:.1%} of the records in",
        "addition: outliers. Its loss is then that of the other records. If each suppressed record counts as if the",
        "mean of all had been released for it, the loss of",
        f"`{AUTO}` is {_geometric([row.of_all[AUTO] for row in rows]):.2f} of that of `nearest`,",
        f"at worst {max(row.of_all[AUTO] for row in rows):.2f}. These settings, counted in both ways:",
        "",
        f"| stream | k | δ | suppressed by `nearest` | by `{AUTO}` | loss | of all |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {row.stream} | {row.k} | {row.delta} | {row.suppressed['nearest']:,} | {row.suppressed[AUTO]:,} "
            f"| {row.ratios[AUTO]:.2f} | {row.of_all[AUTO]:.2f} |"
            for row in uneven
        ),
        "",
        "Suppressed, all streams: " + ", ".join(f"{rule} {count:,}" for rule, count in lost.items()) + ".",
        f"`{AUTO}` released at worst {max(fewer, 0.0):.2%} fewer records than `nearest`; no record waited",
        "for more than δ.",
        "",
    ]


def _geometric(ratios: list[float]) -> float:
    return float(np.exp(np.mean(np.log(ratios))))


def _cells(rows: list[Row]) -> str:
    return " | ".join("{:.2f} ({:.2f})".format(*summary(rows, rule)) for rule in RULES)


def _summaries(rows: list[Row]) -> str:
    return ", ".join("{} {:.2f} ({:.2f})".format(rule, *summary(rows, rule)) for rule in RULES)


if __name__ == "__main__":
    print("\n".join(loss_part().lines))
