"""A broker that is absent, does not answer or restarts: no record is lost or released twice, no false readiness."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kafka_broker import admin, holds_for, wait_for, wait_until
from support.running import Process, Stage, sample
from support.secured_broker import PrivateBroker, private_broker

# A worker that has to compile first ends later than the times here allow, whatever broker there is.
pytestmark = pytest.mark.usefixtures("kernels")


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateBroker]:
    with private_broker(tmp_path_factory.mktemp("kafka") / "run") as one:
        yield one


@pytest.fixture
def dead_address() -> Iterator[str]:
    """Return an address at which nothing listens, and that no other process can take."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{one.getsockname()[1]}"


# ---------------------------------------------------------------- never there


async def test_a_start_against_a_dead_address_ends_with_3_and_a_message_when_patience_is_over(
    dead_address: str, tmp_path: Path
) -> None:
    stage = Stage.at(dead_address, tmp_path, patience_s=1.5)
    began = time.monotonic()
    async with stage.process("--from", "earliest") as process:
        assert await process.ended(15) == 3
        assert time.monotonic() - began > 1.5
        assert f"the broker at {dead_address} could not be reached" in process.said
        assert 0.05 <= process.lines("consumer loop ended")[0]["retry_s"] <= 0.15
        assert process.lines("consumer loop ended")[0]["broker"] == dead_address
        (line,) = process.lines("giving up")
        assert "kafka.patience_s" in line["reason"]


async def test_an_address_that_never_answers_is_no_broker(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        async with Stage.at(address, tmp_path).process() as process:
            assert (await process.get("/readyz"))[0] == 503
            assert await process.terminated() == 0
        async with Stage.at(address, tmp_path).command("progress") as progress:
            assert progress.code is None, "it waits for as long as the client does"


# ---------------------------------------------------------------- gone for a while


async def test_a_broker_that_does_not_answer_for_a_while_is_reported_and_no_record_is_lost(
    private: PrivateBroker, tmp_path: Path
) -> None:
    stage = await Stage.create(private.bootstrap, tmp_path, partitions=2, kafka={"session_timeout_ms": 6000})
    async with stage.process("--from", "earliest") as process:
        await process.until_ready()
        record_ids = await stage.put(200, 0, 1)
        await until_read(process, 300)
        private.pause()
        try:

            async def is_told() -> bool:
                assert (await process.get("/livez"))[0] == 200
                status, words = await process.get("/readyz")
                return status == 503 and "broker not reached" in words

            await wait_until(is_told, 30, "the truth about the broker")
            # Longer than the session lasts: the membership is lost as well.
            assert await holds_for(lambda: process.code is None, 4)
        finally:
            private.resume()
        await process.until_ready(60)
        record_ids += await stage.put(200, 0, 1)
        await stage.until_completed(record_ids[:300])
        assert await process.terminated() == 0
    await stage.drained(record_ids)
    assert set(await stage.outcomes()) == set(record_ids)


async def until_read(process: Process, count: int) -> None:
    def is_read(answer: tuple[int, str]) -> bool:
        return sample(answer[1], "shoal_records_total", outcome="in") >= count

    await wait_for(lambda: process.get("/metrics"), is_read, what="reading")


@pytest.mark.parametrize("load", ["idle", "in the middle of a commit"])
async def test_a_worker_whose_broker_does_not_answer_can_be_stopped(
    private: PrivateBroker, tmp_path: Path, load: str
) -> None:
    stage = await Stage.create(private.bootstrap, tmp_path, stream={"delta": 20})
    record_ids = []
    async with stage.process("--from", "earliest") as process:
        await process.until_ready()
        if load != "idle":
            record_ids = await stage.put(3000)
        private.pause()
        try:
            assert await process.terminated(10) == 0
        finally:
            private.resume()
    await stage.drained(record_ids)


async def test_patience_ends_while_the_broker_does_not_answer(private: PrivateBroker, tmp_path: Path) -> None:
    stage = await Stage.create(private.bootstrap, tmp_path, kafka={"patience_s": 3})
    async with stage.process("--from", "earliest") as process:
        await process.until_ready()
        await stage.put(100)
        private.pause()
        try:
            assert await process.ended(40) == 3
            assert "kafka.patience_s" in process.said
        finally:
            private.resume()


async def test_a_broker_that_was_stopped_and_started_again_is_found_again(
    private: PrivateBroker, tmp_path: Path
) -> None:
    stage = await Stage.create(private.bootstrap, tmp_path, partitions=2)
    async with stage.process("--from", "earliest") as process:
        await process.until_ready()
        record_ids = await stage.put(100, 0, 1)
        private.stop(signal.SIGKILL)
        await wait_for(lambda: process.get("/readyz"), lambda found: found[0] == 503, 30, "the truth about the broker")
        await private.start_again()
        await process.until_ready(60)
        record_ids += await stage.put(100, 0, 1)
        await until_read(process, 400)
        assert (await process.get("/livez"))[0] == 200
        # What the client says again and again, ten times a second, is not said again and again in the log.
        assert len(process.said.splitlines()) < 150
        assert await process.terminated() == 0
    await stage.drained(record_ids)
    assert set(await stage.outcomes()) == set(record_ids)


async def test_checks_do_not_create_the_topics_they_miss(private: PrivateBroker, tmp_path: Path) -> None:
    private.stop()
    await private.start_again("auto.create.topics.enable=true")
    stage = Stage.at(private.bootstrap, tmp_path, quarantine="bad", evidence="proof")
    for command in (["run"], ["progress"]):
        async with stage.command(*command) as process:
            assert await process.ended() == 2
            assert "does not exist" in process.said
    async with admin(private.bootstrap) as client:
        assert not {"in", "out", "bad", "proof"} & set(await client.list_topics())
