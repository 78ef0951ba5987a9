"""Whether the brokers that lead the partitions of a loop answer."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence

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
    set_unreachable : callable
        Receives, after each question, the number of partitions whose leader does not answer.
    renew : callable
        Called after each question that some leaders do not answer while others do; see `UsedCredentials.renew`.
    """

    def __init__(
        self, consumer: AIOKafkaConsumer, set_unreachable: Callable[[float], None], renew: Callable[[], None]
    ) -> None:
        self._consumer, self._set_unreachable, self._renew = consumer, set_unreachable, renew
        self._silent: frozenset[TopicPartition] = frozenset()
        set_unreachable(0)

    async def ask(self, partitions: Sequence[TopicPartition]) -> None:
        """Ask one partition of each leader; return if one of them answers.

        A partition whose leader is away must not end the work on the others.

        Raises
        ------
        KafkaError, OSError, TimeoutError
            None of them answers: the error of one of them.
        BrokerUnavailableError
            Some do not answer, and files with credentials have changed.
        """
        errors = await self._ask_each(self._by_leader(partitions)) if partitions else []
        failed = [(unanswered, error) for unanswered, error in errors if error is not None]
        for _, error in failed:
            if len(failed) == len(errors) or not isinstance(error, CLIENT_ERRORS):
                self._set_unreachable(len(partitions))
                raise error
        self._tell(frozenset(tp for unanswered, _ in failed for tp in unanswered))
        if failed:
            self._renew()

    async def _ask_each(
        self, led: Sequence[list[TopicPartition]]
    ) -> list[tuple[list[TopicPartition], BaseException | None]]:
        """Return the partitions of each leader, and why it has not answered."""
        requests = [asyncio.create_task(self._consumer.end_offsets([ours[0]])) for ours in led]
        for request in requests:
            request.add_done_callback(_error)  # retrieved also if this check is cancelled
        try:
            await asyncio.wait(requests, timeout=ANSWER_S)
        finally:
            for request in requests:
                request.cancel()
        await asyncio.wait(requests)
        return list(zip(led, map(_error, requests), strict=True))

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
        self._set_unreachable(len(silent))


def _error(request: asyncio.Task[object]) -> BaseException | None:
    """Return why a request has no answer."""
    return TimeoutError() if request.cancelled() else request.exception()
