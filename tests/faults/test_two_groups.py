"""Two groups that start at the same moment over the same topics: no row is published twice, and the error is clear."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from support.kafka_broker import wait_until
from support.running import Process, Stage

pytestmark = pytest.mark.usefixtures("kernels")

BACKLOG, PARTITIONS = 2400, 2


async def until_over(stage: Stage, processes: Sequence[Process]) -> Counter[int]:
    """Wait until no worker can publish more, or rows were published twice; return how often each was published."""

    async def is_over() -> bool:
        ended = sum(process.code is not None for process in processes)
        rows = len(await stage.read())
        done = rows > PARTITIONS * (BACKLOG - 100)
        return ended == len(processes) or (done and ended > 0) or rows > PARTITIONS * BACKLOG

    await wait_until(is_over, 60, "the end of a worker")
    codes = [process.code for process in processes]
    seen = Counter(json.loads(message.value or b"")["serial"] for message in await stage.read())
    twice = sum(count > 1 for count in seen.values())
    assert twice == 0
    assert set(codes) <= {None, 2}
    words = ("another producer writes to it", "holds records")
    for process in processes:
        assert process.code is None or any(one in process.said for one in words), process.said
    return seen


@pytest.mark.nightly
@pytest.mark.parametrize("turn", range(3))
@pytest.mark.parametrize("workers", [1, 2])
async def test_two_groups_that_start_at_once(workers: int, turn: int, bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, partitions=PARTITIONS, kafka={"commit_interval_ms": 1000})
    await stage.put(BACKLOG, *range(PARTITIONS))
    async with AsyncExitStack() as stack:
        processes: list[Process] = []
        for name in "ab" * workers:
            group = f"{stage.group}-{turn}-{name}"
            process = stage.process("--from", "earliest", name=f"{name}{len(processes)}", GROUP=group)
            processes.append(await stack.enter_async_context(process))
        seen = await until_over(stage, processes)
    assert len(seen) >= 3
