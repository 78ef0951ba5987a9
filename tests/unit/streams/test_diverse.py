"""Streams under l-diversity and t-closeness: what is refused, what the last check finds, and cases at the edges."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from shoal import StreamAggregator
from shoal.errors import AnonymityViolation, ParameterError
from shoal.protection.diversity import (
    DISTINCT,
    ENTROPY,
    EQUAL,
    HIERARCHICAL,
    ORDERED,
    RECURSIVE,
    DiversityRule,
    LDiversity,
    Protection,
    ValueReference,
    build_diversity_rule,
)
from shoal.streams import StreamClusterer
from shoal.streams.invariants import violated_constraint

pytestmark = pytest.mark.unit

RULES = ["nearest", "greedy", "awo", "block"]
THREE_VALUES = build_diversity_rule(l=LDiversity(DISTINCT, 3))
CLOSE = build_diversity_rule([ValueReference(EQUAL, np.array([0.5, 0.5]))], t=0.1)
PATHS = np.array([[0, 0], [1, 0], [2, 1], [3, 1]])


@pytest.mark.parametrize(
    ("parameters", "fault"),
    [
        ({"l": 1}, "l: must be a whole number of 2 or more"),
        ({"l": {"recursive": [0, 2]}}, "l: must be"),
        ({"l": {"distinct": 2, "entropy": 2}}, "l: must be"),
        ({"l": 12}, r"l: must be at most delta \+ 1"),
        ({"max_value_share": 0}, "max_value_share: must be above 0"),
        ({"t": 0.2}, "reference: required with t"),
        ({"t": 0.2, "reference": {"a": 1.0}}, "reference: must map two or more values"),
        ({"t": 0.2, "reference": {"a": 0.5, "b": 0.4}}, "reference: shares must sum to 1"),
        ({"t": 0.2, "reference": {"a": 0.5, " a": 0.5}}, "reference: lists a value twice"),
    ],
)
def test_a_protection_outside_its_domain_is_named(parameters: dict[str, Any], fault: str) -> None:
    with pytest.raises(ParameterError, match=fault):
        StreamAggregator(2, 10, **parameters)


NO_COLUMNS: dict[str, Any] = {"l": 2}
TWO_TEXTS: dict[str, Any] = {"t": 0.5, "reference": {"a": 0.5, "b": 0.5}}


@pytest.mark.parametrize(
    ("protection", "given", "fault"),
    [
        (NO_COLUMNS, None, "confidential: missing"),
        (NO_COLUMNS, ["a"], r"confidential: must have shape \(2,\)"),
        (TWO_TEXTS, [["a", "b"]] * 2, "confidential: must have 1 columns"),
        ({"t": 0.5, "reference": {1: 0.5, 2: 0.5}}, ["a", "b"], "confidential: must be numbers"),
        (NO_COLUMNS, [[1], [1, 2]], "confidential: rows must have the same length"),
        (NO_COLUMNS, np.array([{"a": 1}, None], object), "confidential: must be texts, numbers"),
    ],
)
def test_confidential_values_are_required_and_have_one_row_per_record(
    protection: dict[str, Any], given: Any, fault: str
) -> None:
    with pytest.raises(ParameterError, match=fault):
        StreamAggregator(2, 10, **protection).push(np.zeros((2, 1)), confidential=given)


@pytest.mark.parametrize("value", [float("nan"), True, 2**60 + 1, 0.1, "7", None, np.float32(0.1), np.str_("a")])
@pytest.mark.parametrize("other", ["flu", 0.5, 3, True, None])
def test_a_value_in_a_list_does_not_depend_on_the_others(value: object, other: object) -> None:
    """With two values in three records, the first two are one value unless the third has been one before."""
    stream = StreamAggregator(2, 1, l=2)
    stream.push(np.zeros((1, 1)), confidential=[value])
    released = stream.push(np.zeros((2, 1)), confidential=[value, other])
    assert 0 not in released.positions


@pytest.mark.parametrize(
    ("value", "sizes"),
    [
        *((value, [2]) for value in (10**400, "1e400", "12e99999999999999999", float("inf"), Decimal("1e400"))),
        *((value, []) for value in (-(10**400), "-1e400", float("-inf"), None, Decimal("NaN"))),
        ((2**53 + 1) * 10**300, [2]),
    ],
)
def test_a_number_of_any_size_counts_as_the_nearest_one(value: object, sizes: list[int]) -> None:
    stream = StreamAggregator(2, 10, rule="nearest", t=0.01, reference={0: 0.5, 10: 0.5})
    stream.push(np.zeros((2, 1)), confidential=[0, value])
    assert np.diff(stream.flush().offsets).tolist() == sizes


def test_texts_without_a_bin_have_a_share_of_0() -> None:
    stream = StreamAggregator(2, 10, rule="nearest", t=0.4, reference={"a": 0.5, "b": 0.5})
    stream.push(np.zeros((4, 1)), confidential=["a", "b", "c", "d"])
    assert stream.flush().suppressed.tolist() == [2, 3]


@pytest.mark.parametrize(
    ("values", "bins", "fault"),
    [
        (None, None, "values: must be an array of int64"),
        ([[0]], [[0]], "values"),
        ([[0], [0]], None, "bins: must be an array of int64"),
        ([[0], [0]], [[0], [2]], "bins: must be indices"),
    ],
)
def test_codes_and_bins_that_do_not_fit_are_refused(values: Any, bins: Any, fault: str) -> None:
    stream = StreamClusterer(2, 4, 1, diversity=CLOSE)
    with pytest.raises(ParameterError, match=fault):
        stream.push(
            np.zeros((2, 1)),
            values=None if values is None else np.array(values),
            bins=None if bins is None else np.array(bins),
        )
    assert stream.held == 0


@pytest.mark.parametrize("rule", RULES)
def test_a_record_without_a_cluster_is_suppressed(rule: str) -> None:
    stream = StreamClusterer(2, 4, 1, rule=rule, diversity=THREE_VALUES)
    decided = stream.push(np.zeros((6, 1)), values=np.array([[0, 0, 0, 0, 0, 1]]).T)
    assert (decided.positions.tolist(), decided.suppressed.tolist()) == ([], [0, 1])
    assert stream.flush().suppressed.tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize("rule", RULES)
def test_a_minimum_population_holds_at_the_end(rule: str) -> None:
    for population, released in ((5, [0, 1, 2, 3]), (6, [])):
        stream = StreamClusterer(
            2, 9, 1, rule=rule, min_population=population - 1, diversity=build_diversity_rule(l=LDiversity(DISTINCT, 2))
        )
        stream.push(np.zeros((4, 1)), values=np.array([[0, 0, 1, 1]]).T)
        assert sorted(stream.flush().positions.tolist()) == released


@pytest.mark.parametrize("rule", RULES)
def test_a_minimum_population_changes_nothing_before_the_end(rule: str) -> None:
    random = np.random.default_rng(5)
    points, subjects, bins = random.random((60, 2)), np.arange(60) // 2, random.integers(0, 2, (60, 1))
    found = []
    for population in (0, 12):
        reference = ValueReference(EQUAL, np.array([0.5, 0.5]))
        protection = build_diversity_rule([reference], t=0.3)
        stream = StreamClusterer(2, 19, 2, rule=rule, min_population=population, diversity=protection)
        decided = stream.push(points, subjects, values=bins, bins=bins)
        found.append((decided.positions.tolist(), decided.cluster_bounds.tolist(), decided.suppressed.tolist()))
    assert found[0] == found[1]
    assert len(found[0][1]) > 8


def test_a_cluster_may_be_larger_than_4k_if_t_needs_it() -> None:
    rule = build_diversity_rule([ValueReference(EQUAL, np.full(20, 0.05))], t=0.06)
    stream, values = StreamClusterer(2, 39, 1, rule="nearest", diversity=rule), np.arange(40)[:, None] % 20
    assert np.diff(stream.push(np.arange(40.0)[:, None], values=values, bins=values).cluster_bounds).tolist() == [19]


def cluster_of(columns: list[list[int]], rule: DiversityRule) -> str:
    codes = np.array(columns).T
    return violated_constraint(Protection(rule, 1), codes, np.arange(len(codes)), np.array([len(codes)]))


ORDERED_THIRDS = build_diversity_rule([ValueReference(ORDERED, np.full(3, 1 / 3))], t=1 / 3)
TREE = build_diversity_rule([ValueReference(HIERARCHICAL, np.full(4, 0.25), PATHS)], t=0.25)
RECURSIVE_TWO = build_diversity_rule(l=LDiversity(RECURSIVE, 2, 2.0))


@pytest.mark.parametrize(
    ("rule", "kept", "violated", "message"),
    [
        (THREE_VALUES, [[5, 5, 7, 9]], [[5, 5, 7, 7]], "has no distinct 3-diversity"),
        (build_diversity_rule(max_value_share=0.5), [[1, 1, 2, 3]], [[1, 1, 1, 3]], "a share above 0.5"),
        (build_diversity_rule(l=LDiversity(ENTROPY, 2)), [[1, 1, 2, 2]], [[1, 1, 1, 2]], "no entropy 2-diversity"),
        (RECURSIVE_TWO, [[1, 1, 1, 2, 3]], [[1, 1, 1, 1, 2, 3]], "no recursive 2-diversity"),
        (CLOSE, [[1, 1, 2, 2], [0, 0, 1, 1]], [[1, 1, 2], [0, 0, 1]], "farther than 0.1"),
        (ORDERED_THIRDS, [[1, 1, 2], [0, 0, 2]], [[1, 1, 1], [0, 0, 0]], "farther than 0.333"),
        (TREE, [[1, 2], [0, 2]], [[1, 2], [0, 1]], "farther than 0.25"),
    ],
)
def test_the_last_check_finds_a_cluster_that_violates_the_rule(
    rule: DiversityRule, kept: list[list[int]], violated: list[list[int]], message: str
) -> None:
    assert not cluster_of(kept, rule)
    assert message in cluster_of(violated, rule)


ONE_OF_ELEVEN = [*range(10), *[99] * 10]
"""Values of ten records of one person, and of one of each of ten others."""
OF_ELEVEN = [0] * 10 + list(range(1, 11))
HALVES = ValueReference(EQUAL, np.full(2, 0.5))


@pytest.mark.parametrize(
    ("rule", "bins", "message"),
    [
        (build_diversity_rule(max_value_share=0.5), None, "a share above 0.5 of its people have"),
        (THREE_VALUES, None, "no distinct 3-diversity"),
        (build_diversity_rule(l=LDiversity(ENTROPY, 2)), None, "no entropy 2-diversity"),
        (build_diversity_rule(l=LDiversity(RECURSIVE, 3, 3.0)), None, "no recursive 3-diversity"),
        (build_diversity_rule([HALVES], t=0.1), [0] * 10 + [1] * 10, "farther than 0.1"),
    ],
)
def test_the_values_of_one_person_hide_nothing_of_others(
    rule: DiversityRule, bins: list[int] | None, message: str
) -> None:
    """Half of the records have one value, and 10 of 11 people: no stream releases it, and the last check refuses it."""
    values = np.array([ONE_OF_ELEVEN]).T
    codes = values if bins is None else np.column_stack([values, bins])
    ends = np.array([20])
    assert not violated_constraint(Protection(rule, 1), codes, np.arange(20), ends)
    assert message in violated_constraint(Protection(rule, 1), codes, np.array(OF_ELEVEN), ends)
    for name in RULES:
        stream = StreamClusterer(10, 30, 1, rule=name, diversity=rule)
        given = None if bins is None else np.array([bins]).T
        assert not len(stream.push(np.zeros((20, 1)), np.array(OF_ELEVEN), values=values, bins=given).positions)
        assert len(stream.flush().suppressed) == 20


@pytest.mark.parametrize("name", RULES)
def test_people_with_several_records_are_released_in_clusters_of_different_people(name: str) -> None:
    """Each person has three records with three values, so one cluster of all would show each value of everybody."""
    people = np.arange(60) % 20
    values = (np.arange(60) // 20 + people)[:, None] % 3
    stream = StreamClusterer(10, 59, 1, rule=name, diversity=build_diversity_rule(max_value_share=0.5))
    stream.push(np.arange(60.0)[:, None] % 7, people, values=values)
    out = stream.flush()
    assert len(out.suppressed) == 0
    for start, end in zip(out.cluster_bounds[:-1], out.cluster_bounds[1:], strict=True):
        own = out.positions[start:end]
        holders = [len(set(people[own][values[own, 0] == value].tolist())) for value in range(3)]
        assert max(holders) <= 0.5 * len(set(people[own].tolist()))


def test_a_violation_closes_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = StreamClusterer(2, 4, 1, rule="nearest", diversity=THREE_VALUES)
    loose = stream._rule._state._replace(rule=build_diversity_rule(l=LDiversity(DISTINCT, 1)))  # type: ignore[attr-defined]
    monkeypatch.setattr(stream._rule, "_state", loose)
    with pytest.raises(AnonymityViolation, match="has no distinct 3-diversity; nothing of its block was released"):
        stream.push(np.zeros((5, 1)), values=np.zeros((5, 1), np.int64))
    with pytest.raises(Exception, match="no more records"):
        stream.flush()


def test_auto_is_block_under_a_protection_because_it_suppresses_the_fewest_records() -> None:
    """A quarter of 900 people has the rare value: with k = 3, rules that form one cluster at a time run out of it."""
    random = np.random.default_rng(3)
    rare = random.random(900) < 0.24
    points = np.column_stack([rare + random.normal(0, 0.3, 900), random.random(900)])
    suppressed = {}
    for rule in ("awo", "auto"):
        stream = StreamAggregator(k=3, delta=30, rule=rule, l=2, max_value_share=1.0)
        out = [stream.push(points, confidential=rare.astype(np.int64)), stream.flush()]
        suppressed[rule] = sum(len(one.suppressed) for one in out)
    assert suppressed["awo"] > 100
    assert suppressed["auto"] < 20


@pytest.mark.parametrize("rule", ["nearest", "awo"])
def test_an_odd_k_grows_by_one_if_no_value_may_have_more_than_half(rule: str) -> None:
    """Five records with two values break a share of 0.5, and six do not."""
    stream = StreamAggregator(k=5, delta=40, rule=rule, max_value_share=0.5)
    out = stream.push(np.arange(300.0)[:, None] % 17, confidential=np.arange(300) % 2)
    assert set(np.diff(out.offsets).tolist()) == {6}


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"diversity": 3}, "diversity: must be a DiversityRule"),
        ({"diversity": THREE_VALUES, "protected": 0}, "protected: must be a whole number from 1"),
        ({"diversity": build_diversity_rule(l=LDiversity(DISTINCT, 1))}, "diversity: l must be above 1"),
        ({"diversity": build_diversity_rule(max_value_share=np.nan)}, "diversity: t and max_value_share"),
        ({"diversity": CLOSE, "protected": 2}, "diversity: t needs a reference"),
        ({"expiry_limits": (-1,)}, "expiry_limits"),
        ({"expiry_limits": (0.9,)}, "expiry_limits"),
        ({"code_distances": np.ones(1), "codes_must_agree": np.zeros(0, bool)}, "codes_must_agree"),
    ],
)
def test_parameters_that_would_weaken_a_stream_are_refused(arguments: dict[str, Any], fault: str) -> None:
    with pytest.raises(ParameterError, match=fault):
        StreamClusterer(2, 4, 1, **arguments)


def test_a_rule_without_a_class_is_an_error_and_not_another_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.streams.clusterer.RULES", ("nearest", "greedy", "awo", "block", "novel"))
    with pytest.raises(ParameterError, match="rule"):
        StreamClusterer(3, 10, 1, rule="novel")
