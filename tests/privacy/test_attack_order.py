"""Attackers who know when a record arrived, or in which order records did."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.pipeline import DecidedCluster, PartitionPipeline
from shoal.records import JsonDecoder, JsonEncoder
from support.attacking import ADULT, Release, adult, policy_of, quasi, released, standard_error, tagged
from support.ledger import RULES, closed, measured

pytestmark = pytest.mark.privacy

COUNT, DELTA = 6000, 100
TARGETS = 3000
QUASI = {name: quasi(*bounds, integer=True) for name, bounds in ADULT.items()}


@cache
def release_of(folder: Path, k: int, position: float, step: int, rule: str, delta: int = DELTA) -> Release:
    policy = policy_of(QUASI, k, delta=delta, position=position, rule=rule)
    return released(policy, tagged(adult(folder, COUNT)), step=step)


def by_place(release: Release, cluster: DecidedCluster) -> list[int]:
    """The members as a careless writer would write them."""
    return sorted(release.members(cluster))


def targets_of(release: Release) -> list[int]:
    # Not from the end, where the stream is flushed and a clock tells nothing.
    chosen = np.random.default_rng(1).permutation(np.arange(DELTA, len(release.records) - 2 * DELTA))[:TARGETS]
    return [int(place) for place in chosen]


def is_told(release: Release) -> bool:
    """Whether the attacker must be told the cluster: made of a block by time, which says nothing of what is published.

    He would find one in five by values, too few to show anything of the order inside.
    """
    return release.policy.require_stream().rule == "block" and release.policy.position > 0


def nearest_cluster(release: Release, target: int, span: float) -> tuple[DecidedCluster, float]:
    """The cluster nearest to the target among those that left while it was held; and its place therein, from 0 to 1."""
    low = np.array([bounds[0] for bounds in ADULT.values()])
    width = np.array([bounds[1] - bounds[0] for bounds in ADULT.values()])
    wanted = (np.array([release.records[target][name] for name in ADULT]) - low) / width
    left = [one for one in release.transactions if target <= one.newest <= target + DELTA and one.clusters]
    position = release.policy.position
    if release.policy.require_stream().rule == "block":
        # All that had come since the last time has left at once: which time it was is certain, and says nothing of
        # one cluster rather than another.
        left, position = left[:1], 0.0
    open_ones = [(cluster, transaction.newest) for transaction in left for cluster in transaction.clusters]
    distances = [
        np.square((np.array([float(text) for text in cluster.centroid]) - low) / width - wanted).sum()
        # The oldest member came delta before the cluster left, the others after it.
        + (position * (target - (newest - DELTA + span / 2))) ** 2
        for cluster, newest in open_ones
    ]
    if is_told(release):
        open_ones = [(cluster, newest) for cluster, newest in open_ones if target in cluster.offsets]
        distances = [0.0]
    cluster, newest = open_ones[int(np.argmin(distances))]
    since = target - (newest - DELTA)
    if release.policy.require_stream().rule == "block":
        # Where the position weighs much, clusters are runs of records one after another.
        size = len(cluster.rows)
        return cluster, since % size / (size - 1) if release.policy.position else since / DELTA
    return cluster, min(1.0, max(0.0, since / span))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("k", "position"), [(5, 0.0), (10, 0.0), (10, 0.05)])
def test_values_and_time_of_a_record_do_not_find_it_inside_its_cluster(
    data_dir: Path, k: int, position: float, rule: str
) -> None:
    release = release_of(data_dir, k, position, 1, rule)
    # How far clusters reach he can see by letting records of his own through the same policy.
    span = float(np.mean([cluster.offsets[-1] - cluster.offsets[0] for cluster in release.clusters]))
    hits, control, found = [], [], []
    for target in targets_of(release):
        cluster, place = nearest_cluster(release, target, span)
        slot = round(place * (len(cluster.rows) - 1))
        hits.append(float(release.members(cluster)[slot] == target))
        control.append(float(by_place(release, cluster)[slot] == target))
        found.append(float(target in cluster.offsets))
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
    release = release_of(data_dir, k, 0.0, 1, rule)
    hits: list[float] = []
    for cluster in release.clusters:
        pairs = zip(release.members(cluster), by_place(release, cluster), strict=True)
        hits += [float(row == place) for row, place in pairs]
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
    closed("R1", "the bytes of a cluster are a function of the multiset of its members")
    closed("R15", "a centroid is an exact number rounded once: the same bits in whatever order members came")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("position", "clusters", "delta"),
    [*((position, clusters, DELTA) for position in (0.0, 0.01, 0.05) for clusters in (1, 5, 10)), (0.0, 1, 20)],
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

    newest = np.array([one.newest for one in leaving]) - (step - 1) / 2

    def attacked(before: float | None) -> tuple[list[float], list[float]]:
        """Take what left so many records before the target had to, as who knows its place can; or first after it."""
        found, linked = [], []
        for target in targets_of(release):
            if before is None:
                left = next(one for one in leaving if one.newest >= target)
            else:
                left = leaving[int(np.argmin(np.abs(newest - (target + delta - before))))]
            holding = [cluster for cluster in left.clusters if target in cluster.offsets]
            found.append(len(holding) / len(left.clusters))
            linked.append(sum(1 / len(cluster.rows) for cluster in holding) / len(left.clusters))
        return found, linked

    # Which moment is the best he can see by letting records of his own through.
    moments = (None, 0, 1, 2, 3, 5, 8, 13, 20, 30, 40, 60, 80, span / 2)
    found, linked = max(map(attacked, moments), key=lambda both: sum(both[0]))
    assert np.mean(linked) <= 1 / k + 3 * standard_error(linked)
    bound: float | None = 1 / clusters + 0.05
    source = "1/B + 0.05 for B per transaction"
    if rule == "block" and delta == DELTA:
        fewest = -(-(DELTA + 1) // (2 * k - 1))
        bound, source = 1 / fewest, "all that is held, in clusters of at most 2k - 1, leaves at once"
    elif clusters == 1:
        bound, source = None, "line 8: time may tell the cluster"
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
