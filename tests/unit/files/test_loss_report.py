"""The loss in words: the mean, the worst attribute, the reason, and what would keep more."""

from __future__ import annotations

from typing import Any

import pytest
from shoal.files.run import LossReport, percent
from shoal.policy import Scale, TimeStep
from support.making import policy_of
from support.scales import AREAS, attribute, policy_with

pytestmark = pytest.mark.unit

POLICY = policy_with(
    attribute("age", Scale.NUMERIC),
    attribute("shop", Scale.NOMINAL),
    attribute("area", Scale.NOMINAL, taxonomy=AREAS),
    attribute("grade", Scale.ORDINAL, order=("low", "high")),
    attribute("at", Scale.TIME, time_step=TimeStep(1, "min")),
    k=10,
    delta=200,
)
SMALL = {"age": 0.1, "shop": 0.2, "area": 0.0, "grade": 0.1, "at": None}


def report(*, is_table: bool = False, categories: dict[str, int] | None = None, **losses: Any) -> LossReport:
    counts = {"shop": 40, "area": 5} if categories is None else categories
    return LossReport(POLICY, SMALL | losses, counts, ("at",), is_table)


@pytest.mark.parametrize(
    ("losses", "text"),
    [
        ({}, "mean loss 10 %; worst shop 20 %"),
        ({"shop": 0.5}, "mean loss 18 %; worst shop 50 %"),
        ({"shop": 0.6841}, "mean loss 22 %; worst shop 68 %: 40 values, delta 200 keeps few (docs/numbers.md)"),
        ({"age": 0.51}, "mean loss 20 %; worst age 51 %: see weight in docs/policy.md"),
        ({"at": 0.99}, "mean loss 28 %; worst at 99 %: see weight in docs/policy.md"),
        ({"at": 1.0}, "mean loss 28 %; worst at 100 %: see resolution in docs/policy.md"),
        ({"age": 0.2}, "mean loss 12 %; worst age 20 %"),  # of equal losses the first
        (dict.fromkeys(SMALL, 0.0), "mean loss 0 %"),
        (dict.fromkeys(SMALL), ""),
    ],
)
def test_the_last_line_names_the_mean_and_the_worst_attribute(losses: dict[str, Any], text: str) -> None:
    assert report(**losses).summary() == text


def test_a_table_has_no_delta_and_large_numbers_of_categories_are_not_told() -> None:
    assert report(is_table=True, shop=0.7).summary().endswith(": 40 values, k 10 keeps few (docs/numbers.md)")
    assert ": over 500 values, delta" in report(categories={"shop": 501}, shop=0.7).summary()


@pytest.mark.parametrize(("count", "are_many"), [(20, False), (21, True)])
def test_delta_is_the_reason_only_if_pure_clusters_of_all_categories_need_more_records(
    count: int,
    are_many: bool,  # noqa: FBT001
) -> None:
    found = report(categories={"shop": count}, shop=0.9)
    assert (": see weight in docs/policy.md" in found.summary()) is not are_many
    assert (f": {count} values, delta 200 keeps few" in found.summary()) is are_many
    outweighed = (
        f"shop: delta 200 and k 10 could keep its {count} values, but the other attributes outweigh it; what helps"
    )
    assert (outweighed in found.lines()[-1]) is not are_many


def test_all_attributes_are_listed_with_the_worst_first() -> None:
    assert report(shop=0.81, at=0.3).lines() == [
        "mean loss 26 %",
        "shop 81 %",
        "at 30 % of what is left after its trend",
        "age 10 %",
        "grade 10 %",
        "area 0 %",
        (
            "shop: delta 200 and k 10 cannot keep its 40 values; what helps: a larger delta, a smaller k, "
            "a larger weight, a taxonomy, or leave it out"
        ),
    ]


@pytest.mark.parametrize(
    ("keys", "helps"),
    [
        ({}, "a larger weight, a taxonomy, or leave it out"),
        (
            {"prefixes": [3, 1]},
            "publish: mode (then a member has the published value), or leave it out",
        ),
        ({"prefixes": [3, 1], "publish": "mode"}, "a larger weight, or leave it out"),
    ],
)
def test_what_helps_a_code_depends_on_what_is_published_of_it(keys: dict[str, Any], helps: str) -> None:
    policy = policy_of(
        {"shop": {"role": "quasi_identifier", "scale": "nominal", **keys}}, privacy={"k": 10}, stream={"delta": 200}
    )
    loss = LossReport(policy, {"shop": 0.9}, {"shop": 40})
    assert loss.lines()[-1].endswith(helps)


def test_what_helps_depends_on_the_scale() -> None:
    lines = report(is_table=True, age=0.81, area=0.82, at=0.83).lines()
    assert lines[-3:] == [
        "at: k 10 cannot keep it; what helps: a smaller k, a larger weight, a finer resolution, or leave it out",
        "area: k 10 cannot keep its 5 values; what helps: a smaller k, a larger weight, or leave it out",
        "age: k 10 cannot keep it; what helps: a smaller k, a larger weight, or leave it out",
    ]
    assert report().lines()[-1] == "at: no loss, because its values do not vary"
    nothing: dict[str, Any] = dict.fromkeys(SMALL)
    assert report(**nothing).lines() == ["mean loss: none, because no attribute has one"]


@pytest.mark.parametrize(
    ("loss", "text"),
    [(0.2841, "28 %"), (0.00009, "below 0.01 %"), (0.0042, "0.42 %"), (0.996, "100 %"), (10.0, "1,000 %")],
)
def test_a_loss_has_two_significant_digits(loss: float, text: str) -> None:
    assert percent(loss) == text
