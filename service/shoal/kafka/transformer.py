"""The loop of the service: join the group, hold lanes for assigned partitions, read, decide, commit.

One session is one membership in the group. Whatever goes wrong in a lane ends the session: its producers are
closed, its state is dropped, and a new session reads the committed progress again. There is nothing to repair.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient

from shoal.errors import BrokerError, BrokerUnavailableError, FencedError, ShoalError
from shoal.kafka.checks import check_start
from shoal.kafka.connection import CLIENT_ERRORS, admin, broker_error, consumer
from shoal.kafka.lane import Lane
from shoal.kafka.publisher import Publisher
from shoal.kafka.start import Start, begin
from shoal.policy import KafkaSection, Policy
from shoal.records import JsonDecoder
from shoal.watch import Health, Metrics, logger
from shoal.watch.logs import code_of

__all__ = ["Transformer"]

POLL_S = 0.05
PROBE_S = 2.0
POLL_RECORDS = 4 * 512
CLOSE_S = 8.0
BACKOFF_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

log = logger("kafka")


@dataclass
class Transformer:
    """A topic of personal records into a k-anonymous topic, exactly once per input offset.

    Parameters
    ----------
    policy, settings
        What to protect, and where.
    metrics, health
        What others see of it.
    start : Start
        What the operator said on the command line.
    """

    policy: Policy
    settings: KafkaSection
    metrics: Metrics
    health: Health
    start: Start
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _lanes: dict[TopicPartition, Lane] = field(default_factory=dict)
    _failure: ShoalError | None = None
    _reached: float = field(default_factory=time.monotonic)
    _partitions: dict[str, int] = field(default_factory=dict)

    def stop(self) -> None:
        """Finish the open transaction, leave the group, return from `run`."""
        self._stop.set()
        self.health.stopping = True

    async def run(self) -> None:
        """Work until stopped, or (with ``start.drain``) until everything has left.

        Raises
        ------
        BrokerError
            The broker was away for longer than ``kafka.patience_s``, or refuses for good.
        InputError, PolicyError
            The start checks failed.
        GuaranteeError
            Something was about to leave that must not; nothing was sent.
        """
        self.metrics.policy.labels(self.policy.fingerprint).set(1)
        self.metrics.position_weight.set(self.policy.position)
        failures = 0
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                await self._session()
            except ShoalError as error:
                self._judge(error)
                failures = 0 if time.monotonic() - began > 2 * BACKOFF_S[-1] else failures
                pause = BACKOFF_S[min(failures, len(BACKOFF_S) - 1)]
                failures += 1
                log.warning("session ended", code=code_of(error), reason=str(error), retry_s=pause)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), pause)

    def _judge(self, error: ShoalError) -> None:
        self.health.joined = False
        if isinstance(error, FencedError) and self.start.drain:
            raise BrokerError("--drain: a worker of this group is running; stop all of them first") from None
        if not error.retriable:
            raise error
        if isinstance(error, BrokerUnavailableError):
            self.health.broker_reached = False
        away = time.monotonic() - self._reached
        if away > self.settings.patience_s:
            raise BrokerError(f"the broker could not be reached for {away:.0f} s (kafka.patience_s); giving up")

    # ------------------------------------------------------------------ one membership

    async def _session(self) -> None:
        settings = self.settings
        self._failure = None
        async with admin(settings) as client:
            self._partitions = await check_start(client, self.policy, settings)
            self._note_contact()
            reader = self._member() if not self.start.drain else consumer(settings)
            probe = None
            finish = False
            try:
                if self.start.drain:
                    await self._take_all(client, reader)
                else:
                    reader.subscribe([settings.input], listener=_Assignment(self, client, reader))
                    await reader.start()
                probe = asyncio.create_task(self._probe(reader))
                await self._read(reader)
                finish = True
            except CLIENT_ERRORS as error:
                raise broker_error(error) from None
            finally:
                await self._leave(reader, probe, finish=finish)

    def _member(self) -> AIOKafkaConsumer:
        settings = self.settings
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
        places = [
            TopicPartition(self.settings.input, number) for number in range(self._partitions[str(self.settings.input)])
        ]
        reader.assign(places)
        await self.take_over(places, client, reader)

    async def _leave(self, reader: AIOKafkaConsumer, probe: asyncio.Task[None] | None, *, finish: bool) -> None:
        self.health.joined = False
        if probe is not None:
            probe.cancel()
        try:
            await self.release(list(self._lanes), finish=finish)
        finally:
            with contextlib.suppress(*CLIENT_ERRORS):
                await asyncio.wait_for(reader.stop(), CLOSE_S)

    async def _read(self, reader: AIOKafkaConsumer) -> None:
        self.health.joined = True
        while not self._stop.is_set():
            if self._failure is not None:
                raise self._failure
            for place, messages in (await self._poll(reader)).items():
                lane = self._lanes.get(place)
                # Records read before the lane is open are dropped: it seeks to where they begin.
                if lane is not None:
                    await lane.intake(messages)
            for place, lane in list(self._lanes.items()):
                at_end = lane.cursor >= self._end(reader, place)
                await lane.tick(at_end=at_end)
                self._show(place, lane, reader)
                if self.start.drain and at_end:
                    await lane.finish()
            if self.start.drain and all(lane.is_finished for lane in self._lanes.values()):
                self.stop()

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

    def _end(self, reader: AIOKafkaConsumer, place: TopicPartition) -> int:
        stable = reader.last_stable_offset(place) if place in reader.assignment() else None
        return 1 << 62 if stable is None or stable < 0 else stable

    def _show(self, place: TopicPartition, lane: Lane, reader: AIOKafkaConsumer) -> None:
        self.metrics.held.labels(place.topic, place.partition).set(lane.held)
        if not lane.is_restoring:
            self.health.restoring.discard(place.partition)
        end = self._end(reader, place)
        if end < 1 << 62:
            self.metrics.lag.labels(place.topic, place.partition).set(max(0, end - lane.cursor))

    def _note_contact(self) -> None:
        self._reached = time.monotonic()
        self.health.broker_reached = True

    async def _probe(self, reader: AIOKafkaConsumer) -> None:
        """Ask the broker something every two seconds: an idle connection does not tell that it is gone."""
        while True:
            try:
                places = list(reader.assignment()) or [TopicPartition(self.settings.input, 0)]
                await asyncio.wait_for(reader.end_offsets(places), 3 * PROBE_S)
                self._note_contact()
            except CLIENT_ERRORS:
                self.health.broker_reached = False
                if time.monotonic() - self._reached > self.settings.patience_s:
                    self._failure = BrokerUnavailableError("the broker cannot be reached")
            await asyncio.sleep(PROBE_S)

    # ------------------------------------------------------------------ assignment

    async def take_over(
        self, places: Iterable[TopicPartition], client: AIOKafkaAdminClient, reader: AIOKafkaConsumer
    ) -> None:
        """Open lanes: fence, read the progress, seek; only then may records come in."""
        decoder = JsonDecoder(self.policy, max_bytes=self.settings.max_record_bytes)
        self.health.restoring = {place.partition for place in places}
        for place in places:
            publisher = Publisher(self.policy, self.settings, place.partition, self._partitions)
            await publisher.open()
            try:
                found = await begin(
                    client, reader, publisher, self.settings, self.policy.fingerprint, place.partition, self.start
                )
            except BaseException:
                await publisher.close()
                raise
            state = found.commit.snapshot
            if not found.commit.carries(self.policy.fingerprint):
                self.metrics.policy_changes.inc()
                log.warning("policy changed", partition=place.partition, watermark=state.watermark)
            if found.skipped:
                self.metrics.skipped.labels(place.topic, place.partition).inc(found.skipped)
                log.warning("skipped to the end", partition=place.partition, skipped=found.skipped)
            lane = Lane(
                place.topic,
                place.partition,
                self.policy,
                decoder,
                publisher,
                found.commit,
                self.metrics,
                self.settings.commit_interval_ms / 1000,
            )
            lane.look_back(found.low)
            reader.seek(place, lane.cursor)
            self._lanes[place] = lane
            log.info("took over", partition=place.partition, watermark=state.watermark, held=len(state.held))

    async def release(self, places: Iterable[TopicPartition], *, finish: bool) -> None:
        """Close lanes; with ``finish`` commit what they have decided."""
        lanes = [(place, self._lanes.pop(place)) for place in places if place in self._lanes]
        results = await asyncio.gather(*(lane.close(finish=finish) for _, lane in lanes), return_exceptions=True)
        for place, _ in lanes:
            # What another worker holds from now on is not ours to tell: a stale number would look like one.
            for gauge in (self.metrics.held, self.metrics.lag):
                gauge.remove(place.topic, str(place.partition))
            self.health.restoring.discard(place.partition)
        for result in results:
            if isinstance(result, BaseException) and finish:
                raise result

    def fail(self, error: ShoalError) -> None:
        """End the session with this error at the next turn of the loop."""
        self._failure = error


class _Assignment(ConsumerRebalanceListener):  # type: ignore[misc] # the client has no types
    """Called by the client in its own task, while the loop may be in the middle of a block."""

    def __init__(self, transformer: Transformer, client: AIOKafkaAdminClient, reader: AIOKafkaConsumer) -> None:
        self._transformer, self._client, self._reader = transformer, client, reader

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._guarded(self._transformer.release(revoked, finish=True))

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        await self._guarded(self._transformer.take_over(sorted(assigned), self._client, self._reader))

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except ShoalError as error:
            self._transformer.fail(error)
        except CLIENT_ERRORS as error:
            self._transformer.fail(broker_error(error))
