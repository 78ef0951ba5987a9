"""The combinations that other tests run hold every pair of values, and tests that wait are spread over the others."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from support.pairs import all_pairs

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("sizes", [(2, 2), (1, 3), (4, 4, 3, 3, 2), (8, 2, 8), (2, 2, 2, 2, 2, 2)])
def test_every_pair_of_values_occurs(sizes: tuple[int, ...]) -> None:
    factors = [[f"{factor}-{value}" for value in range(size)] for factor, size in enumerate(sizes)]
    rows = all_pairs(*factors)
    assert len(set(rows)) == len(rows)
    assert all(value in values for row in rows for value, values in zip(row, factors, strict=True))
    for one, other in combinations(range(len(sizes)), 2):
        assert {(row[one], row[other]) for row in rows} == set(product(factors[one], factors[other]))
