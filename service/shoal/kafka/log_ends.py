"""The ends of the logs of a loop's partitions, read at intervals. A leader that does not answer delays no other one."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition

from shoal.kafka.client import CLIENT_ERRORS, task_exception
from shoal.kafka.leader_check import requests_by_leader
from shoal.kafka.not_opened import LeaderAwayError

__all__ = ["ANSWER_S", "LogEnds"]

ANSWER_S = 5.0
"""Time limit of an answer (s)."""
POLL_S = 1.0
"""How often the ends are read (s); an idle task learns from them that it has all records."""
VALID_S = 2 * POLL_S
"""Ends that were read earlier are not used: a flush must not depend on a leader that no longer answers. (A leader that
has not answered for this time may still be there: on a busy machine, its answer waits for this process.)"""


@dataclass(slots=True)
class _LogEnd:
    """When the last question that was answered was sent (s, monotonic), and the answer; None before the first one."""

    asked_s: float
    committed: int | None = None
    with_open: int | None = None


class LogEnds:
    """Reads the ends of the logs, without and with the records of open transactions, with one request to each leader.

    Notes
    -----
    A request that has no answer is followed by one for each of its partitions, as in `LeaderCheck`.
    """

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, _LogEnd] = {}
        self._added = asyncio.Event()
        self._asked: set[TopicPartition] = set()
        """Partitions whose last question is not answered yet."""
        self._unanswered: set[TopicPartition] = set()
        self._limits: dict[TopicPartition, asyncio.Timeout] = {}

    def add(self, tp: TopicPartition) -> None:
        """Read the ends of this log, too. Its leader has just answered."""
        self._ends[tp] = _LogEnd(time.monotonic())
        self._added.set()

    def end(self, tp: TopicPartition) -> int | None:
        """Return the end of the committed part of a log; None if it was not read within `VALID_S`."""
        return self._ends[tp].committed if self._is_answered(tp, VALID_S) else None

    def end_with_open(self, tp: TopicPartition) -> int | None:
        """Return the end of a log, open transactions included, as last read; None before the first answer."""
        return self._ends[tp].with_open if tp in self._ends else None

    def is_answering(self, tp: TopicPartition) -> bool:
        """Return whether the leader of this log has answered a question that is no older than `ANSWER_S`."""
        return self._is_answered(tp, ANSWER_S)

    def _is_answered(self, tp: TopicPartition, within_s: float) -> bool:
        return tp in self._ends and time.monotonic() - self._ends[tp].asked_s < within_s

    @asynccontextmanager
    async def while_answering(self, tp: TopicPartition) -> AsyncIterator[None]:
        """Cancel what the context waits for when the leader of this log answers no longer.

        Raises
        ------
        LeaderAwayError
            This has happened.
        """
        limit = asyncio.timeout(max(0.0, self._ends[tp].asked_s + ANSWER_S - time.monotonic()))
        try:
            async with limit:
                self._limits[tp] = limit  # each answer puts it off
                try:
                    yield
                finally:
                    del self._limits[tp]
        except TimeoutError:
            if limit.expired():
                raise LeaderAwayError(tp) from None
            raise

    async def read_regularly(self, reader: AIOKafkaConsumer, reader_with_open: AIOKafkaConsumer) -> None:
        """Read the ends until cancelled; the readers differ in their isolation level.

        Raises
        ------
        Exception
            An error that is none of the client.
        """
        requests: list[asyncio.Task[None]] = []
        try:
            while True:
                self._added.clear()
                requests = _unfinished(requests)
                for asked in self._next_requests(reader):
                    self._asked.update(asked)
                    requests.append(asyncio.create_task(self._read(asked, reader, reader_with_open)))
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._added.wait(), POLL_S)
        finally:
            for request in requests:
                request.cancel()
            await asyncio.gather(*requests, return_exceptions=True)

    def _next_requests(self, reader: AIOKafkaConsumer) -> list[list[TopicPartition]]:
        return requests_by_leader(reader, [tp for tp in self._ends if tp not in self._asked], self._unanswered)

    async def _read(
        self, asked: Sequence[TopicPartition], reader: AIOKafkaConsumer, reader_with_open: AIOKafkaConsumer
    ) -> None:
        asked_s = time.monotonic()
        try:
            async with asyncio.timeout(ANSWER_S):
                self._note(asked_s, await reader.end_offsets(asked))
                for tp, end in (await reader_with_open.end_offsets(asked)).items():
                    self._ends[tp].with_open = end
            self._unanswered.difference_update(asked)
        except CLIENT_ERRORS:
            self._unanswered.update(asked)
        finally:
            self._asked.difference_update(asked)

    def _note(self, asked_s: float, ends: Mapping[TopicPartition, int]) -> None:
        until_s = asyncio.get_running_loop().time() + asked_s + ANSWER_S - time.monotonic()
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
