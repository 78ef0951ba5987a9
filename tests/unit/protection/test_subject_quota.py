"""The quota of records per subject: the first records of each window are accepted, wherever reading begins."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.formats import Block, Reason
from shoal.policy import PerSubject
from shoal.protection.quota import SubjectQuota

pytestmark = pytest.mark.unit


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3)), max_size=60),
    st.integers(1, 3),
    st.integers(2, 12),
    st.integers(1, 9),
)
def test_blocks_and_restarts_at_a_window_do_not_change_the_decisions(
    records: list[tuple[int, int]], most: int, window: int, cut: int
) -> None:
    rule = PerSubject(most, window)
    subjects = np.array([subject for subject, _ in records], np.int64)
    offsets = np.cumsum(np.array([step for _, step in records], np.int64), dtype=np.int64)
    quota = SubjectQuota(rule)
    parts = [quota.exceeds_quota(subjects[i : i + cut], offsets[i : i + cut]) for i in range(0, len(records), cut)]
    exceeds = np.concatenate(parts) if parts else np.zeros(0, np.bool_)
    released = Counter(zip(subjects[~exceeds].tolist(), (offsets[~exceeds] // window).tolist(), strict=True))
    assert max(released.values(), default=0) <= most
    refused = set(zip(subjects[exceeds].tolist(), (offsets[exceeds] // window).tolist(), strict=True))
    assert all(released[key] == most for key in refused), "a record within the quota was suppressed"
    for start in range(0, len(records), 7):
        restarted = SubjectQuota(rule)
        rest = offsets >= restarted.window_start(int(offsets[start]))
        assert restarted.exceeds_quota(subjects[rest], offsets[rest]).tolist() == exceeds[rest].tolist()


def test_records_above_the_quota_are_rejected_as_suppressed_in_the_order_of_the_block() -> None:
    block = Block(
        values=np.arange(3.0)[:, None],
        subjects=np.array([7, 7, 8]),
        unchanged_fields=[b"a", b"b", b"c"],
        index=np.array([0, 2, 4]),
        rejected=[(1, Reason.INVALID), (3, Reason.UNDECODABLE)],
        clipped=0,
    )
    remaining = SubjectQuota(PerSubject(1, 100)).apply(block, block.index + 50)
    assert remaining.index.tolist() == [0, 4]
    assert remaining.unchanged_fields == [b"a", b"c"]
    assert remaining.rejected == [(1, Reason.INVALID), (2, Reason.SUPPRESSED), (3, Reason.UNDECODABLE)]


def test_a_suppressed_window_accepts_no_record_and_the_next_one_does() -> None:
    quota = SubjectQuota(PerSubject(5, 10))
    quota.suppress_window(23)
    assert quota.exceeds_quota(np.array([1, 2, 1]), np.array([25, 29, 30])).tolist() == [True, True, False]
