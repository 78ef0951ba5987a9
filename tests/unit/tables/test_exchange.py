"""Exchanges of records between clusters: when subjects can be repaired, and what a category is worth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from shoal.arrays import Float64Matrix
from support.random_exchanges import RandomPartition

pytestmark = pytest.mark.unit

THREE_AND_THREE = [0, 0, 0, 1, 1, 1]


def line(*values: float) -> Float64Matrix:
    return np.array(values)[:, None]


def case_of(
    k: int,
    labels: Sequence[int],
    rows: Float64Matrix | None = None,
    codes: Sequence[Sequence[int]] = (),
    *,
    agree: bool = False,
    subjects: Sequence[int] = (),
    max_share: float = 0.5,
) -> RandomPartition:
    """Return a partition; each column of codes costs 1, and each record is of another subject unless they are given."""
    n, c = len(labels), len(codes)
    return RandomPartition(
        k=k,
        rows=np.zeros((n, 0)) if rows is None else rows,
        codes=np.array(codes, np.int64).reshape(c, n),
        costs=np.ones(c),
        agree=np.full(c, agree),
        subjects=np.array(subjects, np.int64),
        max_share=max_share,
        labels=np.array(labels, np.int32),
    )


def test_a_person_who_is_twice_in_a_cluster_is_exchanged_with_the_record_that_costs_least() -> None:
    case = case_of(2, [0, 0, 1, 1, 1], line(0.0, 0.2, 1.0, 3.0, 4.0), subjects=[0, 0, 1, 2, 3])
    labels, is_repaired = case.repaired()
    assert is_repaired
    assert labels.tolist() == [0, 1, 0, 1, 1]


def test_a_subject_above_its_share_is_exchanged() -> None:
    case = case_of(2, [0, 0, 0, 1, 1, 1], line(0, 0, 0.1, 1, 1, 1), subjects=[0, 1, 1, 2, 3, 4])
    labels, is_repaired = case.repaired()
    assert is_repaired
    assert np.bincount(labels).tolist() == [3, 3]
    assert all(len(set(case.subjects[labels == label].tolist())) == 3 for label in (0, 1))


def test_records_of_different_persons_need_no_repair() -> None:
    labels, is_repaired = case_of(2, [0, 1, 0, 1]).repaired()
    assert is_repaired
    assert labels.tolist() == [0, 1, 0, 1]


def test_numbers_of_clusters_that_are_left_unused_need_no_subjects() -> None:
    assert case_of(2, [7, 3, 7, 3], subjects=[0, 1, 1, 0]).repaired()[1]
    assert case_of(2, [7, 3, 7, 3], subjects=[0, 1, 0, 1]).repaired()[1]


@pytest.mark.parametrize(
    ("labels", "subjects"),
    [([0, 0, 0, 1, 1], [0, 0, 0, 0, 0]), ([0, 0, 0, 0], [0, 1, 0, 0]), ([0, 0, 1, 1], [0, 0, 0, 1])],
    ids=["one person", "one cluster", "too few people"],
)
def test_a_repair_fails_where_no_swap_helps(labels: list[int], subjects: list[int]) -> None:
    assert not case_of(2, labels, subjects=subjects).repaired()[1]


@pytest.mark.parametrize(("gap", "expected"), [(0.1, [0, 0, 1, 1, 1, 0]), (10.0, THREE_AND_THREE)])
def test_an_exchange_pays_for_a_category_with_numbers_only_where_that_is_cheaper(
    gap: float, expected: list[int]
) -> None:
    """Two clusters on a line, each with one record of the other's code."""
    case = case_of(3, THREE_AND_THREE, line(0, 0, 0, gap, gap, gap), [[0, 0, 1, 1, 1, 0]])
    assert case.exchanged(case.labels).tolist() == expected


@pytest.mark.parametrize(("agree", "expected"), [(False, THREE_AND_THREE), (True, [0, 0, 1, 1, 1, 0])])
def test_categories_of_which_all_members_must_agree_are_worth_more(agree: bool, expected: list[int]) -> None:  # noqa: FBT001
    """The swap costs 3 in numbers. It gains 2 where the most frequent code counts, and 4.4 where all must agree."""
    case = case_of(3, THREE_AND_THREE, line(0, 0, 0, 1.5, 1.5, 1.5), [[0, 0, 1, 1, 1, 0]], agree=agree)
    assert case.exchanged(case.labels).tolist() == expected


def test_a_record_moves_to_a_cluster_with_its_code_if_its_own_stays_large_enough() -> None:
    for labels, codes, expected in (
        ([0, 0, 0, 1, 1], [0, 0, 1, 1, 1], [0, 0, 1, 1, 1]),
        (THREE_AND_THREE, [0, 0, 1, 1, 1, 1], THREE_AND_THREE),
    ):
        case = case_of(2, labels, codes=[codes])
        assert case.exchanged(case.labels).tolist() == expected


def test_no_exchange_leaves_a_cluster_with_too_few_people() -> None:
    """Record 2 would join the cluster of its code; its partner in a swap, and a move, would leave one person."""
    labels = np.array([0, 0, 0, 1, 1, 1], np.int32)
    case = case_of(3, labels.tolist(), codes=[[0, 0, 1, 1, 1, 0]], subjects=[0, 1, 2, 0, 3, 1])
    assert case.exchanged(labels).tolist() == labels.tolist()
    case = case_of(3, labels.tolist(), codes=[[0, 0, 1, 1, 1, 0]], subjects=[0, 1, 2, 0, 3, 4])
    assert case.exchanged(labels).tolist() == [0, 0, 1, 1, 1, 0]


def test_nothing_is_exchanged_without_categories() -> None:
    case = case_of(2, [0, 1, 0, 1], line(0, 0, 1, 1))
    assert case.exchanged(case.labels).tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("more_codes", [0, 2100])
def test_a_partition_with_too_many_codes_is_left_as_it_is(more_codes: int) -> None:
    """The first two of 700 clusters would exchange a code; 2^21 counts of codes in clusters are kept at most."""
    n = 2100
    labels = np.arange(n, dtype=np.int32) // 3
    codes = np.zeros((3, n), np.int64)
    codes[0, [2, 3, 4]] = 1
    for column in (1, 2):
        codes[column] = 2 + (column - 1) * (more_codes + 1) + (np.arange(n) if more_codes else 0)
    case = case_of(3, labels.tolist(), np.zeros((n, 1)), codes.tolist())
    found = case.exchanged(labels).tolist()
    assert found[:6] == ([0, 0, 0, 1, 1, 1] if more_codes else [0, 0, 1, 1, 1, 0])
    assert found[6:] == labels[6:].tolist()
