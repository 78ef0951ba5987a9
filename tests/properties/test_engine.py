"""Stream rules compared with plain Python implementations, and their invariants on arbitrary streams."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.growth import NaiveGrowth
from oracle.naive import NaiveStream, log_of
from shoal.arrays import Float64Matrix, Int64Matrix, Int64Vector
from shoal.streams import Decisions, StreamClusterer

pytestmark = pytest.mark.property

RULES = ("nearest", "greedy", "awo", "block")


@dataclass(frozen=True)
class Setting:
    """A stream and its parameters; ``cuts`` are the ends of its blocks."""

    rule: str
    k: int
    delta: int
    omega_p: float
    max_share: float
    expiry_limits: list[int]
    population: int
    coordinates: Float64Matrix
    subjects: Int64Vector
    positions: Int64Vector
    expiry_keys: Int64Matrix
    cuts: list[int]

    def clusterer(self) -> StreamClusterer:
        return StreamClusterer(
            self.k,
            self.delta,
            self.coordinates.shape[1],
            rule=self.rule,
            position=self.omega_p,
            max_share=self.max_share,
            expiry_limits=self.expiry_limits,
            min_population=self.population,
        )

    def push(self, stream: StreamClusterer, start: int, end: int) -> Decisions:
        part = slice(start, end)
        return stream.push(self.coordinates[part], self.subjects[part], self.positions[part], self.expiry_keys[part])

    def run(self, cuts: list[int]) -> list[Decisions]:
        stream = self.clusterer()
        calls = [self.push(stream, start, end) for start, end in pairwise([0, *cuts, len(self.positions)])]
        return [*calls, stream.flush()]

    def naive(self) -> NaiveStream:
        return self.feed(
            NaiveStream(self.k, self.delta, self.omega_p, self.max_share, self.expiry_limits, self.population)
        )

    def feed(self, naive: NaiveStream) -> NaiveStream:
        columns = self.coordinates, self.subjects, self.positions, self.expiry_keys
        for record in zip(*(column.tolist() for column in columns), strict=True):
            naive.push(*record)
        return naive


@st.composite
def settings(
    draw: st.DrawFn, *, gaps: bool = True, largest: int = 80, rules: Sequence[str] = RULES, populous: bool = False
) -> Setting:
    """Streams with ties, constants, tiny and huge values, frequent subjects, and expiry keys that jump."""
    k = draw(st.integers(2, 6))
    d = draw(st.integers(1, 3))
    columns = draw(st.integers(0, 2))
    n = draw(st.integers(0, largest))
    lattice = st.integers(0, draw(st.sampled_from([0, 1, 3, 50])))
    value = draw(st.sampled_from([lattice, st.floats(-1, 1), st.floats(-1e12, 1e12)]))
    scale = draw(st.sampled_from([1.0, 1e-12, 1e12]))
    steps = st.integers(1, draw(st.sampled_from([1, 3])) if gaps else 1)

    def table(element: st.SearchStrategy[float] | st.SearchStrategy[int], width: int) -> list[list[float]]:
        row = st.lists(element, min_size=width, max_size=width)
        return draw(st.lists(row, min_size=n, max_size=n))

    subject = st.integers(0, draw(st.sampled_from([0, k - 1, 2 * k, 10**6])))
    shares = [1 / k, 0.5, 1.0]
    return Setting(
        rule=draw(st.sampled_from(rules)),
        k=k,
        delta=draw(st.integers(k - 1, 30)),
        omega_p=draw(st.sampled_from([0.0, 0.01, 1.0])),
        max_share=draw(st.sampled_from(shares)),
        expiry_limits=draw(st.lists(st.integers(0, 40), min_size=columns, max_size=columns)),
        population=draw(st.sampled_from([0, k, 2 * k])) if populous else 0,
        coordinates=np.array(table(value, d), np.float64).reshape(n, d) * scale,
        subjects=np.array(draw(st.lists(subject, min_size=n, max_size=n)), np.int64)
        * draw(st.sampled_from([1, -(2**40)])),
        positions=np.cumsum(draw(st.lists(steps, min_size=n, max_size=n)), dtype=np.int64),
        expiry_keys=np.cumsum(np.array(table(st.integers(0, 9), columns), np.int64).reshape(n, columns), axis=0),
        cuts=sorted(draw(st.lists(st.integers(0, n), max_size=5))),
    )


@given(settings(rules=["nearest"], populous=True))
def test_rule_nearest_decides_as_plain_python_for_any_blocks(setting: Setting) -> None:
    naive, stream = setting.naive(), setting.clusterer()
    setting.push(stream, 0, len(setting.positions))
    assert stream.held_positions().tolist() == [record["position"] for record in naive.buffer]
    naive.flush()
    assert log_of(setting.run(setting.cuts)) == naive.log
    assert log_of(setting.run(list(range(len(setting.positions))))) == naive.log


@given(settings(rules=["greedy", "awo"]))
def test_growth_rules_decide_as_plain_python(setting: Setting) -> None:
    naive = NaiveGrowth(setting.k, setting.delta, setting.omega_p, setting.max_share, setting.expiry_limits)
    if setting.rule == "awo":
        naive.opportunity_weight, naive.max_candidates = min(max(0.6 * math.log2(setting.k), 1.0), 2.5), 4 * setting.k
    setting.feed(naive)
    stream = setting.clusterer()
    decided = [setting.push(stream, start, end) for start, end in pairwise([0, *setting.cuts, len(setting.positions)])]
    assert log_of(decided) == naive.log


@given(settings(gaps=False))
def test_clusters_satisfy_all_constraints(setting: Setting) -> None:
    calls = setting.run(setting.cuts)
    subject_of = dict(zip(setting.positions.tolist(), setting.subjects.tolist(), strict=True))
    seen: list[int] = []
    for decided in calls:
        for cluster, (start, end) in enumerate(pairwise(decided.cluster_bounds.tolist())):
            members = decided.positions[start:end].tolist()
            subjects_of_members = [subject_of[position] for position in members]
            most = max(subjects_of_members.count(owner) for owner in subjects_of_members)
            assert members == sorted(members)
            assert len(set(subjects_of_members)) == decided.subjects[cluster] >= setting.k
            assert most == decided.max_per_subject[cluster] <= setting.max_share * len(subjects_of_members) + 1e-9
            assert decided.newest[cluster] - members[0] <= setting.delta
            seen += members
        assert (decided.suppressed_newest - decided.suppressed <= setting.delta).all()
        assert (np.diff(decided.suppressed_before) >= 0).all()
        seen += decided.suppressed.tolist()
    assert sorted(seen) == setting.positions.tolist()


@given(settings() | settings(gaps=False, rules=["nearest"], populous=True), st.data())
def test_a_restart_with_the_held_records_decides_alike(setting: Setting, data: st.DataObject) -> None:
    n = len(setting.positions)
    # With a minimum population, a flush depends on the last record.
    stop = data.draw(st.integers(0, max(0, n - 1) if setting.population else n))
    before, after = setting.clusterer(), setting.clusterer()
    setting.push(before, 0, stop)
    held = np.isin(setting.positions, before.held_positions())
    replayed = after.push(
        setting.coordinates[held], setting.subjects[held], setting.positions[held], setting.expiry_keys[held]
    )
    assert log_of([replayed]) == []
    assert after.population == before.population
    expected = [setting.push(before, stop, n), before.flush()]
    assert log_of([setting.push(after, stop, n), after.flush()]) == log_of(expected)
