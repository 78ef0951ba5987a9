"""The service on a real broker, as an operator uses it: the output, refusals, and the stop."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.structs import OffsetAndMetadata
from prometheus_client.parser import text_string_to_metric_families
from support.faulty_workers import Deployment, Worker, export, judge, judged
from support.forked import fork_program
from support.kafka_broker import admin, create_topic, forget_members, produce, read_all, read_until, wait_until
from support.running import SHOAL


async def finish(worker: Worker, timeout_s: float = 60) -> tuple[int, str]:
    """Wait until a worker ends; return its exit code and what it wrote."""
    assert worker.process is not None
    code = await asyncio.to_thread(worker.process.wait, timeout_s)
    return code, worker.log.read_text()


async def run(deployment: Deployment, *extra: str, origin: bool = True, name: str = "one") -> tuple[int, str]:
    if "--drain" in extra:
        await forget_members(deployment.bootstrap, json.loads(deployment.policy.read_text())["kafka"]["group"])
    worker = deployment.worker(name)
    worker.start(*extra, origin=origin)
    try:
        return await finish(worker)
    finally:
        worker.kill()


async def commit(deployment: Deployment, partition: int, offset: int, metadata: str) -> None:
    """Commit what another tool might commit for the group."""
    group = json.loads(deployment.policy.read_text())["kafka"]["group"]
    consumer = AIOKafkaConsumer(bootstrap_servers=deployment.bootstrap, group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        tp = TopicPartition(deployment.topics["input"], partition)
        consumer.assign([tp])
        await consumer.commit({tp: OffsetAndMetadata(offset, metadata)})
    finally:
        await consumer.stop()


async def test_output_messages_have_only_a_value_and_are_in_order(bootstrap: str, tmp_path: Path) -> None:
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=2)
    canary = b"canary-4711"
    records = [
        json.dumps({"who": f"canary-4711-{i % 40}", "serial": i, "income": i * 97 % 100_000, "age": i % 90}).encode()
        for i in range(300)
    ]
    records.append(
        json.dumps({"who": "x", "age": 3, "income": 4, "serial": 9999, "canary-4711": "canary-4711"}).encode()
    )
    await produce(
        bootstrap,
        deployment.topics["input"],
        records,
        keys=[canary] * 301,
        headers=[[("canary-4711", canary)]] * 301,
        partitions=[i % 2 for i in range(301)],
    )
    code, log = await run(deployment, "--drain")
    assert code == 0, log
    output = await read_until(bootstrap, deployment.topics["output"], 300)
    assert len(output) == 300
    for message in output:
        assert (message.key, message.headers) == (None, ())
        assert message.timestamp_ms % 200 == 0
        assert list(json.loads(message.value or b"")) == ["age", "income", "serial"]
    side = [
        m
        for name in ("output", "quarantine", "clusters", "evidence")
        for m in await read_all(bootstrap, deployment.topics[name])
    ]
    assert canary not in b"".join(m.value or b"" for m in side)
    assert "canary" not in log
    (reference,) = [json.loads(m.value or b"") for m in await read_all(bootstrap, deployment.topics["quarantine"])]
    assert reference == {"topic": deployment.topics["input"], "partition": 0, "offset": 150, "reason": "invalid"}
    clusters = [json.loads(m.value or b"") for m in await read_all(bootstrap, deployment.topics["clusters"])]
    assert {tuple(cluster) for cluster in clusters} == {("centroid", "size", "subjects")}
    assert sum(cluster["size"] for cluster in clusters) == 300
    files = await export(deployment)
    judged(deployment.policy, files)


async def test_transactional_input_with_aborted_records(bootstrap: str, tmp_path: Path) -> None:
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=1)
    topic = deployment.topics["input"]
    for turn in range(12):
        values = [
            json.dumps({"who": f"{turn}-{i}", "age": i, "income": i, "serial": 100 * turn + i}).encode()
            for i in range(10)
        ]
        await produce(bootstrap, topic, values, partitions=0, transactional_id=f"{topic}-w", abort=turn % 3 == 2)
    code, log = await run(deployment, "--drain")
    assert code == 0, log
    serials = sorted(
        json.loads(m.value or b"")["serial"] for m in await read_until(bootstrap, deployment.topics["output"], 80)
    )
    assert serials == [100 * turn + i for turn in range(12) if turn % 3 != 2 for i in range(10)]


async def test_a_first_start_without_from_is_refused(bootstrap: str, tmp_path: Path) -> None:
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=1)
    await deployment.put(50, 1)
    code, log = await run(deployment, origin=False)
    assert code == 2
    assert "--from earliest" in log
    assert "--import" in log


async def test_a_lost_commit_with_a_filled_output_is_refused(bootstrap: str, tmp_path: Path) -> None:
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=1)
    await deployment.put(200, 1)
    assert (await run(deployment, "--drain"))[0] == 0
    document = json.loads(deployment.policy.read_text())
    document["kafka"]["group"] += "-second"
    deployment.policy.write_text(json.dumps(document))
    code, log = await run(deployment, "--drain")
    assert code == 2
    assert f"{deployment.topics['output']}-0" in log
    assert "--skip-to-end" in log
    before = await read_all(bootstrap, deployment.topics["output"])
    code, log = await run(deployment, "--drain", "--skip-to-end")
    assert code == 0, log
    assert await read_all(bootstrap, deployment.topics["output"]) == before


@pytest.mark.parametrize("metadata", ["", "foreign", "shoal1:AAAA", "shoal9:AAAA"])
async def test_foreign_metadata_is_refused(metadata: str, bootstrap: str, tmp_path: Path) -> None:
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=1)
    await deployment.put(100, 1)
    await commit(deployment, 0, 50, metadata)
    code, log = await run(deployment, "--drain")
    assert code == 2
    assert "--import" in log
    assert await read_all(bootstrap, deployment.topics["output"]) == []


async def test_records_that_are_no_longer_retained_stop_the_start(bootstrap: str, tmp_path: Path) -> None:
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=1)
    await deployment.put(400, 1)
    worker = deployment.worker("one")
    worker.start()
    await deployment.wait_for(250)
    worker.kill()
    async with admin(bootstrap) as client:
        tp = TopicPartition(deployment.topics["input"], 0)
        await client.delete_records({tp: RecordsToDelete(before_offset=399)})
    code, log = await run(deployment, "--drain")
    assert code == 2
    assert "no longer retained" in log


async def test_all_failed_start_checks_are_reported_together(bootstrap: str, tmp_path: Path) -> None:
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=3)
    document = json.loads(deployment.policy.read_text())
    document["kafka"]["output"] = await create_topic(bootstrap, 2)
    document["kafka"]["evidence"] = await create_topic(bootstrap, 1, {"cleanup.policy": "compact"})
    document["kafka"]["quarantine"] = "there-is-no-such-topic"
    deployment.policy.write_text(json.dumps(document))
    code, log = await run(deployment)
    assert code == 2
    for words in ("partitions", "compacted", "there-is-no-such-topic"):
        assert words in log


async def test_max_delay_s_flushes_at_the_end_of_the_log(bootstrap: str, tmp_path: Path) -> None:
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=1, max_delay_s=1.5)
    values = [json.dumps({"who": str(i), "age": i, "income": i, "serial": i}).encode() for i in range(25)]
    await produce(bootstrap, deployment.topics["input"], values, partitions=0)
    worker = deployment.worker("one")
    worker.start()
    try:
        assert len(await read_until(bootstrap, deployment.topics["output"], 25, timeout_s=60)) == 25
    finally:
        worker.kill()


async def test_a_changed_policy_continues_from_the_committed_offset(bootstrap: str, tmp_path: Path) -> None:
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=1)
    await deployment.put(400, 1)
    worker = deployment.worker("one")
    worker.start()
    await deployment.wait_for(250)
    worker.kill()
    document = json.loads(deployment.policy.read_text())
    document["privacy"]["k"] = 9
    deployment.policy.write_text(json.dumps(document))
    deployment.k = 5
    await deployment.put(400, 1)
    code, log = await run(deployment, "--drain", name="two")
    assert code == 0, log
    assert "policy changed" in log
    found = await judge(deployment)
    assert (found.twice, found.lost, found.small_clusters) == (0, 0, 0)


async def test_two_workers_share_the_partitions_and_one_continues_alone(bootstrap: str, tmp_path: Path) -> None:
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=4)
    one, two = deployment.worker("one"), deployment.worker("two")
    try:
        one.start(instance="")
        two.start(instance="")
        await deployment.put(2000, 4)
        await deployment.wait_for(1000)
        one.signal(15)
        await wait_until(lambda: one.is_dead, 10, "the end of the first worker")
        code, log = await finish(one)
        assert code == 0, log
        await deployment.put(2000, 4)
        await deployment.wait_for(3000)
        await deployment.settled([two])
    finally:
        one.kill()
        two.kill()
    found = await judge(deployment)
    assert (found.twice, found.lost, found.small_clusters) == (0, 0, 0)


async def test_progress_is_reported_exported_and_imported(bootstrap: str, tmp_path: Path) -> None:
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=2)
    await deployment.put(600, 2)
    worker = deployment.worker("one")
    worker.start()
    await deployment.wait_for(300)
    worker.terminate()

    out = tmp_path / "out"

    async def progress(*arguments: str) -> int:
        command = [str(SHOAL), "progress", str(deployment.policy), *arguments]
        process = fork_program(command, worker.environment(""), out, tmp_path / "log")
        await wait_until(lambda: process.poll() is not None, what="the end of the command")
        return process.wait()

    assert await progress() == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["partition"] for line in lines] == [0, 1]
    assert all(line["held"] > 0 and line["last_commit"] and line["policy"] == "this" for line in lines)
    saved = str(tmp_path / "progress.json")
    assert await progress("--export", saved) == 0
    assert await progress("--import", saved) == 0
    await deployment.settled([])
    assert await progress("--import", saved) == 2
    found = await judge(deployment)
    assert (found.twice, found.lost, found.small_clusters) == (0, 0, 0)


async def test_probes_and_metrics_are_correct(bootstrap: str, tmp_path: Path) -> None:
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=1)
    worker = deployment.worker("one")
    worker.start()

    def ask(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{worker.port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def counts() -> Counter[str]:
        found: Counter[str] = Counter()
        for family in text_string_to_metric_families(ask("/metrics")[1]):
            for one in family.samples:
                found[one.labels.get("outcome", "")] += int(one.value) if one.name == "shoal_records_total" else 0
        return found

    try:
        await wait_until(lambda: worker.port, 60, "the start")
        await wait_until(lambda: ask("/livez")[0] == 200, 60)
        await wait_until(lambda: ask("/readyz")[0] == 200, 60)
        await deployment.put(1000, 1)
        await deployment.wait_for(800)
        await wait_until(lambda: counts()["in"] >= 1000 and counts()["quarantined"] >= 20, what="all records")
        assert (counts()["in"], counts()["quarantined"]) == (1000, 20)
        families = {family.name: family for family in text_string_to_metric_families(ask("/metrics")[1])}
        assert families["shoal_delay_positions"].samples[-1].value > 0
        assert {label for family in families.values() for s in family.samples for label in s.labels} <= {
            *("group", "topic", "partition", "outcome", "reason", "attribute", "fingerprint", "le", "version", "python")
        }
        assert ask("/")[0] == 200
    finally:
        worker.kill()


async def test_a_broker_that_cannot_be_reached_ends_with_3_after_patience(bootstrap: str, tmp_path: Path) -> None:
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=1)
    worker = deployment.worker("one")
    worker.bootstrap = "127.0.0.1:1"
    worker.start(patience_s="2")
    code, log = await finish(worker)
    worker.kill()
    assert code == 3
    assert "could not be reached" in log
