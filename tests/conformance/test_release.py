"""Ordered release and release by cluster: the same clusters and rows, for each rule, number of subjects and option."""

from __future__ import annotations

import json
from collections import Counter
from itertools import product
from random import Random

import numpy as np
import pytest
from shoal.formats import JsonDecoder, JsonEncoder
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.streams import DecidedCluster, PartitionPipeline

pytestmark = pytest.mark.conformance

COUNT, DELTA, STEP_MS = 90, 14, 100


def policy_of(release: str, rule: str, position: float, max_delay_s: float | None, *, reveal_order: bool) -> Policy:
    stream = {"delta": DELTA, "rule": rule, "max_delay_s": max_delay_s, "release": release}
    document = {
        "attributes": {
            "person": {"role": "identifier", "subject": True, "type": "integer"},
            "x": {"role": "quasi_identifier", "scale": "numeric", "bounds": [0, 100], "integer": True},
            "y": {"role": "quasi_identifier", "scale": "numeric", "bounds": [-1, 1]},
            "n": {"role": "confidential", "type": "integer"},
        },
        "privacy": {"k": 3},
        "stream": stream | {"reveal_order": reveal_order},
        "steering": {"position": position},
    }
    return Policy.from_document(Document.model_validate(document))


def run_pipeline(
    policy: Policy, records: list[bytes], cuts: list[int]
) -> tuple[list[DecidedCluster], list[tuple[int, bytes]]]:
    """All clusters, and the rows of ordered release with their offsets, in the order of release."""
    pipeline, decoder, clusters, released = (
        PartitionPipeline(policy, JsonEncoder(policy)),
        JsonDecoder(policy),
        list[DecidedCluster](),
        list[tuple[int, bytes]](),
    )
    for start, end in zip([0, *cuts], [*cuts, COUNT], strict=True):
        offsets = np.arange(start, end)
        expiry_keys = np.column_stack([offsets * STEP_MS, offsets])
        outcomes = [pipeline.push(decoder.decode(records[start:end]), expiry_keys)]
        if end == COUNT:
            outcomes.append(pipeline.flush())
        for outcome in outcomes:
            clusters += outcome.clusters
            released += zip(outcome.released, outcome.rows, strict=True)
    summary = pipeline.summary.as_dict(pipeline.waiting_count, 1.0)
    assert summary["held"] == 0
    assert summary["released"] == sum(len(cluster.offsets) for cluster in clusters)
    assert summary["delay"]["max"] <= DELTA
    return clusters, released


@pytest.mark.parametrize(
    ("rule", "people", "position", "max_delay_s"),
    list(product(["nearest", "greedy", "awo", "block"], [COUNT, 12], [0.0, 0.05], [None, 0.8])),
)
def test_ordered_release_gives_the_rows_of_the_same_clusters_in_input_order(
    rule: str, people: int, position: float, max_delay_s: float | None
) -> None:
    random = Random(f"{rule}{people}{position}{max_delay_s}")
    records = [
        json.dumps({"person": i % people, "x": random.randint(0, 100), "y": random.uniform(-1, 1), "n": i}).encode()
        for i in range(COUNT)
    ]
    options = (rule, position, max_delay_s)
    whole, rows_of_whole = run_pipeline(policy_of("cluster", *options, reveal_order=False), records, [40])
    assert rows_of_whole == [
        member for cluster in whole for member in zip(cluster.offsets, cluster.rows, strict=True)
    ], "a cluster was not released as a whole"
    for reveal_order in (False, True):
        policy = policy_of("ordered", *options, reveal_order=reveal_order)
        cuts = sorted(random.sample(range(1, COUNT), 5))
        clusters, released = run_pipeline(policy, records, cuts)
        assert [cluster.offsets for cluster in clusters] == [cluster.offsets for cluster in whole]
        assert [offset for offset, _ in released] == sorted(offset for cluster in whole for offset in cluster.offsets)
        assert Counter(row for _, row in released) == Counter(row for cluster in whole for row in cluster.rows)
        at = dict(released)
        for cluster in clusters:
            rows = [at[offset] for offset in cluster.offsets]
            assert rows == sorted(rows) or reveal_order
            if reveal_order:
                assert [json.loads(row)["n"] for row in rows] == cluster.offsets
