"""The public function `verify`: reads the files, runs the checks and returns the verdict.

Lines of the failed cases of a verdict, counted as every command counts them: from 1, a CSV header included.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shoal.audit.auditor import Auditor
from shoal.audit.evidence import (
    AuditScope,
    StatedFiles,
    Summary,
    read_evidence,
    read_quarantine,
    read_summary,
    require_known_input,
    require_one_input,
    select_clusters,
    select_references,
)
from shoal.audit.originals import Originals, is_export_of, read_originals
from shoal.audit.published_values import PublishedValues, published_values
from shoal.audit.reading import (
    ENVELOPE_FIELDS,
    ORIGINAL_EXPORT,
    Form,
    InputFile,
    csv_record_lines,
    first_line_names,
    is_parquet,
)
from shoal.audit.releases import ReleasedRows, read_release
from shoal.audit.summary import read_records
from shoal.audit.verdict import Verdict
from shoal.errors import InputError
from shoal.policy import Policy

__all__ = ["add_lines", "verify"]


def add_lines(verdict: Verdict, *, original: InputFile, released: InputFile) -> Verdict:
    """Return the verdict with the line of each row and each record that a broken check lists.

    Rows are numbered from 1 and records from 0, both without a header. A row of a CSV file may span several lines. Rows
    of a Parquet file have no lines.

    Notes
    -----
    Cost: one pass over a CSV file with failed cases, O(n) time.
    """
    sources = {"row": (released, 1), "record": (original, 0)}
    found = {
        unit: _lines_of(
            {place - first for check in verdict.checks if check.unit == unit for place in _numbers(check.places)}, file
        )
        for unit, (file, first) in sources.items()
    }
    checks = []
    for check in verdict.checks:
        lines = found.get(check.unit, {})
        first = sources[check.unit][1] if check.unit in sources else 0
        numbers = [place - first for place in _numbers(check.places)]
        checks.append(replace(check, lines=tuple(lines[number] for number in numbers if number in lines)))
    return replace(verdict, checks=tuple(checks))


def _numbers(places: Iterable[int | str]) -> list[int]:
    return [place for place in places if isinstance(place, int)]


def _lines_of(numbers: set[int], file: InputFile) -> dict[int, int]:
    """Return the line on which each of some records, numbered from 0, begins."""
    if not numbers or is_parquet(file.path):
        return {}
    if file.form != "csv":
        return {number: number + 1 for number in numbers}
    lines = enumerate(csv_record_lines(file.path, file.dialect))
    return {number: line for number, line in lines if number in numbers}


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
    partial: bool = False,
    is_export: bool | None = None,
    input_topic: str | None = None,
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
        JSON lines of ``{"partition", "cluster", "offsets", "policy"}``, one per cluster; earlier versions did not write
        ``policy``, the fingerprint. With several inputs also ``topic``, the input. In plain files the partition is 0
        and offsets are the numbers of records, from 0. Evidence is checked, never trusted.
    summary : path or mapping, optional
        The summary of the run. It is checked. Nothing in it makes a check less strict.
    quarantine : path, optional
        JSON lines of ``{"topic", "partition", "offset", "reason"}``, one per record that was not released.
    complete : bool
        The default, spelt out: it takes precedence over ``partial``.
    wrapped : bool, optional
        Former name of ``is_export``.
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
        A file is not readable or has another shape. The message names file, line and remedy, and no value.

    Notes
    -----
    Guarantee, if every check holds, none is "not examined", and evidence is given: every released row is the row of one
    cluster of the evidence. Each cluster has at least k subjects, no subject has more than ``max_share``, and
    ``per_subject`` and ``t`` hold where the policy sets them. In a stream no record was released more than delta
    records after its arrival. Unless ``partial``, every other record of the original is unusable, had to be suppressed,
    may still be held, or is counted in ``claimed``.

    Cost: O(n log n) time, O(n) memory.
    """
    source = InputFile.of(original, policy.csv, form)
    target = InputFile.of(released, policy.csv_output, released_form or form)
    name = str(summary) if isinstance(summary, str | Path) else "the summary"
    require_known_input(policy, input_topic)
    clusters = None if evidence is None else list(read_evidence(Path(evidence)))
    references = None if quarantine is None else list(read_quarantine(Path(quarantine)))
    require_one_input(clusters, references, input_topic)
    stated = StatedFiles(
        evidence_clusters=None if clusters is None else select_clusters(clusters, input_topic),
        references=None if references is None else select_references(references, input_topic),
        summary_fields=None
        if summary is None
        else read_summary(Path(summary) if isinstance(summary, str) else summary),
        summary_name=name,
    )
    scope = AuditScope.of(policy, table=table, partial=partial and not complete, strict=strict)
    is_binary = is_parquet(target.path)
    shown = published_values(
        policy, target.form, table=scope.is_table, has_table_grids=scope.has_table_grids, is_binary=is_binary
    )
    is_export = wrapped if is_export is None else is_export
    release = read_release(policy, target, shown, original=source, is_export=is_export, stores_texts=scope.is_ordered)
    verdict = _Judgement(policy, source, target, release, shown, scope, stated, is_export).verdict()
    return add_lines(verdict, original=source, released=target)


