"""When a followed file that does not grow lets go of what it holds: by a clock that the test turns."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from shoal.files.output_writer import Clock, OutputWriter
from shoal.files.pipe import _let_go
from shoal.pipeline import PartitionPipeline, release_strategy
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.records import JsonDecoder, JsonEncoder

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
    monkeypatch.setattr("shoal.files.output_writer.time.monotonic", lambda: time["s"])
    return time


def test_a_record_is_overdue_as_soon_as_it_has_waited_for_as_long_as_it_may(now: dict[str, float]) -> None:
    clock = Clock(0.5)
    assert not clock.is_overdue()
    clock.read([0])
    now["s"] += 0.25
    clock.read([1])
    assert not clock.is_overdue()
    now["s"] += 0.25
    assert clock.is_overdue()
    assert not Clock(None).is_overdue()


@pytest.mark.parametrize(("people", "leave"), [(3, 0), (4, 0), (5, 5), (8, 8)])
def test_fewer_people_than_are_asked_for_go_on_waiting(now: dict[str, float], people: int, leave: int) -> None:
    document: dict[str, Any] = {
        "attributes": {
            "who": {"role": "identifier", "subject": True},
            "age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True},
        },
        "privacy": {"k": 3, "min_population": 5},
        "stream": {"delta": 10, "max_delay_s": 0.5},
    }
    policy = Policy.from_document(Document.model_validate(document))
    encoder, rows, clock = JsonEncoder(policy), Rows(), Clock(0.5)
    flow, desk = (
        PartitionPipeline(policy, encoder),
        OutputWriter(encoder, rows, None, None, "in", release_strategy(policy)),
    )
    block = JsonDecoder(policy).decode([json.dumps({"who": f"p{i}", "age": i}).encode() for i in range(people)])
    assert not flow.push(block, np.column_stack([np.zeros_like(block.index), block.index])).clusters
    clock.read(block.index.tolist())
    _let_go(flow, desk, clock)
    assert rows.count == 0
    now["s"] += 0.5
    _let_go(flow, desk, clock)
    assert rows.count == leave
    assert flow.held == people - leave
