"""Small searches, and clusters as lists, for the tests of tables with constraints."""

from __future__ import annotations

import numpy as np
from shoal.arrays import Int32Vector
from support.input_size import sized

BATCH = sized(1_000, 200)
"""Moves that a refinement tries between two looks at its budget."""


def small_budget(tried: int) -> float:
    """Return the used part of a budget of three batches."""
    return tried / (3 * BATCH)


def clusters_of(labels: Int32Vector) -> list[list[int]]:
    return [np.flatnonzero(labels == label).tolist() for label in range(int(labels.max()) + 1)]
