"""The engine alone beside plain numpy: the same rule, the same data, interleaved in one process."""

from __future__ import annotations

import time
from statistics import median

import numpy as np
from numpy.typing import NDArray
from numpy_twin import nearest_numpy
from shoal import StreamAggregator
from shoal.engine import Partitioner

__all__ = ["engine_rows"]

BLOCK = 512
ROUNDS = 5


def _numpy(values: NDArray[np.float64], k: int, delta: int) -> float:
    began = time.process_time()
    nearest_numpy(values, k, delta)
    return len(values) / (time.process_time() - began)


def _partitioner(values: NDArray[np.float64], k: int, delta: int) -> float:
    engine = Partitioner(k, delta, values.shape[1])
    began = time.process_time()
    for start in range(0, len(values), BLOCK):
        engine.push(values[start : start + BLOCK])
    return len(values) / (time.process_time() - began)


def _aggregator(values: NDArray[np.float64], k: int, delta: int) -> float:
    engine = StreamAggregator(k=k, delta=delta)
    began = time.process_time()
    for start in range(0, len(values), BLOCK):
        engine.push(values[start : start + BLOCK])
    return len(values) / (time.process_time() - began)


def engine_rows() -> list[tuple[int, int, int, float, float]]:
    """Return (delta, m, k, ratio of the rule, ratio of `StreamAggregator`) to plain numpy; medians of rounds."""
    random = np.random.default_rng(1)
    rows = []
    for delta, m, k in ((100, 5, 5), (100, 5, 10), (100, 2, 10), (1000, 5, 10)):
        few, many = random.random((20_000, m)), random.random((200_000, m))
        _partitioner(few, k, delta)
        rounds = [
            (_numpy(few, k, delta), _partitioner(many, k, delta), _aggregator(many, k, delta)) for _ in range(ROUNDS)
        ]
        rows.append((delta, m, k, median(p / n for n, p, _ in rounds), median(a / n for n, _, a in rounds)))
    return rows
