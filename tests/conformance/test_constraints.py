"""Tables under constraints: every algorithm and refinement against plain definitions; and measures of a release."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from shoal.arrays import Float64Matrix, Int64Vector
from shoal.errors import AnonymityViolation
from shoal.protection.diversity import DISTINCT, ENTROPY, EQUAL, HIERARCHICAL, RECURSIVE, LDiversity, ValueReference
from shoal.tables import (
    ALGORITHMS,
    ClusterConstraints,
    ConfidentialAttribute,
    emd_of_clusters,
    measures,
    microaggregate,
    records_above_share,
)
from shoal.tables.constraints import merge_until_feasible, satisfies_constraints, violating_clusters
from shoal.tables.mdav import mdav
from shoal.tables.measures import loss_of
from shoal.tables.refinement import refine
from shoal.tables.repair import repair_by_swaps
from shoal.tables.t_closeness import strict
from support.constrained_tables import BATCH, clusters_of, small_budget
from support.diversity_by_definition import (
    Record,
    alone,
    assignable,
    entropy_of,
    is_recursive,
    people_in,
    value_share,
    weights_of,
)
from support.input_size import sized

pytestmark = pytest.mark.conformance

QUICK = {"genetic": {"generations": sized(20, 5)}}
ONE_VALUE = ConfidentialAttribute(np.zeros(20, np.int64), ordered=False)


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.tables.refinement.BATCH", BATCH)


def plain_distance(bins: Int64Vector, members: list[int], people: Int64Vector | None = None, *, ordered: bool) -> float:
    """The distance from its definition, value by value; by default each record is another person."""
    values, owners = sorted(set(bins.tolist())), range(len(bins)) if people is None else people.tolist()
    table = list(zip(owners, bins.tolist(), strict=True))
    cluster = [table[member] for member in members]
    whole, own = weights_of(table), weights_of(cluster)
    gaps = [float(own.get(v, 0) / people_in(cluster) - whole[v] / people_in(table)) for v in values]
    if not ordered:
        return sum(map(abs, gaps)) / 2
    return sum(abs(sum(gaps[: i + 1])) for i in range(len(gaps))) / max(len(values) - 1, 1)


def clustered_subjects(seed: int, n: int = 90) -> tuple[Float64Matrix, Int64Vector, tuple[ConfidentialAttribute, ...]]:
    """Records of 18 subjects, each near one point, and confidential values with ties."""
    draw = np.random.default_rng(seed)
    subjects = draw.integers(0, 18, n)
    subjects = np.unique(subjects, return_inverse=True)[1]
    values = draw.random((18, 2))[subjects] + 0.1 * draw.random((n, 2))
    line = np.unique(draw.integers(0, 12, n) ** 2, return_inverse=True)[1]
    words = np.unique(draw.integers(0, 3, n), return_inverse=True)[1]
    return values, subjects, (ConfidentialAttribute(line, ordered=True), ConfidentialAttribute(words, ordered=False))


@pytest.mark.parametrize("how", ["none", "descent", "anneal"])
@pytest.mark.parametrize("name", ["auto", *sorted(set(ALGORITHMS) - {"optimal"})])
def test_every_cluster_has_k_subjects_and_keeps_the_largest_share(name: str, how: str) -> None:
    cases = ((1, 2, 0.5), (2, 3, 0.5), (3, 4, 0.25), (4, 3, 1.0))
    for seed, k, share in sized(cases, cases[1:3]):
        values, subjects, _ = clustered_subjects(seed)
        stays = ~records_above_share(subjects, share, values)
        values, subjects = np.ascontiguousarray(values[stays]), np.unique(subjects[stays], return_inverse=True)[1]
        labels = microaggregate(
            values,
            k,
            name,
            how,
            seed,
            parameters=QUICK.get(name),
            budget_used=small_budget,
            constraints=ClusterConstraints(subjects, share),
        )
        for members in clusters_of(labels):
            counts = Counter(subjects[members].tolist())
            assert len(counts) >= k
            assert max(counts.values()) <= share * len(members) + 1e-9


@pytest.mark.parametrize("how", ["none", "descent", "anneal"])
@pytest.mark.parametrize("name", ["auto", "strict", "steered", "mdav", "hilbert"])
def test_every_cluster_is_t_close(name: str, how: str) -> None:
    for seed, t in sized(((1, 0.3), (2, 0.15), (3, 0.05)), ((3, 0.05),)):
        values, subjects, confidential = clustered_subjects(seed)
        constraints = ClusterConstraints(subjects, 0.5, confidential, t)
        labels = microaggregate(values, 3, name, how, seed, budget_used=small_budget, constraints=constraints)
        for members in clusters_of(labels):
            assert len(set(subjects[members].tolist())) >= 3
            for attribute in confidential:
                assert plain_distance(attribute.bins, members, subjects, ordered=attribute.ordered) <= t + 1e-9


def test_a_subject_with_many_equal_records_is_merged_with_as_few_others_as_needed() -> None:
    draw = np.random.default_rng(1)
    equal, others = sized((1200, 2000), (120, 200))
    subjects = np.concatenate([np.zeros(equal, np.int64), np.arange(1, others + 1)])
    values = draw.random((equal + others, 2))
    values[:equal] = 0.5
    for how in ("none", "descent"):
        labels = microaggregate(values, 3, "hilbert", how, constraints=ClusterConstraints(subjects, 0.5))
        own = np.bincount(labels, subjects == 0)
        sizes = np.bincount(labels)
        assert (own <= 0.5 * sizes).all()
        # As few others as needed, and no other cluster is merged.
        assert sizes.max() <= 2 * own.max() + 6
        assert len(sizes) > others // 10


def test_refinement_does_not_change_clusters_above_the_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("MAX_CLUSTER", "MAX_T_CLOSE_CLUSTER"):
        monkeypatch.setattr(f"shoal.tables.refinement.{limit}", 30)
    values, _, confidential = clustered_subjects(3, 300)
    start = np.maximum(np.arange(300) // 3 - 30, 0).astype(np.int32)
    for constraints in (ClusterConstraints(), ClusterConstraints(confidential=confidential, t=0.9)):
        for how in ("descent", "anneal"):
            found = refine(values, [start, start], 3, how, budget_used=small_budget, constraints=constraints)
            assert sorted(np.flatnonzero(found.labels == found.labels[0]).tolist()) == list(range(93))
            assert found.loss < loss_of(values, start)
            assert np.bincount(found.labels).min() >= 3


@pytest.mark.parametrize(
    "constraints",
    [
        ClusterConstraints(np.zeros(20, np.int64)),
        ClusterConstraints(np.arange(20) // 12, 0.5),
        ClusterConstraints(confidential=(ONE_VALUE,), l=LDiversity(DISTINCT, 2)),
        ClusterConstraints(confidential=(ONE_VALUE,), max_value_share=0.9),
    ],
)
def test_constraints_that_the_whole_table_violates_raise(constraints: ClusterConstraints) -> None:
    values = np.random.default_rng(1).random((20, 2))
    with pytest.raises(AnonymityViolation):
        microaggregate(values, 2, "auto", "descent", constraints=constraints)


def test_as_few_records_as_possible_are_suppressed_for_a_share() -> None:
    draw = np.random.default_rng(3)
    for share in (0.2, 0.3, 0.5, 0.9, 1.0):
        subjects = draw.integers(0, 9, 60) ** 2 // 7
        counts = Counter(subjects.tolist())
        stays = ~records_above_share(subjects, share, draw.random((60, 2)))
        kept = Counter(subjects[stays].tolist())
        best = max(
            total
            for most in range(1, 61)
            if most <= share * (total := sum(min(count, most) for count in counts.values())) + 1e-9
            or max(counts.values()) <= share * total
        )
        assert len(kept) == len(counts)
        assert max(kept.values()) <= share * stays.sum() + 1e-9 or max(kept.values()) == 1
        assert stays.sum() == best or max(kept.values()) == 1


@pytest.mark.parametrize("ordered", [True, False])
def test_distances_equal_the_formula(ordered: bool) -> None:  # noqa: FBT001
    draw = np.random.default_rng(7)
    for values in (1, 2, 5, 40, 1000):
        bins = np.unique(draw.integers(0, values, 80), return_inverse=True)[1]
        labels = np.unique(draw.integers(0, 9, 80), return_inverse=True)[1].astype(np.int32)
        found = emd_of_clusters(ConfidentialAttribute(bins, ordered), labels)
        plain = [plain_distance(bins, members, ordered=ordered) for members in clusters_of(labels)]
        assert found.tolist() == pytest.approx(plain, abs=1e-12)


def scored(rows: Float64Matrix) -> Float64Matrix:
    deviation = rows.std(axis=0)
    scores: Float64Matrix = (rows - rows.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    return scores


@pytest.mark.parametrize("decimals", [0, 1, 9])
def test_linked_records_equal_brute_force_with_ties(decimals: int) -> None:
    draw = np.random.default_rng(9)
    for n, d, clusters in ((40, 2, 10), (200, 3, 40), (60, 1, 60), (30, 2, 1)):
        values = draw.standard_normal((n, d)).round(decimals)
        labels = np.unique(draw.integers(0, clusters, n), return_inverse=True)[1].astype(np.int32)
        sizes = np.bincount(labels)
        published = np.column_stack([np.bincount(labels, column) / sizes for column in values.T]).round(decimals)
        rows, perturbed = scored(values), scored(published[labels])
        hits = 0.0
        for i in range(n):
            squares = ((rows - perturbed[i]) ** 2).sum(axis=1)
            nearest = np.flatnonzero(squares == squares.min())
            hits += float(i in nearest) / len(nearest)
        cluster_bounds = np.append(0, np.cumsum(sizes))
        assert measures.linkage_share(values, published, labels, cluster_bounds) == pytest.approx(hits / n)


def test_categories_and_losses_equal_their_definitions() -> None:
    draw = np.random.default_rng(4)
    numbers = draw.standard_normal((50, 3)).round(1)
    numbers[draw.random((50, 3)) < 0.1] = np.nan
    labels = np.unique(draw.integers(0, 8, 50), return_inverse=True)[1].astype(np.int32)
    fewest = []
    for members in clusters_of(labels):
        columns = [[None if np.isnan(y) else round(y / 0.02) for y in column[members]] for column in numbers.T]
        fewest.append(min(len(set(column)) for column in columns))
    assert measures.distinct_categories(labels, numbers) == pytest.approx(sum(fewest) / len(fewest))
    within = total = 0.0
    for column in numbers.T:
        known = ~np.isnan(column)
        total += float(((column[known] - column[known].mean()) ** 2).sum())
        for members in clusters_of(labels):
            own = column[members][known[members]]
            within += float(((own - own.mean()) ** 2).sum()) if len(own) else 0.0
    assert measures.confidential_loss(labels, numbers) == pytest.approx(within / total)


KINDS = [
    (LDiversity(DISTINCT, 3), 0.5),
    (LDiversity(ENTROPY, 2.5), None),
    (LDiversity(RECURSIVE, 3, 2.0), None),
    (None, 0.4),
]


def correlated(seed: int, n: int = 120) -> tuple[Float64Matrix, tuple[ConfidentialAttribute, ...]]:
    """Records of which the near ones have equal confidential values; a common and some rare ones."""
    draw = np.random.default_rng(seed)
    values = draw.random((n, 2))
    areas = np.minimum((values[:, 0] * 5 + draw.exponential(0.5, n)).astype(np.int64), 6)
    words = np.minimum(draw.geometric(0.3, n), 5) - 1
    return values, (ConfidentialAttribute(areas, ordered=False), ConfidentialAttribute(words, ordered=False))


def is_kept(records: list[Record], l: LDiversity | None, max_value_share: float | None) -> bool:  # noqa: E741
    if max_value_share is not None and value_share(records) > max_value_share:
        return False
    if l is None:
        return True
    if l.kind == DISTINCT:
        return assignable(records) >= l.l
    if l.kind == ENTROPY:
        return entropy_of(records) >= math.log(l.l) - 1e-9
    return is_recursive(records, l.c, int(l.l))


@pytest.mark.parametrize("how", ["none", "descent", "anneal"])
@pytest.mark.parametrize("name", ["auto", "mdav", "vmdav", "hilbert"])
def test_every_cluster_is_diverse(name: str, how: str) -> None:
    for seed, (l, share) in enumerate(sized(KINDS, KINDS[:1])):  # noqa: E741 - the letter of the literature
        values, confidential = correlated(seed)
        constraints = ClusterConstraints(confidential=confidential, l=l, max_value_share=share)
        labels = microaggregate(values, 4, name, how, seed, budget_used=small_budget, constraints=constraints)
        assert labels.max() > 5
        for members in clusters_of(labels):
            assert len(members) >= 4
            for attribute in confidential:
                assert is_kept(alone(attribute.bins[members].tolist()), l, share)


@pytest.mark.parametrize("how", ["none", "descent", "anneal"])
@pytest.mark.parametrize(("l", "share"), KINDS)
def test_every_cluster_is_diverse_by_people(how: str, l: LDiversity | None, share: float | None) -> None:  # noqa: E741
    """Three records of each person, near each other; the values differ, so by records more clusters would do."""
    values, confidential = correlated(3, 150)
    people = np.argsort(np.argsort(values[:, 0])) // 3
    constraints = ClusterConstraints(people, 0.5, confidential[1:], l=l, max_value_share=share)
    labels = microaggregate(values, 4, "mdav", how, budget_used=small_budget, constraints=constraints)
    assert labels.max() > 5
    assert not violating_clusters(labels, 4, constraints).any()
    for members in clusters_of(labels):
        records = list(zip(people[members].tolist(), confidential[1].bins[members].tolist(), strict=True))
        assert len(set(people[members].tolist())) >= 4
        assert is_kept(records, l, share)


@pytest.mark.parametrize(("l", "share"), [*KINDS, (LDiversity(DISTINCT, 3), None)])
def test_the_values_of_one_person_hide_nothing_of_others(
    l: LDiversity | None,  # noqa: E741 - the letter of the literature
    share: float | None,
) -> None:
    """Ten records of one person have ten values; ten other people have one. Half of the records, 10 of 11 people."""
    values = np.random.default_rng(2).random((20, 2))
    attribute = ConfidentialAttribute(np.r_[np.arange(10), np.full(10, 10)], ordered=False)
    people, labels = np.r_[np.zeros(10, np.int64), np.arange(1, 11)], np.zeros(20, np.int32)
    by_records = ClusterConstraints(confidential=(attribute,), l=l, max_value_share=share)
    by_people = ClusterConstraints(people, 0.5, (attribute,), l=l, max_value_share=share)
    assert violating_clusters(labels, 10, by_records).tolist() == [share == 0.4]
    assert violating_clusters(labels, 10, by_people).tolist() == [True]
    with pytest.raises(AnonymityViolation):
        microaggregate(values, 10, "auto", "descent", constraints=by_people)


def test_distances_of_clusters_and_their_reference_weigh_people() -> None:
    """Person 0 has three records and weighs one: a third of it is a in its cluster, as it is in the table."""
    attribute = ConfidentialAttribute(np.array([0, 1, 1, 0, 1]), ordered=False)
    people, labels = np.array([0, 0, 0, 1, 2]), np.array([0, 0, 0, 0, 1], np.int32)
    assert attribute.compared_with(people).weights.tolist() == pytest.approx([4 / 3, 5 / 3])
    assert emd_of_clusters(attribute, labels, people).tolist() == pytest.approx([2 / 3 - 4 / 9, 4 / 9])
    assert emd_of_clusters(attribute, labels).tolist() == pytest.approx([0.5 - 0.4, 0.4])


def test_two_clusters_of_the_same_people_may_violate_a_share_together() -> None:
    """Five of ten people have v in one cluster, the others in the other: together all ten have it."""
    attribute = ConfidentialAttribute(np.r_[np.arange(10) // 5, 1 - np.arange(10) // 5], ordered=False)
    people = np.tile(np.arange(10), 2)
    constraints = ClusterConstraints(people, 0.5, (attribute,), max_value_share=0.5)
    apart, together = (np.arange(20) // 10).astype(np.int32), np.zeros(20, np.int32)
    assert violating_clusters(apart, 10, constraints).tolist() == [False, False]
    assert violating_clusters(together, 10, constraints).tolist() == [True]
    values = np.c_[np.arange(20) // 10, np.zeros(20)].astype(np.float64)
    assert sorted(map(len, clusters_of(microaggregate(values, 10, constraints=constraints)))) == [10, 10]
    # Where no partition is found, merging ends with one cluster that violates the share, and nothing is released.
    assert merge_until_feasible(values, (np.arange(20) // 4).astype(np.int32), 10, constraints).max() == 0


@pytest.mark.parametrize(("l", "share"), KINDS)
@pytest.mark.parametrize("seed", [1, 2])
def test_swaps_repair_clusters_and_lose_less_than_merging(
    l: LDiversity | None,  # noqa: E741
    share: float | None,
    seed: int,
) -> None:
    values, confidential = correlated(seed)
    constraints = ClusterConstraints(confidential=confidential[:1], l=l, max_value_share=share)
    labels = mdav(values, 5)
    before = violating_clusters(labels, 5, constraints)
    repaired = repair_by_swaps(values, labels, 5, constraints)
    after = violating_clusters(repaired, 5, constraints)
    assert after.sum() < before.sum()
    assert not (after & ~before).any()
    assert np.bincount(repaired).tolist() == np.bincount(labels).tolist()
    merged = merge_until_feasible(values, labels, 5, constraints)
    assert loss_of(values, merge_until_feasible(values, repaired, 5, constraints)) < loss_of(values, merged)


def nested(codes: Int64Vector) -> ConfidentialAttribute:
    """Seven leaves below three nodes, compared with the table."""
    paths = np.array([[0, 0], [1, 0], [2, 1], [3, 1], [4, 1], [5, 2], [6, 2]])
    reference = ValueReference(HIERARCHICAL, np.bincount(codes, minlength=7), paths)
    return ConfidentialAttribute(codes, ordered=False, reference=reference)


@pytest.mark.parametrize("t", [0.3, 0.15])
def test_strict_partitions_keep_each_distance(t: float) -> None:
    values, (areas, _) = correlated(7, 300)
    for attribute in (areas, areas._replace(ordered=True), nested(areas.bins)):
        found = strict(values, 4, attribute, t)
        assert emd_of_clusters(attribute, found.labels).max() <= t + 1e-12
        assert np.bincount(found.labels).min() >= 4
        assert len(np.bincount(found.labels)) > 300 // 60
        for how in ("none", "descent"):
            constraints = ClusterConstraints(confidential=(attribute,), t=t)
            labels = microaggregate(values, 4, "auto", how, constraints=constraints)
            assert emd_of_clusters(attribute, labels).max() <= t + 1e-12


def test_a_given_reference_takes_the_place_of_the_table() -> None:
    values, (areas, _) = correlated(8, 300)
    reference = ValueReference(EQUAL, np.array([0.1, 0.2, 0.2, 0.2, 0.2, 0.05, 0.05]))
    attribute = areas._replace(reference=reference)
    whole = emd_of_clusters(attribute, np.zeros(300, np.int32))[0]
    expected = np.abs(np.bincount(areas.bins, minlength=7) / 300 - reference.weights).sum() / 2
    assert whole == pytest.approx(expected)
    for name in ("auto", "strict", "steered", "mdav"):
        constraints = ClusterConstraints(confidential=(attribute,), t=0.3)
        labels = microaggregate(values, 4, name, constraints=constraints)
        assert emd_of_clusters(attribute, labels).max() <= 0.3 + 1e-12
    with pytest.raises(AnonymityViolation):
        microaggregate(values, 4, constraints=ClusterConstraints(confidential=(attribute,), t=whole / 2))


@pytest.mark.parametrize(
    ("share", "size", "most"), [(0.857142857, 7, 6), (0.909090909, 11, 10), (0.6666666666, 15, 10)]
)
def test_kernels_and_the_last_check_judge_a_rounded_share_alike(share: float, size: int, most: int) -> None:
    subjects = np.r_[np.zeros(most, np.int64), np.arange(1, size - most + 1)]
    constraints = ClusterConstraints(subjects, share)
    labels, members = np.zeros(size, np.int32), np.arange(size)
    accepts = bool(satisfies_constraints(constraints.arrays(members), members, -1, -1, 2))
    assert accepts == (not violating_clusters(labels, 2, constraints)[0])
