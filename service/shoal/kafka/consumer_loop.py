"""One membership in the group: hold lanes for assigned partitions, read, decide, commit.

Whatever goes wrong in a lane ends the session: its producers are closed, its state is dropped, and the next session
reads the committed progress again. There is nothing to repair.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient

from shoal.errors import BrokerUnavailableError, ShoalError
from shoal.kafka.client import admin, consumer, stop
from shoal.kafka.partition_task import PartitionTask
from shoal.kafka.preflight import preflight
from shoal.kafka.retries import BrokerLiveness
from shoal.kafka.task_errors import task_exception, to_shoal_error
from shoal.kafka.task_manager import TaskManager, WorkerContext
from shoal.observability import logger

__all__ = ["ConsumerLoop"]

POLL_S = 0.05
POLL_RECORDS = 4 * 512
FINISH_S = 4.0
"""What a session may take to finish its transactions when it is to stop; with what follows less than ten seconds."""
LEAVE_S = 2.0

log = logger("kafka")


class ConsumerLoop:
    """One membership in the group, or with ``start.drain`` one turn over all partitions.

    Parameters
    ----------
    plan : Plan
        Of the process.
    contact : Contact
        With the broker.
    stopping : asyncio.Event
        Set when the work shall end.
    """

    def __init__(self, plan: WorkerContext, contact: BrokerLiveness, stopping: asyncio.Event) -> None:
        self._plan, self._settings, self._health, self._start = plan, plan.settings, plan.health, plan.start
        self._contact, self._stopping = contact, stopping
        self._lanes = TaskManager(plan)
        self._opening: asyncio.Task[None] | None = None
        self._failure: ShoalError | None = None
        self._failed = asyncio.Event()
        self._is_over = False

    async def run(self) -> None:
        """Work until stopped or drained.

        Raises
        ------
        ShoalError
            What ended the session before that.
        """
        work = asyncio.create_task(self._work())
        stopping, failed = (asyncio.create_task(event.wait()) for event in (self._stopping, self._failed))
        try:
            await asyncio.wait({work, stopping, failed}, return_when=asyncio.FIRST_COMPLETED)
            if self._stopping.is_set():
                # The work sees that by itself, unless it waits for a broker that does not answer.
                await asyncio.wait({work, failed}, timeout=FINISH_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, stopping, failed):
                task.cancel()
            await asyncio.wait({work})
        if self._failure is not None:
            raise self._failure
        if (error := task_exception(work)) is not None:
            raise to_shoal_error(error) from None

    def fail(self, error: BaseException) -> None:
        """End the session with this error."""
        if self._failure is None:
            self._failure = to_shoal_error(error)
            self._failed.set()

    def _notice(self, task: asyncio.Task[None]) -> None:
        """See what a task in the background ended with."""
        if (error := task_exception(task)) is not None:
            self.fail(error)

    # ------------------------------------------------------------------ from joining to leaving

    async def _work(self) -> None:
        settings = self._settings
        async with admin(settings) as client:
            self._lanes.layout = await preflight(client, self._plan.policy, settings)
            self._contact.made()
            reader = consumer(settings) if self._start.drain else self._member()
            probe = asyncio.create_task(self._contact.probe(partial(self._ask, client, reader)))
            probe.add_done_callback(self._notice)
            finish = False
            try:
                if self._start.drain:
                    await self._take_all(client, reader)
                else:
                    reader.subscribe([settings.input], listener=_RebalanceListener(self, client, reader))
                    await reader.start()
                self._health.joined = True
                await self._read(reader)
                finish = True
            finally:
                probe.cancel()
                await self._leave(reader, finish=finish)

    def _member(self) -> AIOKafkaConsumer:
        settings = self._settings
        return consumer(
            settings,
            group_id=settings.group,
            group_instance_id=settings.instance_id,
            client_id=f"shoal-{settings.instance_id or settings.group}",
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.session_timeout_ms // 3,
            fetch_max_wait_ms=200,
        )

    async def _take_all(self, client: AIOKafkaAdminClient, reader: AIOKafkaConsumer) -> None:
        """Take every partition without joining the group: who drains must not wait for members that died."""
        await reader.start()
        topic = str(self._settings.input)
        places = [TopicPartition(topic, number) for number in range(self._lanes.layout.partitions[topic])]
        reader.assign(places)
        self.assigned(places, client, reader)

    async def _leave(self, reader: AIOKafkaConsumer, *, finish: bool) -> None:
        self._is_over = True
        self._health.joined = False
        try:
            await self._stop_opening()
            await self._lanes.release(list(self._lanes), finish=finish)
        finally:
            await stop(reader, LEAVE_S)

    async def _ask(self, client: AIOKafkaAdminClient, reader: AIOKafkaConsumer) -> None:
        places = list(self._lanes)
        await (reader.end_offsets(places) if places else client.find_coordinator(str(self._settings.group)))

    # ------------------------------------------------------------------ reading

    async def _read(self, reader: AIOKafkaConsumer) -> None:
        while not self._stopping.is_set():
            polled = await self._poll(reader)
            # Before anything else happens: records are for the lanes there are now. Those read before a lane was
            # open are dropped; it seeks to where they begin.
            todo = [(self._lanes[place], messages) for place, messages in polled.items() if place in self._lanes]
            for lane, messages in todo:
                await lane.intake(messages)
            await self._tick_all(reader)
            if self._is_drained():
                return

    async def _tick_all(self, reader: AIOKafkaConsumer) -> None:
        # Side by side: a lane that lets everything leave waits for some transactions.
        ticks = [asyncio.create_task(self._tick(reader, place, lane)) for place, lane in self._lanes.items()]
        try:
            await asyncio.gather(*ticks)
        finally:
            for tick in ticks:
                tick.cancel()

    async def _tick(self, reader: AIOKafkaConsumer, place: TopicPartition, lane: PartitionTask) -> None:
        if not self._lanes.is_open(place, lane):
            return  # a rebalance came in between
        lane.reached(await reader.position(place))
        end = reader.last_stable_offset(place)
        at_end = end is not None and 0 <= end <= lane.cursor
        await lane.tick(at_end=at_end)
        if self._start.drain and at_end:
            await lane.finish()
        self._lanes.show(place, lane, end)

    def _is_drained(self) -> bool:
        is_open = self._opening is not None and self._opening.done()
        return self._start.drain and is_open and all(lane.is_finished for _, lane in self._lanes.items())

    async def _poll(self, reader: AIOKafkaConsumer) -> dict[TopicPartition, list[Any]]:
        full = [place for place, lane in self._lanes.items() if lane.is_full]
        if full:
            reader.pause(*full)
        try:
            found: dict[TopicPartition, list[Any]] = await reader.getmany(
                timeout_ms=round(POLL_S * 1000), max_records=POLL_RECORDS
            )
        except kafka_errors.NoOffsetForPartitionError:
            # The client looked for a position before the lane had put it there.
            found = {}
        except kafka_errors.OffsetOutOfRangeError:
            raise BrokerUnavailableError("records were removed before they could be read; the start judges") from None
        finally:
            if full:
                reader.resume(*(place for place in full if place in reader.assignment()))
        return found

    # ------------------------------------------------------------------ partitions come and go

    def assigned(self, places: list[TopicPartition], client: AIOKafkaAdminClient, reader: AIOKafkaConsumer) -> None:
        """Begin to open lanes, in the background: the client sends no heartbeats before this has returned."""
        if self._is_over:
            return
        self._health.restoring = {place.partition for place in places}
        for place in places:
            # Nothing is to be fetched before the lane says from where.
            reader.pause(place)
            reader.seek(place, 0)
        self._opening = asyncio.create_task(self._open_all(places, client, reader))
        self._opening.add_done_callback(self._notice)

    async def revoked(self, places: Iterable[TopicPartition]) -> None:
        """Commit what the lanes have decided and close them."""
        if not self._is_over:
            await self._stop_opening()
            try:
                await self._lanes.release(places, finish=True)
            except ShoalError as error:
                self.fail(error)

    async def _stop_opening(self) -> None:
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
            await asyncio.wait({self._opening})

    async def _open_all(
        self, places: list[TopicPartition], client: AIOKafkaAdminClient, reader: AIOKafkaConsumer
    ) -> None:
        def opened(place: TopicPartition, lane: PartitionTask) -> None:
            reader.seek(place, lane.cursor)
            reader.resume(place)

        await self._lanes.open(places, client, reader, opened)


class _RebalanceListener(ConsumerRebalanceListener):  # type: ignore[misc] # the client has no types
    """Called by the client in its own task, while the loop may be in the middle of a block."""

    def __init__(self, session: ConsumerLoop, client: AIOKafkaAdminClient, reader: AIOKafkaConsumer) -> None:
        self._session, self._client, self._reader = session, client, reader

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._session.revoked(revoked)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._session.assigned(sorted(assigned), self._client, self._reader)
