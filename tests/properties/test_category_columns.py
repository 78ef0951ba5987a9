"""Streams with category columns, compared with plain Python on one coordinate per code, and their invariants."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.block import Mixed, NaivePartition
from oracle.growth import NaiveGrowth
from oracle.naive import Entry, NaiveStream, log_of
from oracle.partitions import loss, mdav
from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.kernels.sums import dense_coordinates
from shoal.streams import Decisions, StreamClusterer
from shoal.tables.descent import descend_dense, pair_squares
from shoal.tables.mdav import mdav_dense

pytestmark = pytest.mark.property

RULES = ("nearest", "greedy", "awo", "block")
N = TypeVar("N", bound=NaiveStream)


@dataclass(frozen=True)
class Setting:
    """A stream whose records have numbers, categories or both; ``cuts`` are the ends of its blocks."""

    rule: str
    k: int
    delta: int
    omega_p: float
    max_share: float
    numeric: Float64Matrix
    codes: Int64Matrix
    code_distances: Float64Vector
    agree: BoolVector
    subjects: Int64Vector
    cuts: list[int]

    def run(self, cuts: list[int], codes: Int64Matrix | None = None) -> list[Decisions]:
        stream = self.clusterer(self.numeric.shape[1], self.code_distances)
        used = self.codes if codes is None else codes
        calls = [
            stream.push(self.numeric[start:end], self.subjects[start:end], codes=used[start:end])
            for start, end in pairwise([0, *cuts, len(self.subjects)])
        ]
        return [*calls, stream.flush()]

    def clusterer(self, d: int, code_distances: Float64Vector | None = None) -> StreamClusterer:
        return StreamClusterer(
            self.k,
            self.delta,
            d,
            rule=self.rule,
            position=self.omega_p,
            max_share=self.max_share,
            code_distances=code_distances,
            codes_must_agree=None if code_distances is None else self.agree,
        )

    def points(self) -> Float64Matrix:
        return dense_coordinates(self.numeric, self.codes, self.code_distances)

    def feed(self, naive: N) -> N:
        for position, (x, subject) in enumerate(zip(self.points().tolist(), self.subjects.tolist(), strict=True)):
            naive.push(x, subject, position)
        return naive


@st.composite
def settings(
    draw: st.DrawFn, *, rules: tuple[str, ...] = RULES, ties: bool = True, least_k: int = 2, least_columns: int = 1
) -> Setting:
    """Streams with few and with many codes, and frequent subjects; with ``ties`` many distances are equal and exact."""
    k, n, c = draw(st.integers(least_k, 5)), draw(st.integers(1, 70)), draw(st.integers(least_columns, 4))
    p = draw(st.integers(0 if ties else 1, 2))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    many = draw(st.sampled_from([1, 2, 5, 100]))
    subjects = draw(st.sampled_from([k - 1, 2 * k, 10**6]))
    return Setting(
        rule=draw(st.sampled_from(rules)),
        k=k,
        delta=draw(st.integers(k - 1, 40)),
        omega_p=draw(st.sampled_from([0.0, 0.25])),
        max_share=draw(st.sampled_from([1 / k, 0.5, 1.0])),
        numeric=random.integers(0, 4, (n, p)) / 4 if ties else random.random((n, p)),
        codes=random.integers(-many, many, (n, c)) * draw(st.sampled_from([1, 2**40])),
        code_distances=random.choice([0.5, 2.0, 0.125], c) if ties else random.random(c),
        agree=random.random(c) < draw(st.sampled_from([0.0, 0.5])),
        subjects=random.integers(0, subjects, n) if subjects < 2**19 else np.arange(n),
        cuts=sorted(draw(st.lists(st.integers(0, n), max_size=4))),
    )


def clusters_of(log: list[Entry]) -> list[tuple[int, ...]]:
    return [members for kind, members, _, _ in log if kind == "cluster"]


@given(settings(ties=False))
def test_squared_distances_are_those_of_numbers_plus_those_of_columns(setting: Setting) -> None:
    points = setting.points()
    for i in range(len(points)):
        numeric = ((setting.numeric - setting.numeric[i]) ** 2).sum(axis=1)
        expected = numeric + (setting.codes != setting.codes[i]) @ setting.code_distances
        assert ((points - points[i]) ** 2).sum(axis=1) == pytest.approx(expected, abs=1e-12)


@given(settings(rules=("nearest",)))
def test_rule_nearest_decides_as_plain_python_on_one_coordinate_per_code(setting: Setting) -> None:
    naive = setting.feed(NaiveStream(setting.k, setting.delta, setting.omega_p, setting.max_share))
    naive.flush()
    assert log_of(setting.run(setting.cuts)) == naive.log


@given(settings(rules=("greedy", "awo"), ties=False))
def test_growth_rules_decide_as_plain_python_on_one_coordinate_per_code(setting: Setting) -> None:
    naive = NaiveGrowth(setting.k, setting.delta, setting.omega_p, setting.max_share)
    grows_as(setting.rule, naive)
    setting.feed(naive)
    assert log_of(setting.run(setting.cuts)[:-1]) == naive.log


def grows_as(rule: str, naive: NaiveGrowth) -> None:
    """Let clusters grow as under a rule; those of rule block grow as under awo."""
    if rule != "greedy":
        naive.opportunity_weight, naive.max_candidates = min(max(0.6 * math.log2(naive.k), 1.0), 2.5), 4 * naive.k


def partition_of(setting: Setting) -> NaivePartition:
    """Return a stream that starts and descends on one coordinate per code, and exchanges records in plain Python."""
    naive = NaivePartition(
        setting.k,
        setting.delta,
        setting.omega_p,
        setting.max_share,
        Mixed(*(one.tolist() for one in (setting.numeric, setting.codes, setting.code_distances / 2, setting.agree))),
        start=lambda points, k: mdav_dense(pair_squares(np.array(points)), k).tolist(),
        descend=lambda points, labels, k, subjects, max_share: descend_dense(
            pair_squares(np.array(points)), np.array(labels, np.int32), k, 100, np.array(subjects, np.int64), max_share
        ).tolist(),
        releases_all=setting.rule == "block",
    )
    grows_as(setting.rule, naive)
    return naive


PARTITIONED = settings(rules=("greedy", "awo", "block"), ties=False, least_k=3, least_columns=0)
"""With k = 2 it is the same to swap the first records of two pairs or the second ones."""


@given(PARTITIONED)
def test_partitions_of_held_records_are_those_of_one_coordinate_per_code(setting: Setting) -> None:
    """MDAV and descent are those on coordinates; repairs, exchanges for categories and merges are plain Python."""
    naive = partition_of(setting)
    setting.feed(naive)
    naive.flush()
    assert log_of(setting.run(setting.cuts)) == naive.log


def test_such_partitions_need_repairs_and_exchanges() -> None:
    def needs_both(setting: Setting) -> bool:
        naive = setting.feed(partition_of(setting))
        naive.flush()
        return naive.repairs > 0 and naive.exchanges > 0 and len(clusters_of(naive.log)) > 5

    any_example = hypothesis.settings(phases=[hypothesis.Phase.generate], derandomize=True, max_examples=200)
    assert needs_both(hypothesis.find(PARTITIONED, needs_both, settings=any_example))


@given(settings(ties=False))
def test_mdav_of_distances_is_mdav_of_coordinates(setting: Setting) -> None:
    points = setting.points()
    if len(points) < setting.k:
        return
    labels = mdav_dense(pair_squares(points), setting.k)
    found = [np.flatnonzero(labels == label).tolist() for label in range(labels.max() + 1)]
    table = points.tolist()
    expected = [sorted(cluster) for cluster in mdav(table, setting.k)]
    # At the end two records are equally far from the mean of both.
    assert found == expected or loss(table, found) == pytest.approx(loss(table, expected), rel=1e-9)


@given(settings())
def test_neither_blocks_nor_the_values_of_codes_change_decisions(setting: Setting) -> None:
    expected = log_of(setting.run(setting.cuts))
    assert log_of(setting.run(list(range(len(setting.subjects))))) == expected
    _, renamed = np.unique(setting.codes, return_inverse=True)
    assert log_of(setting.run(setting.cuts, 7 - 3 * renamed.reshape(setting.codes.shape))) == expected
