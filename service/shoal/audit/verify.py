"""Composes the rooms of the judge: read, recompute, compare, tell."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from shoal.audit.arithmetic import ExactGrid
from shoal.audit.balance import Facts, balance_references, balance_summary, doubts_about_reading
from shoal.audit.check_counter import CheckCounter
from shoal.audit.clusters import RecomputedCluster, RecomputedClusters, judge_clusters
from shoal.audit.evidence import ClaimedCluster, ClaimedReference, Summary, read_evidence, read_quarantine, read_summary
from shoal.audit.measures import judge_unchanged, look_at_unchanged, measure
from shoal.audit.options import judge_options, not_seen
from shoal.audit.ordered_release import judge_turns
from shoal.audit.originals import Originals, read_originals
from shoal.audit.reading import File, Form
from shoal.audit.releases import ReleasedRows, read_release
from shoal.audit.rows import compare_rows, judge_order
from shoal.audit.verdict import NOT_SHOWN, Verdict
from shoal.audit.without_evidence import REMEDY, check_without_evidence, rebuild
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
    """Judge a release against its original, sharing no arithmetic with those who made it.

    Parameters
    ----------
    policy : Policy
        What was promised.
    original, released : path
        ``.csv`` (in the policy's dialect) or ``.jsonl`` (``.json`` is read as JSON lines). Exports of topics are JSON
        lines of ``{"partition", "offset", "value"}`` (value: the record or its raw text) and of
        ``{"partition", "value"}`` (the raw published text); then every check is made per partition. Those of an
        original may have ``key`` (a text or null), ``headers`` (a list of ``[name, text or null]``) and
        ``timestamp`` (ms), and must where the policy reads them. Such lines beside a plain release are what
        `shoal pipe` read: then records are counted by lines.
    evidence : path, optional
        One line per cluster, ``{"partition", "cluster", "offsets"}``; files are partition 0 and count records
        from 0. Evidence is checked, never believed.
    summary : path or mapping, optional
        What the run said of itself.
    quarantine : path, optional
        Lines of ``{"topic", "partition", "offset", "reason"}``: records that were not released.
    complete : bool
        Whether every record must be released or referenced.
    wrapped : bool, optional
        Whether both files are exports; None: they show it themselves.
    table : bool, optional
        Whether the default grid is that of tables; None: if the policy has no stream section.
    form, released_form : {"csv", "jsonl"}, optional
        Of files whose names do not tell.
    strict : bool
        Whether a confidential field by which records can be found breaks the verdict, unless the policy says
        ``publish_unchanged: true`` of it. Otherwise it is a warning.

    Returns
    -------
    Verdict
        With ``exit_code`` 0 (all holds), 1 (something is broken) or 2 (it cannot be decided).

    Raises
    ------
    InputError
        A file is not readable or not of the agreed shape: the message names file, line and remedy.

    Notes
    -----
    Cost: O(n log n) time, O(n) memory.
    """
    source = File.of(original, policy.csv, form)
    target = File.of(released, policy.csv_output, released_form or form)
    said = None if summary is None else read_summary(Path(summary) if isinstance(summary, str) else summary)
    witness = None if evidence is None else list(read_evidence(Path(evidence)))
    tables = policy.stream is None if table is None else table
    grids = [ExactGrid(attribute, table=tables) for attribute in policy.quasi_identifiers]
    in_turn = not tables and policy.stream is not None and policy.stream.is_ordered
    release = read_release(policy, target, grids, original=source.form, wrapped=wrapped, keeps_texts=in_turn)
    by_line = bool(len(release)) and not release.wrapped
    originals = read_originals(policy, source, target.form, wrapped=wrapped, by_line=by_line)
    if len(release) and release.wrapped != originals.wrapped:
        raise InputError(
            f"{released}: the export of a topic can only be compared with another; give two exports or none"
        )
    case = _Case(policy, originals, release, grids)
    if in_turn:
        case.examine_turns(witness, complete=complete)
    else:
        case.examine(witness, keeps_order=said is not None and said.get("keep_order") is True)
    if quarantine is not None or complete:
        references = [] if quarantine is None else list(read_quarantine(Path(quarantine)))
        case.reach(references)
        case.balance(balance_references(originals, case.used, references, complete=complete))
    if strict:
        case.balance([judge_unchanged(case.unchanged)])
    if said is not None:
        called = str(summary) if isinstance(summary, str | Path) else "the summary"
        case.balance([balance_summary(said, case.facts(), called)])
        case.warnings += doubts_about_reading(said, originals, called)
    if not len(release) and (said is None or said.get("released") != 0):
        case.doubts.append("nothing was released: give the summary (--summary) if that is so")
    return case.verdict()


class _Case:
    """One release before the judge, with all that is found about it."""

    def __init__(self, policy: Policy, originals: Originals, release: ReleasedRows, grids: list[ExactGrid]) -> None:
        self._policy, self._originals, self._release, self._grids = policy, originals, release, grids
        self._tallies = list(release.checks)
        self._clusters: RecomputedClusters | None = None
        self._reached = 0
        self.doubts: list[str] = []
        self.unchanged = look_at_unchanged(policy, originals)
        self.warnings = [text for field in self.unchanged for text in field.warnings()]

    @property
    def used(self) -> bytearray | None:
        """Which records were released, if it is known."""
        return None if self._clusters is None else self._clusters.used

    def examine(self, witness: list[ClaimedCluster] | None, *, keeps_order: bool) -> None:
        """Judge the clusters: as the evidence names them, else as the release shows them."""
        if witness is not None:
            self._judge(witness, keeps_order=keeps_order)
            return
        rebuilt = rebuild(self._policy, self._originals, self._release)
        self._tallies.append(rebuilt.traced)
        self._tallies += check_without_evidence(self._policy, self._release)
        before = len(self._tallies)
        if rebuilt.named is not None:
            self._judge(rebuilt.named, keeps_order=False)
        if rebuilt.doubt and (rebuilt.named is None or any(tally.failed for tally in self._tallies[before:])):
            # Clusters that were guessed wrongly prove nothing.
            del self._tallies[before:]
            self._clusters = None
            self.doubts.append(rebuilt.doubt)

    def examine_turns(self, witness: list[ClaimedCluster] | None, *, complete: bool) -> None:
        """Judge rows that leave one by one: without evidence nobody can say who belongs together."""
        if witness is None:
            self.doubts.append(f"the rows are in the order of the input, which does not show the clusters: {REMEDY}")
            return
        clusters, reveals = self._members(witness), self._policy.require_stream().reveal_order
        self._tallies += judge_turns(self._release, clusters, self._originals, reveals=reveals, complete=complete)

    def _judge(self, named: Iterable[ClaimedCluster], *, keeps_order: bool) -> None:
        clusters = self._members(named)
        self._tallies += compare_rows(self._release, clusters)
        self._tallies += judge_order(self._release, clusters, self._originals, keeps_order=keeps_order)

    def _members(self, named: Iterable[ClaimedCluster]) -> list[RecomputedCluster]:
        """Judge who is in the clusters."""
        clusters = judge_clusters(self._policy, self._originals, named, self._grids)
        self._clusters = clusters
        self._tallies += clusters.checks
        self._tallies += judge_options(self._policy, self._originals, clusters.found)
        return clusters.found

    def reach(self, references: list[ClaimedReference]) -> None:
        """Note how far references go."""
        found = [self._originals.find(reference.partition, reference.offset) for reference in references]
        self._reached = max((index + 1 for index in found if index is not None), default=0)

    def balance(self, tallies: list[CheckCounter]) -> None:
        """Add what the accounts showed."""
        self._tallies += tallies

    def facts(self) -> Facts:
        """Say what was counted, for the summary to agree with."""
        clusters = self._clusters
        released = 0 if clusters is None else clusters.used.rfind(1) + 1
        reached = len(self._originals) if self._originals.wrapped else max(self._reached, released)
        sizes = [] if clusters is None else [len(cluster.members) for cluster in clusters.found]
        return Facts(
            records=len(self._originals),
            reached=reached,
            rows=len(self._release),
            clusters=None if clusters is None else clusters.named,
            smallest=min(sizes, default=None),
            largest=max(sizes, default=None),
            fewest_subjects=None if clusters is None else clusters.fewest_subjects,
            largest_share=None if clusters is None else clusters.largest_share,
        )

    def verdict(self) -> Verdict:
        """Close the case."""
        usable = self._originals.usable
        clusters = self._clusters
        return Verdict(
            checks=tuple(tally.check() for tally in self._tallies),
            counts={
                "records": len(self._originals),
                "usable": usable,
                "unusable": len(self._originals) - usable,
                "rows": len(self._release),
                "clusters": None if clusters is None else clusters.named,
            },
            measures=measure(self._policy, self._originals, clusters, self.unchanged),
            warnings=tuple(self.warnings),
            undecided=tuple(self.doubts),
            not_examined=(*NOT_SHOWN, *not_seen(self._policy)),
        )
