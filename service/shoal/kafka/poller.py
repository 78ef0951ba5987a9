"""Polls for messages, for no longer than until the next commit is due, and reads no further for tasks that are full."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from shoal.kafka.partition_task import PartitionTask
from shoal.kafka.task_manager import TaskManager

__all__ = ["Poller"]

POLL_S = 0.05
"""Longest poll (s)."""
POLL_RECORDS = 2048


class Poller:
    """Polls a consumer for the tasks of a loop.

    Parameters
    ----------
    tasks : TaskManager
        The open tasks.

    Notes
    -----
    A poll without messages ends when a commit is due, or when a transaction ends after which another commit is due or
    a task is no longer full. Otherwise decisions would wait for up to `POLL_S` more than the commit interval.

    A partition stays paused for as long as its task is full: aiokafka drops what it has fetched of a paused partition,
    and would fetch it again at each resume.
    """

    def __init__(self, tasks: TaskManager) -> None:
        self._tasks = tasks
        self._paused: dict[TopicPartition, PartitionTask] = {}

    async def poll(self, kafka_consumer: AIOKafkaConsumer) -> dict[TopicPartition, list[Any]]:
        """Return the next messages of each partition; none after `POLL_S`, or when a task has something to do.

        Raises
        ------
        KafkaError
            As `AIOKafkaConsumer.getmany`.
        """
        self._pause_full(kafka_consumer)
        waits = [task.next_commit for _, task in self._tasks.items()]
        timeout_s = min([POLL_S, *(wait_s for wait_s, _ in waits)])
        transactions = {transaction for _, transaction in waits if transaction is not None}
        polling = asyncio.ensure_future(
            kafka_consumer.getmany(timeout_ms=math.ceil(timeout_s * 1000), max_records=POLL_RECORDS)
        )
        try:
            await asyncio.wait({polling, *transactions}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Messages are taken from the client in the last step of a poll, so that a cancelled poll loses none.
            polling.cancel()
            await asyncio.wait({polling})
        return {} if polling.cancelled() else polling.result()

    def _pause_full(self, kafka_consumer: AIOKafkaConsumer) -> None:
        full = {tp: task for tp, task in self._tasks.items() if task.is_full}
        # A task that was opened since then has resumed its partition itself.
        freed = [tp for tp, task in self._paused.items() if tp not in full and self._tasks.is_open(tp, task)]
        self._paused = full
        if full:
            kafka_consumer.pause(*full)
        if freed:
            kafka_consumer.resume(*(tp for tp in freed if tp in kafka_consumer.assignment()))
