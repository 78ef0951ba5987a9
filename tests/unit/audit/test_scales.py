"""How the audit reads quasi-identifiers of each scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
from shoal.audit.reading import Form, JsonNumber
from shoal.audit.scales import (
    ABSENT,
    Categories,
    DecimalSign,
    PublishedCategories,
    PublishedNumbers,
    PublishedRanks,
    PublishedTimes,
    PublishedValues,
    value_reader,
)
from shoal.policy import Attribute, Role, Scale, Taxonomy, TimeStep

pytestmark = pytest.mark.unit

TAXONOMY = Taxonomy((("A", "vowel"), ("B", "consonant"), ("1", "digit")))


def read(
    value: object, form: Form = "jsonl", categories: Categories | None = None, sign: str = ".", **settings: object
) -> float | None:
    attribute = Attribute("a", Role.QUASI_IDENTIFIER, **settings)  # type: ignore[arg-type]
    return value_reader(attribute, form, DecimalSign(sign), ("", "?"), categories)(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (" M ", '" M "'),
        ("é\n", '"é\\n"'),
        ("e\u0301", '"e\u0301"'),
        ("1", '"1"'),
        (JsonNumber("-0.0"), "0"),
        (JsonNumber("2.5e2"), "250"),
        (JsonNumber("1e23"), "1" + "0" * 23),
        (True, "true"),
    ],
)
def test_a_category_is_a_json_scalar(value: object, text: str) -> None:
    categories = Categories()
    assert read(value, categories=categories, scale=Scale.NOMINAL) == 0
    assert categories.texts == [text]


@pytest.mark.parametrize(
    "value", [JsonNumber("1.5"), JsonNumber("1e-2"), JsonNumber("1e999"), [], ["x"], None, "", "?", ABSENT, "\ud800"]
)
def test_any_other_value_is_no_category(value: object) -> None:
    assert read(value, scale=Scale.NOMINAL) is None


@pytest.mark.parametrize("value", ["1", JsonNumber("1")])
def test_leaves_are_matched_by_text(value: object) -> None:
    categories = Categories()
    assert read(value, categories=categories, scale=Scale.NOMINAL, taxonomy=TAXONOMY, unknown="quarantine") == 0
    assert categories.texts == ["1"]


def test_a_category_that_the_taxonomy_lacks_is_a_leaf_or_unusable() -> None:
    assert read("C", scale=Scale.NOMINAL, taxonomy=TAXONOMY) == 0
    assert read("C", scale=Scale.NOMINAL, taxonomy=TAXONOMY, unknown="quarantine") is None
    assert read("vowel", scale=Scale.NOMINAL, taxonomy=TAXONOMY, unknown="quarantine") is None


@pytest.mark.parametrize(
    ("value", "rank"),
    [
        ("low", 0),
        ("2", 1),
        (JsonNumber("2.0"), 1),
        ("High", None),
        (JsonNumber("2.5"), None),
        (None, None),
    ],
)
def test_an_ordinal_value_is_its_rank(value: object, rank: float | None) -> None:
    assert read(value, scale=Scale.ORDINAL, order=("low", 2, "high")) == rank


@pytest.mark.parametrize(
    ("value", "form", "unit", "milliseconds"),
    [
        (" 1970-01-02\t", "csv", None, 86_400_000),
        (" 1970-01-02", "jsonl", None, None),
        (JsonNumber("5"), "jsonl", None, None),
        (JsonNumber("1.5"), "jsonl", "s", 1500),
        ("1.5", "jsonl", "s", None),
        (" 1,5 ", "csv", "s", 1500),
        ("1970-01-02", "csv", "s", None),
    ],
)
def test_a_time_is_its_milliseconds(value: object, form: Form, unit: str | None, milliseconds: float | None) -> None:
    sign = "," if "," in str(value) else "."
    assert read(value, form, sign=sign, scale=Scale.TIME, unit=unit) == milliseconds


def test_a_time_is_clipped_or_refused_outside_its_bounds() -> None:
    assert read("1970-01-02", scale=Scale.TIME, limits=(0, 1000)) == 1000
    assert read("1970-01-02", scale=Scale.TIME, limits=(0, 1000), clip=False) is None


@pytest.mark.parametrize("value", [" ", "x", True, []])
def test_any_other_value_is_no_missing_number(value: object) -> None:
    assert read(value, missing="group") is None


def test_a_decimal_comma_is_read_before_a_number_is_compared() -> None:
    attribute = Attribute("a", Role.QUASI_IDENTIFIER, missing="group")
    reader = value_reader(attribute, "csv", DecimalSign(","), ("-1.5",), None)
    assert math.isnan(reader("-1,50") or 0)
    assert reader("-1,5001") == -1.5001


# ---------------------------------------------------------------- published values


NAN = math.nan
TREE = Taxonomy((("a", "north"), ("b", "north"), ("c", "south")), "all")


def attribute(scale: Scale, **settings: Any) -> Attribute:
    return Attribute("a", Role.QUASI_IDENTIFIER, scale=scale, **settings)


def nominal(form: Form = "jsonl", *, table: bool = False, **settings: Any) -> PublishedCategories:
    return PublishedCategories(attribute(Scale.NOMINAL, **settings), form, table=table, missing_values=("", "?"))


def coded(published: PublishedCategories, texts: Sequence[str]) -> list[float]:
    return [NAN if text == "" else published.categories.code(text) for text in texts]


def of_one_cluster(one: PublishedValues, values: Sequence[float]) -> str:
    """The text of a cluster whose members are as many people."""
    return one.of_clusters(np.array(values), np.arange(len(values)), np.array([len(values)]))[0]


def distance_of_one(one: PublishedValues, values: Sequence[float], text: str, people: Sequence[int] = ()) -> float:
    """The distance of the members of one cluster from its text; without ``people`` they are as many people."""
    subjects = np.array(people) if people else np.arange(len(values))
    return one.sum_of_distances(np.array(values), subjects, np.array([len(values)]), [text])


def text_alone(one: PublishedValues, values: Sequence[float], people: Sequence[int]) -> str:
    """The text of one cluster, member by member."""
    present = [value for value in values if not math.isnan(value)]
    with_value = {who for value, who in zip(values, people, strict=True) if not math.isnan(value)}
    return one._of_present(present) if 2 * len(with_value) > len(set(people)) else one.missing


@pytest.mark.parametrize(
    ("values", "mode"),
    [
        (['"b"', '"a"', '"b"'], '"b"'),
        (['"b"', '"a"'], '"a"'),
        (["true", '"true"'], '"true"'),
        (['"a"', '"a b"'], '"a b"'),
        (['"\U0001f41f"', '"\uffff"'], '"\uffff"'),
    ],
)
def test_the_mode_is_published_and_of_equally_frequent_ones_the_smaller_text(values: list[str], mode: str) -> None:
    one = nominal()
    assert of_one_cluster(one, coded(one, values)) == mode


@pytest.mark.parametrize(
    ("publish", "leaves", "text", "distance"),
    [
        ("ancestor", ["Other", "Amer"], '"Other"', 1.0),
        ("ancestor", ["Other", "Other", "Amer"], '"Other"', 1.5),
        ("ancestor", ["Amer", "White"], '"Other"', 2.0),
        ("median", ["Other", "Amer", "White"], '"Other"', 2.0),
        ("mode", ["Other", "Other", "Amer"], '"Other"', 0.5),
    ],
)
def test_leaf_group_and_root_can_have_one_name(publish: str, leaves: list[str], text: str, distance: float) -> None:
    tree = Taxonomy((("Other", "Other"), ("Amer", "Other"), ("White", "W")), "Other")
    one = nominal(taxonomy=tree, publish=publish, unknown="quarantine")
    values = coded(one, leaves)
    assert of_one_cluster(one, values) == text
    assert distance_of_one(one, values, text) == distance
    assert one.allows(text)
    assert ('"Other"' in one.inner_nodes) == (publish != "mode")


@pytest.mark.parametrize("missing", ["group", "mean"])
def test_the_distance_of_a_cluster_that_publishes_none_is_its_number_of_values(missing: str) -> None:
    grade = PublishedRanks(attribute(Scale.ORDINAL, order=(1, 2, 3), missing=missing), "jsonl")
    assert distance_of_one(grade, [0.0, 2.0, NAN, NAN], "null") == 2.0
    assert distance_of_one(grade, [0.0, 2.0, NAN], "1") == 2.0


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
        (PublishedRanks(ORDER, "csv"), "2", True, True),
        (PublishedRanks(ORDER, "jsonl"), None, False, True),
        (PublishedTimes(BOUNDED, "jsonl"), "1970-02-01", True, True),
        (PublishedTimes(BOUNDED, "jsonl"), "1970-03-01", True, False),
        (PublishedTimes(BOUNDED, "jsonl"), "1970-02-02", False, True),
        (PublishedTimes(BOUNDED, "csv"), "", True, True),
        (PublishedTimes(BOUNDED, "jsonl"), "", False, True),
        (nominal(), True, True, True),
        (nominal(), JsonNumber("7.0"), False, True),
        (nominal(), None, False, True),
        (nominal(), "?", False, True),
        (nominal(), [], False, True),
        (nominal(missing="group"), None, True, True),
        (nominal(taxonomy=TREE, publish="ancestor", unknown="quarantine"), "north", True, True),
        (nominal(taxonomy=TREE, publish="ancestor", unknown="quarantine"), "x", False, True),
        (nominal(taxonomy=TREE, publish="ancestor"), JsonNumber("1"), False, True),
        (nominal(taxonomy=TREE, publish="mode", unknown="quarantine"), "north", False, True),
    ],
)
def test_only_values_that_the_policy_allows_are_accepted(
    published: PublishedValues, value: object, *, is_allowed: bool, is_inside: bool
) -> None:
    text = published.text_of(value)
    assert (published.allows(text), published.within_bounds(text)) == (is_allowed, is_inside)


def test_a_sum_of_late_times_of_a_large_cluster_does_not_wrap() -> None:
    published = PublishedTimes(attribute(Scale.TIME, time_step=TimeStep(1, "day")), "jsonl")
    count = 36_500  # as many times of the year 9999 exceed 63 bits
    times = np.full(count, 253_402_214_400_000.0)
    assert published.of_clusters(times, np.arange(count), np.array([count])) == ['"9999-12-31"']


def many_values(random: Random, kind: str, count: int) -> list[float]:
    """Return values of members; of numbers some that need all bits of a float64."""
    pools: dict[str, Callable[[], float]] = {
        "whole": lambda: float(random.randint(-3, 9)),
        "decimal": lambda: random.choice([0.1, 2.5, -2.5, 99.99, 1e5 + 0.1, 2.0**-40]),
        "tiny": lambda: random.choice([1e-300, 5.0, -7.25]),
        "huge": lambda: random.choice([1e300, -1e300, 2.0**53, 1.0]),
        "time": lambda: float(random.randint(0, 10**12)),
        "code": lambda: float(random.randint(0, 4)),
    }
    return [NAN if random.random() < 0.3 else pools[kind]() for _ in range(count)]


@pytest.mark.parametrize("form", ["jsonl", "csv"])
@pytest.mark.parametrize("kind", ["whole", "decimal", "tiny", "huge", "time", "code", "ancestor"])
def test_clusters_publish_together_what_each_publishes_by_itself(form: Form, kind: str) -> None:
    random = Random(f"{form} {kind}")
    missing: dict[str, Any] = {"missing": "group"}
    tree = Taxonomy((("A", "x"), ("B", "x"), ("C", "y"), ("D", "y"), ("E", "y")))
    several: list[PublishedValues] = []
    if kind == "time":
        several = [PublishedTimes(attribute(Scale.TIME, time_step=TimeStep(1, "day"), **missing), form)]
    elif kind in {"code", "ancestor"}:
        modes = [nominal(form, table=table, **missing) for table in (False, True)]
        modes += [nominal(form, taxonomy=tree, publish="mode" if kind == "code" else kind, **missing)]
        for mode in modes:
            coded(
                mode, ["E", "D", "C", "B", "A"] if mode.attribute.taxonomy else ['"b"', "7", '"7"', '"a"', '"\uffff"']
            )
            mode.categories.counts.update({0.0: 3, 1.0: 9, 3.0: 9})  # type: ignore[dict-item]
        several = [*modes, PublishedRanks(attribute(Scale.ORDINAL, order=(1, 2, 3, 4, 5), **missing), form)]
    else:
        resolutions = ({"resolution": Decimal(step)} for step in ("0", "0.01", "5"))
        numbers = [attribute(Scale.NUMERIC, **one, **missing) for one in resolutions]
        several = [PublishedNumbers(one, form, table=True) for one in numbers]
    for one in several:
        groups = [many_values(random, "code" if kind == "ancestor" else kind, random.randint(1, 5)) for _ in range(200)]
        values, sizes = np.concatenate(groups), np.array(list(map(len, groups)))
        people = [[random.randrange(3) for _ in group] for group in groups]
        subjects = np.concatenate(people)
        texts = list(map(partial(text_alone, one), groups, people))
        assert one.of_clusters(values, subjects, sizes) == texts
        if not one.has_moments:
            distances = map(partial(distance_of_one, one), groups, texts, people)
            found = one.sum_of_distances(values, subjects, sizes, texts)
            assert found == pytest.approx(sum(distances), rel=1e-12)
