"""Checks the delay of a stream, its unpublished records, and with ``release: ordered`` its rows.

All of them count arrivals. Where files do not show for certain whether a record arrived, the checks are made twice:
without these records, and with every record that no file shows to be above a limit. A check that fails only with them
is not examined. If it fails without the claimed ones, too, or if these are more than half of all records, the verdict
is undecided. So no statement of the quarantine makes a check less strict, whether it is a claim or disputed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.audit.arrivals import AdmissionLimits, Counted, StreamArrivals, arrivals_of
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

DISPUTED = (
    "the files do not show whether records that are referenced as rejected, or as suppressed after a restart, count as "
    "arrivals"
)
NOT_REFERENCED = (
    "the files do not show whether records that were not released count as arrivals: give the quarantine file "
    "(--quarantine)"
)


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
    """Run all checks that count arrivals. Cost: that of `check_unpublished` and `check_delay`, up to three times.

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
    ahead = () if references is None else references.ahead
    if 2 * len(ahead) > originals.usable:
        ahead = ()  # the clock of most records is more likely right than that of the others

    def arrived(counted: Counted) -> StreamArrivals:
        return arrivals_of(policy, originals, limits, clusters.is_member(), reasons, counted=counted, ahead=ahead)

    def found(arrivals: StreamArrivals, *, is_partial: bool) -> StreamChecks:
        return _check_arrivals(policy, originals, limits, release, clusters, arrivals, stated, is_partial=is_partial)

    certain, largest = arrived("certain"), arrived("all")
    result = found(certain, is_partial=is_partial)
    if certain.has_as_many(largest):
        return result
    # Only the rows of an ordered release are compared with the records that are due.
    is_partial = is_partial or not policy.require_stream().is_ordered
    doubtful = _failed_besides(result, found(largest, is_partial=is_partial))
    if doubtful:
        disputed = _failed_besides(result, found(arrived("unless claimed"), is_partial=is_partial))
        reason = NOT_REFERENCED if references is None else DISPUTED
        for check in doubtful:
            check.skip(reason)
            result.undecided += [f"whether {check.claim}: {reason}"] if check in disputed else []
    return result


def _failed_besides(result: StreamChecks, other: StreamChecks) -> list[CheckCounter]:
    """Return the checks of a result that fail in the other result alone."""
    pairs = zip(result.checks, other.checks, strict=True)
    return [check for check, other_check in pairs if other_check.failed and not check.failed]


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
