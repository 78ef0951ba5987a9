"""What time it is for the brokers. It tells whether the clock of this machine may refuse records as dated ahead.

A clock that was set back would refuse valid records for ever. So a partition asks the coordinator of its transactions
when its last transaction began: no producer can change this answer (DescribeTransactions, KIP-664). Brokers before
Kafka 3.0 do not know the request; there only stamps of the input tell, if its topic has LogAppendTime.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aiokafka import AIOKafkaProducer
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields

from shoal.kafka.client import CLIENT_ERRORS, UNKNOWN_REQUEST

MAX_AHEAD_MS = 3_600_000
"""A record with a timestamp further ahead of the wall clock is invalid: it would expire all records that wait."""

TOLERATED_MS = 300_000
"""Difference of the clocks of this machine and of a broker (ms) up to which this machine refuses records."""

FRESH_S = 10.0
"""Age (s) of a transaction up to which its start tells the time; the clock of durations stands still in a pause."""

ASK_S = 5.0
"""Time limit of an answer (s)."""

UNANSWERED_S = 300.0
"""After this time (s) without an answer, records are refused by the clock of this machine alone, until none was dated
ahead for as long."""

_LOG_APPEND_TIME = 1
_NEVER_MS = 0


class _DescribeTransactionsResponse_v0(Response):  # type: ignore[misc]  # noqa: N801 - the client has no types, and such names
    API_KEY = 65
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "transactions",
            CompactArray(
                ("error_code", Int16),
                ("transactional_id", CompactString("utf-8")),
                ("state", CompactString("utf-8")),
                ("timeout_ms", Int32),
                ("start_ms", Int64),
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                (
                    "topics",
                    CompactArray(
                        ("topic", CompactString("utf-8")), ("partitions", CompactArray(Int32)), ("tags", TaggedFields)
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _DescribeTransactionsRequest_v0(RequestStruct):  # type: ignore[misc]  # noqa: N801 - as above
    FLEXIBLE_VERSION = True
    API_KEY = 65
    API_VERSION = 0
    RESPONSE_TYPE = _DescribeTransactionsResponse_v0
    SCHEMA = Schema(("transactional_ids", CompactArray(CompactString("utf-8"))), ("tags", TaggedFields))


class _DescribeTransactionsRequest(Request[_DescribeTransactionsRequest_v0]):  # type: ignore[misc] # as above
    API_KEY = 65

    def __init__(self, transactional_id: str) -> None:
        self._transactional_id = transactional_id

    def build(self, request_struct_class: type[RequestStruct]) -> RequestStruct:
        return request_struct_class([self._transactional_id], {})


TELLS_NO_TIME = -1
"""In place of a time: the brokers are too old to tell it."""


async def transaction_start_ms(producer: AIOKafkaProducer, transactional_id: str) -> int | None:
    """Return when the last transaction of an id began, by the clock of its coordinator (ms).

    Without an answer return None, and `TELLS_NO_TIME` if the broker does not know the request.
    """
    client = producer.client
    try:
        async with asyncio.timeout(ASK_S):
            node = await client.coordinator_lookup(CoordinationType.TRANSACTION, transactional_id)
            request = _DescribeTransactionsRequest(transactional_id)
            answer = await client.send(node, request, group=ConnectionGroup.COORDINATION)
    except UNKNOWN_REQUEST:
        return TELLS_NO_TIME
    except CLIENT_ERRORS:
        return None
    described: dict[str, Any] = answer.to_object()["transactions"][0]
    return int(described["start_ms"]) if not described["error_code"] and described["start_ms"] > 0 else None


class Dated(Protocol):
    """What a message says of its time."""

    @property
    def offset(self) -> int:
        """Offset in the partition."""

    @property
    def timestamp(self) -> int:
        """Unix time (ms)."""


@dataclass(slots=True)
class ClockCheck:
    """Decides which records of a partition the clock of this machine may refuse; ``ask`` asks a broker for its time.

    Guarantee: a record that is not dated ahead by the broker's time is not refused while this machine's clock is behind
    by more than `TOLERATED_MS`; it waits. Records wait for no other reason but a broker that does not answer, so no
    producer can stop a partition whose machine has the right time.
    """

    ask: Callable[[], Awaitable[int | None]]
    monotonic_clock: Callable[[], float]
    is_too_old: bool = False
    """Whether the brokers do not tell their time."""
    behind_ms: int | None = None
    """How far this machine is behind while records wait for it (ms), 0 if that is not known; None if none waits."""
    _answer: tuple[float, int] | None = None  # when the broker answered (s, monotonic), and its time then (ms)
    _asked_s: float = -math.inf
    _unanswered_s: tuple[float, float] = (-math.inf, -math.inf)
    """The first and the last time (s, monotonic) that an answer was missing."""

    async def first_that_waits(self, messages: Sequence[Dated], now_ms: int, *, may_ask: bool = True) -> int | None:
        """Return the first of these unread messages that must not be taken yet; None if all may be taken or refused.

        One of them is dated ahead of this machine. Unless it ``may_ask``, it waits for the next call if need be.
        """
        latest_ms = now_ms + MAX_AHEAD_MS
        first_ahead = next(index for index, one in enumerate(messages) if one.timestamp > latest_ms)
        if not (may_ask or self._is_fresh):
            return first_ahead
        broker_ms = await self._broker_ms(messages)
        if broker_ms is None:
            is_given_up = self._is_given_up()
            self.behind_ms = None if is_given_up else 0
            return None if is_given_up else first_ahead
        self._unanswered_s = (-math.inf, -math.inf)
        behind_ms = broker_ms - now_ms
        valid_ms = broker_ms + MAX_AHEAD_MS if behind_ms > TOLERATED_MS else latest_ms
        found = next((index for index, one in enumerate(messages) if latest_ms < one.timestamp <= valid_ms), None)
        self.behind_ms = None if found is None else behind_ms
        return found

    def _is_given_up(self) -> bool:
        """Note that an answer is missing; return whether it has been for `UNANSWERED_S`."""
        now_s, (since_s, last_s) = self.monotonic_clock(), self._unanswered_s
        self._unanswered_s = (since_s if now_s - last_s < UNANSWERED_S else now_s, now_s)
        return now_s - self._unanswered_s[0] >= UNANSWERED_S

    @property
    def _is_fresh(self) -> bool:
        """Whether the broker need not be asked now."""
        return self.is_too_old or self.monotonic_clock() - self._asked_s <= FRESH_S

    async def _broker_ms(self, messages: Sequence[Dated]) -> int | None:
        """Return what time it is for the broker (ms), by an answer of the last `FRESH_S`; None without an answer."""
        if not self._is_fresh:
            answer = await self.ask()
            self._asked_s, self.is_too_old = self.monotonic_clock(), answer == TELLS_NO_TIME
            self._answer = None if answer is None else (self._asked_s, answer)
        if self.is_too_old:
            # The broker's time is not before its stamps.
            stamps = [one.timestamp for one in messages if getattr(one, "timestamp_type", None) == _LOG_APPEND_TIME]
            return max(stamps, default=_NEVER_MS)
        if self._answer is None:
            return None
        answered_s, broker_ms = self._answer
        return broker_ms + round((self.monotonic_clock() - answered_s) * 1000)
