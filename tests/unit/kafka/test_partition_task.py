"""A partition task without a broker, under crashes, clock changes, control records and large records."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from shoal.errors import BrokerUnavailableError, GuaranteeError, InputError
from shoal.formats import JsonDecoder
from shoal.kafka import ClusterListener
from shoal.kafka import transactions as outgoing
from shoal.kafka.metadata import CommittedState
from shoal.kafka.offsets import OffsetState, ProgressError, ReferenceRecord
from shoal.kafka.task import PartitionTask
from shoal.kafka.waits import WaitReason
from shoal.observability import Metrics, log_totals, logger
from shoal.policy import Policy
from shoal.streams import DecidedCluster
from structlog.testing import capture_logs
from support import making
from support.making import SUBJECT, quasi, unchanged_field
from support.partition_tasks import RecordingSink as Sink
from support.partition_tasks import partition_task

pytestmark = pytest.mark.unit

MAX_AHEAD_MS = 3_600_000

START_MS = 1_700_000_000_000
BEGINNING = OffsetState(committed_offset=0, next_offset=0)


@dataclass(frozen=True)
class Message:
    offset: int
    value: bytes | None
    timestamp: int = START_MS
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Clock:
    def __init__(self) -> None:
        self.s = START_MS / 1000 + 1

    def __call__(self) -> float:
        return self.s


def policy_of(k: int = 2, delta: int = 4, privacy: dict[str, Any] | None = None, **stream: Any) -> Policy:
    attributes = {"who": SUBJECT | {"type": "integer"}, "x": quasi(integer=True), "note": unchanged_field("string")}
    return making.policy_of(attributes, privacy={"k": k, **(privacy or {})}, stream={"delta": delta, **stream})


def task_of(
    policy: Policy, sink: Sink, snapshot: OffsetState = BEGINNING, clock: Clock | None = None, **options: Any
) -> PartitionTask:
    commit = CommittedState(snapshot, policy.fingerprint, START_MS)
    options |= {"wall_clock": clock or Clock()}
    options.setdefault("monotonic_clock", options["wall_clock"])
    return partition_task("t", 0, policy, JsonDecoder(policy), sink, commit, Metrics(), 0.2, **options)


def record(offset: int, timestamp: int = START_MS, note: str = "") -> Message:
    value = {"who": offset, "x": offset * 7 % 101, "note": note}
    return Message(offset, json.dumps(value).encode(), timestamp)


async def turn(task: PartitionTask, clock: Clock, *, at_end: bool = False) -> None:
    """Let the commit interval pass, and the transaction it leads to."""
    clock.s += 1
    await task.punctuate(log_end=task.position if at_end else None)
    await asyncio.sleep(0)
    task._collector.check()


async def test_a_rejected_future_timestamp_is_committed_before_a_later_cluster_is_handed_over() -> None:
    seen: list[list[int]] = []

    async def hand_over(_: int, cluster: DecidedCluster) -> bool:
        seen.append(cluster.offsets)
        return True

    sink = Sink()
    task = task_of(policy_of(), sink, listener=ClusterListener(on_decided=hand_over))
    await task.process(list(map(record, range(6))))
    before = len(seen)
    assert before > 0
    sink.gate = asyncio.Event()
    # The commit interval has not passed, so ownership needs no proof.
    block = [record(6, START_MS + 3 * MAX_AHEAD_MS), *map(record, range(7, 20))]
    processing = asyncio.create_task(task.process(block))
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(seen) == before
    sink.gate.set()
    await processing
    assert len(seen) > before
    rejected = [unpublished.offset for batch, _ in sink.published for unpublished in batch.unpublished]
    assert rejected == [6]


async def test_a_task_whose_cluster_was_not_handled_takes_nothing_more_and_commits_what_was_before() -> None:
    committed = list[int]()

    async def hand_over(_: int, cluster: DecidedCluster) -> bool:
        return cluster.number == 0

    def note(_: int, clusters: Sequence[DecidedCluster]) -> None:
        committed.extend(cluster.number for cluster in clusters)

    sink = Sink()
    task = task_of(policy_of(), sink, listener=ClusterListener(on_decided=hand_over, on_committed=note))
    for offset in range(20):
        await task.process([record(offset)])
    assert task.position < 20
    await task.close(commit=True)
    state = sink.published[-1][1]
    assert (committed, state.next_cluster_number, state.handed_over_uncommitted) == ([0], 1, True)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_rejected_future_timestamp_is_committed_before_later_decisions(
    fails: bool,  # noqa: FBT001
) -> None:
    policy, clock, sink = policy_of(), Clock(), Sink(gate=asyncio.Event())
    task = task_of(policy, sink, clock=clock)
    await task.process([*map(record, range(8)), record(8, START_MS + 3 * MAX_AHEAD_MS), *map(record, range(9, 30))])
    # One block, and what the clock refused in it was packed before the block was decided on.
    await turn(task, clock)
    assert sink.published == []
    assert sink.gate is not None
    if fails:
        sink.errors.append(BrokerUnavailableError("gone"))
    sink.gate.set()
    if fails:
        with pytest.raises(BrokerUnavailableError):
            await turn(task, clock)
        with pytest.raises(BrokerUnavailableError):
            await turn(task, clock)
        assert sink.published == []
        return
    await turn(task, clock)
    await turn(task, clock)
    (first, at_first), (second, _) = sink.published
    # So far ahead that it need not be listed.
    assert (first.clusters, [one.offset for one in first.unpublished], at_first.future_timestamped) == ([], [8], ())
    assert at_first.incomplete == tuple(offset for offset in range(30) if offset != 8)
    assert second.clusters


async def test_a_task_that_waits_for_the_compiler_commits_what_is_decided_and_can_be_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shoal.kafka.task.is_compiled", lambda: True)
    clock, sink = Clock(), Sink()
    task = task_of(policy_of(delta=2), sink, clock=clock)
    await task.process([record(offset) for offset in range(4)])
    decided = len(sink.published)
    for name, value in {"is_preparing": lambda: True, "INTERPRETED_HELD": 0, "POLL_S": 0.0}.items():
        monkeypatch.setattr(f"shoal.kafka.task.{name}", value)
    waiting = asyncio.create_task(task.process([record(4)]))
    clock.s += 60.0
    for _ in range(200):
        await asyncio.sleep(0)
    assert (waiting.done(), decided, len(sink.published)) == (False, 0, 1)
    await asyncio.wait_for(task.close(commit=True), 5)
    assert (waiting.done(), task.position) == (True, 4)


async def test_commit_times_never_decrease() -> None:
    clock, sink = Clock(), Sink()
    task = task_of(policy_of(), sink, clock=clock)
    for offset, step in enumerate((1, -100, 1, 200)):
        await task.process([record(4 * offset + number) for number in range(4)])
        clock.s += step
        await task.punctuate()
        await asyncio.sleep(0)
        task._collector.check()
    # The task began from a commit at this time.
    assert sink.times == [START_MS, START_MS, START_MS + 103_000]


async def test_a_record_rejected_for_its_timestamp_does_not_move_the_stream_time_when_it_is_read_again() -> None:
    policy, clock, sink = policy_of(max_delay_s=3.0), Clock(), Sink()
    task = task_of(policy, sink, clock=clock)
    await task.process([record(0, START_MS + 3 * MAX_AHEAD_MS)])
    await turn(task, clock)
    assert task.tracker.stream_time < START_MS
    again = task_of(policy, sink, sink.published[-1][1], clock)
    again.restore(0)
    await again.process([record(0, START_MS + 3 * MAX_AHEAD_MS), record(1), record(2)])
    assert (again.tracker.stream_time, again.waiting_count) == (START_MS, 2)


async def test_a_future_timestamp_stays_rejected_when_the_committed_offset_passes_it_first() -> None:
    policy, clock, sink = policy_of(), Clock(), Sink()
    state = OffsetState(
        committed_offset=0, next_offset=6, incomplete=(0, 1, 2, 3), future_timestamped=(4, 5), flush_at_offset=6
    )
    task = task_of(policy, sink, state, clock)
    await task.process([record(offset) for offset in range(4)])
    await turn(task, clock)
    assert sink.published[-1][1].committed_offset == 6
    await task.process([record(offset, START_MS + 3 * MAX_AHEAD_MS) for offset in (4, 5)])
    assert task.tracker.stream_time == START_MS


async def test_a_task_closed_while_restoring_commits_nothing() -> None:
    policy, sink = policy_of(), Sink()
    task = task_of(
        policy, sink, OffsetState(committed_offset=0, next_offset=9, incomplete=(0, 1, 7, 8), stream_time=-1)
    )
    await task.process([record(offset) for offset in range(6)])
    assert task.oldest_held_s is None
    await task.close(commit=True)
    assert sink.published == []
    assert sink.is_closed


async def test_held_records_are_counted_once_after_an_orderly_end() -> None:
    """Otherwise each restart on a quiet input would count them again as read, and an alert would be false."""
    policy, sink = policy_of(), Sink()
    task = task_of(policy, sink)
    await task.process([record(offset) for offset in range(3)])
    await task.close(commit=True)
    ((batch, snapshot),) = sink.published
    assert not batch
    assert (snapshot.committed_offset, snapshot.next_offset, snapshot.incomplete) == (0, 3, (0, 1, 2))
    sink = Sink()
    again = task_of(policy, sink, snapshot)
    await again.process([record(offset) for offset in range(4)])
    assert again._metrics.records.labels("in", "", "t", 0)._value.get() == 1
    await again.close(commit=True)
    assert [one.next_offset for _, one in sink.published] == [4]


async def test_the_committed_offset_passes_control_records_and_is_committed_alone_once() -> None:
    clock, sink = Clock(), Sink()
    task = task_of(policy_of(), sink, clock=clock)
    await task.process([Message(0, b"{"), Message(1, None)])
    await turn(task, clock)
    task._advance_position(5)
    for _ in range(3):
        await turn(task, clock)
    assert [snapshot.committed_offset for _, snapshot in sink.published] == [2, 5]
    assert not sink.published[-1][0]
    assert task.position == 5


async def test_the_committed_offset_passes_no_incomplete_record_and_nothing_while_restoring() -> None:
    task = task_of(policy_of(), Sink())
    await task.process([record(0)])
    task._advance_position(4)
    assert (task.tracker.offset_to_commit, task.tracker.next_offset) == (0, 4)
    restored = task_of(policy_of(), Sink(), OffsetState(committed_offset=3, next_offset=9, incomplete=(3, 8)))
    restored._advance_position(20)
    assert restored.tracker.next_offset == 9


@pytest.mark.parametrize(("ahead_ms", "dated_ahead_ms"), [(600_000, 600_000), (7_200_000, 2000)])
async def test_messages_after_a_commit_of_a_clock_that_was_far_ahead_are_dated_by_the_clock(
    ahead_ms: int, dated_ahead_ms: int
) -> None:
    clock, sink, policy = Clock(), Sink(), policy_of()
    commit = CommittedState(BEGINNING, policy.fingerprint, START_MS + ahead_ms)
    task = partition_task("t", 0, policy, JsonDecoder(policy), sink, commit, Metrics(), 0.2, wall_clock=clock)
    await task.process([record(offset) for offset in range(6)])
    await turn(task, clock)
    assert [len(batch.rows) > 0 for batch, _ in sink.published] == [True]
    assert sink.times == [START_MS + dated_ahead_ms]
    # The time of the commit does not go back: a restart knows by it which records were rejected.
    assert task._collector.last_packed.at_ms == START_MS + ahead_ms


class TimedSink(Sink):
    """A sink whose broker has the right time, `START_MS`."""

    tells_time = True

    async def broker_time_ms(self) -> int | None:
        return START_MS


async def test_valid_records_wait_in_order_until_the_clock_is_right() -> None:
    policy, metrics, clock, sink = policy_of(), Metrics(), Clock(), TimedSink()
    now_s, clock.s = clock.s, clock.s - 7200
    commit = CommittedState(BEGINNING, policy.fingerprint, START_MS)
    task = partition_task("t", 0, policy, JsonDecoder(policy), sink, commit, metrics, 0.2, wall_clock=clock)
    # Record 1 is valid by the broker's time, record 0 by neither clock.
    await task.process([record(0, START_MS + 3_700_000), *map(record, range(1, 5))])
    await task.process(list(map(record, range(5, 8))))
    for _ in range(2):
        await turn(task, clock)
        await task.punctuate(delivered_up_to=8, log_end=8)
        assert (task.position, task.is_full, task.wait_reason) == (1, True, WaitReason.CLOCK)
        assert 7190 < task.clock_behind_s < 7200
    refused = [(one.offset, one.reason) for batch, _ in sink.published for one in batch.unpublished]
    assert refused == [(0, "invalid")]
    clock.s = now_s
    await task.punctuate(delivered_up_to=8, log_end=8)
    assert (task.position, task.is_full, task.wait_reason, task.clock_behind_s) == (8, False, None, 0)
    await task.commit(flush=True)
    released = [place for batch, _ in sink.published for cluster in batch.clusters for place in cluster.offsets]
    assert sorted(released) == [1, 2, 3, 4, 5, 6, 7]
    assert metrics.dated_ahead.labels("t", 0)._value.get() == 1


async def test_a_restart_behind_control_records_asks_the_broker_about_the_first_unread_record() -> None:
    policy, clock, sink = policy_of(), Clock(), TimedSink()
    clock.s -= 7200
    # The commit lists records 0 to 2 as read; control records take offsets 3 and 4.
    state = OffsetState(committed_offset=0, next_offset=5, incomplete=(0, 1, 2), stream_time=-1)
    commit = CommittedState(state, policy.fingerprint, START_MS)
    task = partition_task("t", 0, policy, JsonDecoder(policy), sink, commit, Metrics(), 0.2, wall_clock=clock)
    await task.process([record(offset) for offset in (0, 1, 2, 5)])
    assert (sink.published, task.is_full, task.wait_reason) == ([], True, None), "the loop waits for no answer"
    await task.punctuate()
    assert (task.position, task.wait_reason) == (5, WaitReason.CLOCK)


async def test_records_that_are_rejected_as_dated_ahead_are_logged_with_their_number() -> None:
    policy, metrics, clock = policy_of(), Metrics(), Clock()
    commit = CommittedState(BEGINNING, policy.fingerprint, START_MS)
    task = partition_task("t", 0, policy, JsonDecoder(policy), Sink(), commit, metrics, 0.2, wall_clock=clock)
    with capture_logs() as lines:
        first = [record(0), record(1, START_MS + 3_700_000), record(2, START_MS + 9_000_000), Message(3, b"{")]
        await task.process(first)
        assert metrics.refusals.texts(4) == [
            "2 of 4 invalid: dated more than an hour ahead",
            "1 of 4 undecodable: a part of a JSON object that stands on several lines",
        ]
        # At most once a minute, and also after the clock was set back.
        for offset, passed_s in ((4, 30.0), (5, 29.9), (6, 0.2), (7, 59.9), (8, -120.0)):
            clock.s += passed_s
            await task.process([record(offset, START_MS + 9_000_000)])
    words = "records rejected: dated more than an hour ahead of the clock of this machine"
    found = [(line["log_level"], line["event"], line["partition"], line["count"]) for line in lines]
    assert found == [("warning", words, "t-0", count) for count in (2, 3, 2)]


@pytest.mark.parametrize(
    ("limit", "before", "more"),
    [
        ({"FULL_BYTES": 10_000}, [record(offset, note="n" * 4000) for offset in range(4)], 5),
        ({"FULL_ROWS": 10}, [Message(offset, b"{") for offset in range(9)], 1),
        ({"FULL_TRANSACTIONS": 2}, [record(0, START_MS + 3 * MAX_AHEAD_MS)], 1),
    ],
    ids=["bytes", "references", "transactions"],
)
async def test_a_task_with_too_much_waiting_is_full(
    monkeypatch: pytest.MonkeyPatch, limit: dict[str, int], before: list[Message], more: int
) -> None:
    for name, most in limit.items():
        monkeypatch.setattr(outgoing, name, most)
    task = task_of(policy_of(), Sink(gate=asyncio.Event()))
    await task.process(before)
    assert not task.is_full
    await task.process([replace(before[0], offset=len(before) + number) for number in range(more)])
    assert task.is_full


async def read_until_full(task: PartitionTask, first: int) -> int:
    """Let a task read records of 10,000 bytes, while the clock stands still, until it is full; return the next offset.

    At most 600 are read.
    """
    for offset in range(first, first + 600):
        if task.is_full:
            return offset
        await task.process([record(offset, note="n" * 10_000)])
    raise AssertionError("never full")


async def test_the_first_transaction_is_limited_and_sent_as_soon_as_it_is_full() -> None:
    sink = Sink()
    task = task_of(policy_of(), sink)
    count = await read_until_full(task, 0)
    assert 50 <= count <= 60
    assert task.next_commit == (0.0, None)
    await task.punctuate()
    await asyncio.sleep(0)
    await task.punctuate()
    ((batch, _),) = sink.published
    assert 524_288 <= batch.size_bytes < 560_000
    assert not task.is_full
    wait_s, _ = task.next_commit
    assert wait_s > 0, "what is left waits for the commit interval"


async def test_transactions_grow_to_the_largest_size_while_they_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "FULL_BYTES", 1 << 22)
    sink, offset = Sink(), 0
    task = task_of(policy_of(), sink)
    for _ in range(5):
        offset = await read_until_full(task, offset)
        await task.punctuate()
        await asyncio.sleep(0)
        await task.punctuate()
    assert [batch.size_bytes >> 19 for batch, _ in sink.published] == [1, 2, 4, 8, 8]


async def test_a_task_that_cannot_commit_yet_is_not_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "FULL_BYTES", 10_000)
    sink = Sink()
    # More records than delta are incomplete, as after a change of the policy: some are released while restoring.
    task = task_of(policy_of(), sink, OffsetState(committed_offset=0, next_offset=20, incomplete=tuple(range(20))))
    task.restore(0)
    await task.process([record(offset, note="n" * 4000) for offset in range(19)])
    await task.punctuate()
    was_full, was_due = task.is_full, task.next_commit
    assert not was_full, "paused here, it would never read the last record and never commit"
    assert was_due == (math.inf, None)
    await task.process([record(19)])
    assert task.is_full
    await task.punctuate()
    await asyncio.sleep(0)
    assert len(sink.published) == 1


async def test_a_transaction_that_takes_long_is_followed_by_smaller_ones() -> None:
    clock, gate = Clock(), asyncio.Event()
    task = task_of(policy_of(), Sink(gate=gate), clock=clock)
    # 50 records of 10,000 bytes, of which the last few are still held, take 20 s: a quarter of them is the limit.
    await task.process([record(offset, note="n" * 10_000) for offset in range(50)])
    clock.s += 1
    await task.punctuate()
    await asyncio.sleep(0)
    assert not task.is_full
    clock.s += 20.0
    gate.set()
    await task._collector.wait_until_committed()
    gate.clear()
    await task.process([Message(50, b"{")])
    clock.s += 1
    await task.punctuate()
    assert 8 <= await read_until_full(task, 51) - 51 <= 18


@pytest.mark.parametrize("held", [(), (5,)])
async def test_another_record_at_the_probe_is_refused_with_both_remedies(held: tuple[int, ...]) -> None:
    reference = ReferenceRecord(5 if held else 4, START_MS - 1)
    task = task_of(
        policy_of(),
        Sink(),
        OffsetState(committed_offset=5, next_offset=6 if held else 5, incomplete=held, reference=reference),
    )
    task.restore(0)
    with pytest.raises(InputError, match=r"t-0.*another group.*--skip-to-end"):
        await task.process([record(4), record(5)][len(held) :])


async def test_messages_out_of_order_are_an_error() -> None:
    task = task_of(policy_of(), Sink())
    with pytest.raises(GuaranteeError, match="order"):
        await task.process([record(2), record(1)])


async def test_a_failed_transaction_is_raised_by_the_next_punctuation_and_counted() -> None:
    clock, sink = Clock(), Sink(errors=[BrokerUnavailableError("away")])
    task = task_of(policy_of(), sink, clock=clock)
    await task.process([Message(0, b"{")])
    with pytest.raises(BrokerUnavailableError):
        await turn(task, clock)
    assert task._metrics.registry.get_sample_value("shoal_transactions_total", {"outcome": "aborted"}) == 1
    assert task._metrics.totals()["quarantined"] == 0, "what was not committed has not happened"


async def test_incomplete_records_that_did_not_come_again_are_suppressed_at_the_end() -> None:
    clock, sink = Clock(), Sink()
    task = task_of(policy_of(), sink, OffsetState(committed_offset=0, next_offset=4, incomplete=(0, 2, 3)), clock)
    await task.process([record(0), record(3)])
    await turn(task, clock, at_end=True)
    assert [(one.offset, one.reason) for one in sink.published[0][0].unpublished] == [(2, "suppressed")]


async def test_a_flush_begins_at_the_end_of_the_log_and_is_committed_before_it_is_done() -> None:
    clock, sink = Clock(), Sink()
    task = task_of(policy_of(delta=10, max_delay_s=2.0), sink, clock=clock)
    await task.process([record(offset) for offset in range(4)])
    clock.s += 1.5
    await task.punctuate(log_end=task.position)
    assert sink.published == []
    clock.s += 1
    for log_end in (None, task.position + 1):
        await task.punctuate(log_end=log_end)
        assert sink.published == []
    await task.punctuate(log_end=task.position)
    decision, deed = sink.published
    assert (decision[1].flush_at_offset, len(decision[0].clusters), decision[1].incomplete) == (4, 0, (0, 1, 2, 3))
    assert (deed[1].flush_at_offset, len(deed[0].clusters), deed[1].incomplete) == (None, 2, ())


@pytest.mark.parametrize("set_s", [-3600.0, 3600.0])
async def test_a_wall_clock_that_is_set_changes_neither_the_time_of_a_flush_nor_how_long_records_were_held(
    set_s: float,
) -> None:
    wall, since_boot, sink = Clock(), [500.0], Sink()
    policy = policy_of(delta=10, max_delay_s=2.0)
    task = task_of(policy, sink, clock=wall, monotonic_clock=lambda: since_boot[0])
    await task.process([record(offset) for offset in range(4)])
    wall.s += set_s
    since_boot[0] += 1.5
    await task.punctuate(log_end=task.position)
    assert (sink.published, task.oldest_held_s) == ([], 1.5)
    since_boot[0] += 0.5
    await task.punctuate(log_end=task.position)
    assert [len(batch.clusters) for batch, _ in sink.published] == [0, 2]
    ((_, _, waited_s, *_),) = sink.published[1][0].stats
    assert waited_s.tolist() == [2.0, 2.0, 2.0, 2.0]


async def test_by_default_the_time_that_records_are_held_is_not_that_of_the_wall_clock() -> None:
    policy, wall = policy_of(), Clock()
    commit = CommittedState(BEGINNING, policy.fingerprint, START_MS)
    task = partition_task("t", 0, policy, JsonDecoder(policy), Sink(), commit, Metrics(), 0.2, wall)
    await task.process([record(0)])
    wall.s += 3600
    assert task.oldest_held_s is not None
    assert 0 <= task.oldest_held_s < 600


async def test_a_committed_flush_is_done_after_a_crash_at_the_same_offset() -> None:
    policy, sink = policy_of(delta=10, max_delay_s=2.0), Sink()
    task = task_of(
        policy, sink, OffsetState(committed_offset=0, next_offset=4, incomplete=(0, 1, 2, 3), flush_at_offset=4)
    )
    await task.process([record(offset) for offset in range(9)])
    ((batch, snapshot),) = sink.published
    assert sorted(place for cluster in batch.clusters for place in cluster.offsets) == [0, 1, 2, 3]
    assert (snapshot.next_offset, snapshot.flush_at_offset, task.waiting_count) == (4, None, 5)


async def test_clusters_name_the_policy_under_which_they_were_decided() -> None:
    before, after, clock, sink = policy_of(), policy_of(k=3), Clock(), Sink()
    task = task_of(before, sink, clock=clock)
    await task.process([record(offset) for offset in range(9)])
    await turn(task, clock)
    ((batch, snapshot),) = sink.published
    assert batch.clusters
    assert {cluster.policy for cluster in batch.clusters} == {before.fingerprint}
    # The policy changes, and the records that are incomplete are decided under the new one; so they are after a crash.
    repeats = []
    for _ in range(2):
        commit, sink = CommittedState(snapshot, before.fingerprint, START_MS), Sink()
        task = partition_task("t", 0, after, JsonDecoder(after), sink, commit, Metrics(), 0.2, wall_clock=clock)
        await task.process([record(offset) for offset in range(snapshot.committed_offset, 20)])
        await turn(task, clock)
        repeats.append([cluster for batch, _ in sink.published for cluster in batch.clusters])
    assert repeats[0] == repeats[1] != []
    assert {cluster.policy for cluster in repeats[0]} == {after.fingerprint}


LIMITED = {"per_subject": {"max": 1, "window": 10}}


def by_one(offset: int, who: int) -> Message:
    return Message(offset, json.dumps({"who": who, "x": offset, "note": ""}).encode(), START_MS)


@pytest.mark.parametrize(("origin", "low", "found"), [(0, 0, True), (4, 4, True), (0, 4, False), (4, 5, False)])
async def test_a_quota_window_whose_start_is_not_retained_is_suppressed(origin: int, low: int, found: bool) -> None:  # noqa: FBT001
    task = task_of(
        policy_of(privacy=LIMITED),
        Sink(),
        OffsetState(committed_offset=6, next_offset=6, released_from=origin),
    )
    assert task.restore(low) is found
    assert task.position == low
    await task.process([by_one(offset, offset) for offset in range(low, 12)])
    assert task.waiting_count == (4 if found else 2)


async def test_the_probe_is_checked_although_reading_begins_before_it() -> None:
    snapshot = OffsetState(committed_offset=6, next_offset=6, reference=ReferenceRecord(5, START_MS - 1))
    task = task_of(policy_of(privacy=LIMITED), Sink(), snapshot)
    task.restore(0)
    await task.process([by_one(offset, offset) for offset in range(5)])
    with pytest.raises(ProgressError, match="offset 5 holds a different record"):
        await task.process([by_one(5, 5)])


async def test_at_a_quiet_moment_few_subjects_wait_and_enough_are_flushed() -> None:
    policy, clock, sink = policy_of(delta=9, privacy={"min_population": 4}, max_delay_s=3.0), Clock(), Sink()
    task = task_of(policy, sink, clock=clock)
    await task.process([record(0), record(1), record(2), by_one(3, 2)])
    clock.s += 60
    await turn(task, clock, at_end=True)
    assert task.waiting_count == 4, "three people left at a quiet moment"
    await task.process([record(4, round(clock.s * 1000))])
    assert task.waiting_count == 3, (
        "of four people the oldest leaves by the clock of the records, and the others are too few"
    )
    await task.process([record(5, round(clock.s * 1000))])
    clock.s += 60
    await turn(task, clock, at_end=True)
    assert (task.waiting_count, task.tracker.next_cluster_number) == (2, 2)


async def test_a_flush_of_too_few_subjects_suppresses_them_also_after_a_restart() -> None:
    policy, sink = policy_of(delta=9, privacy={"min_population": 4}), Sink()
    task = task_of(policy, sink)
    await task.process([record(0), record(1), record(2)])
    await task.commit(flush=True)
    assert [len(batch.unpublished) for batch, _ in sink.published] == [0, 3]
    again = task_of(policy, Sink(), sink.published[0][1])
    await again.process([record(0), record(1), record(2)])
    await again.punctuate(log_end=again.position)
    assert again.waiting_count == 0
    assert not again.tracker.next_cluster_number


async def test_an_incomplete_record_stays_accepted_on_a_slower_clock() -> None:
    # Records 0 and 1 were accepted by a task whose clock was at least an hour ahead. Record 2 is new.
    sink, timestamp = Sink(), START_MS + 2 * MAX_AHEAD_MS
    task = task_of(policy_of(), sink, OffsetState(committed_offset=0, next_offset=2, incomplete=(0, 1)))
    await task.process([record(0, timestamp), record(1, timestamp), record(2, timestamp)])
    await task.commit(flush=True)
    sent = [batch for batch, _ in sink.published]
    assert [(entry.offset, entry.reason) for batch in sent for entry in batch.unpublished] == [(2, "invalid")]
    assert [cluster.offsets for batch in sent for cluster in batch.clusters] == [[0, 1]]
    assert sink.published[-1][1].committed_offset == 3


async def test_a_worker_logs_what_is_wrong_with_refused_messages_and_what_helps_and_no_value() -> None:
    who = {"role": "identifier", "subject": True, "from": "key"}
    policy, metrics = making.policy_of({"who": who, "x": quasi()}, stream={"delta": 4}), Metrics()
    commit = CommittedState(BEGINNING, policy.fingerprint, START_MS)
    task = partition_task("t", 0, policy, JsonDecoder(policy), Sink(), commit, metrics, 0.2, wall_clock=Clock())
    keys = [*[(8 * number).to_bytes(8, "big") for number in range(25)], *[None] * 75]
    values = [b'{"x":1}'] * 90 + [b'{"x":1,"xq7canary":2}'] * 10
    messages = [
        replace(record(offset), key=key, value=value)
        for offset, (key, value) in enumerate(zip(keys, values, strict=True))
    ]
    with capture_logs() as lines:
        await task.process(messages[:9])
        metrics.tell_refusals(logger("test"), 100.0)
        assert lines == []
        await task.process(messages[:90])
        for now_s in (101.0, 102.0):
            metrics.tell_refusals(logger("test"), now_s)
            assert len(lines) == 2
        await task.process(messages)
        metrics.tell_refusals(logger("test"), 160.9)
        assert len(lines) == 2
        metrics.tell_refusals(logger("test"), 161.0)
        metrics.tell_refusals(logger("test"), 222.0)
        log_totals(logger("test"), metrics)
    told = [(line["refused"], line.get("remedy", "")) for line in lines if line["event"] == "records refused"]
    kinds = [
        ("65 of 100 invalid: who: the message has no key", "give each message a key"),
        ("25 of 100 undecodable: who: a key that is no text", "write keys as texts, with Kafka's StringSerializer"),
        ("10 of 100 invalid: a field that the policy does not declare", "declare it, or set undeclared: drop"),
    ]
    assert [
        (text, remedy[: len(start)]) for (text, remedy), (_, start) in zip(told[2:], kinds * 2, strict=True)
    ] == kinds * 2
    assert "canary" not in str(lines)
    counted = {
        (one.labels["attribute"], one.labels["reason"]): one.value
        for family in metrics.refused.collect()
        for one in family.samples
        if one.name.endswith("_total")
    }
    assert counted == {("who", "no_key"): 65, ("who", "binary_key"): 25, ("", "undeclared"): 10}
    await task.close(commit=False)


async def test_refused_messages_are_counted_by_reason_and_field_once() -> None:
    policy, sink, metrics = policy_of(privacy={"per_subject": {"max": 1, "window": 50}}), Sink(), Metrics()
    bad = [b"{", None, b'{"who": 1, "x": null, "note": "canary"}', b"{" + b"x" * 20_000, b'{"who": 1, "x": 3}']
    messages = [*map(record, range(8)), record(0), *(Message(9 + i, value) for i, value in enumerate(bad))]
    messages[8] = replace(messages[8], offset=8)
    commit = CommittedState(BEGINNING, policy.fingerprint, START_MS)
    task = partition_task("t", 0, policy, JsonDecoder(policy), sink, commit, metrics, 0.2, wall_clock=Clock())
    await task.process(messages)
    await task.process(messages)
    assert metrics.refusals.total == 5
    assert sorted(metrics.refusals.texts(14)) == [
        "1 of 14 invalid: note: missing",
        "1 of 14 invalid: x: null",
        "1 of 14 undecodable",
        "1 of 14 undecodable: a part of a JSON object that stands on several lines",
        "1 of 14 undecodable: no value; set tombstones: drop to leave such messages out",
    ]
    await task.close(commit=False)
