"""Confidential values in the audit: spellings, and distances against their definitions."""

from __future__ import annotations

import json
import math
from collections import Counter
from decimal import Decimal
from itertools import accumulate

import highspy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.audit.confidential import (
    OrderedReference,
    equal_distance,
    hierarchical_distance,
    nearest,
)
from shoal.audit.fields import key_reader, number_of

pytestmark = pytest.mark.property

NUMBERS = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=6)
BLANKS = st.text(st.sampled_from(" \t\n\u00a0\u2003"), max_size=3)
SHARES = st.lists(st.integers(0, 9), min_size=6, max_size=6).filter(any)
LEAVES = tuple((leaf, leaf // 2, leaf // 4) for leaf in range(7))
"""Paths of a tree with three levels: 0 and 1 have a common parent, and 0 to 3 a common grandparent."""


def spelt(number: Decimal, zeros: int, shift: int) -> str:
    """Return another spelling: with zeros at the end, and with an exponent."""
    text = f"{number.scaleb(shift):f}"
    return (text if "." in text else f"{text}.") + "0" * (zeros + 1) + f"e{-shift}"


@given(NUMBERS, NUMBERS, st.integers(0, 4), st.integers(-8, 8), BLANKS, BLANKS)
def test_keys_are_equal_exactly_if_the_numbers_are(
    one: Decimal, other: Decimal, zeros: int, shift: int, before: str, after: str
) -> None:
    read = key_reader("any", ("",))
    key = read(json.dumps(f"{before}{spelt(one, zeros, shift)}{after}"))
    assert number_of(key) == one
    assert (key == read(json.dumps(f"{other:f}"))) == (one == other)


@given(st.text(max_size=6), BLANKS, BLANKS)
def test_blanks_around_a_text_make_no_other_value(text: str, before: str, after: str) -> None:
    read = key_reader("string", ("", "?"))
    assert read(json.dumps(before + text + after)) == read(json.dumps(text))


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([1, 1, 1 / 2, 1 / 3])), min_size=1, max_size=12), SHARES)
def test_the_ordered_distance_is_the_sum_over_the_steps(weighted: list[tuple[int, float]], shares: list[int]) -> None:
    bins, weights = [bin_ for bin_, _ in weighted], [weight for _, weight in weighted]
    own = np.bincount(bins, weights, 6) / sum(weights)
    steps = [abs(a - b / sum(shares)) for a, b in zip(accumulate(own.tolist()), accumulate(shares), strict=True)]
    found = OrderedReference([share / sum(shares) for share in shares]).distance(bins, weights)
    assert found == pytest.approx(sum(steps[:-1]) / 5, abs=1e-12)


def transported(own: dict[int, float], reference: dict[int, float], cost: list[list[float]]) -> float:
    """Return the least cost of moving one distribution to another, as a linear programme."""
    solver, n = highspy.Highs(), range(len(cost))  # type: ignore[no-untyped-call]
    solver.silent()
    moved = [[solver.addVariable(lb=0.0, obj=cost[i][j]) for j in n] for i in n]
    for i in n:
        solver.addConstr(sum(moved[i]) == own.get(i, 0.0))
        solver.addConstr(sum(moved[j][i] for j in n) == reference.get(i, 0.0))
    solver.run()
    return float(solver.getInfo().objective_function_value)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=8), st.lists(st.integers(0, 6), min_size=1, max_size=20))
def test_the_hierarchical_and_the_equal_distance_are_the_least_cost_of_transport(
    own: list[int], all_: list[int]
) -> None:
    counts, totals = Counter(own), Counter(all_)
    heights = [[next((h for h in range(3) if a[h] == b[h]), 3) / 3 for b in LEAVES] for a in LEAVES]
    apart = [[float(a != b) for b in range(7)] for a in range(7)]
    own_shares = {leaf: count / len(own) for leaf, count in counts.items()}
    shares = {leaf: count / len(all_) for leaf, count in totals.items()}
    paths = {LEAVES[leaf]: count for leaf, count in counts.items()}
    found = hierarchical_distance(paths, {LEAVES[leaf]: share for leaf, share in shares.items()})
    assert found == pytest.approx(transported(own_shares, shares, heights), abs=1e-9)
    names = {str(leaf): count for leaf, count in counts.items()}
    flat = equal_distance(names, {str(leaf): share for leaf, share in shares.items()})
    assert flat == pytest.approx(transported(own_shares, shares, apart), abs=1e-9)
    assert found <= flat + 1e-9


@given(NUMBERS, st.lists(NUMBERS, min_size=1, max_size=6, unique=True).map(sorted))
def test_no_listed_number_is_nearer(value: Decimal, listed: list[Decimal]) -> None:
    found = nearest(value, listed)
    distances = [abs(number - value) for number in listed]
    assert distances[found] == min(distances)
    assert distances.index(min(distances)) == found
    assert math.isfinite(float(value))
