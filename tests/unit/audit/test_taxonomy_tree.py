"""The tree of a taxonomy in the audit: common ancestors, medians and distances."""

from __future__ import annotations

from fractions import Fraction

import pytest
from shoal.audit.scales import Node, TaxonomyTree
from shoal.policy import Taxonomy

pytestmark = pytest.mark.unit

TREE = TaxonomyTree(
    Taxonomy(
        (
            ("Berlin", "east", "Germany"),
            ("Dresden", "east", "Germany"),
            ("Bonn", "west", "Germany"),
            ("Basel", "Switzerland", "Switzerland"),
        ),
        "Europe",
    )
)


LEVELS = {"east": 1, "west": 1, "Switzerland": 2, "Germany": 2, "Europe": 3}


@pytest.mark.parametrize(
    ("leaves", "ancestor", "median"),
    [
        (["Berlin", "Berlin"], "Berlin", "Berlin"),
        (["Berlin", "Dresden"], "east", "east"),
        (["Berlin", "Bonn"], "Germany", "Germany"),
        (["Berlin", "Basel"], "Europe", "Europe"),
        (["Berlin", "Berlin", "Basel"], "Europe", "Berlin"),
        (["Berlin", "Dresden", "Basel"], "Europe", "east"),
        (["Berlin", "Dresden", "Bonn", "Basel"], "Europe", "Germany"),
        (["Oslo", "Oslo"], "Oslo", "Oslo"),
        (["Oslo", "Oslo", "Basel"], "Europe", "Oslo"),
        (["Oslo", "Rome"], "Europe", "Europe"),
        (["east", "Berlin"], "Europe", "Europe"),
    ],
)
def test_the_node_of_a_cluster(leaves: list[str], ancestor: str, median: str) -> None:
    assert TREE.ancestor(leaves) == (LEVELS.get(ancestor, 0), ancestor)
    assert TREE.median(leaves) == (LEVELS.get(median, 0), median)


@pytest.mark.parametrize(
    ("leaf", "published", "distance"),
    [
        ("Berlin", "Berlin", Fraction(0)),
        ("Berlin", "east", Fraction(1, 3)),
        ("Berlin", "Germany", Fraction(2, 3)),
        ("Berlin", "Europe", Fraction(1)),
        ("Berlin", "Dresden", Fraction(1, 3)),
        ("Berlin", "Bonn", Fraction(2, 3)),
        ("Berlin", "west", Fraction(2, 3)),
        ("Berlin", "Switzerland", Fraction(1)),
        ("Berlin", "Basel", Fraction(1)),
        ("Oslo", "Berlin", Fraction(1)),
        ("Oslo", "Oslo", Fraction(0)),
    ],
)
def test_the_distance_of_a_leaf_from_a_published_node(leaf: str, published: str, distance: Fraction) -> None:
    assert TREE.distance(leaf, Node(LEVELS.get(published, 0), published)) == distance


def test_a_category_that_has_the_name_of_an_inner_node_is_another_node() -> None:
    assert TREE.distance("Berlin", Node(0, "east")) == 1
    assert TREE.distance("Berlin", Node(1, "east")) == Fraction(1, 3)


SAME_NAMES = TaxonomyTree(
    Taxonomy(
        (("Other", "Other", "a"), ("Amer", "Other", "a"), ("y", "c", "a"), ("x", "a", "b"), ("*", "b", "b")),
        "a",
    )
)


@pytest.mark.parametrize(
    ("leaves", "ancestor", "median", "distances"),
    [
        (["Other", "Other", "Amer"], (1, "Other"), (0, "Other"), [Fraction(1, 3), Fraction(0), Fraction(1, 3)]),
        (["Other", "Amer", "y"], (2, "a"), (1, "Other"), [Fraction(2, 3), Fraction(1, 3), Fraction(1, 3)]),
        (["x", "x", "y"], (3, "a"), (0, "x"), [Fraction(1), Fraction(0), Fraction(1)]),
        (["x", "y", "Amer", "Other", "y"], (3, "a"), (2, "a"), [Fraction(1), Fraction(1), Fraction(2, 3)]),
        (["x", "*"], (2, "b"), (2, "b"), [Fraction(2, 3), Fraction(2, 3), Fraction(1)]),
        (["a", "a", "y"], (3, "a"), (0, "a"), [Fraction(1), Fraction(0), Fraction(1)]),
    ],
)
def test_equal_names_on_two_levels_are_two_nodes(
    leaves: list[str], ancestor: tuple[int, str], median: tuple[int, str], distances: list[Fraction]
) -> None:
    found = SAME_NAMES.ancestor(leaves), SAME_NAMES.median(leaves)
    assert found == (ancestor, median)
    measured = SAME_NAMES.distance(leaves[0], found[0]), SAME_NAMES.distance(leaves[0], found[1])
    assert [*measured, SAME_NAMES.distance("Amer", found[1])] == distances
