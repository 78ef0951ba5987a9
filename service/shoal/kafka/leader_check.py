"""Whether the brokers that lead the open partitions of a loop answer."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient

from shoal.errors import BrokerError
from shoal.kafka.client import CLIENT_ERRORS
from shoal.observability import logger

__all__ = ["LeaderCheck", "ask_any_broker", "requests_by_leader"]

ANSWER_S = 2.5
"""Time limit of an answer (s). After two questions, two seconds apart, a partition is named: within ten seconds."""
TELL_EVERY_S = 60.0
"""Time between two warnings of the same partitions (s)."""

log = logger("kafka")


def requests_by_leader(
    consumer: AIOKafkaConsumer, partitions: Sequence[TopicPartition], alone: Collection[TopicPartition]
) -> list[list[TopicPartition]]:
    """Return the partitions of each request: one for each leader, and one for each partition of ``alone``.

    Partitions without a known leader are asked about together.
    """
    cluster = consumer._client.cluster  # noqa: SLF001 - not reachable otherwise
    led: dict[int, list[TopicPartition]] = defaultdict(list)
    for tp in partitions:
        if tp not in alone:
            leader = cluster.leader_for_partition(tp)
            led[-1 if leader is None else leader].append(tp)
    return [*led.values(), *([tp] for tp in partitions if tp in alone)]


async def ask_any_broker(client: AIOKafkaAdminClient, group: str) -> None:
    """Ask a broker for the coordinator of a group; that there is none now is an answer, too.

    Raises
    ------
    KafkaError, OSError, TimeoutError
        The broker does not answer.
    """
    with contextlib.suppress(kafka_errors.GroupCoordinatorNotAvailableError):
        await client.find_coordinator(group)


class LeaderCheck:
    """Asks each broker that leads a partition. The log names partitions whose leader does not answer, at intervals.

    Parameters
    ----------
    consumer : AIOKafkaConsumer
        The client that asks; its metadata say which broker leads a partition.
    set_unreachable : callable
        Receives, after each question, the number of partitions whose leader does not answer.
    renew : callable
        Called after each question that some leaders do not answer while a broker does; see `UsedCredentials.renew`.
    ask_any : callable
        Asks any broker, and waits for the answer. Called if no leader answers.
    patience_s : float
        After this time without the answer of a leader (s), a drain gives up; infinite for another worker, which waits.

    Notes
    -----
    One request asks a leader about all its partitions. If it has no answer, the next question asks about each of them
    alone: one that was deleted, or has a new leader, says nothing about the others.
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
        self._unanswered: set[TopicPartition] = set()
        """Of the last question."""
        self._away_since_s: dict[TopicPartition, float] = {}
        """Partitions that the log has named, and since when their leaders do not answer."""
        self._told_s = -math.inf
        self.are_all_away = False
        """Whether no leader answered the last question, although another broker did."""
        set_unreachable(0)

    async def ask(self, partitions: Sequence[TopicPartition]) -> None:
        """Ask the leaders of these partitions, and another broker if none of them answers.

        A partition whose leader is away must not end the work on the others.

        Raises
        ------
        KafkaError, OSError, TimeoutError
            No broker answers.
        BrokerUnavailableError
            A leader does not answer, and files with credentials have changed.
        BrokerError
            A leader has not answered for ``patience_s``.
        """
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
        asking = [asyncio.wait_for(self._consumer.end_offsets(asked), ANSWER_S) for asked in requests]
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
