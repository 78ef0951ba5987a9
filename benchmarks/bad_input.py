"""The service over records of which one in a hundred is malformed, beside the same without: alternating, in one run."""

from __future__ import annotations

import json
import sys
import time
import uuid
from pathlib import Path
from random import Random
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from kafka_to_kafka import PARTITIONS, Speed
from shoal.flow import warm_up
from shoal.kafka import Start, Transformer
from shoal.policy import Policy
from shoal.policy.sections import Document
from shoal.settings import kafka_settings
from shoal.watch import Health, Metrics

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from hostile import KINDS, MAX_BYTES, POLICY, Sent, good

__all__ = ["RECORDS", "SHARE", "bad_rounds"]

RECORDS = 300_000
SHARE = 100
"""One in so many is malformed."""


async def bad_rounds(bootstrap: str, rounds: int) -> list[tuple[Speed, Speed]]:
    """Return the speeds without and with malformed messages, of every kind in turn."""
    run = f"bench-{uuid.uuid4().hex[:8]}"
    draw = Random(1)  # noqa: S311 - made-up records
    wrong = [kind for kind in KINDS if kind.fate != "released"]
    clean = [Sent(json.dumps(good(number)).encode()) for number in range(RECORDS)]
    mixed = list(clean)
    for turn, number in enumerate(draw.sample(range(RECORDS), RECORDS // SHARE)):
        mixed[number] = wrong[turn % len(wrong)].message(good(number), draw)
    for name, messages in (("clean", clean), ("mixed", mixed)):
        await _fill(bootstrap, f"{run}-{name}", messages)
    speeds = []
    for number in range(rounds):
        # In turn the first of a pair, so that what comes second has no disadvantage.
        order = ("clean", "mixed") if number % 2 else ("mixed", "clean")
        found = {name: await _measure(bootstrap, f"{run}-{name}", f"{run}-{name}-{number}") for name in order}
        speeds.append((found["clean"], found["mixed"]))
        print(f"clean {found['clean'].per_s:,.0f}/s, 1 % bad {found['mixed'].per_s:,.0f}/s", file=sys.stderr)
    return speeds


async def _create(bootstrap: str, names: list[str]) -> None:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        # A timestamp far ahead is one of the kinds.
        configs = {"message.timestamp.after.max.ms": str(1 << 62)}
        await client.create_topics([NewTopic(name, PARTITIONS, 1, topic_configs=configs) for name in names])
    finally:
        await client.close()


async def _fill(bootstrap: str, topic: str, messages: list[Sent]) -> None:
    await _create(bootstrap, [topic])
    now_ms = round(time.time() * 1000)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, max_batch_size=1 << 18)
    await producer.start()
    try:
        for number, message in enumerate(messages):
            stamp = now_ms + message.ahead_ms
            # The client wants a key beside no value.
            await producer.send(topic, message.value, key=b"k", partition=number % PARTITIONS, timestamp_ms=stamp)
        await producer.flush()
    finally:
        await producer.stop()


async def _measure(bootstrap: str, source: str, target: str) -> Speed:
    side = f"{target}-quarantine"
    await _create(bootstrap, [target, side])
    topics = {"bootstrap_servers": bootstrap, "group": target, "input": source, "output": target, "quarantine": side}
    document: dict[str, Any] = {**POLICY, "kafka": {**topics, "max_record_bytes": MAX_BYTES}}
    policy = Policy.from_document(Document.model_validate(document))
    warm_up(policy)
    metrics = Metrics()
    start = Start(origin="earliest", drain=True)
    service = Transformer(policy, kafka_settings(policy, {}), metrics, Health(), start)
    began, cpu = time.monotonic(), time.process_time()
    await service.run()
    elapsed, cpu = time.monotonic() - began, time.process_time() - cpu
    totals = metrics.totals()
    if totals["in"] != RECORDS or sum(totals.values()) != 2 * RECORDS:
        raise SystemExit("bench: records are missing")
    return Speed(RECORDS / elapsed, cpu / RECORDS * 1e6)
