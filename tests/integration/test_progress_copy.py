"""The copy of the progress on a real broker: either of the two stores may be lost; a contradiction is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shoal.errors import InputError, PolicyError
from shoal.kafka import StartOptions, export_progress, report_progress
from shoal.policy import Policy
from support.kafka_broker import create_topic, read_all, wait_until
from support.raw_log import delete_group
from support.running import EARLIEST, Stage

pytestmark = pytest.mark.integration

COMPACT = {"cleanup.policy": "compact"}
CONTINUE = StartOptions()
"""Without --from: a start needs progress."""


@pytest.fixture
async def stage(bootstrap: str, tmp_path: Path) -> Stage:
    stage = await Stage.create(bootstrap, tmp_path)
    await with_copy(stage)
    return stage


async def with_copy(stage: Stage, **configs: str) -> str:
    topic = await create_topic(stage.bootstrap, 1, COMPACT | configs)
    stage.document["kafka"]["progress_copy"] = topic
    return topic


async def worked(stage: Stage, start: StartOptions = EARLIEST, count: int = 30) -> list[tuple[int, int]]:
    """Append records, release some of them and hold the others."""
    record_ids = await stage.put(count)
    before = len(await stage.read())
    async with stage.run(start) as run:
        await run.until_read(count)

        async def is_published() -> bool:
            return len(await stage.read()) > before

        await wait_until(is_published, what="a release")
    return record_ids


async def lose_group(stage: Stage) -> None:
    """Delete the group with its offsets, as the broker does when they have expired."""
    await delete_group(stage.bootstrap, stage.group)
    assert await stage.committed() is None


async def report(stage: Stage) -> dict[str, Any]:
    (line,) = await report_progress(Policy.load(stage.policy_file()), stage.settings())
    return line


async def refusal(stage: Stage, start: StartOptions = CONTINUE) -> str:
    before = await stage.committed()
    with pytest.raises((InputError, PolicyError)) as caught:
        async with stage.run(start) as run:
            await run.ended()
    assert caught.value.exit_code == 2
    assert await stage.committed() == before, "a refused start has committed"
    return str(caught.value)


async def test_a_start_without_the_group_continues_from_the_copy(stage: Stage) -> None:
    record_ids = await worked(stage)
    before = await stage.progress()
    assert before.state.incomplete
    assert ((line := await report(stage))["copy"], line["copy_watermark"]) == ("same", before.state.committed_offset)
    text = await export_progress(stage.settings())
    await lose_group(stage)
    assert (await report(stage))["copy"] == "newer"
    assert await export_progress(stage.settings()) == text
    record_ids += await worked(stage, CONTINUE)
    assert (await report(stage))["copy"] == "same"
    await stage.drained()
    await stage.until_completed(record_ids)
    values = await read_all(stage.bootstrap, stage.document["kafka"]["progress_copy"])
    assert {message.key for message in values} == {
        json.dumps([stage.group, stage.topics["input"], 0]).replace(" ", "").encode()
    }
