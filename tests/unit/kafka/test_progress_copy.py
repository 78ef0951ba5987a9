"""The copy of the progress without a broker: its messages, where it is searched, and which commit is the newer one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from shoal.errors import BrokerUnavailableError, InputError
from shoal.kafka import progress, progress_copy, start
from shoal.kafka.client import NotYetError
from shoal.kafka.metadata import CommittedState, MetadataCipher
from shoal.kafka.offsets import OffsetState, ProgressError
from shoal.kafka.progress_copy import CopiedCommit, Order, ProgressCopy, order_of
from shoal.kafka.start import check_no_other_writer, check_no_record_after, decode_both, newest_commit
from shoal.kafka.topics import TopicState
from shoal.policy import KafkaSection

pytestmark = pytest.mark.unit

SETTINGS = KafkaSection(input="in", output="out", group="g", progress_copy="copy")
KEYS = {"plain": None, "old": bytes(range(32)), "new": bytes(range(100, 132))}
IDENTIFIER = "ab" * 16


def cipher(*names: str) -> MetadataCipher:
    return MetadataCipher("g", tuple(KEYS[name] for name in names))


def place(*names: str, **changes: Any) -> ProgressCopy:
    return replace(ProgressCopy(SETTINGS, 3, cipher(*(names or ("plain",))), IDENTIFIER), **changes)


def commit(*incomplete: int, next_offset: int = 20, at_ms: int = 1_000, **changes: Any) -> CommittedState:
    first = incomplete[0] if incomplete else next_offset
    return CommittedState(OffsetState(first, next_offset, incomplete, **changes), "01" * 8, at_ms, 4)


def copied(of: ProgressCopy, what: CommittedState, end: int | None = 7) -> CopiedCommit:
    metadata = of.cipher.encode(what, "in", of.partition)
    return of._parse(of.encode(what.state.committed_offset, metadata, end))


def of_group(what: CommittedState, *names: str) -> OffsetAndMetadata:
    return OffsetAndMetadata(what.state.committed_offset, cipher(*(names or ("plain",))).encode(what, "in", 3))


# ---------------------------------------------------------------- messages


@pytest.mark.parametrize("names", [("plain",), ("new",), ("new", "old")])
@pytest.mark.parametrize("end", [None, 0, 2**50])
def test_a_copy_holds_the_metadata_as_committed_and_where_the_output_ends(
    names: tuple[str, ...], end: int | None
) -> None:
    of, what = place(*names), commit(5, 9)
    message = copied(of, what, end)
    assert (message.offset, message.output, message.output_end, message.topic_id) == (5, "out", end, "ab" * 16)
    assert cipher(*names).decode(message.metadata, "in", 3, 5) == what
    assert of.decode(message) == what
    assert of.key == b'["g","in",3]'
    assert of.tp == TopicPartition("copy", 3)


def test_a_copy_of_the_largest_metadata_has_a_fixed_limit() -> None:
    settings = SETTINGS.model_copy(update={"input": "i" * 249, "group": "g" * 249})
    of = place("new", settings=settings, partition=10**6)
    assert len(of.encode(2**62, "x" * 4096, 2**62)) + len(of.key) < 8192 - 1024


@pytest.mark.parametrize("written", ["plain", "old"])
@pytest.mark.parametrize(
    "changes",
    [
        {"offset": 6},
        {"output": "other"},
        {"output": None},
        {"output_end": 8},
        {"output_end": None},
        {"topic_id": ""},
        {"tag": ""},
        {"tag": "é"},
    ],
    ids=str,
)
def test_a_changed_copy_is_refused(written: str, changes: dict[str, Any]) -> None:
    of = place(written)
    message = msgspec.structs.replace(copied(of, commit(5)), **changes)
    with pytest.raises(InputError, match=r"in-3: .*broken, or belongs to another group"):
        of.decode(message)


def test_a_checksum_is_no_substitute_for_the_mac() -> None:
    """Without the key, the end of the output cannot be changed, also while plain text is still allowed."""
    of = place("old", "plain")
    message = msgspec.structs.replace(copied(of, commit(5)), output_end=9)
    forged = msgspec.structs.replace(message, tag=cipher("plain").tag(message.tagged_bytes(), "in", 3))
    with pytest.raises(InputError, match="broken"):
        of.decode(forged)


@pytest.mark.parametrize("other", [{"partition": 4}, {"settings": SETTINGS.model_copy(update={"input": "of"})}])
def test_a_copy_of_another_partition_is_refused(other: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="belongs to another group, topic, partition or offset"):
        place("old", **other).decode(copied(place("old"), commit(5)))


def test_a_rotated_key_reads_the_copy_and_a_lost_one_does_not() -> None:
    message = copied(place("old"), commit(5))
    assert place("new", "old").decode(message) == commit(5)
    for name in ("new", "plain"):
        with pytest.raises(ProgressError):
            place(name).decode(message)


def test_a_copy_of_a_topic_that_was_recreated_is_refused() -> None:
    message = copied(place(), commit(5))
    with pytest.raises(ProgressError, match="in-3: the copy in copy has another topic id"):
        place(topic_id="cd" * 16).decode(message)
    # Brokers before Kafka 2.8 give none.
    assert place(topic_id="").decode(message) == commit(5)
    assert place().decode(copied(place(topic_id=""), commit(5))) == commit(5)


# ---------------------------------------------------------------- order


@pytest.mark.parametrize(
    ("copy", "group", "order"),
    [
        (commit(5, 9), commit(5, 9), Order.SAME),
        (commit(9), commit(5, 9), Order.NEWER),
        (commit(5, 9), commit(9), Order.OLDER),
        (commit(5, 9, next_offset=30), commit(5, 9, 18), Order.NEWER),
        # The time does not decide where the offsets do.
        (commit(9, at_ms=1), commit(5, 9, at_ms=2), Order.NEWER),
        (commit(5, 9), commit(5, 10), Order.CONTRADICTS),
        (commit(5), commit(9), Order.CONTRADICTS),
        # Read further is not newer, if an offset is incomplete that the other has completed.
        (commit(5, 12, next_offset=90), commit(5, 9), Order.CONTRADICTS),
        # A flush that is decided, and not done.
        (commit(5, at_ms=2, flush_at_offset=20), commit(5, at_ms=1), Order.NEWER),
        (commit(5, at_ms=1), commit(5, at_ms=2, flush_at_offset=20), Order.OLDER),
        (commit(5, flush_at_offset=20), commit(5), Order.NEWER),
        # Records were read and not decided on, while the clock was set back.
        (commit(5), commit(5, 20, 21, next_offset=22), Order.OLDER),
        (commit(5, 20, 21, next_offset=22, at_ms=1), commit(5, at_ms=2), Order.NEWER),
        (commit(5, stream_time=8), commit(5), Order.CONTRADICTS),
        (commit(5, handed_over_uncommitted=True), commit(5), Order.NEWER),
        (commit(5), commit(5, handed_over_uncommitted=True), Order.OLDER),
        # One start under another policy committed the progress again; the copy does not have it, or alone has it.
        (commit(5, adaptive_state=b"a"), replace(commit(5), fingerprint="02" * 8), Order.SAME),
        (replace(commit(5), fingerprint="02" * 8), commit(5, adaptive_state=b"a"), Order.SAME),
        (commit(5, stream_time=8), replace(commit(5), fingerprint="02" * 8), Order.CONTRADICTS),
        (commit(5, adaptive_state=b"a"), commit(5), Order.CONTRADICTS),
        # Records are released in order: a cluster was decided with a record that the other commit has not read.
        (commit(9, next_offset=30, unfinished_clusters=((5, 25),)), commit(5, 9), Order.NEWER),
        (commit(5, 9), commit(9, next_offset=30, unfinished_clusters=((5, 25),)), Order.OLDER),
        (commit(9, next_offset=30, unfinished_clusters=((5, 25),)), commit(5, 8), Order.CONTRADICTS),
    ],
)
def test_a_commit_is_newer_if_it_has_completed_what_the_other_has(
    copy: CommittedState, group: CommittedState, order: Order
) -> None:
    assert order_of(copy, group) is order


def test_a_contradiction_names_both_stores() -> None:
    with pytest.raises(InputError, match=r"in-3: the progress of group g and its copy in copy contradict each other"):
        decode_both(of_group(commit(5)), copied(place(), commit(9)), place())


def test_foreign_metadata_of_the_group_name_the_copy_only_if_it_can_be_read() -> None:
    foreign = OffsetAndMetadata(5, "by hand")
    with pytest.raises(InputError, match=r"Delete the group's offset .* continues from the copy"):
        decode_both(foreign, copied(place(), commit(5)), place())
    with pytest.raises(InputError) as caught:
        decode_both(foreign, None, place())
    assert "copy" not in str(caught.value)
    with pytest.raises(ProgressError):
        decode_both(of_group(commit(5), "old"), copied(place("new"), commit(5)), place("new"))


# ---------------------------------------------------------------- reading


class Log:
    """A partition of the copy: records by offset, and how far reads began."""

    def __init__(self, end: int, stable: list[int], **records: tuple[bytes, bytes | None]) -> None:
        self.records = {int(name[1:]): record for name, record in records.items()}
        self.end, self.stable, self.begins, self.levels = end, stable, list[int](), list[str]()

    @asynccontextmanager
    async def reading(self, _: KafkaSection, isolation_level: str = "read_committed") -> AsyncIterator[Any]:
        async def end_offsets(asked: list[TopicPartition]) -> dict[TopicPartition, int]:
            self.levels.append(isolation_level)
            is_stable = isolation_level == "read_committed"
            ends = self.stable if is_stable else [self.end]
            return {asked[0]: ends.pop(0) if is_stable and len(ends) > 1 else ends[0]}

        yield SimpleNamespace(end_offsets=end_offsets)

    async def read(self, _: KafkaSection, tp: TopicPartition, begin: int) -> AsyncIterator[Any]:
        assert tp == TopicPartition("copy", 3)
        self.begins.append(begin)
        for offset, (key, value) in self.records.items():
            if offset >= begin:
                yield SimpleNamespace(key=key, value=value)


def patched(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    monkeypatch.setattr(progress_copy, "asking", log.reading)
    monkeypatch.setattr(progress_copy, "read_committed_records", log.read)


OWN, OTHER = b'["g","in",3]', b'["h","in",3]'


def value(offset: int) -> bytes:
    of = place()
    return of.encode(offset, of.cipher.encode(commit(offset), "in", 3), 7)


def test_the_message_holds_nothing_but_progress() -> None:
    assert set(json.loads(value(5))) == {"offset", "metadata", "output", "output_end", "topic_id", "tag"}


@pytest.mark.parametrize(
    ("end", "records", "offset", "begins"),
    [
        (0, {}, None, [0]),
        (900, {"o5": (OWN, value(1)), "o9": (OWN, value(2)), "o11": (OTHER, value(3))}, 2, [0]),
        (5_000, {"o4500": (OWN, value(1))}, 1, [4_000]),
        (5_000, {"o20": (OWN, value(1)), "o4500": (OTHER, value(2))}, 1, [4_000, 0]),
        (100_000, {"o40000": (OWN, value(1))}, 1, [99_000, 92_000, 36_000]),
        (100_000, {"o7": (OTHER, value(1))}, None, [99_000, 92_000, 36_000, 0]),
        # Deleted: the copy before it does not count.
        (100_000, {"o7": (OWN, value(1)), "o99500": (OWN, None)}, None, [99_000]),
    ],
    ids=str,
)
async def test_the_last_copy_is_searched_from_the_end(
    monkeypatch: pytest.MonkeyPatch,
    end: int,
    records: dict[str, tuple[bytes, bytes | None]],
    offset: int | None,
    begins: list[int],
) -> None:
    log = Log(end, [end], **records)
    patched(monkeypatch, log)
    found = await place().fetch()
    assert (None if found is None else found.offset) == offset
    assert log.begins == begins


async def test_open_transactions_of_others_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(900, [880, 890, 900], o895=(OWN, value(1)))
    patched(monkeypatch, log)
    found = await place().fetch()
    assert found is not None
    assert log.levels == ["read_uncommitted", "read_committed", "read_committed", "read_committed"]


async def test_a_transaction_that_stays_open_is_no_missing_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_copy, "STABLE_S", 0.0)
    patched(monkeypatch, Log(900, [880]))
    with pytest.raises(BrokerUnavailableError, match=r"copy-3: an open transaction.* hides .*find-hanging"):
        await place().fetch()


@pytest.mark.parametrize("text", [b"", b"{}", b"\xff", b"[1]", value(1).replace(b'"offset"', b'"more":1,"offset"')])
async def test_a_foreign_message_is_refused(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    patched(monkeypatch, Log(9, [9], o5=(OWN, text)))
    with pytest.raises(InputError, match=r"in-3: its message in copy-3 is broken"):
        await place().fetch()


async def test_the_number_of_partitions_of_the_first_start_is_that_of_partition_0(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = place(partition=0)
    found: list[CopiedCommit | InputError | None] = [copied(first, commit(5)), None, InputError("broken")]

    async def fetch(of: ProgressCopy) -> CopiedCommit | None:
        assert of.partition == 0
        answer = found.pop(0)
        if isinstance(answer, InputError):
            raise answer
        return answer

    monkeypatch.setattr(ProgressCopy, "fetch", fetch)
    assert [await place().first_partition_count() for _ in range(3)] == [4, None, None]


@pytest.mark.parametrize(
    ("states", "error", "words"),
    [
        ({"in": TopicState(4, b"")}, BrokerUnavailableError, "does not describe in and copy now"),
        ({"copy": TopicState(4, b"")}, BrokerUnavailableError, "does not describe in and copy now"),
        ({"in": TopicState(0, b""), "copy": TopicState(4, b"")}, BrokerUnavailableError, "does not describe in-3 now"),
        ({"in": TopicState(4, b""), "copy": TopicState(0, b"")}, InputError, "topic copy does not exist"),
        ({"in": TopicState(4, b""), "copy": TopicState(3, b"")}, InputError, "has no partition 3"),
    ],
)
async def test_a_topic_without_the_partition_is_refused(
    monkeypatch: pytest.MonkeyPatch, states: dict[str, TopicState], error: type[Exception], words: str
) -> None:
    async def answer(*_: object) -> dict[str, TopicState]:
        return states

    monkeypatch.setattr("shoal.kafka.topics.ASK_AGAIN_S", 0.01)
    monkeypatch.setattr(progress_copy, "topic_states", answer)
    with pytest.raises(error, match=words):
        await ProgressCopy.of(cast("Any", None), SETTINGS, 3, cipher("plain"))


async def test_a_copy_knows_the_id_of_the_input(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(*_: object) -> dict[str, TopicState]:
        return {"in": TopicState(4, b"\xab" * 16), "copy": TopicState(4, b"\x01" * 16)}

    monkeypatch.setattr(progress_copy, "topic_states", answer)
    assert await ProgressCopy.of(cast("Any", None), SETTINGS, 3, cipher("plain")) == place()
    without = SETTINGS.model_copy(update={"progress_copy": None})
    assert await ProgressCopy.of(cast("Any", None), without, 3, cipher("plain")) is None


# ---------------------------------------------------------------- the output


class Output:
    """A partition of the output: where it begins and ends, and the offsets of its records."""

    def __init__(self, log_start: int, log_end: int, *records: int) -> None:
        self.log_start, self.log_end, self.records = log_start, log_end, records

    @asynccontextmanager
    async def reading(self, *_: object, **__: object) -> AsyncIterator[Any]:
        async def beginning(asked: list[TopicPartition]) -> dict[TopicPartition, int]:
            return {asked[0]: self.log_start}

        async def end(asked: list[TopicPartition]) -> dict[TopicPartition, int]:
            return {asked[0]: self.log_end}

        yield SimpleNamespace(beginning_offsets=beginning, end_offsets=end, output=self)

    async def next_record_offset(self, _: TopicPartition, offset: int) -> int | None:
        assert self.log_start <= offset <= self.log_end
        return next((one for one in self.records if one >= offset), None)


HOLDS, GONE = "holds records that were published after the copy", "no longer shows what followed the copy"


@pytest.mark.parametrize(
    ("output", "words", "has_other_writer"),
    [
        (Output(0, 10, 7, 8), "", False),
        (Output(10, 10), "", False),
        (Output(0, 30, 7, 8), "", False),  # aborted transactions
        (Output(0, 30, 7, 8, 10), HOLDS, True),
        (Output(0, 30, 7, 8, 27), HOLDS, True),
        (Output(10, 30, 27), HOLDS, True),
        (Output(11, 30, 27), GONE, True),
        (Output(11, 30), GONE, False),
        (Output(11, 11), GONE, False),
        (Output(0, 9, 7), GONE, False),  # records were lost: they are counted
        (Output(0, 0), GONE, False),
    ],
    ids=lambda one: f"{one.log_start}-{one.log_end}-{one.records}" if isinstance(one, Output) else str(one),
)
async def test_the_output_must_show_that_nothing_followed_the_copy_and_no_other_producer_the_last_commit(
    monkeypatch: pytest.MonkeyPatch, output: Output, words: str, *, has_other_writer: bool
) -> None:
    monkeypatch.setattr(start, "reading", output.reading)
    monkeypatch.setattr(start, "asking", output.reading)
    monkeypatch.setattr(start, "GapReader", lambda reader: reader.output)
    with pytest.raises(InputError, match=rf"in-3: .* out-3 {words} \(offset 10\)") if words else nullcontext():
        await check_no_record_after(SETTINGS, 3, 10)
    await check_no_other_writer(SETTINGS, 3, None)
    await check_no_other_writer(SETTINGS.model_copy(update={"output": None}), 3, 10)
    after = r"in-3: out-3 holds records .* after the commit \(from offset 10 on;"
    with pytest.raises(InputError, match=after) if has_other_writer else nullcontext():
        await check_no_other_writer(SETTINGS, 3, 10)


async def test_an_output_that_does_not_show_what_followed_the_copy_is_refused() -> None:
    with pytest.raises(InputError, match=r"in-3: only the copy .* left, and the copy does not say where out-3 ended"):
        await check_no_record_after(SETTINGS, 3, None)
    without = SETTINGS.model_copy(update={"output": None})
    with pytest.raises(InputError, match="progress is older than its copy, and without an output topic nothing shows"):
        await check_no_record_after(without, 3, 10, has_older=True)


@pytest.mark.parametrize(
    ("group", "asked"),
    [
        (None, ["after", 40, False]),
        (commit(5, 9, 12), ["after", 40, True]),
        (commit(9, 12), ["other", 40, "end", 40]),
        (commit(12), []),
    ],
    ids=["none", "older", "same", "newer"],
)
async def test_the_output_is_checked_where_the_group_is_not_newer_than_the_copy(
    monkeypatch: pytest.MonkeyPatch, group: CommittedState | None, asked: list[Any]
) -> None:
    found = await checks_of(monkeypatch, copied(place(), commit(9, 12), 40), group)
    assert found == asked


async def checks_of(monkeypatch: pytest.MonkeyPatch, message: CopiedCommit, group: CommittedState | None) -> list[Any]:
    """Return which checks a start makes, and of which end of the output."""
    asked: list[Any] = []

    async def after(_: KafkaSection, __: int, end: int | None, *, has_older: bool) -> None:
        asked.extend(["after", end, has_older])

    async def other(_: KafkaSection, __: int, end: int | None) -> None:
        asked.extend(["other", end])

    async def fetch(_: ProgressCopy) -> CopiedCommit:
        return message

    monkeypatch.setattr(start, "check_no_record_after", after)
    monkeypatch.setattr(start, "check_no_other_writer", other)
    monkeypatch.setattr(ProgressCopy, "fetch", fetch)
    known = None if group is None else of_group(group)
    chosen = await newest_commit(known, place(), SETTINGS, 3, cipher("plain"), lambda end: asked.extend(["end", end]))
    assert chosen == (group if group == commit(12) else commit(9, 12))
    return asked


async def test_the_end_of_another_output_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    before = place(settings=SETTINGS.model_copy(update={"output": "before"}))
    message = copied(before, commit(9, 12), 40)
    assert await checks_of(monkeypatch, message, commit(9, 12)) == ["other", None, "end", 0]
    assert await checks_of(monkeypatch, message, None) == ["after", None, False]


async def test_a_refused_copy_names_its_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise InputError("records followed")

    async def fetch(of: ProgressCopy) -> CopiedCommit:
        return copied(of, commit(9, 12), 40)

    monkeypatch.setattr(start, "check_no_record_after", refuse)
    monkeypatch.setattr(ProgressCopy, "fetch", fetch)
    with pytest.raises(ProgressError, match="records followed") as caught:
        await newest_commit(None, place(), SETTINGS, 3, cipher("plain"))
    assert caught.value.committed_offset == 9


# ---------------------------------------------------------------- the report


async def test_the_report_says_that_an_open_transaction_hides_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_turn(monkeypatch, [NotYetError("copy-3: hidden", state="hidden by an open transaction")], [None])
    line = await progress._report(cast("Any", None), cast("Any", None), SETTINGS, cipher("plain"), 3)
    assert (line["state"], line["copy"], line["copy_watermark"]) == (
        "no progress",
        "hidden by an open transaction",
        None,
    )


def read_in_turn(
    monkeypatch: pytest.MonkeyPatch,
    copies: list[CommittedState | Exception],
    commits: list[CommittedState | None],
) -> list[str]:
    """Let the copy and the group be read, with these results in turn; return the list of what was read."""
    asked: list[str] = []

    async def fetch_copy(of: ProgressCopy) -> CopiedCommit:
        asked.append("copy")
        found = copies.pop(0)
        if isinstance(found, Exception):
            raise found
        return copied(of, found)

    async def fetch_group(*_: object) -> OffsetAndMetadata | None:
        asked.append("group")
        found = commits.pop(0)
        return None if found is None else of_group(found)

    async def made(*_: object) -> ProgressCopy:
        return place()

    monkeypatch.setattr(ProgressCopy, "fetch", fetch_copy)
    monkeypatch.setattr(ProgressCopy, "of", made)
    for name in ("fetch_committed", "fetch_committed_again"):
        monkeypatch.setattr(progress, name, fetch_group)
    return asked


FIRST, SECOND, THIRD = (commit(next_offset=offset) for offset in (20, 30, 40))


@pytest.mark.parametrize(
    ("copies", "commits", "word"),
    [
        ([FIRST], [FIRST], "same"),
        ([FIRST, SECOND], [SECOND], "same"),
        ([FIRST, THIRD], [SECOND], "same"),
        ([FIRST, FIRST], [SECOND], "older"),
        ([SECOND], [FIRST, SECOND], "same"),
        ([SECOND], [FIRST, THIRD], "same"),
        ([SECOND], [None, FIRST], "newer"),
    ],
)
async def test_a_commit_between_two_requests_is_no_difference(
    monkeypatch: pytest.MonkeyPatch,
    copies: list[CommittedState | Exception],
    commits: list[CommittedState | None],
    word: str,
) -> None:
    copies, commits = list(copies), list(commits)
    read_in_turn(monkeypatch, copies, commits)
    _, _, found = await progress._compare(cast("Any", None), place())
    assert (found, copies, commits) == (word, [], [])


@pytest.mark.parametrize(
    ("commits", "asked", "offset"),
    [
        ([THIRD], ["copy", "group"], 40),
        ([FIRST, THIRD], ["copy", "group", "group"], 40),
        ([FIRST, SECOND], ["copy", "group", "group"], 30),
        ([FIRST, FIRST], ["copy", "group", "group", "check"], 30),
        ([None, None], ["copy", "group", "group", "check"], 30),
    ],
)
async def test_an_export_checks_the_output_only_if_the_group_stays_behind_its_copy(
    monkeypatch: pytest.MonkeyPatch, commits: list[CommittedState | None], asked: list[str], offset: int
) -> None:
    read = read_in_turn(monkeypatch, [SECOND], list(commits))

    async def check(*_: object, **__: object) -> None:
        read.append("check")

    monkeypatch.setattr(progress, "check_copied_end", check)
    saved = await progress._saved_partition(cast("Any", None), SETTINGS, 3)
    assert saved is not None
    assert (read, saved.offset) == (asked, offset)
