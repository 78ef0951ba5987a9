"""Streams with a minimum population and expiry limits, compared with plain Python."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.naive import NaiveStream, log_of
from shoal.arrays import Float64Matrix, Int64Matrix, Int64Vector
from shoal.streams import Decisions, StreamClusterer

pytestmark = pytest.mark.property


@dataclass(frozen=True)
class Setting:
    """A stream with options."""

    k: int
    delta: int
    max_share: float
    expiry_limits: list[int]
    population: int
    coordinates: Float64Matrix
    subjects: Int64Vector
    expiry_keys: Int64Matrix
    cuts: list[int]

    def clusterer(self) -> StreamClusterer:
        return StreamClusterer(
            self.k,
            self.delta,
            self.coordinates.shape[1],
            max_share=self.max_share,
            expiry_limits=self.expiry_limits,
            min_population=self.population,
        )

    def push(self, stream: StreamClusterer, chosen: slice | Int64Vector) -> Decisions:
        positions = np.arange(len(self.subjects))[chosen]
        return stream.push(self.coordinates[chosen], self.subjects[chosen], positions, self.expiry_keys[chosen])

    def run(self, cuts: list[int]) -> list[Decisions]:
        stream = self.clusterer()
        calls = [self.push(stream, slice(start, end)) for start, end in pairwise([0, *cuts, len(self.subjects)])]
        return [*calls, stream.flush()]

    def naive(self) -> NaiveStream:
        naive = NaiveStream(self.k, self.delta, 0.0, self.max_share, self.expiry_limits, self.population)
        for position, (x, subject, expiry_keys) in enumerate(
            zip(self.coordinates.tolist(), self.subjects.tolist(), self.expiry_keys.tolist(), strict=True)
        ):
            naive.push(x, subject, position, expiry_keys)
        return naive


@st.composite
def settings(draw: st.DrawFn) -> Setting:
    k = draw(st.integers(3, 5))
    n = draw(st.integers(0, 70))
    delta = draw(st.integers(k - 1, 25))
    columns = draw(st.integers(0, 2))

    def table(element: st.SearchStrategy[int], width: int) -> list[list[int]]:
        return draw(st.lists(st.lists(element, min_size=width, max_size=width), min_size=n, max_size=n))

    subjects = draw(st.sampled_from([k - 1, k + 1, 2 * k, 10**6]))
    return Setting(
        k=k,
        delta=delta,
        max_share=draw(st.sampled_from([1 / k, 0.5, 1.0])),
        expiry_limits=draw(st.lists(st.integers(0, 40), min_size=columns, max_size=columns)),
        population=draw(st.sampled_from([0, k, 2 * k])),
        coordinates=np.array(table(st.integers(0, 5), 2), np.float64).reshape(n, 2),
        subjects=np.array(draw(st.lists(st.integers(0, subjects), min_size=n, max_size=n)), np.int64),
        expiry_keys=np.cumsum(np.array(table(st.integers(0, 9), columns), np.int64).reshape(n, columns), axis=0),
        cuts=sorted(draw(st.lists(st.integers(0, n), max_size=4))),
    )


@given(settings())
def test_with_options_rule_nearest_decides_as_plain_python_for_any_blocks(setting: Setting) -> None:
    naive = setting.naive()
    naive.flush()
    assert log_of(setting.run(setting.cuts)) == naive.decisions.log
    assert log_of(setting.run(list(range(len(setting.subjects))))) == naive.decisions.log


@given(settings(), st.data())
def test_with_options_a_restart_with_the_held_records_decides_alike(setting: Setting, data: st.DataObject) -> None:
    n = len(setting.subjects)
    stop = data.draw(st.integers(0, max(0, n - 1)))  # a flush depends on the last record
    before, after = setting.clusterer(), setting.clusterer()
    setting.push(before, slice(0, stop))
    assert log_of([setting.push(after, before.held_positions())]) == []
    assert after.population == before.population
    expected = [setting.push(before, slice(stop, n)), before.flush()]
    assert log_of([setting.push(after, slice(stop, n)), after.flush()]) == log_of(expected)


@given(settings())
def test_no_clock_and_no_flush_releases_records_below_the_minimum_population(setting: Setting) -> None:
    subjects = setting.subjects.tolist()
    left: set[int] = set()
    ended = False
    for kind, members, cause, newest in log_of(setting.run(setting.cuts)):
        held = {subjects[position] for position in range(newest + 1) if position not in left}
        if cause == 1:
            assert len(held) >= setting.population
        if cause == -1 and not ended:
            ended = True
            assert kind == "suppressed" or len(held) >= setting.population
        left.update(members)
