"""Why records wait for longer than they should: metric, log and readiness say it, with what to do about it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Self

from aiokafka import TopicPartition

from shoal.observability import Health, Metrics, logger

LONG_S = 60.0
"""A record that has waited for less time (s), beyond ``max_delay_s`` if it is set, needs no explanation."""

TELL_EVERY_S = 60.0
"""Time between two lines of the log about one reason (s), at first; it doubles while the reason lasts."""

MOST_NAMES = 8  # most partitions that a line of the log names

log = logger("kafka")


class WaitReason(StrEnum):
    """Why records wait: the label of the metric. ``words`` and ``remedy`` are for people."""

    words: str
    remedy: str

    def __new__(cls, label: str, words: str, remedy: str) -> Self:
        """Make a member that is equal to its label."""
        member = str.__new__(cls, label)
        member._value_, member.words, member.remedy = label, words, remedy
        return member

    CLOCK = (
        "clock",
        "the clock of this machine is behind that of the brokers, and would refuse them as dated ahead",
        "set the clock of this machine, or that of the brokers if it is wrong; no restart is needed",
    )
    BROKER_TIME = (
        "broker_time",
        "they are dated ahead, and the broker does not tell its time, which would decide about them",
        "look whether the coordinator of the transactions answers; after five minutes this machine's clock decides",
    )
    KERNELS = (
        "kernels",
        "the faster form of the kernels is being compiled",
        "wait, or compile ahead: shoal warm POLICY",
    )
    OUTPUT = (
        "output",
        "the brokers take decided records more slowly than they are decided",
        "look at the brokers that lead the output, and at shoal_transaction_seconds",
    )
    DELTA = (
        "delta",
        "fewer than stream.delta records have followed, and no stream.max_delay_s is set",
        "set stream.max_delay_s, or a smaller stream.delta",
    )
    MIN_POPULATION = (
        "min_population",
        "stream.max_delay_s has passed, but too few different people have records that wait",
        "wait for records of more people, or lower stream.min_population; shoal run --drain releases what it can",
    )
    UNREAD = (
        "unread",
        "stream.max_delay_s has passed, but the log holds records that were not read yet",
        "look at shoal_consumer_lag_records; add workers, or look for an open transaction in the input",
    )

    @property
    def stops_reading(self) -> bool:
        """Whether the worker cannot take records, and is not ready."""
        return self in {WaitReason.CLOCK, WaitReason.BROKER_TIME}


class WaitReport:
    """Tells why records of partitions wait, for one process."""

    def __init__(self, metrics: Metrics, health: Health, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics, self._health, self._clock = metrics, health, clock
        self._told: dict[WaitReason, tuple[float, float]] = {}
        """When the log last gave a reason, and the time until it may again (s)."""
        self._lasting: set[WaitReason] = set()  # reasons that the log gave and that have not ended

    def end(self) -> None:
        """Set metric and readiness to no reason. The records may still wait, so the log does not deny it."""
        self._lasting.clear()
        self.update({})

    def update(self, reasons: Mapping[TopicPartition, WaitReason], behind_s: int = 0) -> None:
        """Set metric and readiness by the reasons of all partitions, and log each that is due."""
        by_reason = {reason: [tp for tp, one in reasons.items() if one is reason] for reason in WaitReason}
        self._health.waits = [reason.words for reason, found in by_reason.items() if found and reason.stops_reading]
        now_s = self._clock()
        for reason, partitions in by_reason.items():
            self._metrics.waiting.labels(reason.value).set(len(partitions))
            if not partitions:
                if reason in self._lasting:
                    self._lasting.remove(reason)
                    self._told[reason] = (self._told[reason][0], TELL_EVERY_S)
                    log.info("records wait no longer", reason=reason.value)
                continue
            told_s, pause_s = self._told.get(reason, (now_s - TELL_EVERY_S, TELL_EVERY_S / 2))
            if now_s - told_s >= pause_s:
                self._lasting.add(reason)
                self._told[reason] = (now_s, TELL_EVERY_S if reason.stops_reading else 2 * pause_s)
                facts = {"behind_s": behind_s} if reason is WaitReason.CLOCK else {}
                tell = log.warning if reason.stops_reading else log.info
                tell(
                    f"records wait: {reason.words}",
                    reason=reason.value,
                    partitions=_names(partitions),
                    **facts,
                    remedy=reason.remedy,
                )


def _names(partitions: Iterable[TopicPartition]) -> str:
    names = [f"{tp.topic}-{tp.partition}" for tp in sorted(partitions)]
    rest = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + rest
