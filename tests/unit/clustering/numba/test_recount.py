from __future__ import annotations

import numpy as np
import pytest
from shoal.clustering.stream import invariants
from shoal.clustering.stream.held_records import BY_POSITION, FLUSHED, DecisionBuffer
from shoal.clustering.stream.invariants import InvariantLimits, RegisteredRecords, check_decisions

pytestmark = pytest.mark.unit


def decisions_of(
    clusters: list[list[int]],
    suppressed: list[int],
    newest: int = 6,
    cause: int = BY_POSITION,
) -> DecisionBuffer:
    ends = np.cumsum([len(members) for members in clusters], dtype=np.int64)
    return DecisionBuffer(
        np.array([position for members in clusters for position in members], np.int64),
        np.array([ends, np.full(len(ends), cause), np.full(len(ends), newest)]),
        np.array([[position, cause, newest, 0] for position in suppressed], np.int64).reshape(-1, 4).T.copy(),
        np.zeros(3, np.int64),
    )


def verdict(
    decided: DecisionBuffer,
    subjects: list[int],
    positions: list[int] | None = None,
    delta: int = 6,
    max_share: float = 0.5,
) -> int:
    held = np.array(positions if positions is not None else range(len(subjects)), np.int64)
    ledger = RegisteredRecords(held, np.array(subjects, np.int64), np.zeros(len(held), np.bool_), np.zeros(1, np.int64))
    counted, owners = np.zeros((2, decided.clusters.shape[1]), np.int64), np.zeros(50, np.int64)
    arrivals = np.arange(-1, 7)
    return check_decisions(ledger, arrivals, decided, InvariantLimits(2, delta, max_share), counted, owners)


def test_a_promise_that_is_kept() -> None:
    assert verdict(decisions_of([[0, 2], [1, 3, 5, 6]], [4]), [1, 1, 2, 2, 3, 3, 4]) == invariants.VALID


def test_gaps_in_positions_are_searched() -> None:
    decided = decisions_of([[1, 5]], [3])
    assert verdict(decided, [1, 2, 3, 4], [1, 3, 5, 6]) == invariants.VALID


@pytest.mark.parametrize("clusters", [[[0, 9]], [[0, 7]], [[0, -1]], [[0, 0]], [[0, 1], [1, 2]]])
def test_a_record_that_is_not_held_or_leaves_twice(clusters: list[list[int]]) -> None:
    assert verdict(decisions_of(clusters, []), [1, 2, 3]) == invariants.NOT_HELD


def test_a_record_that_is_released_and_suppressed() -> None:
    assert verdict(decisions_of([[0, 1]], [1]), [1, 2, 3]) == invariants.NOT_HELD


def test_nobody_is_held() -> None:
    assert verdict(decisions_of([], [0]), []) == invariants.NOT_HELD


def test_a_cluster_of_one_subject() -> None:
    assert verdict(decisions_of([[0, 1]], []), [7, 7, 8]) == invariants.TOO_FEW_SUBJECTS


def test_a_subject_above_its_share() -> None:
    assert verdict(decisions_of([[0, 1, 2]], []), [7, 7, 8]) == invariants.SHARE_EXCEEDED
    assert verdict(decisions_of([[0, 1, 2]], []), [7, 7, 8], max_share=2 / 3) == invariants.VALID


@pytest.mark.parametrize(("delta", "kept"), [(6, True), (5, False)])
def test_a_record_that_was_due_at_an_earlier_arrival(delta: int, kept: bool) -> None:  # noqa: FBT001
    everyone = [1, 2, 3, 4, 5, 6, 7]
    for decided in (decisions_of([[0, 1, 2, 3, 4, 5, 6]], []), decisions_of([], list(range(7)))):
        assert (verdict(decided, everyone, delta=delta) == invariants.VALID) == kept


def test_a_record_that_is_overdue_and_still_held() -> None:
    assert verdict(decisions_of([[1, 2]], []), [1, 2, 3, 4, 5, 6, 7], delta=7) == invariants.VALID
    assert verdict(decisions_of([[1, 2]], []), [1, 2, 3, 4, 5, 6, 7], delta=6) == invariants.OVERDUE


def test_at_the_end_of_the_stream_nothing_may_be_due() -> None:
    decided = decisions_of([[0, 1, 2, 3, 4, 5, 6]], [], cause=FLUSHED)
    assert verdict(decided, [1, 2, 3, 4, 5, 6, 7], delta=7) == invariants.VALID
    assert verdict(decided, [1, 2, 3, 4, 5, 6, 7], delta=6) == invariants.OVERDUE


def test_a_large_cluster_is_counted_like_a_small_one() -> None:
    random = np.random.default_rng(3)
    subjects = random.integers(0, 9, 40)
    times = [times for times in np.bincount(subjects).tolist() if times]
    ledger = RegisteredRecords(np.arange(40), subjects, np.zeros(40, np.bool_), np.zeros(1, np.int64))
    counted = np.zeros((2, 1), np.int64)
    decided = decisions_of([list(range(40))], [])
    check_decisions(ledger, np.arange(-1, 7), decided, InvariantLimits(2, 100, 1.0), counted, np.zeros(40, np.int64))
    assert counted[:, 0].tolist() == [len(times), max(times)]
