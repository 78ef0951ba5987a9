"""What clusters publish: the more frequent category, times, and missing values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from shoal.audit.scales import published_values
from shoal.policy import Attribute, Scale, TimeStep
from shoal.scales import CategoryIndex, Embedding
from support.scales import attribute, block_of, policy_with

pytestmark = pytest.mark.unit

ORDER = ("low", "middle", "high", 4)


def published(one: Attribute, *clusters: list[Any], is_table: bool = False) -> list[str]:
    """Return the texts that clusters of values of one attribute publish."""
    policy = policy_with(one, delta=None if is_table else 5)
    index = CategoryIndex(policy)
    values = index.encode(block_of(policy, [[value] for cluster in clusters for value in cluster])).values
    embedding = (
        Embedding.of_table(policy, values, index.trees, index.texts)
        if is_table
        else Embedding.of(policy, None, index.trees, index.texts)
    )
    bounds = np.cumsum([0, *map(len, clusters)])
    texts = [row[0] for row in embedding.published(values, bounds).texts]
    order = np.concatenate(
        [start + np.arange(size)[::-1] for start, size in zip(bounds, np.diff(bounds), strict=False)]
    )
    assert [row[0] for row in embedding.published(values[order], bounds).texts] == texts, "depends on the order"
    return texts


def time(text: str) -> float:
    return float(np.datetime64(text, "ms").astype(np.int64))


def test_equally_frequent_categories_of_a_stream_publish_the_smaller_text() -> None:
    sex = attribute("sex", Scale.NOMINAL)
    clusters = [['"M"', '"M"', '"F"'], ['"M"', '"F"'], ["true", '"true"', "1"], ['"é"', '"z"'], ['"a b"', '"a"']]
    assert published(sex, *clusters) == ['"M"', '"F"', '"true"', '"z"', '"a b"']


def test_equally_frequent_categories_of_a_table_publish_the_one_that_is_more_frequent_in_it() -> None:
    sex = attribute("sex", Scale.NOMINAL)
    assert published(sex, ['"M"', '"F"'], ['"M"', '"M"'], ['"N"', '"F"'], is_table=True) == ['"M"', '"M"', '"F"']


@pytest.mark.parametrize(
    ("step", "members", "text"),
    [
        (TimeStep(1, "day"), ["2024-01-02", "2024-01-03"], "2024-01-02"),  # 19724.5 days since 1970
        (TimeStep(7, "day"), ["1970-01-01", "1970-01-08"], "1970-01-01"),
        (TimeStep(15, "min"), ["2024-01-01T10:07:29", "2024-01-01T10:07:30"], "2024-01-01T10:00:00Z"),
        (TimeStep(15, "min"), ["2024-01-01T10:07:30.001"], "2024-01-01T10:15:00Z"),
        (TimeStep(1, "s"), ["1969-12-31T23:59:58.500"], "1969-12-31T23:59:58Z"),
        (TimeStep(1, "month"), ["2024-02-15T12:00"], "2024-03-01"),  # the middle of month 649 since 1970
        (TimeStep(1, "month"), ["2023-01-16T12:00", "2023-01-16T12:00:00.001"], "2023-02-01"),
        (TimeStep(1, "year"), ["2023-07-02T12:00"], "2024-01-01"),
        (TimeStep(1, "year"), ["0001-01-01", "0001-01-02"], "0001-01-01"),
    ],
)
def test_a_time_is_the_mean_rounded_to_its_step(step: TimeStep, members: list[str], text: str) -> None:
    when = attribute("when", Scale.TIME, time_step=step, bounds=(0.0, 1.0))
    assert published(when, [time(member) for member in members]) == [f'"{text}"']


def test_a_time_in_epoch_units_is_a_number() -> None:
    members = [time("2024-01-01"), time("2024-01-02T10:00")]
    for unit, text in (("s", "1704153600"), ("ms", "1704153600000"), ("us", "1704153600000000"), ("days", "19724")):
        when = attribute("when", Scale.TIME, unit=unit, time_step=TimeStep(1, "day"), bounds=(0.0, 1.0))
        assert published(when, members) == [text]


def test_the_mean_of_many_times_is_exact() -> None:
    last = time("9999-12-31T23:59:59.999")
    when = attribute("when", Scale.TIME, unit="ms", time_step=TimeStep(1, "s"), bounds=(0.0, 1.0))
    assert published(when, [last] * 100_000) == ["253402300799000"]


@pytest.mark.parametrize("missing", ["group", "mean"])
def test_a_number_is_published_only_if_more_than_half_of_the_members_have_one(missing: str) -> None:
    number = attribute("number", Scale.NUMERIC, bounds=(0.0, 10.0), integer=True, missing=missing)
    clusters = [5, None], [7, None, None], [2, 4], [None, None], [8, None, 9], [6, 6, None, None]
    assert published(number, *clusters) == ["null", "null", "3", "null", "8", "null"]


def test_a_category_or_rank_is_published_only_if_more_than_half_of_the_members_have_one() -> None:
    sex = attribute("sex", Scale.NOMINAL, missing="group")
    clusters = ['"F"', None], [None, None, '"F"'], ['"M"'], ['"F"', None, '"F"'], [None]
    assert published(sex, *clusters) == ["null", "null", '"M"', '"F"', "null"]
    grade = attribute("grade", Scale.ORDINAL, order=ORDER, missing="mean")
    assert published(grade, [None, 2, None], [None], [None, 2], [2, None, 2]) == ["null", "null", "null", '"high"']


@pytest.mark.parametrize(
    ("values", "people", "text"),
    [
        ([None, None, None, 6, 8, 10], [1, 1, 1, 2, 3, 4], "8"),  # half of the records, one of four people
        ([None, None, 6, 8], [1, 2, 3, 4], "null"),  # half of the people
        ([None, None, 6, 6, 6, 6], [1, 2, 3, 3, 3, 3], "null"),  # two thirds of the records, one of three people
        ([None, 4, None, 8], [1, 1, 2, 2], "6"),  # both people have a value once
    ],
)
def test_a_value_is_published_if_more_than_half_of_the_people_have_one(
    values: list[int | None], people: list[int], text: str
) -> None:
    policy = policy_with(attribute("number", Scale.NUMERIC, bounds=(0.0, 10.0), integer=True, missing="group"), delta=5)
    columns = block_of(policy, [[value] for value in values]).values
    found = Embedding.of(policy, None).published(columns, np.array([0, len(values)]), np.array(people))
    assert found.texts == [[text]]
    (judged,) = published_values(policy, "jsonl", table=False, has_table_grids=False)
    assert judged.of_clusters(columns[:, 0], np.array(people), np.array([len(people)])) == [text]
