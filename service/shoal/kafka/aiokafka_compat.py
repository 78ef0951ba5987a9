"""What Shoal changes in aiokafka. It depends on internals of the client, which each class and function names.

- Messages whose header names are not UTF-8 are read, with names decoded by ``surrogateescape``, which no policy can
  name (`_TolerantRecords`). aiokafka fails at such a message: it would block its partition for ever.
- Consumers with `keep_parsed` as their value deserializer hand over messages as the parser returns them. The client
  copies each into a frozen dataclass, which takes a tenth of a worker's processor time.
- `append_values` passes the messages of a transaction to the builder of a batch without a call of the client for each.
- A producer sends each request of a transaction once. A client that gets no response sends it again with the same
  producer epoch. The broker may process the first copy later, within the next transaction, which then ends early, or
  commits an older offset: a record could be published twice. Here the producer fails instead, and the next one gets a
  higher epoch. (KIP-890 removes the cause; aiokafka does not implement it.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, repeat, takewhile
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka_errors
from aiokafka.consumer import fetcher
from aiokafka.protocol.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from aiokafka.record import default_records, memory_records

_INVALID_RECORD = 87

_refused_record: Any = type(
    "InvalidRecordError", (kafka_errors.BrokerResponseError,), {"errno": _INVALID_RECORD, "message": "INVALID_RECORD"}
)
kafka_errors.kafka_errors.setdefault(_INVALID_RECORD, _refused_record)
InvalidRecordError = kafka_errors.for_code(_INVALID_RECORD)
"""A broker refuses a message itself, as a compacted topic refuses one without a key. The client does not know this code
and would report an unknown error, which looks as if it could pass. The class of the client, if it has one."""

_NEW_FORMAT = 2  # first version of the record format that has headers


def tolerate_invalid_header_names() -> bool:
    """Tolerate such names in all consumers made from now on in this process; return False if that is so already."""
    if fetcher.MemoryRecords is _TolerantRecords:
        return False
    fetcher.MemoryRecords = _TolerantRecords
    return True


class _TolerantRecords(memory_records._MemoryRecordsPy):  # type: ignore[misc]  # noqa: SLF001 - the client has no public interface for this
    def next_batch(self, *sizes: int) -> Any:  # noqa: ANN401 - the client's type, or `_Batch`
        batch_bytes = self._next_slice
        batch = super().next_batch(*sizes)
        is_new = batch_bytes is not None and batch_bytes[self.MAGIC_OFFSET] >= _NEW_FORMAT
        return _Batch(bytes(batch_bytes), batch) if is_new else batch


class _Batch:
    """A batch of the client that is read again where a header name is not UTF-8."""

    def __init__(self, batch_bytes: bytes, batch: Any) -> None:  # noqa: ANN401 - the client has no types
        self._batch_bytes, self._batch = batch_bytes, batch
        self._records: Iterator[Any] | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._batch, name)

    def __iter__(self) -> _Batch:
        return self

    def __next__(self) -> Any:  # noqa: ANN401
        if self._records is None:
            self._records = iter(self._read())
        return next(self._records)

    def _read(self) -> list[Any]:
        try:
            return list(self._batch)
        except UnicodeDecodeError:
            return list(_EscapingBatch(self._batch_bytes))


class _EscapingBatch(default_records._DefaultRecordBatchPy):  # type: ignore[misc]  # noqa: SLF001 - see above
    _buffer: bytearray

    def _maybe_uncompress(self) -> None:
        super()._maybe_uncompress()
        self._buffer = _Bytes(self._buffer)


class _Bytes(bytearray):
    """Bytes whose slices decode to text in any case."""

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401
        part = super().__getitem__(key)
        return _Bytes(part) if isinstance(part, bytearray) else part

    def decode(self, encoding: str = "utf-8", errors: str = "surrogateescape") -> str:
        return super().decode(encoding, errors)


def plain_record_options() -> dict[str, Any]:
    """Return the options of a consumer that hands over parsed records."""
    if fetcher.PartitionRecords is not _PlainRecords:
        fetcher.PartitionRecords = _PlainRecords
    return {"value_deserializer": keep_parsed}


def keep_parsed(value: bytes | None) -> bytes | None:
    """Return the value; a client without that internal calls it, and hands over its own records."""
    return value


class _PlainRecords(fetcher.PartitionRecords):  # type: ignore[misc] # the client has no types
    def __iter__(self) -> Iterator[Any]:
        if hasattr(self, "_records_iterator"):
            return iter(self._records_iterator or ())  # without a call of `__next__` for each message
        found: Iterator[Any] = super().__iter__()
        return found

    def _consumer_record(self, tp: Any, record: Any) -> Any:  # noqa: ANN401
        if self._value_deserializer is keep_parsed:
            return record
        return super()._consumer_record(tp, record)


def append_values(record_batch: Any, values: Sequence[bytes], timestamp: int) -> int:  # noqa: ANN401 - as above
    """Append messages without keys to an empty batch until it is full; return how many it took, at least one.

    A client with another builder appends them one by one.
    """
    builder = getattr(record_batch, "_builder", None)
    if hasattr(record_batch, "_relative_offset") and isinstance(builder, default_records.DefaultRecordBatchBuilder):
        appended = map(builder.append, count(), repeat(timestamp), repeat(None), values, repeat([]))
        number = len(list(takewhile(bool, appended)))
        record_batch._relative_offset = number  # noqa: SLF001 - as said above
        return number
    each = (record_batch.append(key=None, value=value, timestamp=timestamp) for value in values)
    return len(list(takewhile(bool, each)))


_TRANSACTIONAL = (AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, TxnOffsetCommitRequest, EndTxnRequest)


LOST_RESPONSE = "no response to a request of a transaction, which may have been processed or not"


def send_requests_once(producer: AIOKafkaProducer) -> None:
    """Make a producer fail with `LOST_RESPONSE` for good where it would send a request of a transaction again."""
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
    error = kafka_errors.KafkaError(LOST_RESPONSE)
    producer._message_accumulator.fail_all(error)  # noqa: SLF001 - as said above
    producer._txn_manager.fatal_error(error)  # noqa: SLF001
    # Messages that have failed are still in the queue of this task.
    producer._sender.sender_task.cancel()  # noqa: SLF001
