"""A partition task that hands clusters over to a listener, under crashes at every step."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from properties.test_partition_task import START_S, Topic, policy_of, random_log, random_policy
from shoal.errors import BrokerUnavailableError, FencedError
from shoal.formats import JsonDecoder
from shoal.kafka import ClusterListener
from shoal.kafka.metadata import CommittedState, decode, encode
from shoal.kafka.offsets import OffsetState
from shoal.observability import Metrics
from shoal.policy import Policy
from shoal.streams import DecidedCluster
from support.by_night import at_night
from support.kafka_broker import wait_until
from support.partition_tasks import Message, partition_task

pytestmark = pytest.mark.property

INTERVAL_S = 0.2


class TornAway(Exception):  # noqa: N818 - no error
    """A cluster was not handled."""


@dataclass
class Listener:
    """Sees clusters, and is torn away from some; ``now`` is the clock of all."""

    topic: RecordingTopic
    draw: Random
    now: list[float]
    policy: Policy | None = None
    seen: list[DecidedCluster] = field(default_factory=list)
    wanted: dict[int, int] = field(default_factory=dict)
    dealt: set[int] = field(default_factory=set)
    is_torn_away: bool = False

    async def hand(self, cluster: DecidedCluster) -> bool:
        assert self.topic.has_handed_over, "a cluster was shown, and the commit does not say that one may have been"
        assert self.now[0] - self.topic.at_s < INTERVAL_S, "a cluster was shown by one who may have been replaced"
        assert self.policy is not None
        assert self.topic.commit.has_policy(self.policy.fingerprint), "shown under another policy than the commit says"
        self.seen.append(cluster)
        self.wanted[cluster.number] = self.policy.k
        self.now[0] += self.draw.choice([0.0, 0.0, 0.01, 0.3])
        if self.draw.random() < 0.05:
            self.is_torn_away = True
            return False
        self.dealt.add(cluster.number)
        return True

    def check(self) -> None:
        if self.is_torn_away:
            raise TornAway


@dataclass
class RecordingTopic(Topic):
    """Keeps what is committed, and sees that nothing is that was not dealt with."""

    now: list[float] = field(default_factory=lambda: [START_S])
    at_s: float = 0.0
    listener: Listener | None = None

    @property
    def has_handed_over(self) -> bool:
        return self.snapshot.handed_over_uncommitted

    @property
    def commit(self) -> CommittedState:
        return decode(self.offset[1], "t", 0, self.offset[0])

    @property
    def snapshot(self) -> OffsetState:
        return self.commit.state

    async def publish_and_commit(self, batch: Any, committed_offset: int, metadata: str, at_ms: int) -> None:
        counted = decode(metadata, "t", 0, committed_offset).state.next_cluster_number
        assert self.listener is not None
        assert set(range(counted)) <= self.listener.dealt, "a commit covers a cluster that was not dealt with"
        await super().publish_and_commit(batch, committed_offset, metadata, at_ms)
        self.at_s = self.now[0]


def first_state(policy: Policy) -> CommittedState:
    return CommittedState(OffsetState(committed_offset=0, next_offset=0), policy.fingerprint, 1)


def log_of(count: int) -> list[Message]:
    contents = ({"who": i, "x": i % 100, "y": i, "n": i, "ward": "eye"} for i in range(count))
    return [Message(i, round(START_S * 1000) + i, json.dumps(one).encode()) for i, one in enumerate(contents)]


async def run(policies: list[Policy], log: list[Message], topic: RecordingTopic, listener: Listener) -> int:
    """Live until all is dealt with; return how often the policy was changed."""
    draw, now = listener.draw, topic.now
    topic.offset = (0, encode(first_state(policies[0]), "t", 0))
    visible, changes = [1], 0
    while True:
        commit = topic.commit
        (policy,) = [one for one in policies if commit.has_policy(one.fingerprint)]
        # Else the start refuses another one.
        if not commit.state.handed_over_uncommitted and commit.state.flush_at_offset is None:
            chosen = draw.choice([policy, *policies])
            changes, policy = changes + (chosen is not policy), chosen
        listener.policy = policy
        decoder, clock = JsonDecoder(policy), lambda: now[0]
        options: dict[str, Any] = {"listener": listening(listener.hand), "log_end": log[visible[0] - 1].offset + 1}
        options |= {"wall_clock": clock, "monotonic_clock": clock}
        task = partition_task("t", 0, policy, decoder, topic, commit, Metrics(), INTERVAL_S, **options)
        task.restore(0)
        try:
            while True:
                todo = [message for message in log[: visible[0]] if message.offset >= task.position]
                await task.process(todo[: draw.randint(1, 6)])
                listener.check()
                now[0] += draw.randint(0, 6) / 10
                is_at_end = task.position > log[visible[0] - 1].offset
                await task.punctuate(log_end=task.position if is_at_end else None)
                listener.check()
                topic.perhaps_dies(draw.randint(0, 20))
                if is_at_end and visible[0] == len(log):
                    break
                visible[0] = min(len(log), visible[0] + draw.randint(0, 9))
            await task.commit(flush=True)
            listener.check()
            await task.close(commit=True)
        except (BrokerUnavailableError, TornAway) as error:
            listener.is_torn_away = False
            with contextlib.suppress(BrokerUnavailableError):
                await task.close(commit=isinstance(error, TornAway))
            now[0] += draw.randint(0, 30) / 10
            visible[0] = min(len(log), visible[0] + draw.randint(0, 9))
            continue
        assert not topic.has_handed_over, "everything was dealt with and committed"
        return changes


def run_and_check(seed: int) -> Counter[str]:
    draw, now = Random(seed), [START_S + 100]
    log, policies = random_log(draw), [random_policy(draw), random_policy(draw)]
    topic = RecordingTopic(
        plan=[draw.choice(["commit", "commit", "commit", "abort", "unknown"]) for _ in range(40)], now=now
    )
    topic.listener = listener = Listener(topic, draw, now)
    changes = asyncio.run(run(policies, log, topic, listener))
    first: dict[int, DecidedCluster] = {}
    for cluster in listener.seen:
        assert first.setdefault(cluster.number, cluster) == cluster, "a cluster came again with other content"
    assert sorted(first) == list(range(len(first)))
    completed = [offset for cluster in first.values() for offset in cluster.offsets]
    completed += [reference.offset for batch in topic.committed for reference in batch.unpublished]
    assert sorted(completed) == [message.offset for message in log], "an offset is lost or completed twice"
    people = {message.offset: json.loads(message.value)["who"] for message in log if message.value not in {None, b"{"}}
    for number, cluster in first.items():
        assert len({people[place] for place in cluster.offsets}) >= listener.wanted[number]
    return Counter(clusters=len(first), repeats=len(listener.seen) - len(first), changes=changes)


@pytest.mark.parametrize("runs", [40, *at_night(150)])
def test_clusters_handed_over_again_are_the_same_and_no_commit_runs_ahead(runs: int) -> None:
    happened: Counter[str] = Counter()
    for seed in range(runs):
        try:
            happened += run_and_check(seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert happened["clusters"] > 4.6 * runs
    assert happened["repeats"] > 1.3 * runs
    assert happened["changes"] > 0.33 * runs


async def test_an_idle_worker_that_was_replaced_hands_nothing_over() -> None:
    draw, now = Random(1), [START_S]
    policy, log = random_policy(Random(3)), log_of(200)
    topic = RecordingTopic(now=now)
    topic.listener = listener = Listener(topic, draw, now, policy)
    begun, decoder, shown = first_state(policy), JsonDecoder(policy), listening(listener.hand)
    topic.offset = (0, encode(begun, "t", 0))
    task = partition_task("t", 0, policy, decoder, topic, begun, Metrics(), INTERVAL_S, lambda: now[0], listener=shown)
    await task.process(log[: policy.k - 1])
    now[0] += 60

    async def is_fenced(*_: Any, **__: Any) -> None:
        raise FencedError("another one has it")

    topic.publish_and_commit = is_fenced  # type: ignore[method-assign]
    with pytest.raises(FencedError):
        await task.process(log[policy.k - 1 :])
    assert listener.seen == []


async def test_handled_clusters_are_committed_while_the_next_one_is_being_handled() -> None:
    policy = policy_of(3, delta=5, position=0.0, max_delay_s=None, max_share=1.0)
    topic, is_done, seen = Topic(), asyncio.Event(), list[DecidedCluster]()

    async def hand(cluster: DecidedCluster) -> bool:
        seen.append(cluster)
        if cluster.number:
            await is_done.wait()
        return True

    decoder, begun = JsonDecoder(policy), first_state(policy)
    task = partition_task("t", 0, policy, decoder, topic, begun, Metrics(), 0.02, listener=listening(hand))

    async def read() -> None:
        for message in log_of(60):
            await task.process([message])

    def committed() -> int:
        return decode(topic.offset[1], "t", 0, topic.offset[0]).state.next_cluster_number if topic.offset[1] else 0

    reading = asyncio.create_task(read())
    await wait_until(lambda: len(seen) == 2 and committed() == 1, 10, "the commit of the first cluster")
    assert not reading.done()
    is_done.set()
    await reading
    await task.close(commit=True)
    assert committed() == len(seen) > 5


def listening(hand: Callable[[DecidedCluster], Awaitable[bool]]) -> ClusterListener:
    return ClusterListener(on_decided=lambda _, cluster: hand(cluster))
