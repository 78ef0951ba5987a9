"""A broker that takes the output slowly: the worker stops reading, its memory is bounded, and nothing is lost."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.faulty_workers import Deployment
from support.kafka_broker import load_local
from support.repeated_kills import check
from support.running import sample

PARTITIONS, BACKLOG, SLOW_BYTES_PER_S = 2, 120_000, 20_000
"""At this rate the backlog takes minutes: longer than a transaction may."""
SLOW_S, SAMPLE_S = 60.0, 1.0
MOST_AHEAD = 60_000
"""Records that were read and are not published; without a limit by the rate of the output it would be about all."""
GROWTH_MB = 60.0


def limit_producers(bootstrap: str, client_ids: Iterable[str], bytes_per_s: int | None) -> None:
    """Limit what each of these clients may produce (bytes a second); None removes the limit."""
    local = load_local()
    change = ["--delete-config", "producer_byte_rate"]
    if bytes_per_s is not None:
        change = ["--add-config", f"producer_byte_rate={bytes_per_s}"]
    for client_id in client_ids:
        subprocess.run(
            [
                *(local.find_java(), "-XX:TieredStopAtLevel=1", "-cp", f"{local.fetch_libraries()}/*"),
                "kafka.admin.ConfigCommand",
                *("--bootstrap-server", bootstrap, "--alter", "--entity-type", "clients", "--entity-name", client_id),
                *change,
            ],
            capture_output=True,
            timeout=120,
            check=True,
        )


@pytest.mark.nightly
@pytest.mark.timeout(900)
async def test_a_slow_output_stops_the_reading_and_loses_nothing(bootstrap: str, tmp_path: Path) -> None:
    deployment = await Deployment.create(bootstrap, tmp_path, partitions=PARTITIONS)
    clients = [f"shoal-group-{deployment.topics['input']}-{number}" for number in range(PARTITIONS)]
    worker = deployment.worker("w0")
    memory: list[float] = []
    ahead: list[float] = []
    try:
        worker.start()
        await deployment.put(2000, PARTITIONS)
        await deployment.wait_for(1500)
        await asyncio.to_thread(limit_producers, bootstrap, clients, SLOW_BYTES_PER_S)
        before = await deployment.resolved()
        await deployment.put(BACKLOG, PARTITIONS)
        for _ in range(round(SLOW_S / SAMPLE_S)):
            await asyncio.sleep(SAMPLE_S)
            assert not worker.is_dead, worker.said[-2000:]
            memory.append(worker.memory_mb)
            text = await worker.metrics()
            completed = [sample(text, "shoal_records_total", outcome=one) for one in ("released", "quarantined")]
            ahead.append(sample(text, "shoal_records_total", outcome="in") - sum(completed))
        slow = await deployment.resolved() - before
        await asyncio.to_thread(limit_producers, bootstrap, clients, None)
        await deployment.wait_for(before + BACKLOG * 9 // 10, 180)
        text = await worker.metrics()
        assert worker.terminate() == 0
    finally:
        worker.kill()
    assert slow > 0
    assert max(ahead) < MOST_AHEAD
    assert max(memory) - memory[0] < GROWTH_MB
    committed, aborted = (sample(text, "shoal_transactions_total", outcome=one) for one in ("committed", "aborted"))
    # On a busy machine a request to the broker may fail; a transaction that lasts too long would fail each time.
    assert aborted < 0.1 * committed
    await deployment.settled([worker])
    await check(deployment)
    # The first batch may be too large for the rate: its request is not answered in time, and all is read again.
    assert worker.said.count("consumer loop ended") <= 1
