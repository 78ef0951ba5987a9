"""Metrics of confidential values: they change with steps of 20 clusters, with three digits, and have no labels."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from shoal.formats import JsonEncoder
from shoal.observability import Metrics
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.streams import PartitionPipeline
from shoal.streams.stats import EMPTY_STATS, ConfidentialStats

pytestmark = pytest.mark.unit

NAMES = (
    *("shoal_confidential_sse_total", "shoal_confidential_sst_total", "shoal_cluster_values_min"),
    *("shoal_cluster_value_share_max", "shoal_cluster_distance_max"),
)


def metrics_of(**privacy: Any) -> Metrics:
    policy = Policy.from_document(
        Document.model_validate(
            {
                "attributes": {
                    "age": {"role": "quasi_identifier", "bounds": [0, 110]},
                    "ward": {"role": "confidential"},
                },
                "subject": "every_record",
                "privacy": {"k": 3, **privacy},
                "stream": {"delta": 10},
            }
        )
    )
    metrics = Metrics()
    metrics.add_partition("in", 0, PartitionPipeline(policy, JsonEncoder(policy)))
    return metrics


def observe(metrics: Metrics, clusters: int, stats: ConfidentialStats) -> None:
    ones = np.full(clusters, 3)
    metrics.observe(replace(EMPTY_STATS, size=ones, subjects=ones), 0.0, np.zeros(0), stats)


def figures(metrics: Metrics) -> list[float | None]:
    return [metrics.registry.get_sample_value(name) for name in NAMES]


def test_figures_are_published_with_every_twentieth_cluster() -> None:
    metrics = metrics_of(l=2)
    observe(metrics, 12, ConfidentialStats(1.23456, 10.0, 3.0, 0.45678, 0.2))
    observe(metrics, 7, ConfidentialStats(2.0, 20.0, 2.0, 0.4, 0.31234))
    before = figures(metrics)
    assert before[:2] == [0.0, 0.0]
    assert all(math.isnan(figure or 0) for figure in before[2:])
    observe(metrics, 1, ConfidentialStats(0.5, 5.0, 4.0, 0.1, 0.0))
    assert figures(metrics) == [3.73, 35.0, 2.0, 0.457, 0.312]


def test_extremes_are_those_of_the_last_step() -> None:
    metrics = metrics_of(l=2)
    observe(metrics, 20, ConfidentialStats(1.0, 4.0, 2.0, 0.6, 0.4))
    observe(metrics, 20, ConfidentialStats(1.0, 4.0, 5.0, 0.3, 0.1))
    assert figures(metrics) == [2.0, 8.0, 5.0, 0.3, 0.1]


def test_what_is_not_measured_stays_undefined() -> None:
    metrics = metrics_of(l=2)
    observe(metrics, 20, ConfidentialStats(fewest_values=2.0, value_share=0.5))
    assert math.isnan(figures(metrics)[4] or 0)


def test_the_metrics_say_whether_the_policy_protects_values() -> None:
    assert metrics_of(l=2).registry.get_sample_value("shoal_protects_values") == 1
    assert metrics_of().registry.get_sample_value("shoal_protects_values") is None


def test_the_metrics_have_no_labels() -> None:
    metrics = metrics_of(max_value_share=0.5)
    observe(metrics, 20, ConfidentialStats(1.0, 4.0, 2.0, 0.6, 0.4))
    samples = [sample for family in metrics.registry.collect() for sample in family.samples]
    found = {sample.name: sample.labels for sample in samples if sample.name in (*NAMES, "shoal_protects_values")}
    assert found == {name: {} for name in (*NAMES, "shoal_protects_values")}
