"""kill -9 of a worker around the change to compiled kernels: no record twice or lost, no child left."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path

import pytest
from support.kafka_broker import wait_until
from support.running import Stage, children_of, is_running

COLD = (sys.executable, "-m", "shoal.cli", "run", "--from", "earliest", "--http", "127.0.0.1:0")


@pytest.mark.nightly
async def test_kills_around_the_change_to_compiled_kernels_lose_and_repeat_nothing(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, record_ids = tmp_path / "cache", list[tuple[int, int]]()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(cache))
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")
    stage.document["stream"]["rule"] = "nearest"  # its kernels are compiled soonest
    # While the child compiles; when it has ended and kernels are loaded; some time after that.
    for turn, after_s in enumerate((None, 0.0, 0.3, 0.6, 1.0, 2.0)):
        async with stage.command(*COLD[3:], name=f"w{turn}", program=COLD[:3]) as worker:
            await worker.until_ready(60)
            record_ids += await stage.put(200)
            if after_s is None:
                await wait_until(lambda: list(cache.rglob("*.nbc")), 600, "the first of many kernels")
            else:
                await wait_until(lambda: list(cache.rglob("*.ready")), 600, "compiled kernels")
                await asyncio.sleep(after_s)
            children = children_of(worker.pid)
            assert len(children) == (1 if after_s is None else 0)
            worker.kill()
            await wait_until(partial(_have_ended, children), 20, "the end of the child")
    await stage.drained(record_ids)
    assert set(await stage.outcomes()) == set(record_ids)


def _have_ended(pids: list[int]) -> bool:
    return not any(map(is_running, pids))
