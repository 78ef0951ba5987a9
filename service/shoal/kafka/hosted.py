"""A session whose records somebody else brings, and whose partitions somebody else assigns: a stage in another app.

The host may bring records twice, out of order, or lose some: what enters a lane is seen to follow what entered before,
and the host is sent back where it does not. So the guarantee does not lean on the host's bookkeeping.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient

from shoal.errors import BrokerUnavailableError, ShoalError
from shoal.flow import BLOCK_RECORDS
from shoal.kafka.checks import check_start
from shoal.kafka.connection import CLIENT_ERRORS, admin, consumer, stop
from shoal.kafka.continuity import Continuity
from shoal.kafka.endings import end_of, ours
from shoal.kafka.fates import Message
from shoal.kafka.lane import Lane
from shoal.kafka.lanes import Handing, Lanes, Plan
from shoal.kafka.patience import Contact
from shoal.watch import logger

__all__ = ["Carrier", "Hosted", "WithdrawnError"]

POLL_S = 0.05
LOOK_S = 1.0
"""How often the log's end is looked at; an idle lane learns so that it has read all there is."""
GRACE_S = 0.3
"""How long what comes next may be on its way before the host is sent back for it."""
AGAIN_S = 2.0
"""How long it may take from there."""
STALL_S = 3.0
"""How long a host may bring nothing though there is something."""
LEAVE_S = 2.0

log = logger("kafka")


class WithdrawnError(ShoalError):
    """A cluster was not dealt with in time: it is handed over again, here or elsewhere."""

    code = "withdrawn"
    retriable = True


class Carrier(Protocol):
    """Who brings the records."""

    async def wait(self, timeout_s: float) -> None:
        """Return when something came, or after this time."""

    def take(self, partition: int, most: int) -> Sequence[Message]:
        """Hand over what came of a partition, the oldest first, and at most so many."""

    def forget_others(self, partitions: Iterable[int]) -> None:
        """Throw away what came of other partitions."""

    @property
    def rewind(self) -> Callable[[int, int], Awaitable[None]]:
        """Brings a partition's records from this offset on, once more if need be. It may fail: it is asked again."""


@dataclass(slots=True)
class _Following:
    """What a lane waits for: since when, and when the host was sent back for it."""

    since: float
    sent_back: float = -AGAIN_S


