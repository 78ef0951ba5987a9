"""Kernels of l-diversity and t-closeness against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
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
    distance_of,
    empty_diversity_scratch,
    is_diverse,
)
from support.diversity_by_definition import entropy_of, is_recursive, least_transport, tree_height, value_share

pytestmark = pytest.mark.property

CODES = st.lists(st.integers(0, 5), min_size=1, max_size=14)


def keeps(rule: DiversityRule, values: list[int], bins: list[int] | None = None) -> bool:
    scratch = empty_diversity_scratch(len(values))
    columns = np.array([values]), np.array([values if bins is None else bins])
    return bool(is_diverse(rule, *columns, np.arange(len(values)), scratch))


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
    supply = np.bincount(bins, minlength=m) / len(bins)
    demand = reference.weights / reference.weights.sum()
    expected = least_transport(supply.tolist(), demand.tolist(), distances)
    assert distance_of(rule, 1, np.array(bins)) == pytest.approx(expected, abs=1e-9)


@given(CODES, st.integers(2, 5), st.sampled_from([0.3, 0.5, 1, 2, 3.5]), st.floats(0.05, 1))
def test_l_diversity_and_value_share_as_defined(codes: list[int], l: int, c: float, share: float) -> None:  # noqa: E741
    assert keeps(build_diversity_rule(l=LDiversity(DISTINCT, l)), codes) == (len(set(codes)) >= l)
    assert keeps(build_diversity_rule(l=LDiversity(RECURSIVE, l, c)), codes) == is_recursive(codes, c, l)
    entropy = entropy_of(codes)
    assert keeps(build_diversity_rule(l=LDiversity(ENTROPY, l)), codes) == (entropy >= math.log(l) - 1e-11)
    assume(abs(value_share(codes) - share) > 1e-9)
    assert keeps(build_diversity_rule(max_value_share=share), codes) == (value_share(codes) <= share)


@given(CODES, st.permutations(range(6)), st.permutations(range(14)))
def test_the_result_depends_on_equality_of_codes_only(codes: list[int], numbers: list[int], order: list[int]) -> None:
    renamed = [100 - 7 * numbers[codes[x]] for x in order if x < len(codes)]
    for least in (entropy_of(codes) + step for step in (-2e-12, -1e-12, 0.0, 1e-12)):
        rule = build_diversity_rule(l=LDiversity(ENTROPY, math.exp(least)))
        assert keeps(rule, codes) == keeps(rule, renamed)
    for l in (2, 3):  # noqa: E741 - the letter of the literature
        rule = build_diversity_rule(l=LDiversity(RECURSIVE, l, 1.5), max_value_share=0.6)
        assert keeps(rule, codes) == keeps(rule, renamed)
