"""The public function `verify`: reads the files, recomputes the release, accounts for all records, and judges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from shoal.audit.arrivals import Counted, StreamArrivals, arrivals_of, check_decision_order, check_delay
from shoal.audit.causes import JudgedFiles, find_causes
from shoal.audit.clusters import (
    AdmissionLimits,
    RecomputedClusters,
    check_clusters,
    check_per_subject,
    released_above_limit,
)
from shoal.audit.confidential import check_values, measure_values
from shoal.audit.evidence import (
    AuditScope,
    EvidenceCluster,
    StatedFiles,
    Summary,
    foreign_fingerprints,
    read_stated,
    require_known_input,
)
from shoal.audit.fields import dropped_kinds
from shoal.audit.findings import by_weight, find_fields, find_left_out, find_other_people, worth_of
from shoal.audit.measures import (
    check_unchanged_fields,
    check_values_of_rows,
    count_near_duplicates,
    known_classes,
    measure_joint_uniqueness,
    measure_release,
    measure_unchanged_fields,
)
from shoal.audit.originals import Originals, read_originals
from shoal.audit.reading import Form, InputFile, csv_record_lines, first_line_names, is_parquet
from shoal.audit.releases import ReleasedRows, read_release
from shoal.audit.rows import (
    REMEDY,
    check_order,
    check_ordered_release,
    check_without_evidence,
    compare_rows,
    infer_clusters,
    is_in_input_order,
    repeated_numbers,
)
from shoal.audit.scales import PublishedValues, published_values
from shoal.audit.summary import (
    AuditedCounts,
    Losses,
    check_summary,
    measure_losses,
    read_records,
    reading_warnings,
    refused_bounds,
    stated_suppressed,
)
from shoal.audit.unpublished import (
    Accounts,
    AuditedReferences,
    StatedAccounts,
    check_references,
    check_unpublished,
    check_unpublished_rows,
    unknown_completeness,
)
from shoal.audit.verdict import CheckCounter, Finding, Verdict, counted
from shoal.errors import InputError
from shoal.policy import Policy

_DISPUTED = (
    "the files do not show whether records that are referenced as rejected, or as suppressed after a restart, count as "
    "arrivals"
)
_NOT_REFERENCED = (
    "the files do not show whether records that were not released count as arrivals: give the quarantine file "
    "(--quarantine)"
)


def verify(
    policy: Policy,
    original: str | Path,
    released: str | Path,
    evidence: str | Path | None = None,
    summary: str | Path | Summary | None = None,
    *,
    quarantine: str | Path | None = None,
    table: bool | None = None,
    form: Form | None = None,
    released_form: Form | None = None,
    strict: bool = False,
    partial: bool = False,
    is_export: bool | None = None,
    input_topic: str | None = None,
) -> Verdict:
    """Check a release against its original, with separate code.

    Only the package `policy` and the error classes are shared with the engine.

    Parameters
    ----------
    policy : Policy
        The policy of the run.
    original, released : path
        ``.csv`` in the policy's dialect, JSON lines (``.jsonl``, ``.ndjson``, ``.json``) or ``.parquet``. Both may be
        exports of a topic; then every check is made per partition. An export is a JSON lines file:

        - of the original: ``{"partition", "offset", "value"}``; the value is the record or its text. It may also have
          ``key`` (text or null), ``headers`` (list of ``[name, text or null]``) and ``timestamp`` (ms), and must have
          those that the policy reads.
        - of the release: ``{"partition", "value"}``; the value is the published text. It may also have ``key`` and
          ``headers``.

        If the original is an export and the release is a plain file, the original was the input of `shoal pipe`; its
        record numbers are line numbers.
    evidence : path, optional
        JSON lines of ``{"partition", "cluster", "offsets", "policy"}``, one per cluster; ``policy``, the fingerprint,
        may be missing. With several inputs also ``topic``, the input. In plain files the partition is 0 and offsets are
        the numbers of records, from 0. Evidence is checked, never trusted.
    summary : path or mapping, optional
        The summary of the run. It is checked. Nothing in it makes a check less strict.
    quarantine : path, optional
        JSON lines of ``{"topic", "partition", "offset", "reason"}``, one per record that was not released.
    table : bool, optional
        Whether the release was made by `shoal batch`: ``stream`` is ignored, and rows may be sorted by their bytes as a
        whole. None: true if the policy has no ``stream`` section.
    form, released_form : {"csv", "jsonl"}, optional
        Form of files with another suffix.
    strict : bool
        Whether an unchanged field that identifies records fails the verification, unless the policy sets
        ``publish_unchanged: true`` for it. Otherwise it is a warning. That fields identify records together is always
        a warning.
    partial : bool
        Whether the release is only a part, so that records that were not released are not examined. The verdict says
        so.
    is_export : bool, optional
        Whether both files are exports of topics; None: decide by their first lines.
    input_topic : str, optional
        The topic that ``original`` is an export of, for a service with several inputs. Clusters and references of other
        topics are not judged. None: all evidence and references must be of one input.

    Returns
    -------
    Verdict
        Its ``exit_code`` is 0 if no check is broken and nothing is undecided, 1 if a check is broken, and 2 if the
        inputs cannot decide or another policy is needed.

    Raises
    ------
    InputError
        A file is not readable or has another shape, or a release without rows does not show which command made it.
        The message names file, line and remedy, and no value.

    Notes
    -----
    Guarantee, if every check holds, none is "not examined", and evidence is given: every released row is the row of one
    cluster of the evidence. Each cluster has at least k subjects, no subject has more than ``max_share``, and
    ``per_subject``, ``l``, ``t`` and ``max_value_share`` hold where the policy sets them. In a stream no record was
    released more than delta records after its arrival. Unless ``partial``, every other record of the original is
    unusable, had to be suppressed, may still be held, or is counted in ``claimed``.

    The contents of files are judged, not their bytes beside the rows. Data that an operator hides in a Parquet file, in
    the order of clusters or in the way an export is written is not found.

    Cost: O(n log n) time, O(n) memory.
    """
    return judge(
        policy,
        original,
        released,
        evidence,
        summary,
        quarantine=quarantine,
        table=table,
        form=form,
        released_form=released_form,
        strict=strict,
        partial=partial,
        is_export=is_export,
        input_topic=input_topic,
    ).verdict


@dataclass(frozen=True, slots=True)
class JudgedRelease:
    """A verdict with what it was made of, for a report; clusters and losses are None where they are not known."""

    verdict: Verdict
    originals: Originals
    release: ReleasedRows
    published: Sequence[PublishedValues]
    clusters: RecomputedClusters | None
    losses: Losses | None
    summary: Summary | None


def judge(
    policy: Policy,
    original: str | Path,
    released: str | Path,
    evidence: str | Path | None = None,
    summary: str | Path | Summary | None = None,
    *,
    quarantine: str | Path | None = None,
    table: bool | None = None,
    form: Form | None = None,
    released_form: Form | None = None,
    strict: bool = False,
    partial: bool = False,
    is_export: bool | None = None,
    input_topic: str | None = None,
) -> JudgedRelease:
    """Do what `verify` does, and return with the verdict what was read and recomputed."""
    source = InputFile.of(original, policy.csv, form)
    target = InputFile.of(released, policy.csv_output, released_form or form)
    require_known_input(policy, input_topic)
    stated = read_stated(evidence, quarantine, summary, input_topic)
    scope = AuditScope.of(policy, table=table, partial=partial, strict=strict)
    shown = published_values(
        policy,
        target.form,
        table=scope.is_table,
        has_table_grids=scope.has_table_grids,
        is_binary=is_parquet(target.path),
    )
    release = read_release(policy, target, shown, original=source, is_export=is_export)
    originals = _read_originals(
        policy, source, target, release, shown, is_export=is_export, has_summary=stated.summary_fields is not None
    )
    if not len(originals) and (len(release) or scope.is_table):
        raise InputError(f"{source.path}: no records, so there is nothing to compare with; give the original")
    if stated.summary_fields is not None and not originals.is_export:
        originals.was_read_whole = (read_records(stated.summary_fields) or 0) >= originals.records
    audit = _Audit(policy, originals, release, shown, scope, stated)
    verdict = audit.verdict()
    files = JudgedFiles(policy, originals, release, target, shown, audit.limits, stated)
    verdict = replace(verdict, causes=find_causes(files, verdict.checks))
    if verdict.outcome == "broken" and not len(release) and originals.is_export and is_export is None:
        # `shoal pipe` may have refused each of these lines, if the policy reads other records.
        raise _unclear_numbers(target)
    verdict = _add_lines(verdict, original=source, released=target)
    return JudgedRelease(verdict, originals, release, shown, audit.clusters, audit.losses, stated.summary_fields)


def _read_originals(
    policy: Policy,
    source: InputFile,
    target: InputFile,
    release: ReleasedRows,
    shown: Sequence[PublishedValues],
    *,
    is_export: bool | None,
    has_summary: bool,
) -> Originals:
    """Read the original; number its messages by line, as `shoal pipe` does, or by offset, as `shoal run` does."""
    by_line = not release.is_export  # the rows show which command made them
    if not len(release):  # a summary does: `shoal run` writes none
        by_line = is_export is False
        if is_export is None and policy.envelope_attributes and source.form != "csv":
            has_offsets = first_line_names(source.path) >= {"partition", "offset"}
            by_line = has_summary or not has_offsets or target.form == "csv"
            if not by_line:
                raise _unclear_numbers(target)
        is_export = False if by_line else is_export
    originals = read_originals(policy, source, target.form, published=shown, is_export=is_export, by_line=by_line)
    if len(release) and release.is_export != originals.is_export:
        raise InputError(
            f"{target.path}: an export of a topic can only be compared with another export; give two exports or none"
        )
    return originals


def _unclear_numbers(target: InputFile) -> InputError:
    return InputError(
        f"{target.path}: the release has no rows, so it does not show which command made it: shoal run numbers records "
        "by offset, shoal pipe by line. Give --topic if shoal run made it. If shoal pipe made it, give the summary "
        "(--summary), or an original without the fields partition and offset"
    )


class _Audit:
    """Runs the checks of one release in their order; ADR 20 says from which input each takes its limits."""

    def __init__(
        self,
        policy: Policy,
        originals: Originals,
        release: ReleasedRows,
        published: Sequence[PublishedValues],
        scope: AuditScope,
        stated: StatedFiles,
    ) -> None:
        self._policy, self._originals, self._release, self._published = policy, originals, release, published
        self._scope, self._stated, self.limits = scope, stated, AdmissionLimits.of(policy, originals)
        self._is_inferred = stated.evidence_clusters is None and len(release) > 0
        self.clusters: RecomputedClusters | None = None
        self._accounts: Accounts | None = None
        self._references: AuditedReferences | None = None
        self._reasons: Mapping[int, str] | None = None
        self._compared: frozenset[str] = frozenset()
        self._unchanged = measure_unchanged_fields(policy, originals)
        self._joint = measure_joint_uniqueness(policy, release)
        self._checks = list(release.checks)
        self._warnings = [*find_fields(policy, originals)]
        self._warnings += [found for unchanged in self._unchanged for found in unchanged.warnings()]
        self._warnings += [found for fields in self._joint for found in fields.warnings()]
        self.losses: Losses | None = None
        self._claimed: Counter[str] = Counter()
        self._undecided: list[str] = []

    def verdict(self) -> Verdict:
        if not self._has_other_policy():
            self._recompute()
            self._check_references()
            self._account()
            if self._scope.is_strict:
                self._checks.append(check_unchanged_fields(self._unchanged))
            self._check_summary()
            # A file without records has no rows: `shoal pipe` accepts it.
            if len(self._originals) and not len(self._release):
                self._confirm_empty()
        return self._result()

    def _has_other_policy(self) -> bool:
        """Check the policy that evidence and summary name; return whether another policy is needed to judge them."""
        labels, others = foreign_fingerprints(self._policy.fingerprint, self._stated)
        if others and self._release.is_export:
            # A service may change its policy, so records of a topic may have been released under several.
            self._checks.clear()
            self._undecided += [
                f"the evidence or the summary names the policy with the fingerprint {other}: give that policy, with "
                "the part of the topic that was released under it (--partial)"
                for other in others
            ]
            return True
        if others:
            check = CheckCounter("policy", "evidence and summary were written under the given policy", "cluster")
            clusters, summary = self._stated.evidence_clusters or [], self._stated.summary_fields
            check.examined = len(clusters) + (summary is not None)
            check.note = (
                f"they name {', '.join(others)}, and the given policy has {self._policy.fingerprint}: "
                "give the policy under which the release was made"
            )
            for label in labels:
                check.fail(label)
            self._checks.append(check)
        return False

    def _confirm_empty(self) -> None:
        """Ask for the file that says that nothing was released: a summary, or the quarantine of a topic."""
        summary: Summary = self._stated.summary_fields or {}
        if self._originals.is_export and self._stated.references is None:
            self._undecided.append("nothing was released: give the quarantine file (--quarantine) to confirm it")
        elif not self._originals.is_export and summary.get("released") != 0:
            self._undecided.append("nothing was released: give the summary (--summary) to confirm it")

    # ---------------------------------------------------------------- recompute

    def _recompute(self) -> None:
        """Check clusters, rows and row order. Without evidence, infer the clusters."""
        clusters = self._stated.evidence_clusters
        if self._scope.is_ordered:
            if clusters is None and len(self._originals):
                reason = f"the rows are in the order of the input, which does not show the clusters: {REMEDY}"
                self._undecided.append(reason)
            else:
                self._check_clusters(clusters or [])
        elif self._is_inferred:
            self._check_inferred()
        else:
            self._check_rows(clusters or [])
        if self.clusters is None:
            self._checks += check_values_of_rows(self._policy, self._originals, self._release, self._scope)

    def _check_inferred(self) -> None:
        inferred = infer_clusters(self._policy, self._originals, self._release)
        self._checks.append(inferred.traced)
        self._checks += check_without_evidence(self._policy, self._release, self._published)
        before = len(self._checks)
        if inferred.clusters is not None:
            self._check_rows(inferred.clusters)
        if inferred.doubt and (inferred.clusters is None or any(check.failed for check in self._checks[before:])):
            # A failed check may be the fault of the inference, so it is not reported. If all checks pass, the inferred
            # clusters explain the release, and the checks stand.
            del self._checks[before:]
            self.clusters = None
            self._undecided.append(inferred.doubt)

    def _check_rows(self, evidence_clusters: Iterable[EvidenceCluster]) -> None:
        release, clusters = self._release, self._check_clusters(evidence_clusters).clusters
        self._checks += compare_rows(release, clusters)
        is_table, keeps_order = self._scope.is_table, self._policy.keep_order
        self._checks += check_order(release, clusters, self._originals, is_table=is_table, keeps_order=keeps_order)

    def _check_clusters(self, evidence_clusters: Iterable[EvidenceCluster]) -> RecomputedClusters:
        found = check_clusters(self._policy, self._originals, evidence_clusters, self._published, self.limits)
        self.clusters = found
        self._checks += found.checks
        if self._policy.per_subject is not None:
            self._checks.append(check_per_subject(self._policy.per_subject, self._originals, found.clusters))
        self._checks += check_values(self._policy, self._originals, known_classes(found))
        if self._release.is_export:
            self._undecided += repeated_numbers(found.clusters) + released_above_limit(self.limits, found)
        return found

    # ---------------------------------------------------------------- account

    def _check_references(self) -> None:
        if self._stated.references is None:
            return
        found = check_references(self._policy, self._originals, self.limits, self.clusters, self._stated.references)
        self._references, self._reasons = found, found.reasons
        self._checks += [found.valid, found.fitting]
        self._add_counts(found.claimed, found.undecided)

    def _account(self) -> None:
        """Check the delay, and that no record is missing. If the clusters are not known, neither can be checked."""
        if self.clusters is None:
            self._checks += [] if self._scope.is_partial else [unknown_completeness()]
            return
        before = len(self._checks)
        if not self._scope.is_table:
            self._check_stream(self.clusters)
        elif not self._scope.is_partial:
            self._accounts = check_unpublished_rows(
                self._policy, self._originals, self.limits, self.clusters, self._reasons
            )
        accounts = self._accounts
        if accounts is not None:
            self._checks += [accounts.complete, *([accounts.suppressed] if accounts.suppressed.examined else [])]
            self._checks += [] if accounts.population is None else [accounts.population]
            self._add_counts(accounts.claimed, accounts.undecided)
            self._claim_unended(self.clusters)
            if 2 * accounts.held > self._originals.usable:
                text = f"{counted(accounts.held, 'record')} may still be held, more than half"
                self._warnings.append(Finding("held", text, "verify again", {"records": accounts.held}))
        self._withdraw_uncertain(before)

    def _check_stream(self, clusters: RecomputedClusters) -> None:
        """Run all checks that count arrivals, up to three times.

        The checks run without the records whose arrival no file proves. If there are some, they run again with all of
        these. A check that fails only then is not examined. A third run leaves out the records claimed to be dated
        ahead; a check that fails in it too makes the verdict undecided. Such claims are ignored if they concern more
        than half of the records. So no statement of the quarantine makes a check less strict.
        """
        ahead = () if self._references is None else self._references.ahead
        if 2 * len(ahead) > self._originals.usable:
            ahead = ()  # the clock of most records is more likely right than that of the others
        is_released, reasons = clusters.is_released, self._reasons

        def arrived(counted: Counted) -> StreamArrivals:
            return arrivals_of(
                self._policy, self._originals, self.limits, is_released, reasons, counted=counted, ahead=ahead
            )

        most = arrived("all").certain()  # the vectors are not kept, to save memory
        certain, is_partial = arrived("certain"), self._scope.is_partial
        checks, self._accounts = self._check_arrivals(clusters, certain, is_partial=is_partial)
        self._checks += checks
        if certain.certain() == most:
            return
        # Only the rows of an ordered release are compared with the records that are due.
        is_partial = is_partial or not self._scope.is_ordered
        doubtful = _failed_besides(checks, self._check_arrivals(clusters, arrived("all"), is_partial=is_partial)[0])
        if doubtful:
            unclaimed = self._check_arrivals(clusters, arrived("unless claimed"), is_partial=is_partial)[0]
            disputed = _failed_besides(checks, unclaimed)
            reason = _NOT_REFERENCED if self._references is None else _DISPUTED
            for check in doubtful:
                check.skip(reason)
                self._undecided += [f"whether {check.claim}: {reason}"] if check in disputed else []

    def _check_arrivals(
        self, clusters: RecomputedClusters, arrivals: StreamArrivals, *, is_partial: bool
    ) -> tuple[list[CheckCounter], Accounts | None]:
        stream, found = self._policy.require_stream(), clusters.clusters
        accounts = None
        if not is_partial:
            accounts = check_unpublished(
                self._policy, self._originals, self.limits, clusters, arrivals, self._stated_accounts()
            )
        checks = [
            check_delay(stream.delta, self._originals, arrivals.by_partition, found),
            check_decision_order(self._originals, found),
        ]
        if stream.is_ordered:
            is_due = None if accounts is None else accounts.is_due
            checks += check_ordered_release(
                self._release, found, self._originals, reveals=stream.reveal_order, is_due=is_due
            )
        return checks, accounts

    def _stated_accounts(self) -> StatedAccounts:
        summary: Summary = self._stated.summary_fields or {}
        # A finished run of `pipe` holds nothing. It cannot follow a file and keep the order of the input.
        is_finished = self._scope.is_ordered and not self._originals.is_export
        is_drained = is_finished or summary.get("held") == 0
        if self._originals.is_export:
            return StatedAccounts(self._reasons, None, is_drained)
        records = read_records(summary)
        end = None if records is None else self._originals.end_of(records)
        return StatedAccounts(self._reasons, stated_suppressed(summary, self._stated.summary_name), is_drained, end)

    def _withdraw_uncertain(self, before: int) -> None:
        """Withdraw failed checks that another reading of the files would not fail, and say what decides."""
        failed = [check for check in self._checks[before:] if check.failed]
        together = [check for check in self._checks[:before] if check.name == "together" and check.failed]
        if self._is_inferred and failed:
            self._undecided.append(f"the delay and missing records cannot be judged by inferred clusters: {REMEDY}")
        elif self._scope.may_be_table and (failed or together) and self._looks_like_table():
            failed += together
            self._undecided.append(
                "the rows are in the order in which shoal batch writes them, and the policy has a stream section: give "
                "--table if shoal batch made the release"
            )
        else:
            return
        self._checks = [check for check in self._checks if check not in failed]
        self._accounts = None

    def _looks_like_table(self) -> bool:
        """Whether a file is sorted as a whole, or in the order of its input where the policy allows this to a table."""
        if self._release.is_export or self.clusters is None or not len(self._release):
            return False
        parts, clusters = self._release.by_partition.values(), self.clusters.clusters
        return all(rows.is_sorted for rows in parts) or (
            self._policy.keep_order and all(is_in_input_order(rows, clusters, self._originals) for rows in parts)
        )

    def _claim_unended(self, clusters: RecomputedClusters) -> None:
        """Count a last record without end that is neither released nor referenced: only the run knows why."""
        last = len(self._originals) - 1
        if self._scope.is_table or self._originals.is_ended:
            return
        if not clusters.is_released[last] and last not in (self._reasons or {}):
            self._claimed["at the end of the original, without line end: a run with --follow skips it"] = 1

    def _add_counts(self, claimed: Counter[str], undecided: Counter[str]) -> None:
        self._claimed += claimed
        self._undecided += [f"{counted(count, 'record')} {text}" for text, count in undecided.items()]

    def _check_summary(self) -> None:
        """Check the summary. Two clusters with equal rows side by side may have been inferred as one."""
        summary, name = self._stated.summary_fields, self._stated.summary_name
        if summary is None:
            return
        counts = self._counts(summary)
        check = check_summary(summary, counts, name)
        unknown = replace(counts, clusters=None, losses=None, values={})
        if self._is_inferred and check.failed and not (other := check_summary(summary, unknown, name)).failed:
            check, counts = other, unknown
            self._undecided.append(f"the summary counts other clusters than those inferred: {REMEDY}")
        self._compared = counts.compared
        self._checks.append(check)
        told = reading_warnings(summary, self._originals, dropped_kinds(self._policy), name)
        self._warnings += [Finding("summary", text) for text in told]

    def _counts(self, summary: Summary) -> AuditedCounts:
        originals, found, records_in = self._originals, self.clusters, read_records(summary)
        is_released = None if found is None else found.is_released
        released_end = 0 if found is None else int(np.flatnonzero(found.is_released).max(initial=-1)) + 1
        referenced_end = max(self._reasons or {}, default=-1) + 1
        read_end = len(originals) if originals.is_export else max(referenced_end, released_end)
        losses = measure_losses(summary, originals, found, self._published, self._scope.window)
        self.losses = losses if _EVERY_LOSS.keys() <= summary.keys() else None
        return AuditedCounts(
            records=originals.records,
            reached=originals.records_of(read_end),
            rows=len(self._release),
            clusters=found,
            quarantined=refused_bounds(originals, self.limits, is_released, records_in),
            dropped={reason.value: len(indices) for reason, indices in originals.drops.items()},
            suppressed=self._suppressed(),
            held=self._held(),
            are_exact=self._references is not None,
            certain=0 if self._accounts is None else self._accounts.certain,
            losses=losses,
            values=measure_values(self._policy, originals, known_classes(found)),
        )

    def _suppressed(self) -> int | None:
        """Return how many records were or may have been suppressed; None if it is not known."""
        if self._accounts is None:
            return None
        stated = sum(reason == "suppressed" for reason in (self._reasons or {}).values())
        return stated + self._accounts.suppressible

    def _held(self) -> int | None:
        """Return how many records may still be held, with those whose cluster is decided; None if it is not known."""
        if self._accounts is None or self.clusters is None:
            return None
        decided = sum(len(cluster.members) for cluster in self.clusters.clusters)
        unreleased = max(0, decided - len(self._release)) if self._scope.is_ordered else 0
        return self._accounts.held + unreleased

    # ---------------------------------------------------------------- verdict

    def _result(self) -> Verdict:
        policy, originals, accounts = self._policy, self._originals, self._accounts
        measures = measure_release(policy, originals, self._release, self.clusters, self._unchanged, self._joint)
        near = count_near_duplicates(policy, originals, self.clusters)
        found = [*self._warnings, *([] if near is None else near.warnings())]
        found += find_other_people(policy, originals, self.clusters)
        rows, held = len(self._release), 0 if self._scope.is_table else self._held()
        if held is not None and not self._scope.is_partial:
            found += find_left_out(originals.records, rows, originals.records - originals.usable, held)
        self.losses = self.losses or measure_losses(
            _EVERY_LOSS, originals, self.clusters, self._published, self._scope.window
        )
        return Verdict(
            checks=tuple(check.result() for check in self._checks),
            counts={
                "records": originals.records,
                **({"dropped": len(originals) - originals.records} if dropped_kinds(policy) else {}),
                "usable": originals.usable,
                "unusable": originals.records - originals.usable,
                "rows": len(self._release),
                "clusters": None if self.clusters is None else self.clusters.count,
                "suppressed": self._suppressed(),
                "claimed": sum(self._claimed.values()),
                "held": self._held(),
            },
            measures=measures | ({} if near is None else near.measures()),
            warnings=by_weight(found),
            undecided=tuple(self._undecided),
            not_examined=tuple(text for is_open, text in self._questions() if is_open),
            claimed=tuple(f"{counted(count, 'record')} {text}" for text, count in self._claimed.items()),
            partial=self._scope.is_partial,
            early_decisions=None if accounts is None else accounts.early_decisions,
            worth=worth_of(policy, originals, self.clusters, rows=rows, held=held, losses=self.losses),
        )

    def _questions(self) -> Iterator[tuple[object, str]]:
        """Yield whether a question concerns such a release and cannot be answered by its files, and its text."""
        policy, scope, is_export = self._policy, self._scope, self._originals.is_export
        summary: Summary = self._stated.summary_fields or {}
        fields = (("keys", "key"), ("headers", "headers"))
        missing = [name for name, field in fields if field not in self._release.envelope]
        yield (
            scope.is_partial,
            "whether every record was released or had to be suppressed, because only a part was judged",
        )
        yield is_export and not scope.is_ordered, "whether each cluster was published in one transaction"
        yield is_export, f"{_listed([*missing, 'timestamps'])} of released messages"
        yield (
            self._is_inferred and self.clusters is not None,
            f"whether rows side by side with equal quasi-identifiers are one cluster or several: {REMEDY}",
        )
        yield not scope.is_table, "when anything was released, and delays in seconds"
        yield is_export, "aborted messages, which a read_uncommitted reader can see"
        yield "unknown" in summary, "how many values are not in their taxonomy, as the summary states"
        yield (
            self._stated.summary_fields is not None,
            "mse and mae in the summary, and its clipped values, displacement, excess span, delay and speed",
        )
        yield from ((True, text) for text in _other_fields(summary, self._compared))
        sources = "references and taxonomies of confidential attributes"
        yield (
            any(a.reference or a.taxonomy for a in policy.protected) and not _names_policy(self._stated),
            f"whether {sources} are those of the run, because the evidence and the summary do not name its policy",
        )
        yield True, "earlier or other releases of the same records"
        is_end_known = self._accounts is not None and self._accounts.population is not None
        has_time_limit = policy.stream is not None and policy.stream.max_delay_s is not None
        causes = "a time limit" if is_end_known else "a time limit or the end of the input"
        yield (
            policy.min_population is not None and (has_time_limit or not is_end_known),
            f"whether {causes} released records while fewer than {policy.min_population} subjects were held",
        )


def _failed_besides(checks: Sequence[CheckCounter], others: Sequence[CheckCounter]) -> list[CheckCounter]:
    """Return the checks that fail in another result alone."""
    return [check for check, other in zip(checks, others, strict=True) if other.failed and not check.failed]


_NAMED = {"mse", "mae", "clipped", "displacement", "excess_span", "delay", "elapsed_s", "records_per_s", "unknown"}
"""Fields of a summary that are never compared, and are named in any case."""
_EVERY_LOSS: Summary = {"loss": None, "clocks": None}
"""Fields of a summary for which losses are measured, those of clocks without their trend."""
_MEASURES = (
    *("loss", "mean_loss", "clocks", "sse", "sst", "information_loss", "d_x", "d_y", "emd", "emd_of", "l"),
    *("value_share", "dropped", "dld", "l_avg", "bound", "gap", "mdav", "algorithm", "refine", "keep_order"),
    *("blocks", "jointly_k_anonymous"),
)
"""Other fields, in the order in which they are named. Those that could not be compared are not examined."""
_LEARNED = ("position_weight", "widths")  # what a stream has learned


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


def _add_lines(verdict: Verdict, *, original: InputFile, released: InputFile) -> Verdict:
    """Return the verdict with the line of each row (from 1) and record (from 0) that a broken check lists.

    Rows of a Parquet file have no lines. Cost: one pass over a CSV file with failed cases, O(n) time.
    """
    checks = list(verdict.checks)
    for unit, first, file in (("row", 1, released), ("record", 0, original)):
        own = [check for check in checks if check.unit == unit]
        lines = _lines_of({place - first for check in own for place in check.places if isinstance(place, int)}, file)
        for place, check in enumerate(checks):
            if check.unit == unit:
                found = (lines.get(number - first) for number in check.places if isinstance(number, int))
                checks[place] = replace(check, lines=tuple(line for line in found if line is not None))
    return replace(verdict, checks=tuple(checks))


def _lines_of(numbers: set[int], file: InputFile) -> dict[int, int]:
    """Return the line on which each of some records, numbered from 0, begins."""
    if not numbers or is_parquet(file.path):
        return {}
    if file.form != "csv" or len(file.parts) > 1:
        return {number: number + 1 for number in numbers}
    lines = enumerate(csv_record_lines(file.path, file.dialect))
    return {number: line for number, line in lines if number in numbers}
