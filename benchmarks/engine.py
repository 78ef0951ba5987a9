"""The engine alone beside plain numpy: the same rule, the same data, interleaved in one process."""

from __future__ import annotations

import time
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from numpy_twin import nearest_numpy
from part import Limit, Part
from shoal import StreamAggregator
from shoal.streams import StreamClusterer, indexed

__all__ = ["engine_part"]

Speeds = tuple[int, int, int, float, float, float]

LIMITS = {"nearest": 8.0, "leanest": 1.5, "awo, scan": 5.0}
"""Below these the run fails."""
BLOCK = 512
ROUNDS = 5
LARGE_ROUNDS = 3


def _numpy(values: NDArray[np.float64], k: int, delta: int) -> float:
    began = time.process_time()
    nearest_numpy(values, k, delta)
    return len(values) / (time.process_time() - began)


def _partitioner(values: NDArray[np.float64], k: int, delta: int, rule: str = "nearest") -> float:
    engine = StreamClusterer(k, delta, values.shape[1], rule=rule)
    began = time.process_time()
    for start in range(0, len(values), BLOCK):
        engine.push(values[start : start + BLOCK])
    return len(values) / (time.process_time() - began)


def _aggregator(values: NDArray[np.float64], k: int, delta: int) -> float:
    engine = StreamAggregator(k=k, delta=delta, rule="nearest")
    began = time.process_time()
    for start in range(0, len(values), BLOCK):
        engine.push(values[start : start + BLOCK])
    return len(values) / (time.process_time() - began)


LARGE = {1000: 0.3, 10_000: 0.8}
"""Least speed of rule auto at a large delta, of plain numpy's rule nearest."""
TIMED = 20_000
"""Records for which plain numpy is timed at a very large delta."""


class Large(NamedTuple):
    """Records a second of rule auto and of plain numpy's nearest, and their ratio."""

    delta: int
    k: int
    auto: float
    numpy: float
    ratio: float


class Indexed(NamedTuple):
    """Records a second of rule awo through its index, and how many times those of a scan."""

    delta: int
    m: int
    k: int
    per_s: float
    of_scan: float


def large_rows() -> list[Large]:
    """Return the speeds of rule auto where many records are held; m = 5."""
    random = np.random.default_rng(1)
    rows = []
    for delta, k in ((1000, 5), (1000, 10), (10_000, 5), (10_000, 10)):
        values = random.random((3 * delta + 10_000, 5))
        _partitioner(values[: 2 * delta], k, delta, "auto")
        count = len(values) - delta
        rounds = [
            (count / _filled("auto", values, k, delta)[0], _full_numpy(values, k, delta)) for _ in range(LARGE_ROUNDS)
        ]
        ratio = median(auto / plain for auto, plain in rounds)
        rows.append(Large(delta, k, median(auto for auto, _ in rounds), median(plain for _, plain in rounds), ratio))
    return rows


def index_rows() -> list[Indexed]:
    """Return the speeds at a very large delta, once the buffer is full; fails if clusters differ."""
    rows = []
    for delta, m, k in ((10_000, 2, 5), (10_000, 5, 5)):
        values = np.random.default_rng(1).random((2 * delta, m))
        through, decided = _filled("awo", values, k, delta)
        scan, scanned = _filled("awo", values, k, delta, is_indexed=False)
        if not np.array_equal(decided, scanned):
            raise SystemExit("bench: an index changed a decision")
        rows.append(Indexed(delta, m, k, delta / through, scan / through))
    return rows


def _full_numpy(values: NDArray[np.float64], k: int, delta: int) -> float:
    """Return records a second of plain numpy once its buffer is full."""
    began = time.process_time()
    nearest_numpy(values[:delta], k, delta)
    filled = time.process_time()
    nearest_numpy(values, k, delta)
    return (len(values) - delta) / (time.process_time() - filled - (filled - began))


