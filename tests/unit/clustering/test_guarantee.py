from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from shoal.clustering.stream import StreamClusterer
from shoal.clustering.stream.dominance import Dominance
from shoal.clustering.stream.held_records import FLUSHED, DecisionBuffer, empty_decision_buffer
from shoal.clustering.stream.invariants import InvariantChecker
from shoal.errors import AnonymityViolation, DelayViolation, GuaranteeError

pytestmark = pytest.mark.unit


def twice(decisions: DecisionBuffer) -> DecisionBuffer:
    decisions.positions[1] = decisions.positions[0]
    return decisions


def invented(decisions: DecisionBuffer) -> DecisionBuffer:
    decisions.positions[0] = 10**6
    return decisions


def alone(decisions: DecisionBuffer) -> DecisionBuffer:
    ends = np.concatenate(([1], decisions.clusters[0]))
    return decisions._replace(
        clusters=np.array([ends, np.zeros_like(ends), np.full_like(ends, decisions.clusters[2, 0])])
    )


def crowded(decisions: DecisionBuffer) -> DecisionBuffer:
    whole = np.array([[4], *decisions.clusters[1:, :1].tolist()])
    return decisions._replace(positions=np.array([0, 1, 2, 4]), clusters=whole)  # three of the four are subject 0


def late(decisions: DecisionBuffer) -> DecisionBuffer:
    decisions.clusters[2] += 1
    return decisions


def forgotten(decisions: DecisionBuffer) -> DecisionBuffer:
    return decisions._replace(positions=decisions.positions[:0], clusters=decisions.clusters[:, :0])


@pytest.mark.parametrize(
    ("tampered", "violation", "message"),
    [
        (twice, AnonymityViolation, "not held"),
        (invented, AnonymityViolation, "not held"),
        (alone, AnonymityViolation, "fewer than 2 subjects"),
        (crowded, AnonymityViolation, "more than a share of 0.5"),
        (late, DelayViolation, "more than 4 positions"),
        (forgotten, DelayViolation, "more than 4 positions"),
    ],
)
def test_a_rule_that_breaks_the_promise_closes_the_stream(
    monkeypatch: pytest.MonkeyPatch,
    tampered: Callable[[DecisionBuffer], DecisionBuffer],
    violation: type[GuaranteeError],
    message: str,
) -> None:
    stream = StreamClusterer(2, 4, 1, max_share=0.5)
    subjects = np.array([0, 0, 0, 1, 2, 3])
    coordinates = np.array([[0.0], [0.0], [0.0], [0.0], [9.0], [9.0]])
    push = stream._rule.push
    monkeypatch.setattr(stream._rule, "push", lambda block: tampered(push(block)))
    with pytest.raises(violation, match=message) as raised:
        stream.push(coordinates, subjects)
    assert raised.value.exit_code == 1
    with pytest.raises(GuaranteeError, match="no more records"):
        stream.push(coordinates, subjects)
    with pytest.raises(GuaranteeError, match="no more records"):
        stream.flush()


@pytest.mark.parametrize(
    ("incomes", "is_open"),
    [
        ([0.0] * 8 + [249_999, 250_000], True),  # published as 0 on a grid of 100,000
        ([0.0] * 9 + [1], True),
        ([0.0] * 10, False),
        ([0.0] * 7 + [25_000, 249_999, 250_000], False),
        ([0.0] * 7 + [24_999, 249_999, 250_000], True),
    ],
)
def test_a_cluster_in_which_one_contribution_stands_out_is_refused_by_the_last_check(
    incomes: list[float],
    is_open: bool,  # noqa: FBT001
) -> None:
    rule = Dominance(0.1, np.array([[0.0]]))
    checker = InvariantChecker(3, 20, 1.0, rule)
    people = np.arange(len(incomes))
    checker.register(people, people, np.array(incomes)[:, None])
    whole = empty_decision_buffer(0)._replace(positions=people, clusters=np.array([[10], [FLUSHED], [9]]))
    if is_open:
        with pytest.raises(AnonymityViolation, match="p % rule"):
            checker.verify(whole)
    else:
        assert checker.verify(whole).tolist() == [[10], [1]]


def test_a_gap_in_positions_is_no_delay() -> None:
    stream = StreamClusterer(2, 4, 1)
    stream.push(np.zeros((3, 1)), positions=np.array([0, 1, 2]))
    decided = stream.push(np.zeros((1, 1)), positions=np.array([1000]))
    assert decided.positions.tolist() == [0, 1, 2, 1000]
    assert decided.suppressed.tolist() == []
