"""A worker whose only partition has no leader, while it works and when it starts: it waits, and does not end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from support.cluster import cluster
from support.offline_partition import NOT_OPENED, PATIENCE_S, put, stage_of

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("kernels")]


async def test_a_worker_without_any_other_partition_waits_for_its_leader(tmp_path: Path) -> None:
    with cluster(tmp_path / "kafka") as brokers:
        stage, victim = await stage_of(brokers, tmp_path, 1)
        count = len(await put(stage))
        with capture_logs() as lines:
            async with stage.run() as run:
                health = run.service.health
                await run.until_read(count)
                await brokers.end(victim)
                await run.until(lambda: health.leaders_away, "the truth about the leader", 60)
                began_s = time.monotonic()
                await run.until(lambda: time.monotonic() > began_s + 3 * PATIENCE_S, "more than its patience")
                assert health.reasons() == ["no leader of its partitions answers"]
            async with stage.run() as run:
                health = run.service.health
                await run.until(lambda: any(line["event"] == NOT_OPENED for line in lines), "the warning", 60)
                began_s = time.monotonic()
                await run.until(lambda: time.monotonic() > began_s + 3 * PATIENCE_S, "more than its patience")
                assert health.reasons() == ["partitions are being restored"]
                await brokers.start(victim)
                await run.until_ready(120)
                count = len(await put(stage))
                await run.until_read(count)
        assert [line for line in lines if line["event"] in {"consumer loop ended", "giving up"}] == []
        await stage.drained()
        outcomes = await stage.outcomes()
        assert (sum(outcomes.values()), len(outcomes)) == (60, 60)
