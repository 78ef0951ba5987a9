"""How often one person may be seen: the first records of a subject in a window, wherever reading begins."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.pipeline.subject_quota import SubjectQuota
from shoal.policy import PerSubject
from shoal.records import Block, Reason

pytestmark = pytest.mark.unit


def surplus(rule: PerSubject, subjects: list[int], places: list[int]) -> list[bool]:
    told = SubjectQuota(rule).surplus(np.array(subjects, np.int64), np.array(places, np.int64)).tolist()
    return [bool(too_many) for too_many in told]


def test_the_first_records_of_a_window_are_let_in_and_the_next_window_begins_anew() -> None:
    rule = PerSubject(max=2, window=10)
    assert surplus(rule, [1, 1, 1, 2, 1, 1], [0, 3, 4, 5, 9, 10]) == [False, False, True, False, True, False]


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3)), max_size=60),
    st.integers(1, 3),
    st.integers(2, 12),
    st.integers(1, 9),
)
def test_no_window_has_more_of_a_subject_and_cutting_or_beginning_at_a_window_changes_nothing(
    records: list[tuple[int, int]], most: int, window: int, cut: int
) -> None:
    rule = PerSubject(most, window)
    subjects = np.array([subject for subject, _ in records], np.int64)
    places = np.cumsum(np.array([step for _, step in records], np.int64), dtype=np.int64)
    admission = SubjectQuota(rule)
    parts = [admission.surplus(subjects[i : i + cut], places[i : i + cut]) for i in range(0, len(records), cut)]
    told = np.concatenate(parts) if parts else np.zeros(0, np.bool_)
    released = Counter(zip(subjects[~told].tolist(), (places[~told] // window).tolist(), strict=True))
    assert max(released.values(), default=0) <= most
    refused = set(zip(subjects[told].tolist(), (places[told] // window).tolist(), strict=True))
    assert all(released[key] == most for key in refused), "somebody was refused who had not been seen often enough"
    for start in range(0, len(records), 7):
        again = SubjectQuota(rule)
        here = places >= again.start_of(int(places[start]))
        assert again.surplus(subjects[here], places[here]).tolist() == told[here].tolist()


def test_what_is_too_much_is_rejected_as_suppressed_between_what_was_rejected_before() -> None:
    block = Block(
        values=np.arange(3.0)[:, None],
        subjects=np.array([7, 7, 8]),
        passthrough=[b"a", b"b", b"c"],
        index=np.array([0, 2, 4]),
        rejected=[(1, Reason.INVALID), (3, Reason.UNDECODABLE)],
        clipped=0,
    )
    kept = SubjectQuota(PerSubject(1, 100)).admit(block, block.index + 50)
    assert kept.index.tolist() == [0, 4]
    assert kept.passthrough == [b"a", b"c"]
    assert kept.rejected == [(1, Reason.INVALID), (2, Reason.SUPPRESSED), (3, Reason.UNDECODABLE)]


def test_a_window_whose_beginning_is_lost_lets_nobody_in_and_the_next_one_does() -> None:
    admission = SubjectQuota(PerSubject(5, 10))
    admission.give_up(23)
    assert admission.surplus(np.array([1, 2, 1]), np.array([25, 29, 30])).tolist() == [True, True, False]
