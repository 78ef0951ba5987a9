"""Exchanges of records between clusters: where no swap helps, and where none is tried."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from support.random_exchanges import RandomPartition

pytestmark = pytest.mark.unit


def case_of(
    k: int, labels: Sequence[int], codes: Sequence[Sequence[int]] = (), subjects: Sequence[int] = ()
) -> RandomPartition:
    """Return a partition of records without numbers; each column of codes costs 1."""
    n, c = len(labels), len(codes)
    return RandomPartition(
        k=k,
        rows=np.zeros((n, 0)),
        codes=np.array(codes, np.int64).reshape(c, n),
        costs=np.ones(c),
        agree=np.zeros(c, np.bool_),
        subjects=np.array(subjects, np.int64),
        max_share=0.5,
        labels=np.array(labels, np.int32),
    )


@pytest.mark.parametrize(
    ("labels", "subjects"),
    [([0, 0, 0, 1, 1], [0, 0, 0, 0, 0]), ([0, 0, 0, 0], [0, 1, 0, 0]), ([0, 0, 1, 1], [0, 0, 0, 1])],
    ids=["one person", "one cluster", "too few people"],
)
def test_a_repair_fails_where_no_swap_helps(labels: list[int], subjects: list[int]) -> None:
    assert not case_of(2, labels, subjects=subjects).repaired()[1]


def test_no_exchange_leaves_a_cluster_with_too_few_people() -> None:
    """Record 2 would join the cluster of its code; its partner in a swap, and a move, would leave one person."""
    labels = np.array([0, 0, 0, 1, 1, 1], np.int32)
    case = case_of(3, labels.tolist(), codes=[[0, 0, 1, 1, 1, 0]], subjects=[0, 1, 2, 0, 3, 1])
    assert case.exchanged(labels).tolist() == labels.tolist()
    case = case_of(3, labels.tolist(), codes=[[0, 0, 1, 1, 1, 0]], subjects=[0, 1, 2, 0, 3, 4])
    assert case.exchanged(labels).tolist() == [0, 0, 1, 1, 1, 0]


@pytest.mark.parametrize("more_codes", [0, 2100])
def test_a_partition_with_too_many_codes_is_left_as_it_is(more_codes: int) -> None:
    """The first two of 700 clusters would exchange a code; 2^21 counts of codes in clusters are kept at most."""
    n = 2100
    labels = np.arange(n, dtype=np.int32) // 3
    codes = np.zeros((3, n), np.int64)
    codes[0, [2, 3, 4]] = 1
    for column in (1, 2):
        codes[column] = 2 + (column - 1) * (more_codes + 1) + (np.arange(n) if more_codes else 0)
    case = case_of(3, labels.tolist(), codes.tolist())
    found = case.exchanged(labels).tolist()
    assert found[:6] == ([0, 0, 0, 1, 1, 1] if more_codes else [0, 0, 1, 1, 1, 0])
    assert found[6:] == labels[6:].tolist()
