"""The metrics of a worker, its readiness, and the last lines of its log."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from shoal.formats import JsonEncoder
from shoal.observability import Health, Metrics, log_totals, logger
from shoal.policy import Policy, Scale
from shoal.policy.schema import Document
from shoal.scales.loss import LossTotals
from shoal.streams import PartitionPipeline
from shoal.streams.stats import EMPTY_STATS, NO_CONFIDENTIAL_STATS, ConfidentialStats
from structlog.testing import capture_logs
from support.partition_tasks import START_MS, Message, RecordingSink, task_of
from support.scales import attribute, policy_with

pytestmark = pytest.mark.unit


def policy() -> Policy:
    return policy_with(attribute("city", Scale.NOMINAL), k=2, delta=6)


def assigned(group: str = "") -> Metrics:
    """Return the metrics of a process that was assigned a partition."""
    metrics = Metrics(group)
    metrics.set_policy(policy())
    metrics.add_partition("in", 0, PartitionPipeline(policy(), JsonEncoder(policy())))
    return metrics


def scraped(metrics: Metrics) -> list[Any]:
    text = generate_latest(metrics.registry).decode()
    return [
        one
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if not one.name.endswith("_created")
    ]


# ---------------------------------------------------------------- the group


def test_every_series_has_the_group_if_there_is_one() -> None:
    group = 'a"b\\c\nd'
    samples = scraped(assigned(group))
    assert {one.labels.get("group") for one in samples} == {group}
    names = {one.name for one in samples}
    assert names >= {"shoal_delay_seconds_bucket", "shoal_build_info", "process_start_time_seconds", "shoal_ready"}
    assert not [one for one in scraped(assigned()) if "group" in one.labels]


# ---------------------------------------------------------------- counters of a partition


def test_counters_of_a_partition_are_0_from_its_assignment_on() -> None:
    found = {
        (one.name, one.labels.get("outcome", ""), one.labels.get("reason", "")): one.value
        for one in scraped(assigned())
        if one.labels.get("partition") == "0"
    }
    outcomes = [("in", ""), ("released", ""), ("suppressed", "suppressed"), ("dropped", "deletes")]
    outcomes += [("dropped", "tombstones"), ("dropped", "skip")]
    outcomes += [("quarantined", reason) for reason in ("undecodable", "invalid", "too_large")]
    others = ["clusters_released", "values_clipped", "clusters_early", "records_skipped", "records_dated_ahead"]
    others += ["published_offsets_lost", "policy_changes"]
    counters = [("shoal_records_total", *one) for one in outcomes] + [(f"shoal_{one}_total", "", "") for one in others]
    assert found == dict.fromkeys(counters, 0)


def test_a_partition_that_comes_back_keeps_its_counts() -> None:
    metrics = assigned()
    metrics.early.labels("in", 0).inc(3)
    metrics.add_partition("in", 0, PartitionPipeline(policy(), JsonEncoder(policy())))
    assert metrics.registry.get_sample_value("shoal_clusters_early_total", {"topic": "in", "partition": "0"}) == 3


# ---------------------------------------------------------------- the oldest held record


def oldest(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("shoal_oldest_held_seconds", {"topic": "in", "partition": "0"})


def test_the_time_of_the_oldest_record_is_rounded_down_to_1_2_or_5_times_a_power_of_ten() -> None:
    metrics, held_s = assigned(), list[float | None]()
    metrics.watch_oldest_held("in", 0, lambda: held_s[-1])
    for of_now, seconds in ((-5.0, 0), (0.9, 0), (1.9, 1), (2.0, 2), (9.9, 5), (10.0, 10), (999.0, 500), (None, 0)):
        held_s.append(of_now)
        assert oldest(metrics) == seconds, of_now


# ---------------------------------------------------------------- figures of steps of 20 clusters


def observe(
    metrics: Metrics,
    clusters: int,
    stats: ConfidentialStats = NO_CONFIDENTIAL_STATS,
    losses: LossTotals | None = None,
    partition: tuple[str, int] = ("in", 0),
) -> None:
    ones = np.full(clusters, 3)
    of_clusters = replace(EMPTY_STATS, size=ones, subjects=ones)
    metrics.observe(of_clusters, 0.0, np.zeros(0), stats, losses, partition)


NAMES = (
    *("shoal_confidential_sse_total", "shoal_confidential_sst_total", "shoal_cluster_values_min"),
    *("shoal_cluster_value_share_max", "shoal_cluster_distance_max"),
)


def metrics_of(**privacy: Any) -> Metrics:
    attributes = {"age": {"role": "quasi_identifier", "bounds": [0, 110]}, "ward": {"role": "confidential"}}
    document = {"attributes": attributes, "subject": "every_record", "privacy": {"k": 3, **privacy}}
    policy = Policy.from_document(Document.model_validate(document | {"stream": {"delta": 10}}))
    metrics = Metrics()
    metrics.add_partition("in", 0, PartitionPipeline(policy, JsonEncoder(policy)))
    return metrics


def figures(metrics: Metrics) -> list[float | None]:
    return [metrics.registry.get_sample_value(name) for name in NAMES]


def test_figures_are_published_with_every_twentieth_cluster() -> None:
    metrics = metrics_of(l=2)
    assert metrics.registry.get_sample_value("shoal_protects_values") == 1
    assert metrics_of().registry.get_sample_value("shoal_protects_values") is None
    observe(metrics, 12, ConfidentialStats(1.23456, 10.0, 3.0, 0.45678, 0.2))
    observe(metrics, 7, ConfidentialStats(2.0, 20.0, 2.0, 0.4, 0.31234))
    before = figures(metrics)
    assert before[:2] == [0.0, 0.0]
    assert all(math.isnan(figure or 0) for figure in before[2:])
    observe(metrics, 1, ConfidentialStats(0.5, 5.0, 4.0, 0.1, 0.0))
    assert figures(metrics) == [3.73, 35.0, 2.0, 0.457, 0.312]


def test_extremes_are_those_of_the_last_step_and_undefined_if_not_measured() -> None:
    metrics = metrics_of(l=2)
    observe(metrics, 20, ConfidentialStats(1.0, 4.0, 2.0, 0.6))
    assert math.isnan(figures(metrics)[4] or 0)
    observe(metrics, 20, ConfidentialStats(1.0, 4.0, 5.0, 0.3, 0.1))
    assert figures(metrics) == [2.0, 8.0, 5.0, 0.3, 0.1]


# ---------------------------------------------------------------- the loss of each attribute

AGE, SHOP, AT = attribute("age", Scale.NUMERIC), attribute("shop", Scale.NOMINAL), attribute("at", Scale.TIME)
ATTRIBUTES = (AGE, SHOP, AT)


def losses_of(rows: Sequence[tuple[float, float, float]], error: float, windows: Sequence[int]) -> LossTotals:
    """Return the sums of records that are published with this error, and this distance of categories."""
    values = np.array(rows, float)
    return LossTotals.of(ATTRIBUTES, values, values + error, np.full_like(values, error), np.array(windows))


def shown(metrics: Metrics) -> dict[str, float]:
    families = [family for family in metrics.registry.collect() if family.name == "shoal_attribute_loss"]
    return {sample.labels["attribute"]: sample.value for family in families for sample in family.samples}


EARLY, LATE = [(10.0, 1.0, 5000.0), (20.0, 2.0, 5010.0)], [(50.0, 1.0, 9000.0), (70.0, 1.0, 9010.0)]


def test_losses_are_those_of_the_last_step() -> None:
    metrics = Metrics()
    observe(metrics, 19, losses=losses_of(EARLY, 1.0, [0, 0]))
    assert shown(metrics) == {}
    observe(metrics, 1)
    assert shown(metrics) == {"age": 0.04, "shop": 1.0, "at": 0.04}
    observe(metrics, 20, losses=losses_of(LATE, 0.5, [1, 1]))
    assert shown(metrics) == {"age": 0.0025, "shop": 0.5, "at": 0.01}
    observe(metrics, 20)
    observe(metrics, 20, losses=losses_of([(5.0, 1.0, 9000.0)] * 2, 0.25, [2, 2]))
    assert shown(metrics) == {"age": 0.0025, "shop": 0.25, "at": 0.01}, "equal values have no loss, and change nothing"


def test_windows_of_different_partitions_are_different() -> None:
    metrics = Metrics()
    observe(metrics, 5, losses=losses_of(EARLY[:1], 1.0, [7]), partition=("in", 0))
    observe(metrics, 5, losses=losses_of(LATE[:1], 1.0, [7]), partition=("in", 1))
    observe(metrics, 5, losses=losses_of(EARLY[1:], 1.0, [7]), partition=("in", 0))
    observe(metrics, 5, losses=losses_of(LATE[1:], 1.0, [7]), partition=("in", 1))
    assert shown(metrics)["at"] == 0.04


def test_losses_end_with_the_last_partition_and_other_gauges_with_their_own() -> None:
    metrics, policy = Metrics(), policy_with(*ATTRIBUTES)
    for partition in (0, 1):
        metrics.add_partition("in", partition, PartitionPipeline(policy, JsonEncoder(policy)))
        metrics.watch_oldest_held("in", partition, lambda: None)
        metrics.held.labels("in", partition).set(1)
    observe(metrics, 20, losses=losses_of(EARLY, 1.0, [0, 0]))
    metrics.remove_partition("in", 0)
    assert shown(metrics) != {}
    metrics.remove_partition("in", 1)
    assert shown(metrics) == {}, "a worker without partitions says nothing of clusters that others release now"
    left = {one.name for one in scraped(metrics) if "partition" in one.labels}
    assert not left & {"shoal_oldest_held_seconds", "shoal_records_held"}
    assert "shoal_records_total" in left


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


# ---------------------------------------------------------------- the last lines of the log


def logged(
    *counts: tuple[str, str, int], limits: Sequence[str] = (), unknown: Sequence[dict[str, int]] = ()
) -> list[tuple[str, dict[str, Any]]]:
    """Return what is logged after these counts, which are topic, outcome, records; and unknown values of partitions."""
    metrics = Metrics()
    for topic, outcome, count in counts:
        metrics.records.labels(outcome, "", topic, 0).inc(count - count // 2)
        metrics.records.labels(outcome, "", topic, 1).inc(count // 2)
    for partition, of_partition in enumerate(unknown):
        metrics.count_unknown("a", partition, of_partition)
    metrics.held_at_close = 5
    with capture_logs() as lines:
        log_totals(logger("test"), metrics, limits)
    return [(str(line.pop("event")), {name: line[name] for name in line if name != "log_level"}) for line in lines]


STOPPED = {"suppressed": 0, "quarantined": 0, "held": 5}


def test_inputs_of_which_nothing_was_released_and_unknown_values_are_reported() -> None:
    assert logged(("a", "in", 6)) == [
        ("nothing was released", {"records_in": 6, "held": 5}),
        ("stopped", {"in": 6, "released": 0} | STOPPED),
    ]
    assert logged(unknown=[{"job": 3, "area": 1}, {"job": 2}]) == [
        ("stopped", {"in": 0, "released": 0, "not_in_taxonomy": {"job": 5, "area": 1}} | STOPPED)
    ]
    assert logged(("b", "in", 6), ("a", "in", 8), ("a", "released", 8), ("c", "released", 2)) == [
        ("nothing was released", {"topic": "b", "records_in": 6}),
        ("stopped", {"in": 14, "released": 10} | STOPPED),
    ]


@pytest.mark.parametrize(
    ("read", "suppressed", "limits", "warns"),
    [
        (50, 6, ["privacy.l"], True),
        (50, 5, ["privacy.l"], False),
        (50, 6, [], False),
        (0, 1, ["privacy.l"], False),  # an earlier process has read them
    ],
)
def test_many_suppressed_records_under_limits_of_values_are_reported(
    read: int, suppressed: int, limits: list[str], *, warns: bool
) -> None:
    counts = (("a", "in", read), ("a", "released", 50 - suppressed), ("a", "suppressed", suppressed))
    found = logged(*counts, limits=limits)
    warning = (
        "the release is not representative of the input: suppressed records mostly have frequent values",
        {"records_in": 50, "suppressed": 6, "under": "privacy.l"},
    )
    assert [line for line in found if line[0] != "stopped"] == ([warning] if warns else [])


# ---------------------------------------------------------------- readiness


@pytest.mark.parametrize(
    ("health", "status"),
    [
        (Health(joined=True, broker_reached=True), "ready"),
        (Health(joined=True, broker_reached=True, unassigned=True), "ready: in the group, no partition assigned"),
        (Health(broker_reached=True), "not ready: not a member of the group yet"),
        (
            Health(joined=True, broker_reached=True, leaders_away=True),
            "not ready: no leader of its partitions answers",
        ),
        (Health(joined=True, unassigned=True), "not ready: broker not reached"),
        (
            Health(joined=True, broker_reached=True, restoring={("visits", 2)}),
            "not ready: partitions are being restored",
        ),
    ],
)
def test_the_status_says_whether_a_worker_is_ready_and_why_not(health: Health, status: str) -> None:
    assert health.status == status
    assert health.ready == status.startswith("ready")
