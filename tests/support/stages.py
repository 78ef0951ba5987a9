"""Workers that are Faust apps with a stage: the deployment of `faulty_workers` with other processes."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from support.faulty_workers import Deployment, Worker, export, judged, leaks
from support.kafka_broker import create_topic, read_all, wait_until

APP = Path(__file__).with_name("stage_app.py")
LONGEST_PAUSE_S = 0.3


@dataclass
class AppWorker(Worker):
    variables: tuple[tuple[str, str], ...] = ()
    starts: list[float] = field(default_factory=list)
    """Times at which it was started (s)."""

    def start(self, *extra: str, **options: Any) -> None:
        self.starts.append(time.time())
        super().start(*extra, **options)

    def command(self, *extra: str, origin: bool = True) -> list[str]:
        assert origin
        return [str(APP), "worker", "-l", "info", "--without-web", *extra]

    def environment(self, die_at: str, instance: str | None = None, patience_s: str = "300") -> dict[str, str]:
        environment = super().environment(die_at, "", patience_s) | dict(self.variables)
        return environment | {
            "STAGE_POLICY": str(self.policy),
            "STAGE_INSTANCE": self.name if instance is None else instance,
        }

    async def until_said(self, words: str, count: int = 1, timeout_s: float = 90) -> None:
        """Wait until its log has these words, at least ``count`` times."""

        def is_said() -> bool:
            assert not self.is_dead, self.said[-3000:]
            return self.said.count(words) >= count

        await wait_until(is_said, timeout_s, f"{count} x {words}")


@dataclass
class AppDeployment(Deployment):
    """Apps that publish their clusters."""

    variables: tuple[tuple[str, str], ...] = (("STAGE_FORM", "to"),)

    def worker(self, name: str) -> AppWorker:
        worker = Deployment.worker(self, name)
        return AppWorker(
            worker.name, worker.policy, worker.bootstrap, worker.log, is_fresh=self.is_fresh, variables=self.variables
        )


@dataclass(frozen=True)
class Repeats:
    """Clusters that were handed over again.

    ``counts`` has their number for each killed worker that had some. ``reach_s`` is the longest time between the
    hand-overs of one worker's clusters of one partition (s), which had waited for their commit. Of a pause between two
    of them, in which the machine may have stood still, `LONGEST_PAUSE_S` counts.
    """

    counts: list[int]
    reach_s: float


@dataclass
class HandedDeployment(AppDeployment):
    """Apps that iterate over clusters and write a note of each processed cluster to a topic."""

    handed: str = ""
    starts: list[float] = field(default_factory=list)
    """Times at which its workers were started (s)."""

    def worker(self, name: str, **variables: str) -> AppWorker:
        worker = super().worker(name)
        worker.starts = self.starts
        worker.variables += tuple(variables.items())
        return worker

    @classmethod
    async def with_notes(cls, bootstrap: str, folder: Path, *, partitions: int, **options: Any) -> Self:
        deployment = await cls.create(bootstrap, folder, partitions=partitions, **options)
        deployment.handed = await create_topic(bootstrap)
        deployment.variables = (("STAGE_FORM", "iterator"), ("STAGE_HANDED", deployment.handed))
        return deployment

    async def notes(self) -> list[dict[str, Any]]:
        return [json.loads(message.value or b"") for message in await self.read(self.handed)]

    async def until_noted(self, count: int, what: str) -> None:
        async def are_noted() -> bool:
            return len(await self.notes()) >= count

        await wait_until(are_noted, 60, what)

    async def repeats(self) -> Repeats:
        """Return how many clusters of each worker were noted again by another."""
        latest: dict[tuple[int, int], tuple[bytes | None, float]] = {}
        bursts: dict[bytes | None, dict[int, list[float]]] = {}
        for message in await read_all(self.bootstrap, self.handed):
            note, at = json.loads(message.value or b""), message.timestamp_ms / 1000
            key = note["partition"], note["number"]
            if key in latest:
                worker, before = latest[key]
                bursts.setdefault(worker, {}).setdefault(note["partition"], []).append(before)
            latest[key] = message.key, at
        counts = sorted(sum(map(len, burst.values())) for burst in bursts.values())
        reaches = [reach_s(times) for burst in bursts.values() for times in burst.values()]
        return Repeats(counts, max(reaches, default=0.0))

    async def resolved(self) -> int:
        quarantine = await self.read(self.topics["quarantine"])
        return sum(len(note["rows"]) for note in distinct(await self.notes())) + len(quarantine)

    async def settled(self, workers: Sequence[Worker]) -> None:
        """Wait until max_delay_s has released all held records, and stop all workers as an operator does."""
        for worker in workers:
            worker.kill()
        last = self.worker("last")
        last.start()
        try:
            await self.wait_for(self.serial)
            assert last.terminate() == 0, last.said[-2000:]
        finally:
            last.kill()


def reach_s(times: Iterable[float]) -> float:
    """Time from the first to the last of these times (s), without long pauses."""
    return sum(min(LONGEST_PAUSE_S, after - before) for before, after in pairwise(sorted(times)))


def distinct(notes: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Drop repeats by partition and number; a repeat that is not the same is an error."""
    first: dict[tuple[int, int], dict[str, Any]] = {}
    for note in notes:
        known = first.setdefault((note["partition"], note["number"]), note)
        assert known == note, "a cluster was handed over again with other content"
    return list(first.values())


async def check_handed(deployment: HandedDeployment) -> tuple[int, int]:
    """Check that each record has exactly one outcome, repeats dropped; return the number of clusters and of repeats."""
    notes = await deployment.notes()
    clusters = distinct(notes)
    read = await deployment.read_topics()
    assert read["output"] == [], "records were published"
    records = {(m.partition, m.offset): json.loads(m.value or b"") for m in read["input"]}
    key_of = {record["serial"]: key for key, record in records.items()}
    members = [[key_of[json.loads(row)["serial"]] for row in note["rows"]] for note in clusters]
    references = [json.loads(message.value or b"") for message in read["quarantine"]]
    outcomes = Counter(key for cluster in members for key in cluster)
    outcomes.update((one["partition"], one["offset"]) for one in references)
    assert len(records) == deployment.serial
    twice, lost = sum(count - 1 for count in outcomes.values()), len(records.keys() - outcomes.keys())
    small = sum(len({records[key]["who"] for key in cluster}) < deployment.k for cluster in members)
    assert (twice, lost, small) == (0, 0, 0)
    assert all(note["rows"] == sorted(note["rows"], key=str.encode) for note in clusters)
    assert await leaks(deployment) == []
    files = export(deployment.folder, read)
    rows = ({"partition": note["partition"], "value": row} for note in clusters for row in note["rows"])
    files["output"].write_text("".join(json.dumps(row) + "\n" for row in rows))
    await asyncio.to_thread(judged, deployment.policy, files)
    return len(clusters), len(notes) - len(clusters)
