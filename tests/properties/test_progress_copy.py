"""Whatever store of the progress is lost, and whenever workers run without the copy: no record is released twice."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar
from unittest import mock

import msgspec
import pytest
from aiokafka.structs import OffsetAndMetadata
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from shoal.errors import InputError
from shoal.kafka import start as newest
from shoal.kafka.metadata import CommittedState, MetadataCipher
from shoal.kafka.offsets import OffsetTracker
from shoal.kafka.progress_copy import CopiedCommit, ProgressCopy
from shoal.kafka.start import newest_commit
from shoal.policy import KafkaSection

pytestmark = pytest.mark.property

SETTINGS = KafkaSection(input="in", output="out", group="g", progress_copy="copy")
KEYS = (bytes(range(32)), bytes(range(100, 132)), None)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Stored(ProgressCopy):
    """A place in the copy, and what the topic holds there."""

    copied: CopiedCommit | None = None

    async def fetch(self) -> CopiedCommit | None:
        return self.copied


def result_of(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        answer: Result = end.value
        return answer
    raise AssertionError("it waits")


class Stores(RuleBasedStateMachine):
    """A log, an output with retention, two stores of the progress, and workers with and without the copy."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[OffsetAndMetadata] = []

    @initialize(start=st.integers(0, 5), key=st.sampled_from(KEYS))
    def begin(self, start: int, key: bytes | None) -> None:
        self.cipher = MetadataCipher("g", (key,))
        self.log_end = start
        self.released: set[int] = set()
        self.suppressed: set[int] = set()
        self.skipped = set(range(start))
        self.output: list[tuple[int, int]] = []
        """Offset in the output and time of each record that is retained."""
        self.output_end = self.clock = 0
        self.output_start = 0
        self.group: OffsetAndMetadata | None = None
        self.copied: CopiedCommit | None = None
        self.last_at = 0
        self.decided: list[tuple[int, str]] = []
        self.progress: OffsetTracker | None = None
        self.start_at(start, has_copy=True)

    # ------------------------------------------------------------------ the worker

    def start_at(self, offset: int, *, has_copy: bool) -> None:
        """Begin at an offset: the first start, or one with --skip-to-end."""
        self.progress, self.decided, self.has_copy = OffsetTracker(offset), [], has_copy
        self.last_at = max(self.clock, max((at for _, at in self.output), default=0))
        self.send()

    def send(self) -> None:
        """Commit in one transaction: rows, the offset of the group, and its copy."""
        assert self.progress is not None
        rows = [offset for offset, outcome in self.decided if outcome == "released"]
        assert self.released.isdisjoint(rows), "released twice"
        self.last_at = max(self.last_at, self.clock)
        state = self.progress.snapshot()
        text = self.cipher.encode(CommittedState(state, "ab" * 8, self.last_at), "in", 0)
        self.released.update(rows)
        self.suppressed.update(offset for offset, outcome in self.decided if outcome == "suppressed")
        self.output += [(self.output_end + index, self.last_at) for index in range(len(rows))]
        self.output_end += len(rows) + bool(rows)  # and the control record
        self.decided = []
        self.group = OffsetAndMetadata(state.committed_offset, text)
        self.history.append(self.group)
        if self.has_copy:
            value = self.place().encode(state.committed_offset, text, self.output_end)
            self.copied = msgspec.json.decode(value, type=CopiedCommit)

    def place(self) -> Stored:
        return Stored(SETTINGS, 0, self.cipher, "ab", self.copied)

    def are_working(self) -> bool:
        return getattr(self, "progress", None) is not None

    def waiting(self) -> list[int]:
        assert self.progress is not None
        chosen = {offset for offset, _ in self.decided}
        return [offset for offset in self.progress.snapshot().incomplete if offset not in chosen]

    @precondition(are_working)
    @rule(count=st.integers(1, 6))
    def read(self, count: int) -> None:
        assert self.progress is not None
        self.log_end += count
        offsets = list(range(self.progress.next_offset, self.log_end))
        self.progress.mark_read(offsets, [10 * one for one in offsets], [10 * one - 1 for one in offsets], 0)

    @precondition(lambda self: self.are_working() and self.waiting())
    @rule(data=st.data(), outcome=st.sampled_from(["released", "released", "suppressed"]))
    def decide(self, data: st.DataObject, outcome: str) -> None:
        assert self.progress is not None
        chosen = data.draw(st.lists(st.sampled_from(self.waiting()), unique=True, min_size=1))
        self.progress.complete(chosen)
        self.decided += [(offset, outcome) for offset in chosen]

    @precondition(are_working)
    @rule(passed=st.integers(-3, 3))
    def commit(self, passed: int) -> None:
        self.clock = max(0, self.clock + passed)
        self.send()

    @precondition(lambda self: self.are_working() and self.decided)
    @rule()
    def abort(self) -> None:
        """A worker dies in a transaction: its rows are never seen and take offsets."""
        self.output_end += 2
        self.progress = None

    # ------------------------------------------------------------------ starts

    @rule(has_copy=st.sampled_from([True, True, False]), skips=st.booleans())
    def restart(self, *, has_copy: bool, skips: bool) -> None:
        # Without the copy, only the times of records in the output show that a commit is old.
        has_copy = has_copy or not self.is_group_latest()
        self.progress, place = None, self.place() if has_copy else None
        try:
            with (
                mock.patch.object(newest, "check_no_record_after", self.check_output),
                mock.patch.object(newest, "check_no_other_writer", self.check_writer),
            ):
                commit = result_of(newest_commit(self.group, place, SETTINGS, 0, self.cipher))
        except InputError:
            commit = None
        if commit is None or any(at > commit.at_ms for _, at in self.output):
            if skips:
                self.skipped.update(range(self.log_end))
                self.start_at(self.log_end, has_copy=has_copy)
            return
        self.progress, self.has_copy, self.decided = OffsetTracker.restore(commit.state), has_copy, []
        # What the task reads again before it commits.
        offsets = list(commit.state.incomplete)
        self.progress.mark_read(offsets, [10 * one for one in offsets], [10 * one - 1 for one in offsets], 0)
        self.last_at = commit.at_ms
        if has_copy:
            self.send()

    async def check_writer(self, _: KafkaSection, __: int, end: int | None) -> None:
        """Where the group and its copy agree, only another producer can have written after the commit."""
        assert end is not None
        assert self.output_end >= end
        assert [offset for offset, _ in self.output if offset >= end] == []

    async def check_output(self, _: KafkaSection, __: int, end: int | None, *, has_older: bool) -> None:
        assert has_older == (self.group is not None)
        assert end is not None
        is_known = self.output_start <= end <= self.output_end
        if not is_known or any(offset >= end for offset, _ in self.output):
            raise InputError("records followed the copy")

    # ------------------------------------------------------------------ what is lost

    @rule()
    def group_expires(self) -> None:
        self.group = None

    def is_group_latest(self) -> bool:
        return self.group is None or self.group == self.history[-1]

    @precondition(lambda self: self.history and self.is_group_latest())
    @rule()
    def copy_is_lost(self) -> None:
        self.copied = None

    @precondition(lambda self: self.copied is not None and self.group is not None)
    @rule(data=st.data())
    def another_tool_restores_the_group(self, data: st.DataObject) -> None:
        """Put back an older commit of the group, while the copy holds the latest."""
        assert self.copied is not None
        if self.history[-1].metadata == self.copied.metadata:
            self.group = data.draw(st.sampled_from(self.history))

    @rule()
    def retention_empties_the_output(self) -> None:
        self.output, self.output_start = [], self.output_end

    @invariant()
    def nothing_is_lost(self) -> None:
        if not self.are_working():
            return
        assert self.progress is not None
        state = self.progress.snapshot()
        settled = self.released | self.suppressed | self.skipped | {offset for offset, _ in self.decided}
        lost = set(range(self.log_end)) - settled - set(state.incomplete) - set(range(state.next_offset, self.log_end))
        assert not lost


TestStores = Stores.TestCase
TestStores.settings = settings(stateful_step_count=30)
