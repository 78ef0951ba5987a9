"""How the benchmark reads Adult, and its measure of loss for numbers, ranks, intervals and sets."""

from __future__ import annotations

import json

import numpy as np
import pytest
from adult import ATTRIBUTES, Kind, Tree, messages, numbers, policy_document, tree_of
from adult_loss import losses, set_losses
from adult_release import coordinates, mdav_blocks, mean, of_classes, published_set, release_of

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


def test_four_attributes_stay_and_the_others_leave_unchanged_or_not_at_all() -> None:
    for kept, role in (("unchanged", "confidential"), ("dropped", "identifier")):
        attributes = policy_document(kept)["attributes"]
        staying = [name for name, section in attributes.items() if section["role"] == "quasi_identifier"]
        assert staying == ["age", "education-num", "capital-gain", "hours-per-week"]
        assert {section["role"] for section in attributes.values()} == {"quasi_identifier", role}
    assert policy_document()["attributes"]["sex"]["missing"] == "group"
    for scaling in ("spreads", "bounds"):
        assert policy_document(scaling=scaling)["steering"] == {"scaling": scaling}


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


def test_squared_distances_of_points_are_the_sum_of_the_attributes_squared_distances() -> None:
    points = coordinates(slice(0, 60))

    def distance(kind: Kind, one: int, other: int) -> float:
        if kind.scale == "nominal":
            rows = [json.loads(line)[kind.name] for line in messages(60)]
            return tree_of(kind).distance(rows[one], rows[other])
        values = numbers(kind)
        return float(((values[one] - values[other]) / (kind.high - kind.low)) ** 2)

    for one, other in ((0, 1), (4, 14), (27, 3), (59, 59)):
        expected = sum(distance(kind, one, other) for kind in ATTRIBUTES)
        assert ((points[one] - points[other]) ** 2).sum() == pytest.approx(expected)


def test_blocks_of_mdav_release_every_record_once_in_classes_of_k() -> None:
    release = mdav_blocks(250, 10, 100)
    assert sorted(release.rows) == list(range(250))
    assert np.bincount(release.classes).min() >= 10
    # No class has records of two blocks.
    assert all(len(set(release.rows[release.classes == label] // 100)) == 1 for label in set(release.classes))
    found = losses(release)
    assert all(0 <= loss.own <= 1 for loss in found.values())
    assert found["age"].ncp == found["age"].own
    alone = of_classes([np.array([row]) for row in range(100)], mean, published_set)
    assert {loss.own for loss in losses(alone).values()} <= {0.0}, "classes of one record lose nothing"


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
