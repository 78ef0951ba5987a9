"""`anonymize_table` and what it returns: a `Release`."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow.parquet as pq

from shoal.arrays import Int64Vector
from shoal.errors import InputError, ParameterError
from shoal.files.batch import encode_unpublished, read_table, report_table
from shoal.files.files import open_output
from shoal.files.pipe import OutputWriter, encode_evidence, process_records, report_stream, summarize_stream
from shoal.files.run import RunReport, percent
from shoal.formats import DEFAULT_MAX_BYTES, JsonEncoder, ReadOptions, RecordSource, RefusalCounter
from shoal.formats.format import BATCH_SIZE
from shoal.formats.parquet import ROWS_PER_GROUP, published_arrow, read_arrow
from shoal.frames.native import NAME, NativeFrame, plain_schema
from shoal.kernels.jit import compile_if_large
from shoal.policy import Policy
from shoal.streams import PartitionPipeline, release_strategy
from shoal.tables import AlgorithmSpec, TablePipeline

if TYPE_CHECKING:
    from shoal.audit import JudgedRelease, Verdict

Frame = TypeVar("Frame")


class _Outcome(NamedTuple):
    """What a run of the engine gives."""

    rows: list[bytes]  # published, as JSON
    records: Int64Vector | None  # numbers of the records of the rows; None if the rows have another order
    evidence: bytes
    unpublished: bytes
    summary: dict[str, Any]
    report: RunReport


@dataclass(frozen=True, repr=False)
class Release(Generic[Frame]):
    """What `anonymize_table` returns.

    Attributes
    ----------
    table : DataFrame or Table
        The published columns, in the order of the policy, as a frame of the kind that was given.
    summary : dict
        What ``--summary`` writes of `shoal batch`, or of `shoal pipe` for a stream. Its sums are exact: do not publish
        it.
    """

    table: Frame
    summary: dict[str, Any]
    _policy: Policy
    _original: Frame
    _outcome: _Outcome
    _is_stream: bool
    _kind: str

    @property
    def evidence(self) -> list[dict[str, Any]]:
        """Which records, by their numbers from 0, form each cluster: what ``--evidence`` writes.

        It tells who is in a cluster with whom: protect it like the input.
        """
        return [json.loads(line) for line in self._outcome.evidence.splitlines()]

    def verify(self) -> Verdict:
        """Judge ``table`` against the original frame with `shoal.verify`, which shares no arithmetic with the engine.

        Both frames must be as they were. They are written to a folder for temporary files that only its owner can
        read, and removed. `print` shows the verdict in words.
        """
        return self._judge().verdict

    def report(self, path: str | Path | None = None) -> dict[str, Any]:
        """Return what `shoal report` writes of the release, judged as by `verify`; write the page if there is a path.

        Nothing of a single record is in it. ConfigError if the name does not end in .html.
        """
        from shoal.reports import html_of, origin_of, report_of, require_page_name  # noqa: PLC0415 - as above

        if path is not None:
            require_page_name(str(path))
        found = report_of(self._policy, self._judge(), is_table=not self._is_stream) | {"made": origin_of({})}
        if path is not None:
            with open_output(str(path)) as file:
                file.write(html_of(found).encode())
        return found

    def _judge(self) -> JudgedRelease:
        from shoal.audit import judge  # noqa: PLC0415 - only who asks for it needs the judge

        policy, outcome = self._policy, self._outcome
        with TemporaryDirectory(prefix="shoal-") as folder:
            names = ("original.parquet", "released.parquet", "evidence.jsonl", "quarantine.jsonl")
            original, released, evidence, quarantine = (Path(folder, name) for name in names)
            pq.write_table(NativeFrame(self._original).to_arrow(policy.attributes), original)
            pq.write_table(NativeFrame(self.table).released_arrow(policy), released)
            evidence.write_bytes(outcome.evidence)
            quarantine.write_bytes(outcome.unpublished)
            is_table = not self._is_stream
            return judge(policy, original, released, evidence, self.summary, quarantine=quarantine, table=is_table)

    def _facts(self) -> dict[str, str]:
        """Return what a person reads of the release: counts and losses, no value of a record."""
        report = self._outcome.report
        facts = {
            "input": f"{self._kind}, {report.records_in:,} records",
            "released": f"{report.released:,} records of {len(self._policy.published)} columns",
            "left out": f"{report.suppressed:,} suppressed, {report.refusals.total:,} refused",
            "clusters": f"{self.summary['clusters']:,}, each of at least {self._policy.k} people",
        }
        if report.loss.mean is not None:
            attribute, loss = report.loss.worst[0]
            facts["mean loss"] = f"{percent(report.loss.mean)}; worst {attribute.name}, {percent(loss)}"
        return facts

    def __repr__(self) -> str:
        """Return the facts, one a line."""
        return "\n".join(["Release", *(f"  {name}: {text}" for name, text in self._facts().items())])

    def _repr_html_(self) -> str:
        """Return the facts as a table."""
        rows = "".join(f"<tr><th>{name}</th><td>{escape(text)}</td></tr>" for name, text in self._facts().items())
        return f"<table><caption>Release</caption>{rows}</table>"


def anonymize_table(
    table: Frame, policy: str | Path | Mapping[str, Any] | Policy, *, stream: bool = False
) -> Release[Frame]:
    """Make a data frame k-anonymous: the same rows as `shoal batch` makes of the same table in a file.

    Parameters
    ----------
    table : pandas.DataFrame, polars.DataFrame or pyarrow.Table
        Records, with a column for each attribute of the policy; not modified.
    policy : path, mapping or Policy
        A policy file, its content as plain values, or a loaded policy.
    stream : bool
        Whether the rows are anonymized in their order as a stream, as `shoal pipe` does; the policy needs ``stream``.

    Returns
    -------
    Release
        With ``table``, ``summary``, ``evidence``, ``verify()`` and ``report(path)``.

    Raises
    ------
    ParameterError, PolicyError
        ``table`` is no frame of these kinds, or the policy has faults.
    InputError
        The frame cannot be used: an undeclared or a missing column, a type that does not fit, a value that is refused,
        no records. The message names the column and what to do, and no value.
    GuaranteeError
        A cluster violates an invariant; nothing is returned.

    Notes
    -----
    Missing values are None, NaN, NA and NaT, and the texts of ``missing_values``.

    Rows are sorted by their published bytes and get a new index. Only a table with ``table: {keep_order: true}`` keeps
    its order and index, which must be unnamed, different whole numbers. Nothing else of the input passes: no metadata,
    no category that is not published.

    A column keeps its type if that can hold every value that the policy publishes:

    - confidential and other: always, but times of day become texts, and durations are refused;
    - numbers: integers if the resolution is a whole number, else float64;
    - dates and timestamps with the time zone of the input; a text if a date would need a time of day;
    - categories: those that are published, in the order of the input if it is an ordered one, else sorted;
    - nominal with a taxonomy: texts, or categories of texts.

    Integers of pandas that may be missing are float64 or Int64, as in the input.
    """
    started = time.monotonic()
    resolved = _policy_of(policy)
    frame = NativeFrame(table)
    frame.require_columns(resolved)
    if stream:
        resolved.require_stream()
    elif resolved.keep_order:
        frame.require_index()
    source = frame.to_arrow(resolved.attributes)
    if not len(source):
        raise InputError(f"{NAME}: has no rows; give at least as many people as privacy.k")
    encoder = JsonEncoder(resolved)
    max_bytes = DEFAULT_MAX_BYTES if resolved.kafka is None else resolved.kafka.max_record_bytes
    size = BATCH_SIZE if stream else ROWS_PER_GROUP
    options = ReadOptions(NAME, max_bytes, with_columns=not stream)
    records = read_arrow(source, resolved, encoder, options, block_size=size)
    if stream:
        compile_if_large(len(source), form=resolved.fingerprint)
    outcome = (_release_stream if stream else _release_table)(resolved, encoder, records, started)
    if outcome.report.is_empty:
        raise InputError(_nothing_released(outcome.report))
    published = published_arrow(outcome.rows, resolved, plain_schema(source.schema), is_table=not stream)
    made = frame.with_columns(published, resolved, source, outcome.records)
    return Release(made, outcome.summary, resolved, table, outcome, stream, frame.kind)


def _policy_of(given: object) -> Policy:
    if isinstance(given, Policy):
        return given
    if isinstance(given, str | Path):
        return Policy.load(given)
    if isinstance(given, Mapping):
        return Policy.from_mapping(given)
    raise ParameterError("policy: must be a path, a mapping or a Policy")


def _release_table(policy: Policy, encoder: JsonEncoder, source: RecordSource, started: float) -> _Outcome:
    """Release the records as `shoal batch` does."""
    table = TablePipeline(policy, encoder)
    refusals, _ = read_table(table, source, NAME, policy, lambda _: None)
    release = table.release(AlgorithmSpec(), keep_order=policy.keep_order)
    return _Outcome(
        release.rows,
        np.sort(release.offsets) if policy.keep_order else None,
        encode_evidence(enumerate(release.clusters()), policy.fingerprint),
        encode_unpublished(NAME, release),
        release.summary | {"elapsed_s": time.monotonic() - started, "policy": policy.fingerprint},
        report_table(policy, release, refusals),
    )


def _release_stream(policy: Policy, encoder: JsonEncoder, source: RecordSource, started: float) -> _Outcome:
    """Release the records as `shoal pipe` does."""
    pipeline, refusals = PartitionPipeline(policy, encoder), RefusalCounter()
    rows, evidence, unpublished = io.BytesIO(), io.BytesIO(), io.BytesIO()
    writer = OutputWriter(encoder, rows, evidence, unpublished, NAME, release_strategy(policy))
    process_records(pipeline, source, writer, None, refusals, lambda _: None, lambda _: None)
    summary = summarize_stream(policy, pipeline, time.monotonic() - started)
    report = report_stream(policy, pipeline, refusals)
    return _Outcome(rows.getvalue().splitlines(), None, evidence.getvalue(), unpublished.getvalue(), summary, report)


def _nothing_released(report: RunReport) -> str:
    """Return why a frame has no release."""
    kinds = "; ".join(report.refusals.texts(report.records_in))
    reasons = f"{kinds}; what to change: {report.refusals.remedy()}" if kinds else "give more records, or a smaller k"
    return f"{NAME}: no record of {report.records_in:,} can be released: {reasons}"
