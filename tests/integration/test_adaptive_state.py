"""A worker that is stopped and killed publishes what one does that was never stopped: its learned state survives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.faulty_workers import PROTECTION, WARDS, is_diverse, write_shares
from support.kafka_broker import wait_until
from support.running import Stage

COUNT = 420
LEARNED: dict[str, Any] = {
    "who": {"role": "identifier", "subject": True},
    "age": {"role": "quasi_identifier", "integer": True},
    "income": {"role": "quasi_identifier", "resolution": 10, "missing": "group"},
    "seen": {"role": "quasi_identifier", "scale": "time", "unit": "s", "resolution": "15min"},
    "ward": {"role": "quasi_identifier", "scale": "nominal"},
    "serial": {"role": "confidential", "type": "integer"},
}


async def stage_of(bootstrap: str, folder: Path, release: str) -> Stage:
    write_shares(folder)
    if release == "protected":
        privacy = {"k": 4, **PROTECTION}
        stage = await Stage.create(bootstrap, folder, privacy=privacy, stream={"delta": 40, "rule": "awo"})
        ward = {"role": "confidential", "type": "string", "protect": True, "reference": "wards.csv"}
        stage.document["attributes"]["ward"] = ward
    else:
        steering = {"position": {"target_span": 4}}
        stage = await Stage.create(bootstrap, folder, stream={"release": release}, steering=steering)
        stage.document["attributes"] = LEARNED
    return stage


def record(stage: Stage, number: int) -> bytes:
    """Always the same: its scale grows with the position, with a clock, wards and missing values."""
    if "income" not in stage.document["attributes"]:
        return stage.record(ward=WARDS[number * 37 % 101 % 7])
    return stage.record(
        who=f"p{number % 300}",
        income=None if number % 11 == 0 else (number * 7919 % 1009) * (1 + number // 100) ** 3,
        seen=1_700_000_000 + 600 * number,
        ward="NSEW"[number * 31 % 7 % 4],
    )


async def put(stage: Stage, first: int, end: int) -> None:
    await stage.send([record(stage, number) for number in range(first, end)])


async def published(stage: Stage) -> tuple[list[bytes | None], list[bytes | None]]:
    """Rows and lines of evidence; the rows of a transaction are in the order of their bytes, so cuts move them."""
    await stage.drained()
    rows = [message.value for message in await stage.read()]
    ordered = stage.document["stream"].get("release") == "ordered"
    return rows if ordered else sorted(rows, key=str), [one.value for one in await stage.read("evidence")]


@pytest.mark.parametrize("release", ["cluster", "ordered", "protected"])
async def test_a_worker_that_is_stopped_and_killed_publishes_what_another_does(
    bootstrap: str, tmp_path: Path, release: str
) -> None:
    whole, cut = [await stage_of(bootstrap, tmp_path / name, release) for name in ("whole", "cut")]
    await put(whole, 0, COUNT)
    async with whole.run() as run:
        await run.until_read(COUNT)
        assert run.total("shoal_protects_values") == (release == "protected")
    await put(cut, 0, 150)
    await cut.started(read=150)
    begun = (await cut.progress()).state.adaptive_state
    await put(cut, 150, 330)
    async with cut.process("--from", "earliest") as worker:
        await worker.until_ready()
        before = len(await cut.read())

        async def has_more() -> bool:
            return len(await cut.read()) > before or (await cut.progress()).state.next_offset > 150

        await wait_until(has_more, what="something that the worker released")
        worker.kill()
    await put(cut, 330, COUNT)
    await cut.started(read=90)
    continued = (await cut.progress()).state.adaptive_state
    assert continued == (await whole.progress()).state.adaptive_state
    rows, evidence = await published(cut)
    assert (rows, evidence) == await published(whole)
    if release == "protected":
        wards = {row["serial"]: row["ward"] for row in await cut.objects()}
        clusters = [[wards[offset] for offset in json.loads(line or b"")["offsets"]] for line in evidence]
        assert sum(map(len, clusters)) == len(rows) > 0.8 * COUNT
        assert all(map(is_diverse, clusters))
    else:
        assert begun, "no adaptive state was committed"
        assert continued != begun