@dataclass(frozen=True, slots=True)
class _Judgement:
    """A release and the file of its original, which is read when it is known how its records are numbered."""

    policy: Policy
    source: InputFile
    target: InputFile
    release: ReleasedRows
    published: Sequence[PublishedValues]
    scope: AuditScope
    stated: StatedFiles
    is_export: bool | None

    def verdict(self) -> Verdict:
        if len(self.release):
            return self._judge(self._read(by_line=not self.release.is_export))
        by_line = self._is_numbered_by_line()
        if by_line is not None:
            return self._judge(self._read(by_line=by_line))
        if self.policy.envelope_attributes:
            return self._judge_both()
        # By line no message is a record of the policy, so only a doubt may come from this reading.
        verdict = self._judge(self._read(by_line=False))
        if verdict.outcome == "broken" and self._judge(self._read(by_line=True)).verified:
            raise self._unclear_numbers()
        return verdict

    def _read(self, *, by_line: bool) -> Originals:
        has_lines = by_line and not len(self.release)
        is_export = False if has_lines else self.is_export
        originals = read_originals(self.policy, self.source, self.target.form, is_export=is_export, by_line=by_line)
        if not len(originals) and (len(self.release) or self.scope.is_table):
            raise InputError(f"{self.source.path}: no records, so there is nothing to compare with; give the original")
        if len(self.release) and self.release.is_export != originals.is_export:
            raise InputError(
                f"{self.target.path}: an export of a topic can only be compared with another export; give two exports "
                "or none"
            )
        summary = self.stated.summary_fields
        if summary is not None and not originals.is_export:
            originals.was_read_whole = (read_records(summary) or 0) >= originals.records
        return originals

    def _judge(self, originals: Originals) -> Verdict:
        return Auditor(self.policy, originals, self.release, self.published, self.scope).run(self.stated)

    def _is_numbered_by_line(self) -> bool | None:
        """Whether the references of an empty release number records by line, as `shoal pipe` does.

        None if only they can tell: `shoal pipe` also reads messages that have a partition and an offset.
        """
        if self.source.form == "csv" or self.is_export is not None:
            return self.is_export is False
        if not self.policy.envelope_attributes:
            return None if is_export_of(self.policy, self.source, ORIGINAL_EXPORT, ENVELOPE_FIELDS) else False
        has_offsets = first_line_names(self.source.path) >= {"partition", "offset"}
        return True if self.target.form == "csv" or not has_offsets else None

    def _judge_both(self) -> Verdict:
        """Judge an empty release of messages as that of a topic, and as that of `shoal pipe`.

        If all references name records in one of the readings only, that one is judged. Else one that holds excels one
        that is undecided.

        Raises
        ------
        InputError
            One reading holds and the other is broken.
        """
        by_line = self._read(by_line=True)
        try:
            by_offset = self._read(by_line=False)
        except InputError:
            # Lines that `shoal pipe` reads need not be an export of a topic.
            verdict = self._judge(by_line)
            if verdict.outcome == "broken":
                raise
            return verdict
        references = self.stated.references or []
        fitting = [
            originals
            for originals in (by_offset, by_line)
            if all(originals.find(reference.partition, reference.offset) is not None for reference in references)
        ]
        if len(fitting) == 1:
            return self._judge(fitting[0])
        first, second = self._judge(by_offset), self._judge(by_line)
        if {first.outcome, second.outcome} == {"holds", "broken"}:
            raise self._unclear_numbers()
        return second if second.verified and not first.verified else first

    def _unclear_numbers(self) -> InputError:
        return InputError(
            f"{self.target.path}: the release has no rows, so it does not show which command made it: shoal run "
            "numbers records by offset, shoal pipe by line. Give --topic if shoal run made it. If shoal pipe made it, "
            "give an original without the fields partition and offset"
        )
