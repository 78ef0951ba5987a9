"""Log lines while partitions are opened: which are not open yet, and why."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager

from aiokafka import TopicPartition

from shoal.errors import ShoalError
from shoal.kafka.not_opened import named_text
from shoal.kafka.refusals import join_refusals
from shoal.kafka.waiting_log import TELL_EVERY_S, meanwhile
from shoal.observability import logger

__all__ = ["telling_unopened"]

CHECK_S = 0.5

log = logger("kafka")

Unopened = Callable[[], Mapping[TopicPartition, ShoalError | None]]


def telling_unopened(unopened: Unopened) -> AbstractAsyncContextManager[None]:
    """Log which partitions are not open, for the length of the context: after the first failure, and at intervals.

    Parameters
    ----------
    unopened : callable
        Returns the partitions that are not open, and why the last attempt failed; None before one has failed.
    """
    return meanwhile(_tell(unopened))


async def _tell(unopened: Unopened) -> None:
    began_s = told_s = time.monotonic()
    has_failed = False
    while True:
        await asyncio.sleep(CHECK_S)
        now_s, left = time.monotonic(), unopened()
        failed = {tp: error for tp, error in left.items() if error is not None}
        if left and (now_s >= told_s + TELL_EVERY_S or (failed and not has_failed)):
            _log(failed, len(left), round(now_s - began_s, 3))
            told_s, has_failed = now_s, has_failed or bool(failed)


def _log(failed: Mapping[TopicPartition, ShoalError], count: int, since_s: float) -> None:
    if failed:
        reason = join_refusals((tp, named_text(tp, error)) for tp, error in failed.items())
        log.warning("partitions not opened; the others go on", count=count, since_s=since_s, reason=reason)
    else:
        log.info("partitions are being opened", count=count, since_s=since_s)
