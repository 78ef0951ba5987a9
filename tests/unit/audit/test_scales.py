"""How the audit reads quasi-identifiers of each scale."""

from __future__ import annotations

import math
from typing import Any

import pytest
from shoal.audit.reading import Form, JsonNumber
from shoal.audit.scales import ABSENT, Categories, DecimalSign, value_reader
from shoal.policy import Attribute, Role, Scale, Taxonomy

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
        *(("M", '"M"'), (" M ", '" M "'), ("é\n", '"é\\n"'), ("e\u0301", '"e\u0301"'), ("1", '"1"')),
        *((JsonNumber("1"), "1"), (JsonNumber("-0"), "0"), (JsonNumber("1.0"), "1"), (JsonNumber("1e0"), "1")),
        *((JsonNumber("-0.0"), "0"), (JsonNumber("2.5e2"), "250"), (JsonNumber("1e23"), "1" + "0" * 23)),
        *((True, "true"), ("true", '"true"')),
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


def test_a_cell_is_a_string_without_blanks_around_it() -> None:
    categories = Categories()
    found = [read(cell, "csv", categories, scale=Scale.NOMINAL) for cell in (" M\t", "M", "1", "\u00a0M")]
    assert found == [0, 0, 1, 2]
    assert categories.texts == ['"M"', '"1"', '"\u00a0M"']


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
        *(("low", 0), ("2", 1), (JsonNumber("2"), 1), ("high", 2), ("High", None), (JsonNumber("2.0"), 1)),
        *((JsonNumber("2.5"), None), (None, None)),
    ],
)
def test_an_ordinal_value_is_its_rank(value: object, rank: float | None) -> None:
    assert read(value, scale=Scale.ORDINAL, order=("low", 2, "high")) == rank


@pytest.mark.parametrize(
    ("value", "form", "unit", "milliseconds"),
    [
        *(("1970-01-02", "jsonl", None, 86_400_000), (" 1970-01-02\t", "csv", None, 86_400_000)),
        *((" 1970-01-02", "jsonl", None, None), (JsonNumber("5"), "jsonl", None, None)),
        *((JsonNumber("1.5"), "jsonl", "s", 1500), ("1.5", "jsonl", "s", None), (" 1,5 ", "csv", "s", 1500)),
        ("1970-01-02", "csv", "s", None),
    ],
)
def test_a_time_is_its_milliseconds(value: object, form: Form, unit: str | None, milliseconds: float | None) -> None:
    sign = "," if "," in str(value) else "."
    assert read(value, form, sign=sign, scale=Scale.TIME, unit=unit) == milliseconds


def test_a_time_is_clipped_or_refused_outside_its_bounds() -> None:
    assert read("1970-01-02", scale=Scale.TIME, limits=(0, 1000)) == 1000
    assert read("1970-01-02", scale=Scale.TIME, limits=(0, 1000), clip=False) is None


@pytest.mark.parametrize("missing", ["group", "mean"])
@pytest.mark.parametrize(
    ("value", "form"), [(None, "jsonl"), (ABSENT, "jsonl"), ("", "jsonl"), ("?", "jsonl"), (" ?\t", "csv"), ("", "csv")]
)
@pytest.mark.parametrize("scale", [Scale.NUMERIC, Scale.ORDINAL, Scale.TIME])
def test_a_missing_value_is_nan_where_the_policy_allows_it(
    value: object, form: Form, scale: Scale, missing: str
) -> None:
    found = read(value, form, scale=scale, missing=missing, order=("?", "x"))
    assert found is not None
    assert math.isnan(found)
    assert read(value, form, scale=scale, order=("?", "x")) is None


@pytest.mark.parametrize("value", [" ", "x", True, []])
def test_any_other_value_is_no_missing_number(value: object) -> None:
    assert read(value, missing="group") is None


MISSING_99 = ("", "99", "-1.5", "true", "9,5")


@pytest.mark.parametrize(
    ("settings", "form", "missing", "present"),
    [
        ({}, "jsonl", ["99", JsonNumber("99"), JsonNumber("99.0"), JsonNumber("-15e-1")], JsonNumber("98")),
        ({}, "csv", ["99", " 99.0", "9.9e1", "+99", "9,5"], "98"),
        ({"scale": Scale.TIME, "unit": "s"}, "jsonl", ["99", JsonNumber("99"), JsonNumber("99.0")], JsonNumber("99.1")),
        ({"scale": Scale.TIME, "unit": "s"}, "csv", ["99", "099 ", "-1.5"], "99.1"),
        ({"scale": Scale.TIME}, "jsonl", ["99", JsonNumber("99"), JsonNumber("99.0"), True], "1970-01-02"),
        ({"scale": Scale.NOMINAL}, "jsonl", ["99", JsonNumber("99"), True, "true"], False),
        ({"scale": Scale.NOMINAL}, "csv", ["99", " true"], "99.0"),
        ({"scale": Scale.NOMINAL, "taxonomy": TAXONOMY}, "jsonl", ["99", JsonNumber("99"), True], JsonNumber("1")),
        ({"scale": Scale.ORDINAL, "order": ("a", 98)}, "jsonl", ["99", JsonNumber("99"), True], JsonNumber("98")),
    ],
)
def test_a_number_or_truth_value_is_missing_if_its_text_is(
    settings: dict[str, Any], form: Form, missing: list[object], present: object
) -> None:
    def read_as(value: object, rule: str) -> float | None:
        attribute = Attribute("a", Role.QUASI_IDENTIFIER, **settings, missing=rule)  # type: ignore[arg-type]
        return value_reader(attribute, form, DecimalSign(), MISSING_99, Categories())(value)

    for value in missing:
        assert read_as(value, "quarantine") is None
        found = read_as(value, "group")
        assert found is not None
        assert math.isnan(found)
    found = read_as(present, "group")
    assert found is not None
    assert math.isfinite(found)


def test_a_decimal_comma_is_read_before_a_number_is_compared() -> None:
    attribute = Attribute("a", Role.QUASI_IDENTIFIER, missing="group")
    reader = value_reader(attribute, "csv", DecimalSign(","), ("-1.5",), None)
    assert math.isnan(reader("-1,50") or 0)
    assert reader("-1,5001") == -1.5001
