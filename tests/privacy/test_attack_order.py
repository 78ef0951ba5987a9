"""Attackers who know when a record arrived, or in which order records did."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.arrays import Float64Vector, Int64Vector
from shoal.formats import JsonDecoder, JsonEncoder
from shoal.streams import PartitionPipeline
from support.attack_results import RULES, impossible, measured
from support.attacking import ADULT, Release, adult, policy_of, quasi, released, standard_error, tagged

COUNT, DELTA = 6000, 100
TARGETS = 3000
QUASI = {name: quasi(*bounds, integer=True) for name, bounds in ADULT.items()}


@cache
def release_of(folder: Path, k: int, position: float, step: int, rule: str, delta: int) -> Release:
    policy = policy_of(QUASI, k, delta=delta, position=position, rule=rule)
    return released(policy, tagged(adult(folder, COUNT)), step=step)


def targets_of(release: Release) -> list[int]:
    # Not from the end, where the stream is flushed and a clock tells nothing.
    chosen = np.random.default_rng(1).permutation(np.arange(DELTA, len(release.records) - 2 * DELTA))[:TARGETS]
    return [int(place) for place in chosen]


def is_told(release: Release) -> bool:
    """Whether the attacker must be told the cluster: made of a block by time, which says nothing of what is published.

    He would find one in five by values, too few to show anything of the order inside.
    """
    return release.policy.require_stream().rule == "block" and release.policy.position > 0


UNIFORM = 12**0.5
"""Width of evenly distributed values, in spreads: the unit of distances, which the weight of the position refers to."""


def first_nearest(moments: Float64Vector, wanted: Float64Vector) -> Int64Vector:
    """Of ascending moments the one nearest to each of the wanted ones; of equally near ones the first."""
    after = np.clip(np.searchsorted(moments, wanted), 1, len(moments) - 1)
    is_before = wanted - moments[after - 1] <= moments[after] - wanted
    first: Int64Vector = np.searchsorted(moments, moments[after - is_before])
    return first


class Watched:
    """What an attacker with a clock has: all clusters in the order in which they left, and when each of them did."""

    def __init__(self, release: Release) -> None:
        self.release = release
        self.clusters = release.clusters
        counts = [len(one.clusters) for one in release.transactions]
        self.newest = np.repeat([one.newest for one in release.transactions], counts)
        self.transaction = np.repeat(np.arange(len(counts)), counts)
        published = np.array([cluster.centroid for cluster in self.clusters]).astype(np.float64)
        widths = UNIFORM * published.std(axis=0)
        self.centroids = published / widths
        self.wanted = np.array([[record[name] for name in ADULT] for record in release.records], np.float64) / widths
        # How far clusters reach he can see by letting records of his own through the same policy.
        self.span = float(np.mean([cluster.offsets[-1] - cluster.offsets[0] for cluster in self.clusters]))

    def nearest(self, target: int) -> tuple[int, float]:
        """The cluster nearest to the target among those that left while it was held; its place therein, from 0 to 1."""
        first, end = np.searchsorted(self.newest, [target, target + DELTA + 1]).tolist()
        policy = self.release.policy
        is_block = policy.require_stream().rule == "block"
        if is_block:
            # All that had come since the last time has left at once: which time it was is certain, and says nothing of
            # one cluster rather than another.
            end = int(np.searchsorted(self.transaction, self.transaction[first], "right"))
        if is_told(self.release):
            (chosen,) = (number for number in range(first, end) if target in self.clusters[number].offsets)
        else:
            distances = np.square(self.centroids[first:end] - self.wanted[target]).sum(axis=1)
            # The oldest member came delta before the cluster left, the others after it.
            since = target - (self.newest[first:end] - DELTA + self.span / 2)
            chosen = first + int(np.argmin(distances if is_block else distances + (policy.position * since) ** 2))
        since_oldest = target - (int(self.newest[chosen]) - DELTA)
        if is_block:
            # Where the position weighs much, clusters are runs of records one after another.
            size = len(self.clusters[chosen].rows)
            return chosen, since_oldest % size / (size - 1) if policy.position else since_oldest / DELTA
        return chosen, min(1.0, max(0.0, since_oldest / self.span))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("k", "position"),
    [pytest.param(5, 0.0, marks=pytest.mark.nightly), (10, 0.0), pytest.param(10, 0.1, marks=pytest.mark.nightly)],
)
def test_values_and_time_of_a_record_do_not_find_it_inside_its_cluster(
    data_dir: Path, k: int, position: float, rule: str
) -> None:
    release = release_of(data_dir, k, position, 1, rule, DELTA)
    watched = Watched(release)
    members = [release.members(cluster) for cluster in watched.clusters]
    by_place = [sorted(own) for own in members]  # as a careless writer would write them
    hits, control, found = [], [], []
    for target in targets_of(release):
        cluster, place = watched.nearest(target)
        slot = round(place * (len(members[cluster]) - 1))
        hits.append(float(members[cluster][slot] == target))
        control.append(float(by_place[cluster][slot] == target))
        found.append(float(target in members[cluster]))
    assert np.mean(control) > 1.5 / k, "by position he would succeed: the attack works"
    assert np.mean(found) > 0.5
    measured(
        "R1",
        f"link of a record of Adult, k = {k}, position {position}",
        knows=f"{'cluster' if is_told(release) else 'quasi-identifiers'} and place of the target",
        success=float(np.mean(hits)),
        error=standard_error(hits),
        bound=1 / k,
        source="1/k",
        beside=f"rows in order of arrival: {np.mean(control):.2f}",
        rule=rule,
    )


@pytest.mark.parametrize("rule", RULES)
def test_offsets_of_all_records_do_not_distinguish_the_members_of_a_cluster(data_dir: Path, rule: str) -> None:
    k = 10
    release = release_of(data_dir, k, 0.0, 1, rule, DELTA)
    hits: list[float] = []
    for cluster in release.clusters:
        members = release.members(cluster)
        hits += [float(row == place) for row, place in zip(members, sorted(members), strict=True)]
    measured(
        "R1",
        f"order of rows taken for order of arrival, k = {k}",
        knows="cluster and place of all members",
        success=float(np.mean(hits)),
        error=standard_error(hits),
        bound=1 / k,
        source="1/k",
        beside="rows in order of arrival: 1.00",
        rule=rule,
    )


@given(
    st.lists(st.tuples(st.integers(0, 110), st.floats(0, 1), st.text(max_size=3)), min_size=4, max_size=7), st.data()
)
def test_the_bytes_of_a_cluster_are_a_function_of_the_multiset_of_its_members(
    members: list[tuple[int, float, str]], data: st.DataObject
) -> None:
    attributes = {"age": quasi(0, 110, integer=True), "dose": quasi(0, 1, resolution=0)}
    policy = policy_of(attributes, 4)
    records = [{"age": a, "dose": d, "tag": t, "who": n} for n, (a, d, t) in enumerate(members)]

    def rows_of(order: list[int]) -> list[bytes]:
        flow, decoder = PartitionPipeline(policy, JsonEncoder(policy)), JsonDecoder(policy)
        block = decoder.decode([json.dumps(records[index]).encode() for index in order])
        assert not flow.push(block, np.column_stack([block.index, block.index])).clusters
        (cluster,) = flow.flush().clusters
        return cluster.rows

    order = list(range(len(records)))
    assert rows_of(order) == rows_of(data.draw(st.permutations(order)))
    impossible("R1", "the bytes of a cluster are a function of the multiset of its members")
    impossible("R15", "a centroid is an exact number rounded once: the same bits in whatever order members came")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("position", "clusters", "delta"),
    [
        *((0.0, clusters, DELTA) for clusters in (1, 10)),
        (0.05, 5, DELTA),
        pytest.param(0.0, 5, DELTA, marks=pytest.mark.nightly),
        *(pytest.param(0.05, clusters, DELTA, marks=pytest.mark.nightly) for clusters in (1, 10)),
        *(pytest.param(0.01, clusters, DELTA, marks=pytest.mark.nightly) for clusters in (1, 5, 10)),
        pytest.param(0.0, 1, 20, marks=pytest.mark.nightly),
    ],
)
def test_the_time_of_release_shows_no_more_than_the_transaction(
    data_dir: Path, position: float, clusters: int, delta: int, rule: str
) -> None:
    k = 10
    step = 1 if clusters == 1 else clusters * k
    release = release_of(data_dir, k, position, step, rule, delta)
    span = float(np.mean([cluster.offsets[-1] - cluster.offsets[0] for cluster in release.clusters]))
    leaving = [transaction for transaction in release.transactions if transaction.clusters]
    for transaction in leaving:
        firsts = [cluster.rows[0] for cluster in transaction.clusters]
        assert firsts == sorted(firsts), "the order of clusters tells which was decided first"

    newest = np.array([one.newest for one in leaving])
    moments_seen = newest - (step - 1) / 2
    counts = np.array([len(one.clusters) for one in leaving])
    left_in, sizes = np.full(COUNT, -1), np.ones(COUNT)
    for number, transaction in enumerate(leaving):
        for cluster in transaction.clusters:
            left_in[cluster.offsets], sizes[cluster.offsets] = number, len(cluster.rows)
    targets = np.array(targets_of(release))

    def attacked(before: float | None) -> tuple[Float64Vector, Float64Vector]:
        """Take what left so many records before the target had to, as who knows its place can; or first after it."""
        if before is None:
            left = np.searchsorted(newest, targets)
        else:
            left = first_nearest(moments_seen, targets + (delta - before))
        found = (left_in[targets] == left) / counts[left]
        return found, found / sizes[targets]

    # Which moment is the best he can see by letting records of his own through.
    moments = (None, 0, 1, 2, 3, 5, 8, 13, 20, 30, 40, 60, 80, span / 2)
    found, linked = max(map(attacked, moments), key=lambda both: float(both[0].sum()))
    assert np.mean(linked) <= 1 / k + 3 * standard_error(linked)
    bound: float | None = 1 / clusters + 0.05
    source = "1/B + 0.05 for B per transaction"
    if rule == "block" and delta == DELTA:
        fewest = -(-(DELTA + 1) // (2 * k - 1))
        bound, source = 1 / fewest, "all that is held, in clusters of at most 2k - 1, leaves at once"
    elif clusters == 1:
        bound, source = None, "point 8: time may tell the cluster"
    measured(
        "R2",
        f"cluster of a record of Adult, position {position}, delta {delta}, a transaction after "
        f"{'each record' if step == 1 else f'each {step} records'}",
        knows="place of the target, time of each transaction",
        success=float(np.mean(found)),
        error=standard_error(found),
        bound=bound,
        source=source,
        beside=f"its record: {np.mean(linked):.3f}, at most 1/k",
        rule=rule,
    )
