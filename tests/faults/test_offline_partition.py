"""A partition of the input whose only broker is away: the others go on, and the log names it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from shoal.errors import BrokerError
from structlog.testing import capture_logs
from support.cluster import NOT_OPENED, PATIENCE_S, canaries, cluster, put, stage_of
from support.reliability import record
from support.running import Stage

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("kernels")]


async def drain_that_gives_up(stage: Stage) -> None:
    """Drain while a leader is away."""
    with capture_logs() as lines, pytest.raises(BrokerError) as caught:
        await stage.drained()
    assert str(caught.value).startswith(f"--drain: {stage.topics['input']}-1: no leader answers; ")
    assert "(kafka.patience_s)" in str(caught.value)
    assert (caught.value.exit_code, [one for one in lines if one["event"] == "consumer loop ended"]) == (3, [])


async def test_the_other_partitions_of_a_worker_go_on(tmp_path: Path) -> None:
    with cluster(tmp_path / "kafka") as brokers:
        stage, victim = await stage_of(brokers, tmp_path)
        count = len(await put(stage)) + len(await put(stage, 1))
        with capture_logs() as lines:
            async with stage.run() as run:
                await run.until_read(count)
                await brokers.end(victim)
                began_s = time.monotonic()
                words = "no leader of these partitions answers; the others go on"
                await run.until(lambda: any(line["event"] == words for line in lines), "the warning", 60)
                while time.monotonic() < began_s + 3 * PATIENCE_S:
                    count += len(await put(stage))
                    await run.until_read(count)
                assert run.service.health.ready
                assert run.total("shoal_partitions_unreachable") == 1
        assert [line["partitions"] for line in lines if line["event"] == words] == [[f"{stage.topics['input']}-1"]]
        assert [line for line in lines if line["event"] in {"consumer loop ended", "giving up"}] == []
        await drain_that_gives_up(stage)
        # A start opens what it can, and the rest when the broker is back.
        with capture_logs() as later:
            async with stage.run() as run:
                await run.until(lambda: run.total("shoal_partitions_opening") == 1, "one partition that is open", 60)
                await run.until(lambda: any(line["event"] == NOT_OPENED for line in later), "the warning", 90)
                first_count = len(await put(stage))
                await run.until_read(first_count)
                assert not run.service.health.ready
                await brokers.start(victim)
                await run.until_ready(120)
                assert run.total("shoal_partitions_opening") == run.total("shoal_partitions_unreachable") == 0
                await run.until_read(first_count + len(await put(stage, 1)))
        assert [line for line in later if line["event"] in {"consumer loop ended", "giving up"}] == []
        await stage.drained()
        outcomes = await stage.outcomes()
        twice, lost = sum(outcomes.values()) - len(outcomes), len(stage.record_id_of) - len(outcomes)
        assert (twice, lost) == (0, 0)
        happened = "the other partition went on, also after a start; then all went on"
        counts = {"under_k": -1, "canaries": await canaries(stage, [*lines, *later]), "accusations": 0, "gone": 0}
        assert counts["canaries"] == 0
        record("offline-partition", happened, records=len(stage.record_id_of), twice=twice, lost=lost, **counts)
