"""The engine alone beside plain numpy: the same rule, the same data, interleaved in one process."""

from __future__ import annotations

import time
from statistics import median

import numpy as np
from numpy.typing import NDArray
from numpy_twin import nearest_numpy
from shoal import StreamAggregator
from shoal.engine import Partitioner

__all__ = ["Speeds", "engine_rows"]

Speeds = tuple[int, int, int, float, float, float]

BLOCK = 512
ROUNDS = 5


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
