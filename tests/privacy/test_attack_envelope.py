"""What a message says beside its values: nothing of it may come through a real Kafka."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.attack_results import impossible
from support.kafka_broker import Message
from support.running import Stage

CANARY = "xq7canary9z"
NUMBER = 918273645
COUNT, PARTITIONS, INTERVAL_MS = 400, 2, 250


def plainly(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode()


def oddly(record: dict[str, Any], random: np.random.Generator) -> bytes:
    """The same record in another order and spelling, with undeclared fields, one of them twice."""
    age, serial = record["age"], record["serial"]
    fields = [
        f'"who" : "  {record["who"]}\\t"',
        f'"\\u0061ge":{random.choice([f"{age}.0", f"{age}e0", f"{age * 10}E-1", f"{age}.{0:030}"])}',
        f'"serial"\n:{random.choice([f"{serial}.0", str(serial), f"{serial * 10}e-1"])}',
        f'"{CANARY}":[{NUMBER},{{"{CANARY}":"{CANARY}"}}]',
        f'"trace":"{CANARY}"',
    ]
    return ("\r\n {" + ", ".join(random.permutation(fields)) + "}  ").encode()


def doubled(record: dict[str, Any]) -> bytes:
    return json.dumps(record | {"who": CANARY}).encode()[:-1] + f',"age":{NUMBER},"serial":"{CANARY}"}}'.encode()


async def released(stage: Stage, values: Sequence[Sequence[bytes]], **options: Any) -> list[Message]:
    """Send values to each partition, let the service finish, and return what it published."""
    for partition, part in enumerate(values):
        more = {name: make(len(part)) for name, make in options.items()}
        await stage.send(list(part), partition, **more)
    await stage.drained()
    return await stage.read()


@pytest.fixture
def records() -> list[list[dict[str, Any]]]:
    random = np.random.default_rng(12)
    return [
        [
            {"who": f"p{partition}-{n % 150}", "age": int(random.integers(111)), "serial": 1000 * partition + n}
            for n in range(COUNT)
        ]
        for partition in range(PARTITIONS)
    ]


async def test_spelling_order_key_and_headers_of_the_input_leave_the_output_unchanged(
    bootstrap: str, tmp_path: Path, records: list[list[dict[str, Any]]]
) -> None:
    random = np.random.default_rng(13)
    settings: dict[str, Any] = {"undeclared": "drop", "kafka": {"commit_interval_ms": INTERVAL_MS}}
    plain = await Stage.create(bootstrap, tmp_path, partitions=PARTITIONS, **settings)
    odd = await Stage.create(bootstrap, tmp_path, partitions=PARTITIONS, **settings)
    wanted = await released(plain, [[plainly(one) for one in part] for part in records])
    hostile = []
    for part in records:
        spelt = [oddly(one, random) for one in part]
        for place in range(0, COUNT, 40):
            spelt.insert(place, doubled(part[place]))
        hostile.append(spelt)
    now = round(time.time() * 1000)
    seen = await released(
        odd,
        hostile,
        keys=lambda count: [CANARY.encode()] * count,
        headers=lambda count: [[("traceparent", CANARY.encode()), (CANARY, b"1")]] * count,
        timestamps_ms=lambda count: [now - 7 * n for n in range(count)],
    )
    assert len(wanted) == COUNT * PARTITIONS
    assert Counter((one.partition, one.value) for one in seen) == Counter((one.partition, one.value) for one in wanted)
    references = [json.loads(one.value or b"") for one in await odd.read("quarantine")]
    assert Counter(one["reason"] for one in references) == {"invalid": PARTITIONS * COUNT // 40}
    for topic in ("output", "quarantine", "clusters", "evidence"):
        for message in await odd.read(topic):
            assert (message.key, message.headers, message.timestamp_ms % INTERVAL_MS) == (None, (), 0)
            assert CANARY.encode() not in (message.value or b"").lower()
            assert str(NUMBER).encode() not in (message.value or b"")
    metadata = [await odd.committed(partition) for partition in range(PARTITIONS)]
    assert all(one is not None and CANARY not in one.metadata for one in metadata)
    impossible(
        "R5",
        "key, headers, time, order, spelling and undeclared fields of the input leave the output's bytes as they are",
    )


async def test_each_cluster_of_each_partition_has_k_people(
    bootstrap: str, tmp_path: Path, records: list[list[dict[str, Any]]]
) -> None:
    k = 5
    stage = await Stage.create(bootstrap, tmp_path, partitions=PARTITIONS, privacy={"k": k})
    output = await released(stage, [[plainly(one) for one in part] for part in records])
    assert all(stage.record_id_of[json.loads(one.value or b"")["serial"]][0] == one.partition for one in output)
    evidence = [json.loads(one.value or b"") for one in await stage.read("evidence")]
    assert {one["partition"] for one in evidence} == set(range(PARTITIONS))
    for one in evidence:
        assert len({records[one["partition"]][offset]["who"] for offset in one["offsets"]}) >= k
    impossible("R7", "k people are in each cluster of a partition, whoever is in the others")
