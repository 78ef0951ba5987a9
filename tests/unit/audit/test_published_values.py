"""What a cluster publishes by scale, recomputed by the audit, and which published values it accepts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from shoal.audit.reading import Form, JsonNumber
from shoal.audit.scales import PublishedCategories, PublishedNumbers, PublishedRanks, PublishedTimes, PublishedValues
from shoal.policy import Attribute, Role, Scale, Taxonomy, TimeStep

pytestmark = pytest.mark.unit

NAN = math.nan
TREE = Taxonomy((("a", "north"), ("b", "north"), ("c", "south")), "all")


def attribute(scale: Scale, **settings: Any) -> Attribute:
    return Attribute("a", Role.QUASI_IDENTIFIER, scale=scale, **settings)


def nominal(form: Form = "jsonl", *, table: bool = False, **settings: Any) -> PublishedCategories:
    return PublishedCategories(attribute(Scale.NOMINAL, **settings), form, table=table, missing_values=("", "?"))


def coded(published: PublishedCategories, texts: Sequence[str]) -> list[float]:
    return [NAN if text == "" else published.categories.code(text) for text in texts]


@pytest.mark.parametrize(
    ("values", "mode"),
    [
        *((['"b"', '"a"', '"b"'], '"b"'), (['"b"', '"a"'], '"a"'), (["true", '"true"'], '"true"')),
        *((['"a"', '"a b"'], '"a b"'), (["250", '"9"'], '"9"'), (['"\U0001f41f"', '"\uffff"'], '"\uffff"')),
    ],
)
def test_the_mode_is_published_and_of_equally_frequent_ones_the_smaller_text(values: list[str], mode: str) -> None:
    one = nominal()
    assert one.of_members(coded(one, values)) == mode


def test_in_a_table_the_category_that_is_more_frequent_in_the_table_is_published_first() -> None:
    for is_table, mode in ((True, '"b"'), (False, '"a"')):
        one = nominal(table=is_table)
        values = coded(one, ('"b"', '"a"'))
        one.categories.counts.update({0: 5, 1: 2})
        assert one.of_members(values) == mode


@pytest.mark.parametrize(
    ("publish", "leaves", "node"),
    [
        *(("ancestor", ["a", "b"], '"north"'), ("ancestor", ["a", "a", "c"], '"all"'), ("ancestor", ["x", "x"], '"x"')),
        *(("median", ["a", "a", "c"], '"a"'), ("mode", ["a", "c", "c"], '"c"'), ("mode", ["c", "a"], '"a"')),
    ],
)
def test_a_node_of_the_taxonomy_is_published(publish: str, leaves: list[str], node: str) -> None:
    one = nominal(taxonomy=TREE, publish=publish)
    assert one.of_members(coded(one, leaves)) == node


@pytest.mark.parametrize(
    ("publish", "leaves", "text", "distance"),
    [
        ("ancestor", ["Other", "Amer"], '"Other"', 1.0),
        ("ancestor", ["Other", "Other", "Amer"], '"Other"', 1.5),
        ("ancestor", ["Other", "Other"], '"Other"', 0.0),
        ("ancestor", ["Amer", "White"], '"Other"', 2.0),
        ("median", ["Other", "Amer", "White"], '"Other"', 2.0),
        ("median", ["Other", "Other", "White"], '"Other"', 1.0),
        ("mode", ["Other", "Other", "Amer"], '"Other"', 0.5),
    ],
)
def test_leaf_group_and_root_can_have_one_name(publish: str, leaves: list[str], text: str, distance: float) -> None:
    tree = Taxonomy((("Other", "Other"), ("Amer", "Other"), ("White", "W")), "Other")
    one = nominal(taxonomy=tree, publish=publish, unknown="quarantine")
    values = coded(one, leaves)
    assert one.of_members(values) == text
    assert one.total_distance(values, text) == distance
    assert one.allows(text)
    assert ('"Other"' in one.inner_nodes) == (publish != "mode")


@pytest.mark.parametrize(
    ("missing", "values", "text"),
    [
        *(("group", ['"a"', "", ""], "null"), ("group", ['"a"', ""], "null")),
        *(("group", ['"a"', '"a"', "", ""], "null"), ("group", ["", ""], "null"), ("group", ['"a"', '"a"', ""], '"a"')),
    ],
)
def test_a_cluster_publishes_a_category_only_if_more_than_half_of_it_has_one(
    missing: str, values: list[str], text: str
) -> None:
    one = nominal(missing=missing)
    assert one.of_members(coded(one, values)) == text


@pytest.mark.parametrize("missing", ["group", "mean"])
def test_a_cluster_publishes_a_number_only_if_more_than_half_of_it_has_one(missing: str) -> None:
    settings = attribute(Scale.NUMERIC, missing=missing, integer=True)
    numbers = PublishedNumbers(settings, "jsonl", table=False)
    assert numbers.of_members([NAN, NAN, 3.0]) == "null"
    assert numbers.of_members([NAN, 3.0, 5.0]) == "4"
    assert numbers.of_members([NAN, NAN]) == "null"
    cells = PublishedNumbers(settings, "csv", table=False)
    assert cells.of_members([NAN, 3.0]) == ""
    assert cells.of_members([NAN, 4.0, 4.0]) == "4"


@pytest.mark.parametrize("missing", ["group", "mean"])
def test_the_distance_of_a_cluster_that_publishes_none_is_its_number_of_values(missing: str) -> None:
    grade = PublishedRanks(attribute(Scale.ORDINAL, order=(1, 2, 3), missing=missing), "jsonl")
    assert grade.total_distance([0.0, 2.0, NAN, NAN], "null") == 2.0
    assert grade.total_distance([0.0, 2.0, NAN], "1") == 2.0


@pytest.mark.parametrize(("ranks", "text"), [([0, 2], '"low"'), ([0, 1, 2], "2"), ([2, 2, 0, 1], "2"), ([2], '"high"')])
def test_the_lower_median_of_ranks_is_published_as_an_item(ranks: list[float], text: str) -> None:
    settings = attribute(Scale.ORDINAL, order=("low", 2, "high"))
    assert PublishedRanks(settings, "jsonl").of_members(ranks) == text
    assert PublishedRanks(settings, "csv").of_members(ranks) == f'"{text.strip(chr(34))}"'


def test_a_time_is_published_as_text_or_number() -> None:
    day = TimeStep(1, "day")
    texts = PublishedTimes(attribute(Scale.TIME, time_step=day), "jsonl")
    assert texts.of_members([0.0, 86_400_000.0, 86_400_000.0]) == '"1970-01-02"'
    numbers = PublishedTimes(attribute(Scale.TIME, time_step=day, unit="s"), "jsonl")
    assert numbers.of_members([86_400_000.0]) == "86400"


ORDER = attribute(Scale.ORDINAL, order=("low", 2, "2 or more"))
BOUNDED = attribute(
    Scale.TIME, time_step=TimeStep(1, "month"), bounds=(0.0, 2.6e9), limits=(0.0, 2.6e9), missing="group"
)


@pytest.mark.parametrize(
    ("published", "value", "is_allowed", "is_inside"),
    [
        (PublishedRanks(ORDER, "jsonl"), "low", True, True),
        (PublishedRanks(ORDER, "jsonl"), "Low", False, True),
        (PublishedRanks(ORDER, "jsonl"), JsonNumber("2"), True, True),
        (PublishedRanks(ORDER, "jsonl"), "2", False, True),
        (PublishedRanks(ORDER, "csv"), "2", True, True),
        (PublishedRanks(ORDER, "jsonl"), None, False, True),
        (PublishedTimes(BOUNDED, "jsonl"), "1970-02-01", True, True),
        (PublishedTimes(BOUNDED, "jsonl"), "1970-03-01", True, False),
        (PublishedTimes(BOUNDED, "jsonl"), "1970-02-02", False, True),
        (PublishedTimes(BOUNDED, "jsonl"), None, True, True),
        (PublishedTimes(BOUNDED, "csv"), "", True, True),
        (PublishedTimes(BOUNDED, "jsonl"), "", False, True),
        (nominal(), "M", True, True),
        (nominal(), True, True, True),
        (nominal(), JsonNumber("7"), True, True),
        (nominal(), JsonNumber("7.0"), False, True),
        (nominal(), None, False, True),
        (nominal(), "?", False, True),
        (nominal("csv"), "", False, True),
        (nominal(), [], False, True),
        (nominal(missing="group"), None, True, True),
        (nominal(taxonomy=TREE, publish="ancestor", unknown="quarantine"), "north", True, True),
        (nominal(taxonomy=TREE, publish="ancestor", unknown="quarantine"), "x", False, True),
        (nominal(taxonomy=TREE, publish="ancestor"), "x", True, True),
        (nominal(taxonomy=TREE, publish="ancestor"), JsonNumber("1"), False, True),
        (nominal(taxonomy=TREE, publish="mode", unknown="quarantine"), "north", False, True),
    ],
)
def test_only_values_that_the_policy_allows_are_accepted(
    published: PublishedValues, value: object, *, is_allowed: bool, is_inside: bool
) -> None:
    text = published.text_of(value)
    assert (published.allows(text), published.within_bounds(text)) == (is_allowed, is_inside)
