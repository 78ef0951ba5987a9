"""A worker that compiles its kernels meanwhile checks broker and topics, and joins the group only afterwards."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from support.kafka_broker import admin, wait_until
from support.running import Process, Stage

pytestmark = pytest.mark.usefixtures("kernels")

SLOW_COMPILER = (sys.executable, str(Path(__file__).resolve().parents[1] / "support" / "slow_compiler.py"))
"""In an interpreter of its own: a forked process does not unload the interpreter at its end."""
CONNECTED = (503, "not ready: not a member of the group yet\n")
END_S = 10.0
"""Two seconds are promised on a machine of its own, which `tests/faults/test_signals.py` measures at night. Here other
tests run beside it; the compiler takes 120 s."""


def compiling(stage: Stage, *arguments: str) -> Process:
    """Start a worker whose compiler waits for the file `kernels`."""
    words = ("run", *arguments, "--from", "earliest", "--http", "127.0.0.1:0")
    return stage.command(*words, program=SLOW_COMPILER)


async def members(stage: Stage) -> int:
    async with admin(stage.bootstrap) as client:
        (answer,) = await client.describe_consumer_groups([stage.group])
        return len(answer.groups[0][5])


def last_line(process: Process) -> dict[str, Any]:
    return dict(json.loads(process.said.splitlines()[-1]))


async def ended_after_message(process: Process) -> int:
    """Return the exit code of a worker that says why it ends, and ends then at once."""
    await wait_until(lambda: process.lines("stopped"), 30, "the message")
    return await process.ended(END_S)


async def test_a_missing_topic_ends_a_worker_with_2_while_it_compiles(stage: Stage) -> None:
    stage.document["kafka"]["output"] = "absent"
    async with compiling(stage) as process:
        assert await ended_after_message(process) == 2
        assert (last_line(process)["event"], last_line(process)["code"]) == ("stopped", "policy")
        assert "topic absent does not exist" in last_line(process)["reason"]


async def test_a_dead_address_ends_a_worker_with_3_while_it_compiles(tmp_path: Path) -> None:
    async with compiling(Stage.at("127.0.0.1:1", tmp_path, patience_s=0.5)) as process:
        assert await ended_after_message(process) == 3
        assert (last_line(process)["event"], last_line(process)["code"]) == ("stopped", "broker")


@pytest.mark.parametrize(
    ("arguments", "number", "code"),
    [([], signal.SIGTERM, 0), (["--drain"], signal.SIGTERM, 0), ([], signal.SIGHUP, 129)],
)
async def test_a_signal_ends_a_worker_that_compiles(arguments: list[str], number: int, code: int, stage: Stage) -> None:
    async with compiling(stage, *arguments) as process:
        await wait_until(lambda: _is_connected(process), what="a connection")
        process.process.send_signal(number)
        assert await process.ended(END_S) == code
        assert number == signal.SIGHUP or last_line(process)["event"] == "stopped"


async def test_a_worker_joins_the_group_when_its_kernels_are_compiled(stage: Stage) -> None:
    record_ids = await stage.put(30)
    async with compiling(stage) as process:
        await wait_until(lambda: _is_connected(process), what="a connection")
        assert await members(stage) == 0
        (stage.folder / "kernels").touch()
        await wait_until(lambda: _is_ready(process), what="readiness")
        assert await members(stage) == 1
        assert await process.terminated() == 0
    await stage.drained(record_ids)


async def test_a_drain_reads_records_when_its_kernels_are_compiled(stage: Stage) -> None:
    record_ids = await stage.put(30)
    async with compiling(stage, "--drain") as process:
        await wait_until(lambda: _is_connected(process), what="a connection")
        assert process.lines("partition opened") == []
        (stage.folder / "kernels").touch()
        assert await process.ended() == 0
    await stage.until_completed(record_ids)


async def _is_connected(process: Process) -> bool:
    return bool(process.lines("started")) and await process.get("/readyz") == CONNECTED


async def _is_ready(process: Process) -> bool:
    return await process.get("/readyz") == (200, "ready\n")
