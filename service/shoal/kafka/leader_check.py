"""Whether the brokers that lead the partitions of a loop answer."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, TopicPartition

from shoal.kafka.client import CLIENT_ERRORS
from shoal.observability import logger

__all__ = ["LeaderCheck"]

ANSWER_S = 5.0
"""Time limit of an answer (s); shorter than that of a broker check."""

log = logger("kafka")


class LeaderCheck:
    """Asks each broker that leads a partition. The log names partitions whose leader does not answer, once.

    Parameters
    ----------
    consumer : AIOKafkaConsumer
        The client that asks; its metadata say which broker leads a partition.
    """

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer
        self._silent: frozenset[TopicPartition] = frozenset()

    async def ask(self, partitions: Sequence[TopicPartition]) -> None:
        """Ask one partition of each leader; return if one of them answers.

        A partition whose leader is away must not end the work on the others.

        Raises
        ------
        KafkaError, OSError, TimeoutError
            None of them answers: the error of one of them.
        """
        led = self._by_leader(partitions)
        requests = {asyncio.create_task(self._consumer.end_offsets([ours[0]])): ours for ours in led}
        for request in requests:
            request.add_done_callback(_error)  # retrieved also if this check is cancelled
        try:
            await asyncio.wait(requests, timeout=ANSWER_S)
        finally:
            for request in requests:
                request.cancel()
            await asyncio.wait(requests)
        errors = {request: _error(request) for request in requests}
        failed = {request: error for request, error in errors.items() if error is not None}
        for error in failed.values():
            if len(failed) == len(requests) or not isinstance(error, CLIENT_ERRORS):
                raise error
        self._tell(frozenset(tp for request in failed for tp in requests[request]))

    def _by_leader(self, partitions: Sequence[TopicPartition]) -> list[list[TopicPartition]]:
        """Return the partitions of each leader; those without a known leader are together."""
        cluster = self._consumer._client.cluster  # noqa: SLF001 - not reachable otherwise
        led: dict[int, list[TopicPartition]] = defaultdict(list)
        for tp in partitions:
            leader = cluster.leader_for_partition(tp)
            led[-1 if leader is None else leader].append(tp)
        return list(led.values())

    def _tell(self, silent: frozenset[TopicPartition]) -> None:
        if silent - self._silent:
            names = [f"{tp.topic}-{tp.partition}" for tp in sorted(silent)]
            log.warning("no leader of these partitions answers; the others go on", partitions=names)
        elif self._silent and not silent:
            log.info("the leaders of all partitions answer again")
        self._silent = silent


def _error(request: asyncio.Task[object]) -> BaseException | None:
    """Return why a request has no answer."""
    return TimeoutError() if request.cancelled() else request.exception()
