"""The transactional producer: requests to the client, its answers and errors."""

from __future__ import annotations

import asyncio
import gc
import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from aiokafka import errors as kafka_errors
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from shoal.errors import BrokerError, BrokerUnavailableError, FencedError, InputError
from shoal.kafka import transactions
from shoal.kafka.checks import TopicLayout
from shoal.kafka.client import NotYetError, broker_error
from shoal.kafka.metadata import MetadataCipher, OutputRows
from shoal.kafka.progress_copy import ProgressCopy
from shoal.kafka.transactions import TransactionalProducer, TransactionBatch, UnpublishedRecord
from shoal.observability import Metrics
from shoal.policy import KafkaSection, Policy
from shoal.streams import DecidedCluster
from support.making import policy_of, quasi

pytestmark = pytest.mark.unit

SETTINGS = KafkaSection(
    input="in", output="out", group="g", quarantine="bad", evidence="proof", clusters="sums", commit_interval_ms=200
)
LAYOUT = TopicLayout({"in": 6, "out": 6, "bad": 4, "proof": 4, "sums": 4})


class Batch:
    def __init__(self, limit: int) -> None:
        self.values: list[bytes] = []
        self.limit = limit
        self.stamps: set[int] = set()

    def append(self, *, key: bytes | None, value: bytes, timestamp: int) -> object | None:
        # Only messages of the copy of the progress have a key.
        assert (key is not None) == value.startswith(b'{"offset"')
        if self.values and sum(map(len, self.values)) + len(value) > self.limit:
            return None
        self.values.append(value)
        self.stamps.add(timestamp)
        return object()

    def close(self) -> None:
        pass


class Producer:
    """The client as far as a publisher uses it; writes down what it is asked for."""

    def __init__(self, fail_at: str = "", error: Exception | None = None) -> None:
        self.calls: list[Any] = []
        self.fail_at, self.error = fail_at, error or kafka_errors.KafkaError("x")
        self.client = self
        self.ends: dict[str, int] = {}
        self.open: set[str] = set()
        self._conns: dict[int, Any] = {}

    def _call(self, name: str, *about: Any) -> None:
        self.calls.append((name, *about))
        if name == self.fail_at:
            raise self.error

    async def begin_transaction(self) -> None:
        self._call("begin")

    def create_batch(self) -> Batch:
        return Batch(130)

    async def send_batch(self, batch: Batch, topic: str, *, partition: int) -> asyncio.Future[Any]:
        self._call("send", topic, partition, list(batch.values), set(batch.stamps))
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        done.set_result(SimpleNamespace(offset=self.ends.get(topic, 0)))
        self.ends[topic] = self.ends.get(topic, 0) + len(batch.values)
        self.open.add(topic)
        return done

    async def send_offsets_to_transaction(self, offsets: Any, group: str) -> None:
        self._call("offsets", offsets, group)

    async def commit_transaction(self) -> None:
        self._call("commit")
        self.ends |= {topic: self.ends[topic] + 1 for topic in self.open}
        self.open.clear()

    async def abort_transaction(self) -> None:
        self._call("abort")

    async def stop(self) -> None:
        self._call("stop")


def policy() -> Policy:
    return policy_of({"x": quasi(integer=True)}, stream={"delta": 4})


def made(
    monkeypatch: pytest.MonkeyPatch, producer: Producer, partition: int = 5, **changes: Any
) -> TransactionalProducer:
    monkeypatch.setattr(transactions, "producer", lambda *_: producer)
    return TransactionalProducer(policy(), SETTINGS.model_copy(update=changes), partition, LAYOUT)


def clusters() -> list[DecidedCluster]:
    return [
        DecidedCluster(0, [3, 7], [b'{"x":9}', b'{"x":9}'], ("9",), 2, "ab12"),
        DecidedCluster(1, [4, 9], [b'{"x":1}', b'{"x":1}'], ("1",), 2, "cd34"),
    ]


