"""A session whose records somebody else brings, and whose partitions somebody else assigns: a stage in another app.

The host may bring records twice, out of order, or lose some: what enters a lane is seen to follow what entered before,
and the host is sent back where it does not. So the guarantee does not lean on the host's bookkeeping.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient

from shoal.errors import BrokerUnavailableError, ShoalError
from shoal.kafka.classification import Message
from shoal.kafka.client import admin, reading
from shoal.kafka.gap_reader import GapReader
from shoal.kafka.partition_task import PartitionTask
from shoal.kafka.preflight import preflight
from shoal.kafka.retries import BrokerLiveness
from shoal.kafka.task_errors import task_exception, to_shoal_error
from shoal.kafka.task_manager import ClusterListener, TaskManager, WorkerContext
from shoal.observability import logger
from shoal.pipeline import BLOCK_RECORDS

__all__ = ["ExternalLoop", "HandoverCancelledError", "MessageSource"]

POLL_S = 0.05
IDLE_S = 0.01
LOOK_S = 1.0
"""How often the log's end is looked at; an idle lane learns so that it has read all there is."""
STALE_S = 2 * LOOK_S
"""Nothing is believed of an end that was seen longer ago: nobody is let go because it could not be looked at."""
GRACE_S = 0.3
"""How long what comes next may be on its way before the host is sent back for it."""
AGAIN_S = 2.0
"""How long it may take from there, and each time as much longer: on a busy machine it may be on its way for long."""
AGAIN_MOST_S = 30.0
STALL_S = 3.0
"""How long a host may bring nothing though there is something."""

log = logger("kafka")


class HandoverCancelledError(ShoalError):
    """A cluster was not dealt with in time: it is handed over again, here or elsewhere."""

    code = "withdrawn"
    retriable = True


class MessageSource(Protocol):
    """Who brings the records."""

    async def wait(self, timeout_s: float) -> None:
        """Return when something came, or after this time."""

    def take(self, partition: int, most: int) -> Sequence[Message]:
        """Hand over what came of a partition, the oldest first, and at most so many."""

    @property
    def rewind(self) -> Callable[[int, int], Awaitable[None]]:
        """Brings a partition's records from this offset on, once more if need be. It may fail: it is asked again."""


@dataclass(slots=True)
class _GapWait:
    """What a lane waits for: since when, and when the host was sent back for it."""

    since: float
    next_s: float = 0.0
    times: int = 0


