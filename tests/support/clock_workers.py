"""Workers with a clock that a test sets."""

from __future__ import annotations

from dataclasses import dataclass

from support.faketime import SetClock
from support.faulty_workers import Worker


@dataclass
class ClockWorker(Worker):
    """A worker with a clock that the test sets."""

    clock: SetClock | None = None

    def environment(self, die_at: str, instance: str | None = None, patience_s: str = "300") -> dict[str, str]:
        assert self.clock is not None
        return super().environment(die_at, instance, patience_s) | self.clock.variables

    @property
    def said(self) -> str:
        return self.log.read_text()