@dataclass
class Log:
    """What a reader finds in the output from an offset on, and what it was asked for."""

    found: int | Exception | None
    asked: list[tuple[TopicPartition, int]] = field(default_factory=list)

    async def first_record(self, _: KafkaSection, place: TopicPartition, offset: int) -> int | None:
        self.asked.append((place, offset))
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


async def with_a_gap(monkeypatch: pytest.MonkeyPatch, producer: Producer, log: Log) -> TransactionalProducer:
    """A publisher that has committed, 4 records and their mark, before something else took the next offset."""
    monkeypatch.setattr(transactions, "first_record", log.first_record)
    ours = made(monkeypatch, producer)
    for number in range(3):
        await ours.publish_and_commit(TransactionBatch(clusters()), number, "meta", 1_234_567)
    await ours.publish_and_commit(TransactionBatch(), 4, "meta", 1_234_567)
    assert log.asked == []
    producer.ends["out"] += 1
    return ours


@pytest.mark.parametrize("found", [15, None])
async def test_a_second_writer_is_detected_before_the_commit(
    monkeypatch: pytest.MonkeyPatch, found: int | None
) -> None:
    producer = Producer()
    ours = await with_a_gap(monkeypatch, producer, Log(found))
    with pytest.raises(InputError, match=r"out-5.*another producer"):
        await ours.publish_and_commit(TransactionBatch(clusters()), 5, "meta", 1_234_567)
    assert [call[0] for call in producer.calls].count("commit") == 4
    with pytest.raises(BrokerUnavailableError):
        await ours.publish_and_commit(TransactionBatch(), 6, "meta", 1_234_567)


@pytest.mark.parametrize(("end", "lost"), [(9, None), (10, None), (7, 2), (0, 9)])
async def test_an_output_that_has_lost_published_records_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, end: int, lost: int | None
) -> None:
    said: list[dict[str, Any]] = []
    monkeypatch.setattr(transactions, "log", SimpleNamespace(error=lambda _, **fields: said.append(fields)))
    monkeypatch.setattr(transactions, "producer", lambda *_: Producer())
    ends: dict[TopicPartition, int] = {}
    metrics = Metrics()

    def opened() -> TransactionalProducer:
        return TransactionalProducer(policy(), SETTINGS, 5, LAYOUT, output_ends=ends, metrics=metrics)

    first = opened()
    first.expect_output_from(0)
    for number in range(2):
        await first.publish_and_commit(TransactionBatch(clusters()), number, "meta", 1_234_567)
    assert ends == {TopicPartition("out", 5): 9}
    for _ in range(2):
        opened().expect_output_from(end)
    assert said == ([] if lost is None else [{"topic": "out", "partition": 5, "end": end, "lost": lost}])
    # As all counters of a partition it is labelled by the input.
    labels = {"topic": "in", "partition": "5"}
    assert metrics.registry.get_sample_value("shoal_published_offsets_lost_total", labels) == lost


async def test_the_rows_of_the_next_transaction_follow_those_of_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "producer", lambda *_: Producer())
    ours = TransactionalProducer(policy(), SETTINGS, 5, LAYOUT)
    batch = TransactionBatch(clusters())
    assert ours.output_rows_of(batch) is None
    ours.expect_output_from(0)
    row_count = sum(len(cluster.rows) for cluster in clusters())
    assert ours.output_rows_of(batch) == OutputRows.of("out", 0, row_count)
    assert ours.output_rows_of(TransactionBatch()) == OutputRows.of("out", 0, 0)
    await ours.publish_and_commit(batch, 0, "meta", 1_234_567)
    following = ours.output_rows_of(batch)
    assert following is not None
    assert following.first_offset == row_count + 1  # a control record follows the rows
    without_rows = TransactionalProducer(policy(), SETTINGS, 5, LAYOUT, publishes=False)
    without_rows.expect_output_from(0)
    assert without_rows.output_rows_of(batch) is None


