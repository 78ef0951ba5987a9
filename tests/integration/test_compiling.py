"""A worker with an empty cache releases records while a child process compiles its kernels, and goes on afterwards."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.kafka_broker import wait_until
from support.running import Process, Stage, children_of, is_running

COLD = (sys.executable, "-m", "shoal.cli")
"""In an interpreter of its own: a forked process begins with compiled kernels."""


def cold_worker(stage: Stage, name: str) -> Process:
    words = ("run", "--from", "earliest", "--http", "127.0.0.1:0")
    return stage.command(*words, name=name, program=COLD)


async def test_a_cold_worker_releases_before_and_after_its_kernels_are_compiled(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(cache))
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")
    stage.document["stream"]["rule"] = "nearest"  # its kernels are compiled soonest
    record_ids = await stage.put(60)
    async with cold_worker(stage, "first") as worker:
        await wait_until(stage.serials, 20, "the first record")
        assert not list(cache.rglob("*.ready"))
        await wait_until(lambda: children_of(worker.pid), 5, "the compiler")  # it begins once the worker is ready
        (child,) = children_of(worker.pid)
        assert await worker.terminated() == 0
        await wait_until(lambda: not is_running(child), 5, "the end of the compiler")
        (line,) = worker.lines("a faster form of the kernels is being compiled beside the work")
        assert line["level"] == "info"
    async with cold_worker(stage, "second") as worker:
        await wait_until(lambda: list(cache.rglob("*.ready")), 600, "compiled kernels")
        await wait_until(lambda: not children_of(worker.pid), 10, "the end of the compiler")
        record_ids += await stage.put(300)
        await wait_until(lambda: _has_released(stage, 300), 30, "records after the change")
        assert await worker.terminated() == 0
    await stage.drained(record_ids)


async def _has_released(stage: Stage, count: int) -> bool:
    return len(await stage.serials()) >= count
