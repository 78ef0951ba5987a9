"""Runs the checks of one release in their order, and returns the verdict.

ADR 20 says from which input each check takes its limits.

What the given files cannot show about a release, as texts of the verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shoal.audit.clusters import AdmissionLimits, RecomputedClusters, check_clusters, released_above_limit
from shoal.audit.confidential import measure_values
from shoal.audit.evidence import AuditScope, EvidenceCluster, StatedFiles, Summary, foreign_fingerprints
from shoal.audit.fields import dropped_kinds
from shoal.audit.losses import measure_losses
from shoal.audit.measures import (
    check_unchanged_fields,
    check_values_of_rows,
    count_near_duplicates,
    known_classes,
    measure_joint_uniqueness,
    measure_release,
    measure_unchanged_fields,
)
from shoal.audit.options import check_options, unobservable_options
from shoal.audit.originals import Originals
from shoal.audit.published_values import PublishedValues
from shoal.audit.reconciliation import AuditedReferences, check_references
from shoal.audit.releases import ReleasedRows
from shoal.audit.rows import (
    LOOK_ALIKE,
    AllowedOrder,
    RowOrder,
    check_order,
    check_topic_order,
    compare_rows,
    is_in_input_order,
    repeated_numbers,
)
from shoal.audit.stream_checks import check_stream
from shoal.audit.summary import (
    AuditedCounts,
    check_summary,
    count_release,
    read_lines,
    read_records,
    reading_warnings,
    stated_suppressed,
)
from shoal.audit.unpublished import Accounts, StatedAccounts, check_unpublished_rows, unknown_completeness
from shoal.audit.verdict import CheckCounter, Verdict, counted
from shoal.audit.without_evidence import REMEDY, check_without_evidence, infer_clusters
from shoal.policy import Policy

__all__ = ["Auditor", "unexamined_questions"]

_NAMED = {"mse", "mae", "clipped", "displacement", "excess_span", "delay", "elapsed_s", "records_per_s", "unknown"}
"""Fields of a summary that are never compared, and are named in any case."""
_MEASURES = (
    *("loss", "mean_loss", "clocks", "sse", "sst", "information_loss", "d_x", "d_y", "emd", "emd_of", "l"),
    *("value_share", "dropped", "dld", "l_avg", "bound", "gap", "mdav", "algorithm", "refine", "keep_order"),
    *("blocks", "jointly_k_anonymous"),
)
"""Other fields, in the order in which they are named. Those that could not be compared are not examined."""
_LEARNED = ("position_weight", "widths")
"""What a stream has learned."""
NOT_COMPLETE = "whether every record was released or had to be suppressed, because only a part was judged"


def unexamined_questions(
    policy: Policy,
    scope: AuditScope,
    release: ReleasedRows,
    *,
    is_export: bool,
    stated: StatedFiles,
    compared: Collection[str],
    is_end_known: bool,
) -> tuple[str, ...]:
    """Return what these files cannot show. Questions that do not concern such a release are left out.

    Parameters
    ----------
    policy : Policy
    scope : AuditScope
    release : ReleasedRows
    is_export : bool
        Whether original and release are exports of topics.
    stated : StatedFiles
    compared : collection of str
        Fields of the summary that were compared (`AuditedCounts.compared`).
    is_end_known : bool
        Whether it was checked how many subjects were held at the end of the input.
    """
    found, summary = [NOT_COMPLETE] if scope.is_partial else [], stated.summary_fields
    if is_export and not scope.is_ordered:
        found.append("whether each cluster was published in one transaction")
    if is_export:
        missing = [name for name, field in (("keys", "key"), ("headers", "headers")) if field not in release.envelope]
        found.append(f"{_listed([*missing, 'timestamps'])} of released messages")
    if not scope.is_table:
        found.append("when anything was released, and delays in seconds")
    if is_export:
        found.append("aborted messages, which a read_uncommitted reader can see")
    if summary is not None and "unknown" in summary:
        found.append("how many values are not in their taxonomy, as the summary states")
    if summary is not None:
        found.append("mse and mae in the summary, and its clipped values, displacement, excess span, delay and speed")
        found += _other_fields(summary, compared)
    if any(a.reference or a.taxonomy for a in policy.protected) and not _names_policy(stated):
        found.append(
            "whether references and taxonomies of confidential attributes are those of the run, because the evidence "
            "and the summary do not name its policy"
        )
    found.append("earlier or other releases of the same records")
    return (*found, *unobservable_options(policy, is_end_known=is_end_known))


def _other_fields(summary: Summary, compared: Collection[str]) -> list[str]:
    """Return what else a summary states that was not compared. Names that Shoal does not write are not shown."""
    others = [name for name, value in summary.items() if name not in compared and _is_stated(value)]
    known = [[name for name in names if name in others] for names in (_MEASURES, _LEARNED)]
    found = [f"{_listed(names)} in the summary" for names in known if names]
    if not set(others) <= {*_MEASURES, *_LEARNED, *_NAMED}:
        found.append("fields of the summary that Shoal does not write")
    return found


def _is_stated(value: object) -> bool:
    """Whether a field has a value; of a group of fields, whether one of them has."""
    return any(map(_is_stated, value.values())) if isinstance(value, Mapping) else value is not None


def _names_policy(stated: StatedFiles) -> bool:
    """Whether the summary, or every line of the evidence, states a fingerprint. A wrong one is a fault."""
    clusters = stated.evidence_clusters
    return "policy" in (stated.summary_fields or {}) or bool(clusters and all(one.fingerprint for one in clusters))


def _listed(names: list[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


SMALLER_PARTS = f"{LOOK_ALIKE}: give exports of smaller parts of the topic (--partial)"


@dataclass(slots=True)
class _Findings:
    """Results so far."""

    checks: list[CheckCounter]
    warnings: list[str]
    claimed: Counter[str] = field(default_factory=Counter)
    undecided: list[str] = field(default_factory=list)


class Auditor:
    """Checks one release.

    Parameters
    ----------
    policy : Policy
    originals : Originals
    release : ReleasedRows
    published : sequence of PublishedValues
        One per quasi-identifier.
    scope : AuditScope
    """

    def __init__(
        self,
        policy: Policy,
        originals: Originals,
        release: ReleasedRows,
        published: Sequence[PublishedValues],
        scope: AuditScope,
    ) -> None:
        self._policy, self._originals, self._release, self._published = policy, originals, release, published
        self._scope, self._limits = scope, AdmissionLimits.of(policy, originals)
        self._clusters: RecomputedClusters | None = None
        self._accounts: Accounts | None = None
        self._references: AuditedReferences | None = None
        self._compared: frozenset[str] = frozenset()
        self._unchanged = measure_unchanged_fields(policy, originals)
        self._joint = measure_joint_uniqueness(policy, release)
        warnings = [text for unchanged in self._unchanged for text in unchanged.warnings()]
        warnings += [text for fields in self._joint for text in fields.warnings()]
        self._found = _Findings(list(release.checks), warnings, undecided=list(release.undecided))

    def run(self, stated: StatedFiles) -> Verdict:
        """Run all checks and return the verdict."""
        if not self._has_other_policy(stated):
            self._check(stated)
        return self._verdict(stated)

    def _has_other_policy(self, stated: StatedFiles) -> bool:
        """Check the policy that evidence and summary name; return whether another policy is needed to judge them."""
        clusters, summary = stated.evidence_clusters or [], stated.summary_fields
        labels, others = foreign_fingerprints(self._policy.fingerprint, clusters, summary, stated.summary_name)
        if others and self._release.is_export:
            # A service may change its policy, so records of a topic may have been released under several.
            self._found.checks.clear()
            self._found.undecided += [
                f"the evidence or the summary names the policy with the fingerprint {other}: give that policy, with "
                "the part of the topic that was released under it (--partial)"
                for other in others
            ]
            return True
        if others:
            check = CheckCounter("policy", "evidence and summary were written under the given policy", "cluster")
            check.examined = len(clusters) + (summary is not None)
            check.note = (
                f"they name {', '.join(others)}, and the given policy has {self._policy.fingerprint}: "
                "give the policy under which the release was made"
            )
            for label in labels:
                check.fail(label)
            self._found.checks.append(check)
        return False

    def _check(self, stated: StatedFiles) -> None:
        is_inferred = stated.evidence_clusters is None and len(self._release) > 0
        if self._scope.is_ordered:
            self._find_ordered_clusters(stated.evidence_clusters)
        else:
            self._check_unordered(stated.evidence_clusters, is_inferred=is_inferred)
        if self._clusters is None:
            self._found.checks += check_values_of_rows(self._policy, self._originals, self._release, self._scope)
        self._check_references(stated)
        self._check_stream(stated, is_inferred=is_inferred)
        if self._scope.is_strict:
            self._found.checks.append(check_unchanged_fields(self._unchanged))
        if stated.summary_fields is not None:
            summary, name = stated.summary_fields, stated.summary_name
            self._check_summary(summary, name, is_inferred=is_inferred)
            self._found.warnings += reading_warnings(summary, self._originals, dropped_kinds(self._policy), name)
        # A file without records has no rows: `shoal pipe` accepts it.
        if len(self._originals) and not len(self._release):
            self._confirm_empty(stated)

    def _confirm_empty(self, stated: StatedFiles) -> None:
        """Ask for the file that says that nothing was released: a summary, or the quarantine of a topic."""
        summary_fields: Mapping[str, object] = stated.summary_fields or {}
        if self._originals.is_export and stated.references is None:
            self._found.undecided.append("nothing was released: give the quarantine file (--quarantine) to confirm it")
        elif not self._originals.is_export and summary_fields.get("released") != 0:
            self._found.undecided.append("nothing was released: give the summary (--summary) to confirm it")

    # ------------------------------------------------------------ clusters and rows

    def _check_unordered(self, evidence_clusters: list[EvidenceCluster] | None, *, is_inferred: bool) -> None:
        """Check clusters, rows and row order. Without evidence, infer the clusters."""
        if not is_inferred:
            order = self._check_rows(evidence_clusters or [])
            if self._release.is_export:
                self._check_topic_order(order)
            return
        inferred = infer_clusters(self._policy, self._originals, self._release)
        checks = self._found.checks
        checks.append(inferred.traced)
        checks += check_without_evidence(self._policy, self._originals, self._release, self._published)
        before = len(checks)
        if inferred.clusters is not None:
            order = self._check_rows(inferred.clusters)
            if self._release.is_export:
                self._check_inferred_order(order)
        if inferred.doubt and (inferred.clusters is None or any(check.failed for check in checks[before:])):
            # A failed check may be the fault of the inference, so it is not reported. If all checks pass, the inferred
            # clusters explain the release, and the checks stand.
            del checks[before:]
            self._clusters = None
            self._found.undecided.append(inferred.doubt)

    def _find_ordered_clusters(self, evidence_clusters: list[EvidenceCluster] | None) -> None:
        """Check the clusters of a release in input order. Without evidence its clusters are unknown."""
        if evidence_clusters is None and len(self._originals):
            reason = f"the rows are in the order of the input, which does not show the clusters: {REMEDY}"
            self._found.undecided.append(reason)
        else:
            self._check_clusters(evidence_clusters or [])

    def _check_topic_order(self, order: RowOrder) -> None:
        check = check_topic_order(self._release, order.located)
        self._found.checks.append(check)
        if check.skip_reason == LOOK_ALIKE and not order.gave_up:
            self._found.undecided.append(SMALLER_PARTS)

    def _check_inferred_order(self, order: RowOrder) -> None:
        """Check the order of a topic by the numbers of inferred clusters. They can be wrong, so they accuse nothing."""
        check = check_topic_order(self._release, order.located)
        if check.failed:
            self._found.undecided.append(f"the order of the clusters cannot be judged by inferred clusters: {REMEDY}")
        else:
            self._found.checks.append(check)

    def _check_rows(self, evidence_clusters: Iterable[EvidenceCluster]) -> RowOrder:
        clusters = self._check_clusters(evidence_clusters).clusters
        self._found.checks += compare_rows(self._release, clusters)
        is_table = self._scope.is_table
        allowed = AllowedOrder(sorted_as_whole=is_table, order_of_input=is_table and self._policy.keep_order)
        order = check_order(self._release, clusters, self._originals, allowed=allowed)
        self._found.checks += order.checks
        if order.gave_up:
            self._found.undecided.append(SMALLER_PARTS)
        return order

    def _check_clusters(self, evidence_clusters: Iterable[EvidenceCluster]) -> RecomputedClusters:
        found = check_clusters(self._policy, self._originals, evidence_clusters, self._published, self._limits)
        self._clusters = found
        self._found.checks += found.checks
        self._found.checks += check_options(self._policy, self._originals, found.clusters)
        if self._release.is_export:
            self._found.undecided += repeated_numbers(found.clusters) + released_above_limit(self._limits, found)
        return found

    # ------------------------------------------------------------ delay and unpublished records

    def _check_references(self, stated: StatedFiles) -> None:
        if stated.references is None:
            return
        is_released = None if self._clusters is None else self._clusters.is_released
        found = check_references(self._policy, self._originals, self._limits, is_released, stated.references)
        self._references = found
        self._found.checks += found.checks
        self._add_counts(found.claimed, found.undecided)

    def _check_stream(self, stated: StatedFiles, *, is_inferred: bool) -> None:
        """Check the delay, and that no record is missing. If the clusters are not known, neither can be checked."""
        checks = self._found.checks
        if self._clusters is None:
            checks += [] if self._scope.is_partial else [unknown_completeness()]
            return
        before = len(checks)
        reasons = None if self._references is None else self._references.reasons
        if self._scope.is_table:
            if not self._scope.is_partial:
                self._accounts = check_unpublished_rows(
                    self._policy, self._originals, self._limits, self._clusters, reasons
                )
        else:
            found = check_stream(
                self._policy,
                self._originals,
                self._limits,
                self._release,
                self._clusters,
                self._references,
                self._stated_accounts(stated),
                is_partial=self._scope.is_partial,
            )
            self._accounts = found.accounts
            checks += found.checks
            self._found.undecided += found.undecided
        accounts = self._accounts
        if accounts is not None:
            checks += [accounts.complete, *([accounts.suppressed] if accounts.suppressed.examined else [])]
            checks += [] if accounts.population is None else [accounts.population]
            self._add_counts(accounts.claimed, accounts.undecided)
            self._claim_unended(reasons)
            self._warn_of_held(accounts.held)
        self._withdraw_uncertain(before, is_inferred=is_inferred)

    def _stated_accounts(self, stated: StatedFiles) -> StatedAccounts:
        summary = stated.summary_fields
        of_file = None if self._originals.is_export else summary
        # A finished run of `pipe` holds nothing. It cannot follow a file and keep the order of the input.
        is_finished = self._scope.is_ordered and not self._originals.is_export
        return StatedAccounts(
            reasons=None if self._references is None else self._references.reasons,
            suppressed=None if of_file is None else stated_suppressed(of_file, stated.summary_name),
            is_drained=is_finished or (summary is not None and summary.get("held") == 0),
            read_records=None if of_file is None else read_lines(of_file, self._originals),
        )

    def _withdraw_uncertain(self, before: int, *, is_inferred: bool) -> None:
        """Withdraw failed checks that another reading of the files would not fail, and say what decides."""
        checks = self._found.checks
        failed = [check for check in checks[before:] if check.failed]
        together = [check for check in checks[:before] if check.name == "together" and check.failed]
        if is_inferred and failed:
            self._found.undecided.append(
                f"the delay and missing records cannot be judged by inferred clusters: {REMEDY}"
            )
        elif self._scope.may_be_table and (failed or together) and self._looks_like_table():
            failed += together
            self._found.undecided.append(
                "the rows are in the order in which shoal batch writes them, and the policy has a stream section: give "
                "--table if shoal batch made the release"
            )
        else:
            return
        self._found.checks = [check for check in checks if check not in failed]
        self._accounts = None

    def _looks_like_table(self) -> bool:
        """Whether a file is sorted as a whole, or in the order of its input where the policy allows this to a table."""
        if self._release.is_export or self._clusters is None or not len(self._release):
            return False
        parts = self._release.by_partition.items()
        clusters = self._clusters.clusters
        return all(all(rows.is_ascending) for _, rows in parts) or (
            self._policy.keep_order and all(is_in_input_order(rows, clusters, self._originals) for _, rows in parts)
        )

    def _claim_unended(self, reasons: Mapping[int, str] | None) -> None:
        """Count a last record without end that is neither released nor referenced: only the run knows why."""
        last = len(self._originals) - 1
        if self._scope.is_table or self._originals.is_ended or self._clusters is None:
            return
        if not self._clusters.is_released[last] and last not in (reasons or {}):
            self._found.claimed["at the end of the original, without line end: a run with --follow skips it"] = 1

    def _warn_of_held(self, held: int) -> None:
        if 2 * held > self._originals.usable:
            self._found.warnings.append(f"{counted(held, 'record')} may still be held, more than half: verify again")

    def _add_counts(self, claimed: Counter[str], undecided: Counter[str]) -> None:
        self._found.claimed += claimed
        self._found.undecided += [f"{counted(count, 'record')} {text}" for text, count in undecided.items()]

    # ------------------------------------------------------------ counts and verdict

    def _check_summary(self, summary: Summary, name: str, *, is_inferred: bool) -> None:
        """Check the summary. Two clusters with equal rows side by side may have been inferred as one."""
        counts = self._counts(summary)
        check = check_summary(summary, counts, name)
        self._compared = counts.compared
        unknown = counts.without_clusters()
        if is_inferred and check.failed and not (other := check_summary(summary, unknown, name)).failed:
            check, self._compared = other, unknown.compared
            self._found.undecided.append(f"the summary counts other clusters than those inferred: {REMEDY}")
        self._found.checks.append(check)

    def _counts(self, summary: Summary) -> AuditedCounts:
        reasons = {} if self._references is None else self._references.reasons
        counts = count_release(
            self._originals,
            self._clusters,
            self._limits,
            rows=len(self._release),
            referenced_end=max(reasons, default=-1) + 1,
            records_in=read_records(summary),
        )
        return replace(
            counts,
            suppressed=self._suppressed(),
            held=self._held(),
            are_exact=self._references is not None,
            certain=0 if self._accounts is None else self._accounts.certain,
            losses=measure_losses(summary, self._originals, self._clusters, self._published, self._scope.window),
            values=measure_values(self._policy, self._originals, known_classes(self._clusters)),
        )

    def _suppressed(self) -> int | None:
        """Return how many records were or may have been suppressed; None if it is not known."""
        if self._accounts is None:
            return None
        reasons = {} if self._references is None else self._references.reasons
        return sum(reason == "suppressed" for reason in reasons.values()) + self._accounts.suppressible

    def _held(self) -> int | None:
        """Return how many records may still be held, with those whose cluster is decided; None if it is not known."""
        if self._accounts is None or self._clusters is None:
            return None
        decided = sum(len(cluster.members) for cluster in self._clusters.clusters)
        unreleased = max(0, decided - len(self._release)) if self._scope.is_ordered else 0
        return self._accounts.held + unreleased

    def _verdict(self, stated: StatedFiles) -> Verdict:
        """Return the verdict on all checks so far."""
        usable, accounts = self._originals.usable, self._accounts
        known = self._release, self._clusters, self._unchanged, self._joint
        measures = measure_release(self._policy, self._originals, *known)
        near = count_near_duplicates(self._policy, self._originals, self._clusters)
        return Verdict(
            checks=tuple(check.result() for check in self._found.checks),
            counts={
                "records": self._originals.records,
                **({"dropped": len(self._originals) - self._originals.records} if dropped_kinds(self._policy) else {}),
                "usable": usable,
                "unusable": self._originals.records - usable,
                "rows": len(self._release),
                "clusters": None if self._clusters is None else self._clusters.count,
                "suppressed": self._suppressed(),
                "claimed": sum(self._found.claimed.values()),
                "held": self._held(),
            },
            measures=measures | ({} if near is None else near.measures()),
            warnings=(*self._found.warnings, *([] if near is None else near.warnings())),
            undecided=tuple(self._found.undecided),
            not_examined=unexamined_questions(
                self._policy,
                self._scope,
                self._release,
                is_export=self._originals.is_export,
                stated=stated,
                compared=self._compared,
                is_end_known=accounts is not None and accounts.population is not None,
            ),
            claimed=tuple(f"{counted(count, 'record')} {text}" for text, count in self._found.claimed.items()),
            partial=self._scope.is_partial,
            early_decisions=None if accounts is None else accounts.early_decisions,
        )
