"""Open the partitions of a loop, and open again those that cannot be opened yet, while the others work."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from shoal.kafka.backoff import backoff_s
from shoal.kafka.not_opened import NotOpenedError
from shoal.kafka.opening_log import telling_unopened
from shoal.kafka.partition_task import PartitionTask
from shoal.kafka.retries import BrokerLiveness
from shoal.kafka.rotation import UsedCredentials
from shoal.kafka.task_manager import TaskManager

__all__ = ["open_partitions"]


async def open_partitions(
    tasks: TaskManager,
    partitions: Iterable[TopicPartition],
    clients: tuple[AIOKafkaAdminClient, AIOKafkaConsumer],
    on_opened: Callable[[TopicPartition, PartitionTask], None],
    *,
    liveness: BrokerLiveness,
    credentials: UsedCredentials,
    drains: bool = False,
    on_failed: Callable[[], None] = lambda: None,
) -> None:
    """Open all of these partitions; return when each of them is open.

    Parameters
    ----------
    tasks : TaskManager
    partitions : iterable of TopicPartition
    clients : tuple
        Those that ask for committed offsets and read logs, as for `TaskManager.open`.
    on_opened : callable
        Called with each partition that was opened, and its task.
    liveness : BrokerLiveness
        Limits how long a producer may be unable to start and, in a drain, a partition to be opened.
    credentials : UsedCredentials
        Renewed after a failure: a leader may refuse those that were replaced.
    drains : bool
    on_failed : callable
        Called after an attempt that left partitions unopened.

    Raises
    ------
    ShoalError
        A partition could not be opened, and the loop must end.
    """
    left, failures = list(partitions), 0
    async with telling_unopened(lambda: tasks.unopened):
        while left:
            try:
                await tasks.open(left, *clients, on_opened)
                left = []
            except NotOpenedError as error:
                on_failed()
                liveness.note_not_opened(error, drains=drains)
                credentials.renew()
                # In another order: the client connects to one broker at a time, and the first one may swallow packets.
                left = random.sample(list(error.reasons), len(error.reasons))
                await asyncio.sleep(backoff_s(failures))
                failures += 1
    liveness.note_opened()
