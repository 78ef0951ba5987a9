"""When the held records of a followed file without new data are flushed; the test sets the timer."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from shoal.files.pipe import HoldTimer, OutputWriter, _flush_if_overdue
from shoal.formats import JsonDecoder, JsonEncoder
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.streams import PartitionPipeline, release_strategy

pytestmark = pytest.mark.unit


class Rows:
    """Counts the rows that are written."""

    def __init__(self) -> None:
        self.count = 0

    def write(self, data: bytes) -> None:
        self.count += data.count(b"\n")


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    time = {"s": 1000.0}
    monkeypatch.setattr("shoal.files.pipe.time.monotonic", lambda: time["s"])
    return time


@pytest.mark.parametrize(("people", "released"), [(3, 0), (4, 0), (5, 5), (8, 8)])
def test_fewer_subjects_than_min_population_are_not_flushed(now: dict[str, float], people: int, released: int) -> None:
    document: dict[str, Any] = {
        "attributes": {
            "who": {"role": "identifier", "subject": True},
            "age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True},
        },
        "privacy": {"k": 3, "min_population": 5},
        "stream": {"delta": 10, "max_delay_s": 0.5},
    }
    policy = Policy.from_document(Document.model_validate(document))
    encoder, rows, timer = JsonEncoder(policy), Rows(), HoldTimer(0.5)
    pipeline, writer = (
        PartitionPipeline(policy, encoder),
        OutputWriter(encoder, rows, None, None, "in", release_strategy(policy)),
    )
    block = JsonDecoder(policy).decode([json.dumps({"who": f"p{i}", "age": i}).encode() for i in range(people)])
    assert not pipeline.push(block, np.column_stack([np.zeros_like(block.index), block.index])).clusters
    timer.start(block.index.tolist())
    _flush_if_overdue(pipeline, writer, timer)
    assert rows.count == 0
    now["s"] += 0.25
    timer.start([99])
    now["s"] += 0.25
    _flush_if_overdue(pipeline, writer, timer)
    assert rows.count == released
    assert pipeline.waiting_count == people - released
