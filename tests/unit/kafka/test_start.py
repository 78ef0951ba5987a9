"""What a start reads: the committed offset, its rows in the output, and messages of side topics."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
from aiokafka import errors as kafka_errors
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from shoal.errors import BrokerUnavailableError, InputError
from shoal.kafka import start
from shoal.kafka.metadata import CommittedState, MetadataCipher, OutputRows
from shoal.kafka.offsets import OffsetState, ReferenceRecord
from shoal.kafka.progress_copy import Order, order_of
from shoal.kafka.start import (
    PartitionContext,
    PartitionStart,
    StartOptions,
    _is_about,
    fetch_committed,
    initialize_partition,
    is_published_after,
)
from shoal.kafka.transactions import PartitionCounts
from shoal.policy import KafkaSection
from structlog.testing import capture_logs

pytestmark = pytest.mark.unit


SETTINGS = KafkaSection(input="in", output="out", group="g")


class Coordinator:
    """Answers of an admin client, one after the other."""

    def __init__(self, *answers: dict[Any, Any] | Exception, partitions: tuple[int, ...] = (3,)) -> None:
        self.answers = list(answers)
        self.partitions = [TopicPartition("in", number) for number in partitions]

    async def list_consumer_group_offsets(self, group: str, partitions: list[TopicPartition]) -> dict[Any, Any]:
        assert (group, partitions) == ("g", self.partitions)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


PLACE = TopicPartition("in", 3)


async def test_the_committed_offset_is_read_until_two_answers_agree() -> None:
    first, second = OffsetAndMetadata(5, "a"), OffsetAndMetadata(6, "b")
    moving = kafka_errors.GroupCoordinatorNotAvailableError()
    client = Coordinator({PLACE: first}, {}, moving, {PLACE: first}, {PLACE: second}, {PLACE: second})
    assert await fetch_committed(cast("Any", client), SETTINGS, 3) == second


async def test_an_error_that_is_not_retriable_is_raised_at_once() -> None:
    with pytest.raises(kafka_errors.GroupAuthorizationFailedError):
        await fetch_committed(cast("Any", Coordinator(kafka_errors.GroupAuthorizationFailedError())), SETTINGS, 3)


async def test_a_silent_coordinator_does_not_mean_that_there_is_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "COORDINATOR_TIMEOUT_S", 0.1)
    assert await fetch_committed(cast("Any", Coordinator({PLACE: OffsetAndMetadata(-1, "")})), SETTINGS, 3) is None
    # A coordinator that is still loading, or has moved, answers without partitions.
    with pytest.raises(BrokerUnavailableError, match=r"in-3.*group g"):
        await fetch_committed(cast("Any", Coordinator({})), SETTINGS, 3)


async def test_the_time_of_requests_counts_for_the_limit_of_a_silent_coordinator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A coordinator that swallows packets answers no request before its time limit."""
    monkeypatch.setattr(start, "COORDINATOR_TIMEOUT_S", 1.0)
    now_s, requests = 0.0, 0

    class Silent(Coordinator):
        async def list_consumer_group_offsets(self, group: str, partitions: list[TopicPartition]) -> dict[Any, Any]:
            nonlocal now_s, requests
            now_s, requests = now_s + 10, requests + 1
            return await super().list_consumer_group_offsets(group, partitions)

    monkeypatch.setattr(start, "time", SimpleNamespace(monotonic=lambda: now_s))
    with pytest.raises(BrokerUnavailableError):
        await fetch_committed(cast("Any", Silent({})), SETTINGS, 3)
    assert requests == 1


def commits(*offsets: int) -> dict[TopicPartition, OffsetAndMetadata]:
    """Commits of partitions 0, 1 and so on of a group that started with two partitions; -1 for none."""
    found = {}
    for number, offset in enumerate(offsets):
        metadata = ""
        if offset >= 0:
            metadata = MetadataCipher("g").encode(
                CommittedState(OffsetState(offset, offset), "ab" * 8, 1, 2), "in", number
            )
        found[TopicPartition("in", number)] = OffsetAndMetadata(offset, metadata)
    return found


