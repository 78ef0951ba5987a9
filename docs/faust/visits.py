"""An app with a stage: visits to a hospital come in, anonymous diagnoses are counted by the hour.

    python docs/faust/visits.py worker --loglevel info

Behind `anonymize` there are clusters of at least k people; nothing there ever sees a visit.
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
    # With a name of its own, a worker that was killed has its partitions again as soon as it is back.
    consumer_group_instance_id=os.environ.get("VISITS_WORKER"),
)


class Visit(faust.Record, serializer="json"):
    """What comes in: personal."""

    patient: str
    age: int
    diagnosis: str


class Diagnoses(faust.Record, serializer="json"):
    """What is known of a cluster behind the stage."""

    partition: int
    number: int
    counts: dict[str, int]


# acks=False, for Faust knows nothing of records that are held.
visits = app.topic(os.environ.get("VISITS_TOPIC", "visits"), value_type=Visit, acks=False)
diagnoses = app.topic(f"{app.conf.id}-diagnoses", key_type=str, value_type=Diagnoses, internal=True)

in_total = app.Table("in-total", default=dict)
HOURS = 7 * 24
by_hour = app.Table("by-hour", default=dict).tumbling(3600.0, expires=HOURS * 3600.0).relative_to_stream()


@app.agent(visits)
async def protect(stream: faust.StreamT) -> None:
    """Count each cluster and pass the counts on; asking for the next cluster says that this one was dealt with."""
    async for cluster in anonymize(stream, POLICY, start="earliest"):
        counts = Counter(record["diagnosis"] for record in cluster.records)
        found = Diagnoses(partition=cluster.partition, number=cluster.number, counts=dict(counts))
        # One key for a partition: its clusters stay in order. Sent is not enough, it must have arrived.
        await (await diagnoses.send(key=str(cluster.partition), value=found))


@app.agent(diagnoses)
async def count(stream: faust.StreamT) -> None:
    """Add up by partition, in total and by the hour; a cluster that comes again is known by its number."""
    async for found in stream:
        place = str(found.partition)
        if found.number > in_total[place].get("number", -1):
            in_total[place] = added(in_total[place], found)
        # Maybe it was counted in an hour before. Each table has a number of its own: a crash may fall between them.
        hours = (by_hour[place].delta(ago * 3600.0) for ago in range(HOURS))
        if found.number > next((hour["number"] for hour in hours if hour), -1):
            by_hour[place] = added(by_hour[place].value(), found)


@app.timer(10.0)
async def tell() -> None:
    """Say how many were counted by this worker."""
    app.log.info("counted %s visits", sum(sum(one["counts"].values()) for one in in_total.values()))


def added(known: dict[str, Any], found: Diagnoses) -> dict[str, Any]:
    """Counts and the number of the last cluster in them: in one value, so that none is kept without the other."""
    counts = Counter(known.get("counts", {})) + Counter(found.counts)
    return {"number": found.number, "counts": dict(counts)}


if __name__ == "__main__":
    app.main()
