"""Reads logs: committed records, gaps between offsets, the ends of logs, and whether the leaders answer.

Control records, aborted records and compaction leave gaps, so a gap alone proves nothing. A lost record of the input
must not be taken for a gap, nor a gap in the output for a second writer. So a separate consumer reads the gap.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient

from shoal.arrays import Int64Vector
from shoal.errors import BrokerError, BrokerUnavailableError
from shoal.kafka.client import (
    CLIENT_ERRORS,
    asking,
    fetching,
    leader_answer,
    leader_away,
    log_bounds,
    log_end,
    reading,
    task_exception,
)
from shoal.observability import logger
from shoal.policy import KafkaSection

READ_TIMEOUT_S = 10.0
POLL_RECORDS = 500
POLL_MS = 20  # longest poll (ms); a poll that has passed control records alone does not end before


async def offset_since(settings: KafkaSection, tp: TopicPartition, since_ms: int) -> int | None:
    """Return the offset of the first record or control record dated at a time (ms) or later; None if there is none."""
    async with asking(settings) as reader, leader_answer(tp):
        later = (await reader.offsets_for_times({tp: since_ms}))[tp]
    return None if later is None else int(later.offset)


async def read_committed_records(
    settings: KafkaSection, tp: TopicPartition, begin: int = 0
) -> AsyncGenerator[Any, None]:
    """Yield the committed records of a partition from an offset on, up to the present end of the log.

    Raises `BrokerUnavailableError` if for 10 s neither a record arrived nor an aborted one was passed.
    """
    async with asking(settings) as asked:
        start, end = await log_bounds(asked, tp)
    position = max(start, begin)
    if position >= end:
        return
    async with fetching(settings) as consumer:
        end = await log_end(consumer, tp)  # the task may have waited for the reader
        consumer.assign([tp])
        consumer.seek(tp, position)
        deadline = time.monotonic() + READ_TIMEOUT_S
        while position < end:
            for records in (await consumer.getmany(tp, timeout_ms=POLL_MS, max_records=POLL_RECORDS)).values():
                for record in records:
                    if record.offset < end:
                        yield record
            # What was fetched is returned without a pause; heartbeats and other tasks must have theirs.
            await asyncio.sleep(0)
            before, position = position, await consumer.position(tp)
            if position > before:
                deadline = time.monotonic() + READ_TIMEOUT_S
            elif time.monotonic() > deadline:
                raise BrokerUnavailableError(f"{tp.topic}-{tp.partition}: cannot be read to its end; trying again")


READ_S = 5.0
READ_RECORDS = 5_000  # records per read; more than one gap needs, because an input with transactions has many gaps


@dataclass(slots=True)
class GapReader:
    """Finds the next record from an offset on."""

    reader: AIOKafkaConsumer
    _read_before: dict[TopicPartition, tuple[int, Int64Vector]] = field(default_factory=dict)
    """The last read of each partition: from where, and the offsets of all records from there to the last of them."""

    async def next_record_offset(self, tp: TopicPartition, offset: int) -> int | None:
        """Return the offset of the first record at ``offset`` or after it; None if there is none up to the end."""
        if tp in self._read_before:
            begin, known = self._read_before[tp]
            if begin <= offset <= known[-1]:
                return int(known[np.searchsorted(known, offset)])
        found = await self._read(tp, offset)
        if not len(found):
            return None
        self._read_before[tp] = (offset, found)
        return int(found[0])

    async def _read(self, tp: TopicPartition, offset: int) -> Int64Vector:
        reader = self.reader
        if reader.assignment() != {tp}:
            reader.assign([tp])
        end = (await reader.end_offsets([tp]))[tp]
        reader.seek(tp, offset)
        position, deadline = offset, time.monotonic() + READ_S
        while position < end:
            records = (await reader.getmany(tp, timeout_ms=100, max_records=READ_RECORDS)).get(tp, [])
            if records:
                return np.fromiter((record.offset for record in records), np.int64, len(records))
            before, position = position, await reader.position(tp)
            if position > before:  # control records and aborted records were passed
                deadline = time.monotonic() + READ_S
            elif time.monotonic() > deadline:
                raise BrokerUnavailableError(f"{tp.topic}-{tp.partition}: cannot be read to its end; trying again")
        return np.empty(0, np.int64)


async def first_record(settings: KafkaSection, tp: TopicPartition, offset: int) -> int | None:
    """Return the offset of the first record at ``offset`` or after it, committed or not; None if there is none."""
    async with reading(settings, isolation_level="read_uncommitted") as reader:
        return await GapReader(reader).next_record_offset(tp, offset)


LEADER_ANSWER_S = 2.5
"""Time limit of an answer (s). After two questions, two seconds apart, a partition is named: within ten seconds."""
TELL_EVERY_S = 60.0  # time between two warnings of the same partitions (s)

log = logger("kafka")


def requests_by_leader(
    consumer: AIOKafkaConsumer, partitions: Sequence[TopicPartition], alone: Collection[TopicPartition]
) -> list[list[TopicPartition]]:
    """Return the partitions of each request: one for each leader (or no known one), and one for each of ``alone``."""
    cluster = consumer._client.cluster  # noqa: SLF001 - not reachable otherwise
    led: dict[int, list[TopicPartition]] = defaultdict(list)
    for tp in partitions:
        if tp not in alone:
            leader = cluster.leader_for_partition(tp)
            led[-1 if leader is None else leader].append(tp)
    return [*led.values(), *([tp] for tp in partitions if tp in alone)]


async def ask_any_broker(client: AIOKafkaAdminClient, group: str) -> None:
    """Ask a broker for the coordinator of a group; that there is none now is an answer."""
    with contextlib.suppress(kafka_errors.GroupCoordinatorNotAvailableError):
        await client.find_coordinator(group)


class LeaderCheck:
    """Asks each broker that leads a partition. The log names partitions whose leader does not answer, at intervals.

    If a leader does not answer, the next question asks about each of its partitions alone. ``renew`` is called if some
    are silent while a broker answers. After ``patience_s`` without the answer of a leader a drain gives up.
    """

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        set_unreachable: Callable[[float], None],
        renew: Callable[[], None],
        ask_any: Callable[[], Awaitable[object]],
        patience_s: float = math.inf,
    ) -> None:
        self._consumer, self._set_unreachable, self._renew = consumer, set_unreachable, renew
        self._ask_any, self._patience_s = ask_any, patience_s
        self._unanswered: set[TopicPartition] = set()  # of the last question
        self._away_since_s: dict[TopicPartition, float] = {}
        """Partitions that the log has named, and since when their leaders do not answer."""
        self._told_s = -math.inf
        self.are_all_away = False  # whether no leader answered the last question, although another broker did
        set_unreachable(0)

    async def ask(self, partitions: Sequence[TopicPartition]) -> None:
        """Ask the leaders of these partitions, and another broker if none of them answers."""
        requests = requests_by_leader(self._consumer, partitions, self._unanswered)
        answers = await self._ask_each(requests) if partitions else []
        failed = [(asked, error) for asked, error in answers if error is not None]
        self._unanswered = {tp for asked, _ in failed for tp in asked}
        for _, error in failed:
            if not isinstance(error, CLIENT_ERRORS):
                raise error
        has_no_answer = len(failed) == len(answers)
        if has_no_answer:
            try:
                await self._ask_any()
            except CLIENT_ERRORS:
                self._set_unreachable(len(partitions))
                raise
        self.are_all_away = has_no_answer and bool(partitions)
        alone = {tp for asked, _ in failed if len(asked) == 1 for tp in asked}
        self._note(set(partitions) if has_no_answer else alone, set(partitions))
        if failed:
            self._renew()

    async def _ask_each(
        self, requests: Sequence[list[TopicPartition]]
    ) -> list[tuple[list[TopicPartition], BaseException | None]]:
        """Return the partitions of each request, and why it has no answer."""
        asking = [asyncio.wait_for(self._consumer.end_offsets(asked), LEADER_ANSWER_S) for asked in requests]
        results = await asyncio.gather(*asking, return_exceptions=True)
        errors = (result if isinstance(result, BaseException) else None for result in results)
        return list(zip(requests, errors, strict=True))

    def _note(self, silent: set[TopicPartition], asked: set[TopicPartition]) -> None:
        """Note which leaders do not answer, tell it, and give up if one has not answered for too long."""
        now_s, since_s = time.monotonic(), self._away_since_s
        is_new, had_told = bool(silent - since_s.keys()), bool(since_s.keys() & asked)
        # A partition that is another worker's meanwhile is as it was.
        kept = silent | (since_s.keys() - asked)
        self._away_since_s = {tp: since_s.get(tp, now_s) for tp in sorted(kept)}
        self._set_unreachable(len(silent))
        if silent:
            self._tell(sorted(silent), now_s, is_new=is_new)
        elif had_told and not self._unanswered:
            log.info("the leaders of all partitions answer again")

    def _tell(self, silent: Sequence[TopicPartition], now_s: float, *, is_new: bool) -> None:
        names = [f"{tp.topic}-{tp.partition}" for tp in silent]
        away_s = now_s - min(self._away_since_s[tp] for tp in silent)
        if is_new or now_s >= self._told_s + TELL_EVERY_S:
            words = "no leader of these partitions answers; the others go on"
            log.warning(words, partitions=names, since_s=round(away_s, 3))
            self._told_s = now_s
        if away_s >= self._patience_s:
            raise BrokerError(
                f"--drain: {', '.join(names)}: no leader answered for {away_s:.0f} s (kafka.patience_s); giving up. "
                "No record is lost: drain again when the brokers that lead these partitions are back"
            )


LOG_ENDS_ANSWER_S = 5.0  # time limit of an answer (s)
POLL_S = 1.0  # how often the ends are read (s); an idle task learns from them that it has all records
VALID_S = 2 * POLL_S
"""Ends that were read earlier are not used: a flush must not depend on a leader that no longer answers."""


@dataclass(slots=True)
class _LogEnd:
    """When the last question that was answered was sent (s, monotonic), and the answer; None before the first one."""

    asked_s: float
    committed: int | None = None
    with_open: int | None = None


class LogEnds:
    """Reads the ends of the logs, without and with records of open transactions, with one request to each leader."""

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, _LogEnd] = {}
        self._added = asyncio.Event()
        self._asked: set[TopicPartition] = set()  # partitions whose last question is not answered yet
        self._unanswered: set[TopicPartition] = set()
        self._limits: dict[TopicPartition, asyncio.Timeout] = {}

    def add(self, tp: TopicPartition) -> None:
        """Start to read the ends of this log. Its leader has just answered."""
        self._ends[tp] = _LogEnd(time.monotonic())
        self._added.set()

    def end(self, tp: TopicPartition) -> int | None:
        """Return the end of the committed part of a log; None if it was not read within `VALID_S`."""
        return self._ends[tp].committed if self._is_answered(tp, VALID_S) else None

    def end_with_open(self, tp: TopicPartition) -> int | None:
        """Return the end of a log, open transactions included, as last read; None before the first answer."""
        return self._ends[tp].with_open if tp in self._ends else None

    def is_answering(self, tp: TopicPartition) -> bool:
        """Return whether the leader of this log has answered a question that is no older than `LOG_ENDS_ANSWER_S`."""
        return self._is_answered(tp, LOG_ENDS_ANSWER_S)

    def _is_answered(self, tp: TopicPartition, within_s: float) -> bool:
        return tp in self._ends and time.monotonic() - self._ends[tp].asked_s < within_s

    @asynccontextmanager
    async def while_answering(self, tp: TopicPartition) -> AsyncIterator[None]:
        """Cancel what the context waits for when the leader of this log answers no longer."""
        limit = asyncio.timeout(max(0.0, self._ends[tp].asked_s + LOG_ENDS_ANSWER_S - time.monotonic()))
        try:
            async with limit:
                self._limits[tp] = limit  # each answer puts it off
                try:
                    yield
                finally:
                    del self._limits[tp]
        except TimeoutError:
            if limit.expired():
                raise leader_away(tp) from None
            raise

    async def read_regularly(self, reader: AIOKafkaConsumer, reader_with_open: AIOKafkaConsumer) -> None:
        """Read the ends until cancelled; the readers differ in their isolation level."""
        requests: list[asyncio.Task[None]] = []
        try:
            while True:
                self._added.clear()
                requests = _unfinished(requests)
                todo = [tp for tp in self._ends if tp not in self._asked]
                for asked in requests_by_leader(reader, todo, self._unanswered):
                    self._asked.update(asked)
                    requests.append(asyncio.create_task(self._read(asked, reader, reader_with_open)))
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._added.wait(), POLL_S)
        finally:
            for request in requests:
                request.cancel()
            await asyncio.gather(*requests, return_exceptions=True)

    async def _read(
        self, asked: Sequence[TopicPartition], reader: AIOKafkaConsumer, reader_with_open: AIOKafkaConsumer
    ) -> None:
        asked_s = time.monotonic()
        try:
            async with asyncio.timeout(LOG_ENDS_ANSWER_S):
                self._note(asked_s, await reader.end_offsets(asked))
                for tp, end in (await reader_with_open.end_offsets(asked)).items():
                    self._ends[tp].with_open = end
            self._unanswered.difference_update(asked)
        except CLIENT_ERRORS:
            self._unanswered.update(asked)
        finally:
            self._asked.difference_update(asked)

    def _note(self, asked_s: float, ends: Mapping[TopicPartition, int]) -> None:
        until_s = asyncio.get_running_loop().time() + asked_s + LOG_ENDS_ANSWER_S - time.monotonic()
        for tp, end in ends.items():
            self._ends[tp].asked_s, self._ends[tp].committed = asked_s, end
            if tp in self._limits and not self._limits[tp].expired():
                self._limits[tp].reschedule(until_s)


def _unfinished(requests: Sequence[asyncio.Task[None]]) -> list[asyncio.Task[None]]:
    """Return the requests that still run; raise the error of one that failed."""
    for request in requests:
        if request.done() and (error := task_exception(request)) is not None:
            raise error
    return [request for request in requests if not request.done()]
