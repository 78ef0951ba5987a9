"""Where the rows of a commit are in the output, and how a start recognizes later records by it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.kafka import start
from shoal.kafka.metadata import CommittedState, OutputRows, decode, encode
from shoal.kafka.offsets import OffsetState
from shoal.kafka.progress_copy import Order, order_of
from shoal.kafka.start import is_published_after
from shoal.policy import KafkaSection

pytestmark = pytest.mark.unit

SETTINGS = KafkaSection(bootstrap_servers="b:9092", input="in", output="out", group="g")
STATE = OffsetState(committed_offset=40, next_offset=45, incomplete=(40, 43), future_timestamped=(41, 42))


def commit_of(rows: OutputRows | None) -> CommittedState:
    return CommittedState(STATE, "ab" * 32, 1_700_000_000_000, 3, rows)


@given(st.integers(0, 2**62), st.integers(0, 2**40), st.text(max_size=20))
def test_the_rows_are_read_from_the_metadata_as_they_were_written(first: int, count: int, output: str) -> None:
    rows = OutputRows.of(output, first, count)
    found = decode(encode(commit_of(rows), "in", 0), "in", 0, 40)
    assert found.output_rows == rows
    assert found.state.future_timestamped == (41, 42)
    assert found.state == commit_of(None).state


def test_rows_belong_to_the_output_of_their_name_only() -> None:
    assert OutputRows.of("out", 7, 2).are_in("out")
    assert not OutputRows.of("out", 7, 2).are_in("out2")


def test_commits_that_differ_only_in_their_rows_are_the_same() -> None:
    assert order_of(commit_of(OutputRows.of("out", 9, 0)), commit_of(OutputRows.of("out", 7, 2))) is Order.SAME
    assert order_of(commit_of(None), commit_of(OutputRows.of("out", 7, 2))) is Order.SAME


def output_with(monkeypatch: pytest.MonkeyPatch, offsets: list[int], timestamp_type: int, timestamp: int) -> None:
    async def read(_: object, __: object, begin: int = 0, since_ms: int | None = None) -> AsyncIterator[Any]:
        for offset in offsets:
            if offset >= begin and (since_ms is None or timestamp >= since_ms):
                yield SimpleNamespace(offset=offset, timestamp=timestamp, timestamp_type=timestamp_type)

    monkeypatch.setattr(start, "read_committed_records", read)


@pytest.mark.parametrize("timestamp_type", [0, 1], ids=["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize(
    ("offsets", "rows", "is_after"),
    [
        ([5, 6, 7], OutputRows.of("out", 7, 1), False),
        ([5, 6, 7, 9], OutputRows.of("out", 7, 1), True),
        ([5, 6, 8], OutputRows.of("out", 7, 0), True),
        ([5, 6], OutputRows.of("out", 7, 0), False),
        ([5], OutputRows.of("out", 7, 3), False),
        ([9, 10], OutputRows.of("out", 7, 2), False),
        ([5, 6, 7, 9], OutputRows.of("another", 7, 1), False),
        ([5, 6, 7, 9], None, False),
    ],
)
async def test_more_records_than_the_commit_has_rows_are_later_ones(
    monkeypatch: pytest.MonkeyPatch, timestamp_type: int, offsets: list[int], rows: OutputRows | None, *, is_after: bool
) -> None:
    # All are dated before the commit, or in the same commit interval: only their offsets show that some are later.
    output_with(monkeypatch, offsets, timestamp_type, 1_700_000_000_000)
    assert await is_published_after(SETTINGS, 0, commit_of(rows)) is is_after


async def test_without_noted_rows_the_time_of_the_commit_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    output_with(monkeypatch, [5], 0, 1_700_000_000_001)
    assert await is_published_after(SETTINGS, 0, commit_of(None))
    output_with(monkeypatch, [5], 1, 1_700_000_060_000)
    assert not await is_published_after(SETTINGS, 0, commit_of(None))
    output_with(monkeypatch, [5], 1, 1_700_000_060_001)
    assert await is_published_after(SETTINGS, 0, commit_of(None))


async def test_without_an_output_nothing_was_published() -> None:
    without = SETTINGS.model_copy(update={"output": None})
    assert not await is_published_after(without, 0, commit_of(OutputRows.of("out", 7, 1)))
