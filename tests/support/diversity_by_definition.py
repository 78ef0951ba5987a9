"""l-diversity, value share and earth mover's distance by definition: dictionaries, fractions, linear programs.

A record is a person and a value.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from fractions import Fraction
from itertools import combinations
from typing import TypeAlias

import highspy
import numpy as np

Record: TypeAlias = tuple[Hashable, Hashable]


def alone(values: Sequence[Hashable]) -> list[Record]:
    """Return records of which each is that of another person."""
    return list(enumerate(values))


def people_in(records: Sequence[Record]) -> int:
    return len({person for person, _ in records})


def weights_of(records: Sequence[Record]) -> dict[Hashable, Fraction]:
    """Return what each value weighs: each person one, split over the records of the person."""
    found: dict[Hashable, Fraction] = {}
    for person, value in records:
        own = sum(other == person for other, _ in records)
        found[value] = found.get(value, Fraction(0)) + Fraction(1, own)
    return found


def entropy_of(records: Sequence[Record]) -> float:
    """Return the entropy in nats."""
    shares = [weight / people_in(records) for weight in weights_of(records).values()]
    return math.fsum(-share * math.log(share) for share in shares)


def most_holders(records: Sequence[Record]) -> int:
    """Return the most people who have one value."""
    return max(Counter(value for _, value in set(records)).values())


def is_recursive(records: Sequence[Record], c: float, l: int) -> bool:  # noqa: E741 - the letter of the literature
    """Whether h_1 < c (r_l + ... + r_m)."""
    weights = sorted(weights_of(records).values(), reverse=True)
    return len(weights) >= l and most_holders(records) < Fraction(str(c)) * sum(weights[l - 1 :])


def value_share(records: Sequence[Record]) -> Fraction:
    return Fraction(most_holders(records), people_in(records))


def assignable(records: Sequence[Record]) -> int:
    """Return the most values that can be those of different people: the deficiency form of Hall's theorem."""
    owners: dict[Hashable, set[Hashable]] = {}
    for person, value in records:
        owners.setdefault(value, set()).add(person)
    sets = [chosen for size in range(len(owners) + 1) for chosen in combinations(owners.values(), size)]
    return min(len(owners) - len(chosen) + len(set().union(*chosen)) for chosen in sets)


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
