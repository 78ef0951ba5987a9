"""Records that leave one by one: each at its own expiry, in the order of the input, whatever the blocks are."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.errors import GuaranteeError
from shoal.pipeline import BlockDecisions, ClusterRestorer, PartitionPipeline, PendingRow
from shoal.pipeline.reorder_buffer import ReorderBuffer
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.records import JsonDecoder, JsonEncoder

pytestmark = pytest.mark.unit


def policy_of(*, release: str = "ordered", k: int = 2, delta: int = 4, **stream: object) -> Policy:
    document = {
        "attributes": {
            "x": {"role": "quasi_identifier", "scale": "numeric", "bounds": [0, 100]},
            "n": {"role": "confidential", "type": "integer"},
        },
        "subject": "every_record",
        "privacy": {"k": k},
        "stream": {"delta": delta, "release": release, "rule": "nearest", **stream},
    }
    return Policy.from_document(Document.model_validate(document))


class Run:
    """A flow and its decoder, which numbers people: every record is one."""

    def __init__(self, policy: Policy, *, clusters: int = 0, reunion: ClusterRestorer | None = None) -> None:
        self.flow = PartitionPipeline(policy, JsonEncoder(policy), clusters=clusters, reunion=reunion)
        self._decoder = JsonDecoder(policy)

    def push(self, values: list[int], start: int = 0, fresh: list[bool] | None = None) -> list[PendingRow]:
        block = self._decoder.decode([json.dumps({"x": x, "n": 99 - x}).encode() for x in values])
        marks = np.column_stack([np.zeros(len(values), np.int64), np.arange(start, start + len(values))])
        return _left(self.flow.push(block, marks, None if fresh is None else np.array(fresh)))

    def flush(self) -> list[PendingRow]:
        return _left(self.flow.flush())


def _left(decisions: BlockDecisions) -> list[PendingRow]:
    return list(map(PendingRow, decisions.released, decisions.rows))


def test_each_record_waits_for_delta_and_leaves_where_it_stood() -> None:
    policy = policy_of()
    run = Run(policy)
    left = [run.push([x], place) for place, x in enumerate([0, 50, 1, 51, 90, 91, 3, 4])]
    assert [[slot.place for slot in slots] for slots in left] == [[], [], [], [], [0], [1], [2], [3]]
    assert run.flow.accounts.released == 4
    assert run.flow.held == 4
    assert [slot.place for slot in run.flush()] == [4, 5, 6, 7]
    told = run.flow.accounts.summary(run.flow.held, 1.0)
    assert (told["released"], told["held"]) == (8, 0)
    assert told["displacement"] == {"mean": 0.0, "max": 0}
    assert told["delay"]["max"] == 4


def test_other_fields_are_dealt_in_byte_order_unless_the_order_is_revealed() -> None:
    rows = {}
    for reveal in (False, True):
        policy = policy_of(reveal_order=reveal)
        run = Run(policy)
        values = [0, 50, 1, 51]
        slots = run.push(values) + run.flush()
        rows[reveal] = [json.loads(slot.row) for slot in slots]
        assert [row["n"] for row in rows[reveal]] == ([99, 49, 98, 48] if reveal else [98, 48, 99, 49])
    assert [row["x"] for row in rows[False]] == [row["x"] for row in rows[True]] == [0.5, 50.5, 0.5, 50.5]


def test_clusters_are_those_of_whole_release_and_lose_as_much() -> None:
    values = np.random.default_rng(5).integers(0, 100, 300).tolist()
    told = {}
    for release in ("cluster", "ordered"):
        policy = policy_of(release=release, k=3, delta=20)
        run = Run(policy)
        run.push(values)
        run.flush()
        told[release] = run.flow.accounts.summary(run.flow.held, 1.0)
    same = ("mse", "mae", "sse", "sst", "clusters", "cluster_size", "excess_span", "released")
    assert {name: told["cluster"][name] for name in same} == {name: told["ordered"][name] for name in same}
    assert told["cluster"]["displacement"]["max"] > 5


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), min_size=1, max_size=40), st.data())
def test_what_is_due_is_what_one_record_after_the_other_would_show(
    steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    delta, reach = data.draw(st.integers(1, 8)), (data.draw(st.integers(0, 6)), data.draw(st.integers(1, 12)))
    marks = np.cumsum(np.array(steps), axis=0)
    count = len(steps)
    found: list[tuple[int, int]] = []
    wanted: list[tuple[int, int]] = []
    slots, waiting, place = ReorderBuffer(delta, reach), list(range(count)), 0
    while place < count:
        end = data.draw(st.integers(place + 1, count))
        block = np.arange(place, end)
        slots.put(block, marks[block], [PendingRow(int(one), b"") for one in block])
        departed = slots.due(block, marks[block], count)
        found += zip([slot.place for slot in departed.slots], departed.delays.tolist(), strict=True)
        place = end
    for newest in range(count):
        for one in list(waiting):
            is_far = (marks[newest] - marks[one] > np.array(reach)).any() or newest - one >= delta
            if one <= newest and is_far:
                waiting.remove(one)
                wanted.append((one, newest - one))
    assert found == wanted
    assert [slot.place for slot in slots.all(count).slots] == waiting


def test_nothing_leaves_before_one_that_is_not_decided_on() -> None:
    slots = ReorderBuffer(2, ())
    slots.put(np.array([3, 1]), np.zeros((2, 0), np.int64), [PendingRow(3, b""), PendingRow(1, b"")])
    arrived = np.array([9]), np.zeros((1, 0), np.int64)
    assert [slot.place for slot in slots.due(*arrived, 2).slots] == [1]
    assert [slot.place for slot in slots.due(*arrived, 9).slots] == [3]


def test_a_cluster_of_which_a_part_has_left_is_completed_with_the_same_rows() -> None:
    policy = policy_of()
    values = [0, 50, 1, 51, 90]
    first = Run(policy)
    assert [slot.place for slot in first.push(values)] == [0]
    wanted = first.push([91, 3], 5)
    again = Run(policy, clusters=first.flow.clusters, reunion=ClusterRestorer([(0, 2)], 1))
    fresh = [False, True, False, True, True]
    assert again.push(values, fresh=fresh) == []
    assert again.push([91, 3], 5) == wanted
    assert [slot.place for slot in wanted] == [1, 2]


def test_a_cluster_that_left_in_part_is_not_completed_under_a_policy_of_whole_clusters() -> None:
    policy = policy_of(release="cluster")
    with pytest.raises(GuaranteeError, match="leave as a whole"):
        Run(policy, reunion=ClusterRestorer([(0, 1)], 1))
