"""The verdict: every check by name, what was measured, what was not seen. Counts and cluster numbers only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from shoal.audit.check_counter import Check

__all__ = ["NOT_SHOWN", "Verdict"]

NOT_SHOWN = (
    "whether each cluster left whole in one transaction",
    "keys, headers and timestamps of released messages",
    "delay, and when anything was released",
    "aborted messages, which a read_uncommitted reader can see",
    "whether each suppression was needed",
    "measures of information loss in the summary, and its clipped values, displacement, excess span, delay and speed",
    "earlier or other releases of the same records",
)
"""What files cannot show."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge found.

    Attributes
    ----------
    checks : tuple of Check
        In the order they are told.
    counts : dict
        Records, usable and unusable ones, rows, clusters.
    measures : dict
        Reported, not judged.
    warnings, undecided, not_examined : tuple of str
        Fields to think about; what would decide an open question; what the inputs cannot show.
    """

    checks: tuple[Check, ...]
    counts: dict[str, int | None]
    measures: dict[str, float | int | None]
    warnings: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    not_examined: tuple[str, ...] = NOT_SHOWN

    @property
    def outcome(self) -> Literal["holds", "broken", "undecided"]:
        """One word: a broken check decides, else an open question does."""
        if any(check.status == "broken" for check in self.checks):
            return "broken"
        return "undecided" if self.undecided else "holds"

    @property
    def verified(self) -> bool:
        """Whether everything holds."""
        return self.outcome == "holds"

    @property
    def exit_code(self) -> int:
        """0: all hold; 1: something is broken; 2: it cannot be decided."""
        return {"holds": 0, "broken": 1, "undecided": 2}[self.outcome]

    def __getitem__(self, name: str) -> Check:
        """Find the check of this name."""
        return next(check for check in self.checks if check.name == name)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "outcome": self.outcome,
            "verified": self.verified,
            "exit_code": self.exit_code,
            "counts": dict(self.counts),
            "checks": [check.as_dict() for check in self.checks],
            "measures": dict(self.measures),
            "warnings": list(self.warnings),
            "undecided": list(self.undecided),
            "not_examined": list(self.not_examined),
        }

    def text(self) -> str:
        """For people."""
        lines = [f"{self.outcome}: " + ", ".join(f"{_told(n)} {name}" for name, n in self.counts.items())]
        lines += [_check_line(check) for check in self.checks]
        lines += [f"  measured: {name} = {_told(value)}" for name, value in self.measures.items()]
        lines += [f"  warning: {warning}" for warning in self.warnings]
        lines += [f"  undecided: {question}" for question in self.undecided]
        lines += [f"  not examined: {unseen}" for unseen in self.not_examined]
        return "\n".join(lines)


def _check_line(check: Check) -> str:
    line = f"  {check.status.upper() if check.failed else check.status}: {check.claim}"
    if check.status != "not examined":
        failed = f", {check.failed} failed" if check.failed else ""
        worst = f", worst {_told(check.worst)}" if check.worst is not None else ""
        line += f" ({check.examined} examined{failed}{worst})"
    if check.places:
        more = ", ..." if check.failed > len(check.places) else ""
        line += f"; {check.unit} {', '.join(map(str, check.places))}{more}"
    return line + (f"; {check.note}" if check.note else "")


def _told(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4f}".rstrip("0").rstrip(".")
