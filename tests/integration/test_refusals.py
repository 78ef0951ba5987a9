"""What `shoal run` refuses once it has asked the broker: before a record is read, and before anything is compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.kafka_broker import create_topic
from support.running import Stage

pytestmark = pytest.mark.integration

ORIGIN = ["--from", "earliest"]
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "one": (1, {}),
    "compacted": (2, {"cleanup.policy": "compact,delete"}),
    "small": (2, {"max.message.bytes": "100000"}),
}
SIDE_TOPICS = ("output", "evidence", "clusters", "quarantine", "progress_copy")
REFUSALS: dict[str, tuple[dict[str, dict[str, Any]], list[str], list[str]]] = {
    "input": ({"kafka": {"input": "absent"}}, ORIGIN, ["kafka.input: topic absent does not exist"]),
    "absent": (
        {"kafka": {role: f"no-{role}" for role in SIDE_TOPICS}, "stream": {"delta": 50_000}},
        ORIGIN,
        [
            "stream.delta: 50000 does not fit",
            *(f"kafka.{role}: topic no-{role} does not exist" for role in SIDE_TOPICS),
        ],
    ),
    "unfit": (
        {"kafka": {"output": "one", "evidence": "compacted"}},
        ORIGIN,
        ["has 1 partition, the input 2", "is compacted"],
    ),
    "limit": ({"kafka": {"output": "small"}}, ORIGIN, ["accepts 100000 bytes at once"]),
    "from": ({}, [], ["{input}-0", "{input}-1", "--import", "--skip-to-end", "--from"]),
}


@pytest.mark.parametrize(("sections", "words", "messages"), REFUSALS.values(), ids=REFUSALS)
async def test_a_worker_refuses_before_it_reads_or_compiles(
    bootstrap: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sections: dict[str, dict[str, Any]],
    words: list[str],
    messages: list[str],
) -> None:
    stage = await Stage.create(bootstrap, tmp_path, partitions=2)
    for section, change in sections.items():
        stage.document[section] |= change
    for role, kind in sections.get("kafka", {}).items():
        if kind in TOPICS:
            stage.document["kafka"][role] = await create_topic(bootstrap, *TOPICS[kind])
    await stage.put(30, 0, 1)
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(cache))
    async with stage.process(*words) as process:
        assert await process.ended() == 2
    said = process.said
    assert [text for text in messages if text.format_map(stage.topics) not in said] == []
    assert [line["level"] for line in process.lines("giving up")] == ["error"]
    assert "a faster form" not in said
    assert not list(cache.rglob("*.nb*"))
    assert [await stage.committed(0), await stage.committed(1)] == [None, None]
    assert await stage.read() == []
