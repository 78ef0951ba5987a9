"""Checks the delay of a stream, its unpublished records, and with ``release: ordered`` its rows.

All of them count arrivals. The quarantine of a topic may state that a usable record did not arrive, because the service
rejected it. If the files do not show that this is possible, the record is disputed, and the checks are made twice:
without the disputed records and with them. A check that fails with them alone is not decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shoal.audit.arrivals import AdmissionLimits, StreamArrivals, arrivals_of
from shoal.audit.clusters import RecomputedClusters
from shoal.audit.delay import check_decision_order, check_delay
from shoal.audit.ordered_release import check_ordered_release
from shoal.audit.originals import Originals
from shoal.audit.reconciliation import AuditedReferences
from shoal.audit.releases import ReleasedRows
from shoal.audit.unpublished import Accounts, StatedAccounts, check_unpublished
from shoal.audit.verdict import CheckCounter
from shoal.policy import Policy

__all__ = ["StreamChecks", "check_stream"]

DISPUTED = "the files do not show whether records that are referenced as rejected count as arrivals"


@dataclass(slots=True)
class StreamChecks:
    """Results of `check_stream`.

    Attributes
    ----------
    accounts : Accounts or None
        The unpublished records; None if a part is judged.
    checks : list of CheckCounter
    undecided : list of str
        Why a check is not decided.
    """

    accounts: Accounts | None = None
    checks: list[CheckCounter] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)


def check_stream(
    policy: Policy,
    originals: Originals,
    limits: AdmissionLimits,
    release: ReleasedRows,
    clusters: RecomputedClusters,
    references: AuditedReferences | None,
    stated: StatedAccounts,
    *,
    is_partial: bool,
) -> StreamChecks:
    """Run all checks that count arrivals. Cost: that of `check_unpublished` and `check_delay`, at most twice.

    Parameters
    ----------
    policy : Policy
        Must have a stream section.
    originals : Originals
    limits : AdmissionLimits
    release : ReleasedRows
    clusters : RecomputedClusters
    references : AuditedReferences or None
        None without a quarantine file.
    stated : StatedAccounts
    is_partial : bool
        Whether unpublished records are not examined.
    """
    reasons = None if references is None else references.reasons
    released = clusters.is_member()

    def found(reasons: Mapping[int, str] | None) -> StreamChecks:
        arrivals = arrivals_of(policy, originals, limits, released, reasons)
        return _check_arrivals(policy, originals, limits, release, clusters, arrivals, stated, is_partial=is_partial)

    result = found(reasons)
    if references is not None and references.disputed:
        # A suppressed record has arrived.
        admitted = found(references.reasons | dict.fromkeys(references.disputed, "suppressed"))
        for one, other in zip(result.checks, admitted.checks, strict=True):
            if other.failed and not one.failed:
                one.skip(DISPUTED)
    return result


def _check_arrivals(
    policy: Policy,
    originals: Originals,
    limits: AdmissionLimits,
    release: ReleasedRows,
    clusters: RecomputedClusters,
    arrivals: StreamArrivals,
    stated: StatedAccounts,
    *,
    is_partial: bool,
) -> StreamChecks:
    stream, found = policy.require_stream(), StreamChecks()
    if not is_partial:
        found.accounts = check_unpublished(policy, originals, limits, clusters, arrivals, stated)
    found.checks.append(
        check_delay(stream.delta, originals, arrivals.by_partition, clusters.clusters, is_export=release.is_export)
    )
    found.checks.append(check_decision_order(originals, clusters.clusters, is_export=release.is_export))
    if stream.is_ordered:
        is_due = None if found.accounts is None else found.accounts.is_due
        found.checks += check_ordered_release(
            release, clusters.clusters, originals, reveals=stream.reveal_order, is_due=is_due
        )
    return found
