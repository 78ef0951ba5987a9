from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.audit.clusters import RecomputedCluster
from shoal.audit.fields import Texts
from shoal.audit.originals import Originals
from shoal.audit.releases import PartitionRows, ReleasedRows
from shoal.audit.rows import check_order, compare_rows
from shoal.audit.verdict import Check

pytestmark = pytest.mark.unit


def originals(unchanged: list[str]) -> Originals:
    n = len(unchanged)
    numbers = np.arange(n)
    return Originals(np.zeros((n, 1)), numbers, Texts(unchanged), np.zeros(n, np.int64), numbers, is_export=False)


def release(rows: list[tuple[str, str]], *, is_export: bool) -> ReleasedRows:
    found = PartitionRows()
    for line, (quasi, unchanged) in enumerate(rows, 1):
        found.add(line, f"{quasi},{unchanged}", quasi, unchanged)
    return ReleasedRows({0: found}, [], is_export)


def clusters(*parts: tuple[str, str]) -> list[RecomputedCluster]:
    """Make clusters of a centroid and the letters of a text, one per member."""
    found = []
    start = 0
    for number, (quasi, letters) in enumerate(parts):
        members = np.arange(start, start + len(letters))
        found.append(RecomputedCluster(0, number, members, quasi, list(letters)))
        start += len(letters)
    return found


def checks(
    text: str, *parts: tuple[str, str], is_export: bool = True, is_table: bool = False, keeps_order: bool = False
) -> dict[str, Check]:
    """Check rows written as "A:ab B:cd": centroid, then unchanged fields."""
    rows = [(group[0], letter) for group in text.split() for letter in group[2:]]
    given_rows, named = release(rows, is_export=is_export), clusters(*parts)
    known = [letter for _, letters in parts for letter in letters]
    counters = compare_rows(given_rows, named)
    counters += check_order(given_rows, named, originals(known), is_table=is_table, keeps_order=keeps_order)
    return {check.name: check.result() for check in counters}


def broken(found: dict[str, Check]) -> set[str]:
    return {name for name, check in found.items() if check.status == "broken"}


def test_members_of_a_cluster_must_show_the_same_quasi_identifiers() -> None:
    # The unchanged fields are in place; the centroids of two rows are exchanged.
    assert broken(checks("B:a A:b A:a B:b", ("A", "ab"), ("B", "ab"), is_export=False)) == {"together"}
    assert broken(checks("B:a A:b A:a B:b", ("A", "ab"), ("B", "ab"))) == {"together", "byte_order"}


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("A:ab C:ef B:cd D:gh E:ij", ("1",)),  # one cluster moved
        ("A:ab B:c C:ef D:gh E:ij", ("1",)),  # a row is missing
        ("A:ab X:z B:cd C:ef D:gh E:ij", ("1",)),  # a row that no cluster has
        ("A:ab X:z B:c C:ef D:gh E:i", ("1", "4")),
        ("A:ab B:cd C:ef D:gh", ("4",)),
        ("A:a B:c C:e D:g E:i", ("0", "1", "2", "3", "4")),
    ],
)
def test_clusters_after_a_misplaced_one_are_checked(text: str, places: tuple[str, ...]) -> None:
    parts = ("A", "ab"), ("B", "cd"), ("C", "ef"), ("D", "gh"), ("E", "ij")
    found = checks(text, *parts, is_export=False)["together"]
    assert found.examined == 5
    assert tuple(map(str, found.places)) == places
    assert found.note == ""


def test_a_table_in_byte_order_as_a_whole_may_mix_its_clusters() -> None:
    mixed = ("A", "abc"), ("A", "abc")
    assert broken(checks("A:aabbcc", *mixed, is_export=False)) == {"together"}
    found = checks("A:aabbcc", *mixed, is_export=False, is_table=True)
    assert broken(found) == set()
    assert found["together"].status == "not examined"
    assert found["byte_order"].status == "holds"
    assert "as a whole" in found["together"].note


def test_the_order_of_the_input_is_accepted_only_if_the_policy_allows_it() -> None:
    parts = ("A", "cab"), ("B", "zx")
    assert broken(checks("A:cab B:zx", *parts, is_export=False)) == {"byte_order"}
    found = checks("A:cab B:zx", *parts, is_export=False, is_table=True, keeps_order=True)
    assert found["byte_order"].status == found["together"].status == "not examined"
    assert broken(checks("A:cba B:zx", *parts, is_export=False, is_table=True, keeps_order=True)) == {"byte_order"}
    assert broken(checks("A:cab B:z", *parts, is_export=False, is_table=True, keeps_order=True)) == {
        "nothing_missing",
        "byte_order",
    }


def test_clusters_of_a_table_must_not_stand_one_after_the_other() -> None:
    parts = ("B", "cd"), ("A", "ab")
    assert broken(checks("B:cd A:ab", *parts, is_export=False)) == set()
    found = checks("B:cd A:ab", *parts, is_export=False, is_table=True)
    assert broken(found) == {"byte_order"}
    assert found["byte_order"].places == (3,)
    assert found["byte_order"].note == "the rows of a table must be in byte order as a whole"
    # The policy allows the order of the input, and this is another one.
    parts = ("B", "dc"), ("A", "ab")
    allowed = {"is_export": False, "is_table": True, "keeps_order": True}
    assert broken(checks("B:cd A:ab", *parts, **allowed)) == {"byte_order"}
    assert broken(checks("B:dc A:ab", *parts, **allowed)) == set()
    assert broken(checks("A:ab B:cd", *parts, **allowed)) == set()


def test_adjacent_clusters_with_equal_centroids_are_told_apart_by_their_rows() -> None:
    assert broken(checks("A:abcabd", ("A", "abd"), ("A", "abc"))) == set()
    assert broken(checks("A:xyyz B:q A:xyy", ("A", "xy"), ("A", "yz"), ("A", "xyy"), ("B", "q"))) == set()
    # There are two clusters, so the byte order descends once at most, and there are two runs at most.
    assert broken(checks("A:abcabdac", ("A", "abdac"), ("A", "abc"))) == {"byte_order"}
    assert broken(checks("A:abca B:q A:bd", ("A", "abd"), ("A", "abc"), ("B", "q"))) == {"byte_order"}
    assert broken(checks("A:abcdab", ("A", "abc"), ("A", "abd"))) == {"together"}
    assert broken(checks("A:abc B:q A:ab B:r A:d", ("A", "abd"), ("A", "abc"), ("B", "q"), ("B", "r"))) == {"together"}


PARTS = st.lists(st.tuples(st.sampled_from("AB"), st.text("xyz", min_size=1, max_size=5)), min_size=1, max_size=8)


@given(PARTS, st.randoms())
def test_any_order_of_whole_clusters_is_covered(parts: list[tuple[str, str]], chance: random.Random) -> None:
    parts = [(quasi, "".join(sorted(letters))) for quasi, letters in parts]
    shuffled = list(parts)
    chance.shuffle(shuffled)
    text = " ".join(f"{quasi}:{letters}" for quasi, letters in shuffled)
    assert broken(checks(text, *parts)) == set()
