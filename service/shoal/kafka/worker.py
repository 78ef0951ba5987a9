"""The service: sessions one after the other, until it is stopped or there is no use in another one."""

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
    start: StartOptions
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _plan: WorkerContext = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Read the key of the metadata, if there is one, before anything else is begun."""
        seal = MetadataCipher.of(self.settings)
        self._plan = WorkerContext(self.policy, self.settings, self.metrics, self.health, self.start, seal)

    def stop(self) -> None:
        """Finish the open transactions, leave the group, return from `run` within ten seconds."""
        self._stopping.set()
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
            Something was about to leave that must not, or nobody foresaw it; nothing was sent.
        """
        self.metrics.policy.labels(self.policy.fingerprint).set(1)
        contact = BrokerLiveness(self.health, self.settings.patience_s)
        await run_with_retries(
            self._plan, contact, self._stopping, lambda: ConsumerLoop(self._plan, contact, self._stopping).run()
        )