async def test_the_first_partition_count_is_asked_again_until_all_partitions_are_answered() -> None:
    """A coordinator that is loading answers without partitions, which does not mean that there is no commit."""
    partial = dict(list(commits(5, -1, -1).items())[1:])
    client = Coordinator({}, partial, commits(5, -1, -1), partitions=(0, 1, 2))
    found = await start.fetch_first_partition_count(cast("Any", client), SETTINGS, 3, MetadataCipher("g"))
    assert found == 2
    client = Coordinator(commits(-1, -1, -1), partitions=(0, 1, 2))
    found = await start.fetch_first_partition_count(cast("Any", client), SETTINGS, 3, MetadataCipher("g"))
    assert found is None


async def test_the_first_partition_count_is_asked_once_when_it_is_known() -> None:
    client = Coordinator(commits(-1, -1, -1), commits(-1, -1, -1), commits(5, -1, -1), partitions=(0, 1, 2))
    unused, options, cipher = cast("Any", SimpleNamespace(copy=None)), StartOptions(), MetadataCipher("g")
    known: dict[str, int] = {}
    for partition, expected in ((0, None), (1, 2), (2, 2)):
        counts = PartitionCounts("in", partition)
        context = PartitionContext(
            cast("Any", client), unused, SETTINGS, partition, 3, "ab" * 8, options, cipher, counts, known
        )
        assert await start._first_partition_count(context) == expected
        if partition == 1:
            client.answers = [RuntimeError("asked again")]


async def test_a_first_partition_count_that_is_not_answered_is_not_taken_for_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start, "COORDINATOR_TIMEOUT_S", 0.1)
    partial = dict(list(commits(5, -1, -1).items())[:2])
    client = Coordinator(partial, partitions=(0, 1, 2))
    with pytest.raises(BrokerUnavailableError, match=r"in-2: the coordinator of group g does not return"):
        await start.fetch_first_partition_count(cast("Any", client), SETTINGS, 3, MetadataCipher("g"))


@pytest.mark.parametrize(
    ("partition", "message", "alone", "of_several"),
    [
        (3, b'{"partition":3,"cluster":0}', True, False),
        (3, b'{"partition":3,"topic":"in"}', True, True),
        (3, b'{"partition":3,"topic":"other"}', False, False),
        (3, b'{"partition":3,"topic":["in"]}', False, False),
        (3, b'{"partition":4,"topic":"in"}', False, False),
        (3, b"[3]", False, False),
        (3, b"\xff", False, False),
        (3, None, False, False),
        (None, b'{"size":3}', True, False),
        (None, b'{"topic":"in","size":3}', True, True),
        (None, b'{"topic":"other","size":3}', False, False),
        (None, b"text", True, True),
        (None, b"[" * 100_000, True, True),
        (None, None, True, True),
    ],
)
def test_evidence_is_about_a_partition_of_an_input_and_a_cluster_message_about_an_input(
    partition: int | None, message: bytes | None, *, alone: bool, of_several: bool
) -> None:
    assert _is_about(("in", None), partition, message) == alone
    assert _is_about(("in",), partition, message) == of_several


async def test_a_long_search_for_published_records_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    began_at = []

    async def evidence(_: object, __: object, begin: int) -> AsyncGenerator[Any, None]:
        began_at.append(begin)
        for offset in range(max(begin, 7), 10):
            yield SimpleNamespace(value=b'{"partition":2,"cluster":0}', offset=offset)

    settings = KafkaSection(input="in", group="g", evidence="proof")
    producer: Any = SimpleNamespace(target=lambda topic: TopicPartition(topic, 1), searched={})
    monkeypatch.setattr(start, "read_committed_records", evidence)
    times = iter([0.0, 9.9, 10.0, 10.0, 19.9, 20.0])
    monkeypatch.setattr(start, "time", SimpleNamespace(monotonic=lambda: next(times)))
    with capture_logs() as lines:
        await start.check_output_is_empty(producer, settings, 3)
        await start.check_output_is_empty(producer, settings, 3)
    assert began_at == [0, 10], "the second check reads what has been added"
    assert [(line["topic"], line["partition"], line["offset"]) for line in lines] == [("proof", 1, 8)]


