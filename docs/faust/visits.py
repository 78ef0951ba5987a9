"""A Faust app with a stage: it reads visits to a hospital and counts anonymous diagnoses per hour.

    python docs/faust/visits.py worker --loglevel info

Code after `anonymize` sees clusters of at least k people, never a visit.
"""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import faust
from shoal.stage import anonymize

POLICY = Path(__file__).with_name("visits.yaml")

app = faust.App(
    os.environ.get("VISITS_APP", "visits-by-hour"),
    broker=os.environ.get("VISITS_BROKER", "kafka://localhost:9092"),
    datadir=os.environ.get("VISITS_DATA", "visits-data"),
    topic_partitions=2,
    # With an instance id, a restarted worker gets its partitions back without waiting for the session timeout.
    consumer_group_instance_id=os.environ.get("VISITS_WORKER"),
)


class Visit(faust.Record, serializer="json"):
    """An input record: personal data."""

    patient: str
    age: int
    diagnosis: str


class Diagnoses(faust.Record, serializer="json"):
    """What later code knows about a cluster."""

    partition: int
    number: int
    counts: dict[str, int]


# acks=False: Faust would commit past records that are incomplete.
visits = app.topic(os.environ.get("VISITS_TOPIC", "visits"), value_type=Visit, acks=False)
diagnoses = app.topic(f"{app.conf.id}-diagnoses", key_type=str, value_type=Diagnoses, internal=True)

in_total = app.Table("in-total", default=dict)
HOURS = 7 * 24
by_hour = app.Table("by-hour", default=dict).tumbling(3600.0, expires=HOURS * 3600.0).relative_to_stream()


@app.agent(visits)
async def protect(stream: faust.StreamT) -> None:
    """Count each cluster and pass the counts on; a request for the next cluster completes this one."""
    async for cluster in anonymize(stream, POLICY, start="earliest"):
        counts = Counter(record["diagnosis"] for record in cluster.records)
        found = Diagnoses(partition=cluster.partition, number=cluster.number, counts=dict(counts))
        # One key per partition keeps the order of its clusters. The second await waits for the broker.
        await (await diagnoses.send(key=str(cluster.partition), value=found))


@app.agent(diagnoses)
async def count(stream: faust.StreamT) -> None:
    """Add up per partition, in total and per hour; the number identifies a repeated cluster."""
    async for found in stream:
        place = str(found.partition)
        if is_new(found, in_total[place].get("number", -1)):
            in_total[place] = added(in_total[place], found)
        # It may be counted in an earlier hour. Each table keeps its own number: a crash can occur between two updates.
        hours = (by_hour[place].delta(ago * 3600.0) for ago in range(HOURS))
        if is_new(found, next((hour["number"] for hour in hours if hour), -1)):
            by_hour[place] = added(by_hour[place].value(), found)
        await store_tables()


def is_new(found: Diagnoses, last: int) -> bool:
    """Return whether a cluster is not counted yet. Numbers have no gaps, so that a lost message can be told."""
    if found.number > last + 1:
        app.log.warning("partition %s: Faust lost %s clusters", found.partition, found.number - last - 1)
    return found.number > last


async def store_tables() -> None:
    """Wait until the broker has all updates of the tables: Faust commits offsets without that."""
    while app.producer.buffer.size:
        await app.producer.flush()
    await app.producer.flush()


@app.timer(10.0)
async def tell() -> None:
    """Log how many visits this worker has counted."""
    app.log.info("counted %s visits", sum(sum(one["counts"].values()) for one in in_total.values()))


def added(known: dict[str, Any], found: Diagnoses) -> dict[str, Any]:
    """Return counts and the number of the last counted cluster, as one value that is stored at once."""
    counts = Counter(known.get("counts", {})) + Counter(found.counts)
    return {"number": found.number, "counts": dict(counts)}


if __name__ == "__main__":
    app.main()
