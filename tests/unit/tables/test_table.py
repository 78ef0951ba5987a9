"""Tables: the last check at the limits of the policy, confidential columns, and numbers, categories and times."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from shoal.errors import AnonymityViolation, ConfigError, ParameterError
from shoal.formats import JsonEncoder
from shoal.policy import Attribute, Policy, Role, Scale, TimeStep
from shoal.policy.schema import Document
from shoal.protection.diversity import EQUAL, HIERARCHICAL, ORDERED, ValueReference
from shoal.scales import CategoryIndex, Embedding
from shoal.tables import AlgorithmSpec, ConfidentialAttribute, TablePipeline, TableRelease
from shoal.tables.precompilation import precompile_table
from shoal.tables.table import ConfidentialColumn, verify_subjects, verify_values
from support.scales import AREAS, attribute, block_of, policy_with

pytestmark = pytest.mark.unit


def privacy_of(privacy: dict[str, object]) -> Policy:
    document = {
        "subject": "every_record",
        "attributes": {"age": {"role": "quasi_identifier"}, "ill": {"role": "confidential"}},
        "privacy": {"k": 2, **privacy},
    }
    return Policy.from_document(Document.model_validate(document))


def attribute_of(clusters: list[list[int]]) -> tuple[ConfidentialAttribute, np.ndarray[tuple[int], np.dtype[np.int32]]]:
    """Return an unordered attribute with these counts of its values in each cluster, and the labels."""
    bins = [bin_ for counts in clusters for bin_, count in enumerate(counts) for _ in range(count)]
    labels = [label for label, counts in enumerate(clusters) for _ in range(sum(counts))]
    return ConfidentialAttribute(np.array(bins, np.int64), ordered=False), np.array(labels, np.int32)


@pytest.mark.parametrize(
    ("c", "violated", "kept"),
    [(1.1, [11, 10], [10, 10]), (2.2, [22, 10], [21, 10]), (2, [4, 2], [3, 2]), (0.1, [1] * 11, [1] * 12)],
)
def test_recursive_diversity_is_violated_at_equality(c: float, violated: list[int], kept: list[int]) -> None:
    """1.1 * 10 and 2.2 * 10 are above 11 and 22 in float64."""
    policy = privacy_of({"l": {"recursive": [c, 2]}})
    attribute, labels = attribute_of([kept, kept])
    verify_values(policy, (attribute,), labels, np.arange(len(labels)))
    attribute, labels = attribute_of([kept, violated])
    with pytest.raises(AnonymityViolation, match=r"privacy\.l"):
        verify_values(policy, (attribute,), labels, np.arange(len(labels)))


@pytest.mark.parametrize(
    ("privacy", "message"),
    [
        ({"max_value_share": 0.5}, "max_value_share"),
        ({"l": 3, "max_value_share": 1}, r"privacy\.l"),
        ({"l": {"entropy": 2}}, r"privacy\.l"),
        ({"l": {"recursive": [3, 3]}}, r"privacy\.l"),
        ({"t": 0.1}, r"privacy\.t"),
    ],
)
@pytest.mark.parametrize("distance", [EQUAL, ORDERED, HIERARCHICAL])
def test_the_last_check_counts_people(privacy: dict[str, object], message: str, distance: int) -> None:
    """Ten records of one person have ten values; ten other people have one: half of the records, 10 of 11 people."""
    values = np.r_[np.arange(10), np.full(10, 10)]
    paths = np.arange(2)[:, None] if distance == HIERARCHICAL else None
    reference = ValueReference(distance, np.array([0.5, 0.5]), paths)
    attribute = ConfidentialAttribute((values == 10).astype(np.int64), distance == ORDERED, reference, values)
    labels = np.zeros(20, np.int32)
    verify_values(privacy_of(privacy), (attribute,), labels, np.arange(20))
    with pytest.raises(AnonymityViolation, match=message):
        verify_values(privacy_of(privacy), (attribute,), labels, np.r_[np.zeros(10, np.int64), np.arange(1, 11)])


def test_subjects_and_largest_shares_are_counted_per_cluster() -> None:
    found = verify_subjects(privacy_of({}), np.array([7, 8, 7, 9]), np.array([0, 1, 3, 2]), np.array([0, 2, 4]))
    assert found.tolist() == [[2, 2], [1, 1]]
    found = verify_subjects(privacy_of({}), np.array([7, 8, 7, 9]), np.arange(4), np.array([0, 4]))
    assert found.tolist() == [[3], [2]]


@pytest.mark.parametrize(
    ("subjects", "order", "bounds", "fault"),
    [
        ([1, 2, 3, 3], [0, 1, 2, 3], [0, 2, 4], "fewer than 2 subjects"),
        ([1, 2, 2, 2], [0, 1, 2, 3], [0, 4], "a share above 0.5"),
        ([1, 2, 3, 4], [0, 1, 2, 2], [0, 2, 4], "not in exactly one cluster"),
        ([1, 2, 3, 4], [0, 1, 2], [0, 3], "not in exactly one cluster"),
        ([1, 2, 3, 4], [0, 1, 2, 3], [0, 3], "not in exactly one cluster"),
    ],
)
def test_a_partition_that_breaks_k_or_a_share_or_loses_a_record_is_refused(
    subjects: list[int], order: list[int], bounds: list[int], fault: str
) -> None:
    with pytest.raises(AnonymityViolation, match=fault):
        verify_subjects(privacy_of({}), np.array(subjects), np.array(order), np.array(bounds))


def column_of(kind: Any, values: list[Any], missing_values: tuple[str, ...]) -> ConfidentialColumn:
    column = ConfidentialColumn(Attribute("pay", Role.CONFIDENTIAL, type=kind), missing_values)
    column.add(values[:2])
    column.add(values[2:])
    return column


@pytest.mark.parametrize("kind", ["any", "number", "integer"])
@pytest.mark.parametrize("seven", [7, "7", 7.0])
def test_a_number_that_the_policy_lists_is_missing(kind: str, seven: Any) -> None:
    numbers = column_of(kind, [1, seven, 70, None], ("", "7")).numbers()
    assert numbers is not None
    assert np.array_equal(numbers, [1, np.nan, 70, np.nan], equal_nan=True)


def test_missing_values_of_a_category_are_one_bin() -> None:
    column = column_of("string", ["a", "?", None, "b"], ("", "?"))
    assert column.numbers() is None
    bins = column.bins(np.ones(4, np.bool_)).bins
    assert (bins[1] == bins[2], len(set(bins.tolist()))) == (True, 3)


DAY = 86_400_000.0
POLICY = policy_with(
    attribute("age", Scale.NUMERIC, missing="group", weight=2.0),
    attribute("sex", Scale.NOMINAL, missing="group", weight=3.0),
    attribute("area", Scale.NOMINAL, taxonomy=AREAS, publish="ancestor"),
    attribute("grade", Scale.ORDINAL, order=("low", "middle", "high"), missing="mean"),
    attribute("day", Scale.TIME, time_step=TimeStep(1, "day")),
    k=3,
    delta=None,
)


def rows_of(count: int) -> list[list[Any]]:
    draw = np.random.default_rng(7)
    return [
        [
            None if draw.random() < 0.3 else float(draw.integers(90)),
            [None, '"F"', '"M"'][draw.integers(3)],
            ['"AK"', '"NY"', '"MA"', '"XX"'][draw.integers(4)],
            None if draw.random() < 0.2 else int(draw.integers(3)),
            float(draw.integers(900)) * DAY,
        ]
        for _ in range(count)
    ]


def embedded(policy: Policy, rows: list[list[Any]]) -> tuple[np.ndarray, Embedding]:
    index = CategoryIndex(policy)
    values = index.encode(block_of(policy, rows)).values
    return values, Embedding.of_table(policy, values, index.trees, index.texts)


def release(policy: Policy, rows: list[list[Any]], **spec: Any) -> TableRelease:
    table = TablePipeline(policy, JsonEncoder(policy))
    table.add(block_of(policy, rows[:25]), 0)
    table.add(block_of(policy, rows[25:], 25), 25)
    return table.release(AlgorithmSpec(**spec))


def test_numbers_have_variance_1_and_categories_are_two_variances_apart_times_the_squared_weight() -> None:
    rows = rows_of(200)
    values, embedding = embedded(POLICY, rows)
    points = embedding.dense(values)
    # Columns: age, grade, day; then whether age is missing (2), sex (3), area on two levels (4 and 3).
    age = values[:, 0]
    assert points.shape[1] == 3 + 2 + 3 + 4 + 3
    assert points[~np.isnan(age), 0].var() == pytest.approx(4)
    assert (points[np.isnan(age), 0] == 0).all()
    assert points[:, 2].var() == pytest.approx(1)
    parts = {"missing age": slice(3, 5), "sex": slice(5, 8), "area": slice(8, None)}
    regions = {'"AK"': "West", '"NY"': "East", '"MA"': "East", '"XX"': "no region"}
    for one, other in combinations(range(60), 2):
        squares = {name: ((points[one, part] - points[other, part]) ** 2).sum() for name, part in parts.items()}
        area, other_area = rows[one][2], rows[other][2]
        assert squares["missing age"] == pytest.approx(2 * ((rows[one][0] is None) != (rows[other][0] is None)))
        assert squares["sex"] == pytest.approx(18 * (rows[one][1] != rows[other][1]))
        assert squares["area"] == pytest.approx((area != other_area) + (regions[area] != regions[other_area]))


def test_the_mean_rule_adds_no_distance() -> None:
    policy = policy_with(attribute("age", Scale.NUMERIC, missing="mean"), k=2, delta=None)
    values, embedding = embedded(policy, [[1.0], [3.0], [None], [2.0]])
    assert embedding.codes(values).shape == (4, 0)
    assert embedding.dense(values)[2].tolist() == embedding.dense(values)[3].tolist() == [0.0]


def test_losses_of_numbers_equal_their_definitions() -> None:
    policy = policy_with(
        attribute("a", Scale.NUMERIC, bounds=(0.0, 2.0)),
        attribute("b", Scale.NUMERIC, missing="mean"),
        attribute("c", Scale.NUMERIC),
        k=3,
        delta=None,
    )
    draw = np.random.default_rng(5)
    # The computed mean of numbers 0.1 differs from them in the last bit.
    rows = [[draw.random(), None if draw.random() < 0.2 else draw.random(), 0.1] for _ in range(50)]
    summary = (released := release(policy, rows)).summary
    values = np.array(rows, float)
    published = np.empty((50, 3))
    for members in released.clusters():
        is_known = 2 * np.count_nonzero(~np.isnan(values[members]), axis=0) > len(members)
        published[members] = np.where(is_known, np.nanmean(values[members], axis=0), np.nan)
    known = ~np.isnan(values - published)
    errors = np.where(known, values - published, 0.0)
    variances = [values[known[:, i], i].var() for i in (0, 1)]
    sse = float(sum((errors[:, i] ** 2).sum() / variances[i] for i in (0, 1)))
    sst = known[:, :2].sum()
    assert (summary["sst"], summary["sse"], summary["d_x"]) == pytest.approx((sst, sse, sse / sst))
    assert summary["information_loss"] == pytest.approx(100 * sse / sst)
    spans = np.array([2.0, np.nanmax(values[:, 1]) - np.nanmin(values[:, 1]), 1.0])
    squares = ((errors / spans) ** 2).sum(axis=1) + (np.isnan(values) != np.isnan(published)).sum(axis=1)
    assert (summary["mse"], summary["mae"]) == pytest.approx((squares.mean(), np.sqrt(squares).mean()))
    assert summary["loss"]["c"] is None


def test_blocks_of_attributes_and_steering_attributes() -> None:
    ward = attribute("ward", Scale.NOMINAL, role=Role.STEERING, weight=50.0)
    policy = replace(POLICY, attributes=(*POLICY.attributes, ward))
    rows = [[*row, f'"{number % 2}"'] for number, row in enumerate(rows_of(60))]
    whole = release(policy, rows)
    assert all(len({number % 2 for number in cluster}) == 1 for cluster in whole.clusters())
    assert all("ward" not in row for row in map(json.loads, whole.rows))
    blocks = release(policy, rows, blocks=2)
    assert len(blocks.rows) == 60
    assert list(blocks.summary["loss"]) == ["age", "sex", "area", "grade", "day"]


def test_a_table_without_an_order_has_no_sum_of_squares_and_no_linkage() -> None:
    policy = policy_with(attribute("sex", Scale.NOMINAL), k=2, delta=None)
    summary = release(policy, [['"F"'], ['"M"']] * 20).summary
    assert [summary[name] for name in ("sse", "sst", "information_loss", "d_x", "dld")] == [None] * 5
    assert (summary["mse"], summary["loss"]) == (0.0, {"sex": 0.0})


@pytest.mark.parametrize("algorithm", ["mdav", "vmdav", "hilbert", "genetic", "approximate", "md"])
def test_every_algorithm_reads_categories(algorithm: str) -> None:
    refine = "none" if algorithm == "approximate" else "descent"
    parameters = {"generations": 50} if algorithm == "genetic" else {}
    released = release(POLICY, rows_of(40), algorithm=algorithm, refine=refine, parameters=parameters)
    assert released.summary["released"] == 40
    assert released.summary["cluster_size"]["min"] >= 3


def test_of_a_subject_above_its_share_the_records_with_rare_categories_are_suppressed() -> None:
    who = Attribute("who", Role.IDENTIFIER, subject=True)
    policy = policy_with(attribute("sex", Scale.NOMINAL), who, k=2, delta=None)
    block = block_of(policy, [['"F"']] * 8 + [['"M"']] * 2)
    table = TablePipeline(policy, JsonEncoder(policy))
    table.add(replace(block, subjects=np.array([0, 1, 2, 3, 0, 0, 0, 0, 0, 0])))
    # Of 7 records of one subject 3 can stay beside the 3 others.
    assert table.release(AlgorithmSpec()).suppressed.tolist() == [6, 7, 8, 9]


def test_kernels_of_a_table_with_categories_are_compiled_ahead() -> None:
    precompile_table(POLICY)


def test_algorithm_approximate_selects_attributes_and_not_coordinates() -> None:
    # The copies of a category say all about each other, and have the highest degrees of the dependency tree.
    draw = np.random.default_rng(3)
    policy = policy_with(
        *(attribute(name, Scale.NOMINAL) for name in ("one", "two", "three")),
        attribute("age", Scale.NUMERIC),
        k=3,
        delta=None,
    )
    letters = [f'"{"abcdefgh"[draw.integers(8)]}"' for _ in range(60)]
    rows = [[letter, letter, letter, float(draw.integers(90))] for letter in letters]
    found = release(policy, rows, algorithm="approximate", refine="none")
    assert found.summary["clusters"] == 20
    assert found.summary["loss"]["one"] < 0.2 < found.summary["loss"]["age"]
    with pytest.raises(ConfigError, match="--refine"):
        release(policy, rows, algorithm="approximate", refine="descent")
    with pytest.raises(ParameterError, match="bins"):
        release(policy, rows, algorithm="approximate", refine="none", parameters={"bins": 1})