def _filled(
    rule: str, values: NDArray[np.float64], k: int, delta: int, *, is_indexed: bool = True
) -> tuple[float, NDArray[np.int64]]:
    """Return the seconds for all after the first delta records, and who left."""
    before, indexed.INDEXED_FROM = indexed.INDEXED_FROM, indexed.INDEXED_FROM if is_indexed else delta + 1
    engine = StreamClusterer(k, delta, values.shape[1], rule=rule)
    indexed.INDEXED_FROM = before
    engine.push(values[:delta])
    began = time.process_time()
    left = [engine.push(values[start : start + BLOCK]).positions for start in range(delta, len(values), BLOCK)]
    return time.process_time() - began, np.concatenate(left)


def engine_rows() -> list[Speeds]:
    """Return delta, m, k, and ratios to plain numpy of nearest, of it in `StreamAggregator`, of what loses least."""
    random = np.random.default_rng(1)
    rows = []
    for delta, m, k in ((100, 5, 5), (100, 5, 10), (100, 2, 10), (1000, 5, 10)):
        few, many = random.random((20_000, m)), random.random((200_000, m))
        _partitioner(few, k, delta, "auto")
        rounds = [
            (
                _numpy(few, k, delta),
                _partitioner(many, k, delta),
                _aggregator(many, k, delta),
                _partitioner(few, k, delta, "auto"),
            )
            for _ in range(ROUNDS)
        ]
        ratios = [median(row[column] / row[0] for row in rounds) for column in (1, 2, 3)]
        rows.append((delta, m, k, ratios[0], ratios[1], ratios[2]))
    return rows


def engine_part() -> Part:
    """The engine without Kafka."""
    rows, large, through_index = engine_rows(), large_rows(), index_rows()
    lines = [
        "## Engine alone, one core",
        "",
        "Against rule `nearest` in plain numpy (`benchmarks/numpy_twin.py`), float64, blocks of 512.",
        "",
        "| δ | attributes | k | `nearest`, x numpy | in StreamAggregator with centroids | the rule that loses least |",
        "|---|---|---|---|---|---|",
        *(
            f"| {delta} | {m} | {k} | {rule:.1f} | {whole:.1f} | {leanest:.2f} |"
            for delta, m, k, rule, whole, leanest in rows
        ),
        "",
        f"Limits at δ = 100, 5 attributes, k = 10: {LIMITS['nearest']:.0f} for `nearest`, {LIMITS['leanest']} for the",
        "rule that loses least.",
        "",
        "Where many records are held, 5 attributes, once the buffer is full:",
        "",
        "| δ | k | rule `auto`, records/s | plain numpy, records/s | ratio | limit |",
        "|---|---|---|---|---|---|",
        *(
            f"| {d:,} | {k} | {auto:,.0f} | {numpy:,.0f} | {ratio:.2f} | {LARGE[d]} |"
            for d, k, auto, numpy, ratio in large
        ),
        "",
        "Through an index, once the buffer is full, with the same clusters:",
        "",
        "| rule | δ | attributes | k | records/s | x the compiled scan of all that is held |",
        "|---|---|---|---|---|---|",
        *(
            f"| `awo` | {row.delta:,} | {row.m} | {row.k} | {row.per_s:,.0f} | {row.of_scan:.1f} |"
            for row in through_index
        ),
        "",
        f"Limit: with 2 attributes {LIMITS['awo, scan']:.0f} times the scan.",
        "",
    ]
    best, leanest = next(ratios[0:3:2] for delta, m, k, *ratios in rows if (delta, m, k) == (100, 5, 10))
    return Part(
        lines,
        [
            Limit("nearest, x numpy", best, LIMITS["nearest"], at_most=False),
            Limit("rule that loses least, x numpy", leanest, LIMITS["leanest"], at_most=False),
            *(Limit(f"auto at {row.delta}, x numpy", row.ratio, LARGE[row.delta], at_most=False) for row in large),
            Limit("awo through its index, x scan", through_index[0].of_scan, LIMITS["awo, scan"], at_most=False),
        ],
    )
