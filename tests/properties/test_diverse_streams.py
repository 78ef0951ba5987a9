"""Streams under l-diversity, t-closeness and a largest share of one value, checked by their plain definitions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from oracle.diverse import NaiveDiverse, NaiveProtection
from oracle.naive import log_of
from shoal.arrays import Float64Matrix, Int64Matrix, Int64Vector
from shoal.protection.diversity import (
    DISTINCT,
    ENTROPY,
    EQUAL,
    HIERARCHICAL,
    ORDERED,
    RECURSIVE,
    DiversityRule,
    LDiversity,
    ValueReference,
    build_diversity_rule,
)
from shoal.streams import Decisions, StreamClusterer
from shoal.streams.steering import TargetSpan
from shoal.tables import ClusterConstraints, ConfidentialAttribute, microaggregate
from support.diversity_by_definition import (
    Record,
    assignable,
    entropy_of,
    is_recursive,
    people_in,
    value_share,
    weights_of,
)

pytestmark = pytest.mark.property

PATHS = np.array([[0, 0], [1, 0], [2, 1], [3, 1]])
KINDS = [None, *(LDiversity(*one) for one in ((DISTINCT, 2), (DISTINCT, 3), (ENTROPY, 1.8), (RECURSIVE, 2, 2.0)))]


@dataclass(frozen=True)
class Options:
    """What else a stream can have: a clock, a minimum population, a category, a target of the span."""

    limit: int
    population: int
    span: float | None
    times: Int64Matrix
    codes: Int64Matrix

    def parameters(self) -> dict[str, Any]:
        return {
            "expiry_limits": [self.limit],
            "min_population": self.population,
            "code_distances": np.array([0.25]),
            "position": 0.0 if self.span is None else TargetSpan(self.span),
        }

    def block(self, chosen: slice) -> dict[str, Any]:
        return {"expiry_keys": self.times[chosen], "codes": self.codes[chosen]}


@dataclass(frozen=True)
class Setting:
    """A stream of records with q protected attributes of four values each."""

    k: int
    delta: int
    rule: str
    l: LDiversity | None  # noqa: E741
    max_value_share: float
    t: float
    distances: list[int]
    shares: list[float]
    coordinates: Float64Matrix
    subjects: Int64Vector
    values: Int64Matrix
    cuts: list[int]
    options: Options | None = None

    def diversity(self) -> DiversityRule:
        references = [
            ValueReference(distance, np.array(self.shares), PATHS if distance == HIERARCHICAL else None)
            for distance in self.distances
        ]
        return build_diversity_rule(references, l=self.l, max_value_share=self.max_value_share, t=self.t)

    def run(self, cuts: Sequence[int], values: Int64Matrix | None = None) -> list[Decisions]:
        stream = StreamClusterer(
            self.k,
            self.delta,
            2,
            rule=self.rule,
            diversity=self.diversity(),
            protected=len(self.distances),
            **(self.options.parameters() if self.options else {}),
        )
        codes = self.values if values is None else values
        calls = [
            stream.push(
                self.coordinates[start:end],
                self.subjects[start:end],
                values=codes[start:end],
                bins=self.values[start:end],
                **(self.options.block(slice(start, end)) if self.options else {}),
            )
            for start, end in pairwise([0, *cuts, len(self.subjects)])
        ]
        return [*calls, stream.flush()]

    def satisfies(self, members: list[int]) -> bool:
        """Whether the people of a cluster satisfy the rule, from the definitions."""
        for attribute, distance in enumerate(self.distances):
            column = self.values[members, attribute].tolist()
            records = list(zip(self.subjects[members].tolist(), column, strict=True))
            if value_share(records) > self.max_value_share + 1e-9 or not has_diversity(records, self.l):
                return False
            weights, people = weights_of(records), people_in(records)
            differences = [float(weights.get(value, 0) / people) - self.shares[value] for value in range(4)]
            if distance_of(distance, differences) > self.t + 1e-9:
                return False
        return True


def has_diversity(records: list[Record], l: LDiversity | None) -> bool:  # noqa: E741
    if l is None:
        return True
    if l.kind == DISTINCT:
        return assignable(records) >= l.l
    if l.kind == ENTROPY:
        return entropy_of(records) >= math.log(l.l) - 1e-9
    return is_recursive(records, l.c, int(l.l))


def distance_of(distance: int, differences: list[float]) -> float:
    if distance == ORDERED:
        return sum(abs(sum(differences[: end + 1])) for end in range(3)) / 3
    apart = sum(map(abs, differences)) / 2
    if distance == EQUAL:
        return apart
    above = abs(differences[0] + differences[1]) + abs(differences[2] + differences[3])
    return (apart + above / 2) / 2


@st.composite
def settings(draw: st.DrawFn) -> Setting:
    n, q, k = draw(st.integers(0, 60)), draw(st.integers(1, 2)), draw(st.integers(2, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shares = draw(st.sampled_from([[0.25, 0.25, 0.25, 0.25], [0.6, 0.2, 0.1, 0.1], [0.5, 0.0, 0.25, 0.25]]))
    subjects = random.integers(0, draw(st.sampled_from([4, 10, 1 << 40])), n)
    return Setting(
        k=k,
        delta=draw(st.integers(max(k - 1, 2), 30)),
        rule=draw(st.sampled_from(["nearest", "greedy", "awo", "block"])),
        l=draw(st.sampled_from(KINDS)),
        max_value_share=draw(st.sampled_from([1.0, 0.5, 0.34])),
        t=draw(st.sampled_from([1.0, 0.55, 0.31])),
        distances=draw(st.lists(st.sampled_from([ORDERED, EQUAL, HIERARCHICAL]), min_size=q, max_size=q)),
        shares=shares,
        coordinates=random.integers(0, 5, (n, 2)) / 4,
        subjects=subjects,
        values=random.choice(4, (n, q), p=shares),
        cuts=sorted(draw(st.lists(st.integers(0, n), max_size=3))),
    )


@st.composite
def settings_with_options(draw: st.DrawFn) -> Setting:
    setting = draw(settings())
    n = len(setting.subjects)
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    options = Options(
        limit=draw(st.sampled_from([5, 20, 1000])),
        population=draw(st.sampled_from([0, setting.k, 2 * setting.k])),
        span=draw(st.sampled_from([None, 2.0])),
        times=np.cumsum(random.integers(0, 4, (n, 1)), axis=0),
        codes=random.integers(0, 3, (n, 1)),
    )
    population = min(options.population, setting.delta)
    return replace(setting, options=replace(options, population=population))


def clusters_of(calls: list[Decisions]) -> list[list[int]]:
    return [
        decided.positions[start:end].tolist()
        for decided in calls
        for start, end in pairwise(decided.cluster_bounds.tolist())
    ]


@given(settings() | settings_with_options())
def test_every_cluster_satisfies_the_rule_and_every_record_is_decided(setting: Setting) -> None:
    calls = setting.run(setting.cuts)
    for members in clusters_of(calls):
        subjects = Counter(setting.subjects[members].tolist())
        assert setting.satisfies(members)
        assert len(subjects) >= setting.k
        assert max(subjects.values()) <= 0.5 * len(members)
    decided = [position for call in calls for position in [*call.positions.tolist(), *call.suppressed.tolist()]]
    assert sorted(decided) == list(range(len(setting.subjects)))
    assert log_of(calls) == log_of(setting.run([]))


@given(settings(), st.permutations(range(4)))
def test_decisions_depend_neither_on_cuts_nor_on_codes(setting: Setting, codes: list[int]) -> None:
    expected = log_of(setting.run([]))
    assert log_of(setting.run(setting.cuts)) == expected
    renamed = np.array(codes)[setting.values] * 1_000_003 - 7 if len(setting.values) else setting.values
    assert log_of(setting.run(setting.cuts, renamed)) == expected


@given(settings())
def test_a_stream_that_is_only_flushed_equals_the_table(setting: Setting) -> None:
    assume(setting.l is not None or setting.t < 1 or setting.max_value_share < 1)  # else nothing is protected
    n = len(setting.subjects)
    stream = StreamClusterer(
        setting.k, 60, 2, rule=setting.rule, diversity=setting.diversity(), protected=len(setting.distances)
    )
    assert not len(stream.push(setting.coordinates, np.arange(n), values=setting.values, bins=setting.values).positions)
    attributes = tuple(
        ConfidentialAttribute(
            setting.values[:, attribute],
            ordered=False,
            reference=ValueReference(distance, np.array(setting.shares), PATHS if distance == HIERARCHICAL else None),
        )
        for attribute, distance in enumerate(setting.distances)
    )
    constraints = ClusterConstraints(
        confidential=attributes,
        t=setting.t if setting.t < 1 else None,
        l=setting.l,
        # As the stream does: a table with a limit, even of 1, also exchanges records, and may lose less.
        max_value_share=setting.max_value_share if setting.max_value_share < 1 else None,
    )
    if n < setting.k or not setting.satisfies(list(range(n))):
        return  # a table is refused then, and a stream releases what it can
    algorithm = "auto" if setting.t < 1 else "mdav"
    labels = microaggregate(setting.coordinates, setting.k, algorithm, "descent", constraints=constraints)
    expected = sorted(np.flatnonzero(labels == label).tolist() for label in range(labels.max() + 1))
    assert sorted(clusters_of([stream.flush()])) == expected


@given(settings())
def test_a_rule_that_every_cluster_satisfies_changes_nothing_before_the_end(setting: Setting) -> None:
    rule, q = build_diversity_rule(max_value_share=1 - 1e-12), len(setting.distances)
    loose = StreamClusterer(setting.k, setting.delta, 2, rule=setting.rule, diversity=rule, protected=q)
    plain = StreamClusterer(setting.k, setting.delta, 2, rule=setting.rule)
    distinct = np.arange(len(setting.subjects))
    one = loose.push(setting.coordinates, distinct, values=setting.values)
    assert log_of([one]) == log_of([plain.push(setting.coordinates, distinct)])


@given(settings())
def test_rule_nearest_decides_as_plain_python_does(setting: Setting) -> None:
    setting = replace(setting, rule="nearest")
    names = {None: "none", DISTINCT: "distinct", ENTROPY: "entropy", RECURSIVE: "recursive"}
    kind, number, c = setting.l or (None, 0.0, 0.0)
    distances = [{ORDERED: "ordered", EQUAL: "equal", HIERARCHICAL: "tree"}[one] for one in setting.distances]
    shares = [setting.shares] * len(distances)
    protection = NaiveProtection(
        names[kind], number, c, setting.max_value_share, setting.t, distances, shares, PATHS.tolist()
    )
    naive = NaiveDiverse(setting.k, setting.delta, protection)
    records = zip(setting.coordinates.tolist(), setting.subjects.tolist(), setting.values.tolist(), strict=True)
    for position, (x, subject, values) in enumerate(records):
        naive.push(x, subject, position, (), values)
    assert log_of(setting.run(setting.cuts)[:-1]) == naive.log
