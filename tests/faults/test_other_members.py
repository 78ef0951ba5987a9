"""Members that come and go, another protocol beside ours, and a name with a dead address."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from support.cluster import cluster, dropping_address
from support.kafka_broker import LOCAL, load_local, wait_until
from support.reliability import record
from support.running import Stage
from support.storms import PATIENCE_S, WAVE, Storm, feed, storm

FLAPS = int(os.environ.get("SHOAL_TEST_JOINS", "100"))
FLAPPING_S = 3.0 * FLAPS
"""So often the member joins, unless the machine is so slow that the time (s) has passed before."""

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600 + FLAPPING_S), pytest.mark.usefixtures("kernels")]


async def flap(bootstrap: str, topic: str) -> int:
    """Join the group of the workers, wait for partitions, and leave; return the generation."""
    member = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=f"group-{topic}",
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
        enable_auto_commit=False,
    )
    await member.start()
    try:
        await wait_until(member.assignment, 60, "partitions of the member")
        return int(member._coordinator.generation)
    finally:
        await member.stop()


async def test_a_member_joins_and_leaves_a_hundred_times(tmp_path: Path) -> None:
    async with storm("flapping-member", tmp_path) as one:
        topic, generations = one.deployment.topics["input"], list[int]()

        async def strike() -> None:
            began_s = time.monotonic()
            while len(generations) < FLAPS and time.monotonic() < began_s + FLAPPING_S:
                feeding = asyncio.create_task(feed(one.producer, one.deployment, wave=WAVE // 20))
                generations.append(await flap(one.brokers.bootstrap, topic))
                await feeding

        await one.under_load(strike)
        rebalances = generations[-1] - generations[0]
        assert rebalances >= FLAPS, "the machine is too slow: the test tests little"
        await one.settled(f"{rebalances} rebalances by {len(generations)} joins; the workers continued")


# ---------------------------------------------------------------- another protocol


@contextmanager
def other_consumer(one: Storm, number: int, group: str) -> Iterator[Path]:
    """Run Kafka's own consumer with its new group protocol; the file with the records that it prints."""
    local, out = load_local(), one.deployment.folder / f"other-{number}.txt"
    program = ["-cp", f"{local.fetch_libraries()}/*", "org.apache.kafka.tools.consumer.ConsoleConsumer"]
    command = [local.find_java(), "-Xmx128m", "-XX:+UseSerialGC", *program]
    command += ["--bootstrap-server", one.brokers.bootstrap, "--topic", one.deployment.topics["input"]]
    for setting in ("group.protocol=consumer", "auto.offset.reset=earliest"):
        command += ["--command-property", setting]
    with out.open("wb") as output, (out.with_suffix(".err")).open("wb") as errors:
        process = subprocess.Popen([*command, "--group", group], stdout=output, stderr=errors)
        try:
            yield out
        finally:
            process.terminate()
            process.wait(60)


async def types_of_groups(bootstrap: str) -> str:
    tool = [sys.executable, str(LOCAL.with_name("tool.py")), "kafka-consumer-groups"]
    command = [*tool, "--bootstrap-server", bootstrap, "--list", "--type", "consumer"]
    return (await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)).stdout


async def test_consumers_with_the_new_group_protocol_read_the_input(tmp_path: Path) -> None:
    async with storm("other-protocol", tmp_path) as one:
        with other_consumer(one, 0, "others") as first:

            async def strike() -> None:
                with other_consumer(one, 1, "others") as second:
                    began_s = time.monotonic()
                    while not second.stat().st_size and time.monotonic() < began_s + PATIENCE_S:
                        await feed(one.producer, one.deployment, wave=WAVE // 10)
                    assert second.stat().st_size, "the second one read nothing: the test tests nothing"
                    assert "others" in (await types_of_groups(one.brokers.bootstrap)).split()
                await feed(one.producer, one.deployment)

            await one.under_load(strike)
            printed = [tmp_path / f"other-{number}.txt" for number in range(2)]

            def have_read_all() -> bool:
                lines = {line for path in printed for line in path.read_bytes().splitlines()}
                return len(lines) == one.deployment.serial

            await wait_until(have_read_all, PATIENCE_S, f"all records, in {first}")
        await one.settled("both groups read all records")


# ---------------------------------------------------------------- a name


async def until_ready_s(stage: Stage) -> float:
    began_s = time.monotonic()
    async with stage.run() as run:
        await run.until_ready(120)
        return time.monotonic() - began_s


async def test_a_name_of_the_settings_has_a_dead_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster(tmp_path / "kafka") as brokers, dropping_address() as dead:
        stage = await Stage.create(brokers.bootstrap, tmp_path)
        address, port = brokers.bootstrap.split(",")[0].split(":")
        loop = asyncio.get_running_loop()
        resolve = loop.getaddrinfo

        async def resolved(host: str, *more: Any, **options: Any) -> list[Any]:
            if host != "kafka.test":
                return await resolve(host, *more, **options)
            kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
            return [(*kind, one) for one in (dead, (address, int(port)))]

        record_ids = await stage.put(1200)
        plain_s = await until_ready_s(stage)
        monkeypatch.setattr(loop, "getaddrinfo", resolved)
        stage.bootstrap = f"kafka.test:{port}"
        began_s = time.monotonic()
        async with stage.run() as run:
            await run.until_ready(120)
            took_s = time.monotonic() - began_s
            run.service.settings.__dict__["bootstrap_servers"] = brokers.bootstrap  # for the reader of the test
        stage.bootstrap = brokers.bootstrap
        await stage.drained(record_ids)
        outcomes = await stage.outcomes()
        twice, lost = sum(outcomes.values()) - len(outcomes), len(record_ids) - len(outcomes)
        assert (twice, lost) == (0, 0)
        assert took_s < plain_s + 5.0
        happened = f"ready after {took_s:.1f} s, and after {plain_s:.1f} s without the dead address"
        counts = {"under_k": -1, "canaries": 0, "accusations": 0, "gone": 0}
        record("dead-address", happened, records=len(record_ids), twice=twice, lost=lost, **counts)