@pytest.mark.parametrize(("own", "lost"), [(0, 12), (15, 15)])
def test_an_output_that_lost_records_while_no_process_ran_is_reported(
    monkeypatch: pytest.MonkeyPatch, own: int, lost: int
) -> None:
    said: list[dict[str, Any]] = []
    monkeypatch.setattr(transactions, "log", SimpleNamespace(error=lambda _, **fields: said.append(fields)))
    monkeypatch.setattr(transactions, "producer", lambda *_: Producer())
    ours = TransactionalProducer(policy(), SETTINGS, 5, LAYOUT, output_ends={TopicPartition("out", 5): own})
    ours.know_output_end(12)
    for _ in range(2):
        ours.expect_output_from(0)
    assert said == [{"topic": "out", "partition": 5, "end": 0, "lost": lost}]


async def test_a_duplicate_transaction_marker_is_no_second_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    producer, log = Producer(), Log(16)
    ours = await with_a_gap(monkeypatch, producer, log)
    for number in (5, 6):
        await ours.publish_and_commit(TransactionBatch(clusters()), number, "meta", 1_234_567)
    assert [call[0] for call in producer.calls].count("commit") == 6
    assert log.asked == [(TopicPartition("out", 5), 15)]


async def test_a_gap_that_cannot_be_read_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer()
    ours = await with_a_gap(monkeypatch, producer, Log(kafka_errors.RequestTimedOutError()))
    with pytest.raises(BrokerUnavailableError):
        await ours.publish_and_commit(TransactionBatch(clusters()), 5, "meta", 1_234_567)
    assert [call[0] for call in producer.calls].count("commit") == 4


