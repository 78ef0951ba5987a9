"""The refusals of several partitions as one message: each text once, with the partitions to which it applies."""

from __future__ import annotations

import re
from collections.abc import Iterable

from aiokafka import TopicPartition

__all__ = ["join_refusals"]

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
    return "\n".join(f"{same[0][1]}{_likewise([tp for tp, _ in same[1:]])}" for same in kinds.values())


def _likewise(partitions: list[TopicPartition]) -> str:
    if not partitions:
        return ""
    named = [f"{tp.topic}-{tp.partition}" for tp in partitions[: MAX_NAMES - 1]]
    rest_count = len(partitions) - len(named)
    rest = f" and {rest_count} more" if rest_count else ""
    return f". The same, with offsets of their own, for {', '.join(named)}{rest}"
