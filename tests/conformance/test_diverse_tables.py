"""Tables under l-diversity, value shares and t-closeness: every algorithm and refinement against plain definitions."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from shoal.arrays import Float64Matrix, Int64Vector
from shoal.errors import AnonymityViolation
from shoal.protection import DISTINCT, ENTROPY, EQUAL, HIERARCHICAL, RECURSIVE, LDiversity, ValueReference
from shoal.tables import ClusterConstraints, ConfidentialAttribute, emd_of_clusters, microaggregate
from shoal.tables.constraints import merge_until_feasible, violating_clusters
from shoal.tables.mdav import mdav
from shoal.tables.measures import loss_of
from shoal.tables.repair import repair_by_swaps
from shoal.tables.t_closeness import strict
from support.constrained_tables import BATCH, clusters_of, small_budget
from support.diversity_by_definition import entropy_of, is_recursive, value_share
from support.input_size import sized

pytestmark = pytest.mark.conformance

KINDS = [
    (LDiversity(DISTINCT, 3), 0.5),
    (LDiversity(ENTROPY, 2.5), None),
    (LDiversity(RECURSIVE, 3, 2.0), None),
    (None, 0.4),
]


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.tables.refinement.BATCH", BATCH)


def correlated(seed: int, n: int = 120) -> tuple[Float64Matrix, tuple[ConfidentialAttribute, ...]]:
    """Records of which the near ones have equal confidential values; a common and some rare ones."""
    draw = np.random.default_rng(seed)
    values = draw.random((n, 2))
    areas = np.minimum((values[:, 0] * 5 + draw.exponential(0.5, n)).astype(np.int64), 6)
    words = np.minimum(draw.geometric(0.3, n), 5) - 1
    return values, (ConfidentialAttribute(areas, ordered=False), ConfidentialAttribute(words, ordered=False))


def is_kept(codes: list[int], l: LDiversity | None, max_value_share: float | None) -> bool:  # noqa: E741
    if max_value_share is not None and value_share(codes) > max_value_share:
        return False
    if l is None:
        return True
    if l.kind == DISTINCT:
        return len(set(codes)) >= l.l
    if l.kind == ENTROPY:
        return entropy_of(codes) >= math.log(l.l) - 1e-9
    return is_recursive(codes, l.c, int(l.l))


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
                assert is_kept(attribute.bins[members].tolist(), l, share)


@pytest.mark.parametrize(("l", "share"), KINDS)
def test_violating_clusters_are_those_of_the_definitions(l: LDiversity | None, share: float | None) -> None:  # noqa: E741
    values, confidential = correlated(5)
    labels = mdav(values, 4)
    constraints = ClusterConstraints(confidential=confidential, l=l, max_value_share=share)
    expected = [
        not all(is_kept(attribute.bins[members].tolist(), l, share) for attribute in confidential)
        for members in clusters_of(labels)
    ]
    assert True in expected
    assert violating_clusters(labels, 4, constraints).tolist() == expected


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


def test_swaps_depend_on_equality_of_codes_only() -> None:
    values, (areas, words) = correlated(3)
    labels = mdav(values, 5)
    renamed = ConfidentialAttribute(np.array([3, 0, 6, 1, 5, 2, 4])[areas.bins], ordered=False)
    found = [
        repair_by_swaps(
            values, labels, 5, ClusterConstraints(confidential=(one, words), l=LDiversity(ENTROPY, 2.5))
        ).tolist()
        for one in (areas, renamed)
    ]
    assert found[0] == found[1]


def test_swaps_keep_subjects() -> None:
    values, confidential = correlated(4)
    subjects = np.arange(120) // 2
    constraints = ClusterConstraints(subjects, 0.5, confidential[:1], l=LDiversity(DISTINCT, 3))
    labels = merge_until_feasible(values, mdav(values, 5), 4, ClusterConstraints(subjects, 0.5))
    repaired = repair_by_swaps(values, labels, 4, constraints)
    assert violating_clusters(labels, 4, constraints).sum() > violating_clusters(repaired, 4, constraints).sum()
    for members in clusters_of(repaired):
        assert len(set(subjects[members].tolist())) >= 4
        assert max(Counter(subjects[members].tolist()).values()) <= len(members) / 2


def test_a_table_that_is_not_diverse_is_refused() -> None:
    values, _ = correlated(1)
    one_value = ConfidentialAttribute(np.zeros(120, np.int64), ordered=False)
    for constraints in (
        ClusterConstraints(confidential=(one_value,), l=LDiversity(DISTINCT, 2)),
        ClusterConstraints(confidential=(one_value,), max_value_share=0.9),
    ):
        with pytest.raises(AnonymityViolation):
            microaggregate(values, 3, "auto", "descent", constraints=constraints)


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


def test_values_and_bins_are_separate() -> None:
    """Two values of one bin are different for l-diversity."""
    values, (areas, _) = correlated(9)
    one_bin = ConfidentialAttribute(
        np.zeros(120, np.int64), ordered=True, reference=ValueReference(EQUAL, np.ones(1)), values=areas.bins
    )
    constraints = ClusterConstraints(confidential=(one_bin,), t=0.1, l=LDiversity(DISTINCT, 3))
    labels = microaggregate(values, 4, "auto", "descent", constraints=constraints)
    for members in clusters_of(labels):
        assert len(set(areas.bins[members].tolist())) >= 3