class ExternalLoop:
    """One assignment: lanes for some partitions, fed by a carrier, until it is ended.

    Parameters
    ----------
    plan : Plan
        Of the process.
    contact : Contact
        With the broker.
    carrier : Carrier
        Brings the records.
    partitions : sequence of int
        Of the input, assigned to this process.
    handing : Handing
        Who sees the clusters.
    most : int
        Records of one slice: what is decided on one of them is committed together at the earliest.
    is_doubtful : bool
        Whether the carrier may bring records that are not committed, of those that are in the log now: each is then
        looked up.
    opened : asyncio.Event or None
        Set when all lanes are open, or will not be.
    """

    def __init__(
        self,
        plan: WorkerContext,
        contact: BrokerLiveness,
        carrier: MessageSource,
        partitions: Sequence[int],
        handing: ClusterListener,
        most: int = BLOCK_RECORDS,
        *,
        is_doubtful: bool = False,
        opened: asyncio.Event | None = None,
    ) -> None:
        self._plan, self._contact, self._carrier, self._most = plan, contact, carrier, most
        self._handing, self._is_doubtful = handing, is_doubtful
        self._places = [TopicPartition(str(plan.settings.input), number) for number in partitions]
        self._lanes = TaskManager(plan, handing)
        self._ending = asyncio.Event()
        self.opened = opened or asyncio.Event()
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._missing: dict[TopicPartition, _GapWait] = {}
        self._sending: dict[TopicPartition, asyncio.Task[None]] = {}
        self._doubtful: dict[TopicPartition, int] = {}
        """Before which offset a record may be one that is not committed."""
        self._ends: dict[TopicPartition, int] = {}
        self._seen_s: dict[TopicPartition, float] = {}
        self._looked_s = self._compared_s = 0.0

    async def end(self, timeout_s: float) -> bool:
        """Commit what is decided and close the lanes; whether that was done in this time."""
        self._ending.set()
        try:
            await asyncio.wait_for(self._over.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def cut(self) -> None:
        """Give up what does not end."""
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        """Work until ended.

        Raises
        ------
        ShoalError
            What ended it before that.
        """
        self._task = asyncio.create_task(self._work())
        try:
            await asyncio.wait({self._task})
        finally:
            self._task.cancel()
            await asyncio.wait({self._task})
            self.opened.set()
            self._over.set()
        error = task_exception(self._task)
        if error is not None and not (isinstance(error, HandoverCancelledError) and self._ending.is_set()):
            raise to_shoal_error(error) from None

    async def _work(self) -> None:
        settings = self._plan.settings
        async with admin(settings) as client:

            async def ask() -> None:
                await client.find_coordinator(str(settings.group))

            # A customer may keep the work waiting for as long as he likes.
            await _until_first(self._serve(client), self._contact.probe(ask))

    async def _serve(self, client: AIOKafkaAdminClient) -> None:
        plan = self._plan
        plan.health.restoring = {place.partition for place in self._places}
        self._lanes.layout = await preflight(client, plan.policy, plan.settings)
        self._contact.made()
        if self._is_doubtful:
            self._doubtful = await self._ends_of_all()
        finish = False
        async with reading(plan.settings) as reader:
            try:
                await _until_first(self._lanes.open(self._places, client, reader, self._begun), self._ended())
                plan.health.joined = True
                self.opened.set()
                clocks = [self._follow_clock(*one) for one in self._lanes.items()]
                await _until_all(self._feed_all(reader), self._watch_ends(reader), *clocks)
                finish = True
            except HandoverCancelledError:
                # What other lanes have decided, and what was dealt with before, has nothing to do with that.
                finish = True
                raise
            finally:
                plan.health.joined = False
                await self._lanes.release(list(self._lanes), finish=finish)

    async def _ended(self) -> None:
        await self._ending.wait()

    async def _ends_of_all(self) -> dict[TopicPartition, int]:
        """Where the logs end for a reader that takes what is not committed, too."""
        async with reading(self._plan.settings, isolation_level="read_uncommitted") as reader:
            return dict(await reader.end_offsets(self._places)) if self._places else {}

    def _begun(self, place: TopicPartition, lane: PartitionTask) -> None:
        self._seen_s[place] = time.monotonic()
        log.debug("reading", topic=place.topic, partition=place.partition, offset=lane.cursor)

    # ------------------------------------------------------------------ the clock

    async def _follow_clock(self, place: TopicPartition, lane: PartitionTask) -> None:
        """Do what is due, also while others wait for a customer."""
        while not self._ending.is_set():
            await self._tick(place, lane)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ending.wait(), POLL_S)

    async def _tick(self, place: TopicPartition, lane: PartitionTask) -> None:
        end, is_fresh = self._ends.get(place), time.monotonic() - self._looked_s < STALE_S
        await lane.tick(at_end=is_fresh and end is not None and end <= lane.cursor)
        self._lanes.show(place, lane, end)

    async def _watch_ends(self, reader: AIOKafkaConsumer) -> None:
        """See where the logs end, also while a customer keeps those waiting who are fed."""
        places = list(self._lanes)  # they stay what they are for as long as this serves

        async def look() -> None:
            asked = time.monotonic()
            try:
                self._ends = dict(await reader.end_offsets(places))
            except kafka_errors.UnknownTopicOrPartitionError:
                self._contact.lost()
                raise BrokerUnavailableError("the broker cannot be reached") from None
            self._looked_s = asked

        if places:
            await _until_first(self._contact.probe(look, LOOK_S), self._ended())

    # ------------------------------------------------------------------ one turn of the loop

    async def _feed_all(self, reader: AIOKafkaConsumer) -> None:
        try:
            await self._feed_until_ended(reader)
        finally:
            for sending in list(self._sending.values()):
                sending.cancel()

    async def _feed_until_ended(self, reader: AIOKafkaConsumer) -> None:
        continuity = GapReader(reader)
        while not self._ending.is_set():
            await self._carrier.wait(POLL_S)
            is_fed = False
            for place, lane in self._lanes.items():
                if not (lane.is_full or self._handing.is_full() or self._ending.is_set()):
                    is_fed |= await self._feed(place, lane, continuity)
            if not is_fed:
                await asyncio.sleep(IDLE_S)
            now = time.monotonic()
            if now - self._compared_s >= LOOK_S:
                self._compared_s = now
                await self._compare(continuity)

    async def _feed(self, place: TopicPartition, lane: PartitionTask, continuity: GapReader) -> bool:
        """Let a lane take a slice of what came, as far as it follows what the lane has read; whether something did."""
        brought = self._carrier.take(place.partition, self._most)
        if not brought:
            self._chase(place, lane)
            return False
        messages = await self._following(place, lane, brought, continuity)
        if messages:
            self._seen_s[place] = time.monotonic()
            await lane.intake(messages)
            await self._tick(place, lane)
        return bool(messages)

    async def _following(
        self, place: TopicPartition, lane: PartitionTask, brought: Sequence[Message], continuity: GapReader
    ) -> Sequence[Message]:
        """Those that follow each other and what the lane has read: no record that is in the log is left out."""
        expected, doubtful = lane.cursor, self._doubtful.get(place, 0)
        if expected >= doubtful and all(one.offset == expected + i for i, one in enumerate(brought)):
            self._missing.pop(place, None)
            return brought
        found, is_gap = [], False
        for message in brought:
            offset = message.offset
            if offset < expected:
                continue
            is_next = offset == expected and offset >= doubtful
            first = offset if is_next else await continuity.first(place, expected)
            if first == offset:
                found.append(message)
                expected, is_gap = offset + 1, False
            elif offset >= doubtful or _is_before(first, offset):
                # What comes first may still be behind it. (Else it is not committed, or not yet.)
                is_gap = True
        if not is_gap:
            self._missing.pop(place, None)
        elif place not in self._missing:
            self._missing[place] = _GapWait(time.monotonic())
        self._chase(place, lane)
        return found

    def _chase(self, place: TopicPartition, lane: PartitionTask) -> None:
        """Send the host back for what it has left out, once it had the time to bring it."""
        missing, now = self._missing.get(place), time.monotonic()
        if missing is None or now - missing.since < GRACE_S or now < missing.next_s:
            return
        if place not in self._sending:
            log.info("sent back", topic=place.topic, partition=place.partition, offset=lane.cursor)
            self._sending[place] = asyncio.create_task(self._send_back(missing, place, lane.cursor))

    async def _send_back(self, missing: _GapWait, place: TopicPartition, offset: int) -> None:
        """Beside the lanes: the host may have to bring what is on its way for all of them before."""
        try:
            await self._carrier.rewind(place.partition, offset)
        finally:
            del self._sending[place]
            missing.times += 1
            missing.next_s = time.monotonic() + min(AGAIN_S * missing.times, AGAIN_MOST_S)

    async def _compare(self, continuity: GapReader) -> None:
        """See whether an idle lane has all that is before the end of its log."""
        for place, lane in self._lanes.items():
            end, idle_s = self._ends.get(place, 0), time.monotonic() - self._seen_s[place]
            if idle_s < LOOK_S or end <= lane.cursor:
                continue
            first = await continuity.first(place, lane.cursor)
            if first is None:
                # Marks of transactions only.
                lane.reached(end)
            elif place not in self._missing and idle_s > STALL_S and not lane.is_full:
                self._missing[place] = _GapWait(time.monotonic() - GRACE_S)


def _is_before(first: int | None, offset: int) -> bool:
    return first is not None and first < offset


async def _until_first(*works: Coroutine[Any, Any, None]) -> None:
    """Work side by side until one has ended, and end as it did; the others are told to stop."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _stop(tasks)


async def _until_all(*works: Coroutine[Any, Any, None]) -> None:
    """Work side by side until all have ended, or one with an error; what was withdrawn does not disturb the others."""
    tasks = [asyncio.create_task(work) for work in works]
    todo = set(tasks)
    try:
        while todo:
            ended, todo = await asyncio.wait(todo, return_when=asyncio.FIRST_COMPLETED)
            if not all(isinstance(task_exception(task), HandoverCancelledError | None) for task in ended):
                break
    finally:
        await _stop(tasks)


async def _stop(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Stop those that still run; raise what one of the others has ended with."""
    ended = [task for task in tasks if task.done()]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    errors = [error for task in ended if (error := task_exception(task)) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, HandoverCancelledError)):
        raise error
