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
    leaders_away : bool
        Whether none of the leaders of its open partitions answers, although a broker does.
    restoring : set of (str, int)
        Assigned partitions, as topic and partition, that are not restored yet.
    stopping : bool
        Whether the worker is shutting down.
    unassigned : bool
        Whether the group assigned no partition to this worker, as where there are more workers than partitions.
    compiling : str
        What is said while kernels are compiled; otherwise an empty text.
    """

    joined: bool = False
    broker_reached: bool = False
    leaders_away: bool = False
    restoring: set[tuple[str, int]] = field(default_factory=set)
    stopping: bool = False
    unassigned: bool = False
    compiling: str = ""

    def set_compiling(self, text: str) -> None:
        """Set what is said while kernels are compiled."""
        self.compiling = text

    @property
    def ready(self) -> bool:
        """Whether the worker can read and release records now."""
        return not self.reasons()

    @property
    def status(self) -> str:
        """What the probe and the status page say: ready or not, and why."""
        if not self.ready:
            return "not ready: " + ", ".join(self.reasons())
        return "ready: in the group, no partition assigned" if self.unassigned else "ready"

    def reasons(self) -> list[str]:
        """Return the reasons why the worker is not ready."""
        facts = {
            "stopping": self.stopping,
            self.compiling: bool(self.compiling),
            "broker not reached": not self.broker_reached,
            "no leader of its partitions answers": self.leaders_away,
            "not a member of the group yet": not self.joined,
            "partitions are being restored": bool(self.restoring),
        }
        return [reason for reason, holds in facts.items() if holds]
