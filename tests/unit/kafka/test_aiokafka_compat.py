"""What Shoal changes in aiokafka: header names, parsed records, and requests that are sent once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.consumer import fetcher
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from aiokafka.record import default_records, memory_records
from aiokafka.structs import ConsumerRecord
from shoal.kafka import aiokafka_compat as leniency
from shoal.kafka.aiokafka_compat import append_values, keep_parsed, plain_record_options, send_requests_once

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client as it is before invalid names are tolerated; importing a stage changes that."""
    monkeypatch.setattr(fetcher, "MemoryRecords", memory_records.MemoryRecords)


class Odd(str):
    """A name as a client without manners would send it."""

    __slots__ = ()

    def encode(self, *_: str) -> bytes:
        return b"\xff" + str.encode(self)


def batch(names: list[str], *, transactional: bool = False) -> bytes:
    builder = default_records._DefaultRecordBatchBuilderPy(2, 0, int(transactional), 7, 0, 0, 1 << 20)
    for number, name in enumerate(names):
        builder.append(number, 1000 + number, b"k", b"v%d" % number, [(name, b"1")])
    return bytes(builder.build())


def read(data: bytes) -> list[Any]:
    records, found = leniency._TolerantRecords(data), []
    while records.has_next():
        one = records.next_batch()
        assert one.validate_crc()
        found.append((one.base_offset, one.is_transactional, one.is_control_batch, list(one)))
    return found


def test_a_header_name_that_is_not_utf8_matches_no_name_in_a_policy() -> None:
    data = batch(["ward", Odd("ward"), "ward"])
    with pytest.raises(UnicodeDecodeError):
        list(fetcher.MemoryRecords(data).next_batch())
    ((_, _, _, records),) = read(data)
    names = [record.headers[0][0] for record in records]
    assert names[::2] == ["ward", "ward"]
    with pytest.raises(UnicodeEncodeError):
        names[1].encode()
    assert [record.value for record in records] == [b"v0", b"v1", b"v2"]
    assert [record.timestamp for record in records] == [1000, 1001, 1002]


# ---------------------------------------------------------------- parsed records


READ_COMMITTED = 1


def handed_over(deserializer: Callable[[bytes | None], Any] | None) -> list[Any]:
    builder = default_records.DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    builder.append(0, 1000, b"k", b"v", [("h", b"1")])
    builder.append(1, 1001, None, None, [])
    records = memory_records.MemoryRecords(bytes(builder.build()))
    tp = TopicPartition("t", 3)
    return list(fetcher.PartitionRecords(tp, records, [], 0, None, deserializer, True, READ_COMMITTED))


def test_a_consumer_of_shoal_hands_over_parsed_records_with_all_that_a_task_reads() -> None:
    found = handed_over(plain_record_options()["value_deserializer"])
    assert not any(isinstance(record, ConsumerRecord) for record in found)
    assert [(one.offset, one.timestamp, one.timestamp_type, one.key, one.value) for one in found] == [
        (0, 1000, 0, b"k", b"v"),
        (1, 1001, 0, None, None),
    ]
    assert [list(one.headers) for one in found] == [[("h", b"1")], []]


def test_other_consumers_hand_over_the_records_of_the_client() -> None:
    plain_record_options()
    for deserializer in (None, lambda value: value):
        found = handed_over(deserializer)
        assert all(type(record) is ConsumerRecord for record in found)
        assert [(one.topic, one.partition, one.offset, one.value) for one in found] == [
            ("t", 3, 0, b"v"),
            ("t", 3, 1, None),
        ]


def taken(kind: Any, counts: list[int | None]) -> tuple[list[list[int]], int, bool]:
    """Return the offsets that calls of `getall` return, the position after them, and whether more may follow."""
    tp, state = TopicPartition("t", 3), SimpleNamespace(paused=False, position=2)
    state.consumed_to = lambda position: setattr(state, "position", position)
    assignment = SimpleNamespace(active=True, state_value=lambda _: state)
    data = batch(["h"] * 5) + batch(["h"] * 2).replace(bytes(8), (5).to_bytes(8, "big"), 1)
    records = kind(tp, memory_records.MemoryRecords(data), [], 2, None, keep_parsed, True, READ_COMMITTED)
    found = fetcher.FetchResult(tp, assignment=assignment, partition_records=records, backoff=0)
    return [[one.offset for one in found.getall(number)] for number in counts], state.position, found.has_more()


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([2, 2, 2], ([[2, 3], [4, 5], [6]], 7, False)),
        ([5], ([[2, 3, 4, 5, 6]], 7, True)),
        ([5, 1], ([[2, 3, 4, 5, 6], []], 7, False)),
        ([1, None], ([[2], [3, 4, 5, 6]], 7, False)),
    ],
)
def test_messages_are_taken_in_parts_as_the_client_takes_them(
    counts: list[int | None], expected: tuple[list[list[int]], int, bool]
) -> None:
    plain_record_options()
    assert taken(leniency._PlainRecords, counts) == expected
    assert taken(leniency._PlainRecords.__mro__[1], counts) == expected


