"""Ordered release: each record is released when it expires, in the order of the input, whatever the blocks are."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.errors import GuaranteeError
from shoal.formats import JsonDecoder, JsonEncoder
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.streams import BlockDecisions, ClusterRestorer, PartitionPipeline, PendingRow
from shoal.streams.release import ReorderBuffer

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
    """A pipeline and its decoder; every record is a subject of its own."""

    def __init__(self, policy: Policy, *, clusters: int = 0, restorer: ClusterRestorer | None = None) -> None:
        self.pipeline = PartitionPipeline(policy, JsonEncoder(policy), next_cluster_number=clusters, restorer=restorer)
        self._decoder = JsonDecoder(policy)

    def push(self, values: list[int], start: int = 0, is_undecided: list[bool] | None = None) -> list[PendingRow]:
        block = self._decoder.decode([json.dumps({"x": x, "n": 99 - x}).encode() for x in values])
        expiry_keys = np.column_stack([np.zeros(len(values), np.int64), np.arange(start, start + len(values))])
        return _released(
            self.pipeline.push(block, expiry_keys, None if is_undecided is None else np.array(is_undecided))
        )

    def flush(self) -> list[PendingRow]:
        return _released(self.pipeline.flush())


def _released(decisions: BlockDecisions) -> list[PendingRow]:
    return list(map(PendingRow, decisions.released, decisions.rows))


@pytest.mark.parametrize(("reveal", "unchanged"), [(False, [98, 48, 99, 49]), (True, [99, 49, 98, 48])])
def test_unchanged_fields_are_in_byte_order_unless_the_order_is_revealed(reveal: bool, unchanged: list[int]) -> None:  # noqa: FBT001
    run = Run(policy_of(reveal_order=reveal))
    rows = [json.loads(row.row) for row in run.push([0, 50, 1, 51]) + run.flush()]
    assert [row["n"] for row in rows] == unchanged
    assert [row["x"] for row in rows] == [0.5, 50.5, 0.5, 50.5]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), min_size=1, max_size=40), st.data())
def test_due_rows_equal_those_of_a_record_by_record_computation(
    steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    delta, limits = data.draw(st.integers(1, 8)), (data.draw(st.integers(0, 6)), data.draw(st.integers(1, 12)))
    expiry_keys = np.cumsum(np.array(steps), axis=0)
    count = len(steps)
    found: list[tuple[int, int]] = []
    wanted: list[tuple[int, int]] = []
    buffer, waiting, start = ReorderBuffer(delta, limits), list(range(count)), 0
    while start < count:
        end = data.draw(st.integers(start + 1, count))
        block = np.arange(start, end)
        buffer.add(block, expiry_keys[block], [PendingRow(int(one), b"") for one in block])
        due = buffer.pop_due(block, expiry_keys[block], count)
        found += zip([row.offset for row in due.rows], due.delays.tolist(), strict=True)
        start = end
    for newest in range(count):
        for one in list(waiting):
            is_far = (expiry_keys[newest] - expiry_keys[one] > np.array(limits)).any() or newest - one >= delta
            if one <= newest and is_far:
                waiting.remove(one)
                wanted.append((one, newest - one))
    assert found == wanted
    assert [row.offset for row in buffer.pop_all(count).rows] == waiting


def test_no_row_is_due_before_an_undecided_record() -> None:
    buffer = ReorderBuffer(2, ())
    buffer.add(np.array([3, 1]), np.zeros((2, 0), np.int64), [PendingRow(3, b""), PendingRow(1, b"")])
    arrived = np.array([9]), np.zeros((1, 0), np.int64)
    assert [row.offset for row in buffer.pop_due(*arrived, 2).rows] == [1]
    assert [row.offset for row in buffer.pop_due(*arrived, 9).rows] == [3]


def test_a_partly_released_cluster_is_restored_with_the_same_rows() -> None:
    policy = policy_of()
    values = [0, 50, 1, 51, 90]
    first = Run(policy)
    assert [row.offset for row in first.push(values)] == [0]
    wanted = first.push([91, 3], 5)
    again = Run(policy, clusters=first.pipeline.next_cluster_number, restorer=ClusterRestorer([(0, 2)], 1))
    is_undecided = [False, True, False, True, True]
    assert again.push(values, is_undecided=is_undecided) == []
    assert again.push([91, 3], 5) == wanted
    assert [row.offset for row in wanted] == [1, 2]


def test_a_partly_released_cluster_is_refused_by_whole_release() -> None:
    policy = policy_of(release="cluster")
    with pytest.raises(GuaranteeError, match=r"stream\.release is cluster"):
        Run(policy, restorer=ClusterRestorer([(0, 1)], 1))
