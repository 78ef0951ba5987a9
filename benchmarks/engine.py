"""The engine alone beside plain numpy: the same rule, the same data, interleaved in one process."""

from __future__ import annotations

import time
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from numpy_twin import nearest_numpy
from shoal import StreamAggregator
from shoal.engine import Partitioner, rules

__all__ = ["LARGE", "Large", "Speeds", "engine_rows", "index_speeds", "large_rows"]

Speeds = tuple[int, int, int, float, float, float]

BLOCK = 512
ROUNDS = 5
LARGE_ROUNDS = 3


def _numpy(values: NDArray[np.float64], k: int, delta: int) -> float:
    began = time.process_time()
    nearest_numpy(values, k, delta)
    return len(values) / (time.process_time() - began)


def _partitioner(values: NDArray[np.float64], k: int, delta: int, rule: str = "nearest") -> float:
    engine = Partitioner(k, delta, values.shape[1], rule=rule)
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


LARGE = {1000: 0.3, 10_000: 0.4}
"""Least speed of rule auto at a large delta, of plain numpy's rule nearest."""


class Large(NamedTuple):
    """Records a second of rule auto and of plain numpy's nearest, and their ratio."""

    delta: int
    k: int
    auto: float
    numpy: float
    ratio: float


class Indexed(NamedTuple):
    """Records a second of rule nearest through its index, and how many times those of a scan."""

    per_s: float
    of_scan: float


def large_rows() -> list[Large]:
    """Return the speeds of rule auto where many records are held; m = 5."""
    random = np.random.default_rng(1)
    rows = []
    for delta, k in ((1000, 5), (1000, 10), (10_000, 5), (10_000, 10)):
        values = random.random((3 * delta + 10_000, 5))
        _partitioner(values[: 2 * delta], k, delta, "auto")
        rounds = [(_partitioner(values, k, delta, "auto"), _numpy(values, k, delta)) for _ in range(LARGE_ROUNDS)]
        ratio = median(auto / plain for auto, plain in rounds)
        rows.append(Large(delta, k, median(auto for auto, _ in rounds), median(plain for _, plain in rounds), ratio))
    return rows


def index_speeds(delta: int = 100_000, m: int = 2, k: int = 10) -> Indexed:
    """Return the speed of nearest at a very large delta, once the buffer is full; fails if clusters differ."""
    values = np.random.default_rng(1).random((2 * delta, m))
    through, decided = _filled(values, k, delta, rules.INDEXED_FROM)
    scan, scanned = _filled(values, k, delta, 1 << 40)
    if not np.array_equal(decided, scanned):
        raise SystemExit("bench: an index changed a decision")
    return Indexed(delta / through, scan / through)


def _filled(values: NDArray[np.float64], k: int, delta: int, indexed_from: int) -> tuple[float, NDArray[np.int64]]:
    """Return the seconds for all after the first delta records, and who left."""
    before, rules.INDEXED_FROM = rules.INDEXED_FROM, indexed_from
    engine = Partitioner(k, delta, values.shape[1], rule="nearest")
    rules.INDEXED_FROM = before
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