class Hosted:
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
    """

    def __init__(
        self,
        plan: Plan,
        contact: Contact,
        carrier: Carrier,
        partitions: Sequence[int],
        handing: Handing,
        most: int = BLOCK_RECORDS,
    ) -> None:
        self._plan, self._contact, self._carrier, self._most = plan, contact, carrier, most
        self._places = [TopicPartition(str(plan.settings.input), number) for number in partitions]
        self._lanes = Lanes(plan, handing)
        self._ending = asyncio.Event()
        self.opened = asyncio.Event()
        """Set when all lanes are open, or will not be."""
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._missing: dict[TopicPartition, _Following] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._seen_s: dict[TopicPartition, float] = {}
        self._looked_s = 0.0

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
        error = end_of(self._task)
        if error is not None and not (isinstance(error, WithdrawnError) and self._ending.is_set()):
            raise ours(error) from None

    async def _work(self) -> None:
        async with admin(self._plan.settings) as client:
            await self._serve(client)

    async def _serve(self, client: AIOKafkaAdminClient) -> None:
        plan = self._plan
        plan.health.restoring = {place.partition for place in self._places}
        self._carrier.forget_others(place.partition for place in self._places)
        self._lanes.layout = await check_start(client, plan.policy, plan.settings)
        self._contact.made()
        reader = consumer(plan.settings)
        finish = False
        try:
            await reader.start()
            await self._open(client, reader)
            plan.health.joined = True
            self.opened.set()
            continuity = Continuity(reader)
            while not self._ending.is_set():
                await self._turn(reader, continuity)
            finish = True
        except WithdrawnError:
            # The other lanes have nothing to do with that.
            finish = True
            raise
        finally:
            plan.health.joined = False
            try:
                await self._lanes.release(list(self._lanes), finish=finish)
            finally:
                await stop(reader, LEAVE_S)

    async def _open(self, client: AIOKafkaAdminClient, reader: AIOKafkaConsumer) -> None:
        """Open all lanes, unless it ends first."""
        opening = asyncio.create_task(self._lanes.open(self._places, client, reader, self._begun))
        ending = asyncio.create_task(self._ending.wait())
        try:
            await asyncio.wait({opening, ending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (opening, ending):
                task.cancel()
            await asyncio.wait({opening})
        if (error := end_of(opening)) is not None:
            raise ours(error) from None

    def _begun(self, place: TopicPartition, lane: Lane) -> None:
        self._seen_s[place] = time.monotonic()
        log.debug("reading", topic=place.topic, partition=place.partition, offset=lane.cursor)

    # ------------------------------------------------------------------ one turn of the loop

    async def _turn(self, reader: AIOKafkaConsumer, continuity: Continuity) -> None:
        await self._carrier.wait(POLL_S)
        for place, lane in self._lanes.items():
            if not (lane.is_full or self._ending.is_set()):
                await self._feed(place, lane, continuity)
        now = time.monotonic()
        if now - self._looked_s >= LOOK_S:
            self._looked_s = now
            await self._look(reader, continuity)
        await self._tick_all()

    async def _feed(self, place: TopicPartition, lane: Lane, continuity: Continuity) -> None:
        """Let a lane take a slice of what came, as far as it follows what the lane has read."""
        brought = self._carrier.take(place.partition, self._most)
        if not brought:
            await self._chase(place, lane)
            return
        messages = await self._following(place, lane, brought, continuity)
        if messages:
            self._missing.pop(place, None)
            self._seen_s[place] = time.monotonic()
            await lane.intake(messages)

    async def _following(
        self, place: TopicPartition, lane: Lane, brought: Sequence[Message], continuity: Continuity
    ) -> Sequence[Message]:
        """Those that follow each other and what the lane has read: no record that is in the log is left out."""
        first, last = brought[0].offset, brought[-1].offset
        if first == lane.cursor and last - first == len(brought) - 1:
            return brought
        expected, found, gap = lane.cursor, [], False
        for message in brought:
            if message.offset < expected:
                continue
            if message.offset > expected and await continuity.first(place, expected) != message.offset:
                # What comes first may still be behind it.
                gap = True
                continue
            found.append(message)
            expected, gap = message.offset + 1, False
        if gap and place not in self._missing:
            self._missing[place] = _Following(time.monotonic())
        await self._chase(place, lane)
        return found

    async def _chase(self, place: TopicPartition, lane: Lane) -> None:
        """Send the host back for what it has left out, once it had the time to bring it."""
        missing, now = self._missing.get(place), time.monotonic()
        if missing is None or now - missing.since < GRACE_S or now - missing.sent_back < AGAIN_S:
            return
        missing.sent_back = now
        log.info("sent back", topic=place.topic, partition=place.partition, offset=lane.cursor)
        await self._carrier.rewind(place.partition, lane.cursor)

    async def _look(self, reader: AIOKafkaConsumer, continuity: Continuity) -> None:
        """See where the log ends, and whether an idle lane has all that is before it."""
        places = list(self._lanes)
        if not places:
            return
        try:
            self._ends = dict(await asyncio.wait_for(reader.end_offsets(places), 3 * LOOK_S))
            self._contact.made()
        except CLIENT_ERRORS as error:
            self._contact.lost()
            if self._contact.is_hopeless or isinstance(error, kafka_errors.UnknownTopicOrPartitionError):
                raise BrokerUnavailableError("the broker cannot be reached") from None
            return
        for place, lane in self._lanes.items():
            if time.monotonic() - self._seen_s[place] < LOOK_S or self._ends[place] <= lane.cursor:
                continue
            first = await continuity.first(place, lane.cursor)
            if first is None:
                # Marks of transactions only.
                lane.reached(self._ends[place])
            elif place not in self._missing and time.monotonic() - self._seen_s[place] > STALL_S and not lane.is_full:
                self._missing[place] = _Following(time.monotonic() - GRACE_S)

    async def _tick_all(self) -> None:
        # Side by side: a lane that lets everything leave waits for some transactions.
        ticks = [asyncio.create_task(self._tick(place, lane)) for place, lane in self._lanes.items()]
        try:
            await asyncio.gather(*ticks)
        finally:
            for tick in ticks:
                tick.cancel()

    async def _tick(self, place: TopicPartition, lane: Lane) -> None:
        end = self._ends.get(place)
        await lane.tick(at_end=end is not None and end <= lane.cursor)
        self._lanes.show(place, lane, end)
