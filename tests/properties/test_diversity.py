"""Kernels of l-diversity and t-closeness against their definitions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from shoal.audit.confidential import PeopleOfValues, effective_values, is_recursive_diverse
from shoal.protection.diversity import (
    DISTINCT,
    ENTROPY,
    EQUAL,
    HIERARCHICAL,
    ORDERED,
    RECURSIVE,
    CountedValues,
    DiversityRule,
    LDiversity,
    ValueReference,
    build_diversity_rule,
    distance_of,
    empty_diversity_scratch,
    is_diverse,
    people_of,
)
from support.diversity_by_definition import (
    alone,
    assignable,
    entropy_of,
    is_recursive,
    least_transport,
    tree_height,
    value_share,
    weights_of,
)

pytestmark = pytest.mark.property

CODES = st.lists(st.integers(0, 5), min_size=1, max_size=14)
RECORDS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=14)
"""A person and a value."""


def keeps(rule: DiversityRule, records: Sequence[tuple[int, int]], members: Sequence[int] | None = None) -> bool:
    people, values = np.array(records, np.int64).T
    codes, own = np.ascontiguousarray(values)[None], np.arange(len(values)) if members is None else np.array(members)
    scratch = empty_diversity_scratch(len(values))
    found = bool(is_diverse(rule, codes, codes, np.ascontiguousarray(people), own, scratch))
    if len(set(people.tolist())) == len(people):
        assert bool(is_diverse(rule, codes, codes, people[:0], own, scratch)) == found
    return found


@st.composite
def references(draw: st.DrawFn) -> tuple[ValueReference, list[list[float]]]:
    """A reference of up to six bins, and the distances between them."""
    kind = draw(st.sampled_from([ORDERED, EQUAL, HIERARCHICAL]))
    weights = draw(st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any))
    m = len(weights)
    if kind == ORDERED:
        return ValueReference(kind, np.array(weights)), [
            [abs(i - j) / max(m - 1, 1) for j in range(m)] for i in range(m)
        ]
    if kind == EQUAL:
        return ValueReference(kind, np.array(weights)), [[float(i != j) for j in range(m)] for i in range(m)]
    levels = draw(st.integers(1, 3))
    paths = [list(range(m))]
    for _ in range(levels - 1):  # each level joins neighbouring nodes of the level below
        joins = draw(st.lists(st.booleans(), min_size=m, max_size=m))
        nodes = [0]
        for i in range(1, m):
            nodes.append(nodes[-1] + int(paths[-1][i] != paths[-1][i - 1] and joins[i]))
        paths.append(nodes)
    rows = np.array(paths).T
    heights = [[tree_height(one, other) / levels for other in rows.tolist()] for one in rows.tolist()]
    return ValueReference(kind, np.array(weights), rows), heights


@given(references(), st.data())
def test_distances_are_optima_of_the_linear_program(
    drawn: tuple[ValueReference, list[list[float]]], data: st.DataObject
) -> None:
    reference, distances = drawn
    m = len(reference.weights)
    bins = sorted(data.draw(st.lists(st.integers(0, m - 1), min_size=1, max_size=8)))
    rule = build_diversity_rule([ValueReference(EQUAL, np.ones(3)), reference], t=0.5)
    people = data.draw(st.lists(st.integers(0, 4), min_size=len(bins), max_size=len(bins)))
    weights = weights_of(list(zip(people, bins, strict=True)))
    supply = [float(weights.get(own, 0) / len(set(people))) for own in range(m)]
    demand = reference.weights / reference.weights.sum()
    expected = least_transport(supply, demand.tolist(), distances)
    of_each = 1 / np.array([people.count(person) for person in people])
    assert distance_of(rule, 1, np.array(bins), of_each, len(set(people))) == pytest.approx(expected, abs=1e-9)
    columns = np.zeros((2, len(bins)), np.int64), np.array([[0] * len(bins), bins])
    for t, is_close in ((expected + 1e-9, True), (expected - 1e-9, expected <= 0)):
        other = build_diversity_rule([reference], t=max(t, 0.0)) if t < 1 else None
        if other is not None:
            state = np.array(people), np.arange(len(bins)), empty_diversity_scratch(len(bins))
            assert bool(is_diverse(other, columns[0][:1], columns[1][1:], *state)) == is_close


@given(RECORDS | CODES.map(alone), st.integers(2, 5), st.sampled_from([0.3, 0.5, 1, 2, 3.5]), st.floats(0.05, 1))
def test_l_diversity_and_value_share_as_defined(
    records: list[tuple[int, int]],
    l: int,  # noqa: E741 - the letter of the literature
    c: float,
    share: float,
) -> None:
    rules = [(DISTINCT, l, 0.0), (RECURSIVE, l, c), (ENTROPY, l, 0.0)]
    entropy = entropy_of(records)
    expected = [
        assignable(records) >= l,
        is_recursive(records, c, l),
        entropy >= math.log(l) - 1e-11,
    ]
    people, values = np.array(records, np.int64).T
    counted = CountedValues(values, people_of(np.zeros(len(values), np.int64), people))
    judged = PeopleOfValues(list(map(str, values)), people.tolist())
    for given_l, is_kept in zip(rules, expected, strict=True):
        assert keeps(build_diversity_rule(l=LDiversity(*given_l)), records) == is_kept
        assert bool(counted.satisfy(LDiversity(*given_l))[0]) == is_kept
    assert (judged.assignable >= l, is_recursive_diverse(judged, c, l)) == tuple(expected[:2])
    assert math.log(effective_values(judged)) == pytest.approx(entropy, abs=1e-12)
    assert counted.distinct.tolist() == [judged.assignable] == [assignable(records)]
    assert Fraction(int(counted.largest[0]), judged.people) == value_share(records)
    assert Fraction(judged.largest, judged.people) == value_share(records)
    assume(abs(value_share(records) - share) > 1e-9)
    assert keeps(build_diversity_rule(max_value_share=share), records) == (value_share(records) <= share)


@given(RECORDS | CODES.map(alone), st.permutations(range(6)), st.permutations(range(14)), st.permutations(range(14)))
def test_the_result_depends_on_equality_of_codes_only(
    records: list[tuple[int, int]], numbers: list[int], people: list[int], order: list[int]
) -> None:
    """Neither on the codes of values and people, nor, beyond rounding, on the order of the records."""
    renamed = [(7 * people[person] - 50, 100 - 7 * numbers[value]) for person, value in records]
    shuffled = [x for x in order if x < len(records)]
    for least in (entropy_of(records) + step for step in (-2e-12, -1e-12, 0.0, 1e-12)):
        rule = build_diversity_rule(l=LDiversity(ENTROPY, math.exp(least)))
        assert keeps(rule, records) == keeps(rule, renamed)
    for l in (2, 3):  # noqa: E741 - the letter of the literature
        rule = build_diversity_rule(l=LDiversity(RECURSIVE, l, 1.5), max_value_share=0.6)
        assert keeps(rule, records) == keeps(rule, renamed) == keeps(rule, renamed, shuffled)


@given(RECORDS, st.integers(1, 4))
def test_no_guess_about_a_person_is_right_for_more_than_the_share(records: list[tuple[int, int]], k: int) -> None:
    """Whoever the attacker looks for, and whichever value is guessed: right for at most the share of the people."""
    people = {person for person, _ in records}
    for share in (0.3, 0.5, 0.75):
        if len(people) >= k and keeps(build_diversity_rule(max_value_share=share), records):
            for guess in {value for _, value in records}:
                right = [person for person in people if (person, guess) in records]
                assert len(right) <= share * len(people) + 1e-9
