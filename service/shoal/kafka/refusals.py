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
