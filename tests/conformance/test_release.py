"""Ordered release and release by cluster: the same clusters and rows, for each rule, number of subjects and option."""

from __future__ import annotations

import json
from collections import Counter
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from shoal.formats import JsonDecoder, JsonEncoder
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.streams import DecidedCluster, PartitionPipeline

pytestmark = pytest.mark.conformance

COUNT = 90


def released(
    stream: dict[str, Any], position: float, records: list[bytes], cut: int
) -> tuple[list[DecidedCluster], list[tuple[int, bytes]]]:
    """All clusters, and the rows with their offsets, in the order of release."""
    document = {
        "attributes": {
            "person": {"role": "identifier", "subject": True, "type": "integer"},
            "x": {"role": "quasi_identifier", "scale": "numeric", "bounds": [0, 100], "integer": True},
            "y": {"role": "quasi_identifier", "scale": "numeric", "bounds": [-1, 1]},
            "n": {"role": "confidential", "type": "integer"},
        },
        "privacy": {"k": 3},
        "stream": {"delta": 14} | stream,
        "steering": {"position": position},
    }
    policy = Policy.from_document(Document.model_validate(document))
    pipeline, decoder, outcomes = PartitionPipeline(policy, JsonEncoder(policy)), JsonDecoder(policy), []
    for start, end in ((0, cut), (cut, COUNT)):
        offsets = np.arange(start, end)
        outcomes.append(pipeline.push(decoder.decode(records[start:end]), np.column_stack([offsets * 100, offsets])))
    outcomes.append(pipeline.flush())
    rows = [row for outcome in outcomes for row in zip(outcome.released, outcome.rows, strict=True)]
    return [cluster for outcome in outcomes for cluster in outcome.clusters], rows


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
    stream = {"rule": rule, "max_delay_s": max_delay_s}
    whole, rows = released(stream | {"release": "cluster"}, position, records, 40)
    assert rows == [member for cluster in whole for member in zip(cluster.offsets, cluster.rows, strict=True)]
    ordered = stream | {"release": "ordered", "reveal_order": True}
    clusters, in_order = released(ordered, position, records, random.randint(1, 89))
    assert [cluster.offsets for cluster in clusters] == [cluster.offsets for cluster in whole]
    assert [offset for offset, _ in in_order] == sorted(offset for offset, _ in rows)
    assert Counter(row for _, row in in_order) == Counter(row for _, row in rows)
