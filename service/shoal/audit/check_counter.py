"""One check while it is made: how many were looked at, how many failed, where, and the worst value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = ["Check", "CheckCounter", "Status"]

Status: TypeAlias = Literal["holds", "broken", "not examined"]

MOST_PLACES = 10


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one check; numbers of clusters, rows and records, never a value or a person.

    ``worst`` is the value nearest to breaking it, where it has one; ``unit`` is what ``places`` counts.
    """

    name: str
    claim: str
    status: Status
    examined: int
    failed: int
    worst: float | None = None
    unit: str = "row"
    places: tuple[int | str, ...] = ()
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "name": self.name,
            "claim": self.claim,
            "status": self.status,
            "examined": self.examined,
            "failed": self.failed,
            "worst": self.worst,
            "unit": self.unit,
            "places": list(self.places),
            "note": self.note,
        }


@dataclass(slots=True)
class CheckCounter:
    """Counts towards a `Check`."""

    name: str
    claim: str
    unit: str = "row"
    examined: int = 0
    failed: int = 0
    worst: float | None = None
    places: list[int | str] = field(default_factory=list)
    note: str = ""
    open: str = ""

    def expect(self, holds: bool, place: int | str) -> None:  # noqa: FBT001 - the one thing it is told
        """Count one case."""
        self.examined += 1
        if not holds:
            self.fail(place)

    def fail(self, place: int | str) -> None:
        """Count one failure and remember the first few places."""
        self.failed += 1
        if len(self.places) < MOST_PLACES and place not in self.places:
            self.places.append(place)

    def leave(self, reason: str) -> None:
        """Say why this cannot be examined; a failure found in spite of it stays one."""
        self.open = reason

    def check(self) -> Check:
        """Close the count."""
        # What had nothing to look at does not hold; it is unknown.
        unknown = self.open or ("" if self.examined else "there was nothing to examine")
        status: Status = "broken" if self.failed else "not examined" if unknown else "holds"
        note = unknown if status == "not examined" else self.note
        return Check(
            self.name, self.claim, status, self.examined, self.failed, self.worst, self.unit, tuple(self.places), note
        )
