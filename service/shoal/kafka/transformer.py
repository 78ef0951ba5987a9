"""The service: sessions one after the other, until it is stopped or there is no use in another one."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field

from shoal.errors import BrokerError, BrokerUnavailableError, FencedError, ShoalError
from shoal.kafka.seal import Seal
from shoal.kafka.session import Contact, Session
from shoal.kafka.start import Start
from shoal.policy import KafkaSection, Policy
from shoal.watch import Health, Metrics, code_of, logger

__all__ = ["Transformer"]

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
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _seal: Seal = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Read the key of the metadata, if there is one, before anything else is begun."""
        self._seal = Seal.of(self.settings)

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
        self.metrics.position_weight.set(self.policy.position)
        contact = Contact(self.health, self.settings.patience_s)
        failures = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            session = Session(
                self.policy, self.settings, self.metrics, self.health, self.start, self._seal, contact, self._stopping
            )
            try:
                await session.run()
                break
            except ShoalError as error:
                self._judge(error, contact)
                failures = 0 if time.monotonic() - began > 2 * BACKOFF_S[-1] else failures
                pause = BACKOFF_S[min(failures, len(BACKOFF_S) - 1)]
                failures += 1
                log.warning("session ended", code=code_of(error), reason=str(error), retry_s=pause)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), pause)

    def _judge(self, error: ShoalError, contact: Contact) -> None:
        """Return if another session may do better."""
        final = error
        if isinstance(error, FencedError) and self.start.drain:
            final = BrokerError("--drain: a worker of this group is running; stop all of them first")
        elif isinstance(error, BrokerUnavailableError):
            contact.lost()
            if contact.is_hopeless:
                final = BrokerError(
                    f"the broker at {self.settings.bootstrap_servers} could not be reached for {contact.away_s:.0f} s "
                    "(kafka.patience_s); giving up"
                )
        if not final.retriable and not self._stopping.is_set():
            log.error("giving up", code=code_of(final), reason=str(final))
        if not final.retriable:
            raise final from None
