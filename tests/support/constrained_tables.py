"""Small searches, clusters as lists, and tables of many shapes, for the tests of partitions."""

from __future__ import annotations

import numpy as np
from shoal.arrays import Float64Matrix, Int32Vector
from support.input_size import sized

BATCH = sized(1_000, 200)
"""Moves that a refinement tries between two looks at its budget."""


def small_budget(tried: int) -> float:
    """Return the used part of a budget of three batches."""
    return tried / (3 * BATCH)


def clusters_of(labels: Int32Vector) -> list[list[int]]:
    return [np.flatnonzero(labels == label).tolist() for label in range(int(labels.max()) + 1)]


def shapes(size: int = 61) -> dict[str, Float64Matrix]:
    """Return tables with ties, extreme scales and unusual shapes."""
    random = np.random.default_rng(5)
    return {
        "uniform": random.random((size, 3)),
        "one attribute": random.random((size, 1)),
        "many attributes": random.standard_normal((size, 15)),
        "lattice": random.integers(0, 4, (size, 2)).astype(np.float64),
        "duplicates": np.repeat(random.random((size // 6 + 1, 2)), 6, axis=0)[:size],
        "all the same": np.ones((size, 2)),
        "two values": random.integers(0, 2, (size, 1)).astype(np.float64),
        "heavy tails": np.exp(3.0 * random.standard_normal((size, 3))),
        "far from the origin": 1e9 + random.random((size, 2)),
        "far apart": np.concatenate((random.random((size // 2, 2)), 1e6 + random.random((size - size // 2, 2)))),
        "tiny": 1e-150 * random.random((size, 2)),
        "a line in space": np.arange(size)[:, None] * np.array([[1.0, 2.0, 4.0]]),
    }