@pytest.mark.parametrize(
    ("named", "log_starts", "refused"),
    [
        ({"output": "out", "evidence": "proof"}, {"out": 0, "proof": 9}, None),
        ({"output": "out", "evidence": "proof"}, {"out": 4, "proof": 0}, "out-3 before offset 4"),
        ({"evidence": "proof", "clusters": "shared"}, {"proof": 0, "shared": 7}, None),
        ({"evidence": "proof", "clusters": "shared"}, {"proof": 9, "shared": 0}, "proof-3 before offset 9"),
        ({}, {}, None),
    ],
)
async def test_a_start_is_refused_if_records_of_the_output_were_deleted(
    monkeypatch: pytest.MonkeyPatch, named: dict[str, str], log_starts: dict[str, int], refused: str | None
) -> None:
    """Without an output, evidence counts in its place; others write to the cluster messages, too."""

    @asynccontextmanager
    async def asking(_: object) -> AsyncGenerator[None, None]:
        yield

    async def bounds(_: object, tp: TopicPartition) -> tuple[int, int]:
        return log_starts[tp.topic], 10

    monkeypatch.setattr(start, "asking", asking)
    monkeypatch.setattr(start, "log_bounds", bounds)
    producer: Any = SimpleNamespace(
        target=lambda topic: TopicPartition(topic, 3), is_only_writer=lambda topic: topic != "shared"
    )
    settings = KafkaSection.model_validate({"input": "in", "group": "g", **named})
    if refused is None:
        await start.check_output_is_whole(producer, settings, 3)
        return
    with pytest.raises(InputError, match=f"in-3: group g has no committed offset, and the records of {refused} were"):
        await start.check_output_is_whole(producer, settings, 3)


class Publisher:
    """Stands for the producer of a partition: what it is told, in order."""

    copy: object = object()

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.metadata: list[str] = []

    know_output_end = None

    def output_rows_of(self, _: object) -> None:
        return None

    def expect_output_from(self, offset: int | None) -> None:
        self.told.append(("expect", offset))

    async def publish_and_commit(self, _: object, offset: int, *more: object) -> None:
        self.told.append(("commit", offset))
        self.metadata.append(str(more[0]))


