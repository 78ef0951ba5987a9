"""The adaptive state of a stream survives stops and kills: the output is that of a worker that was never stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.kafka_broker import wait_until
from support.running import Stage

COUNT = 420


async def stage_of(bootstrap: str, folder: Path, release: str) -> Stage:
    attributes: dict[str, Any] = {
        "who": {"role": "identifier", "subject": True},
        "age": {"role": "quasi_identifier", "integer": True},
        "income": {"role": "quasi_identifier", "resolution": 10, "missing": "group"},
        "seen": {"role": "quasi_identifier", "scale": "time", "unit": "s", "resolution": "15min"},
        "ward": {"role": "quasi_identifier", "scale": "nominal"},
        "serial": {"role": "confidential", "type": "integer"},
    }
    stage = await Stage.create(
        bootstrap,
        folder,
        stream={"release": release},
        steering={"position": {"target_span": 4}},
    )
    stage.document["attributes"] = attributes
    return stage


async def put(stage: Stage, first: int, end: int) -> None:
    """Records whose scale grows with the position, with a clock, wards and missing values; always the same."""
    await stage.send(
        [
            stage.record(
                who=f"p{number % 300}",
                income=None if number % 11 == 0 else (number * 7919 % 1009) * (1 + number // 100) ** 3,
                seen=1_700_000_000 + 600 * number,
                ward="NSEW"[number * 31 % 7 % 4],
            )
            for number in range(first, end)
        ]
    )


async def published(stage: Stage) -> tuple[list[bytes | None], list[bytes | None]]:
    """Rows and lines of evidence; the rows of a transaction are in the order of their bytes, so cuts move them."""
    await stage.drained()
    rows = [message.value for message in await stage.read()]
    ordered = stage.document["stream"].get("release") == "ordered"
    return rows if ordered else sorted(rows, key=str), [one.value for one in await stage.read("evidence")]


@pytest.mark.parametrize("release", ["cluster", "ordered"])
async def test_a_worker_that_is_stopped_or_killed_keeps_its_weight_and_spreads(
    bootstrap: str, tmp_path: Path, release: str
) -> None:
    folders = [tmp_path / "whole", tmp_path / "cut"]
    for folder in folders:
        folder.mkdir()
    whole, cut = [await stage_of(bootstrap, folder, release) for folder in folders]
    await put(whole, 0, COUNT)
    async with whole.run() as run:
        await run.until_read(COUNT)
    await put(cut, 0, 150)
    async with cut.run() as run:
        await run.until_read(150)
    begun = await cut.progress()
    assert begun.state.adaptive_state, "no adaptive state was committed"
    await put(cut, 150, 330)
    async with cut.process("--from", "earliest") as worker:
        await worker.until_ready()
        before = len(await cut.read())
        await wait_until(lambda: _has_more(cut, before), what="something that the worker released")
        worker.kill()
    await put(cut, 330, COUNT)
    async with cut.run() as run:
        await run.until_read(90)
    continued = (await cut.progress()).state.adaptive_state
    assert continued != begun.state.adaptive_state
    assert continued == (await whole.progress()).state.adaptive_state
    assert await published(cut) == await published(whole)


async def _has_more(stage: Stage, before: int) -> bool:
    return len(await stage.read()) > before or (await stage.progress()).state.next_offset > 150