async def test_the_first_check_is_awaited_once_and_may_take_longer_than_a_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If it ended the loop, the next start would find the commit of the beginning, and would not check again."""
    producer, asked = Producer(), []

    async def check() -> None:
        await asyncio.sleep(0.2)
        asked.append([call[0] for call in producer.calls].count("commit"))

    monkeypatch.setattr(transactions, "TRANSACTION_TIMEOUT_MS", 100)
    ours = made(monkeypatch, producer)
    ours.check_before_first(check)
    await ours.publish_and_commit(TransactionBatch(), 4, "meta", 1_234_567)
    assert asked == []
    for _ in range(2):
        await ours.publish_and_commit(TransactionBatch(clusters()), 5, "meta", 1_234_567)
    assert asked == [1]
    assert producer.calls[-1] == ("commit",)


async def test_a_foreign_record_between_two_batches_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer, log = Producer(), Log(1)
    monkeypatch.setattr(transactions, "first_record", log.first_record)
    send = producer.send_batch

    async def and_somebody_else(batch: Batch, topic: str, *, partition: int) -> asyncio.Future[Any]:
        sent = await send(batch, topic, partition=partition)
        if topic == "out":
            producer.ends[topic] += 1
        return sent

    producer.send_batch = and_somebody_else  # type: ignore[method-assign]
    ours = made(monkeypatch, producer)
    large = DecidedCluster(0, [0, 1, 2], [b"a" * 90, b"b" * 90, b"c" * 90], ("1",), 3, "ab12")
    with pytest.raises(InputError, match=r"out-5.*another producer"):
        await ours.publish_and_commit(TransactionBatch([large]), 3, "meta", 1)
    assert log.asked == [(TopicPartition("out", 5), 1)]
    assert "commit" not in [call[0] for call in producer.calls]


async def test_an_output_that_ends_earlier_than_expected_is_no_second_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    producer, log = Producer(), Log(0)
    monkeypatch.setattr(transactions, "first_record", log.first_record)
    ours = made(monkeypatch, producer)
    await ours.publish_and_commit(TransactionBatch(clusters()), 10, "meta", 1)
    producer.ends["out"] -= 1  # as if the control record of the transaction was not written
    with pytest.raises(BrokerUnavailableError, match="ends before the end of the last transaction"):
        await ours.publish_and_commit(TransactionBatch(clusters()), 20, "meta", 1)
    assert log.asked == []
    assert [call[0] for call in producer.calls].count("commit") == 1


@pytest.mark.parametrize("step", ["begin", "offsets", "abort", ""])
@pytest.mark.parametrize("error", [kafka_errors.ProducerFenced(), kafka_errors.RequestTimedOutError()])
async def test_a_failed_first_check_of_a_fenced_producer_is_a_fencing_error(
    monkeypatch: pytest.MonkeyPatch, step: str, error: Exception
) -> None:
    async def check() -> None:
        raise InputError("holds records already")

    producer = Producer(step, error)
    is_fenced = bool(step) and isinstance(error, kafka_errors.ProducerFenced)
    ours = made(monkeypatch, producer)
    ours.check_before_first(check)
    with pytest.raises(FencedError if is_fenced else InputError):
        await ours.publish_and_commit(TransactionBatch(clusters()), 5, "meta", 1_234_567)
    # Nothing was sent, nothing is left open.
    steps = ["begin", "offsets", "abort"]
    assert [call[0] for call in producer.calls] == steps[: steps.index(step or "abort") + 1]
    with pytest.raises(BrokerUnavailableError):
        await ours.publish_and_commit(TransactionBatch(), 6, "meta", 1_234_567)


async def test_one_transaction_carries_everything_in_this_order(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer()
    await made(monkeypatch, producer).publish_and_commit(
        TransactionBatch(clusters(), [UnpublishedRecord(1, "invalid")]), 10, "meta", 1_234_567
    )
    assert [call[0] for call in producer.calls] == ["begin", "send", "send", "send", "send", "offsets", "commit"]
    sent = {call[1]: call[2:] for call in producer.calls if call[0] == "send"}
    stamps = {1_234_400}
    assert sent["out"] == (5, [b'{"x":1}', b'{"x":1}', b'{"x":9}', b'{"x":9}'], stamps)
    assert sent["sums"][:2] == (
        5 % 4,
        [b'{"centroid":{"x":1},"size":2,"subjects":2}', b'{"centroid":{"x":9},"size":2,"subjects":2}'],
    )
    assert sent["proof"] == (
        5 % 4,
        [
            b'{"partition":5,"cluster":0,"offsets":[3,7],"policy":"ab12"}',
            b'{"partition":5,"cluster":1,"offsets":[4,9],"policy":"cd34"}',
        ],
        stamps,
    )
    assert sent["bad"] == (5 % 4, [b'{"topic":"in","partition":5,"offset":1,"reason":"invalid"}'], stamps)
    assert producer.calls[-2][1:] == ({TopicPartition("in", 5): OffsetAndMetadata(10, "meta")}, "g")


async def test_quarantine_entries_are_sent_without_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer()
    await made(monkeypatch, producer).publish_and_commit(
        TransactionBatch([], [UnpublishedRecord(1, "invalid")]), 2, "meta", 1_234_567
    )
    assert producer.calls == [
        ("begin",),
        ("send", "bad", 1, [b'{"topic":"in","partition":5,"offset":1,"reason":"invalid"}'], {1_234_400}),
        ("offsets", {TopicPartition("in", 5): OffsetAndMetadata(2, "meta")}, "g"),
        ("commit",),
    ]


@pytest.mark.parametrize("step", ["begin", "send", "offsets", "commit"])
async def test_a_producer_cannot_be_used_after_an_error(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    producer = Producer(step)
    one = made(monkeypatch, producer)
    with pytest.raises(BrokerError):
        await one.publish_and_commit(TransactionBatch(clusters()), 10, "meta", 1)
    producer.fail_at = ""
    before = list(producer.calls)
    with pytest.raises(BrokerUnavailableError, match="read again"):
        await one.publish_and_commit(TransactionBatch(), 10, "meta", 1)
    assert producer.calls == before
    await one.close()


async def test_a_topic_that_refuses_messages_without_a_key_is_a_final_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that does not know code 87 would report an unknown error, which is tried again for ever."""

    class Compacted(Producer):
        async def send_batch(self, batch: Batch, topic: str, *, partition: int) -> asyncio.Future[Any]:
            done = await super().send_batch(batch, topic, partition=partition)
            if topic != "proof":
                return done
            refused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            refused.set_exception(kafka_errors.for_code(87)())
            return refused

    publishing = made(monkeypatch, Compacted())
    with pytest.raises(
        InputError, match=r"^topic proof refuses the messages: it is compacted, .* cleanup\.policy"
    ) as one:
        await publishing.publish_and_commit(TransactionBatch(clusters(), []), 10, "m", 1234)
    assert (one.value.exit_code, one.value.retriable) == (2, False)


