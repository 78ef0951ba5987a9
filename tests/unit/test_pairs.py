"""The combinations that other tests run hold every pair of values."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from support.pairs import all_pairs

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("sizes", [(2, 2), (1, 3), (4, 4, 3, 3, 2), (8, 2, 8), (2, 2, 2, 2, 2, 2)])
def test_every_pair_of_values_occurs(sizes: tuple[int, ...]) -> None:
    factors = [[f"{factor}-{value}" for value in range(size)] for factor, size in enumerate(sizes)]
    rows = all_pairs(*factors)
    assert all(value in values for row in rows for value, values in zip(row, factors, strict=True))
    for one, other in combinations(range(len(sizes)), 2):
        assert {(row[one], row[other]) for row in rows} == set(product(factors[one], factors[other]))


def test_there_are_far_fewer_rows_than_in_the_product() -> None:
    assert len(all_pairs(range(8), range(4), range(3), range(3))) <= 34
    assert len(all_pairs(*[range(4)] * 2, *[range(3)] * 2, range(2))) <= 20
    assert len(all_pairs(*[range(2)] * 10)) <= 12
    assert len(all_pairs(range(8), range(8), range(2))) == 64


def test_no_row_comes_twice() -> None:
    rows = all_pairs(range(5), range(4), range(3))
    assert len(set(rows)) == len(rows)
