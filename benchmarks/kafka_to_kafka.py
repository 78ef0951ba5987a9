"""Topics, records and a policy for the parts that measure the service, and one run of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from shoal.cli.run import spaced_collections
from shoal.kafka import StartOptions, Worker
from shoal.kernels.jit import use_compiled
from shoal.observability import Health, Metrics, set_up_logs
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.settings import kafka_settings
from shoal.streams import precompile

__all__ = [
    "PARTITIONS",
    "RECORDS",
    "Speed",
    "document",
    "fill",
    "measure",
    "messages",
    "new_topic",
    "policy",
]

PARTITIONS = 4
RECORDS = 600_000


def document(bootstrap: str, source: str, target: str) -> dict[str, Any]:
    """Four quasi-identifiers, a subject, two unchanged fields: about 200 bytes a record."""
    numeric: dict[str, Any] = {"role": "quasi_identifier", "scale": "numeric"}
    return {
        "attributes": {
            "who": {"role": "identifier", "subject": True, "type": "string"},
            "age": {**numeric, "bounds": [0, 110], "integer": True},
            "income": {**numeric, "bounds": [0, 100_000]},
            "latitude": {**numeric, "bounds": [-90, 90]},
            "longitude": {**numeric, "bounds": [-180, 180]},
            "note": {"role": "other", "type": "string", "publish_unchanged": True},
            "serial": {"role": "confidential", "type": "integer"},
        },
        "privacy": {"k": 10},
        "stream": {"delta": 100},
        "kafka": {"bootstrap_servers": bootstrap, "group": f"{target}-group", "input": source, "output": target},
    }


def policy(bootstrap: str, source: str, target: str) -> Policy:
    """Return the policy of this document."""
    return Policy.from_document(Document.model_validate(document(bootstrap, source, target)))


def messages(count: int) -> list[bytes]:
    """Made-up records of 50,000 people."""
    random = Random(1)  # noqa: S311 - made-up records
    return [
        json.dumps(
            {
                "who": f"person-{random.randrange(50_000)}",
                "age": random.randrange(110),
                "income": random.randrange(100_000),
                "latitude": random.uniform(-90, 90),
                "longitude": random.uniform(-180, 180),
                "note": "x" * 40,
                "serial": number,
            }
        ).encode()
        for number in range(count)
    ]


async def new_topic(bootstrap: str, name: str, partitions: int = PARTITIONS, /, **configs: str) -> str:
    """Create a topic."""
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        await client.create_topics([NewTopic(name, partitions, 1, topic_configs=configs)])
    finally:
        await client.close()
    return name


async def fill(
    bootstrap: str,
    topic: str,
    stamped: Iterable[tuple[bytes | None, int]] | None = None,
    *,
    partitions: int = PARTITIONS,
) -> None:
    """Write values with how far ahead of now they are dated (ms), in turn over the partitions."""
    if stamped is None:
        stamped = ((value, 0) for value in messages(RECORDS))
    now_ms = round(time.time() * 1000)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, max_batch_size=1 << 18)
    await producer.start()
    try:
        for number, (value, ahead_ms) in enumerate(stamped):
            # The client wants a key beside no value.
            key = b"k" if value is None else None
            stamp = now_ms + ahead_ms
            await producer.send(topic, value, key=key, partition=number % partitions, timestamp_ms=stamp)
        await producer.flush()
    finally:
        await producer.stop()


@dataclass(frozen=True, slots=True)
class Speed:
    """What one run took: records a second, and processor time of the process in microseconds a record."""

    per_s: float
    cpu_us: float


async def measure(policy: Policy, records: int) -> Speed:
    """Measure Shoal in this process, from starting the clients to closing them, as `shoal run --drain` does."""
    set_up_logs("text")  # to standard error
    use_compiled()
    precompile(policy)
    metrics = Metrics()
    start = StartOptions(reset="earliest", drain=True)
    worker = Worker(policy, kafka_settings(policy, {}), metrics, Health(), start)
    async with spaced_collections():
        began, cpu = time.monotonic(), time.process_time()
        await worker.run()
        elapsed, cpu = time.monotonic() - began, time.process_time() - cpu
    totals = metrics.totals()
    if totals["in"] != records or sum(totals.values()) != 2 * records:
        raise SystemExit("bench: records are missing")
    return Speed(records / elapsed, cpu / records * 1e6)
