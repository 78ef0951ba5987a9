"""Every partitioner × every refinement × every check; and every change against the plain sum of squares."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import partitions as naive
from shoal.arrays import Float64Matrix, Int32Vector
from shoal.clustering.numba.neighbours import neighbours_of
from shoal.clustering.static import ALGORITHMS, descent, microaggregate
from shoal.clustering.static import annealing as anneal
from shoal.clustering.static import cyclic_exchange as rings
from shoal.clustering.static import partition_state as groupings
from shoal.clustering.static import undo_log as trails
from shoal.clustering.static.constraint_arrays import no_constraints
from shoal.clustering.static.refinement import loss_of, refine
from shoal.errors import ParameterError
from support.pairs import all_pairs

pytestmark = pytest.mark.conformance

QUICK = {"genetic": {"generations": 20}}


def briefly(tried: int) -> float:
    """A pace of two slices."""
    return tried / 2_000


@pytest.fixture(autouse=True)
def _short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.clustering.static.refinement.SLICE", 1_000)


def tables() -> dict[str, Float64Matrix]:
    random = np.random.default_rng(11)
    return {
        "uniform": random.random((60, 2)),
        "one attribute": random.random((60, 1)),
        "lattice": random.integers(0, 4, (60, 2)).astype(np.float64),
        "duplicates": np.repeat(random.random((12, 2)), 5, axis=0),
        "all the same": np.ones((60, 2)),
        "heavy tails": np.exp(3.0 * random.standard_normal((60, 3))),
        "far from the origin": 1e9 + random.random((60, 2)),
        "clumps": np.concatenate([random.random((5, 2)) + 100.0 * i for i in range(12)]),
    }


@pytest.fixture(params=sorted(tables()))
def table(request: pytest.FixtureRequest) -> Float64Matrix:
    return tables()[str(request.param)]


def clusters_of(labels: Int32Vector) -> list[list[int]]:
    return [np.flatnonzero(labels == label).tolist() for label in range(int(labels.max()) + 1)]


@pytest.mark.parametrize(
    ("name", "how", "kind"), all_pairs(["auto", *sorted(ALGORITHMS)], ["descent", "anneal"], sorted(tables()))
)
def test_refinement_never_loses_more_and_keeps_sizes(name: str, how: str, kind: str) -> None:
    table = tables()[kind]
    values = table[:, :1] if name == "optimal" else table
    for k in (2, 5, 20, 31):
        start = microaggregate(values, k, name, parameters=QUICK.get(name))
        labels = microaggregate(values, k, name, how, seed=3, parameters=QUICK.get(name), pace=briefly)
        sizes = np.bincount(labels)
        assert sizes.min() >= k
        assert sizes.max() <= max(2 * k - 1, np.bincount(start).max())
        assert loss_of(values, labels) <= loss_of(values, start)


def test_the_same_seed_gives_the_same_labels(table: Float64Matrix) -> None:
    one, other = (microaggregate(table, 3, "mdav", "anneal", seed=5, pace=briefly) for _ in range(2))
    assert one.tolist() == other.tolist()


def test_clumps_are_found_from_any_start() -> None:
    clumps = tables()["clumps"]
    start = (np.arange(60) % 12).astype(np.int32)
    found = refine(clumps, [start], 5, "descent")
    assert clusters_of(found.labels) == [list(range(first, first + 5)) for first in range(0, 60, 5)] or found.loss < 15
    assert found.loss == pytest.approx(naive.loss(clumps.tolist(), clusters_of(found.labels)))


def test_after_descent_no_relocation_and_no_swap_among_neighbours_gains_anything() -> None:
    values = np.random.default_rng(2).random((40, 2))
    for k in (2, 4):
        partition = clusters_of(microaggregate(values, k, "mdav", "descent"))
        lowest = naive.loss(values.tolist(), partition)
        for a, own in enumerate(partition):
            for b, other in enumerate(partition):
                for i in own if a != b else []:
                    candidates = [[*(m for m in other if m != z), i] for z in other]
                    changed = [
                        [*partition, [*(m for m in own if m != i), z], swapped]
                        for z, swapped in zip(other, candidates, strict=True)
                    ]
                    if len(own) > k and len(other) < 2 * k - 1:
                        changed.append([*partition, [m for m in own if m != i], [*other, i]])
                    for partitioned in changed:
                        kept = [c for x, c in enumerate(partitioned) if x not in {a, b}]
                        assert naive.loss(values.tolist(), kept) >= lowest * (1 - 1e-9)


def grouping_of(seed: int) -> tuple[groupings.PartitionState, Float64Matrix]:
    """Thirty records in seven clusters of four or five; k = 3."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((30, 2))
    return groupings.gather(rows, random.permutation(np.arange(30) % 7).astype(np.int32), 3, no_constraints()), rows


def real_loss(grouping: groupings.PartitionState) -> float:
    kept = [cluster for cluster in clusters_of(grouping.labels.astype(np.int32)) if cluster]
    return naive.loss(grouping.rows.tolist(), kept)


