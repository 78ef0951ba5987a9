"""Whether the worker is ready to process records."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Health"]


@dataclass(slots=True)
class Health:
    """The facts behind the readiness probe.

    Attributes
    ----------
    joined : bool
        Whether the worker is a member of the consumer group.
    broker_reached : bool
        Whether the broker answered the last request.
    restoring : set of int
        Assigned partitions that are not restored yet.
    stopping : bool
        Whether the worker is shutting down.
    """

    joined: bool = False
    broker_reached: bool = False
    restoring: set[int] = field(default_factory=set)
    stopping: bool = False

    @property
    def ready(self) -> bool:
        """Whether the worker can read and release records now."""
        return self.joined and self.broker_reached and not self.restoring and not self.stopping

    def reasons(self) -> list[str]:
        """Return the reasons why the worker is not ready."""
        facts = {
            "stopping": self.stopping,
            "broker not reached": not self.broker_reached,
            "not a member of the group yet": not self.joined,
            "partitions are being restored": bool(self.restoring),
        }
        return [reason for reason, holds in facts.items() if holds]
