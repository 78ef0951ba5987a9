"""Whole clusters or one record after the other: rule x people x weight x clock, the same clusters and the same rows."""

from __future__ import annotations

import json
from collections import Counter
from itertools import product
from random import Random

import numpy as np
import pytest
from shoal.pipeline import DecidedCluster, PartitionPipeline
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.records import Encoder, JsonDecoder

pytestmark = pytest.mark.conformance

COUNT, DELTA, STEP_MS = 90, 14, 100


def policy_of(release: str, rule: str, position: float, max_delay_s: float | None, *, reveal_order: bool) -> Policy:
    stream = {"delta": DELTA, "rule": rule, "max_delay_s": max_delay_s, "release": release}
    document = {
        "attributes": {
            "who": {"role": "identifier", "subject": True, "type": "integer"},
            "x": {"role": "quasi_identifier", "scale": "numeric", "bounds": [0, 100], "integer": True},
            "y": {"role": "quasi_identifier", "scale": "numeric", "bounds": [-1, 1]},
            "n": {"role": "confidential", "type": "integer"},
        },
        "privacy": {"k": 3},
        "stream": stream | {"reveal_order": reveal_order},
        "steering": {"position": position},
    }
    return Policy.from_document(Document.model_validate(document))


def let_through(
    policy: Policy, records: list[bytes], cuts: list[int]
) -> tuple[list[DecidedCluster], list[tuple[int, bytes]]]:
    """All clusters, and what left with its place, in the order in which it did."""
    flow, decoder, clusters, left = (
        PartitionPipeline(policy, Encoder(policy)),
        JsonDecoder(policy),
        list[DecidedCluster](),
        list[tuple[int, bytes]](),
    )
    for start, end in zip([0, *cuts], [*cuts, COUNT], strict=True):
        places = np.arange(start, end)
        marks = np.column_stack([places * STEP_MS, places])
        outcomes = [flow.push(decoder.take(records[start:end]), marks)]
        if end == COUNT:
            outcomes.append(flow.flush())
        for outcome in outcomes:
            clusters += outcome.clusters
            left += zip(outcome.released, outcome.rows, strict=True)
    told = flow.summary.as_dict(flow.held, 1.0)
    assert told["held"] == 0
    assert told["released"] == sum(len(cluster.offsets) for cluster in clusters)
    assert told["delay"]["max"] <= DELTA
    return clusters, left


@pytest.mark.parametrize(
    ("rule", "people", "position", "max_delay_s"),
    list(product(["nearest", "greedy", "awo", "block"], [COUNT, 12], [0.0, 0.05], [None, 0.8])),
)
def test_records_leave_in_turn_with_the_rows_of_the_same_clusters(
    rule: str, people: int, position: float, max_delay_s: float | None
) -> None:
    chance = Random(f"{rule}{people}{position}{max_delay_s}")
    records = [
        json.dumps({"who": i % people, "x": chance.randint(0, 100), "y": chance.uniform(-1, 1), "n": i}).encode()
        for i in range(COUNT)
    ]
    options = (rule, position, max_delay_s)
    whole, left_whole = let_through(policy_of("cluster", *options, reveal_order=False), records, [40])
    assert left_whole == [member for cluster in whole for member in zip(cluster.offsets, cluster.rows, strict=True)], (
        "a cluster did not leave as a whole"
    )
    for reveal_order in (False, True):
        policy = policy_of("ordered", *options, reveal_order=reveal_order)
        cuts = sorted(chance.sample(range(1, COUNT), 5))
        clusters, left = let_through(policy, records, cuts)
        assert [cluster.offsets for cluster in clusters] == [cluster.offsets for cluster in whole]
        assert [place for place, _ in left] == sorted(place for cluster in whole for place in cluster.offsets)
        assert Counter(row for _, row in left) == Counter(row for cluster in whole for row in cluster.rows)
        at = dict(left)
        for cluster in clusters:
            rows = [at[place] for place in cluster.offsets]
            assert rows == sorted(rows) or reveal_order
            if reveal_order:
                assert [json.loads(row)["n"] for row in rows] == cluster.offsets
