"""A partition task under crashes at every step, without a broker: offsets are completed once, clusters repeat."""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from shoal.errors import BrokerUnavailableError
from shoal.formats import JsonDecoder
from shoal.kafka import offsets
from shoal.kafka.metadata import CommittedState, decode, encode
from shoal.kafka.offsets import OffsetState
from shoal.kafka.task import PartitionTask
from shoal.kafka.transactions import TransactionBatch, TransactionSink
from shoal.observability import Metrics
from shoal.policy import PerSubject, Policy
from shoal.policy.schema import Document
from shoal.streams import DecidedCluster, spreads
from support.by_night import at_night
from support.partition_tasks import Message, partition_task

pytestmark = pytest.mark.property

MAX_AHEAD_MS = 3_600_000

START_S = 1_700_000_000.0


@dataclass
class Topic(TransactionSink):
    """What a broker would keep: committed and aborted transactions, and the group's offset."""

    committed: list[TransactionBatch] = field(default_factory=list)
    aborted: list[TransactionBatch] = field(default_factory=list)
    offset: tuple[int, str] = (0, "")
    plan: list[str] = field(default_factory=list)

    async def publish_and_commit(
        self, batch: TransactionBatch, committed_offset: int, metadata: str, at_ms: int
    ) -> None:
        assert at_ms > 0
        step = self.plan.pop(0) if self.plan else "commit"
        if step == "abort":
            self.aborted.append(batch)
            raise BrokerUnavailableError("before the commit")
        self.committed.append(batch)
        self.offset = (committed_offset, metadata)
        if step == "unknown":
            raise BrokerUnavailableError("after the commit")

    async def close(self) -> None:
        pass

    def perhaps_dies(self, die: int) -> None:
        if die == 0:
            raise BrokerUnavailableError("killed")


def policy_of(
    k: int,
    delta: int,
    position: float | dict[str, float],
    max_delay_s: float | None,
    max_share: float,
    rule: str = "nearest",
    release: str = "cluster",
    bounds: tuple[float, float] | None = (0, 9000),
    ward: dict[str, object] | None = None,
    mixed: dict[str, object] | None = None,
    dependence: float = 0.0,
    **options: object,
) -> Policy:
    attributes = {
        "who": {"role": "identifier", "subject": True, "type": "integer"},
        "x": {"role": "quasi_identifier", "scale": "numeric", "bounds": [0, 100], "integer": True},
        "y": {"role": "quasi_identifier", "bounds": bounds and list(bounds), "resolution": 5},
        "n": {"role": "confidential", "type": "integer"} | ({"bounds": [0, 60]} if dependence else {}),
        "ward": {"role": "confidential", "type": "string", **(ward or {})},
        **(mixed or {}),
    }
    document = {
        "attributes": attributes,
        "privacy": {"k": k, "max_share": max_share, **options},
        "stream": {"delta": delta, "max_delay_s": max_delay_s, "rule": rule, "release": release},
        "steering": {"position": position, "dependence": dependence},
    }
    return Policy.from_document(Document.model_validate(document))


WARDS = ["eye", "eye", "ear", "eye", "ear", "nose", "nose"]
SHARES = {"eye": 0.5, "ear": 0.3, "nose": 0.2}
KINDS = ["good"] * 8 + ["bad", "null", "future", "edge"]


def random_log(random: Random) -> list[Message]:
    offset, time_ms, messages = 0, round(START_S * 1000), []
    for number in range(random.randint(1, 60)):
        offset += random.choice([1, 1, 1, 1, 2, 9])
        time_ms += random.choice([0, 10, 300, 1000, -500])
        kind, far = random.choice(KINDS), random.choice([1, 10, 1000])
        good = json.dumps(
            {"who": random.randint(0, 12), "x": random.randint(0, 100), "y": far * random.randint(0, 9), "n": number}
            | {"ward": WARDS[number * 37 % 101 % 7]}
        ).encode()
        value = {"null": None, "bad": b"{"}.get(kind, good)
        # An edge record is refused now and would be accepted some seconds later.
        ahead = {"future": 3 * MAX_AHEAD_MS, "edge": MAX_AHEAD_MS + 101_000}.get(kind, 0)
        messages.append(Message(offset, (round(START_S * 1000) if kind == "edge" else time_ms) + ahead, value))
    return messages


