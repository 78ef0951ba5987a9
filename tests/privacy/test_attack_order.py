"""Attackers who know when records arrived, or in which order, also from counts; or who wait for a crash."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.arrays import Float64Vector, Int64Vector
from shoal.formats import JsonDecoder, JsonEncoder
from shoal.kafka.metadata import CommittedState, decode
from shoal.kafka.offsets import OffsetState
from shoal.kafka.task import PartitionTask
from shoal.kafka.transactions import TransactionBatch, TransactionSink
from shoal.observability import Metrics
from shoal.policy import Policy
from shoal.streams import BlockDecisions, DecidedCluster, PartitionPipeline
from support.attack_results import RULES, impossible, measured, standard_error
from support.attacking import ADULT, AGES, Release, adult, messages_of, policy_of, quasi, released, tagged, zipf_people
from support.by_night import at_night
from support.partition_tasks import Message, partition_task

COUNT, DELTA = 6000, 100
TARGETS = 3000


@cache
def release_of(folder: Path, k: int, position: float, step: int, rule: str, delta: int) -> Release:
    policy = policy_of(AGES, k, delta=delta, position=position, rule=rule)
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
        success=hits,
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
        success=hits,
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
        success=found,
        bound=bound,
        source=source,
        beside=f"its record: {np.mean(linked):.3f}, at most 1/k",
        rule=rule,
    )


# ---------------------------------------------------------------- a release in the order of the input

ORDERED, K = 4000, 10


def ordered(policy: Policy, *, reveals: bool = False) -> Policy:
    return replace(policy, stream=replace(policy.require_stream(), release="ordered", reveal_order=reveals))


def tags_in_turn(policy: Policy, folder: Path) -> list[tuple[str, str]]:
    """Tags of the records that left, as they came, and as the output shows them in that order."""
    records = tagged(adult(folder, ORDERED))
    decoder, flow, rows = JsonDecoder(policy), PartitionPipeline(policy, JsonEncoder(policy)), []
    for start in range(0, ORDERED, 500):
        block = decoder.decode([json.dumps(record).encode() for record in records[start : start + 500]])
        places = np.arange(start, start + len(block))
        rows += left_with(flow.push(block, np.column_stack([np.zeros_like(places), places])))
    rows += left_with(flow.flush())
    assert [place for place, _ in rows] == sorted(place for place, _ in rows), "a record was displaced"
    assert len(rows) > ORDERED - K
    return [(str(records[place]["tag"]), str(json.loads(row)["tag"])) for place, row in rows]


def left_with(decisions: BlockDecisions) -> list[tuple[int, bytes]]:
    return list(zip(decisions.released, decisions.rows, strict=True))


@pytest.mark.parametrize("position", [0.01, *at_night(0.0)])
@pytest.mark.parametrize("rule", RULES)
def test_the_rank_of_a_record_does_not_identify_it(data_dir: Path, position: float, rule: str) -> None:
    plain = policy_of(AGES, K, delta=DELTA, position=position)
    policy = ordered(replace(plain, stream=replace(plain.require_stream(), rule=rule)))
    hits = [float(own == shown) for own, shown in tags_in_turn(policy, data_dir)]
    assert all(own == shown for own, shown in tags_in_turn(ordered(policy, reveals=True), data_dir)), (
        "with the order revealed the attack finds everybody: it works"
    )
    measured(
        "R3",
        f"link of a record of Adult, position {position}",
        knows="place of the target in the order of the input, exactly",
        success=float(np.mean(hits)),
        bound=1 / K,
        error=standard_error(hits),
        beside="with reveal_order: true 1.000",
        source="1/k",
        rule=rule,
    )


class Disk(TransactionSink):
    """What a broker would keep of one partition: rows, evidence and progress, each time together."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self.clusters: list[DecidedCluster] = []
        self.offset = (0, "")

    async def publish_and_commit(
        self,
        batch: TransactionBatch,
        committed_offset: int,
        metadata: str,
        at_ms: int,  # noqa: ARG002
    ) -> None:
        self.rows += batch.rows
        self.clusters += batch.clusters
        self.offset = (committed_offset, metadata)

    async def close(self) -> None:
        pass


async def lived(policy: Policy, messages: list[Message], *, dies: bool) -> Disk:
    """Read one record after the other; with ``dies`` every transaction is the last one of its process."""
    disk, clock = Disk(), [1_800_000_000.0]
    commit = CommittedState(OffsetState(committed_offset=0, next_offset=0), policy.fingerprint, 1)

    def begun() -> PartitionTask:
        return partition_task(
            "t", 0, policy, JsonDecoder(policy), disk, commit, Metrics(), 0.2, wall_clock=lambda: clock[0]
        )

    task, end = begun(), 1
    while end <= len(messages):
        await task.process([message for message in messages[:end] if message.offset >= task.position])
        clock[0] += 1
        before = disk.offset
        await task.punctuate()
        await asyncio.sleep(0)
        task._collector.check()
        if dies and disk.offset != before:
            await task.close(commit=False)
            commit = decode(disk.offset[1], "t", 0, disk.offset[0])
            task = begun()
        end += 1
    await task.process([message for message in messages if message.offset >= task.position])
    await task.commit(flush=True)
    await task.close(commit=True)
    return disk


