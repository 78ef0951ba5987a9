"""The invariant checker: each violated invariant raises, and closes the stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from shoal.errors import AnonymityViolation, GuaranteeError
from shoal.streams import StreamClusterer, clusterer, invariants
from shoal.streams.held_records import BY_POSITION, FLUSHED, DecisionBuffer, trim
from shoal.streams.invariants import InvariantLimits, RegisteredRecords, check_decisions

pytestmark = pytest.mark.unit


def unknown(decisions: DecisionBuffer) -> DecisionBuffer:
    decisions.positions[0] = 10**6
    return decisions


def single(decisions: DecisionBuffer) -> DecisionBuffer:
    ends = np.concatenate(([1], decisions.clusters[0]))
    return decisions._replace(
        clusters=np.array([ends, np.zeros_like(ends), np.full_like(ends, decisions.clusters[2, 0])])
    )


def above_share(decisions: DecisionBuffer) -> DecisionBuffer:
    whole = np.array([[4], *decisions.clusters[1:, :1].tolist()])
    return decisions._replace(positions=np.array([0, 1, 2, 4]), clusters=whole)  # three of the four are subject 0


def delayed(decisions: DecisionBuffer) -> DecisionBuffer:
    decisions.clusters[2] += 1
    return decisions


@pytest.mark.parametrize(
    ("tampered", "violation", "message"),
    [
        (unknown, AnonymityViolation, "not held"),
        (single, AnonymityViolation, "fewer than 2 subjects"),
        (above_share, AnonymityViolation, "a share above 0.5"),
        (delayed, GuaranteeError, "delta is 4"),
    ],
)
def test_a_rule_that_violates_an_invariant_closes_the_stream(
    monkeypatch: pytest.MonkeyPatch,
    tampered: Callable[[DecisionBuffer], DecisionBuffer],
    violation: type[GuaranteeError],
    message: str,
) -> None:
    stream = StreamClusterer(2, 4, 1, max_share=0.5)
    subjects = np.array([0, 0, 0, 1, 2, 3])
    coordinates = np.array([[0.0], [0.0], [0.0], [0.0], [9.0], [9.0]])
    monkeypatch.setattr(clusterer, "trim", lambda decisions: tampered(trim(decisions)))
    with pytest.raises(violation, match=message) as raised:
        stream.push(coordinates, subjects)
    assert raised.value.exit_code == 1
    with pytest.raises(GuaranteeError, match="no more records"):
        stream.push(coordinates, subjects)
    with pytest.raises(GuaranteeError, match="no more records"):
        stream.flush()


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


def result_of(
    decided: DecisionBuffer,
    subjects: list[int],
    positions: list[int] | None = None,
    delta: int = 6,
    max_share: float = 0.5,
) -> int:
    held = np.array(positions if positions is not None else range(len(subjects)), np.int64)
    registry = RegisteredRecords(
        held, np.array(subjects, np.int64), np.zeros(len(held), np.bool_), np.zeros(1, np.int64)
    )
    subject_counts, decided_subjects = np.zeros((2, decided.clusters.shape[1]), np.int64), np.zeros(50, np.int64)
    arrivals = np.arange(-1, 7)
    return check_decisions(
        registry, arrivals, decided, InvariantLimits(2, delta, max_share), subject_counts, decided_subjects
    )


SEVEN = [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("clusters", "suppressed", "subjects", "more", "result"),
    [
        ([[0, 2], [1, 3, 5, 6]], [4], [1, 1, 2, 2, 3, 3, 4], {}, "VALID"),
        ([[1, 5]], [3], [1, 2, 3, 4], {"positions": [1, 3, 5, 6]}, "VALID"),
        ([[0, 9]], [], [1, 2, 3], {}, "NOT_HELD"),
        ([[0, 7]], [], [1, 2, 3], {}, "NOT_HELD"),
        ([[0, -1]], [], [1, 2, 3], {}, "NOT_HELD"),
        ([[0, 0]], [], [1, 2, 3], {}, "NOT_HELD"),
        ([[0, 1], [1, 2]], [], [1, 2, 3], {}, "NOT_HELD"),
        ([[0, 1]], [1], [1, 2, 3], {}, "NOT_HELD"),
        ([], [0], [], {}, "NOT_HELD"),
        ([[0, 1]], [], [7, 7, 8], {}, "TOO_FEW_SUBJECTS"),
        ([[0, 1, 2]], [], [7, 7, 8], {}, "SHARE_EXCEEDED"),
        ([[0, 1, 2]], [], [7, 7, 8], {"max_share": 2 / 3}, "VALID"),
        ([[1, 2]], [], SEVEN, {"delta": 7}, "VALID"),
        ([[1, 2]], [], SEVEN, {"delta": 6}, "OVERDUE"),
    ],
)
def test_what_is_wrong_with_decisions(
    clusters: list[list[int]], suppressed: list[int], subjects: list[int], more: dict[str, Any], result: str
) -> None:
    assert result_of(decisions_of(clusters, suppressed), subjects, **more) == getattr(invariants, result)


@pytest.mark.parametrize(("delta", "kept"), [(6, True), (5, False)])
def test_a_record_that_was_due_at_an_earlier_arrival(delta: int, kept: bool) -> None:  # noqa: FBT001
    for decided in (decisions_of([[0, 1, 2, 3, 4, 5, 6]], []), decisions_of([], list(range(7)))):
        assert (result_of(decided, SEVEN, delta=delta) == invariants.VALID) == kept


def test_at_the_end_of_the_stream_no_record_may_be_due() -> None:
    decided = decisions_of([[0, 1, 2, 3, 4, 5, 6]], [], cause=FLUSHED)
    assert result_of(decided, SEVEN, delta=7) == invariants.VALID
    assert result_of(decided, SEVEN, delta=6) == invariants.OVERDUE
