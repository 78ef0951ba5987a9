"""The tree of a taxonomy in the audit: common ancestors, medians and distances."""

from __future__ import annotations

from fractions import Fraction

import pytest
from shoal.audit.taxonomy_tree import TaxonomyTree
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
    assert TREE.ancestor(leaves) == ancestor
    assert TREE.median(leaves) == median


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
    is_leaf = published in {"Berlin", "Dresden", "Bonn", "Basel", "Oslo"}
    assert TREE.distance(leaf, published, is_leaf=is_leaf) == distance


def test_a_category_that_has_the_name_of_an_inner_node_is_another_node() -> None:
    assert TREE.distance("Berlin", "east", is_leaf=True) == 1
    assert TREE.distance("Berlin", "east", is_leaf=False) == Fraction(1, 3)
