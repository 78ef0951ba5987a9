"""Exchanges of records between clusters: what they keep, and that they never raise the loss."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from shoal.arrays import Float64Matrix, Int32Vector, Int64Vector
from shoal.tables.descent import descend_dense, pair_squares
from support.random_exchanges import RandomPartition, random_partition

pytestmark = pytest.mark.property

PARTITIONS = st.builds(
    lambda seed, ties: random_partition(np.random.default_rng(seed), ties=ties), st.integers(0, 2**32), st.booleans()
)


def loss_in_numbers(rows: Float64Matrix, labels: Int32Vector) -> float:
    clusters = [rows[labels == label] for label in np.unique(labels)]
    return float(sum(((own - own.mean(axis=0)) ** 2).sum() for own in clusters))


def are_feasible(case: RandomPartition, labels: Int32Vector) -> bool:
    """Whether each cluster has k subjects, none above its share."""
    people: Int64Vector = case.subjects if len(case.subjects) else np.arange(len(labels))
    for label in np.unique(labels):
        counts = np.unique(people[labels == label], return_counts=True)[1]
        if len(counts) < case.k or counts.max() > case.max_share * counts.sum() + 1e-9:
            return False
    return True


def sizes_of(labels: Int32Vector) -> list[int]:
    return [int(np.count_nonzero(labels == label)) for label in range(labels.max() + 1)]


def case_of(k: int, labels: list[int], codes: list[list[int]], subjects: list[int], share: float) -> RandomPartition:
    """Return a partition of records without numbers."""
    n, c = len(labels), len(codes)
    columns = np.array(codes, np.int64).reshape(c, n)
    owners = np.array(subjects, np.int64)
    agree, costs = np.zeros(c, np.bool_), np.ones(c)
    return RandomPartition(k, np.zeros((n, 0)), columns, costs, agree, owners, share, np.array(labels, np.int32))


ONE_PERSON = case_of(2, [0, 0, 0, 1, 1], [], [0, 0, 0, 0, 0], 0.5)
ONE_CLUSTER = case_of(3, [0, 0, 0, 0], [[0, 0, 1, 2]], [0, 1, 2, 2], 0.5)
UNUSED_LABELS = case_of(2, [7, 3, 7, 3], [[0, 1, 1, 0]], [0, 1, 0, 1], 0.5)


@given(PARTITIONS)
@example(ONE_PERSON)
@example(ONE_CLUSTER)
@example(UNUSED_LABELS)
def test_a_repair_gives_each_cluster_k_subjects_and_keeps_its_size(case: RandomPartition) -> None:
    rows, codes = case.rows.copy(), case.codes.copy()
    labels, is_repaired = case.repaired()
    assert sizes_of(labels) == sizes_of(case.labels)
    assert (rows == case.rows).all()
    assert (codes == case.codes).all()
    if is_repaired:
        assert are_feasible(case, labels)
    if are_feasible(case, case.labels):
        assert is_repaired
        assert labels.tolist() == case.labels.tolist()


@given(PARTITIONS)
@example(ONE_PERSON)
@example(ONE_CLUSTER)
@example(UNUSED_LABELS)
def test_exchanges_for_categories_keep_sizes_within_k_and_2k_and_feasible_clusters_feasible(
    case: RandomPartition,
) -> None:
    start, is_repaired = case.repaired()
    labels = case.exchanged(start)
    assert set(labels.tolist()) == set(start.tolist()), "a cluster was emptied, or a new one opened"
    sizes, sizes_before = np.bincount(labels), np.bincount(start)
    assert (sizes[sizes > 0] >= case.k).all()
    assert (sizes <= np.maximum(sizes_before, 2 * case.k - 1)).all()
    if is_repaired:
        assert are_feasible(case, labels)
    if not len(case.codes):
        assert labels.tolist() == start.tolist()


@given(PARTITIONS, st.integers(1, 3))
def test_a_descent_with_subjects_keeps_them_and_never_raises_the_loss(case: RandomPartition, rounds: int) -> None:
    start, is_repaired = case.repaired()
    if not is_repaired:
        return
    labels = descend_dense(pair_squares(case.rows), start, case.k, rounds, case.subjects, case.max_share)
    assert are_feasible(case, labels)
    sizes = np.bincount(labels)
    assert (sizes[sizes > 0] >= case.k).all()
    assert sizes.max() <= max(np.bincount(start).max(), 2 * case.k - 1)
    assert loss_in_numbers(case.rows, labels) <= loss_in_numbers(case.rows, start) + 1e-9
    if len(case.subjects):
        assert set(labels.tolist()) == set(start.tolist()), "no cluster is dissolved or created"


@pytest.mark.parametrize("more_codes", [0, 2100])
def test_a_partition_with_too_many_codes_is_left_as_it_is(more_codes: int) -> None:
    """The first two of 700 clusters would exchange a code; 2^21 counts of codes in clusters are kept at most."""
    n = 2100
    labels = np.arange(n, dtype=np.int32) // 3
    codes = np.zeros((3, n), np.int64)
    codes[0, [2, 3, 4]] = 1
    for column in (1, 2):
        codes[column] = 2 + (column - 1) * (more_codes + 1) + (np.arange(n) if more_codes else 0)
    found = case_of(3, labels.tolist(), codes.tolist(), [], 0.5).exchanged(labels).tolist()
    assert found[:6] == ([0, 0, 0, 1, 1, 1] if more_codes else [0, 0, 1, 1, 1, 0])
    assert found[6:] == labels[6:].tolist()
