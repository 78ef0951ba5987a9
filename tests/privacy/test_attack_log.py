"""Readers of the output on a real broker: what messages say beside their values, batches, markers, aborted data."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from support.attack_results import impossible, measured
from support.by_night import at_night
from support.failing_client import STEPS, Plan, fail_steps
from support.kafka_broker import Message, create_topic
from support.raw_log import Transacted, transactions_of
from support.running import Stage

INCOME = {"role": "quasi_identifier", "bounds": [0, 100_000], "resolution": 1}


def cluster_of(evidence: list[dict[str, Any]], place_of: dict[int, tuple[int, int]]) -> Callable[[bytes], Any]:
    """Which cluster a published row belongs to, by its serial number: the truth that no reader has."""
    number_at = {(one["partition"], offset): one["cluster"] for one in evidence for offset in one["offsets"]}

    def of(value: bytes) -> tuple[int, int]:
        partition, offset = place_of[json.loads(value)["serial"]]
        return partition, number_at[partition, offset]

    return of


def runs(transaction: Transacted) -> list[tuple[bytes, ...]]:
    """Clusters as a reader sees them: records of one transaction that stand together and look alike."""

    def look(value: bytes) -> tuple[Any, Any]:
        row = json.loads(value)
        return row["age"], row["income"]

    return [tuple(rows) for _, rows in groupby(transaction.values, look)]


async def test_a_cluster_never_spans_two_transactions_however_little_a_batch_takes(
    bootstrap: str, tmp_path: Path
) -> None:
    note = {"role": "confidential", "type": "string"}
    kafka = {"max_record_bytes": 3000, "commit_interval_ms": 1}
    stage = await Stage.create(
        bootstrap, tmp_path, attributes={"note": note}, privacy={"k": 20}, stream={"delta": 60}, kafka=kafka
    )
    small = await create_topic(bootstrap, 1, {"max.message.bytes": "20000"})
    stage.topics["output"] = stage.document["kafka"]["output"] = small
    places = []
    async with stage.run() as run:
        for turn in range(1, 9):
            places += await stage.send([stage.record(note=os.urandom(1200).hex()) for _ in range(50)])
            await run.until_read(50 * turn)
    await stage.drained(places)
    evidence = await stage.objects("evidence")
    of = cluster_of(evidence, stage.record_id_of)
    found = await transactions_of(bootstrap, small)
    homes: dict[Any, set[int]] = {}
    for number, transaction in enumerate(found):
        for value in transaction.values:
            homes.setdefault(of(value), set()).add(number)
    assert len(homes) == len(evidence) >= 12
    assert max(transaction.batches for transaction in found) >= 3, "no cluster needed more than one batch"
    torn = sum(len(home) > 1 for home in homes.values())
    measured(
        "R6",
        "clusters in more than one transaction, with room for 8 records in a batch and 20 in a cluster",
        knows="batches and markers of the log",
        success=torn / len(homes),
        bound=0.0,
        source="a cluster leaves in one transaction",
    )
    # What is left to see: transactions hold whole clusters, whose borders their centroids show anyway.
    for transaction in found:
        assert len(set(map(of, transaction.values))) == len([*groupby(transaction.values, of)])


def homes(partitions: int, few: int) -> list[list[str]]:
    """Who writes to which partition: everybody can hash a name; to the last one only a few people write."""
    found: list[list[str]] = [[] for _ in range(partitions)]
    for number in range(20 * partitions):
        found[crc32(f"p{number}".encode()) % partitions].append(f"p{number}")
    return [*found[:-1], found[-1][:few]]


async def test_in_each_partition_by_itself_there_are_k_people_in_a_cluster(bootstrap: str, tmp_path: Path) -> None:
    partitions, k = 4, 4
    stage = await Stage.create(
        bootstrap, tmp_path, partitions=partitions, privacy={"k": k}, attributes={"income": INCOME}
    )
    random, places, writer = Random(7), [], {}
    names = homes(partitions, few=k - 1)
    for partition in range(partitions):
        records = []
        for _ in range(150):
            writer[stage.serial] = who = random.choice(names[partition])
            # Alike in all partitions: counted over all of them, the few people of the last would be enough.
            records.append(stage.record(who=who, age=random.randrange(90), income=random.randrange(100_000)))
        places += await stage.send(records, partition)
    await stage.drained(places)
    crowds = []
    for partition in range(partitions):
        candidates = set(names[partition])
        for transaction in await transactions_of(bootstrap, stage.topics["output"], partition):
            for rows in runs(transaction):
                members = [writer[json.loads(row)["serial"]] for row in rows]
                # For each target: whose a row can be, among those whose name leads to this partition.
                crowds += [len(candidates.intersection(members))] * len(members)
    assert len(crowds) > 300
    measured(
        "R7",
        "link a row to a person whose id gives the partition away, worst of all targets",
        knows="all ids, their hash, and who is in the cluster",
        success=1 / max(min(crowds), 0.5),
        bound=1 / k,
        source="k people in each cluster of each partition",
        beside=f"a partition of {k - 1} people publishes nothing",
    )
    few = await transactions_of(bootstrap, stage.topics["output"], partitions - 1)
    assert [one.values for one in few if one.values] == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("max_delay_s", [0.05, *at_night(None)], ids=["by a clock too", "by records"])
async def test_aborted_transactions_contain_only_clusters_that_are_published_unchanged(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_delay_s: float | None
) -> None:
    stage = await Stage.create(
        bootstrap,
        tmp_path,
        attributes={"income": INCOME},
        privacy={"k": 3},
        stream={"delta": 40, "max_delay_s": max_delay_s},
        steering={"position": 0.01},
        kafka={"commit_interval_ms": 20},
    )
    random, places = Random(11), []
    monkeypatch.setattr("shoal.kafka.retries._BACKOFF_S", (0.01,))

    def draw() -> Plan:
        is_due = len(failed) < 14 and random.random() < 0.5
        return (random.choice(STEPS), random.random() < 0.5) if is_due else None

    failed = fail_steps(monkeypatch, draw)
    async with stage.run() as run:

        def ended() -> float:
            return len(failed) + run.total("shoal_transactions_total", outcome="committed")

        for _ in range(200):
            before, count = ended(), random.randrange(20, 60)
            places += await stage.send(
                [stage.record(income=random.randrange(100_000), age=random.randrange(111)) for _ in range(count)]
            )
            await run.until_read(len(places))

            def is_news(before: float = before) -> bool:
                return ended() > before

            await run.until(is_news, "the end of a transaction")
            if len(failed) >= 14:
                break
    monkeypatch.undo()
    await stage.drained(places)
    found = await transactions_of(bootstrap, stage.topics["output"])
    published = {cluster for one in found if one.committed for cluster in runs(one)}
    aborted = [cluster for one in found if not one.committed for cluster in runs(one)]
    assert len(set(failed)) >= 4, failed
    assert max(len(runs(one)) for one in found if not one.committed) > 3, "no aborted transaction held several clusters"
    assert len(aborted) > 20
    name = "clusters of aborted transactions that were never published" + (", with max_delay_s" if max_delay_s else "")
    measured(
        "R11" if max_delay_s is None else "R12",
        name,
        knows="what aborted transactions left in the log",
        success=sum(cluster not in published for cluster in aborted) / len(aborted),
        bound=0.0,
        source="a second try decides alike, byte for byte",
    )
    everything = [value for one in found if one.committed for value in one.values]
    assert len(everything) == len(set(everything)) == len(await stage.read())


# ---------------------------------------------------------------- what a message says beside its values

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


async def released_by(stage: Stage, values: Sequence[Sequence[bytes]], **options: Any) -> list[Message]:
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
    wanted = await released_by(plain, [[plainly(one) for one in part] for part in records])
    hostile = []
    for part in records:
        spelt = [oddly(one, random) for one in part]
        for place in range(0, COUNT, 40):
            spelt.insert(place, doubled(part[place]))
        hostile.append(spelt)
    now = round(time.time() * 1000)
    seen = await released_by(
        odd,
        hostile,
        keys=lambda count: [CANARY.encode()] * count,
        headers=lambda count: [[("traceparent", CANARY.encode()), (CANARY, b"1")]] * count,
        timestamps_ms=lambda count: [now - 7 * n for n in range(count)],
    )
    assert len(wanted) == COUNT * PARTITIONS
    assert Counter((one.partition, one.value) for one in seen) == Counter((one.partition, one.value) for one in wanted)
    references = await odd.objects("quarantine")
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
    output = await released_by(stage, [[plainly(one) for one in part] for part in records])
    assert all(stage.record_id_of[json.loads(one.value or b"")["serial"]][0] == one.partition for one in output)
    evidence = await stage.objects("evidence")
    assert {one["partition"] for one in evidence} == set(range(PARTITIONS))
    for one in evidence:
        assert len({records[one["partition"]][offset]["who"] for offset in one["offsets"]}) >= k
    impossible("R7", "k people are in each cluster of a partition, whoever is in the others")
