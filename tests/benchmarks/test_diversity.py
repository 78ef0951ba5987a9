"""What the benchmark computes of l and t: figures worked out by hand, and bounds against every subset."""

from __future__ import annotations

from itertools import combinations

import pytest
from diversity import Found, distance, forced_by_distance, forced_by_values, found_in

pytestmark = pytest.mark.unit

SHARES = {"a": 0.5, "b": 0.25, "": 0.25}


def test_the_worst_cluster_in_each_respect() -> None:
    assert distance({"a": 2, "b": 1, "": 1}, SHARES) == 0.0
    assert distance({"c": 3}, SHARES) == 1.0
    assert distance({"a": 3, "b": 1}, SHARES) == 0.25
    assert found_in([["a", "a", "a", "b"], ["a", "b", ""], ["b", "b"]], SHARES) == Found(1, 1.0, 0.75)


def test_what_no_algorithm_can_release_by_values() -> None:
    # Only the records within 3 of the one b can be with it.
    values = ["a"] * 6 + ["b"] + ["a"] * 6
    assert forced_by_values(values, 3, 3, 2, 1.0) == pytest.approx(6 / 13)
    # Half of three records at most, so one a; there is one b.
    assert forced_by_values(values, 3, 3, 2, 0.5) == 1.0
    assert forced_by_values(values, 2, 12, 2, 0.5) == 0.0


@pytest.mark.parametrize("t", [0.0, 0.1, 0.25, 0.3, 0.5])
@pytest.mark.parametrize("values", ["aaabab", "abcabc", "aaaaaa", "bacbbb", "ccaabb"])
def test_what_no_algorithm_can_release_by_distance_against_every_subset(values: str, t: float) -> None:
    shares = {"a": 0.5, "b": 0.3, "c": 0.2}
    possible: set[int] = set()
    for size in range(2, 7):
        for members in combinations(range(6), size):
            chosen = [values[member] for member in members]
            if distance({value: chosen.count(value) for value in chosen}, shares) <= t + 1e-9:
                possible.update(members)
    assert forced_by_distance(values, 2, 6, t, shares) == pytest.approx(1.0 - len(possible) / 6)
