"""Whether the brokers that lead the open partitions of a loop answer."""

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

    Notes
    -----
    One request asks a leader about all its partitions. If it has no answer, the next question asks about each of them
    alone: one that was deleted, or has a new leader, says nothing about the others.
    """

    def __init__(
        self, consumer: AIOKafkaConsumer, set_unreachable: Callable[[float], None], renew: Callable[[], None]
    ) -> None:
        self._consumer, self._set_unreachable, self._renew = consumer, set_unreachable, renew
        self._unanswered: set[TopicPartition] = set()
        """Of the last question."""
        self._told: set[TopicPartition] = set()
        set_unreachable(0)

    async def ask(self, partitions: Sequence[TopicPartition]) -> None:
        """Ask the leaders of these partitions; return if one of them answers.

        A partition whose leader is away must not end the work on the others.

        Raises
        ------
        KafkaError, OSError, TimeoutError
            None of them answers: the error of one of them.
        BrokerUnavailableError
            Some do not answer, and files with credentials have changed.
        """
        answers = await self._ask_each(self._requests(partitions)) if partitions else []
        failed = [(asked, error) for asked, error in answers if error is not None]
        self._unanswered = {tp for asked, _ in failed for tp in asked}
        for _, error in failed:
            if len(failed) == len(answers) or not isinstance(error, CLIENT_ERRORS):
                self._set_unreachable(len(partitions))
                raise error
        self._tell({tp for asked, _ in failed if len(asked) == 1 for tp in asked}, set(partitions))
        if failed:
            self._renew()

    def _requests(self, partitions: Sequence[TopicPartition]) -> list[list[TopicPartition]]:
        """Return the partitions of each request; those without a known leader are asked about together."""
        cluster = self._consumer._client.cluster  # noqa: SLF001 - not reachable otherwise
        led: dict[int, list[TopicPartition]] = defaultdict(list)
        for tp in partitions:
            if tp not in self._unanswered:
                leader = cluster.leader_for_partition(tp)
                led[-1 if leader is None else leader].append(tp)
        return [*led.values(), *([tp] for tp in partitions if tp in self._unanswered)]

    async def _ask_each(
        self, requests: Sequence[list[TopicPartition]]
    ) -> list[tuple[list[TopicPartition], BaseException | None]]:
        """Return the partitions of each request, and why it has no answer."""
        asking = [asyncio.wait_for(self._consumer.end_offsets(asked), ANSWER_S) for asked in requests]
        results = await asyncio.gather(*asking, return_exceptions=True)
        errors = (result if isinstance(result, BaseException) else None for result in results)
        return list(zip(requests, errors, strict=True))

    def _tell(self, silent: set[TopicPartition], asked: set[TopicPartition]) -> None:
        if silent - self._told:
            names = [f"{tp.topic}-{tp.partition}" for tp in sorted(silent)]
            log.warning("no leader of these partitions answers; the others go on", partitions=names)
        elif self._told & asked and not self._unanswered:
            log.info("the leaders of all partitions answer again")
        # A partition that is another worker's meanwhile is as it was.
        self._told = silent | (self._told - asked)
        self._set_unreachable(len(silent))
