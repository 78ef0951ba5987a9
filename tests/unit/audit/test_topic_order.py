"""The order of the clusters of a topic: by their numbers, or within a transaction by their first rows."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.audit.clusters import RecomputedCluster
from shoal.audit.originals import Originals
from shoal.audit.releases import PartitionRows, ReleasedRows
from shoal.audit.rows import AllowedOrder, check_order, check_topic_order, repeated_numbers
from shoal.audit.verdict import Check

pytestmark = pytest.mark.unit

Named = tuple[int, str, str]
"""Number, centroid and unchanged fields (one letter per row) of a cluster."""


def checked(*order: Named) -> Check:
    """Check clusters that stand in this order, whose evidence is in the order of their numbers."""
    rows = PartitionRows(stores_texts=True)
    clusters = []
    for number, quasi, letters in order:
        clusters.append(RecomputedCluster(0, number, tuple(range(len(letters))), quasi, list(letters), number))
        for letter in letters:
            rows.add(len(rows) + 1, f"{quasi},{letter}", quasi, letter)
    release = ReleasedRows({0: rows}, [], is_export=True)
    no_originals = Originals(np.zeros((0, 1)), np.zeros(0, int), [], np.zeros(0, int), np.zeros(0, int), is_export=True)
    found = check_order(
        release,
        sorted(clusters, key=lambda cluster: cluster.number),
        no_originals,
        allowed=AllowedOrder(sorted_as_whole=False, order_of_input=False),
    )
    return check_topic_order(release, found.located).result()


def test_clusters_in_the_order_of_their_numbers_are_sound() -> None:
    found = checked((0, "C", "ab"), (1, "B", "ab"), (7, "A", "ab"))
    assert (found.status, found.examined) == ("holds", 3)


def test_clusters_of_one_transaction_are_sorted_by_their_first_rows() -> None:
    assert checked((2, "A", "ab"), (0, "B", "ab"), (1, "C", "ab"), (3, "A", "cd")).status == "holds"
    found = checked((2, "A", "ab"), (1, "C", "ab"), (0, "B", "ab"), (3, "A", "cd"))
    assert (found.status, found.places) == ("broken", (0,))


def test_a_cluster_after_later_ones_is_broken() -> None:
    found = checked((1, "D", "ab"), (2, "B", "ab"), (3, "C", "ab"), (0, "A", "ab"))
    assert (found.status, found.places) == ("broken", (2, 0))


def test_all_clusters_in_the_reverse_order_are_broken() -> None:
    found = checked((3, "A", "ab"), (2, "D", "ab"), (1, "B", "ab"), (0, "C", "ab"))
    assert (found.status, found.places) == ("broken", (1,))


def test_clusters_with_equal_rows_may_have_either_number() -> None:
    assert checked((0, "B", "xx"), (1, "A", "xx"), (2, "B", "xx")).status == "holds"
    assert checked((2, "B", "xx"), (1, "A", "xx"), (0, "B", "xx")).status == "holds"


def test_clusters_that_can_be_mistaken_for_each_other_leave_it_open() -> None:
    # Two clusters of one centroid are side by side, so that rows may belong to either.
    found = checked((3, "B", "ab"), (2, "B", "cd"), (1, "A", "ab"))
    assert found.status == "not examined"
    assert "look alike" in found.note
    # Other clusters are examined all the same.
    found = checked((5, "B", "ab"), (4, "B", "cd"), (3, "E", "ab"), (2, "D", "ab"))
    assert (found.status, found.places) == ("broken", (2,))


def test_repeated_numbers_leave_it_open() -> None:
    found = checked((0, "B", "ab"), (0, "A", "ab"))
    assert (found.status, found.note) == ("not examined", "the evidence repeats numbers of clusters")


def test_repeated_numbers_are_named_by_partition() -> None:
    clusters = [RecomputedCluster(partition, 0, (), "", [], number) for partition, number in ((0, 1), (1, 1), (0, 2))]
    assert repeated_numbers(clusters) == []
    (question,) = repeated_numbers([*clusters, clusters[1]])
    assert "(partition 1)" in question
    assert "--evidence" in question


CLUSTERS = st.lists(st.tuples(st.sampled_from("ABCDE"), st.text("xyz", min_size=2, max_size=4)), max_size=12)


@given(CLUSTERS, st.randoms())
def test_transactions_of_any_size_are_sound(parts: list[tuple[str, str]], chance: random.Random) -> None:
    made = [(number, quasi, "".join(sorted(letters))) for number, (quasi, letters) in enumerate(parts)]
    order: list[Named] = []
    while made:
        size = chance.randint(1, 5)
        order += sorted(made[:size], key=lambda named: f"{named[1]},{named[2][0]}")
        made = made[size:]
    assert checked(*order).status != "broken"
