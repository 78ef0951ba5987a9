"""A Faust app with a stage, configured by its environment: ``python stage_app.py worker`` as Faust users do.

STAGE_FORM is ``to`` (published by the stage) or ``iterator``: each cluster is noted in STAGE_HANDED when it is dealt
with, without a transaction. STAGE_PAUSE_S is how long that takes, STAGE_LATE_S how long the agent does something else
first, STAGE_FAIL_AT the number of a cluster at which it fails once, STAGE_LEAVE how it leaves its loop at the first
one, STAGE_KIND the type of values, STAGE_START where to begin, STAGE_HTTP where metrics are. STAGE_OTHER is a topic
with a stage of its own, that begins STAGE_OTHER_LATE_S late. DIE_AT as in `worker.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import faust
from aiokafka import AIOKafkaProducer
from shoal.policy import Policy
from shoal.stage import anonymize

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

POLICY = Policy.load(os.environ["STAGE_POLICY"])
KAFKA = POLICY.kafka
assert KAFKA is not None
OUTPUT = str(KAFKA.output)
BOOTSTRAP = os.environ["SHOAL_KAFKA__BOOTSTRAP_SERVERS"]
FORM = os.environ.get("STAGE_FORM", "to")
PAUSE_S = float(os.environ.get("STAGE_PAUSE_S", "0"))
LATE_S = float(os.environ.get("STAGE_LATE_S", "0"))
HTTP = os.environ.get("STAGE_HTTP")
START: Any = os.environ.get("STAGE_START", "earliest") or None
LEAVE, OTHER = os.environ.get("STAGE_LEAVE"), os.environ.get("STAGE_OTHER")
ACKS = "STAGE_ACKS" in os.environ
KIND = os.environ.get("STAGE_KIND", "bytes")


class Visit(faust.Record, serializer="json"):
    who: str
    age: int
    income: int
    serial: int


KINDS: dict[str, Any] = {
    "bytes": {"value_type": bytes, "value_serializer": "raw"},
    "dict": {},
    "record": {"value_type": Visit},
}

app = faust.App(
    str(KAFKA.group),
    broker=[f"kafka://{address}" for address in BOOTSTRAP.split(",")],
    datadir=tempfile.mkdtemp(),
    web_enabled=False,
    broker_session_timeout=6.0,
    broker_heartbeat_interval=1.0,
    consumer_group_instance_id=os.environ.get("STAGE_INSTANCE") or None,
    consumer_max_fetch_size=1 << 20,
)
source = app.topic(str(KAFKA.input), key_type=bytes, key_serializer="raw", acks=ACKS, **KINDS[KIND])


@app.agent(source)
async def publish(stream: Any) -> None:
    if LATE_S:
        await asyncio.sleep(LATE_S)
    if FORM == "to":
        async for cluster in anonymize(stream, POLICY, to=OUTPUT, start=START, http=HTTP):
            assert cluster.size >= POLICY.k
    else:
        await iterate(stream)
    if LEAVE == "for something else":
        await asyncio.sleep(3600)


async def iterate(stream: Any) -> None:
    fails_at = int(os.environ.pop("STAGE_FAIL_AT", "-1"))
    async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, enable_idempotence=True) as producer:
        async for cluster in anonymize(stream, POLICY, start=START, http=HTTP):
            if cluster.number == fails_at:
                raise RuntimeError("once")  # the agent is started again
            rows = [message.decode() for message in cluster.messages]
            handed = {"partition": cluster.partition, "number": cluster.number, "rows": rows}
            who = str(os.getpid()).encode()
            await producer.send_and_wait(os.environ["STAGE_HANDED"], json.dumps(handed).encode(), who, partition=0)
            if PAUSE_S:
                await asyncio.sleep(PAUSE_S)
            if LEAVE:
                break


if OTHER:
    NOWHERE = dict.fromkeys(("output", "quarantine", "evidence", "clusters"))
    OTHER_POLICY = replace(POLICY, kafka=KAFKA.model_copy(update=NOWHERE | {"input": OTHER}))

    @app.agent(app.topic(OTHER, acks=False))
    async def other(stream: Any) -> None:
        await asyncio.sleep(float(os.environ["STAGE_OTHER_LATE_S"]))
        async for _ in anonymize(stream, OTHER_POLICY, start=START):
            pass


if __name__ == "__main__":
    plan = os.environ.pop("DIE_AT", "")
    if plan:
        from support.worker import arm

        step, _, at = plan.partition(":")
        arm(step, int(at))
    app.main()
