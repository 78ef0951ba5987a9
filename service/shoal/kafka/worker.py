"""The service `shoal run`: consumer loops one after the other, until a stop or an error that is not retried."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from shoal.kafka.cipher import MetadataCipher
from shoal.kafka.consumer_loop import ConsumerLoop
from shoal.kafka.retries import BrokerLiveness, run_with_retries
from shoal.kafka.startup import StartOptions
from shoal.kafka.task_manager import WorkerContext
from shoal.observability import Health, Metrics
from shoal.policy import KafkaSection, Policy

__all__ = ["Worker"]


@dataclass
class Worker:
    """Turns a topic of personal records into a k-anonymous topic, and completes each input offset once.

    Parameters
    ----------
    policy : Policy
        With a stream section.
    settings : KafkaSection
        Broker, topics and group.
    metrics : Metrics
        The metrics of the process.
    health : Health
        Holds whether the worker is ready.
    start : StartOptions
        Where to begin.
    compiling : asyncio.Task, optional
        Compiles the kernels. The worker meanwhile checks the topics, and waits for this task before it joins the group
        or, with ``start.drain``, takes partitions: a member that compiled would miss heartbeats.
    """

    policy: Policy
    settings: KafkaSection
    metrics: Metrics
    health: Health
    start: StartOptions
    compiling: asyncio.Task[None] | None = None
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _context: WorkerContext = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Read the metadata keys, if there are any. An invalid key raises here."""
        cipher = MetadataCipher.of(self.settings)
        self._context = WorkerContext(self.policy, self.settings, self.metrics, self.health, self.start, cipher)

    def stop(self) -> None:
        """Make `run` commit what is decided, leave the group and return, within ten seconds."""
        self._stopping.set()
        self.health.stopping = True

    async def run(self) -> None:
        """Work until stopped or, with ``start.drain``, until every record is released, suppressed or quarantined.

        Raises
        ------
        BrokerError
            The broker did not answer for longer than ``kafka.patience_s``, or refuses a request permanently.
        InputError, PolicyError
            The checks before the start failed.
        GuaranteeError
            An invariant does not hold, or an error was unexpected; nothing of the block concerned was sent.
        ShoalError
            The kernels could not be compiled.
        """
        self._context.report_settings()
        liveness = BrokerLiveness(self.health, self.settings.patience_s, str(self.settings.bootstrap_servers))
        try:
            await run_with_retries(
                self._context,
                liveness,
                self._stopping,
                lambda: ConsumerLoop(self._context, liveness, self._stopping, self.compiling).run(),
            )
        finally:
            self._context.counts.log_unconfirmed()
