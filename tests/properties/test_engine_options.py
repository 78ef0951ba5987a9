"""Streams with the p % rule, a minimum population and expiry limits, compared with plain Python."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.naive import NaiveDominance, NaiveStream, log_of
from shoal.arrays import Float64Matrix, Int64Matrix, Int64Vector
from shoal.streams import Decisions, StreamClusterer
from shoal.streams.dominance import Dominance

pytestmark = pytest.mark.property


@dataclass(frozen=True)
class Setting:
    """A stream with options; ``points`` are reference points of each amount, ``percent`` is 0 without dominance."""

    k: int
    delta: int
    max_share: float
    expiry_limits: list[int]
    population: int
    percent: int
    points: list[list[float]]
    coordinates: Float64Matrix
    amounts: Float64Matrix
    subjects: Int64Vector
    expiry_keys: Int64Matrix
    cuts: list[int]

    def clusterer(self) -> StreamClusterer:
        rule = Dominance(self.percent / 100, np.array(self.points, np.float64))
        return StreamClusterer(
            self.k,
            self.delta,
            self.coordinates.shape[1],
            max_share=self.max_share,
            expiry_limits=self.expiry_limits,
            min_population=self.population,
            dominance=rule if self.percent else None,
        )

    def push(self, stream: StreamClusterer, chosen: slice | Int64Vector) -> Decisions:
        positions = np.arange(len(self.subjects))[chosen]
        amounts = self.amounts[chosen] if self.percent else None
        return stream.push(
            self.coordinates[chosen], self.subjects[chosen], positions, self.expiry_keys[chosen], amounts
        )

    def run(self, cuts: list[int]) -> list[Decisions]:
        stream = self.clusterer()
        calls = [self.push(stream, slice(start, end)) for start, end in pairwise([0, *cuts, len(self.subjects)])]
        return [*calls, stream.flush()]

    def naive(self) -> NaiveStream:
        rule = NaiveDominance(self.percent / 100, self.points) if self.percent else None
        naive = NaiveStream(self.k, self.delta, 0.0, self.max_share, self.expiry_limits, self.population, rule)
        for position, (x, subject, expiry_keys, amounts) in enumerate(
            zip(
                self.coordinates.tolist(),
                self.subjects.tolist(),
                self.expiry_keys.tolist(),
                self.amounts.tolist(),
                strict=True,
            )
        ):
            naive.push(x, subject, position, expiry_keys, amounts)
        return naive


@st.composite
def settings(draw: st.DrawFn) -> Setting:
    """Streams with few distinct amounts, most of them at a reference point, and one outlier."""
    k = draw(st.integers(3, 5))
    n = draw(st.integers(0, 70))
    wide = draw(st.integers(1, 2))
    delta = draw(st.integers(k - 1, 25))
    columns = draw(st.integers(0, 2))
    amount = st.sampled_from([0.0, 0.0, 0.0, 1.0, 2.0, 5.0, 40.0, 1000.0])
    point = st.sampled_from([0.0, 1000.0, -3.0])

    def table(element: st.SearchStrategy[float] | st.SearchStrategy[int], width: int) -> list[list[float]]:
        return draw(st.lists(st.lists(element, min_size=width, max_size=width), min_size=n, max_size=n))

    subjects = draw(st.sampled_from([k - 1, k + 1, 2 * k, 10**6]))
    points = draw(st.integers(1, 3))
    return Setting(
        k=k,
        delta=delta,
        max_share=draw(st.sampled_from([1 / k, 0.5, 1.0])),
        expiry_limits=draw(st.lists(st.integers(0, 40), min_size=columns, max_size=columns)),
        population=draw(st.sampled_from([0, k, 2 * k])),
        percent=draw(st.sampled_from([0, 10, 50])),
        points=draw(st.lists(st.lists(point, min_size=points, max_size=points), min_size=wide, max_size=wide)),
        coordinates=np.array(table(st.integers(0, 5), 2), np.float64).reshape(n, 2),
        amounts=np.array(table(amount, wide), np.float64).reshape(n, wide),
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
def test_no_contribution_can_be_estimated_within_p_percent(setting: Setting) -> None:
    if not setting.percent:
        return
    for kind, members, _, _ in log_of(setting.run(setting.cuts)):
        if kind != "cluster":
            continue
        for number, points in enumerate(setting.points):
            for point in points:
                totals: dict[int, Fraction] = {}
                for member in members:
                    subject = int(setting.subjects[member])
                    amount = abs(Fraction(setting.amounts[member, number]) - Fraction(point))
                    totals[subject] = totals.get(subject, Fraction()) + amount
                *rest, second, largest = sorted(totals.values())
                known_to_second = sum(totals.values()) - second
                assert known_to_second >= largest * Fraction(100 + setting.percent, 100)
                assert sum(rest) >= 0


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
