"""Makes a producer of aiokafka send each request of a transaction once.

A client that gets no response does not know whether the broker has processed the request. aiokafka then sends it again
with the same producer epoch. The first copy may still be on its way, and the broker may process it later, within the
next transaction:

- The end of a transaction then ends the next one: rows are published without the offset that belongs to them.
- An offset then replaces the offset of the next transaction by an older one.

Both can publish a record twice. Here the producer fails instead. The next producer of the partition gets a higher
epoch, with which the broker refuses all requests of the old one, and reads what was committed. (Kafka removes the cause
with an epoch for each transaction, KIP-890, which aiokafka does not implement.)

This depends on internals of the client: `AIOKafkaProducer.client`, ``_sender``, ``_message_accumulator`` and
``_txn_manager``.
"""

from __future__ import annotations

from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka_errors
from aiokafka.protocol.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)

__all__ = ["LostResponseError", "send_requests_once"]

_TRANSACTIONAL = (AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, TxnOffsetCommitRequest, EndTxnRequest)


class LostResponseError(kafka_errors.KafkaError):  # type: ignore[misc] # the client has no types
    """The broker did not respond to a request of a transaction, which may have been processed or not."""


def send_requests_once(producer: AIOKafkaProducer) -> None:
    """Make a producer fail where it would send a request of a transaction again.

    After that every call of the producer raises `LostResponseError`, and nothing more is sent.
    """
    send = producer.client.send

    async def send_once(node: int, request: Any, **options: Any) -> Any:  # noqa: ANN401 - the client has no types
        try:
            return await send(node, request, **options)
        except kafka_errors.NodeNotReadyError:
            raise  # nothing was sent: the client may try again
        except kafka_errors.KafkaError:
            if isinstance(request, _TRANSACTIONAL):
                _end(producer)
            raise

    producer.client.send = send_once


def _end(producer: AIOKafkaProducer) -> None:
    """Fail the transaction and all messages that wait, and stop the task that sends."""
    error = LostResponseError()
    producer._message_accumulator.fail_all(error)  # noqa: SLF001 - as said above
    producer._txn_manager.fatal_error(error)  # noqa: SLF001
    # Messages that have failed are still in the queue of this task.
    producer._sender.sender_task.cancel()  # noqa: SLF001
