from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.audit.check_counter import Check
from shoal.audit.clusters import RecomputedCluster
from shoal.audit.originals import Originals
from shoal.audit.releases import ReleasedRows, Rows
from shoal.audit.rows import compare_rows, judge_order

pytestmark = pytest.mark.unit


def originals(kept: list[str | None]) -> Originals:
    n = len(kept)
    numbers = np.arange(n)
    return Originals(np.zeros((n, 1)), numbers, kept, np.zeros(n, np.int64), numbers, wrapped=False)


def release(rows: list[tuple[str, str]], *, wrapped: bool) -> ReleasedRows:
    part = Rows()
    for line, (quasi, kept) in enumerate(rows, 1):
        part.add(line, f"{quasi},{kept}", quasi, kept)
    return ReleasedRows({0: part}, [], wrapped)


def clusters(*parts: tuple[str, str]) -> list[RecomputedCluster]:
    """Clusters of one centroid and the letters of a text."""
    found = []
    start = 0
    for number, (quasi, letters) in enumerate(parts):
        found.append(RecomputedCluster(0, number, tuple(range(start, start + len(letters))), quasi, list(letters)))
        start += len(letters)
    return found


def checks(text: str, *parts: tuple[str, str], wrapped: bool = True, keeps_order: bool = False) -> dict[str, Check]:
    """Judge rows written as "A:ab B:cd"."""
    rows = [(group[0], letter) for group in text.split() for letter in group[2:]]
    given_rows, named = release(rows, wrapped=wrapped), clusters(*parts)
    known: list[str | None] = [letter for _, letters in parts for letter in letters]
    tallies = compare_rows(given_rows, named)
    tallies += judge_order(given_rows, named, originals(known), keeps_order=keeps_order)
    return {tally.name: tally.check() for tally in tallies}


def broken(found: dict[str, Check]) -> set[str]:
    return {name for name, check in found.items() if check.status == "broken"}


def test_rows_are_compared_as_a_multiset() -> None:
    assert broken(checks("A:aab", ("A", "aba"))) == set()
    found = checks("A:aab", ("A", "abb"))
    assert broken(found) == {"nothing_else", "nothing_missing", "together"}
    assert found["nothing_else"].places == (1,)
    assert found["nothing_missing"].places == (0,)


def test_the_first_few_rows_too_many_are_named() -> None:
    found = checks("A:" + "x" * 30, ("A", "x"))
    assert found["nothing_else"].failed == 29
    assert len(found["nothing_else"].places) == 10


def test_clusters_of_a_topic_may_stand_in_any_order() -> None:
    assert broken(checks("B:cd A:ab", ("A", "ab"), ("B", "cd"))) == set()


def test_clusters_of_a_file_stand_in_the_order_of_the_evidence() -> None:
    assert broken(checks("B:cd A:ab", ("A", "ab"), ("B", "cd"), wrapped=False)) == {"together"}
    assert broken(checks("B:cd A:ab", ("B", "cd"), ("A", "ab"), wrapped=False)) == set()


def test_members_of_a_cluster_must_show_the_same_quasi_identifiers() -> None:
    # The kept fields stand as they should; the centroids are exchanged between two of the rows.
    assert broken(checks("B:a A:b A:a B:b", ("A", "ab"), ("B", "ab"), wrapped=False)) == {"together"}
    assert broken(checks("B:a A:b A:a B:b", ("A", "ab"), ("B", "ab"))) == {"together", "byte_order"}


def test_a_file_in_byte_order_as_a_whole_may_mix_its_clusters() -> None:
    found = checks("A:aabbcc", ("A", "abc"), ("A", "abc"), wrapped=False)
    assert broken(found) == set()
    assert found["together"].status == "not examined"
    assert found["byte_order"].status == "holds"
    assert "as a whole" in found["together"].note


def test_a_file_in_byte_order_whose_clusters_stand_together_is_examined() -> None:
    found = checks("A:ab B:cd", ("A", "ab"), ("B", "cd"), wrapped=False)
    assert found["together"].status == found["byte_order"].status == "holds"
    assert found["together"].examined == 2


def test_a_topic_in_byte_order_must_not_mix_its_clusters() -> None:
    assert broken(checks("A:aabbcd", ("A", "abc"), ("A", "abd"))) == {"together"}


def test_the_order_of_the_input_is_let_pass_only_if_the_summary_owns_to_it() -> None:
    parts = ("A", "cab"), ("B", "zx")
    assert broken(checks("A:cab B:zx", *parts, wrapped=False)) == {"byte_order"}
    found = checks("A:cab B:zx", *parts, wrapped=False, keeps_order=True)
    assert found["byte_order"].status == found["together"].status == "not examined"
    assert broken(checks("A:cba B:zx", *parts, wrapped=False, keeps_order=True)) == {"byte_order"}
    assert broken(checks("A:cab B:z", *parts, wrapped=False, keeps_order=True)) >= {"nothing_missing", "together"}


def test_neighbours_with_equal_centroids_are_told_apart_by_their_rows() -> None:
    assert broken(checks("A:abcabd", ("A", "abd"), ("A", "abc"))) == set()
    # The longer one fits too, and leads nowhere: the search must turn back.
    assert broken(checks("A:xyyz B:q A:xyy", ("A", "xy"), ("A", "yz"), ("A", "xyy"), ("B", "q"))) == set()


def test_a_run_that_no_clusters_make_up_is_not_parted() -> None:
    found = checks("A:abc", ("A", "ab"), ("A", "bc"))
    assert broken(found) == {"together", "nothing_missing"}
    assert found["together"].places[0] == "row 1"


def test_members_of_a_cluster_torn_apart_do_not_stand_together() -> None:
    assert broken(checks("A:ab B:c A:d", ("A", "abd"), ("B", "c"))) == {"together"}
    assert broken(checks("A:ab B:c A:d", ("A", "abd"), ("B", "c"), wrapped=False)) == {"together"}


def test_clusters_that_look_alike_are_laid_along_all_runs_together() -> None:
    # Taking the six first would leave nothing for the last run.
    parts = [("A", "x" * size) for size in (6, 4, 2)] + [("B", "y")]
    assert broken(checks("A:" + "x" * 6 + " B:y A:" + "x" * 6, *parts)) == set()
    assert broken(checks("A:" + "x" * 6 + " B:y A:" + "x" * 6, *reversed(parts))) == set()
    assert broken(checks("A:" + "x" * 5 + " B:y A:" + "x" * 7, *parts)) == {"together"}


def test_the_search_gives_up_before_it_takes_for_ever_and_says_so() -> None:
    # No odd number is made of fours and sixes, but there are many ways to try.
    parts = [("A", "x" * size) for size in (4, 6) * 200] + [("B", "y")]
    found = checks("A:" + "x" * 999 + " B:y A:" + "x" * 1001, *parts)
    assert broken(found) == set()
    assert found["together"].status == "not examined"
    assert "look alike" in found["together"].note


PARTS = st.lists(st.tuples(st.sampled_from("AB"), st.text("xyz", min_size=1, max_size=5)), min_size=1, max_size=8)


@given(PARTS, st.randoms())
def test_any_order_of_whole_clusters_is_parted(parts: list[tuple[str, str]], chance: random.Random) -> None:
    parts = [(quasi, "".join(sorted(letters))) for quasi, letters in parts]
    shuffled = list(parts)
    chance.shuffle(shuffled)
    text = " ".join(f"{quasi}:{letters}" for quasi, letters in shuffled)
    assert broken(checks(text, *parts)) == set()