@pytest.mark.parametrize("rule", RULES)
def test_a_crash_after_every_transaction_splits_no_cluster(data_dir: Path, rule: str) -> None:
    plain = policy_of(AGES, 4, delta=20)
    policy = ordered(replace(plain, stream=replace(plain.require_stream(), rule=rule)))
    people = [number % 40 for number in range(150)]
    records = tagged(adult(data_dir, 150), people)
    messages = messages_of(records)
    calm = asyncio.run(lived(policy, messages, dies=False))
    stormy = asyncio.run(lived(policy, messages, dies=True))
    assert stormy.rows == calm.rows, "the same rows in the same order, whatever happens in between"
    assert [cluster.offsets for cluster in stormy.clusters] == [cluster.offsets for cluster in calm.clusters]
    whole = Counter(row for cluster in stormy.clusters for row in cluster.rows)
    assert Counter(stormy.rows) == whole
    assert all(len({people[place] for place in cluster.offsets}) >= policy.k for cluster in stormy.clusters)
    impossible(
        "R4", "which records are together is committed with the first that leaves: a crash after every transaction"
    )


# ---------------------------------------------------------------- readers of metrics only: live counts are a clock


def series(release: Release, name: str, *parts: str) -> np.ndarray:
    """Values of a metric in all scrapes, added up over the samples whose labels contain these parts."""
    return np.array(
        [
            sum(value for key, value in scrape.items() if key.startswith(name) and all(part in key for part in parts))
            for scrape in release.scrapes
        ]
    )


@pytest.mark.parametrize("step", [100, *at_night(1)])
def test_the_count_of_arrivals_tells_the_place_of_a_record_as_exactly_as_it_is_scraped(
    data_dir: Path, step: int
) -> None:
    records = tagged(adult(data_dir, 2000))
    release = released(policy_of(AGES, 10), records, step=step, scraped=("shoal_records_total",))
    arrived = series(release, "shoal_records_total", "('outcome', 'in')")
    assert arrived[-1] == 2000
    # The attacker sees the person at the moment t, looks at the scrapes before and after t, and guesses among the new
    # records.
    new = np.diff(arrived, prepend=0)
    hits = np.repeat(1 / new, new.astype(int))
    measured(
        "R2",
        f"place of a record in the order of arrival, {step} records between two scrapes",
        knows="when the record arrived; every scrape, and not the output",
        success=float(hits.mean()),
        source="point 8: counts are live",
        beside="one of all records that arrived between the scrapes before and after it",
    )


@pytest.mark.parametrize("rule", RULES)
def test_counts_tell_when_and_how_large_each_cluster_leaves(data_dir: Path, rule: str) -> None:
    people = zipf_people(1000, 600, 0.8)
    records = tagged(adult(data_dir, 1000), people)
    asked = ("shoal_clusters_released_total", "shoal_cluster_size_sum", "shoal_cluster_subjects_sum")
    release = released(policy_of(AGES, 10, rule=rule), records, step=1, scraped=asked)
    clusters, sizes, subjects = (np.diff(series(release, name), prepend=0) for name in asked)
    known = []
    for transaction in (one for one in release.transactions if one.clusters and one.newest < 999):
        assert clusters[transaction.newest] == len(transaction.clusters)
        told = sizes[transaction.newest], subjects[transaction.newest]
        own = [(len(cluster.offsets), len(release.people(cluster))) for cluster in transaction.clusters]
        known += [float(told == size) for size in own]
    assert len(known) > 40
    measured(
        "R2",
        "clusters of which two scrapes tell records and people exactly, a scrape after each record",
        knows="every scrape, and not the output",
        success=float(np.mean(known)),
        source="point 8: counts are live",
        beside="1 if each transaction has one cluster",
        rule=rule,
    )


@pytest.mark.parametrize("rule", RULES)
def test_the_count_of_suppressed_records_names_the_record_that_was_due(data_dir: Path, rule: str) -> None:
    delta, count = 30, 1000
    people = zipf_people(count, 60, 1.5)
    policy = policy_of(AGES, 10, delta=delta, rule=rule)
    release = released(policy, tagged(adult(data_dir, count), people), step=1, scraped=("shoal_records_total",))
    suppressed = np.diff(series(release, "shoal_records_total", "('outcome', 'suppressed')"), prepend=0)
    gone = set(release.suppressed)
    hits, found = [], []
    for last in np.flatnonzero(suppressed[: count - 1]).tolist():
        # The oldest record is decided when delta later ones have arrived: it is the first to be named.
        hits.append(float(last - delta in gone))
        found.append(suppressed[last])
    assert sum(found) > 20
    measured(
        "R32",
        f"record that was suppressed, named by the count of suppressed records, k = 10, delta {delta}, a scrape after "
        "each record",
        knows="every scrape, and not the output",
        success=hits,
        source="point 8: counts are live",
        beside=f"{int(sum(found))} suppressed in {len(hits)} steps",
        rule=rule,
    )
