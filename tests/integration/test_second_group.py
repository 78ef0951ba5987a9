"""Two groups over the same topics by mistake, and clocks that were ahead: what is seen of it, and when."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest
from kafka_broker import produce, wait_until
from running import EARLIEST, Run, Stage
from shoal.errors import InputError
from shoal.kafka import Start

pytestmark = pytest.mark.integration


async def twice(stage: Stage) -> int:
    """How many records the output holds more than once."""
    seen = Counter(json.loads(message.value or b"")["serial"] for message in await stage.read())
    return sum(count > 1 for count in seen.values())


async def ended_with(run: Run) -> Exception | None:
    """What a service ended with, which may be nothing: the other was the one to go."""
    try:
        await run.ended(6)
    except (InputError, TimeoutError) as error:
        return error
    return None


async def test_a_group_that_began_before_anything_was_published_stops_at_its_first_clusters(
    bootstrap: str, tmp_path: Path
) -> None:
    stage = await Stage.create(bootstrap, tmp_path)
    await stage.put(5)
    async with stage.run(EARLIEST) as first, stage.run(EARLIEST, group=f"{stage.group}-b") as second:
        await first.until_read(5)
        await second.until_read(5)
        # Both have begun, and hold. At worst both publish one transaction in the same moment, and see it at the next.
        await stage.put(60)
        await wait_until(stage.read, what="a first transaction")
        await stage.put(60)
        errors = [await ended_with(run) for run in (first, second)]
        refused = [error for error in errors if isinstance(error, InputError)]
        assert refused, errors
        assert all(stage.topics["output"] in str(error) for error in refused)
    before = await twice(stage)
    assert before <= 65


async def test_a_second_writer_is_noticed_before_the_next_commit(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path)
    async with stage.run(EARLIEST) as run:
        await stage.put(60)
        await run.until(lambda: run.total("shoal_records_total", outcome="released") > 0)
        await produce(bootstrap, stage.topics["output"], [b'{"age":1,"serial":-1}'], partitions=0)
        published = len(await stage.read())
        await stage.put(60)
        with pytest.raises(InputError, match="somebody else"):
            await run.ended()
    assert len(await stage.read()) == published


async def test_after_a_skip_a_restart_does_not_mind_that_a_clock_was_ahead(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path)
    ahead = round(time.time() * 1000) + 1_800_000
    await produce(bootstrap, stage.topics["output"], [b'{"age":1,"serial":-1}'], partitions=0, timestamps_ms=[ahead])
    await stage.put(30)
    async with stage.run(Start(skip_to_end=True)) as run:
        await run.until_ready()
    assert (await stage.progress()).at >= ahead
    await stage.put(30)
    async with stage.run(Start()) as run:
        await run.until_read(30)
    async with stage.run(Start(drain=True)) as run:
        await run.ended()
    released = Counter(json.loads(message.value or b"")["serial"] for message in await stage.read())
    assert released == dict.fromkeys([-1, *range(30, 60)], 1)


async def test_whoever_dates_a_record_ahead_does_not_keep_the_others_waiting(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, stream={"delta": 500, "max_delay_s": 1})
    now = round(time.time() * 1000)
    places = await stage.put(1, timestamps_ms=[now + 59 * 60_000])
    places += await stage.put(20, timestamps_ms=[now] * 20)
    async with stage.run(EARLIEST):
        await stage.until_resolved(places, 15)
