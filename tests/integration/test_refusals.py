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
REFUSALS: list[tuple[str, dict[str, Any], list[str], str]] = [
    ("input", {"kafka": {"input": "absent"}}, ORIGIN, "kafka.input: topic absent does not exist"),
    ("output", {"kafka": {"output": "absent"}}, ORIGIN, "kafka.output: topic absent does not exist"),
    ("evidence", {"kafka": {"evidence": "absent"}}, ORIGIN, "kafka.evidence: topic absent does not exist"),
    ("clusters", {"kafka": {"clusters": "absent"}}, ORIGIN, "kafka.clusters: topic absent does not exist"),
    ("quarantine", {"kafka": {"quarantine": "absent"}}, ORIGIN, "kafka.quarantine: topic absent does not exist"),
    ("copy", {"kafka": {"progress_copy": "absent"}}, ORIGIN, "kafka.progress_copy: topic absent does not exist"),
    ("partitions", {"kafka": {"output": "one"}}, ORIGIN, "has 1 partition, the input 2"),
    ("compacted", {"kafka": {"output": "compacted"}}, ORIGIN, "is compacted"),
    ("limit", {"kafka": {"output": "small"}}, ORIGIN, "accepts 100000 bytes at once"),
    ("metadata", {"stream": {"delta": 50_000}}, ORIGIN, "stream.delta: 50000 does not fit"),
    ("from", {}, [], "--from"),
]


@pytest.mark.parametrize(("sections", "words", "message"), [one[1:] for one in REFUSALS], ids=[r[0] for r in REFUSALS])
async def test_a_worker_refuses_before_it_reads_or_compiles(
    bootstrap: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sections: dict[str, dict[str, Any]],
    words: list[str],
    message: str,
) -> None:
    stage = await Stage.create(bootstrap, tmp_path, partitions=2)
    for section, change in sections.items():
        stage.document[section] |= change
    if (kind := stage.document["kafka"]["output"]) in TOPICS:
        stage.document["kafka"]["output"] = await create_topic(bootstrap, *TOPICS[kind])
    await stage.put(30, 0, 1)
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(cache))
    async with stage.process(*words) as process:
        assert await process.ended() == 2
    said = process.said
    assert message in said
    assert "a faster form" not in said
    assert not list(cache.rglob("*.nb*"))
    assert await stage.committed() is None
    assert await stage.read() == []
