"""Combinations of parameters in which every pair of values occurs, far fewer than the full product."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import combinations
from typing import Any, TypeAlias

Choice: TypeAlias = tuple[int, int]
"""The number of a factor, and the number of one of its values."""


def all_pairs(*factors: Sequence[Hashable]) -> list[tuple[Any, ...]]:
    """Return rows, one value of each factor, so that each two values of two factors occur together (greedy)."""
    missing = {
        pair: None  # a set that keeps its order
        for one, other in combinations(range(len(factors)), 2)
        for pair in _pairs_of(one, len(factors[one]), other, len(factors[other]))
    }
    rows: list[tuple[Any, ...]] = []
    while missing:
        row = dict(next(iter(missing)))
        for factor in sorted(set(range(len(factors))) - row.keys()):
            gains = [
                sum(_pair((factor, value), chosen) in missing for chosen in row.items())
                for value in range(len(factors[factor]))
            ]
            # Where nothing is missing, the values take turns.
            best = max(range(len(gains)), key=lambda value: (gains[value], (value - len(rows)) % len(gains)))
            row[factor] = best
        for one, other in combinations(row.items(), 2):
            missing.pop(_pair(one, other), None)
        rows.append(tuple(values[row[factor]] for factor, values in enumerate(factors)))
    return rows


def _pair(one: Choice, other: Choice) -> tuple[Choice, Choice]:
    return (one, other) if one < other else (other, one)


def _pairs_of(one: int, ones: int, other: int, others: int) -> list[tuple[Choice, Choice]]:
    return [((one, value), (other, second)) for value in range(ones) for second in range(others)]
