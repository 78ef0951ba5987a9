"""The small kernels, each against a line of plain Python."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from shoal.clustering.numba.exact_sums import sum_clusters
from shoal.clustering.numba.heaps import build, sink
from shoal.clustering.numba.subject_codes import clear, count_up_to, empty_numbering, number
from shoal.clustering.stream.held_records import (
    HEAD,
    TAIL,
    append_next,
    empty_decision_buffer,
    empty_held,
    release,
    suppress,
)

pytestmark = pytest.mark.unit


def test_a_heap_gives_records_by_distance_and_the_older_first() -> None:
    random = np.random.default_rng(1)
    distances = random.integers(0, 4, 40).astype(np.float64)
    heap = random.permutation(40)
    build(heap, distances)
    given = []
    for left in range(40, 0, -1):
        given.append(int(heap[0]))
        heap[0] = heap[left - 1]
        sink(heap, left - 1, 0, distances)
    assert given == sorted(range(40), key=lambda x: (distances[x], x))


def test_subjects_are_numbered_as_they_come_and_forgotten_at_once() -> None:
    numbering = empty_numbering(50)
    codes = [7, -7, 2**62, -(2**62), 7, 0, 64, 128, 192, 64]  # the last ones meet in one slot
    for _ in range(2):
        numbers = [number(numbering, code) for code in codes]
        assert numbers == [0, 1, 2, 3, 0, 4, 5, 6, 7, 5]
        clear(numbering)
        assert not numbering.slots.any()


@pytest.mark.parametrize(("enough", "counted"), [(1, 1), (2, 2), (3, 3), (4, 3), (100, 3)])
def test_subjects_are_counted_no_further_than_needed(enough: int, counted: int) -> None:
    numbering = empty_numbering(10)
    assert count_up_to(numbering, np.array([5, 5, 6, 7, 5]), enough) == counted
    assert not numbering.slots.any()


@pytest.mark.parametrize("members", [[0], [0, 1, 2], [0, 9], [0, 3, 4, 8], [0, 40], [0, 20, 299]])
def test_those_who_stay_keep_their_order_and_all_their_columns(members: list[int]) -> None:
    held, decisions = empty_held(400, 2, 1), empty_decision_buffer(400)
    held.extent[:] = 5, 305
    for scale, column in enumerate([held.positions, held.subjects, *held.expiry_keys, *held.coordinates], 1):
        column[:] = np.arange(400) * scale
    release(held, decisions, np.array(members), 999, 3)
    staying = np.delete(np.arange(5, 305), members)
    live = slice(held.extent[HEAD], held.extent[TAIL])
    for scale, column in enumerate([held.positions, held.subjects, *held.expiry_keys, *held.coordinates], 1):
        assert column[live].tolist() == (staying * scale).tolist()
    assert decisions.positions[: len(members)].tolist() == [5 + member for member in members]
    assert decisions.clusters[:, 0].tolist() == [len(members), 3, 999]
    assert decisions.counts.tolist() == [1, len(members), 0]


def test_a_suppressed_record_is_told_with_its_place_among_the_clusters() -> None:
    held, decisions = empty_held(10, 1, 0), empty_decision_buffer(10)
    held.positions[:4] = 10, 11, 12, 13
    assert [append_next(held) for _ in range(4)] == [10, 11, 12, 13]
    release(held, decisions, np.array([0, 1]), 13, 0)
    suppress(held, decisions, 13, -1)
    assert decisions.suppressed[:, 0].tolist() == [12, -1, 13, 1]
    assert held.extent.tolist() == [3, 4]


@pytest.mark.parametrize(
    ("values", "exact"),
    [
        ([0.1] * 10, True),
        ([1e16, 1.0, -1e16], True),
        ([1e300, 1.0, 1e-300, -1e300], False),
        ([5e-324, -5e-324, 5e-324], True),
        ([-0.0, -0.0], True),
    ],
)
def test_a_sum_is_exact_or_says_that_it_is_not(values: list[float], exact: bool) -> None:  # noqa: FBT001
    totals, rests, trusted = np.empty((1, 1)), np.empty((1, 1)), np.empty((1, 1), np.bool_)
    sum_clusters(np.array(values).reshape(-1, 1), np.array([0, len(values)]), totals, rests, trusted)
    assert trusted[0, 0] == exact
    if exact:
        assert totals[0, 0] == math.fsum(values)
        assert Fraction(totals[0, 0]) + Fraction(rests[0, 0]) == sum(map(Fraction, values))
        assert math.copysign(1.0, totals[0, 0]) == 1.0 or totals[0, 0] < 0


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_a_sum_that_overflows_is_not_trusted() -> None:
    totals, trusted = np.empty((1, 1)), np.empty((1, 1), np.bool_)
    sum_clusters(np.full((2, 1), 1.7e308), np.array([0, 2]), totals, np.empty((1, 1)), trusted)
    assert not trusted[0, 0]
