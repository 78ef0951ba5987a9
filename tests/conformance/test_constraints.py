"""Constraints on clusters for every algorithm and refinement; and measures of a release against plain formulas."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from shoal.arrays import Float64Matrix, Int64Vector
from shoal.errors import AnonymityViolation, ParameterError
from shoal.tables import (
    ALGORITHMS,
    ClusterConstraints,
    ConfidentialAttribute,
    emd_of_clusters,
    measures,
    microaggregate,
    records_above_share,
)
from shoal.tables.constraints import no_constraints
from shoal.tables.descent import build_partition_state
from shoal.tables.measures import loss_of
from shoal.tables.refinement import refine
from support.constrained_tables import BATCH, clusters_of, small_budget
from support.input_size import sized

pytestmark = pytest.mark.conformance

QUICK = {"genetic": {"generations": sized(20, 5)}}


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.tables.refinement.BATCH", BATCH)


def plain_distance(bins: Int64Vector, members: list[int], *, ordered: bool) -> float:
    """The distance from its definition, value by value."""
    values = sorted(set(bins.tolist()))
    whole, own = Counter(bins.tolist()), Counter(bins[members].tolist())
    gaps = [own[v] / len(members) - whole[v] / len(bins) for v in values]
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
                assert plain_distance(attribute.bins, members, ordered=attribute.ordered) <= t + 1e-9


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


def test_memory_grows_with_the_records_and_not_with_the_largest_cluster() -> None:
    labels = np.concatenate([np.zeros(5000, np.int64), 1 + np.arange(15000) // 3]).astype(np.int32)
    partition = build_partition_state(np.random.default_rng(1).random((20000, 2)), labels, 3, no_constraints())
    assert sum(array.size for array in (partition.members, partition.starts, partition.constraints.scratch)) < 4 * 20000


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


def test_batches_are_smaller_with_t_closeness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    values, _, confidential = clustered_subjects(1)
    asked: list[int] = []

    def budget_used(tried: int) -> float:
        asked.append(tried)
        return tried / 12_000

    microaggregate(
        values,
        3,
        "auto",
        "anneal",
        budget_used=budget_used,
        constraints=ClusterConstraints(confidential=confidential, t=0.3),
    )
    assert asked == [0, 5_000, 10_000, 15_000]


@pytest.mark.untraced
def test_refinement_under_constraints_never_loses_more() -> None:
    for seed in range(sized(5, 2)):
        values, subjects, confidential = clustered_subjects(seed)
        for constraints in (ClusterConstraints(subjects, 0.5), ClusterConstraints(confidential=confidential, t=0.2)):
            losses = [
                loss_of(
                    values, microaggregate(values, 3, "auto", how, budget_used=small_budget, constraints=constraints)
                )
                for how in ("none", "descent", "anneal")
            ]
            assert losses[0] > losses[1] >= losses[2]


def test_constraints_that_the_whole_table_violates_raise() -> None:
    values, subjects = np.random.default_rng(1).random((20, 2)), np.repeat([0, 1], 10)
    with pytest.raises(AnonymityViolation):
        microaggregate(values, 3, constraints=ClusterConstraints(subjects, 0.5))
    with pytest.raises(AnonymityViolation):
        microaggregate(values, 2, constraints=ClusterConstraints(np.arange(20) // 12, 0.5))
    with pytest.raises(ParameterError, match=r"needs privacy\.t"):
        microaggregate(values, 3, "strict")


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
