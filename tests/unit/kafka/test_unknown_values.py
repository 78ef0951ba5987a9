"""A partition task counts the values that a taxonomy lacks: once, and never those of one record alone in a metric."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from shoal.formats import Block
from shoal.kafka.transactions import PartitionCounts
from shoal.observability import Metrics
from shoal.policy import Policy, Scale, Taxonomy
from shoal.stage.faust_adapter import BufferedMessage
from shoal.streams import PartitionPipeline
from support.partition_tasks import START_MS, RecordingSink, task_of
from support.scales import AREAS, attribute, policy_with

pytestmark = pytest.mark.unit

HOUR_MS = 3_600_000


def policy(unknown: str = "root") -> Policy:
    areas = attribute("area", Scale.NOMINAL, taxonomy=AREAS, missing="group", unknown=unknown)
    return replace(policy_with(areas, attribute("city", Scale.NOMINAL), k=2, delta=6))


def message(offset: int, area: str | None, timestamp: int = START_MS) -> BufferedMessage:
    return BufferedMessage(offset, timestamp, None, json.dumps({"area": area, "city": "X"}).encode(), ())


def topic(count: int) -> list[BufferedMessage]:
    """Return messages of which every third has an area that the taxonomy lacks, and every fifth none."""
    return [message(i, "ZZ" if i % 3 == 0 else None if i % 5 == 0 else "AK") for i in range(count)]


async def test_unknown_values_are_counted_by_attribute_and_published_in_steps() -> None:
    task, metrics = task_of(policy(), RecordingSink())
    labels = {"attribute": "area", "topic": "t", "partition": "0"}
    await task.process(topic(30))
    await task.commit()
    assert metrics.unknown_totals == {"area": 10}
    assert metrics.registry.get_sample_value("shoal_values_unknown_total", labels) == 0
    await task.process([message(30 + i, "AK") for i in range(60)])
    await task.commit(flush=True)
    assert metrics.unknown_totals == {"area": 10}
    assert metrics.registry.get_sample_value("shoal_values_unknown_total", labels) == 10


async def test_no_value_of_a_refused_record_is_counted() -> None:
    task, metrics = task_of(policy("quarantine"), RecordingSink())
    await task.process(topic(30))
    assert metrics.totals()["in"] == 30
    assert metrics.unknown_totals == {}
    task, metrics = task_of(policy(), RecordingSink())
    await task.process([message(0, "ZZ"), message(1, "ZZ", START_MS + 2 * HOUR_MS), message(2, "AK")])
    assert metrics.unknown_totals == {"area": 1}


@pytest.mark.parametrize("read_before", [10, 17, 29])
async def test_no_value_is_counted_again_after_a_restart(read_before: int) -> None:
    sink = RecordingSink()
    first, before = task_of(policy(), sink)
    await first.process(topic(read_before))
    await first.commit()
    assert sink.published
    second, after = task_of(policy(), sink, sink.published[-1][1])
    second.restore(0)
    assert second.position < read_before
    await second.process([one for one in topic(60) if one.offset >= second.position])
    await second.commit(flush=True)
    assert before.unknown_totals["area"] + after.unknown_totals["area"] == 20


async def test_no_value_is_counted_again_after_a_task_that_failed() -> None:
    counts, metrics = PartitionCounts("t", 0), Metrics()
    for _ in range(2):
        task, _ = task_of(policy(), RecordingSink(), metrics=metrics, counts=counts)
        await task.process(topic(30))
        await task.close(commit=False)
    assert metrics.unknown_totals == {"area": 10}


@pytest.mark.parametrize(("taxonomy", "calls"), [(AREAS, 1), (None, 0)])
async def test_values_are_only_counted_with_a_taxonomy(
    taxonomy: Taxonomy | None, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []

    def count(_: PartitionPipeline, block: Block) -> Counter[str]:
        counted.append(len(block))
        return Counter()

    monkeypatch.setattr(PartitionPipeline, "count_unknown", count)
    areas = attribute("area", Scale.NOMINAL, taxonomy=taxonomy)
    task, _ = task_of(policy_with(areas, attribute("city", Scale.NOMINAL), k=2, delta=6), RecordingSink())
    await task.process([message(0, "AK"), message(1, "AK")])
    assert len(counted) == calls