def random_mixed_log(random: Random) -> list[Message]:
    """Return a log whose records have a clock, a rank, a category and a number, any of which may be missing."""
    found, clock_ms = [], 0
    for message in random_log(random):
        clock_ms += random.choice([0, 1000, 60_000, 7_000_000])
        if message.value in {None, b"{"}:
            found.append(message)
            continue
        mixed = {
            "at": round(START_S * 1000) + clock_ms,
            "grade": random.choice(["low", "middle", "high"]),
            "city": random.choice(["Bern", "Basel", "Wien"]),
            "pay": random.choice([10, 20, 21, 22, 4000]),
        }
        shown = {name: None if random.random() < 0.15 else value for name, value in mixed.items()}
        found.append(replace(message, value=json.dumps(json.loads(message.value or b"") | shown).encode()))
    return found


def random_mixed_policy(random: Random) -> Policy:
    missing = {"missing": random.choice(["group", "mean"])}
    cities: dict[str, object] = {"taxonomy": {"CH": ["Bern", "Basel"], "AT": ["Wien"]}} if random.random() < 0.5 else {}
    mixed: dict[str, object] = {
        "at": {"role": "quasi_identifier", "scale": "time", "unit": "ms", "resolution": "15min", **missing},
        "grade": {"role": "quasi_identifier", "scale": "ordinal", "order": ["low", "middle", "high"], **missing},
        "city": {"role": "quasi_identifier", "scale": "nominal", "missing": "group", **cities},
        "pay": {"role": "quasi_identifier", "integer": True, **missing},
    }
    return random_policy(random, mixed=mixed)


def random_policy(random: Random, ward: dict[str, object] | None = None, **protection: Any) -> Policy:
    k = random.randint(2, 4)
    delta = k - 1 + random.randint(0, 12)
    positions: list[float | dict[str, float]] = [0.0, 0.05, *({"target_span": span} for span in (0.0, 2.0, 6.0))]
    return policy_of(
        k,
        delta=delta,
        position=random.choice(positions),
        max_delay_s=random.choice([None, 0.8, 3.0]),
        max_share=random.choice([0.5, 1.0]),
        per_subject=random.choice([None, {"max": 1, "window": 7}, {"max": 2, "window": 25}]),
        rule=random.choice(["nearest", "greedy", "awo", "block"]),
        min_population=random.choice([None, k]) if delta >= k else None,
        release=random.choice(["cluster", "ordered"]),
        bounds=None if random.random() < 0.5 else (0, 9000),
        ward=ward,
        **protection,
    )


def random_protected_policy(random: Random, reference: Path) -> Policy:
    ward: dict[str, object] = {"protect": True}
    protection: dict[str, Any] = random.choice(
        [
            {"l": 2, "max_value_share": random.choice([0.5, 0.7, 1])},
            {"l": {"entropy": 1.5}},
            {"l": {"recursive": [2, 2]}},
            {"max_value_share": 0.6, "dependence": 0.5},
            {"t": random.choice([0.25, 0.4])},
            {"l": 2, "t": 0.45, "max_value_share": 0.75},
        ]
    )
    if "t" in protection:
        ward["reference"] = str(reference)
    return random_policy(random, ward, **protection)


async def read_to_end(
    task: PartitionTask, log: list[Message], visible: list[int], topic: Topic, steps: Any, now: list[float], most: int
) -> None:
    """Read a growing log, up to ``most`` messages at a time; die where the plan says so."""
    while True:
        todo = [message for message in log[: visible[0]] if message.offset >= task.position]
        await task.process(todo[: steps(1, most)])
        now[0] += steps(0, 12) / 10
        is_at_end = task.position > log[visible[0] - 1].offset
        await task.punctuate(log_end=task.position if is_at_end else None)
        await asyncio.sleep(0)
        topic.perhaps_dies(steps(0, 20))
        if is_at_end and visible[0] == len(log):
            return
        visible[0] = min(len(log), visible[0] + steps(0, 9))


