"""Polls for messages, for no longer than until the next commit is due, and reads no further for tasks that are full.

Each fetch, and each block of a partition, has a fixed cost of processor time, whatever its length. If messages arrive
one by one, the poller therefore pauses, so that one fetch returns several and one block has several.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from shoal.kafka.partition_task import PartitionTask
from shoal.kafka.task_manager import TaskManager

__all__ = ["Poller"]

POLL_S = 0.05
"""Longest poll (s)."""
POLL_RECORDS = 2048
PACE_S, PACE_SHARE = 0.04, 0.25
"""There are at most two polls with messages in this time (s), or in this share of the commit interval if that is less.

Two, because the client fetches as soon as its messages are taken, and fetches no more until these are taken too. After
a pause the first poll returns what arrived at the start of the pause, and the second what arrived during it.
"""
GATHER_SHARE = 0.125
"""The second poll comes after this share of that time, so that all brokers have answered."""
BEHIND_RECORDS = 100
"""With so many offsets between a task and the end of its log, the poller does not pause."""


class Poller:
    """Polls a consumer for the tasks of a loop.

    Parameters
    ----------
    tasks : TaskManager
        The open tasks.
    commit_interval_s : float
        Commit interval (s).

    Notes
    -----
    A poll without messages ends when a commit is due, or when a transaction ends after which another commit is due or
    a task is no longer full. Otherwise decisions would wait for up to `POLL_S` more than the commit interval.

    A partition stays paused for as long as its task is full or flushes: aiokafka drops what it has fetched of a paused
    partition, and would fetch it again at each resume.
    """

    def __init__(self, tasks: TaskManager, commit_interval_s: float) -> None:
        self._tasks, self._pace_s = tasks, min(PACE_S, PACE_SHARE * commit_interval_s)
        self._paused: dict[TopicPartition, PartitionTask] = {}
        self._polls, self._first_poll_s = 0, -math.inf

    async def poll(
        self, kafka_consumer: AIOKafkaConsumer, flushing: Mapping[PartitionTask, asyncio.Task[None]]
    ) -> dict[TopicPartition, list[Any]]:
        """Return the next messages of each partition; none after `POLL_S`, or when a task has something to do.

        Parameters
        ----------
        kafka_consumer : AIOKafkaConsumer
            Of the loop.
        flushing : mapping of PartitionTask to asyncio.Task
            Tasks that take no messages before the end of a flush. The poll ends with the first of them.

        Raises
        ------
        KafkaError
            As `AIOKafkaConsumer.getmany`.
        """
        self._pause_full(kafka_consumer, flushing)
        waits = [task.next_commit for _, task in self._tasks.items() if task not in flushing]
        timeout_s = min([POLL_S, *(wait_s for wait_s, _ in waits)])
        transactions = {transaction for _, transaction in waits if transaction is not None}
        polling = asyncio.create_task(self._take(kafka_consumer, timeout_s))
        try:
            await asyncio.wait({polling, *transactions, *flushing.values()}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Messages are taken from the client in the last step of a poll, so that a cancelled poll loses none.
            polling.cancel()
            await asyncio.wait({polling})
        messages = {} if polling.cancelled() else polling.result()
        if messages:
            self._count_poll()
        return messages

    async def _take(self, kafka_consumer: AIOKafkaConsumer, timeout_s: float) -> dict[TopicPartition, list[Any]]:
        pause_s = self._pause_s(kafka_consumer)
        if pause_s > 0:
            await asyncio.sleep(min(pause_s, timeout_s))
            if pause_s > timeout_s:
                return {}
        timeout_ms = math.ceil((timeout_s - pause_s) * 1000)
        found: dict[TopicPartition, list[Any]] = await kafka_consumer.getmany(
            timeout_ms=timeout_ms, max_records=POLL_RECORDS
        )
        return found

    def _pause_s(self, kafka_consumer: AIOKafkaConsumer) -> float:
        """Return the time before the next poll (s)."""
        share = 1.0 if self._polls > 1 else GATHER_SHARE
        left_s = self._first_poll_s + share * self._pace_s - time.monotonic()
        return left_s if left_s > 0 and not self._is_behind(kafka_consumer) else 0.0

    def _count_poll(self) -> None:
        now_s = time.monotonic()
        if self._polls > 1 or now_s >= self._first_poll_s + self._pace_s:
            self._polls, self._first_poll_s = 0, now_s
        self._polls += 1

    def _is_behind(self, kafka_consumer: AIOKafkaConsumer) -> bool:
        """Return whether a task that takes messages has many more to read: it should read as fast as it can."""
        for tp, task in self._tasks.items():
            log_end = None if tp in self._paused else kafka_consumer.last_stable_offset(tp)
            if log_end is not None and log_end - task.position >= BEHIND_RECORDS:
                return True
        return False

    def _pause_full(
        self, kafka_consumer: AIOKafkaConsumer, flushing: Mapping[PartitionTask, asyncio.Task[None]]
    ) -> None:
        full = {tp: task for tp, task in self._tasks.items() if task.is_full or task in flushing}
        # A task that was opened since then has resumed its partition itself.
        freed = [tp for tp, task in self._paused.items() if tp not in full and self._tasks.is_open(tp, task)]
        self._paused = full
        if full:
            kafka_consumer.pause(*full)
        if freed:
            kafka_consumer.resume(*(tp for tp in freed if tp in kafka_consumer.assignment()))
