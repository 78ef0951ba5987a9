"""A smoothed reference shows no value of few subjects, and a record more or less changes little."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from shoal.errors import InputError
from shoal.policy import Policy
from shoal.tables import SmoothedReference
from support.diversity_by_definition import weights_of
from support.reference_samples import Pair, policy_of, smooth

pytestmark = pytest.mark.property

SUBJECTS = st.integers(0, 40)
CATEGORIES = st.lists(st.tuples(SUBJECTS, st.sampled_from(["a", "b", "c", "d", None, "7"])), min_size=20, max_size=120)
NUMBERS = st.lists(
    st.tuples(SUBJECTS, st.one_of(st.integers(-50, 50), st.floats(-1e6, 1e6), st.sampled_from([0, 12.5, 1e12]))),
    min_size=20,
    max_size=120,
)
K = st.integers(2, 5)


def reference_of(policy: Policy, pairs: list[Pair], block_size: int = 1000) -> SmoothedReference:
    try:
        return smooth(policy, pairs, block_size)
    except InputError:
        assume(False)
        raise


def subjects_by_value(pairs: list[Pair]) -> dict[Any, set[int]]:
    found: defaultdict[Any, set[int]] = defaultdict(set)
    for subject, value in pairs:
        found[value].add(subject)
    return found


@given(CATEGORIES, K)
def test_each_category_is_that_of_k_subjects(pairs: list[Pair], k: int) -> None:
    found = reference_of(policy_of(k, type="string"), pairs)
    subjects, weights = subjects_by_value(pairs), weights_of(pairs)
    shown = {value for value, people in subjects.items() if len(people) >= k and weights[value] > Fraction(k, 2)}
    assert {row.text for row in found.rows} == shown
    assert found.left_out == len(subjects) - len(shown)
    for row in found.rows:
        assert row.subjects % k == 0
        assert abs(row.subjects - weights[row.text]) <= Fraction(k, 2)
    assert sum(row.units for row in found.rows) == 10_000
    total = sum(row.subjects for row in found.rows)
    assert all(abs(row.units / 10_000 - row.subjects / total) < 1e-4 for row in found.rows)


@given(CATEGORIES, K, st.data())
def test_a_record_less_changes_each_weight_of_its_subject_by_k_or_not_at_all(
    pairs: list[Pair], k: int, data: st.DataObject
) -> None:
    policy = policy_of(k, type="string")
    without = data.draw(st.integers(0, len(pairs) - 1))
    before = {row.text: row.subjects for row in reference_of(policy, pairs).rows}
    after = {row.text: row.subjects for row in reference_of(policy, pairs[:without] + pairs[without + 1 :]).rows}
    changed = {text for text in before | after if before.get(text, 0) != after.get(text, 0)}
    assert changed <= {value for subject, value in pairs if subject == pairs[without][0]}
    assert all(abs(before.get(text, 0) - after.get(text, 0)) == k for text in changed)


@given(NUMBERS, K)
def test_each_number_is_that_of_k_subjects_after_rounding(pairs: list[Pair], k: int) -> None:
    found = reference_of(policy_of(k, type="number"), pairs)
    values = [(Decimal(repr(value)), subject) for subject, value in pairs]
    for row in found.rows:
        assert row.text is not None
        number = Decimal(row.text)
        exact = {subject for value, subject in values if value == number}
        grids = [Decimal(step).scaleb(exponent) for exponent in range(-12, 14) for step in (1, 2, 5)]
        near = [
            {subject for value, subject in values if abs(value - number) <= grid / 2}
            for grid in grids
            if number % grid == 0
        ]
        assert len(exact) >= k or any(len(subjects) >= k for subjects in near)
        assert row.subjects % k == 0
    assert [Decimal(row.text or 0) for row in found.rows] == sorted({Decimal(row.text or 0) for row in found.rows})
    assert sum(row.units for row in found.rows) == 10_000


@given(st.one_of(NUMBERS, CATEGORIES), K, st.randoms(use_true_random=False))
def test_order_repetition_of_all_and_blocks_do_not_count(pairs: list[Pair], k: int, random: Any) -> None:
    policy = policy_of(k)
    first = reference_of(policy, pairs)
    shuffled = pairs * 2
    random.shuffle(shuffled)
    assert reference_of(policy, shuffled, block_size=7).rows == first.rows
