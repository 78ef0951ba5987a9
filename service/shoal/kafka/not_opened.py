"""Partitions that cannot be opened now: why not, and that another attempt may succeed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from aiokafka import TopicPartition
from aiokafka import errors as kafka_errors

from shoal.errors import BrokerUnavailableError
from shoal.kafka.refusals import join_refusals

__all__ = ["LeaderAwayError", "NotOpenedError", "NotYetError", "leader_answer", "named_text"]

ANSWER_S = 5.0
"""Time limit of the answer of a leader (s). A partition without one must not delay the others for longer."""


class NotYetError(BrokerUnavailableError):
    """A partition cannot be opened now, and may be later.

    It is raised before the first transaction of an attempt. The next attempt has a new producer, which fences that of
    this one, and reads the committed state again. So a consumer loop may try again while its other partitions go on.
    """


class LeaderAwayError(NotYetError):
    """The leader of a partition does not answer.

    Parameters
    ----------
    tp : TopicPartition
        Of the input, or of a topic that is read when a partition of the input is opened.
    """

    def __init__(self, tp: TopicPartition) -> None:
        super().__init__(
            f"{tp.topic}-{tp.partition}: no leader answers; look whether its broker runs and can be reached"
        )


class NotOpenedError(BrokerUnavailableError):
    """Some partitions of the input could not be opened, and nothing else went wrong.

    Attributes
    ----------
    reasons : dict of TopicPartition to BrokerUnavailableError
        These partitions, and why they are not open.
    """

    def __init__(self, reasons: Mapping[TopicPartition, BrokerUnavailableError]) -> None:
        super().__init__(join_refusals((tp, named_text(tp, reason)) for tp, reason in reasons.items()))
        self.reasons = dict(reasons)


def named_text(tp: TopicPartition, error: Exception) -> str:
    """Return the text of an error with the partition of the input; it may name another topic alone, or none."""
    name, text = f"{tp.topic}-{tp.partition}: ", str(error)
    return text if text.startswith(name) else name + text


@asynccontextmanager
async def leader_answer(tp: TopicPartition) -> AsyncIterator[None]:
    """Limit the time of a request to the leader of a partition; the client itself asks again for 40 s.

    Raises
    ------
    LeaderAwayError
        It has not answered in this time.
    """
    try:
        async with asyncio.timeout(ANSWER_S):
            yield
    except (TimeoutError, kafka_errors.KafkaTimeoutError):
        raise LeaderAwayError(tp) from None