async def skipped(
    monkeypatch: pytest.MonkeyPatch,
    producer: Publisher,
    end: int | Exception,
    counts: PartitionCounts | None = None,
    found: CommittedState | None = None,
) -> PartitionStart:
    """Start with --skip-to-end, at 20 of 100 offsets where no commit is found that can be used."""
    newest = AsyncMock(return_value=found) if found is not None else AsyncMock(side_effect=InputError("it contradicts"))
    metadata = "" if found is None else MetadataCipher("g").encode(found, "in", 3)
    answers = {
        "newest_commit": newest,
        "_check_commit": AsyncMock(return_value=40),
        "fetch_committed": AsyncMock(return_value=OffsetAndMetadata(20, metadata)),
        "fetch_committed_again": AsyncMock(return_value=OffsetAndMetadata(20, metadata)),
        "latest_published": AsyncMock(return_value=-1),
        "end_at_start": AsyncMock(side_effect=[end]),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(start, name, answer)
    monkeypatch.setattr(start, "asking", lambda _: nullcontext())
    monkeypatch.setattr(start, "log_bounds", AsyncMock(return_value=(0, 100)))
    unused, ours = cast("Any", None), cast("Any", producer)
    options, cipher = StartOptions(skip_to_end=True), MetadataCipher("g")
    context = PartitionContext(
        unused, ours, SETTINGS, 3, 4, "ab" * 8, options, cipher, counts or PartitionCounts("in", 3), {}
    )
    return await initialize_partition(context)


async def test_a_skip_is_one_transaction_after_which_nothing_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Publisher()
    found = await skipped(monkeypatch, producer, 40)
    # The copy that this transaction writes says where the output ends.
    assert producer.told == [("expect", 40), ("commit", 100)]
    assert (found.skipped_count, found.commit.state.committed_offset) == (80, 100)


async def test_an_output_that_cannot_be_asked_fails_before_the_skip_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = Publisher()
    with pytest.raises(BrokerUnavailableError):
        await skipped(monkeypatch, producer, BrokerUnavailableError("gone"))
    assert producer.told == []


class LosesResponse(Publisher):
    """Stands for a producer that gets no response to the end of its first transaction."""

    async def publish_and_commit(self, _: object, offset: int, *more: object) -> None:
        await super().publish_and_commit(_, offset, *more)
        if len(self.metadata) == 1:
            raise BrokerUnavailableError("no response")


async def lost_skip(monkeypatch: pytest.MonkeyPatch) -> tuple[LosesResponse, PartitionCounts, CommittedState]:
    """Return a producer that has lost the response to a skip, the skips to count, and what it may have committed."""
    producer, counts = LosesResponse(), PartitionCounts("in", 3)
    with pytest.raises(BrokerUnavailableError):
        await skipped(monkeypatch, producer, 40, counts)
    return producer, counts, MetadataCipher("g").decode(producer.metadata[0], "in", 3, 100)


@pytest.mark.parametrize(("later_ms", "counted"), [(0, 80), (1, None)])
async def test_a_skip_of_unknown_outcome_is_counted_once_if_its_commit_is_found(
    monkeypatch: pytest.MonkeyPatch, later_ms: int, counted: int | None
) -> None:
    producer, counts, commit = await lost_skip(monkeypatch)
    again = await skipped(monkeypatch, producer, 40, counts, replace(commit, at_ms=commit.at_ms + later_ms))
    assert (again.skipped_count, again.is_first) == (counted, False)
    assert (await skipped(monkeypatch, producer, 40, counts, commit)).skipped_count is None


async def test_a_skip_that_was_not_committed_is_made_again_and_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    producer, counts, _ = await lost_skip(monkeypatch)
    assert (await skipped(monkeypatch, producer, 40, counts)).skipped_count == 80
    commit = MetadataCipher("g").decode(producer.metadata[1], "in", 3, 100)
    assert (await skipped(monkeypatch, producer, 40, counts, commit)).skipped_count is None


# ---------------------------------------------------------------- a changed policy


class WithoutCopy(Publisher):
    copy = None


def under(fingerprint: str, **changes: Any) -> CommittedState:
    """Return a commit of another start, of two records that are incomplete."""
    state = OffsetState(20, 30, (20, 25), released_from=3, next_cluster_number=7, stream_time=11)
    return CommittedState(replace(state, **changes), fingerprint, 1_000, 4)


async def continued(monkeypatch: pytest.MonkeyPatch, producer: Publisher, commit: CommittedState) -> PartitionStart:
    """Start under the policy "ab..." from a commit."""
    return await skipped(monkeypatch, producer, 40, found=commit)


async def test_progress_of_another_policy_is_committed_once_under_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = WithoutCopy(), WithoutCopy()
    begun = await continued(monkeypatch, first, under("cd" * 8, adaptive_state=b"of the other"))
    assert begun.has_new_policy
    assert first.told == [("expect", 40), ("commit", 20)]
    committed = MetadataCipher("g").decode(first.metadata[0], "in", 3, 20)
    assert committed == begun.commit == under("ab" * 8)
    again = await continued(monkeypatch, second, committed)
    assert not again.has_new_policy
    assert second.told == [("expect", 40)]


async def test_a_decided_flush_stays_under_the_policy_that_decided_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its drain does it under this policy, and commits then. Before, a start without a drain must still refuse it."""
    producer, decided = WithoutCopy(), under("cd" * 8, flush_at_offset=30)
    begun = await continued(monkeypatch, producer, decided)
    assert begun.has_new_policy
    assert begun.commit == decided
    assert producer.told == [("expect", 40)]


# ---------------------------------------------------------------- rows in the output


ROWS_SETTINGS = KafkaSection(bootstrap_servers="b:9092", input="in", output="out", group="g")
STATE = OffsetState(committed_offset=40, next_offset=45, incomplete=(40, 43), future_timestamped=(41, 42))


def commit_of(rows: OutputRows | None) -> CommittedState:
    return CommittedState(STATE, "ab" * 32, 1_700_000_000_000, 3, rows)


def test_commits_that_differ_only_in_their_rows_are_the_same() -> None:
    assert order_of(commit_of(OutputRows.of("out", 9, 0)), commit_of(OutputRows.of("out", 7, 2))) is Order.SAME
    assert order_of(commit_of(None), commit_of(OutputRows.of("out", 7, 2))) is Order.SAME


def output_with(monkeypatch: pytest.MonkeyPatch, offsets: list[int], timestamp_type: int, timestamp: int) -> None:
    async def read(_: object, __: object, begin: int) -> AsyncIterator[Any]:
        for offset in offsets:
            if offset >= begin:
                yield SimpleNamespace(offset=offset, timestamp=timestamp, timestamp_type=timestamp_type)

    async def since(_: object, __: object, since_ms: int) -> int | None:
        return offsets[0] if timestamp >= since_ms else None

    monkeypatch.setattr(start, "read_committed_records", read)
    monkeypatch.setattr(start, "offset_since", since)


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
    assert await is_published_after(ROWS_SETTINGS, 0, commit_of(rows)) is is_after


async def test_without_noted_rows_the_time_of_the_commit_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    output_with(monkeypatch, [5], 0, 1_700_000_000_001)
    assert await is_published_after(ROWS_SETTINGS, 0, commit_of(None))
    output_with(monkeypatch, [5], 1, 1_700_000_060_000)
    assert not await is_published_after(ROWS_SETTINGS, 0, commit_of(None))
    output_with(monkeypatch, [5], 1, 1_700_000_060_001)
    assert await is_published_after(ROWS_SETTINGS, 0, commit_of(None))
    # Later records before the noted rows, of an output that was recreated.
    output_with(monkeypatch, [5], 0, 1_700_000_000_001)
    assert await is_published_after(ROWS_SETTINGS, 0, commit_of(OutputRows.of("out", 7, 1)))


async def test_without_an_output_nothing_was_published() -> None:
    without = ROWS_SETTINGS.model_copy(update={"output": None})
    assert not await is_published_after(without, 0, commit_of(OutputRows.of("out", 7, 1)))


@pytest.mark.parametrize(
    ("log_start", "kept", "lost"),
    [
        (5, (10, 20, (10, 12)), 0),  # nothing was deleted that waited
        (11, (12, 20, (12,)), 1),
        (15, (20, 20, ()), 2),
        (26, (26, 26, ()), 8),  # two that waited, and six that nobody has read
    ],
)
def test_deleted_offsets_leave_the_progress_and_are_counted(
    log_start: int, kept: tuple[int, int, tuple[int, ...]], lost: int
) -> None:
    commit = CommittedState(OffsetState(10, 20, (10, 12)), "f", 1)
    found, count = start._without_lost(skipping(), commit, log_start)
    state = found.state
    assert ((state.committed_offset, state.next_offset, state.incomplete), count) == (kept, lost)
    assert start._without_lost(skipping(skip_lost=False), commit, log_start) == (commit, 0)


@pytest.mark.parametrize(
    ("log_start", "future", "flush", "reference"),
    [
        (11, (106, 115), 120, (110, 7)),
        (106, (115,), 120, (110, 7)),
        (121, (), None, None),
    ],
)
def test_a_progress_without_deleted_offsets_is_read_as_it_was_written(
    log_start: int, future: tuple[int, ...], flush: int | None, reference: tuple[int, int] | None
) -> None:
    state = OffsetState(
        *(10, 120, (10, 105, 110)),
        future_timestamped=(102, 106, 115),
        flush_at_offset=120,
        reference=ReferenceRecord(110, 7),
    )
    found, _ = start._without_lost(skipping(), CommittedState(state, "f" * 16, 1), log_start)
    again = MetadataCipher("g").decode(MetadataCipher("g").encode(found, "t", 0), "t", 0, found.state.committed_offset)
    assert again == found
    assert (again.state.future_timestamped, again.state.flush_at_offset) == (future, flush)
    assert again.state.reference == (None if reference is None else ReferenceRecord(*reference))


def test_a_partly_released_cluster_with_a_deleted_member_is_refused() -> None:
    commit = CommittedState(OffsetState(10, 20, (13,), unfinished_clusters=((10, 14),), released_up_to=11), "f", 1)
    with pytest.raises(InputError, match=r"t-0: records of a partly released cluster were deleted.*--skip-to-end"):
        start._without_lost(skipping(), commit, 12)


def skipping(*, skip_lost: bool = True) -> Any:
    return SimpleNamespace(options=StartOptions(skip_lost=skip_lost), tp=TopicPartition("t", 0))
