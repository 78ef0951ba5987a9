"""The stage in Faust workers: the bytes of the service, back-pressure, rebalances, shutdown."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.faulty_workers import CANARY, Deployment, judge, leaks
from support.kafka_broker import create_topic, produce, wait_for, wait_until
from support.repeated_kills import check
from support.running import sample
from support.stages import AppDeployment, AppWorker, HandedDeployment, check_handed, distinct

PARTITIONS = 2
NOT_FINISHED = "the app did not finish its clusters in time"
MALFORMED: list[bytes | None] = [
    None,
    b"",
    b"no json",
    b"\xff\xfe",
    b"[1, 2]",
    b'{"who": "a", "age": 3, "age": 4, "income": 5, "serial": -1}',
    b'{"who": "a", "age": NaN, "income": 5, "serial": -2}',
    b'{"who": "a", "age": 3, "income": 5}',
    b'{"who": "a", "age": 3, "income": 5, "serial": -3, "more": 1}',
    b'{"who": null, "age": 3, "income": 5, "serial": -4}',
]


async def put_everything(deployment: Deployment) -> None:
    """Send valid records, invalid ones of every kind, and records of committed and aborted transactions."""
    topic = deployment.topics["input"]
    await deployment.put(600, PARTITIONS)
    await produce(deployment.bootstrap, topic, MALFORMED * 3, keys=[b"key"] * 30, partitions=0)
    for number in range(3):
        aborted = [json.dumps({"who": f"x{i}", "age": 1, "income": 1, "serial": -9 - i}).encode() for i in range(20)]
        options: dict[str, Any] = {"partitions": number % PARTITIONS, "transactional_id": f"upstream-{topic}"}
        await produce(deployment.bootstrap, topic, aborted, abort=True, **options)
        good = [
            json.dumps({"who": f"y{i}", "age": i, "income": i, "serial": 10_000 + 100 * number + i} | signed).encode()
            for i, signed in zip(range(30), [{}, {"__faust": {"ns": "app.Visit"}}] * 15, strict=True)
        ]
        await produce(deployment.bootstrap, topic, good, **options)
    await deployment.put(200, PARTITIONS)


async def published(deployment: Deployment) -> dict[str, Any]:
    """Return the content of the topics without the transactions, which depend on the clock."""
    read = await deployment.read_topics()
    assert all((message.key, message.headers) == (None, ()) for message in read["output"])
    references = [json.loads(message.value or b"") | {"topic": ""} for message in read["quarantine"]]
    return {
        "output": sorted((message.partition, message.value) for message in read["output"]),
        "evidence": sorted(message.value or b"" for message in read["evidence"]),
        "quarantine": sorted(map(json.dumps, references)),
    }


async def test_service_and_stage_publish_the_same_bytes(bootstrap: str, tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("service", "bytes", "dict", "record", "late")}
    found = {}
    for name, folder in folders.items():
        folder.mkdir()
        kind = Deployment if name == "service" else AppDeployment
        deployment = await kind.create(bootstrap, folder, partitions=PARTITIONS)
        if isinstance(deployment, AppDeployment):
            # The agent does something else first, and the consumer fetches aborted records meanwhile.
            late = name == "late"
            deployment.variables += (("STAGE_KIND", "dict"), ("STAGE_LATE_S", "5")) if late else (("STAGE_KIND", name),)
        await put_everything(deployment)
        worker = deployment.worker("one")
        if name != "service":
            with worker.running():
                await deployment.wait_for(600)
        await deployment.settled([])
        found[name] = await published(deployment)
        assert await leaks(deployment) == []
    assert len(found["service"]["output"]) > 800
    reasons = Counter(json.loads(one)["reason"] for one in found["service"]["quarantine"])
    assert reasons.keys() >= {"invalid", "undecodable"}
    for name in ("bytes", "dict", "record", "late"):
        assert found[name] == found["service"], name


async def test_a_slow_agent_pauses_reading_and_loses_no_record(bootstrap: str, tmp_path: Path) -> None:
    deployment = await HandedDeployment.with_notes(bootstrap, tmp_path, partitions=PARTITIONS)
    await deployment.put(30_000, PARTITIONS)
    worker = deployment.worker("slow", STAGE_PAUSE_S="0.1", STAGE_HTTP="127.0.0.1:0")
    with worker.running():
        await deployment.until_noted(40, "40 clusters")
        text = await worker.metrics()
        handed = sum(len(note["rows"]) for note in await deployment.notes())
        was_read = sample(text, "shoal_records_total", outcome="in")
        # At most delta records are held, and one slice was read after the last cluster.
        assert was_read <= handed + PARTITIONS * (100 + 10) + was_read // 25
        await wait_for(lambda: worker.get("/readyz"), lambda found: found[0] == 200, what="readiness")
    notes = await deployment.notes()
    assert notes == distinct(notes), "a clean end repeated a cluster"


async def test_a_policy_that_changes_while_clusters_are_in_use_is_refused(bootstrap: str, tmp_path: Path) -> None:
    deployment = await HandedDeployment.with_notes(bootstrap, tmp_path, partitions=1)
    await deployment.put(400, 1)

    async def has_caught_up() -> bool:
        text = await worker.metrics()
        return "shoal_consumer_lag_records{" in text and sample(text, "shoal_consumer_lag_records") == 0

    worker = deployment.worker("one", STAGE_PAUSE_S="60")
    worker.start()
    try:
        await deployment.until_noted(1, "a cluster that the agent works on")
        worker.kill()
        text = deployment.policy.read_text()
        deployment.policy.write_text(json.dumps(json.loads(text) | {"privacy": {"k": 6}}))
        worker.start()
        await wait_until(lambda: worker.is_dead, 40, "the end of the worker")
        assert (
            "the policy has changed while a Faust stage may have received clusters that are not committed"
            in worker.said
        )
        assert len(await deployment.notes()) == 1
        # The old policy repeats the cluster. After an orderly end, another policy is accepted.
        deployment.policy.write_text(text)
        worker = deployment.worker("one", STAGE_HTTP="127.0.0.1:0")
        worker.start()
        await deployment.wait_for(250)
        await wait_until(has_caught_up, 40, "the end of the log")
        assert worker.terminate() == 0
        deployment.policy.write_text(json.dumps(json.loads(text) | {"privacy": {"k": 6}}))
        worker.start()
        await deployment.put(400, 1)
        await deployment.wait_for(600)
        assert worker.terminate() == 0
    finally:
        worker.kill()
    notes = await deployment.notes()
    assert len(notes) == len(distinct(notes)) + 1


async def test_workers_join_and_leave_without_repeats(bootstrap: str, tmp_path: Path) -> None:
    deployment = await HandedDeployment.with_notes(bootstrap, tmp_path, partitions=4, max_delay_s=2.0)
    one, two = deployment.worker("one"), deployment.worker("two")
    try:
        one.start()
        await deployment.put(1500, 4)
        await deployment.wait_for(500)
        two.start()
        await two.until_said("partition opened", 2)
        await deployment.put(1500, 4)
        await deployment.wait_for(2000)
        assert one.terminate() == 0
        await two.until_said("partition opened", 4)
        await deployment.put(500, 4)
        await deployment.wait_for(deployment.serial)
        assert two.terminate() == 0
    finally:
        one.kill()
        two.kill()
    _, repeats = await check_handed(deployment)
    # On a machine that stands still for seconds, the app does not finish its clusters in the three seconds it has.
    assert repeats == 0 or NOT_FINISHED in one.said + two.said


async def test_an_agent_that_fails_gets_its_cluster_again(bootstrap: str, tmp_path: Path) -> None:
    deployment = await HandedDeployment.with_notes(bootstrap, tmp_path, partitions=1, max_delay_s=2.0)
    await deployment.put(1000, 1)
    worker = deployment.worker("one", STAGE_FAIL_AT="50")
    with worker.running():
        await deployment.wait_for(deployment.serial)
    assert worker.said.count("RuntimeError: once") > 0
    clusters, repeats = await check_handed(deployment)
    assert clusters > 100
    assert repeats <= 50


async def ends_with(worker: AppWorker, *words: str) -> None:
    """Start a worker, wait until it ends, and check its exit code and these words in its log."""
    worker.start()
    try:
        await wait_until(lambda: worker.is_dead, 60, "the end of the worker")
    finally:
        worker.kill()
    assert worker.code not in {0, -9}
    for said in words:
        assert said in worker.said


@pytest.mark.parametrize("how", ["by its end", "for something else"])
async def test_an_agent_that_leaves_its_loop_ends_the_worker(bootstrap: str, tmp_path: Path, how: str) -> None:
    deployment = await HandedDeployment.with_notes(bootstrap, tmp_path, partitions=1)
    await deployment.put(400, 1)
    worker = deployment.worker("one", STAGE_LEAVE=how)
    await ends_with(worker, "no task asks for clusters", "its agent has left the loop over its clusters")
    # The cluster at which the agent left is not acknowledged.
    with deployment.worker("again").running():
        await deployment.wait_for(250)
    notes = await deployment.notes()
    assert len(notes) == len(distinct(notes)) + 1


async def test_a_stage_beside_another_one_reads_no_aborted_record(bootstrap: str, tmp_path: Path) -> None:
    deployment = await HandedDeployment.with_notes(bootstrap, tmp_path, partitions=1, max_delay_s=2.0)
    topic, other = deployment.topics["input"], await create_topic(bootstrap)
    aborted = [json.dumps({"who": f"x{i}", "age": i, "income": i, "serial": -9 - i}).encode() for i in range(30)]
    await produce(bootstrap, topic, aborted, partitions=0, transactional_id=f"upstream-{topic}", abort=True)
    await deployment.put(200, 1)
    # Before the first stage starts, the consumer of both has fetched aborted records.
    worker = deployment.worker("one", STAGE_LATE_S="8", STAGE_OTHER=other, STAGE_OTHER_LATE_S="5")
    with worker.running():
        await worker.until_said("event='started'", 2)
        await deployment.wait_for(200)
    noted = [json.loads(row)["serial"] for note in distinct(await deployment.notes()) for row in note["rows"]]
    assert min(noted) >= 0
    await check_handed(deployment)


async def test_service_and_stage_continue_each_others_partitions(bootstrap: str, tmp_path: Path) -> None:
    deployment = await AppDeployment.create(bootstrap, tmp_path, partitions=PARTITIONS)
    service, stage = Deployment.worker(deployment, "service"), deployment.worker("stage")
    for worker in (service, stage, service):
        before = await deployment.resolved()
        await deployment.put(1000, PARTITIONS)
        # Without an instance id, a member leaves the group when it ends, and its partitions are free at once.
        with worker.running(instance=""):
            await deployment.wait_for(before + 700)
    await deployment.settled([])
    await check(deployment)
    assert (await judge(deployment)).records == 3000


async def test_ordered_release_works_in_a_stage_as_in_the_service(bootstrap: str, tmp_path: Path) -> None:
    deployment = await AppDeployment.create(bootstrap, tmp_path, partitions=PARTITIONS, release="ordered")
    await deployment.put(1000, PARTITIONS)
    worker = deployment.worker("one")
    with worker.running():
        await deployment.wait_for(600)
    await deployment.settled([])
    await check(deployment)


async def test_a_worker_under_load_ends_within_ten_seconds(bootstrap: str, tmp_path: Path) -> None:
    deployment = await AppDeployment.create(bootstrap, tmp_path, partitions=PARTITIONS)
    await deployment.put(20_000, PARTITIONS)
    worker = deployment.worker("one")
    with worker.running():
        await deployment.wait_for(1000)
        worker.signal(signal.SIGTERM)
        await wait_until(lambda: worker.is_dead, 10, "the end of the worker")
    assert "partition closed" in worker.said


async def test_the_cluster_of_an_agent_that_does_not_end_in_time_is_repeated(bootstrap: str, tmp_path: Path) -> None:
    deployment = await HandedDeployment.with_notes(bootstrap, tmp_path, partitions=1)
    await deployment.put(400, 1)
    worker = deployment.worker("slow", STAGE_PAUSE_S="60")
    with worker.running():
        await deployment.until_noted(1, "a cluster that the agent works on")
    with deployment.worker("again").running():
        await deployment.wait_for(250)
    notes = await deployment.notes()
    assert len(notes) == len(distinct(notes)) + 1
    assert NOT_FINISHED in worker.said


@pytest.mark.parametrize(
    ("variables", "words"),
    [({"STAGE_START": ""}, "Say where to begin with"), ({"STAGE_ACKS": "1"}, "declare it with app.topic")],
)
async def test_a_worker_whose_start_is_refused_ends_and_logs_the_reason(
    bootstrap: str, tmp_path: Path, variables: dict[str, str], words: str
) -> None:
    deployment = await HandedDeployment.with_notes(bootstrap, tmp_path, partitions=1)
    await deployment.put(100, 1)
    worker = deployment.worker("refused", **variables)
    await ends_with(worker, words)
    assert await deployment.notes() == []
    assert CANARY not in worker.said
