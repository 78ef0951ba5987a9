"""Whether the process lives and whether it can do its work."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Health"]


@dataclass(slots=True)
class Health:
    """Facts from which the probes are answered.

    ``ready`` means: a group member, every assigned partition restored, the output writable, the broker reached
    a moment ago. A probe that says yes while records wait for a lost broker would be a lie.
    """

    joined: bool = False
    broker_reached: bool = False
    restoring: set[int] = field(default_factory=set)
    stopping: bool = False

    @property
    def ready(self) -> bool:
        """Whether the worker can take and release records now."""
        return self.joined and self.broker_reached and not self.restoring and not self.stopping

    def reasons(self) -> list[str]:
        """Why it is not ready, in words for an operator."""
        facts = {
            "stopping": self.stopping,
            "broker not reached": not self.broker_reached,
            "not a member of the group yet": not self.joined,
            "partitions are being restored": bool(self.restoring),
        }
        return [reason for reason, holds in facts.items() if holds]
