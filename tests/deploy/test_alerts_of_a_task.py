"""Alerts over the metrics that a real partition task exports."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client.exposition import generate_latest
from shoal.formats import JsonDecoder
from shoal.kafka.metadata import CommittedState
from shoal.kafka.offsets import OffsetState
from shoal.observability import Metrics
from shoal.policy import Policy
from shoal.policy.schema import Document
from support.alert_cases import Case, assert_fires, scraped_series
from support.partition_tasks import Message, RecordingSink, partition_task

pytestmark = pytest.mark.deploy_tools

POLICY = {
    "attributes": {
        "who": {"role": "identifier", "subject": True},
        "age": {"role": "quasi_identifier", "scale": "numeric", "bounds": [0, 110], "integer": True},
    },
    "privacy": {"k": 3, "per_subject": {"max": 1, "window": 12_000}},
    "stream": {"delta": 20},
}


class RealWorker:
    """The metrics of a partition task; its clock, which they use, begins at 0 and is moved by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, minute: int) -> None:
        self.minute = minute
        self.started_s = 60.0 * minute - 5
        monkeypatch.setattr("time.time", self.now)
        self.metrics, self.next_offset = Metrics("visits"), 0
        policy = Policy.from_document(Document.model_validate(POLICY))
        self.metrics.set_policy(policy)
        self.metrics.ready.set(1)
        commit = CommittedState(OffsetState(committed_offset=0, next_offset=0), policy.fingerprint, 1)
        decoder = JsonDecoder(policy)
        self.task = partition_task(
            "t", 0, policy, decoder, RecordingSink(), commit, self.metrics, 0.2, self.now, monotonic_clock=self.now
        )
        self.metrics.watch_oldest_held("t", 0, lambda: self.task.oldest_held_s)

    def now(self) -> float:
        return 60.0 * self.minute

    async def read(self, count: int, people: int) -> None:
        """Read records of these people, each as often, and commit what is decided."""
        records = [{"who": number % people, "age": number * 31 % 111} for number in range(count)]
        messages = [
            Message(self.next_offset + number, 60_000 * self.minute, json.dumps(record).encode())
            for number, record in enumerate(records)
        ]
        self.next_offset += count
        await self.task.process(messages)
        await self.task.commit()
        self.metrics.lag.labels("t", 0).set(0)
        self.metrics.held.labels("t", 0).set(self.task.waiting_count)

    def scrape(self) -> str:
        started = f'process_start_time_seconds{{group="visits"}} {self.started_s}'
        text = generate_latest(self.metrics.registry).decode()
        return re.sub(r"^process_start_time_seconds\{.*$", started, text, flags=re.MULTILINE)


async def test_half_of_the_first_commit_of_a_task_is_suppressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = RealWorker(monkeypatch, 90)
    await worker.read(10_000, people=5000)
    assert worker.metrics.totals()["suppressed"] == 5000
    series = scraped_series({90: worker.scrape()}) | clock_of(90)
    assert_fires(Case(series, {96: "ShoalSuppressing"}), tmp_path)


async def test_records_of_a_task_are_held_on_a_quiet_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, scrapes = RealWorker(monkeypatch, 90), {}
    await worker.read(500, people=500)
    for worker.minute in range(90, 150):
        scrapes[worker.minute] = worker.scrape()
    series = scraped_series(scrapes) | clock_of(90)
    assert_fires(Case(series, {110: "", 124: "ShoalHeldLong"}), tmp_path)


def clock_of(minute: int) -> dict[str, str]:
    """Return the clock of a worker that is scraped from this minute on: the scrapes stand for several minutes."""
    labels = 'job="shoal",instance="w1:9464",group="visits"'
    return {f"shoal_clock_timestamp_seconds{{{labels}}}": f"_x{minute} {60 * minute}+60x120"}
