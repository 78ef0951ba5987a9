"""l, t and the largest share of one value in the service: kept in every cluster, through stops and kills."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from support.kafka_broker import wait_until
from support.running import Stage

COUNT = 300
SHARES = {"eye": 0.5, "ear": 0.3, "nose": 0.2}
WARDS = ("eye", "eye", "ear", "eye", "ear", "nose", "eye")


def write_reference(folder: Path) -> None:
    folder.mkdir()
    (folder / "wards.csv").write_text("value,share\n" + "".join(f"{ward},{share}\n" for ward, share in SHARES.items()))


async def stage_of(bootstrap: str, folder: Path) -> Stage:
    write_reference(folder)
    privacy = {"k": 4, "l": 2, "t": 0.3, "max_value_share": 0.65}
    stage = await Stage.create(bootstrap, folder, privacy=privacy, stream={"delta": 40, "rule": "awo"})
    ward = {"role": "confidential", "type": "string", "protect": True, "reference": "wards.csv"}
    stage.document["attributes"]["ward"] = ward
    return stage


async def put(stage: Stage, first: int, end: int) -> None:
    """Append records; always the same."""
    await stage.send([stage.record(ward=WARDS[number * 37 % 101 % 7]) for number in range(first, end)])


async def published(stage: Stage) -> tuple[list[bytes | None], list[bytes | None]]:
    await stage.drained()
    return sorted((one.value for one in await stage.read()), key=str), [o.value for o in await stage.read("evidence")]


async def test_a_worker_that_is_stopped_or_killed_decides_the_same_clusters_under_l_and_t(
    bootstrap: str, tmp_path: Path
) -> None:
    whole, cut = [await stage_of(bootstrap, tmp_path / name) for name in ("whole", "cut")]
    await put(whole, 0, COUNT)
    async with whole.run() as run:
        await run.until_read(COUNT)
        assert run.total("shoal_protects_values") == 1
    await put(cut, 0, 110)
    async with cut.process("--from", "earliest") as worker:
        await worker.until_ready()
        await wait_until(lambda: _has_released(cut), what="a cluster that the worker released")
        worker.kill()
    await put(cut, 110, COUNT)
    async with cut.run() as run:
        await run.until_read(COUNT - 110)
    rows, evidence = await published(cut)
    assert (rows, evidence) == await published(whole)
    wards = {json.loads(row or b"")["serial"]: json.loads(row or b"")["ward"] for row in rows}
    clusters = [Counter(wards[offset] for offset in json.loads(line or b"")["offsets"]) for line in evidence]
    assert sum(map(Counter.total, clusters)) == len(rows) > 0.8 * COUNT
    for counts in clusters:
        shares = {ward: counts[ward] / counts.total() for ward in SHARES}
        assert len(counts) >= 2
        assert max(shares.values()) <= 0.65
        assert sum(abs(shares[ward] - SHARES[ward]) for ward in SHARES) / 2 <= 0.3 + 1e-9


async def _has_released(stage: Stage) -> bool:
    return len(await stage.read()) > 0
