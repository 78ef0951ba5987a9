"""A broker that is paused 20 times for 13 to 40 s on a loaded machine: no worker ends, no record twice or lost."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from support.faulty_workers import Deployment, Worker
from support.private_broker import PrivateBroker, private_broker
from support.repeated_kills import PARTITIONS, check
from support.running import sample
from support.storms import PATIENCE_S, WAVE, feed, feeder

LOOPS, PAUSES, SHORTEST_S, LONGEST_S = 4, 20, 13.0, 40.0


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Run so many processes that take all the processor time they get."""
    with ExitStack() as stack:
        for _ in range(count):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(process.kill)
        yield


async def pause_at_work(
    broker: PrivateBroker, deployment: Deployment, workers: list[Worker], producer: AIOKafkaProducer, length_s: float
) -> None:
    """Pause the broker while transactions follow each other, and wait for progress after it."""
    before = await deployment.resolved()
    feeding = asyncio.create_task(feed(producer, deployment))
    try:
        await deployment.wait_for(before + WAVE // 10, PATIENCE_S)
        broker.pause()
        try:
            await asyncio.sleep(length_s)
        finally:
            broker.resume()
        await feeding
    finally:
        feeding.cancel()
    await deployment.wait_for(before + WAVE // 2, PATIENCE_S)
    for worker in workers:
        assert not worker.is_dead, worker.log.read_text()[-3000:]


async def transaction_s(worker: Worker) -> float:
    """Return how long the transactions of a worker lasted, all together (s)."""
    return sample(await worker.metrics(), "shoal_transaction_seconds_sum")


@pytest.mark.nightly
@pytest.mark.timeout(3600)
async def test_twenty_pauses_of_a_loaded_broker(tmp_path: Path) -> None:
    lengths = random.Random(14)
    with private_broker(tmp_path / "kafka" / "run") as broker:
        deployment = await Deployment.create(broker.bootstrap, tmp_path, partitions=PARTITIONS)
        workers = [deployment.worker(f"w{number}") for number in range(2)]
        began_s = time.monotonic()
        try:
            with busy_loops(LOOPS):
                for worker in workers:
                    worker.start()
                async with feeder(broker.bootstrap) as producer:
                    for _ in range(PAUSES):
                        length_s = lengths.uniform(SHORTEST_S, LONGEST_S)
                        await pause_at_work(broker, deployment, workers, producer, length_s)
            within_s = sum([await transaction_s(worker) for worker in workers])
            assert [worker.terminate() for worker in workers] == [0, 0]
            await deployment.settled(workers)
        finally:
            for worker in workers:
                worker.kill()
        said = "".join(worker.log.read_text() for worker in workers)
        ends = said.count('"consumer loop ended"')
        took_s = time.monotonic() - began_s
        print(
            f"{PAUSES} pauses in {took_s:.0f} s, {within_s:.0f} s in transactions; {ends} consumer loops were repeated"
        )
        assert "writes to it" not in said
        assert '"giving up"' not in said
        assert within_s > PAUSES * SHORTEST_S / 2, "hardly a pause fell inside a transaction: the test tests nothing"
        await check(deployment)
