"""Partitions that cannot be opened now: why not, and that another attempt may succeed.

The refusals of several partitions as one message: each text once, with the partitions to which it applies.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

from aiokafka import TopicPartition
from aiokafka import errors as kafka_errors

from shoal.errors import BrokerUnavailableError

__all__ = ["LeaderAwayError", "NotOpenedError", "NotYetError", "join_refusals", "leader_answer", "named_text"]

MAX_NAMES = 8
"""Most partitions that a message names for one text."""

_NUMBERS = re.compile(r"\d+")


def join_refusals(refusals: Iterable[tuple[TopicPartition, str]]) -> str:
    """Return one message for the refusals of partitions, one line for each kind of refusal of a topic.

    Texts that differ only in numbers (partition, offsets) are of one kind. The first text of a kind stands for all, and
    the other partitions are named after it, in the given order.
    """
    kinds: dict[tuple[str, str], list[tuple[TopicPartition, str]]] = {}
    for tp, text in refusals:
        kinds.setdefault((tp.topic, _NUMBERS.sub("0", text)), []).append((tp, text))
    return "\n".join(same[0][1] + _likewise(same) for same in kinds.values())


def _likewise(same: list[tuple[TopicPartition, str]]) -> str:
    """Return the sentence about all partitions but the first."""
    if len(same) == 1:
        return ""
    names = [f"{tp.topic}-{tp.partition}" for tp, _ in same]
    # The texts name their partition, and those of other topics with its number; what else differs are offsets.
    has_offsets = len({re.sub(rf"-{tp.partition}\b", "", text) for tp, text in same}) > 1
    rest_count = max(0, len(names) - MAX_NAMES)
    rest = f" and {rest_count} more" if rest_count else ""
    return f". The same{', with other offsets,' if has_offsets else ''} holds for {', '.join(names[1:MAX_NAMES])}{rest}"


ANSWER_S = 5.0
"""Time limit of the answer of a leader (s). A partition without one must not delay the others for longer."""


class NotYetError(BrokerUnavailableError):
    """A partition cannot be opened now, and may be later.

    It is raised before the first transaction of an attempt. The next attempt has a new producer, which fences that of
    this one, and reads the committed state again. So a consumer loop may try again while its other partitions go on.
    """


class LeaderAwayError(NotYetError):
    """The leader of a partition does not answer: of the input, or of a topic that is read at its opening."""

    def __init__(self, tp: TopicPartition) -> None:
        super().__init__(
            f"{tp.topic}-{tp.partition}: no leader answers; look whether its broker runs and can be reached"
        )


class NotOpenedError(BrokerUnavailableError):
    """Some partitions of the input could not be opened, for these ``reasons``, and nothing else went wrong."""

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

    Raises `LeaderAwayError` if it has not answered in this time.
    """
    try:
        async with asyncio.timeout(ANSWER_S):
            yield
    except (TimeoutError, kafka_errors.KafkaTimeoutError):
        raise LeaderAwayError(tp) from None
