"""Speed of categories: Kafka to Kafka beside four numeric attributes of the same records, and the engine alone."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from adult import messages
from aiokafka import AIOKafkaConsumer, TopicPartition
from kafka_to_kafka import PARTITIONS, Speed, fill, new_topic
from shoal.streams import StreamClusterer

__all__ = ["Ratios", "engine_seconds", "kafka_ratios", "released_by_kafka", "speeds_of"]

SIDES = {"all": "adult-all", "unchanged": "adult-unchanged", "dropped": "adult-dropped"}
ROUNDS, TIMES, LIMIT_S = 3, 6, 600.0
LEAVES, NUMERIC = 100, 20
RECORDS, BLOCK = 20_000, 512


class Ratios(NamedTuple):
    """Rows of the table, and median ratios of processor time: of four attributes to that of all."""

    rows: list[str]
    unchanged: float
    dropped: float
    records: int


def kafka_ratios(bootstrap: str) -> Ratios:
    """Run each policy on the same topic, each in a process of its own."""
    records = messages() * TIMES
    rounds = speeds_of(bootstrap, SIDES, records)
    ratios = [[one[side].cpu_us / one["all"].cpu_us for side in ("unchanged", "dropped")] for one in rounds]
    rows = [
        f"| {number} | {' | '.join(f'{one[side].cpu_us:.1f} µs, {one[side].per_s:,.0f}/s' for side in SIDES)} "
        f"| {unchanged:.2f} | {dropped:.2f} |"
        for number, (one, (unchanged, dropped)) in enumerate(zip(rounds, ratios, strict=True), 1)
    ]
    unchanged, dropped = (median(column) for column in zip(*ratios, strict=True))
    return Ratios(rows, unchanged, dropped, len(records))


def speeds_of(bootstrap: str, sides: Mapping[str, str], records: list[bytes]) -> list[dict[str, Speed]]:
    """Run each side (its name here, and that of `kafka_side.py`) on the same topic, in rounds of another order each."""
    return asyncio.run(_rounds(bootstrap, sides, records))


async def _rounds(bootstrap: str, sides: Mapping[str, str], records: list[bytes]) -> list[dict[str, Speed]]:
    run = f"bench-{uuid.uuid4().hex[:8]}"
    source = await new_topic(bootstrap, run)
    await fill(bootstrap, source, ((record, 0) for record in records))
    rounds = []
    for number in range(ROUNDS):
        order = [*sides][number % len(sides) :] + [*sides][: number % len(sides)]
        found = {}
        for side in order:
            target = await new_topic(bootstrap, f"{run}-{sides[side]}-{number}")
            found[side] = await _run(sides[side], bootstrap, source, target, len(records))
        rounds.append(found)
        print("adult:", ", ".join(f"{side} {found[side].cpu_us:.1f} µs" for side in sides), file=sys.stderr, flush=True)
    return rounds


def released_by_kafka(bootstrap: str, side: str = "adult-all") -> list[bytes]:
    """Return what the service publishes of the table from a topic of one partition, sorted."""
    return asyncio.run(_released(bootstrap, messages(), side))


async def _released(bootstrap: str, records: list[bytes], side: str) -> list[bytes]:
    run = f"bench-{uuid.uuid4().hex[:8]}"
    source, target = [await new_topic(bootstrap, f"{run}-{name}", 1) for name in ("in", "out")]
    await fill(bootstrap, source, ((record, 0) for record in records), partitions=1)
    await _run(side, bootstrap, source, target, len(records))
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
    await consumer.start()
    try:
        place = TopicPartition(target, 0)
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        end = (await consumer.end_offsets([place]))[place]
        published: list[bytes] = []
        while await consumer.position(place) < end:
            for found in (await consumer.getmany(timeout_ms=200)).values():
                published += [message.value for message in found]
    finally:
        await consumer.stop()
    return sorted(published)


async def _run(side: str, bootstrap: str, source: str, target: str, records: int) -> Speed:
    topics = {"bootstrap": bootstrap, "source": source, "target": target}
    order = json.dumps({"side": side, **topics, "partitions": PARTITIONS, "records": records})
    command = [sys.executable, str(Path(__file__).with_name("kafka_side.py"))]
    done = await asyncio.to_thread(
        subprocess.run, command, env=os.environ | {"BENCH": order}, stdout=subprocess.PIPE, timeout=LIMIT_S, check=True
    )
    return Speed(**json.loads(done.stdout))


def engine_seconds(k: int, delta: int) -> tuple[float, float]:
    """Return microseconds of processor time a record: a nominal attribute of 100 categories, and 20 numeric ones.

    The nominal attribute has a taxonomy of three levels: 100 leaves, 20 nodes above them and 4 above those.
    """
    random = np.random.default_rng(1)
    leaves, numbers = random.integers(LEAVES, size=RECORDS), random.random((RECORDS, NUMERIC))
    codes = np.stack([leaves, leaves // 5, leaves // 25], axis=1)
    found = []
    for columns, categories in ((np.empty((RECORDS, 0)), codes), (numbers, None)):
        seconds = []
        for _ in range(3):
            distances = None if categories is None else np.full(3, 1 / 3)
            engine = StreamClusterer(k, delta, columns.shape[1], rule="auto", code_distances=distances)
            began = time.process_time()
            for start in range(0, RECORDS, BLOCK):
                cut = slice(start, start + BLOCK)
                engine.push(columns[cut], codes=None if categories is None else categories[cut])
            engine.flush()
            seconds.append(time.process_time() - began)
        found.append(min(seconds) / RECORDS * 1e6)
    return found[0], found[1]