def is_sound(grouping: groupings.PartitionState) -> bool:
    """Members, places, labels, sizes, centroids and spares tell the same story."""
    for cluster, size in enumerate(grouping.sizes.tolist()):
        first = grouping.firsts[cluster]
        members = grouping.members[first : first + size]
        if (grouping.labels[members] != cluster).any() or (grouping.places[members] != np.arange(size)).any():
            return False
        if size and not np.allclose(grouping.centres[cluster], grouping.rows[members].mean(axis=0), atol=1e-9):
            return False
    spares = grouping.spares[: grouping.state[groupings.SPARES]].tolist()
    return sorted(spares) == np.flatnonzero(grouping.sizes == 0).tolist() and grouping.sizes.sum() == 30


@pytest.mark.parametrize("seed", range(5))
def test_costs_are_differences_of_the_loss(seed: int) -> None:
    grouping, _ = grouping_of(seed)
    i, other = 0, int(np.flatnonzero(grouping.labels != grouping.labels[0])[seed])
    own, its = int(grouping.labels[i]), int(grouping.labels[other])
    before = real_loss(grouping)
    swap = groupings.cost_to_swap(grouping, i, other)
    relocate = groupings.cost_to_join(grouping, i, its) - groupings.gain_of_leaving(grouping, i)
    groupings.move(grouping, i, its)
    assert real_loss(grouping) - before == pytest.approx(relocate)
    groupings.move(grouping, other, own)
    assert real_loss(grouping) - before == pytest.approx(swap)
    assert groupings.loss(grouping) == pytest.approx(real_loss(grouping))
    assert is_sound(grouping)


@pytest.mark.parametrize("seed", range(8))
def test_dissolving_and_creating_tell_their_change_and_can_be_taken_back(seed: int) -> None:
    grouping, rows = grouping_of(seed)
    neighbours, trail = neighbours_of(rows, 20, 4), trails.empty_undo_log(30)
    before, labels = real_loss(grouping), grouping.labels.tolist()
    for attempt in range(8):
        change = (
            descent.dissolve(grouping, neighbours, attempt % 7, trail)
            if attempt % 2
            else descent.create(grouping, neighbours, attempt, trail)
        )
        if np.isfinite(change):
            assert real_loss(grouping) - before == pytest.approx(change)
            assert grouping.sizes[grouping.sizes > 0].min() >= 3
            assert grouping.sizes.max() <= 5
        trails.rollback(grouping, trail)
        assert grouping.labels.tolist() == labels
        assert is_sound(grouping)


def test_annealing_at_any_heat_keeps_the_partition_sound() -> None:
    for seed, heat in enumerate((1e-3, 1.0, 1e3)):
        grouping, rows = grouping_of(seed)
        anneal.anneal(grouping, neighbours_of(rows, 20, 4), 2_000, heat, np.random.default_rng(seed))
        assert is_sound(grouping)
        sizes = grouping.sizes[grouping.sizes > 0]
        assert sizes.min() >= 3
        assert sizes.max() <= 5


def test_a_pace_that_is_over_at_once_leaves_the_result_of_descent() -> None:
    values = tables()["uniform"]
    at_once = microaggregate(values, 3, "mdav", "anneal", pace=lambda _: 1.0)
    assert loss_of(values, at_once) <= loss_of(values, microaggregate(values, 3, "mdav", "descent"))


def test_an_unknown_refinement_is_refused() -> None:
    with pytest.raises(ParameterError, match="none, descent, anneal"):
        microaggregate(tables()["uniform"], 3, refine="polish")


@pytest.mark.parametrize("seed", range(20))
def test_a_ring_gains_what_it_says_and_keeps_sizes(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = random.standard_normal((30, 2))
    grouping = groupings.gather(rows, random.permutation(np.arange(30) % 10).astype(np.int32), 3, no_constraints())
    neighbours, trail, stamps = neighbours_of(rows, 20, 4), trails.empty_undo_log(30), np.full(grouping.sizes.size, -1)
    before, turned, gains = real_loss(grouping), 0, rings.empty_gains(30, grouping.sizes.size)
    for i in range(30):
        rings.weigh_all(grouping, gains)
        if rings.cyclic_exchange(grouping, neighbours, i, stamps, trail, gains, 1e-9):
            turned += 1
            assert real_loss(grouping) < before
            assert int(trail.steps[0]) == 3
            trail.steps[0] = 0
        assert is_sound(grouping)
        assert grouping.sizes.max() == 3
        before = real_loss(grouping)
    assert turned > 0


def test_an_open_ring_moves_two_records_from_a_large_cluster_to_a_small_one() -> None:
    line = np.array([[0.0], [1.0], [2.0], [8.0], [7.5], [8.5], [9.0], [9.5], [13.0], [14.0], [15.0], [16.0]])
    labels = np.array([0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2], np.int32)
    grouping = groupings.gather(line, labels, 3, no_constraints())
    neighbours, trail = neighbours_of(line, 11, 4), trails.empty_undo_log(12)
    before, gains = real_loss(grouping), rings.empty_gains(12, grouping.sizes.size)
    rings.weigh_all(grouping, gains)
    assert rings.cyclic_exchange(grouping, neighbours, 3, np.full(grouping.sizes.size, -1), trail, gains, 1e-9)
    assert trail.records[:2].tolist() == [3, 8]
    assert real_loss(grouping) < before
    assert np.bincount(grouping.labels).tolist() == [3, 5, 4]
