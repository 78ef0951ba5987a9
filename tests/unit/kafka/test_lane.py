"""One partition without a broker: what crashes, clocks, marks of transactions and large records must not do to it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from shoal.errors import BrokerUnavailableError, GuaranteeError, InputError
from shoal.kafka import collector as outgoing
from shoal.kafka.offset_metadata import CommittedState, decode, encode
from shoal.kafka.offset_tracker import LogProbe, LogTruncatedError, OffsetState
from shoal.kafka.partition_task import PartitionTask
from shoal.kafka.producer import TransactionBatch
from shoal.observability import Metrics
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.records import JsonDecoder

pytestmark = pytest.mark.unit

AHEAD_MS = 3_600_000

START_MS = 1_700_000_000_000
BEGINNING = OffsetState(watermark=0, next_offset=0)


@dataclass(frozen=True)
class Message:
    offset: int
    value: bytes | None
    timestamp: int = START_MS
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass
class Sink:
    """Remembers what was published; `errors` are raised first, one a time."""

    published: list[tuple[TransactionBatch, OffsetState]] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    gate: asyncio.Event | None = None
    is_closed: bool = False

    async def publish(self, outbox: TransactionBatch, watermark: int, metadata: str, at_ms: int) -> None:
        assert at_ms > 0
        if self.gate is not None:
            await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        self.published.append((outbox, decode(metadata, "t", 0, watermark).snapshot))
        self.times.append(at_ms)

    async def close(self) -> None:
        self.is_closed = True


class Clock:
    def __init__(self) -> None:
        self.s = START_MS / 1000 + 1

    def __call__(self) -> float:
        return self.s


def policy_of(k: int = 2, delta: int = 4, privacy: dict[str, Any] | None = None, **stream: Any) -> Policy:
    return Policy.from_document(
        Document.model_validate(
            {
                "attributes": {
                    "who": {"role": "identifier", "subject": True, "type": "integer"},
                    "x": {"role": "quasi_identifier", "scale": "numeric", "bounds": [0, 100], "integer": True},
                    "note": {"role": "confidential", "type": "string"},
                },
                "privacy": {"k": k, **(privacy or {})},
                "stream": {"delta": delta, **stream},
            }
        )
    )


def lane_of(policy: Policy, sink: Sink, snapshot: OffsetState = BEGINNING, clock: Clock | None = None) -> PartitionTask:
    commit = CommittedState(snapshot, policy.fingerprint, START_MS)
    return PartitionTask("t", 0, policy, JsonDecoder(policy), sink, commit, Metrics(), 0.2, now=clock or Clock())


def record(offset: int, timestamp: int = START_MS, note: str = "") -> Message:
    value = {"who": offset, "x": offset * 7 % 101, "note": note}
    return Message(offset, json.dumps(value).encode(), timestamp)


async def turn(lane: PartitionTask, clock: Clock, *, at_end: bool = False) -> None:
    """Let the commit interval pass, and the transaction it leads to."""
    clock.s += 1
    await lane.tick(at_end=at_end)
    await asyncio.sleep(0)
    lane.check()


@pytest.mark.parametrize("fails", [False, True])
async def test_nothing_decided_after_the_clock_refused_a_record_is_sent_before_that_is_committed(
    fails: bool,  # noqa: FBT001
) -> None:
    policy, clock, sink = policy_of(), Clock(), Sink(gate=asyncio.Event())
    lane = lane_of(policy, sink, clock=clock)
    await lane.intake([*map(record, range(8)), record(8, START_MS + 3 * AHEAD_MS), *map(record, range(9, 30))])
    # One block, and what the clock refused in it was packed before the block was decided on.
    await turn(lane, clock)
    assert sink.published == []
    assert sink.gate is not None
    if fails:
        sink.errors.append(BrokerUnavailableError("gone"))
    sink.gate.set()
    if fails:
        with pytest.raises(BrokerUnavailableError):
            await turn(lane, clock)
        with pytest.raises(BrokerUnavailableError):
            await turn(lane, clock)
        assert sink.published == []
        return
    await turn(lane, clock)
    await turn(lane, clock)
    (first, at_first), (second, _) = sink.published
    # So far ahead that nobody needs to list it.
    assert (first.clusters, [one.offset for one in first.references], at_first.void) == ([], [8], ())
    assert at_first.held == tuple(offset for offset in range(30) if offset != 8)
    assert second.clusters


async def test_the_time_of_commits_never_goes_back() -> None:
    clock, sink = Clock(), Sink()
    lane = lane_of(policy_of(), sink, clock=clock)
    for offset, step in enumerate((1, -100, 1, 200)):
        await lane.intake([record(4 * offset + number) for number in range(4)])
        clock.s += step
        await lane.tick(at_end=False)
        await asyncio.sleep(0)
        lane.check()
    # The lane began from a commit at this time.
    assert sink.times == [START_MS, START_MS, START_MS + 103_000]


async def test_reading_waits_when_too_many_transactions_wait_for_each_other() -> None:
    policy, sink = policy_of(), Sink(gate=asyncio.Event())
    lane = lane_of(policy, sink)
    assert not lane.is_full
    for offset in range(16):
        await lane.intake([record(offset, START_MS + 3 * AHEAD_MS)])
    assert lane.is_full


async def test_a_record_that_the_clock_refused_does_not_move_the_event_clock_when_it_is_looked_at_again() -> None:
    policy, clock, sink = policy_of(max_delay_s=3.0), Clock(), Sink()
    lane = lane_of(policy, sink, clock=clock)
    await lane.intake([record(0, START_MS + 3 * AHEAD_MS)])
    await turn(lane, clock)
    assert [reference.reason for reference in sink.published[0][0].references] == ["invalid"]
    again = lane_of(policy, sink, sink.published[-1][1], clock)
    again.look_back(0)
    assert again.cursor == 0
    await again.intake([record(0, START_MS + 3 * AHEAD_MS), record(1), record(2)])
    assert again.progress.clock == START_MS
    assert again.held == 2


async def test_nothing_is_committed_before_a_replay_is_over() -> None:
    policy, clock, sink = policy_of(), Clock(), Sink()
    # Offsets 0 and 1 are released in the replay, 2 and 3 are still to come: nobody knows the clock before 2 yet.
    lane = lane_of(policy, sink, OffsetState(watermark=0, next_offset=9, held=(0, 1, 7, 8), clock=-1), clock)
    await lane.intake([record(offset) for offset in range(6)])
    assert lane.is_restoring
    await turn(lane, clock)
    assert sink.published == []
    await lane.intake([record(7)])
    await turn(lane, clock)
    # Nor what the clock may have refused behind that.
    assert sink.published == []
    await lane.intake([record(8)])
    await turn(lane, clock)
    ((outbox, snapshot),) = sink.published
    assert [cluster.offsets for cluster in outbox.clusters] == [[0, 1]]
    assert (snapshot.watermark, snapshot.held, snapshot.clock) == (7, (7, 8), START_MS)


async def test_a_lane_that_is_closed_in_mid_replay_commits_nothing_it_does_not_know() -> None:
    policy, sink = policy_of(), Sink()
    lane = lane_of(policy, sink, OffsetState(watermark=0, next_offset=9, held=(0, 1, 7, 8), clock=-1))
    await lane.intake([record(offset) for offset in range(6)])
    await lane.close(finish=True)
    assert sink.published == []
    assert sink.is_closed


async def test_the_watermark_passes_what_is_no_record_and_is_committed_alone_once() -> None:
    clock, sink = Clock(), Sink()
    lane = lane_of(policy_of(), sink, clock=clock)
    await lane.intake([Message(0, b"{"), Message(1, None)])
    await turn(lane, clock)
    lane.reached(5)
    for _ in range(3):
        await turn(lane, clock)
    assert [snapshot.watermark for _, snapshot in sink.published] == [2, 5]
    assert not sink.published[-1][0]
    assert lane.cursor == 5


async def test_what_is_held_is_not_passed_and_neither_is_anything_in_a_replay() -> None:
    lane = lane_of(policy_of(), Sink())
    await lane.intake([record(0)])
    lane.reached(4)
    assert (lane.progress.watermark, lane.progress.next_offset) == (0, 4)
    restored = lane_of(policy_of(), Sink(), OffsetState(watermark=3, next_offset=9, held=(3, 8)))
    restored.reached(20)
    assert restored.progress.next_offset == 9


async def test_a_clock_that_was_set_back_does_not_stop_commits() -> None:
    clock, sink = Clock(), Sink()
    lane = lane_of(policy_of(), sink, clock=clock)
    await lane.intake([Message(0, b"{")])
    await turn(lane, clock)
    clock.s -= 7200
    await lane.intake([Message(1, b"{")])
    await lane.tick(at_end=False)
    await asyncio.sleep(0)
    assert len(sink.published) == 2


async def test_reading_waits_when_too_many_bytes_wait_for_a_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "FULL_BYTES", 10_000)
    lane = lane_of(policy_of(), Sink(gate=asyncio.Event()))
    await lane.intake([record(offset, note="n" * 4000) for offset in range(4)])
    assert not lane.is_full
    await lane.intake([record(offset, note="n" * 4000) for offset in range(4, 9)])
    assert lane.is_full


async def test_a_transaction_takes_what_there_was_when_it_was_begun() -> None:
    clock, sink = Clock(), Sink()
    lane = lane_of(policy_of(), sink, clock=clock)
    await lane.intake([Message(0, b"{")])
    clock.s += 1
    await lane.tick(at_end=False)
    # No other task has run since: the transaction has not begun to run either.
    await lane.intake([Message(1, b"{"), record(2)])
    await asyncio.sleep(0)
    ((outbox, snapshot),) = sink.published
    assert [reference.offset for reference in outbox.references] == [0]
    assert (snapshot.watermark, snapshot.held) == (1, ())


@pytest.mark.parametrize("held", [(), (5,)])
async def test_another_record_at_the_anchor_is_refused_with_both_remedies(held: tuple[int, ...]) -> None:
    anchor = LogProbe(5 if held else 4, START_MS - 1)
    lane = lane_of(
        policy_of(), Sink(), OffsetState(watermark=5, next_offset=6 if held else 5, held=held, anchor=anchor)
    )
    lane.look_back(0)
    with pytest.raises(InputError, match=r"t-0.*another group.*--skip-to-end"):
        await lane.intake([record(4), record(5)][len(held) :])


async def test_messages_out_of_order_stop_everything() -> None:
    lane = lane_of(policy_of(), Sink())
    with pytest.raises(GuaranteeError, match="order"):
        await lane.intake([record(2), record(1)])


async def test_repeats_of_a_fetch_are_ignored() -> None:
    lane = lane_of(policy_of(), Sink())
    await lane.intake([record(0), record(1)])
    await lane.intake([record(0), record(1), record(2)])
    assert lane.held == 3


async def test_a_failed_transaction_shows_at_the_next_turn_and_is_counted() -> None:
    clock, sink = Clock(), Sink(errors=[BrokerUnavailableError("away")])
    lane = lane_of(policy_of(), sink, clock=clock)
    await lane.intake([Message(0, b"{")])
    with pytest.raises(BrokerUnavailableError):
        await turn(lane, clock)
    assert lane._metrics.registry.get_sample_value("shoal_transactions_total", {"outcome": "aborted"}) == 1
    assert lane._metrics.totals()["quarantined"] == 0, "what was not committed has not happened"


async def test_held_records_that_did_not_come_again_are_referenced_at_the_end() -> None:
    clock, sink = Clock(), Sink()
    lane = lane_of(policy_of(), sink, OffsetState(watermark=0, next_offset=4, held=(0, 2, 3)), clock)
    await lane.intake([record(0), record(3)])
    await turn(lane, clock, at_end=True)
    assert [(one.offset, one.reason) for one in sink.published[0][0].references] == [(2, "suppressed")]


async def test_what_the_clock_decides_is_committed_before_it_is_carried_out() -> None:
    clock, sink = Clock(), Sink()
    lane = lane_of(policy_of(delta=10, max_delay_s=2.0), sink, clock=clock)
    await lane.intake([record(offset) for offset in range(4)])
    clock.s += 1.5
    await lane.tick(at_end=True)
    assert sink.published == []
    clock.s += 1
    await lane.tick(at_end=True)
    decision, deed = sink.published
    assert (decision[1].drain, len(decision[0].clusters), decision[1].held) == (4, 0, (0, 1, 2, 3))
    assert (deed[1].drain, len(deed[0].clusters), deed[1].held) == (None, 2, ())


async def test_a_decision_to_drain_is_carried_out_after_a_crash_exactly_where_it_fell() -> None:
    policy, sink = policy_of(delta=10, max_delay_s=2.0), Sink()
    lane = lane_of(policy, sink, OffsetState(watermark=0, next_offset=4, held=(0, 1, 2, 3), drain=4))
    await lane.intake([record(offset) for offset in range(9)])
    ((outbox, snapshot),) = sink.published
    assert sorted(place for cluster in outbox.clusters for place in cluster.offsets) == [0, 1, 2, 3]
    assert (snapshot.next_offset, snapshot.drain, lane.held) == (4, None, 5)


def test_metadata_of_a_lane_can_be_read_back() -> None:
    lane = lane_of(policy_of(), Sink())
    text = encode(CommittedState(lane.progress.snapshot(), lane._policy.fingerprint, 1), "t", 0)
    assert decode(text, "t", 0, 0).snapshot == lane.progress.snapshot()


LIMITED = {"per_subject": {"max": 1, "window": 10}}


def by_one(offset: int, who: int) -> Message:
    return Message(offset, json.dumps({"who": who, "x": offset, "note": ""}).encode(), START_MS)


async def test_a_restart_counts_the_window_again_that_it_is_in() -> None:
    policy, clock, sink = policy_of(privacy=LIMITED), Clock(), Sink()
    log = [by_one(offset, who) for offset, who in enumerate([0, 1, 2, 3, 4, 5, 0, 6, 7, 0, 0])]
    # Offsets 10 and on are the next window; everything before 6 is resolved.
    lane = lane_of(policy, sink, OffsetState(watermark=6, next_offset=6), clock)
    assert lane.look_back(0)
    assert lane.cursor == 0
    await lane.intake(log)
    await turn(lane, clock)
    ((outbox, snapshot),) = sink.published
    assert [(reference.offset, reference.reason) for reference in outbox.references] == [
        (6, "suppressed"),
        (9, "suppressed"),
    ]
    assert snapshot.held == (7, 8, 10)


@pytest.mark.parametrize(("origin", "low", "found"), [(0, 0, True), (4, 4, True), (0, 4, False), (4, 5, False)])
async def test_a_window_whose_beginning_the_log_has_lost_lets_nobody_in(origin: int, low: int, found: bool) -> None:  # noqa: FBT001
    lane = lane_of(policy_of(privacy=LIMITED), Sink(), OffsetState(watermark=6, next_offset=6, origin=origin))
    assert lane.look_back(low) is found
    assert lane.cursor == low
    await lane.intake([by_one(offset, offset) for offset in range(low, 12)])
    assert lane.held == (4 if found else 2)


async def test_the_anchor_is_looked_at_although_reading_begins_before_it() -> None:
    snapshot = OffsetState(watermark=6, next_offset=6, anchor=LogProbe(5, START_MS - 1))
    lane = lane_of(policy_of(privacy=LIMITED), Sink(), snapshot)
    lane.look_back(0)
    await lane.intake([by_one(offset, offset) for offset in range(5)])
    with pytest.raises(LogTruncatedError, match="another record stands at offset 5"):
        await lane.intake([by_one(5, 5)])


async def test_at_a_quiet_moment_too_few_people_wait_and_enough_leave() -> None:
    policy, clock, sink = policy_of(delta=9, privacy={"min_population": 4}, max_delay_s=3.0), Clock(), Sink()
    lane = lane_of(policy, sink, clock=clock)
    await lane.intake([record(0), record(1), record(2), by_one(3, 2)])
    clock.s += 60
    await turn(lane, clock, at_end=True)
    assert lane.held == 4, "three people left at a quiet moment"
    await lane.intake([record(4, round(clock.s * 1000))])
    assert lane.held == 3, "of four people the oldest leaves by the clock of the records, and the others are too few"
    await lane.intake([record(5, round(clock.s * 1000))])
    clock.s += 60
    await turn(lane, clock, at_end=True)
    assert (lane.held, lane.progress.clusters) == (2, 2)


async def test_a_drain_suppresses_too_few_people_in_the_first_try_and_in_the_second() -> None:
    policy, sink = policy_of(delta=9, privacy={"min_population": 4}), Sink()
    lane = lane_of(policy, sink)
    await lane.intake([record(0), record(1), record(2)])
    await lane.finish()
    assert [len(outbox.references) for outbox, _ in sink.published] == [0, 3]
    again = lane_of(policy, Sink(), sink.published[0][1])
    await again.intake([record(0), record(1), record(2)])
    await again.tick(at_end=True)
    assert again.held == 0
    assert not again.progress.clusters


async def test_what_the_clock_refused_stays_refused_when_the_watermark_passes_it_first() -> None:
    policy, clock, sink = policy_of(), Clock(), Sink()
    snapshot = OffsetState(watermark=0, next_offset=6, held=(0, 1, 2, 3), void=(4, 5), drain=6)
    lane = lane_of(policy, sink, snapshot, clock)
    await lane.intake([record(offset) for offset in range(4)])
    await turn(lane, clock)
    assert sink.published[-1][1].watermark == 6
    await lane.intake([record(offset, START_MS + 3 * AHEAD_MS) for offset in (4, 5)])
    assert lane.progress.clock == START_MS
