"""How the benchmark reads Adult, and its measure of loss for numbers, ranks, intervals and sets."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from adult import ATTRIBUTES, POLICY, Kind, Tree, diverse_document, messages, numbers, policy_document, tree_of
from adult_loss import losses, set_losses
from adult_release import coordinates, mdav_blocks, mean, of_classes, published_set, release_of
from shoal.policy import Policy
from shoal.policy.schema import Document

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


def test_thirteen_of_the_fourteen_attributes_are_quasi_identifiers() -> None:
    assert [kind.name for kind in ATTRIBUTES] == [
        *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "relationship", "race", "sex"),
        *("capital-gain", "capital-loss", "hours-per-week", "native-country"),
    ]
    assert [kind.scale for kind in ATTRIBUTES].count("nominal") == 6
    assert KINDS["education"].high == 15


def test_values_are_within_the_bounds_and_the_order_of_education_is_that_of_its_years() -> None:
    for kind in ATTRIBUTES:
        if kind.scale == "numeric":
            values = numbers(kind)
            assert kind.low <= values.min() <= values.max() <= kind.high, kind.name
    assert np.array_equal(numbers(KINDS["education"]) + 1, numbers(KINDS["education-num"]))


def test_messages_hold_numbers_and_texts() -> None:
    first = json.loads(messages(1)[0])
    assert (first["age"], first["workclass"], len(first)) == (39, "State-gov", 15)
    assert len(messages()) == 32561


def test_four_attributes_stay_and_the_others_leave_unchanged_or_not_at_all() -> None:
    for kept, role in (("unchanged", "confidential"), ("dropped", "identifier")):
        attributes = policy_document(kept)["attributes"]
        staying = [name for name, section in attributes.items() if section["role"] == "quasi_identifier"]
        assert staying == ["age", "education-num", "capital-gain", "hours-per-week"]
        assert {section["role"] for section in attributes.values()} == {"quasi_identifier", role}
    assert policy_document()["attributes"]["sex"]["missing"] == "group"
    for scaling in ("spreads", "bounds"):
        assert policy_document(scaling=scaling)["steering"] == {"scaling": scaling}


def test_a_taxonomy_of_adult_is_a_tree_of_two_levels() -> None:
    tree = tree_of(KINDS["workclass"])
    assert tree.levels == 2
    assert tree.below["Government"] == {"Federal-gov", "Local-gov", "State-gov"}
    assert len(tree.below["*"]) == 8
    assert tree.distance("Local-gov", "State-gov") == 0.5
    assert tree.distance("Local-gov", "Private") == tree.distance("?", "Private") == 1.0
    assert tree.distance("?", "?") == 0.0
    assert tree_of(KINDS["sex"]).distance("Male", "Female") == 1.0


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


@pytest.mark.parametrize("kept", ["all", "unchanged", "dropped"])
def test_the_policies_are_valid(kept: str) -> None:
    policy = Policy.from_document(Document.model_validate(policy_document(kept)), source=str(POLICY))
    assert policy.k == 10


def test_a_diverse_policy_protects_the_occupation_alone(tmp_path: Path) -> None:
    reference = tmp_path / "reference.csv"
    reference.write_text("value,share\nSales,0.5\n,0.5\n")
    document = Document.model_validate(diverse_document({"l": 3, "t": 0.4}, reference))
    policy = Policy.from_document(document, source=str(POLICY))
    assert [attribute.name for attribute in policy.protected] == ["occupation"]
    assert (policy.t, policy.max_value_share) == (0.4, 0.5)
