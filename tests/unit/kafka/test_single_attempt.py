"""Requests of a transaction are sent once: a lost response ends the producer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import errors as kafka_errors
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from shoal.kafka.aiokafka_compat import LostResponseError, send_requests_once

pytestmark = pytest.mark.unit

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
        self.ended.append(f"messages: {type(error).__name__}")

    def fatal_error(self, error: Exception) -> None:
        self.ended.append(f"transaction: {type(error).__name__}")

    def cancel(self) -> None:
        self.ended.append("task")


def request_of(kind: Any) -> Any:
    """Return a request without content."""
    return kind.__new__(kind)


def send(producer: FakeProducer, kind: type) -> Any:
    send_requests_once(producer)
    return asyncio.run(producer.client.send(3, request_of(kind), group="transactions"))


@pytest.mark.parametrize("kind", TRANSACTIONAL)
@pytest.mark.parametrize("error", [kafka_errors.RequestTimedOutError, kafka_errors.KafkaConnectionError])
def test_a_lost_response_of_a_transaction_ends_the_producer(kind: type, error: type[Exception]) -> None:
    producer = FakeProducer(error())
    with pytest.raises(error):
        send(producer, kind)
    assert producer.ended == ["messages: LostResponseError", "transaction: LostResponseError", "task"]


@pytest.mark.parametrize("kind", TRANSACTIONAL)
def test_a_request_that_was_not_sent_may_be_tried_again(kind: type) -> None:
    producer = FakeProducer(kafka_errors.NodeNotReadyError())
    with pytest.raises(kafka_errors.NodeNotReadyError):
        send(producer, kind)
    assert producer.ended == []
    producer.client.error = None
    assert asyncio.run(producer.client.send(3, request_of(kind))) == "response"


def test_rows_may_be_sent_again_because_the_broker_drops_repeated_ones() -> None:
    producer = FakeProducer(kafka_errors.RequestTimedOutError())
    with pytest.raises(kafka_errors.RequestTimedOutError):
        send(producer, ProduceRequest)
    assert producer.ended == []


def test_requests_reach_the_client_unchanged() -> None:
    producer = FakeProducer(None)
    assert send(producer, EndTxnRequest) == "response"
    assert producer.client.sent == [(3, "EndTxnRequest", {"group": "transactions"})]


def test_the_error_of_a_lost_response_is_one_of_the_client() -> None:
    assert issubclass(LostResponseError, kafka_errors.KafkaError)
