"""Under any interleaving of reads, completions, gaps, commits and crashes each offset is completed once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from shoal.kafka.metadata import CommittedState, decode, encode
from shoal.kafka.offsets import OffsetState, OffsetTracker

pytestmark = pytest.mark.property


class Partition(RuleBasedStateMachine):
    """A log with holes, a worker that can die at any moment, and the list of what was committed as done."""

    @initialize(start=st.integers(0, 5))
    def begin(self, start: int) -> None:
        self.log: list[int] = []
        self.end = start
        self.start = start
        self.done: dict[int, str] = {}
        self.undecided: dict[int, str] = {}
        self.committed = self.text(OffsetState(committed_offset=start, next_offset=start))
        self.restart()

    def text(self, snapshot: OffsetState) -> tuple[int, str]:
        return snapshot.committed_offset, encode(CommittedState(snapshot, "ab" * 32, 12345), "t", 3)

    def restart(self) -> None:
        offset, metadata = self.committed
        self.progress = OffsetTracker.restore(decode(metadata, "t", 3, offset).state)
        self.cursor = offset
        self.undecided = {}

    @rule(hole=st.integers(0, 40), count=st.integers(1, 5))
    def append(self, hole: int, count: int) -> None:
        self.end += hole
        self.log += range(self.end, self.end + count)
        self.end += count

    @rule(count=st.integers(1, 8))
    def read(self, count: int) -> None:
        todo = [o for o in self.log if o >= self.cursor][:count]
        offsets = np.array(todo, np.int64)
        is_open = (offsets >= self.progress.next_offset) | self.progress.are_incomplete(offsets)
        assert is_open.tolist() == [o not in self.done and o not in self.undecided for o in todo], (
            "a completed offset became incomplete"
        )
        unresolved = offsets[is_open]
        self.progress.mark_read(unresolved.tolist(), (unresolved * 10).tolist(), (unresolved * 10 - 1).tolist(), 0)
        self.cursor = max(self.cursor, *(o + 1 for o in todo), 0)

    @precondition(lambda self: self.seen())
    @rule(data=st.data(), how=st.sampled_from(["released", "suppressed", "quarantined"]))
    def resolve(self, data: st.DataObject, how: str) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self.seen()), unique=True, min_size=1))
        self.progress.complete(chosen)
        self.undecided.update(dict.fromkeys(chosen, how))

    @rule()
    def commit(self) -> None:
        snapshot = self.progress.snapshot()
        self.committed = self.text(snapshot)
        for offset, how in self.undecided.items():
            assert offset not in self.done, "resolved twice"
            self.done[offset] = how
        self.undecided = {}

    @rule()
    def crash(self) -> None:
        self.restart()

    @precondition(lambda self: self.seen())
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        """A record vanishes from the log; held ones are found missing and given up."""
        gone = data.draw(st.sampled_from(self.log))
        self.log.remove(gone)
        self.progress.complete(lost := self.progress.lost_to_compaction(self.cursor))
        assert all(offset not in self.log for offset in lost)
        self.undecided.update(dict.fromkeys(lost, "suppressed"))

    def seen(self) -> list[int]:
        """Held offsets that this incarnation has read."""
        return [o for o in self.log if o < self.cursor and o not in self.done and o not in self.undecided]

    @invariant()
    def nothing_is_lost(self) -> None:
        if not hasattr(self, "progress"):
            return
        snapshot = self.progress.snapshot()
        for offset in self.log:
            settled = offset in self.done or offset in self.undecided
            waiting = offset >= snapshot.next_offset or offset in snapshot.incomplete
            assert settled != waiting

    @invariant()
    def watermark_never_passes_a_held_record(self) -> None:
        if hasattr(self, "progress"):
            snapshot = self.progress.snapshot()
            assert snapshot.committed_offset == (
                snapshot.incomplete[0] if snapshot.incomplete else snapshot.next_offset
            )
            if snapshot.incomplete:
                assert snapshot.reference is not None
                assert snapshot.reference.offset == snapshot.committed_offset


TestPartition = Partition.TestCase
