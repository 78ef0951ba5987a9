"""A Faust app without a broker, a policy for it, and the part of its consumer that the stage uses."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
from faust.types import TP
from shoal.stage.faust_adapter import FaustAdapter

ATTRIBUTES = {
    "who": {"role": "identifier", "subject": True},
    "age": {"role": "quasi_identifier", "scale": "numeric", "bounds": [0, 110], "integer": True},
}


def policy_file(folder: Path, release: str = "cluster", **kafka: Any) -> Path:
    path = folder / "policy.yaml"
    stream = {"delta": 20, "release": release}
    document = {"attributes": ATTRIBUTES, "privacy": {"k": 3}, "stream": stream, "kafka": kafka}
    path.write_text(json.dumps(document))
    return path


def app_in(folder: Path, **options: Any) -> faust.App:
    """Return an app that is not started."""
    return faust.App("group", broker="kafka://one:1;kafka://two:2", datadir=str(folder), **options)


class FakeConsumer:
    """The part of the app's consumer that the stage uses; partition 0 of each of its topics is assigned."""

    def __init__(self, level: object = 0, topics: tuple[str, ...] = ("visits",)) -> None:
        self._topics = topics
        fetcher = SimpleNamespace(_isolation_level=level, _pending_tasks=set())
        self._thread = SimpleNamespace(_consumer=SimpleNamespace(_fetcher=fetcher))
        self._paused_partitions: set[TP] = set()
        self.calls: list[tuple[str, Any]] = []

    def assignment(self) -> set[TP]:
        return {TP(topic, 0) for topic in self._topics}

    def pause_partitions(self, partitions: set[TP]) -> None:
        self.calls.append(("pause", partitions))

    def resume_partitions(self, partitions: set[TP]) -> None:
        self.calls.append(("resume", partitions))

    async def seek_wait(self, offsets: dict[TP, int]) -> None:
        self.calls.append(("seek", offsets))


def adapter_of(folder: Path, consumer: FakeConsumer) -> FaustAdapter:
    """Return an adapter of the topic ``visits`` whose app has this consumer."""
    adapter = FaustAdapter(app_in(folder).topic("visits", acks=False).stream())
    adapter.app = SimpleNamespace(consumer=consumer, rebalancing=False, rebalancing_count=1)
    return adapter