async def run(policy: Policy, log: list[Message], topic: Topic, steps: Any, now: list[float]) -> None:
    """Run tasks over a growing log until everything is resolved, dying wherever the plan says so."""
    snapshot = OffsetState(committed_offset=0, next_offset=0)
    topic.offset = (0, encode(CommittedState(snapshot, policy.fingerprint, 1), "t", 0))
    visible = [1]

    def clock() -> float:
        return now[0]

    while True:
        commit = decode(topic.offset[1], "t", 0, topic.offset[0])
        decoder, metrics = JsonDecoder(policy), Metrics()
        task = partition_task("t", 0, policy, decoder, topic, commit, metrics, 0.2, clock, monotonic_clock=clock)
        task.restore(0)
        try:
            await read_to_end(task, log, visible, topic, steps, now, 20)
            await task.commit(flush=True)
            assert task.waiting_count == 0
            await task.close(commit=True)
        except BrokerUnavailableError:
            await task.close(commit=False)
            now[0] += steps(0, 30) / 10
            visible[0] = min(len(log), visible[0] + steps(0, 9))
            continue
        return


def resolved(batches: list[TransactionBatch]) -> list[int]:
    released = [place for batch in batches for cluster in batch.clusters for place in cluster.offsets]
    return released + [reference.offset for batch in batches for reference in batch.unpublished]


def by_number(batches: list[TransactionBatch]) -> dict[int, DecidedCluster]:
    return {cluster.number: cluster for batch in batches for cluster in batch.clusters}


def run_and_check(
    seed: int,
    draw_policy: Callable[[Random], Policy] = random_policy,
    draw_log: Callable[[Random], list[Message]] = random_log,
) -> Counter[str]:
    """One random life of a partition; return how much of what was tried happened in it."""
    random = Random(seed)
    log, policy = draw_log(random), draw_policy(random)
    topic = Topic(plan=[random.choice(["commit", "commit", "abort", "unknown"]) for _ in range(30)])
    asyncio.run(run(policy, log, topic, random.randint, [START_S + 100]))

    completed = resolved(topic.committed)
    assert sorted(completed) == [message.offset for message in log], "an offset is lost or completed twice"
    people = {message.offset: json.loads(message.value)["who"] for message in log if message.value not in {None, b"{"}}
    clusters = by_number(topic.committed)
    assert sorted(clusters) == list(range(len(clusters)))
    for cluster in clusters.values():
        assert len({people[place] for place in cluster.offsets}) >= policy.k
        assert cluster.rows == sorted(cluster.rows)
        check_protection(policy, *people_by_ward(cluster, log))
    rule = policy.per_subject
    if rule is not None:
        places = [place for cluster in clusters.values() for place in cluster.offsets]
        assert not set(places).intersection(too_many(log, rule)), "a subject was released too often within a window"
    aborted = by_number(topic.aborted)
    for number, cluster in aborted.items():
        again = clusters[number]
        assert (again.rows, again.offsets) == (cluster.rows, cluster.offsets), "a second try decided otherwise"
    surplus = 0 if rule is None else len(too_many(log, rule))
    in_order = check_order(topic, clusters) if policy.require_stream().is_ordered else 0
    return Counter(clusters=len(clusters), aborted=len(aborted), surplus=surplus, in_order=in_order)


def people_by_ward(cluster: DecidedCluster, log: list[Message]) -> tuple[Counter[str], int]:
    """How many people of a cluster have each ward, and how many people it has."""
    of_offset = {message.offset: message.value for message in log}
    records = [json.loads(of_offset[place] or b"") for place in cluster.offsets]
    return Counter(ward for ward, _ in {(one["ward"], one["who"]) for one in records}), len(
        {one["who"] for one in records}
    )


def check_protection(policy: Policy, counts: Counter[str], people: int) -> None:
    """See that a cluster keeps l, t and the largest share: ``counts`` are people by ward."""
    shares = sorted((count / counts.total() for count in counts.values()), reverse=True)
    if policy.max_value_share is not None:
        assert max(counts.values()) <= policy.max_value_share * people + 1e-9
    if policy.t is not None:
        distance = sum(abs(counts[ward] / counts.total() - share) for ward, share in SHARES.items()) / 2
        assert distance <= policy.t + 1e-9
    if policy.diversity is not None:
        entropy = -sum(share * math.log(share) for share in shares)
        assert {
            "distinct": len(shares) >= 2,
            "entropy": entropy >= math.log(1.5) - 1e-9,
            "recursive": shares[0] < 2 * sum(shares[1:]),
        }[policy.diversity.kind]