# ---------------------------------------------------------------- batches of a transaction


class OtherBuilder:
    """A batch of a client without the internals that are used."""

    def __init__(self) -> None:
        self._inner = BatchBuilder(300, 0, is_transactional=True)
        self.record_count, self._build = self._inner.record_count, self._inner._build

    def append(self, **message: Any) -> Any:
        return self._inner.append(**message)


def test_values_are_appended_as_the_client_appends_them_one_by_one() -> None:
    values = [b"a" * 100, b"", b"b" * 60, b"c" * 200, b"d"]
    expected = BatchBuilder(300, 0, is_transactional=True)
    appended = [expected.append(timestamp=7, key=None, value=value) is not None for value in values]
    assert appended == [True, True, True, False, False]
    expected._set_producer_state(1, 2, 3)
    for found in (BatchBuilder(300, 0, is_transactional=True), OtherBuilder()):
        assert (append_values(found, values, 7), found.record_count()) == (3, 3)
        inner: Any = getattr(found, "_inner", found)
        inner._set_producer_state(1, 2, 3)
        assert bytes(found._build()) == bytes(expected._build())


def test_a_value_that_is_longer_than_a_batch_is_appended_alone() -> None:
    assert append_values(BatchBuilder(100, 0), [b"a" * 200, b"b"], 7) == 1


# ---------------------------------------------------------------- requests of a transaction


TRANSACTIONAL = [AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, TxnOffsetCommitRequest, EndTxnRequest]


class FakeClient:
    """Fails every request with an error, or answers it."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.sent: list[tuple[int, str, dict[str, Any]]] = []

    async def send(self, node: int, request: object, **options: Any) -> str:
        self.sent.append((node, type(request).__name__, options))
        if self.error is not None:
            raise self.error
        return "response"


class FakeProducer:
    """The members of aiokafka's producer that are used; each notes what ends it."""

    def __init__(self, error: Exception | None) -> None:
        self.client = FakeClient(error)
        self.ended: list[str] = []
        self._message_accumulator = self._sender = self._txn_manager = self.sender_task = self

    def fail_all(self, error: Exception) -> None:
        self.ended.append(f"messages: {error}")

    def fatal_error(self, error: Exception) -> None:
        self.ended.append(f"transaction: {error}")

    def cancel(self) -> None:
        self.ended.append("task")


def request_of(kind: Any) -> Any:
    """Return a request without content."""
    return kind.__new__(kind)


def send(producer: FakeProducer, kind: type) -> Any:
    send_requests_once(producer)
    return asyncio.run(producer.client.send(3, request_of(kind), group="transactions"))


LOST = "KafkaError: no response to a request of a transaction, which may have been processed or not"
ENDED = [f"messages: {LOST}", f"transaction: {LOST}", "task"]


@pytest.mark.parametrize(
    ("kind", "error", "ended"),
    [
        *((kind, kafka_errors.RequestTimedOutError, ENDED) for kind in TRANSACTIONAL),
        *((kind, kafka_errors.KafkaConnectionError, ENDED) for kind in TRANSACTIONAL),
        *((kind, kafka_errors.NodeNotReadyError, []) for kind in TRANSACTIONAL),  # it was not sent
        (ProduceRequest, kafka_errors.RequestTimedOutError, []),  # the broker drops repeated rows
    ],
)
def test_a_lost_response_of_a_transaction_ends_the_producer_and_other_requests_may_be_sent_again(
    kind: type, error: type[Exception], ended: list[str]
) -> None:
    producer = FakeProducer(error())
    with pytest.raises(error):
        send(producer, kind)
    assert producer.ended == ended
    if not ended:
        producer.client.error = None
        assert asyncio.run(producer.client.send(3, request_of(kind))) == "response"
