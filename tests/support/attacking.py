"""What simulated attackers work on: releases made by a task and a producer, without a broker."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from shoal.formats import JsonDecoder
from shoal.kafka.metadata import CommittedState
from shoal.kafka.offsets import OffsetState
from shoal.kafka.transactions import TransactionBatch, UnpublishedRecord
from shoal.observability import Metrics
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.streams import DecidedCluster
from support.partition_tasks import START_MS, Message, TopicSink, partition_task
from support.published_data import read_rows

Record = dict[str, Any]
ADULT = {"age": (17, 90), "education-num": (1, 16), "hours-per-week": (1, 99)}


def quasi(low: float, high: float, **more: Any) -> dict[str, Any]:
    return {"role": "quasi_identifier", "bounds": [low, high], **more}


AGES = {name: quasi(*bounds, integer=True) for name, bounds in ADULT.items()}
"""The fields of `ADULT` as attributes of a policy."""


def policy_of(
    attributes: dict[str, Any],
    k: int,
    *,
    delta: int = 100,
    position: float = 0.0,
    max_delay_s: float | None = None,
    rule: str = "auto",
    normalize: Any = (),
    **privacy: Any,
) -> Policy:
    """Subjects are ``who``; ``tag`` is published; the attacker ignores it, and the test finds the record by it."""
    document = {
        "attributes": {
            "who": {"role": "identifier", "subject": True, "normalize": list(normalize)},
            **attributes,
            "tag": {"role": "confidential", "type": "string"},
        },
        "privacy": {"k": k, **privacy},
        "stream": {"delta": delta, "rule": rule} | ({} if max_delay_s is None else {"max_delay_s": max_delay_s}),
        "steering": {"position": position},
    }
    return Policy.from_document(Document.model_validate(document))


def tagged(records: Sequence[Record], people: Sequence[int] | None = None, *, seed: int = 7) -> list[Record]:
    """Give each record a subject and a tag that does not depend on its offset: byte order is no order of arrival."""
    tags = np.random.default_rng(seed).permutation(len(records))
    who = range(len(records)) if people is None else people
    return [record | {"who": int(one), "tag": f"{tag:07}"} for record, one, tag in zip(records, who, tags, strict=True)]


def column(folder: Path, name: str, *fields: str) -> list[Record]:
    return [{one: float(row[one]) for one in fields} for row in read_rows(folder, name)]


@cache
def adult(folder: Path, count: int, *texts: str, seed: int = 3) -> tuple[Record, ...]:
    """So many records of Adult in a shuffled order, with these of its other fields as texts."""
    rows = read_rows(folder, "adult")
    chosen = np.random.default_rng(seed).permutation(len(rows))[:count]
    return tuple({name: int(rows[i][name]) for name in ADULT} | {name: rows[i][name] for name in texts} for i in chosen)


def zipf_people(count: int, people: int, exponent: float, *, seed: int = 11) -> list[int]:
    """Draw the subjects of so many records, the r-th of them with a weight of r to the minus exponent."""
    weights = np.arange(1, people + 1) ** -exponent
    return [int(who) for who in np.random.default_rng(seed).choice(people, count, p=weights / weights.sum())]


def messages_of(records: Sequence[Record]) -> list[Message]:
    return [Message(offset, START_MS, json.dumps(record).encode()) for offset, record in enumerate(records)]


@dataclass(frozen=True)
class Transaction:
    """One transaction as the output shows it, and the offsets of the members, which an outside reader does not know.

    ``newest`` is the last offset that had been read: what an attacker with a clock knows of its time. ``topics``
    holds the messages of each topic in their order, ``clusters`` those of the output in the same order.
    """

    newest: int
    topics: dict[str, list[bytes]]
    clusters: list[DecidedCluster]
    references: list[UnpublishedRecord]


@dataclass
class Release:
    """All transactions of one partition."""

    policy: Policy
    records: Sequence[Record]
    transactions: list[Transaction] = field(default_factory=list)
    scrapes: list[dict[str, float]] = field(default_factory=list)
    metrics: Metrics = field(default_factory=Metrics)

    @property
    def clusters(self) -> list[DecidedCluster]:
        return [cluster for transaction in self.transactions for cluster in transaction.clusters]

    @property
    def suppressed(self) -> list[int]:
        return [one.offset for transaction in self.transactions for one in transaction.references]

    def people(self, cluster: DecidedCluster) -> Counter[int]:
        return Counter(self.records[offset]["who"] for offset in cluster.offsets)

    def members(self, cluster: DecidedCluster) -> list[int]:
        """Offsets of the members in the order of the published rows, found by the tags."""
        return [self.offset_of[json.loads(row)["tag"]] for row in cluster.rows]

    def __post_init__(self) -> None:
        self.offset_of = {record["tag"]: offset for offset, record in enumerate(self.records)}


class Wire(TopicSink):
    """A transactional producer whose client is replaced by a list."""

    def __init__(self, release: Release) -> None:
        super().__init__(release.policy)
        self.release = release
        self.newest = -1

    async def publish_and_commit(
        self,
        batch: TransactionBatch,
        committed_offset: int,  # noqa: ARG002
        metadata: str,  # noqa: ARG002
        at_ms: int,  # noqa: ARG002
    ) -> None:
        topics = self.topics_of(batch)
        cluster_of = {id(row): cluster for cluster in batch.clusters for row in cluster.rows}
        clusters = list({id(cluster_of[id(row)]): cluster_of[id(row)] for row in topics.get("out", [])}.values())
        assert [row for cluster in clusters for row in cluster.rows] == topics.get("out", [])
        if batch:
            self.release.transactions.append(Transaction(self.newest, topics, clusters, list(batch.unpublished)))


def released(policy: Policy, records: Sequence[Record], *, step: int = 1000, scraped: tuple[str, ...] = ()) -> Release:
    """Let a task process records; a transaction is due after every ``step``, and a scrape of samples that begin so."""
    return asyncio.run(_released(policy, records, step, scraped=scraped))


def released_in_silence(policy: Policy, records: Sequence[Record]) -> Release:
    """Let a task process records, then wait longer than ``max_delay_s``; there is no drain."""
    return asyncio.run(_released(policy, records, len(records), silent=True))


async def _released(
    policy: Policy, records: Sequence[Record], step: int, *, scraped: tuple[str, ...] = (), silent: bool = False
) -> Release:
    release = Release(policy, records)
    wire, clock = Wire(release), [START_MS / 1000 + 1.0]
    beginning = CommittedState(OffsetState(committed_offset=0, next_offset=0), policy.fingerprint, 1)

    def now() -> float:
        return clock[0]

    task = partition_task(
        "in", 0, policy, JsonDecoder(policy), wire, beginning, release.metrics, 0.2, now, monotonic_clock=now
    )
    messages = messages_of(records)
    for start in range(0, len(messages), step):
        await task.process(messages[start : start + step])
        wire.newest = min(start + step, len(messages)) - 1
        clock[0] += 1
        await task.punctuate()
        await asyncio.sleep(0)
        task._collector.check()
        if scraped:
            release.scrapes.append(scrape(release.metrics, scraped))
    if silent:
        for _ in range(3):
            clock[0] += policy.require_stream().max_delay_s or 0
            await task.punctuate(log_end=task.position)
            await asyncio.sleep(0)
            task._collector.check()
    else:
        await task.commit(flush=True)
    await task.close(commit=True)
    return release


def scrape(metrics: Metrics, beginnings: tuple[str, ...]) -> dict[str, float]:
    """Return the samples whose names begin so."""
    names = [name for name in metrics.registry._names_to_collectors if name.startswith(beginnings)]
    return {
        f"{one.name}{sorted(one.labels.items())}": one.value
        for family in metrics.registry.restricted_registry(names).collect()
        for one in family.samples
    }