@pytest.mark.parametrize("error", [kafka_errors.InvalidTxnState, kafka_errors.IllegalOperation])
async def test_a_refused_topic_is_named_although_another_error_comes_first(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """The broker answers that the transaction has no valid state for messages of the topics that it does not refuse.

    The client refuses batches of a transaction that has failed before their turn came.
    """
    failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    failed.set_exception(kafka_errors.TopicAuthorizationFailedError({"out"}))
    producer = Producer("send", error())
    producer._txn_manager = SimpleNamespace(wait_for_transaction_end=lambda: failed)  # type: ignore[attr-defined]
    with pytest.raises(BrokerError, match=r"may not use topic out: grant WRITE on topic out in the ACLs"):
        await made(monkeypatch, producer).publish_and_commit(TransactionBatch(clusters()), 10, "meta", 1)


async def test_an_operation_that_the_client_refuses_without_a_failed_transaction_is_an_error_of_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = Producer("send", kafka_errors.IllegalOperation())
    with pytest.raises(kafka_errors.IllegalOperation):
        await made(monkeypatch, producer).publish_and_commit(TransactionBatch(clusters()), 10, "meta", 1)


async def test_an_error_of_a_batch_for_which_nothing_waits_is_not_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second batch of a topic fails at once, and its error ends the transaction; the first one fails later."""
    logged: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: logged.append(context))
    first, producer = loop.create_future(), Producer()
    producer.send_batch = AsyncMock(side_effect=[first, kafka_errors.ProducerFenced])  # type: ignore[method-assign]
    large = DecidedCluster(0, [3, 7], [b"r" * 100, b"s" * 100], ("9",), 2, "ab12")
    with pytest.raises(FencedError):
        await made(monkeypatch, producer).publish_and_commit(TransactionBatch([large]), 10, "meta", 1)
    first.set_exception(kafka_errors.ProducerFenced())
    await asyncio.sleep(0)
    producer.send_batch.reset_mock(side_effect=True)
    del first
    gc.collect()
    assert logged == []


async def test_a_transaction_is_cancelled_after_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer()

    async def hang() -> None:
        await asyncio.Event().wait()

    producer.commit_transaction = hang  # type: ignore[method-assign]
    monkeypatch.setattr(transactions, "TRANSACTION_TIMEOUT_MS", 50)
    one = made(monkeypatch, producer)
    with pytest.raises(BrokerUnavailableError, match="TimeoutError"):
        await one.publish_and_commit(TransactionBatch(), 10, "meta", 1)


async def test_a_coordinator_that_never_answers_ends_the_start_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    producer, is_cancelled = Producer(), asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            is_cancelled.set()

    producer.start = hang  # type: ignore[attr-defined]
    monkeypatch.setattr(transactions, "START_S", 0.05)
    words = r"^in-5: transactional id g-in-5 could not begin in 0\.05 s: its coordinator does not .* replicas in sync$"
    with pytest.raises(NotYetError, match=words) as caught:
        await made(monkeypatch, producer).open()
    assert (caught.value.waited_s, caught.value.retriable, is_cancelled.is_set()) == (0.05, True, True)


async def test_a_coordinator_that_does_not_end_a_transaction_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer()
    producer.start = asyncio.Event().wait  # type: ignore[attr-defined]
    producer._sender = SimpleNamespace(_coordinators={1: 3})  # type: ignore[attr-defined]
    monkeypatch.setattr(transactions, "START_S", 0.01)
    with pytest.raises(NotYetError, match=r"its coordinator, broker 3, does .* If they have, restart broker 3: after"):
        await made(monkeypatch, producer).open()


async def test_a_timeout_of_the_client_is_not_taken_for_the_limit_of_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer()

    async def fail() -> None:
        raise TimeoutError

    producer.start = fail  # type: ignore[attr-defined]
    with pytest.raises(BrokerUnavailableError, match=r"\(TimeoutError\)$"):
        await made(monkeypatch, producer).open()


def wrapped(cause: Exception) -> Exception:
    error: Exception = kafka_errors.KafkaError("Unexpected error during batch delivery")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (kafka_errors.ProducerFenced(), FencedError, "another worker"),
        (wrapped(kafka_errors.InvalidProducerEpoch()), FencedError, "another worker"),
        (wrapped(kafka_errors.OffsetMetadataTooLargeError()), BrokerError, "offset.metadata.max.bytes"),
        (kafka_errors.MessageSizeTooLargeError(), BrokerError, "max.message.bytes"),
        (kafka_errors.InconsistentGroupProtocolError(), BrokerError, "another kind"),
        (kafka_errors.TopicAuthorizationFailedError("secret"), BrokerError, "ACL"),
        (kafka_errors.NodeNotReadyError("10.0.0.1"), BrokerUnavailableError, "NodeNotReadyError"),
        (TimeoutError("secret"), BrokerUnavailableError, "TimeoutError"),
    ],
)
def test_a_client_error_becomes_a_shoal_error_without_its_text(
    error: Exception, kind: type[BrokerError], words: str
) -> None:
    ours = broker_error(error)
    assert type(ours) is kind
    assert words in str(ours)
    assert "secret" not in str(ours)
    assert "10.0.0.1" not in str(ours)


def test_a_refusal_of_a_topic_names_the_topics_that_are_written() -> None:
    settings = KafkaSection(input="in", output="out", quarantine="refused", evidence="evidence")
    words = str(broker_error(wrapped(kafka_errors.MessageSizeTooLargeError()), settings))
    assert words.endswith("or lower kafka.max_record_bytes; it is one of out, refused, evidence")


async def test_the_copy_is_part_of_the_transaction_and_says_where_the_output_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = Producer()
    ours = made(monkeypatch, producer)
    ours.copy = ProgressCopy(SETTINGS.model_copy(update={"progress_copy": "twin"}), 5, MetadataCipher("g"), "ab")
    await ours.publish_and_commit(TransactionBatch(), 9, "meta", 1_234_567)
    ours.expect_output_from(0)
    for number in (10, 20):
        await ours.publish_and_commit(TransactionBatch(clusters()), number, "meta", 1_234_567)
    await ours.publish_and_commit(TransactionBatch(), 30, "meta", 1_234_567)
    copies = [call for call in producer.calls if call[:2] == ("send", "twin")]
    assert {(call[2], *call[4]) for call in copies} == {(5, 1_234_400)}
    values = [json.loads(value) for call in copies for value in call[3]]
    assert [(one["offset"], one["metadata"], one["output_end"]) for one in values] == [
        (9, "meta", None),
        (10, "meta", 5),
        (20, "meta", 10),
        (30, "meta", 10),
    ]
    first = ["begin", "send", "offsets", "commit"]
    assert [call[0] for call in producer.calls[:4]] == first
    assert [call[0] for call in producer.calls[-4:]] == first
    steps = [call[:2] for call in producer.calls if call[0] in {"send", "offsets"}][1:]
    assert steps.index(("send", "twin")) > steps.index(("send", "out"))