def check_order(topic: Topic, clusters: dict[int, DecidedCluster]) -> int:
    """See that each record left at its own place, once; how many did so away from others of their cluster."""
    slots = sorted(slot for cluster in clusters.values() for slot in zip(cluster.offsets, cluster.rows, strict=True))
    rows = [row for _, row in slots]
    assert [row for batch in topic.committed for row in batch.rows] == rows, "the output is not in the input's order"
    for batch in topic.aborted:
        starts = range(len(rows) - len(batch.rows) + 1)
        assert any(rows[start : start + len(batch.rows)] == batch.rows for start in starts), "it left otherwise before"
    left: list[tuple[int, bytes]] = []
    apart = 0
    for batch in topic.committed:
        left += slots[len(left) : len(left) + len(batch.rows)]
        places = {place for place, _ in left}
        apart += sum(
            0 < len(places.intersection(cluster.offsets)) < len(cluster.offsets) for cluster in clusters.values()
        )
    return apart


def too_many(log: list[Message], rule: PerSubject) -> list[int]:
    """Offsets that may not leave, found the slow way."""
    seen: Counter[tuple[int, int]] = Counter()
    found = []
    for message in log:
        if message.value not in {None, b"{"}:
            place = json.loads(message.value or b"")["who"], message.offset // rule.window
            seen[place] += 1
            found += [message.offset] * (seen[place] > rule.max)
    return found


@pytest.mark.parametrize("runs", [100, *at_night(400)])
def test_each_offset_is_completed_once_and_crashes_repeat_the_same_clusters(runs: int) -> None:
    happened = sum((run_seed(seed) for seed in range(runs)), Counter[str]())
    assert happened["clusters"] > 3.75 * runs
    assert happened["aborted"] > 0.87 * runs, "hardly any crash fell between a decision and its commit"
    assert happened["surplus"] > 0.75 * runs, "hardly any record exceeded the quota"
    assert happened["in_order"] > 1.25 * runs, "hardly any commit fell between the records of a cluster"


@pytest.mark.parametrize("runs", [40, *at_night(150)])
def test_clusters_that_keep_l_and_t_are_repeated_after_crashes(tmp_path: Path, runs: int) -> None:
    reference = tmp_path / "wards.csv"
    reference.write_text("value,share\n" + "".join(f"{ward},{share}\n" for ward, share in SHARES.items()))
    draw_policy = partial(random_protected_policy, reference=reference)
    happened = sum((run_seed(seed, draw_policy) for seed in range(50_000, 50_000 + runs)), Counter[str]())
    assert happened["clusters"] > 2 * runs
    assert happened["aborted"] > 0.4 * runs, "hardly any crash fell between a decision and its commit"
    assert happened["in_order"] > 0.5 * runs, "hardly any commit fell between the records of a cluster"


@pytest.mark.parametrize("warmup", [3, 1000])
@pytest.mark.parametrize("runs", [40, *at_night(300)])
def test_clusters_of_mixed_records_are_repeated_after_crashes(
    monkeypatch: pytest.MonkeyPatch, runs: int, warmup: int
) -> None:
    """Before spreads are learned, and afterwards."""
    monkeypatch.setattr(spreads, "WARMUP", warmup)
    seeds = range(60_000, 60_000 + runs)
    happened = sum((run_seed(seed, random_mixed_policy, random_mixed_log) for seed in seeds), Counter[str]())
    assert happened["clusters"] > 3.5 * runs
    assert happened["aborted"] > 0.8 * runs, "hardly any crash fell between a decision and its commit"
    assert happened["in_order"] > 1.2 * runs, "hardly any commit fell between the records of a cluster"


@pytest.mark.parametrize("runs", [30, *at_night(100)])
def test_many_future_timestamps_need_no_list(monkeypatch: pytest.MonkeyPatch, runs: int) -> None:
    monkeypatch.setattr(offsets, "MAX_FUTURE_TIMESTAMPED", 0)
    monkeypatch.setattr(sys.modules[__name__], "KINDS", ["good"] * 3 + ["future"] * 2)
    happened = sum((run_seed(seed) for seed in range(30_000, 30_000 + runs)), Counter[str]())
    assert happened["aborted"] > 0.5 * runs


def run_seed(
    seed: int,
    draw_policy: Callable[[Random], Policy] = random_policy,
    draw_log: Callable[[Random], list[Message]] = random_log,
) -> Counter[str]:
    """Name the seed of a run that failed; it is enough to repeat the run."""
    try:
        return run_and_check(seed, draw_policy, draw_log)
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise
