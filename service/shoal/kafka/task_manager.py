"""The lanes of one session: opened side by side, each fenced before it reads, and closed together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, ItemsView, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from shoal.errors import BrokerUnavailableError, InputError
from shoal.kafka.cipher import MetadataCipher
from shoal.kafka.partition_task import PartitionTask
from shoal.kafka.preflight import TopicLayout
from shoal.kafka.producer import TransactionalProducer
from shoal.kafka.startup import StartOptions, StartPosition, check_unpublished, initialize_partition
from shoal.kafka.task_errors import to_shoal_error
from shoal.observability import Health, Metrics, logger
from shoal.pipeline import DecidedCluster
from shoal.policy import KafkaSection, Policy
from shoal.records import JsonDecoder

__all__ = ["ClusterListener", "TaskManager", "WorkerContext"]

OPENED_AT_ONCE = 8

log = logger("kafka")

Opened = Callable[[TopicPartition, PartitionTask], None]


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What is to be done, where, and who watches: the same for every session of a process."""

    policy: Policy
    settings: KafkaSection
    metrics: Metrics
    health: Health
    start: StartOptions
    seal: MetadataCipher


@dataclass(frozen=True, slots=True)
class ClusterListener:
    """How somebody in this process sees the clusters of a partition; nobody does unless told so.

    Attributes
    ----------
    publishes : bool
        Whether clusters are sent to the output. If not, progress, references and evidence are committed alone.
    before : callable or None
        Waits until a decided cluster was dealt with; nothing is committed of it before.
    after : callable or None
        Is told the clusters of a partition that were committed; it must not wait.
    is_full : callable
        Whether whoever sees them is so far behind that reading should wait.
    """

    publishes: bool = True
    before: Callable[[int, DecidedCluster], Awaitable[None]] | None = None
    after: Callable[[int, Sequence[DecidedCluster]], None] | None = None
    is_full: Callable[[], bool] = lambda: False


class TaskManager:
    """The lanes that are open.

    Parameters
    ----------
    plan : Plan
        Of the process.
    handing : Handing
        Who sees the clusters besides the output.
    """

    def __init__(self, plan: WorkerContext, handing: ClusterListener | None = None) -> None:
        self._plan, self._handing = plan, handing or ClusterListener()
        self.layout = TopicLayout({})
        self._lanes: dict[TopicPartition, PartitionTask] = {}

    def __contains__(self, place: object) -> bool:
        return place in self._lanes

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(list(self._lanes))

    def __getitem__(self, place: TopicPartition) -> PartitionTask:
        return self._lanes[place]

    def items(self) -> ItemsView[TopicPartition, PartitionTask]:
        """Places and lanes as they are now."""
        return dict(self._lanes).items()

    def is_open(self, place: TopicPartition, lane: PartitionTask) -> bool:
        """Whether this lane is still the one of its place: a rebalance may have come in between."""
        return self._lanes.get(place) is lane

    async def open(
        self, places: Iterable[TopicPartition], client: AIOKafkaAdminClient, reader: AIOKafkaConsumer, opened: Opened
    ) -> None:
        """Open a lane for each place; ``opened`` is told of each, and only then may records come in.

        Raises
        ------
        ShoalError
            One of them could not be opened; an `InputError` holds the reasons of all that were refused.
        """
        decoder = JsonDecoder(self._plan.policy, max_bytes=self._plan.settings.max_record_bytes)
        gate = asyncio.Semaphore(OPENED_AT_ONCE)

        async def open_one(place: TopicPartition) -> None:
            async with gate:
                lane = await self._open(place, client, reader, decoder)
                opened(place, lane)
                self._lanes[place] = lane

        results = await asyncio.gather(*map(open_one, places), return_exceptions=True)
        errors = [to_shoal_error(result) for result in results if isinstance(result, BaseException)]
        refusals = [str(error) for error in errors if isinstance(error, InputError)]
        if refusals:
            # All of them, so that one look at them is enough.
            raise InputError("\n".join(refusals))
        if errors:
            raise errors[0]

    async def _open(
        self, place: TopicPartition, client: AIOKafkaAdminClient, reader: AIOKafkaConsumer, decoder: JsonDecoder
    ) -> PartitionTask:
        """Open a lane: fence, read the progress; then it says from where records are to come."""
        plan, handing, number = self._plan, self._handing, place.partition
        settings, policy = plan.settings, plan.policy
        if number >= self.layout.partitions[str(settings.input)]:
            raise BrokerUnavailableError("the input has got more partitions: checking the other topics again")
        async with contextlib.AsyncExitStack() as opened:
            publisher = TransactionalProducer(policy, settings, number, self.layout, publishes=handing.publishes)
            opened.push_async_callback(publisher.close)
            await publisher.open()
            found = await initialize_partition(
                client, reader, publisher, settings, policy.fingerprint, number, plan.start, plan.seal
            )
            self._tell(place, found)
            if found.is_first:
                # Until then another group may have begun, too.
                publisher.check_before_first(partial(check_unpublished, publisher, settings, number))
            lane = PartitionTask(
                place.topic,
                number,
                policy,
                decoder,
                publisher,
                found.commit,
                plan.metrics,
                settings.commit_interval_ms / 1000,
                seal=plan.seal,
                end=found.high,
                hand=None if handing.before is None else partial(handing.before, number),
                after=None if handing.after is None else partial(handing.after, number),
            )
            opened.pop_all()
        if not lane.look_back(found.low):
            log.warning("the log has lost the beginning of a window: its records are suppressed", topic=place.topic)
        return lane

    def _tell(self, place: TopicPartition, found: StartPosition) -> None:
        metrics, state = self._plan.metrics, found.commit.snapshot
        about = {"topic": place.topic, "partition": place.partition, "watermark": state.watermark}
        if not found.commit.carries(self._plan.policy.fingerprint):
            metrics.policy_changes.inc()
            log.warning("policy changed; going on from the watermark", **about)
        if found.skipped is not None:
            metrics.skipped.labels(place.topic, place.partition).inc(found.skipped)
            log.warning("skipped to the end", skipped=found.skipped, **about)
        log.info("took over", held=state.waiting, **about)

    def show(self, place: TopicPartition, lane: PartitionTask, end: int | None) -> None:
        """Put into metrics and health how a lane stands; ``end`` is where its log ends, if that is known."""
        if self.is_open(place, lane):
            self._plan.metrics.held.labels(place.topic, place.partition).set(lane.held)
            if end is not None and end >= 0:
                self._plan.metrics.lag.labels(place.topic, place.partition).set(max(0, end - lane.cursor))
            if not lane.is_restoring:
                self._plan.health.restoring.discard(place.partition)

    async def release(self, places: Iterable[TopicPartition], *, finish: bool) -> None:
        """Close lanes; with ``finish`` commit what they have decided."""
        lanes = [(place, self._lanes.pop(place)) for place in places if place in self._lanes]
        results = await asyncio.gather(*(lane.close(finish=finish) for _, lane in lanes), return_exceptions=True)
        for place, lane in lanes:
            self._plan.metrics.forget(place.topic, place.partition)
            self._plan.health.restoring.discard(place.partition)
            log.info("handed back", topic=place.topic, partition=place.partition, watermark=lane.committed)
        for result in results:
            if isinstance(result, BaseException) and finish:
                raise to_shoal_error(result) from None
