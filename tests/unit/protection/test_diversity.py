"""Diversity and closeness of clusters: the definitions, by hand and from the papers."""

from __future__ import annotations

import numpy as np
import pytest
from shoal.protection.diversity import (
    DISTINCT,
    EQUAL,
    HIERARCHICAL,
    NO_DIVERSITY,
    ORDERED,
    DiversityRule,
    LDiversity,
    ValueReference,
    build_diversity_rule,
    distance_of,
    empty_diversity_scratch,
    is_diverse,
)

pytestmark = pytest.mark.unit

NOBODY = np.zeros(0, np.int64)  # in place of subjects: each record is a person


def keeps(rule: DiversityRule, *columns: list[int]) -> bool:
    codes = np.array(columns, np.int64)
    members = np.arange(codes.shape[1])
    return bool(is_diverse(rule, codes, codes, NOBODY, members, empty_diversity_scratch(codes.shape[1])))


def distance(reference: ValueReference, bins: list[int]) -> float:
    rule = build_diversity_rule([reference], t=0.5)
    return float(distance_of(rule, 0, np.array(bins, np.int64), np.ones(len(bins)), len(bins)))


def test_without_constraints_and_without_members_every_cluster_is_diverse() -> None:
    codes, nothing, scratch = np.zeros((1, 4), np.int64), np.zeros(0, np.int64), empty_diversity_scratch(4)
    assert keeps(NO_DIVERSITY, [7, 7, 7])
    assert is_diverse(NO_DIVERSITY, codes[:0], codes[:0], NOBODY, np.arange(3), scratch)
    assert is_diverse(build_diversity_rule(l=LDiversity(DISTINCT, 3)), codes, codes, NOBODY, nothing, scratch)


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
    assert is_diverse(build_diversity_rule(references, t=first), bins, bins, NOBODY, members, scratch)
    assert not is_diverse(build_diversity_rule(references, t=first - 1e-9), bins, bins, NOBODY, members, scratch)
    assert is_diverse(build_diversity_rule(references[1:], t=second), bins[1:], bins[1:], NOBODY, members, scratch)
    assert not is_diverse(
        build_diversity_rule(references[1:], t=second - 1e-9), bins[1:], bins[1:], NOBODY, members, scratch
    )


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
