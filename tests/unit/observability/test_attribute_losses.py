"""The metric of the loss of each attribute: of the clusters of the last step, with three digits, without values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from shoal.formats import JsonEncoder
from shoal.observability import Metrics
from shoal.policy import Scale
from shoal.scales.loss import LossTotals
from shoal.streams import PartitionPipeline
from shoal.streams.stats import EMPTY_STATS
from support.messages import Message
from support.partition_tasks import START_MS, RecordingSink, task_of
from support.scales import attribute, policy_with

pytestmark = pytest.mark.unit

AGE, SHOP, AT = attribute("age", Scale.NUMERIC), attribute("shop", Scale.NOMINAL), attribute("at", Scale.TIME)
ATTRIBUTES = (AGE, SHOP, AT)


def losses_of(rows: Sequence[tuple[float, float, float]], error: float, windows: Sequence[int]) -> LossTotals:
    """Return the sums of records that are published with this error, and this distance of categories."""
    values = np.array(rows, float)
    return LossTotals.of(ATTRIBUTES, values, values + error, np.full_like(values, error), np.array(windows))


def observe(metrics: Metrics, clusters: int, losses: LossTotals | None, partition: tuple[str, int] = ("in", 0)) -> None:
    ones = np.full(clusters, 3)
    stats = replace(EMPTY_STATS, size=ones, subjects=ones)
    metrics.observe(stats, 0.0, np.zeros(0), losses=losses, partition=partition)


def shown(metrics: Metrics) -> dict[str, float]:
    families = [family for family in metrics.registry.collect() if family.name == "shoal_attribute_loss"]
    return {sample.labels["attribute"]: sample.value for family in families for sample in family.samples}


EARLY, LATE = [(10.0, 1.0, 5000.0), (20.0, 2.0, 5010.0)], [(50.0, 1.0, 9000.0), (70.0, 1.0, 9010.0)]


def test_losses_are_published_with_every_twentieth_cluster() -> None:
    metrics = Metrics()
    observe(metrics, 12, losses_of(EARLY, 1.0, [0, 0]))
    observe(metrics, 7, None)
    assert shown(metrics) == {}
    observe(metrics, 1, losses_of(LATE, 3.0, [1, 1]))
    # Squared errors of 20. Of ages 2275 in total, of times 100 in two windows.
    assert shown(metrics) == {"age": 0.00879, "shop": 2.0, "at": 0.2}


def test_losses_are_those_of_the_last_step() -> None:
    metrics = Metrics()
    observe(metrics, 20, losses_of(EARLY, 1.0, [0, 0]))
    assert shown(metrics) == {"age": 0.04, "shop": 1.0, "at": 0.04}
    observe(metrics, 20, losses_of(LATE, 0.5, [1, 1]))
    assert shown(metrics) == {"age": 0.0025, "shop": 0.5, "at": 0.01}
    observe(metrics, 20, None)
    observe(metrics, 20, losses_of([(5.0, 1.0, 9000.0)] * 2, 0.25, [2, 2]))
    assert shown(metrics) == {"age": 0.0025, "shop": 0.25, "at": 0.01}, "equal values have no loss, and change nothing"


def test_windows_of_different_partitions_are_different() -> None:
    metrics = Metrics()
    observe(metrics, 5, losses_of(EARLY[:1], 1.0, [7]), ("in", 0))
    observe(metrics, 5, losses_of(LATE[:1], 1.0, [7]), ("in", 1))
    observe(metrics, 5, losses_of(EARLY[1:], 1.0, [7]), ("in", 0))
    observe(metrics, 5, losses_of(LATE[1:], 1.0, [7]), ("in", 1))
    assert shown(metrics)["at"] == 0.04


def test_the_series_end_with_the_last_partition() -> None:
    metrics, policy = Metrics(), policy_with(*ATTRIBUTES)
    for partition in (0, 1):
        metrics.add_partition("in", partition, PartitionPipeline(policy, JsonEncoder(policy)))
    observe(metrics, 20, losses_of(EARLY, 1.0, [0, 0]))
    metrics.remove_partition("in", 0)
    assert shown(metrics) != {}
    metrics.remove_partition("in", 1)
    assert shown(metrics) == {}, "a worker without partitions says nothing of clusters that others release now"


@pytest.mark.parametrize("release", ["cluster", "ordered"])
async def test_committed_clusters_of_a_partition_are_measured(release: str) -> None:
    shop = attribute("shop", Scale.NOMINAL)
    age = attribute("age", Scale.NUMERIC, bounds=(0.0, 100.0), integer=True, weight=0.001)
    policy = policy_with(age, shop, k=2, stream={"delta": 6, "release": release})
    task, metrics = task_of(policy, RecordingSink())

    def message(n: int, **record: Any) -> Message:
        return Message(n, START_MS + n, json.dumps(record).encode())

    await task.process([message(n, age=n * 37 % 100, shop=f"s{n // 3 % 2}") for n in range(300)])
    assert shown(metrics) == {}, "nothing is committed"
    await task.commit(flush=True)
    found = shown(metrics)
    assert list(found) == ["age", "shop"]
    assert found["shop"] == 0.0
    assert 0.1 < found["age"] < 1.5
    assert found["age"] == float(f"{found['age']:.3g}")
