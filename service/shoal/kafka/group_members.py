"""The members of the consumer group: a drain begins when there are none."""

from __future__ import annotations

import asyncio
import math
import time

from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient

from shoal.errors import BrokerError, InputError
from shoal.observability import logger
from shoal.policy import KafkaSection

__all__ = ["wait_until_no_members"]

POLL_S = 0.5
MARGIN_S = 15.0
"""Time (s) beyond the session timeout: a worker that is just stopping renews its session until it has committed."""
TOLD_AFTER_S, TOLD_EVERY_S = 5.0, 10.0
"""A coordinator that is just created needs some seconds; after this time (s) its silence is logged, again and again."""

log = logger("kafka")


async def wait_until_no_members(admin: AIOKafkaAdminClient, settings: KafkaSection) -> None:
    """Return when the group has no members; wait for members that were killed, and for static ones that have stopped.

    The broker lists such a member until its session timeout has passed. A running worker renews its session. So after
    this time, and some seconds for workers that are just stopping, a member is a running worker, or one that was killed
    meanwhile.

    Raises
    ------
    InputError
        The group has members after the session timeout. Nothing was fenced, read or committed.
    BrokerError
        The coordinator of the group did not answer for ``patience_s``, although the broker did.
    KafkaError
        As `AIOKafkaAdminClient.describe_consumer_groups`.

    Notes
    -----
    A worker that joins after the last answer is not noticed here. It fences the drain as soon as it opens the
    partitions. READ on the group is enough: it includes DESCRIBE.
    """
    timeout_s = settings.session_timeout_ms / 1000 + MARGIN_S
    deadline_s, told_s = time.monotonic() + timeout_s, -math.inf
    while count := await _member_count(admin, settings):
        now_s = time.monotonic()
        if now_s >= deadline_s:
            members = f"{count} member{'s' if count > 1 else ''}"
            raise InputError(
                f"--drain: group {settings.group} has {members}: a drain would take the partitions from running "
                "workers and suppress records that they hold. Stop all workers (and the app, if it is a Faust stage), "
                "then drain again. If they were killed, their session timeout is longer than "
                f"{settings.session_timeout_ms / 1000:g} s (kafka.session_timeout_ms): drain again when it has passed"
            )
        if now_s >= told_s + TOLD_EVERY_S:
            words = "--drain waits until the members of the group have left, or their session timeout has passed"
            log.warning(words, group=settings.group, members=count, at_most_s=round(deadline_s - now_s, 3))
            told_s = now_s
        await asyncio.sleep(POLL_S)


async def _member_count(admin: AIOKafkaAdminClient, settings: KafkaSection) -> int:
    """Return how many members the coordinator lists, in whichever state the group is; 0 for an unknown group."""
    began_s, patience_s = time.monotonic(), max(settings.patience_s, TOLD_AFTER_S)
    tell_at_s = began_s + TOLD_AFTER_S
    while True:
        try:
            return await _listed_count(admin, str(settings.group))
        except kafka_errors.KafkaError as error:
            # The first request of a Kafka cluster creates the coordinator's topic. A coordinator may also move or load.
            if not error.retriable:
                raise
        now_s = time.monotonic()
        passed_s = now_s - began_s
        if passed_s >= patience_s:
            raise BrokerError(
                f"--drain: the coordinator of group {settings.group} did not say for {passed_s:.0f} s "
                "(kafka.patience_s) which members it has. Nothing was read. Drain again when the broker that leads the "
                "group's partition of __consumer_offsets is back"
            )
        if now_s >= tell_at_s:
            words = "--drain waits for the coordinator of the group"
            log.warning(words, group=settings.group, at_most_s=round(patience_s - passed_s, 3))
            tell_at_s = now_s + TOLD_EVERY_S
        await asyncio.sleep(POLL_S)


async def _listed_count(admin: AIOKafkaAdminClient, group: str) -> int:
    (response,) = await admin.describe_consumer_groups([group])
    ((code, _, _, _, _, members, *_),) = response.groups
    if code:
        raise kafka_errors.for_code(code)(group)
    return len(members)
