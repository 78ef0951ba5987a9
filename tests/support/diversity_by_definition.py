"""l-diversity, value share and earth mover's distance by definition: dictionaries, fractions, linear programs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from fractions import Fraction

import highspy
import numpy as np


def entropy_of(values: Sequence[Hashable]) -> float:
    """Return the entropy in nats."""
    n = len(values)
    return math.fsum(-count / n * math.log(count / n) for count in Counter(values).values())


def is_recursive(values: Sequence[Hashable], c: float, l: int) -> bool:  # noqa: E741 - the letter of the literature
    """Whether r_1 < c (r_l + ... + r_m)."""
    counts = sorted(Counter(values).values(), reverse=True)
    return len(counts) >= l and counts[0] < Fraction(str(c)) * sum(counts[l - 1 :])


def value_share(values: Sequence[Hashable]) -> Fraction:
    return Fraction(max(Counter(values).values()), len(values))


def tree_height(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the height of the lowest common ancestor of two leaves; paths are given leaf first, without the root."""
    equal = [x == y for x, y in zip(one, other, strict=True)]
    return next((height for height in range(len(equal)) if all(equal[height:])), len(equal))


def least_transport(supply: Sequence[float], demand: Sequence[float], distances: Sequence[Sequence[float]]) -> float:
    """Return the least cost of moving one distribution into another: the linear program of the definition."""
    m = len(supply)
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    bounds = np.array([*supply, *demand], np.float64)
    solver.addRows(2 * m, bounds, bounds, 0, np.zeros(2 * m, np.int32), np.empty(0, np.int32), np.empty(0))
    for i in range(m):
        for j in range(m):
            rows = np.array([i, m + j], np.int32)
            solver.addCol(float(distances[i][j]), 0.0, highspy.kHighsInf, 2, rows, np.ones(2))
    solver.run()
    return float(solver.getInfo().objective_function_value)
