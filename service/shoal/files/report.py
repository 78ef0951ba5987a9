"""`RunReport`: what a command did with its records, for the line with which it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shoal.files.loss_report import LossReport
from shoal.policy import Policy
from shoal.records import DropReason, is_notable

__all__ = ["RunReport", "dropped_messages", "looser_limits"]


@dataclass(frozen=True, slots=True)
class RunReport:
    """Numbers of records of one run.

    Attributes
    ----------
    records_in, released, suppressed : int
    refusals : sequence of str
        A text for each reason and field, with the number of records.
    refused : int
        Records that were refused.
    remedy : str
        What to do about most of them; empty if that is not known.
    information_loss : float or None
        Of numbers and times, in percent; None if nothing was released.
    loss : LossReport or None
        Loss of each quasi-identifier; None if it is not known.
    unknown : mapping of str to int
        Values of valid records that the taxonomy of their attribute lacks, by attribute.
    looser : sequence of str
        What makes the limits of confidential values looser, such as ``lower privacy.l``; empty without limits.
    is_compiling : bool
        Whether the run was stopped while its kernels were compiled: the compiler still works in a thread.
    value_limits : sequence of str
        Settings of the policy that limit the values of clusters.
    """

    records_in: int
    released: int
    suppressed: int
    refused: int = 0
    refusals: Sequence[str] = ()
    remedy: str = ""
    information_loss: float | None = None
    loss: LossReport | None = None
    unknown: Mapping[str, int] = field(default_factory=dict)
    looser: Sequence[str] = ()
    is_compiling: bool = False
    value_limits: Sequence[str] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was released of an input that has records."""
        return self.records_in > 0 and self.released == 0

    @property
    def is_notable(self) -> bool:
        """Whether the release is empty, or more than 1 % of the records were refused."""
        return is_notable(self.records_in, self.released, self.refused)

    @property
    def loss_percent(self) -> float | None:
        """Information loss with three significant digits: more could reveal a value by a difference."""
        return None if self.information_loss is None else float(f"{self.information_loss:.3g}")


def looser_limits(policy: Policy) -> list[str]:
    """Return what makes the limits of confidential values looser: a change of each key that the policy sets."""
    changes = {
        "lower privacy.l": policy.diversity is not None,
        "raise privacy.max_value_share": policy.max_value_share not in {None, 1},
        "raise privacy.t": policy.t is not None,
    }
    return [change for change, is_set in changes.items() if is_set]


def dropped_messages(policy: Policy, counts: Mapping[str, int]) -> dict[str, Any]:
    """Return the part of a summary that tells how many messages were dropped; empty if the policy drops none."""
    if "drop" not in {policy.deletes, policy.tombstones}:
        return {}
    return {"dropped": {reason.value: counts.get(reason, 0) for reason in DropReason}}
