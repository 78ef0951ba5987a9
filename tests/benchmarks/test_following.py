"""The experiment with a bound on following a person: the bound holds, and the attack is what was worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from following import Stream, found_by_chaining, least_suppressed, release, visits
from stream_figures import write_rule
from support.attack_results import measured
from support.by_night import at_night

pytestmark = pytest.mark.unit


def stream_of(people: list[int], unchanged: list[float] | None = None) -> Stream:
    values = np.random.default_rng(4).normal(size=(len(people), 3))
    return Stream("made", values, np.array(people), np.array(unchanged or [0.0] * len(people)), 20, 40)


def random_people() -> list[int]:
    return [int(one) for one in np.random.default_rng(5).integers(12, size=900)]


@pytest.mark.parametrize(("fewest", "most"), [(2, 0), (5, 0), (2, 5), (5, 5), (5, 10)])
def test_each_person_keeps_as_many_candidates_as_the_bound_says(fewest: int, most: int) -> None:
    stream = stream_of(random_people())
    clusters, delay = release(stream, 5, 20, fewest, most)
    who = [set(stream.people[cluster].tolist()) for cluster in clusters]
    assert all(len(one) == len(cluster) >= 5 for one, cluster in zip(who, clusters, strict=True))
    left = [set.intersection(*(one for one in who if person in one)) for person in set().union(*who)]
    assert min(map(len, left)) >= fewest
    assert len(np.unique(np.concatenate(clusters))) == sum(map(len, clusters))
    assert max(cluster[-1] - cluster[0] for cluster in clusters) <= 20
    assert 0 < delay <= 20


def test_without_a_bound_it_is_rule_nearest() -> None:
    stream = stream_of(list(range(400)))
    found, _ = write_rule(stream.values, 5, 20, "nearest")
    expected = [one.tolist() for one in np.split(found.positions, found.cluster_bounds[1:-1])]
    assert [one.tolist() for one in release(stream, 5, 20, 0)[0]] == expected


def test_the_smoothest_chain_names_the_rows_of_a_person() -> None:
    # Person 0 moves from 1 to 2 to 3; the others of each cluster come once, and are far away.
    stream = stream_of([0, 1, 2, 3, 0, 4, 5, 6, 0], [1.0, 9.0, -9.0, 30.0, 2.0, -40.0, 60.0, -70.0, 3.0])
    clusters = [np.array([0, 1, 2]), np.array([3, 4, 5]), np.array([6, 7, 8])]
    # All of person 0, a third of six others; only person 0 is in several clusters, alone.
    assert found_by_chaining(stream, clusters) == pytest.approx(((1 + 6 / 3) / 7, 1.0, (1 + 6 / 3) / 7))


def test_companions_hide_a_person_unless_one_value_is_known() -> None:
    stream = stream_of([0, 1, 0, 1], [1.0, 5.0, 1.5, 5.0])
    clusters = [np.array([0, 1]), np.array([2, 3])]
    # The smoothest chain is that of person 1, for either of the two.
    assert found_by_chaining(stream, clusters) == (0.5, 1.0, 0.5)


@pytest.mark.parametrize(
    ("people", "delta", "fewest", "share"),
    [
        ([0, 1, 0, 1], 1, 2, 0.0),
        ([0, 1, 0, 2], 1, 2, 0.0),  # person 1 has a record within 1 of both records of person 0
        ([0, 1, 9, 9, 0, 2], 1, 2, 1 / 3),  # nobody has one within 1 of both records of person 0, nor of person 9
        ([0, 1, 0, 1], 1, 3, 1.0),
    ],
)
def test_what_no_rule_can_publish_worked_out_by_hand(people: list[int], delta: int, fewest: int, share: float) -> None:
    assert least_suppressed(np.array(people), delta, fewest) == pytest.approx(share)


@pytest.mark.parametrize("k", [5, *at_night(10)])
def test_a_person_is_followed_by_a_value_that_changes_slowly(k: int) -> None:
    stream = visits()
    found, _ = write_rule(stream.values, k, stream.delta, "awo" if k == 5 else "block", people=stream.people)
    rows, _, _ = found_by_chaining(stream, np.split(found.positions, found.cluster_bounds[1:-1]))
    measured(
        "R25",
        f"rows of a person chained by a value that changes slowly, 1,000 people with ten records, k = {k}",
        knows="all clusters of the target",
        success=rows,
        source="point 5: releases do not compose",
        beside=f"one cluster alone: {1 / k:.3f}; other ways: ADR 29",
    )
