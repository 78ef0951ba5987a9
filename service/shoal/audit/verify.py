"""The public function `verify`: reads the files, runs the checks and returns the verdict."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from shoal.audit.arithmetic import ExactGrid
from shoal.audit.clusters import RecomputedCluster, RecomputedClusters, check_clusters
from shoal.audit.evidence import (
    ClaimedCluster,
    ClaimedReference,
    Summary,
    read_evidence,
    read_quarantine,
    read_summary,
)
from shoal.audit.measures import check_unchanged_fields, measure_release, measure_unchanged_fields
from shoal.audit.options import check_options, unobservable_options
from shoal.audit.ordered_release import check_ordered_release
from shoal.audit.originals import Originals, read_originals
from shoal.audit.parsing import Form, InputFile
from shoal.audit.reconciliation import AuditedCounts, check_references, check_summary, reading_warnings
from shoal.audit.releases import ReleasedRows, read_release
from shoal.audit.rows import check_order, compare_rows
from shoal.audit.verdict import NOT_EXAMINED, Verdict
from shoal.audit.without_evidence import REMEDY, check_without_evidence, infer_clusters
from shoal.errors import InputError
from shoal.policy import Policy

__all__ = ["verify"]


def verify(
    policy: Policy,
    original: str | Path,
    released: str | Path,
    evidence: str | Path | None = None,
    summary: str | Path | Summary | None = None,
    *,
    quarantine: str | Path | None = None,
    complete: bool = False,
    wrapped: bool | None = None,
    table: bool | None = None,
    form: Form | None = None,
    released_form: Form | None = None,
    strict: bool = False,
) -> Verdict:
    """Check a release against its original, with separate code.

    Only the policy loader and the error classes are shared with the engine.

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
        - of the release: ``{"partition", "value"}``; the value is the published text.

        If the original is an export and the release is a plain file, the original was the input of `shoal pipe`; its
        record numbers are line numbers.
    evidence : path, optional
        JSON lines of ``{"partition", "cluster", "offsets"}``, one per cluster. In plain files the partition is 0 and
        offsets are the numbers of records, from 0. Evidence is checked, never trusted.
    summary : path or mapping, optional
        The summary of the run.
    quarantine : path, optional
        JSON lines of ``{"topic", "partition", "offset", "reason"}``, one per record that was not released.
    complete : bool
        Whether every record must be in the release or in the quarantine file.
    wrapped : bool, optional
        Whether both files are exports of topics; None: decide by their first lines.
    table : bool, optional
        Whether the release was made by `shoal batch`: the default resolutions of tables apply, and ``stream.release``
        is ignored. None: true if the policy has no ``stream`` section.
    form, released_form : {"csv", "jsonl"}, optional
        Form of files with another suffix.
    strict : bool
        Whether an unchanged field that identifies records fails the verification, unless the policy sets
        ``publish_unchanged: true`` for it. Otherwise it is a warning.

    Returns
    -------
    Verdict
        Its ``exit_code`` is 0 if no check is broken and nothing is undecided; single checks may be "not examined". It
        is 1 if a check is broken, and 2 if the inputs cannot decide.

    Raises
    ------
    InputError
        A file is not readable or has another shape. The message names file, line and remedy, and no value.

    Notes
    -----
    Guarantee, if every check holds, none is "not examined", and evidence is given: every released row is the row of one
    cluster of the evidence. Each cluster has at least k subjects, no subject has more than ``max_share``, and
    ``dominance``, ``per_subject`` and ``t`` hold where the policy sets them. ``min_population`` and the delay are not
    checked.

    Cost: O(n log n) time, O(n) memory.
    """
    source = InputFile.of(original, policy.csv, form)
    target = InputFile.of(released, policy.csv_output, released_form or form)
    claims = None if summary is None else read_summary(Path(summary) if isinstance(summary, str) else summary)
    claimed = None if evidence is None else list(read_evidence(Path(evidence)))
    tables = policy.stream is None if table is None else table
    grids = [ExactGrid(attribute, table=tables) for attribute in policy.quasi_identifiers]
    is_ordered = not tables and policy.stream is not None and policy.stream.is_ordered
    release = read_release(policy, target, grids, original=source, is_export=wrapped, stores_texts=is_ordered)
    by_line = bool(len(release)) and not release.is_export
    originals = read_originals(policy, source, target.form, is_export=wrapped, by_line=by_line)
    if len(release) and release.is_export != originals.is_export:
        raise InputError(
            f"{released}: an export of a topic can only be compared with another export; give two exports or none"
        )
    audit = _Audit(policy, originals, release, grids)
    audit.undecided += release.undecided
    if is_ordered:
        audit.check_ordered(claimed, complete=complete)
    else:
        audit.check_unordered(claimed, keeps_order=claims is not None and claims.get("keep_order") is True)
    if quarantine is not None or complete:
        audit.check_quarantine([] if quarantine is None else list(read_quarantine(Path(quarantine))), complete=complete)
    if strict:
        audit.check_unchanged()
    if claims is not None:
        audit.check_summary(claims, str(summary) if isinstance(summary, str | Path) else "the summary")
    if not len(release) and (claims is None or claims.get("released") != 0):
        audit.undecided.append("nothing was released: give the summary (--summary) to confirm it")
    return audit.verdict()


class _Audit:
    """The checks of one release and their results."""

    def __init__(self, policy: Policy, originals: Originals, release: ReleasedRows, grids: list[ExactGrid]) -> None:
        self._policy, self._originals, self._release, self._grids = policy, originals, release, grids
        self._checks = list(release.checks)
        self._clusters: RecomputedClusters | None = None
        self._referenced_end = 0
        self._unchanged = measure_unchanged_fields(policy, originals)
        self._warnings = [text for field in self._unchanged for text in field.warnings()]
        self.undecided: list[str] = []

    def check_unordered(self, claimed: list[ClaimedCluster] | None, *, keeps_order: bool) -> None:
        """Check clusters, rows and row order. Without evidence, infer the clusters."""
        if claimed is not None:
            self._check_rows(claimed, keeps_order=keeps_order)
            return
        inferred = infer_clusters(self._policy, self._originals, self._release)
        self._checks.append(inferred.traced)
        self._checks += check_without_evidence(self._policy, self._release)
        before = len(self._checks)
        if inferred.clusters is not None:
            self._check_rows(inferred.clusters, keeps_order=False)
        if inferred.doubt and (inferred.clusters is None or any(check.failed for check in self._checks[before:])):
            # A failed check may be the fault of the inference, so it is not reported. If all checks pass, the inferred
            # clusters explain the release, and the checks stand.
            del self._checks[before:]
            self._clusters = None
            self.undecided.append(inferred.doubt)

    def check_ordered(self, claimed: list[ClaimedCluster] | None, *, complete: bool) -> None:
        """Check a release that was made with ``release: ordered``. Without evidence its clusters are unknown."""
        if claimed is None:
            reason = f"the rows are in the order of the input, which does not show the clusters: {REMEDY}"
            self.undecided.append(reason)
            return
        clusters, reveals = self._check_clusters(claimed), self._policy.require_stream().reveal_order
        self._checks += check_ordered_release(
            self._release, clusters, self._originals, reveals=reveals, complete=complete
        )

    def _check_rows(self, claimed: Iterable[ClaimedCluster], *, keeps_order: bool) -> None:
        clusters = self._check_clusters(claimed)
        self._checks += compare_rows(self._release, clusters)
        self._checks += check_order(self._release, clusters, self._originals, keeps_order=keeps_order)

    def _check_clusters(self, claimed: Iterable[ClaimedCluster]) -> list[RecomputedCluster]:
        found = check_clusters(self._policy, self._originals, claimed, self._grids)
        self._clusters = found
        self._checks += found.checks
        self._checks += check_options(self._policy, self._originals, found.clusters)
        return found.clusters

    def check_quarantine(self, references: list[ClaimedReference], *, complete: bool) -> None:
        """Check the entries of the quarantine file, and with ``complete`` that no record is missing."""
        indices = [self._originals.find(reference.partition, reference.offset) for reference in references]
        self._referenced_end = max((index + 1 for index in indices if index is not None), default=0)
        is_released = None if self._clusters is None else self._clusters.is_released
        self._checks += check_references(self._originals, is_released, references, complete=complete)

    def check_unchanged(self) -> None:
        """Check that unchanged fields do not identify records."""
        self._checks.append(check_unchanged_fields(self._unchanged))

    def check_summary(self, summary: Summary, name: str) -> None:
        """Check the summary; ``name`` is what errors call it."""
        self._checks.append(check_summary(summary, self._counts(), name))
        self._warnings += reading_warnings(summary, self._originals, name)

    def _counts(self) -> AuditedCounts:
        found = self._clusters
        released_end = 0 if found is None else found.is_released.rfind(1) + 1
        read_end = max(self._referenced_end, released_end)
        sizes = [] if found is None else [len(cluster.members) for cluster in found.clusters]
        return AuditedCounts(
            records=len(self._originals),
            reached=len(self._originals) if self._originals.is_export else read_end,
            rows=len(self._release),
            clusters=None if found is None else found.claimed,
            smallest=min(sizes, default=None),
            largest=max(sizes, default=None),
            fewest_subjects=None if found is None else found.fewest_subjects,
            largest_share=None if found is None else found.largest_share,
        )

    def verdict(self) -> Verdict:
        """Return the verdict on all checks so far."""
        usable = self._originals.usable
        return Verdict(
            checks=tuple(check.result() for check in self._checks),
            counts={
                "records": len(self._originals),
                "usable": usable,
                "unusable": len(self._originals) - usable,
                "rows": len(self._release),
                "clusters": None if self._clusters is None else self._clusters.claimed,
            },
            measures=measure_release(self._policy, self._originals, self._clusters, self._unchanged),
            warnings=tuple(self._warnings),
            undecided=tuple(self.undecided),
            not_examined=(*NOT_EXAMINED, *unobservable_options(self._policy)),
        )
