"""The pipeline of a partition: its summary equals a plain computation, and blocks do not change decisions."""

from __future__ import annotations

import json
import math
from statistics import fmean, pvariance
from typing import Any

import numpy as np
import pytest
from shoal.errors import GuaranteeError
from shoal.formats import JsonDecoder, JsonEncoder
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.streams import DecidedCluster, PartitionPipeline, precompile

pytestmark = pytest.mark.unit

LARGE_BLOCK_RECORDS = 2048


def make_policy(**more: Any) -> Policy:
    attributes = {
        "who": {"role": "identifier", "subject": True},
        "a": {"role": "quasi_identifier", "bounds": [0, 100], "integer": True},
        "ill": {"role": "confidential"},
        "b": {"role": "quasi_identifier", "bounds": [-1, 1], "resolution": 0.05},
    }
    document = {"attributes": attributes, "privacy": {"k": 4}, "stream": {"delta": 20}, **more}
    return Policy.from_document(Document.model_validate(document))


def records(count: int, people: int = 60) -> list[dict[str, Any]]:
    random = np.random.default_rng(5)
    columns = random.integers(people, size=count), random.integers(0, 101, count), random.uniform(-1, 1, count).round(3)
    drawn = zip(*(column.tolist() for column in columns), strict=True)
    return [{"who": who, "a": a, "ill": number, "b": b} for number, (who, a, b) in enumerate(drawn)]


def lines_of(data: list[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(record).encode() for record in data]


def run(policy: Policy, lines: list[bytes], cut: int) -> tuple[list[DecidedCluster], list[int], PartitionPipeline]:
    pipeline, decoder = PartitionPipeline(policy, JsonEncoder(policy)), JsonDecoder(policy)
    parts = []
    for start in range(0, len(lines), cut):
        block = decoder.decode(lines[start : start + cut])
        offsets = block.index + start
        pipeline.summary.records_in += len(lines[start : start + cut])
        if len(block):
            parts.append(pipeline.push(block, np.column_stack([np.zeros_like(offsets), offsets])))
    parts.append(pipeline.flush())
    clusters = [cluster for part in parts for cluster in part.clusters]
    return clusters, [offset for part in parts for offset in part.suppressed], pipeline


def test_the_summary_equals_a_plain_computation() -> None:
    data = records(400, people=9)
    clusters, suppressed, pipeline = run(make_policy(privacy={"k": 4, "max_share": 0.4}), lines_of(data), 37)
    summary = pipeline.summary.as_dict(pipeline.waiting_count, 2.0)
    pairs = [(data[offset], json.loads(row)) for c in clusters for offset, row in zip(c.offsets, c.rows, strict=True)]
    squared = [((o["a"] - p["a"]) / 100) ** 2 + ((o["b"] - p["b"]) / 2) ** 2 for o, p in pairs]
    assert summary["mse"] == pytest.approx(fmean(squared))
    assert summary["mae"] == pytest.approx(fmean(map(math.sqrt, squared)))
    sse = sum(
        sum((o[name] - p[name]) ** 2 for o, p in pairs) / pvariance([o[name] for o, _ in pairs]) for name in ("a", "b")
    )
    assert summary["sse"] == pytest.approx(sse)
    assert summary["sst"] == 2 * len(pairs)
    assert summary["information_loss"] == pytest.approx(100 * sse / (2 * len(pairs)))
    assert summary["released"] == len(pairs)
    assert summary["released"] + len(suppressed) == summary["records_in"] == 400
    sizes = [len(c.offsets) for c in clusters]
    assert summary["cluster_size"] == {"min": min(sizes), "mean": pytest.approx(fmean(sizes)), "max": max(sizes)}
    assert summary["subjects"]["min"] == min(len({data[p]["who"] for p in c.offsets}) for c in clusters) == 4
    shares = [max(sum(data[p]["who"] == q for p in c.offsets) for q in range(9)) / len(c.offsets) for c in clusters]
    assert summary["share"]["max"] == pytest.approx(max(shares))
    assert max(shares) <= 0.4
    spans = [max(c.offsets) - min(c.offsets) - len(c.offsets) + 1 for c in clusters]
    assert summary["excess_span"] == {"mean": pytest.approx(fmean(spans)), "max": max(spans)}


def test_displacement_compares_the_ranks_in_input_and_output() -> None:
    data = records(200, people=200)
    clusters, suppressed, pipeline = run(make_policy(), lines_of(data), 50)
    assert not suppressed
    released = [offset for cluster in clusters for offset in cluster.offsets]
    moved = [abs(rank - offset) for rank, offset in enumerate(released)]
    assert pipeline.summary.as_dict(0, 1.0)["displacement"] == {"mean": pytest.approx(fmean(moved)), "max": max(moved)}


def test_rows_are_sorted_by_their_bytes_and_numbered_in_order_of_decision() -> None:
    clusters, _, _ = run(make_policy(), lines_of(records(100)), 100)
    assert [cluster.number for cluster in clusters] == list(range(len(clusters)))
    for cluster in clusters:
        assert cluster.rows == sorted(cluster.rows)
        assert {tuple(json.loads(row)) for row in cluster.rows} == {("a", "ill", "b")}


def test_a_block_above_the_limit_is_refused() -> None:
    policy = make_policy()
    block = JsonDecoder(policy).decode(lines_of(records(LARGE_BLOCK_RECORDS + 1)))
    with pytest.raises(GuaranteeError):
        PartitionPipeline(policy, JsonEncoder(policy)).push(block, np.zeros((LARGE_BLOCK_RECORDS + 1, 2), np.int64))


def test_a_summary_without_records_has_null_figures() -> None:
    summary = PartitionPipeline(make_policy(), JsonEncoder(make_policy())).summary.as_dict(0, 0.0)
    assert [summary[name] for name in ("mse", "information_loss", "records_per_s")] == [None] * 3
    assert summary["cluster_size"]["min"] is None


def test_every_policy_can_be_precompiled() -> None:
    precompile(make_policy())
    precompile(make_policy(privacy={"k": 2, "max_share": 1.0}, stream={"delta": 1, "max_delay_s": 3}))
