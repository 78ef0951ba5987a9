"""Diversity and closeness of clusters: the definitions, by hand and from the papers."""

from __future__ import annotations

import numpy as np
import pytest
from shoal.protection import diversity
from shoal.protection.diversity import (
    DISTINCT,
    EQUAL,
    HIERARCHICAL,
    NO_DIVERSITY,
    ORDERED,
    RECURSIVE,
    DiversityRule,
    LDiversity,
    ValueReference,
    build_diversity_rule,
    distance_of,
    empty_diversity_scratch,
    is_diverse,
)

pytestmark = pytest.mark.unit


def keeps(rule: DiversityRule, *columns: list[int]) -> bool:
    codes = np.array(columns, np.int64)
    members = np.arange(codes.shape[1])
    return bool(is_diverse(rule, codes, codes, members, empty_diversity_scratch(codes.shape[1])))


def distance(reference: ValueReference, bins: list[int]) -> float:
    return float(distance_of(build_diversity_rule([reference], t=0.5), 0, np.array(bins, np.int64)))


def test_without_constraints_and_without_members_every_cluster_is_diverse() -> None:
    codes, nothing, scratch = np.zeros((1, 4), np.int64), np.zeros(0, np.int64), empty_diversity_scratch(4)
    assert keeps(NO_DIVERSITY, [7, 7, 7])
    assert is_diverse(NO_DIVERSITY, codes[:0], codes[:0], np.arange(3), scratch)
    assert is_diverse(build_diversity_rule(l=LDiversity(DISTINCT, 3)), codes, codes, nothing, scratch)


def test_distinct_values_are_counted_in_each_attribute() -> None:
    rule = build_diversity_rule(l=LDiversity(DISTINCT, 3))
    assert keeps(rule, [1, 2, 3, 1])
    assert not keeps(rule, [1, 2, 2, 1])
    assert keeps(rule, [1, 2, 3, 1], [9, 8, -7, 8])
    assert not keeps(rule, [1, 2, 3, 1], [9, 8, 9, 8])


def test_recursive_diversity_compares_the_most_frequent_with_the_rarer_values() -> None:
    counts = [1, 1, 1, 1, 2, 2, 2, 3, 4, 4]  # 4, 3, 2, 1
    assert keeps(build_diversity_rule(l=LDiversity(RECURSIVE, 3, 2)), counts)  # 4 < 2 (2 + 1)
    assert not keeps(build_diversity_rule(l=LDiversity(RECURSIVE, 3, 1)), counts)  # 4 < 3
    assert not keeps(build_diversity_rule(l=LDiversity(RECURSIVE, 2, 1)), [1, 1, 1, 2, 2, 3])  # 3 < 3 is not below
    assert keeps(build_diversity_rule(l=LDiversity(RECURSIVE, 2, 1.01)), [1, 1, 1, 2, 2, 3])
    assert not keeps(build_diversity_rule(l=LDiversity(RECURSIVE, 3, 100)), [1, 2, 1, 2])
    # 3 = 0.1 * 30, which float64 rounds up
    assert not keeps(build_diversity_rule(l=LDiversity(RECURSIVE, 2, 0.1)), [0, 0, 0, *range(1, 31)])


SALARIES = ValueReference(ORDERED, np.ones(9, np.int64))  # 3k to 11k, each once


def test_ordered_distances_of_the_salaries_of_the_paper() -> None:
    """N. Li, T. Li and S. Venkatasubramanian, ICDE 2007, section 4.2."""
    assert distance(SALARIES, [0, 1, 2]) == pytest.approx(0.375)
    assert distance(SALARIES, [3, 5, 8]) == pytest.approx(1 / 6)
    # steps of 1/3 at 3k, 5k and 9k: |3 - 1| + |3 - 2| + |6 - 3| + ... ninths over the first eight salaries
    assert distance(SALARIES, [0, 2, 6]) == pytest.approx((2 + 1 + 3 + 2 + 1 + 0 + 2 + 1) / 9 / 8)


def test_t_may_be_reached_in_each_attribute() -> None:
    references = [ValueReference(EQUAL, np.array([0.5, 0.5])), SALARIES]
    bins = np.array([[0, 0, 0, 1], [0, 3, 5, 8]])
    first, second = 0.25, distance(SALARIES, [0, 3, 5, 8])
    members, scratch = np.arange(4), empty_diversity_scratch(4)
    assert second < first
    assert is_diverse(build_diversity_rule(references, t=first), bins, bins, members, scratch)
    assert not is_diverse(build_diversity_rule(references, t=first - 1e-9), bins, bins, members, scratch)
    assert is_diverse(build_diversity_rule(references[1:], t=second), bins[1:], bins[1:], members, scratch)
    assert not is_diverse(build_diversity_rule(references[1:], t=second - 1e-9), bins[1:], bins[1:], members, scratch)


def test_the_excess_says_how_far_a_cluster_is_from_a_rule() -> None:
    rule = build_diversity_rule(
        [ValueReference(EQUAL, np.array([0.5, 0.5]))], l=LDiversity(DISTINCT, 2), max_value_share=0.6, t=0.1
    )
    members, scratch = np.arange(4), empty_diversity_scratch(4)

    def excess(codes: list[int], enough: float = 1e9) -> float:
        columns = np.array([codes])
        return float(diversity.excess_of(rule, columns, columns, members, scratch, enough))

    assert excess([0, 1, 0, 1]) == 0.0
    assert excess([0, 0, 0, 1]) == pytest.approx(0.15 + 0.15)  # share 0.75, distance 0.25
    assert excess([0, 0, 0, 0]) == pytest.approx(0.4 + 0.5 + 0.4)
    assert excess([0, 0, 0, 0], 0.1) == pytest.approx(0.4 + 0.5)


@pytest.mark.parametrize(
    ("references", "fault"),
    [
        ([], "reference of each"),
        ([ValueReference(EQUAL, np.zeros(2))], "weight above 0"),
        ([ValueReference(HIERARCHICAL, np.ones(2))], "path of each bin"),
        ([ValueReference(HIERARCHICAL, np.ones(3), np.array([[0, 0], [1, 1], [2, 0]]))], "order of their tree"),
    ],
)
def test_faults_of_references(references: list[ValueReference], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        build_diversity_rule(references, t=0.3)
