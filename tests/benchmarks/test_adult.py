"""How the benchmark reads Adult, and its measure of loss for numbers, ranks, intervals and sets."""

from __future__ import annotations

import json

import numpy as np
import pytest
from adult import ATTRIBUTES, Tree, messages
from adult_loss import set_losses
from adult_release import mean, published_set, release_of

pytestmark = pytest.mark.unit

KINDS = {kind.name: kind for kind in ATTRIBUTES}
TREE = Tree(
    2,
    {"a": ("0/a", "1/x"), "b": ("0/b", "1/x"), "c": ("0/c", "1/y"), "?": ("missing/?", "missing/?")},
    {
        "a": frozenset("a"),
        "b": frozenset("b"),
        "c": frozenset("c"),
        "x": frozenset("ab"),
        "y": frozenset("c"),
        "*": frozenset("abc"),
        "?": frozenset("?"),
    },
)
FLAT = Tree(1, {name: (f"0/{name}",) for name in "abc?"}, {"*": frozenset("abc")})


@pytest.mark.parametrize(
    ("value", "published", "own", "ncp"),
    [
        ("a", "a", 0.0, 0.0),
        ("a", "b", 0.5, 1.0),
        ("a", "c", 1.0, 1.0),
        ("a", "ab", 0.25, 0.5),
        ("a", "abc", 0.5, 1.0),
        ("a", "?", 1.0, 1.0),
        ("?", "?", 0.0, 0.0),
        ("?", "ab", 1.0, 1.0),
    ],
)
def test_the_loss_of_a_category_against_a_set(value: str, published: str, own: float, ncp: float) -> None:
    assert set_losses(TREE, [value], [0], [frozenset(published)]) == (own, ncp)


@pytest.mark.parametrize(
    ("tree", "values", "published"),
    [
        (FLAT, "abb", "b"),
        (FLAT, "ba", "a"),
        (FLAT, "b??", "?"),
        (FLAT, "b?", "?"),
        (FLAT, "bb?", "b"),
        (TREE, "ab", "ab"),
        (TREE, "aa", "a"),
        (TREE, "ac", "abc"),
        (TREE, "c?", "?"),
        (TREE, "cc?", "c"),
    ],
)
def test_a_class_publishes_a_mode_or_the_lowest_common_ancestor(tree: Tree, values: str, published: str) -> None:
    assert published_set(tree, list(values)) == frozenset(published)
    ranks = np.array([3.0, 0.0, 1.0, 2.0])
    assert (mean(KINDS["education"], ranks), mean(KINDS["age"], ranks)) == (1.0, 1.5), "a lower median, and a mean"


def test_a_release_of_the_command_is_read_with_its_evidence() -> None:
    original = [json.loads(line) for line in messages(4)]
    one, other = original[0] | {"workclass": "Government"}, original[3] | {"workclass": None, "race": None}
    release = release_of([one, one, other, other], [{"offsets": [2, 0]}, {"offsets": [1, 3]}])
    assert release.rows.tolist() == [2, 0, 1, 3]
    assert release.classes.tolist() == [0, 0, 1, 1]
    assert release.published["age"] == [39.0, 53.0]
    assert release.published["education"] == [12.0, 6.0]
    assert release.published["workclass"] == [frozenset({"Federal-gov", "Local-gov", "State-gov"}), frozenset({"?"})]
    assert release.published["sex"] == [frozenset({"Male"}), frozenset({"Male"})]
    assert release.published["race"] == [frozenset({"White"}), frozenset({"?"})]
