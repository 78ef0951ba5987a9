"""Every algorithm with every refinement and every check; and the cost of every change against the plain loss."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import partitions as plain
from shoal.arrays import Float64Matrix
from shoal.kernels.kd_tree import neighbours_of
from shoal.tables import ALGORITHMS, descent, microaggregate
from shoal.tables.constraints import no_constraints
from shoal.tables.measures import loss_of
from shoal.tables.refinement import refine
from support.constrained_tables import BATCH, clusters_of, shapes, small_budget
from support.input_size import sized
from support.pairs import all_pairs

pytestmark = pytest.mark.conformance

QUICK = {"genetic": {"generations": sized(20, 5)}}


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.tables.refinement.BATCH", BATCH)


GROUPS = np.concatenate([np.random.default_rng(11).random((5, 2)) + 100.0 * i for i in range(12)])
TABLES = {**shapes(60), "groups": GROUPS}


@pytest.mark.parametrize(
    ("name", "how", "kind"),
    [
        pytest.param(*case, marks=() if case[0] == "auto" else pytest.mark.untraced)
        for case in all_pairs(["auto", *sorted(ALGORITHMS)], ["descent", "anneal"], sorted(TABLES))
    ],
)
def test_refinement_never_loses_more_and_keeps_sizes(name: str, how: str, kind: str) -> None:
    table = TABLES[kind]
    values = table[:, :1] if name == "optimal" else table
    for k in sized((2, 5, 20, 31), (2, 20, 31)):
        start = microaggregate(values, k, name, parameters=QUICK.get(name))
        labels = microaggregate(values, k, name, how, seed=3, parameters=QUICK.get(name), budget_used=small_budget)
        sizes = np.bincount(labels)
        assert sizes.min() >= k
        assert sizes.max() <= max(2 * k - 1, np.bincount(start).max())
        assert loss_of(values, labels) <= loss_of(values, start)


def test_separate_groups_are_found_from_an_arbitrary_start() -> None:
    start = (np.arange(60) % 12).astype(np.int32)
    found = refine(GROUPS, [start], 5, "descent")
    assert clusters_of(found.labels) == [list(range(first, first + 5)) for first in range(0, 60, 5)] or found.loss < 15
    assert found.loss == pytest.approx(plain.loss(GROUPS.tolist(), clusters_of(found.labels)))


def test_after_descent_no_relocation_or_swap_lowers_the_loss() -> None:
    values = np.random.default_rng(2).random((40, 2))
    for k in (2, 4):
        partition = clusters_of(microaggregate(values, k, "mdav", "descent"))
        lowest = plain.loss(values.tolist(), partition)
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
                        assert plain.loss(values.tolist(), kept) >= lowest * (1 - 1e-9)


def partition_of(rows: Float64Matrix, labels: list[int], neighbours: int = 20) -> descent.PartitionState:
    """A partition for k = 3."""
    near = neighbours_of(rows, neighbours, 4)
    return descent.build_partition_state(rows, np.array(labels, np.int32), 3, no_constraints(), near)


def thirty_records(seed: int, clusters: int) -> descent.PartitionState:
    random = np.random.default_rng(seed)
    rows = random.standard_normal((30, 2))
    return partition_of(rows, random.permutation(np.arange(30) % clusters).tolist())


def plain_loss(partition: descent.PartitionState) -> float:
    kept = [cluster for cluster in clusters_of(partition.labels.astype(np.int32)) if cluster]
    return plain.loss(partition.rows.tolist(), kept)


def is_consistent(partition: descent.PartitionState) -> bool:
    """Whether members, positions, labels, sizes, centroids and empty clusters agree with each other."""
    for cluster, size in enumerate(partition.sizes.tolist()):
        first = partition.starts[cluster]
        members = partition.members[first : first + size]
        if (partition.labels[members] != cluster).any() or (partition.positions[members] != np.arange(size)).any():
            return False
        if size and not np.allclose(partition.centroids[cluster], partition.rows[members].mean(axis=0), atol=1e-9):
            return False
    empty = partition.empty[: partition.counters[descent.EMPTY_CLUSTERS]].tolist()
    return sorted(empty) == np.flatnonzero(partition.sizes == 0).tolist() and partition.sizes.sum() == 30


@pytest.mark.parametrize("seed", range(5))
def test_costs_are_differences_of_the_loss(seed: int) -> None:
    partition = thirty_records(seed, 7)
    i, other = 0, int(np.flatnonzero(partition.labels != partition.labels[0])[seed])
    own, target = int(partition.labels[i]), int(partition.labels[other])
    before = plain_loss(partition)
    swap = descent.cost_to_swap(partition, i, other)
    relocate = descent.cost_to_join(partition, i, target) - descent.gain_of_leaving(partition, i)
    descent.move(partition, i, target)
    assert plain_loss(partition) - before == pytest.approx(relocate)
    descent.move(partition, other, own)
    assert plain_loss(partition) - before == pytest.approx(swap)
    assert descent.loss(partition) == pytest.approx(plain_loss(partition))
    assert is_consistent(partition)


@pytest.mark.parametrize("seed", range(8))
def test_dissolve_and_create_return_their_change_and_can_be_rolled_back(seed: int) -> None:
    partition = thirty_records(seed, 7)
    before, labels = plain_loss(partition), partition.labels.tolist()
    for attempt in range(8):
        change = descent.dissolve(partition, attempt % 7) if attempt % 2 else descent.create(partition, attempt)
        if np.isfinite(change):
            assert plain_loss(partition) - before == pytest.approx(change)
            assert partition.sizes[partition.sizes > 0].min() >= 3
            assert partition.sizes.max() <= 5
        descent.rollback(partition)
        assert partition.labels.tolist() == labels
        assert is_consistent(partition)


def test_annealing_at_any_temperature_keeps_the_state_consistent() -> None:
    for seed, temperature in enumerate((1e-3, 1.0, 1e3)):
        partition = thirty_records(seed, 7)
        descent.anneal(partition, 2_000, temperature, np.random.default_rng(seed))
        assert is_consistent(partition)
        sizes = partition.sizes[partition.sizes > 0]
        assert sizes.min() >= 3
        assert sizes.max() <= 5


def test_a_budget_used_up_at_once_gives_the_result_of_descent() -> None:
    values = TABLES["uniform"]
    at_once = microaggregate(values, 3, "mdav", "anneal", budget_used=lambda _: 1.0)
    assert loss_of(values, at_once) <= loss_of(values, microaggregate(values, 3, "mdav", "descent"))


def worklist_of(partition: descent.PartitionState) -> descent.Worklist:
    work = descent.build_worklist(partition)
    for cluster in range(partition.sizes.size):
        descent.update_leaving_gains(partition, work, cluster)
    return work


@pytest.mark.parametrize("seed", range(20))
def test_a_cyclic_exchange_lowers_the_loss_and_keeps_all_sizes(seed: int) -> None:
    partition = thirty_records(seed, 10)
    before, exchanged = plain_loss(partition), 0
    for i in range(30):
        if descent.cyclic_exchange(partition, i, worklist_of(partition), 1e-9):
            exchanged += 1
            assert plain_loss(partition) < before
            assert partition.counters[descent.MOVES] == 3
            partition.counters[descent.MOVES] = 0
        assert is_consistent(partition)
        assert partition.sizes.max() == 3
        before = plain_loss(partition)
    assert exchanged > 0
