"""What partition tasks publish for a topic, without a broker: rows, evidence and references of every partition."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence

from shoal.formats import JsonDecoder
from shoal.kafka.metadata import CommittedState
from shoal.kafka.offsets import OffsetState
from shoal.kafka.transactions import TransactionBatch
from shoal.observability import Metrics
from shoal.policy import Policy
from support.partition_tasks import Message, TopicSink, partition_task

START_S = 1_700_000_100.0
"""Wall-clock time of the first poll (s)."""

_TOPICS = {"out": "released", "proof": "evidence", "bad": "quarantine"}


class _Sink(TopicSink):
    """Keeps the messages of each topic."""

    def __init__(self, policy: Policy, partition: int, partitions: int, topics: dict[str, list[bytes]]) -> None:
        super().__init__(policy, partition, partitions)
        self._partition, self._topics = partition, topics

    async def publish_and_commit(
        self, batch: TransactionBatch, committed_offset: int, metadata: str, at_ms: int
    ) -> None:
        assert committed_offset >= 0
        assert metadata
        assert at_ms > 0
        for topic, values in self.topics_of(batch).items():
            lines = self._topics.get(_TOPICS.get(topic, ""))
            if lines is None:
                continue
            for value in values:
                line = {"partition": self._partition, "value": value.decode()}
                lines.append(json.dumps(line, ensure_ascii=False).encode() if topic == "out" else value)


def run_topic(
    policy: Policy, messages: Mapping[int, Sequence[Message]], step: int, *, drains: bool
) -> dict[str, list[bytes]]:
    """Pass messages through tasks, ``step`` a poll; at the end the rest leaves if it ``drains``, or is held."""
    topics: dict[str, list[bytes]] = {name: [] for name in _TOPICS.values()}
    asyncio.run(_run(policy, messages, step, topics, drains=drains))
    return topics


async def _run(
    policy: Policy,
    messages: Mapping[int, Sequence[Message]],
    step: int,
    topics: dict[str, list[bytes]],
    *,
    drains: bool,
) -> None:
    clock, metrics = [START_S], Metrics()
    tasks = {}

    def now() -> float:
        return clock[0]

    for partition in messages:
        begun = CommittedState(OffsetState(committed_offset=0, next_offset=0), policy.fingerprint, 1)
        sink = _Sink(policy, partition, len(messages), topics)
        limit = 900_000 if policy.kafka is None else policy.kafka.max_record_bytes
        decoder = JsonDecoder(policy, max_bytes=limit)
        tasks[partition] = partition_task(
            "in", partition, policy, decoder, sink, begun, metrics, 0.2, now, monotonic_clock=now
        )
    for start in range(0, max(map(len, messages.values()), default=0), step):
        for partition, task in tasks.items():
            await task.process(messages[partition][start : start + step])
            clock[0] += 0.25
            await task.punctuate()
            await asyncio.sleep(0)
    for task in tasks.values():
        await task.commit(flush=drains)
        await task.close(commit=True)
