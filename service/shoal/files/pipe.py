"""Anonymize a file or a pipe as a stream: `shoal pipe`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO, cast

import msgspec
import numpy as np

from shoal.errors import ConfigError
from shoal.files.files import (
    AtomicOutputs,
    Files,
    FollowedFile,
    RowSink,
    open_appending,
    open_followed,
    open_input,
    open_source,
)
from shoal.files.run import LossReport, RunReport, dropped_messages, reading_bar
from shoal.formats import Block, Reason, RecordEncoder, RecordSource, RefusalCounter, StoppedReading
from shoal.observability import KernelCompiler, logger
from shoal.policy import Policy
from shoal.streams import BlockDecisions, PartitionPipeline, ReleaseStrategy, RunSummary, release_strategy


def run_pipe(policy: Policy, files: Files, stop: Event | None = None) -> RunReport:
    """Read a source as a stream and write its outputs.

    With ``stop`` the source is followed until it is set, and outputs are written as records are released; only then
    ``max_delay_s`` applies, and it counts from the time at which a record was read. Without it the source is read to
    its end, and outputs appear when everything is written. Without ``stop``, no incomplete file is left if a file
    cannot be used (InputError, ConfigError), or if a decision violates an invariant (GuaranteeError).
    """
    started = time.monotonic()
    _require_whole_clusters(policy, follows=stop is not None)
    source_format, target_format = files.formats(is_stream=True)
    encoder = target_format.encoder(policy)
    follow: FollowedFile | None = None
    with AtomicOutputs() as outputs, ExitStack() as stack:

        def open_output(name: str, *, private: bool = False) -> RowSink:
            if stop is None:
                return outputs.open(name, private=private)
            return stack.enter_context(open_appending(name, private=private))

        if stop is None:
            source = stack.enter_context(open_input(files.source))
        else:
            follow = stack.enter_context(open_followed(files.source, stop))
            source = cast("BinaryIO", follow)
        target = open_output(files.target)
        evidence, quarantine = (
            None if name is None else open_output(name, private=True) for name in (files.evidence, files.quarantine)
        )
        # The summary is private: its sums are exact, and differences of sums reveal values.
        summary = None if files.summary is None else outputs.open(files.summary, private=True)
        records: RecordSource | None = None
        with suppress(StoppedReading):
            records = open_source(source, source_format, policy, encoder, files.source)
        compiler = stack.enter_context(KernelCompiler(policy, logger("pipe")))
        pipeline = PartitionPipeline(policy, encoder)
        writer = OutputWriter(encoder, target, evidence, quarantine, Path(files.source).name, release_strategy(policy))
        if (header := encoder.header()) is not None:
            target.write(encoder.encode_lines([header]))
        refusals = RefusalCounter(policy.k)
        if records is not None:
            with reading_bar(files.source, records.unit, source if follow is None else None) as advance:
                process_records(pipeline, records, writer, follow, refusals, advance, compiler.advance)
        if summary is not None:
            contents = summarize_stream(policy, pipeline, time.monotonic() - started)
            summary.write(json.dumps(contents, indent=2).encode() + b"\n")
    if follow is not None and follow.fault is not None:
        raise follow.fault
    return report_stream(policy, pipeline, refusals)


def report_stream(policy: Policy, pipeline: PartitionPipeline, refusals: RefusalCounter) -> RunReport:
    """Return what a run did."""
    summary = pipeline.summary
    losses = summary.losses
    return RunReport(
        summary.records_in,
        summary.released,
        summary.suppressed.total(),
        LossReport(policy, losses.by_attribute(), losses.categories, losses.clocks),
        refusals,
        summary.information_loss,
        summary.unknown,
        summary.dropped.total(),
    )


def process_records(
    pipeline: PartitionPipeline,
    records: RecordSource,
    writer: OutputWriter,
    follow: FollowedFile | None,
    refusals: RefusalCounter,
    advance: Callable[[int], None],
    compile_beside: Callable[[int], None],
) -> None:
    """Process all blocks and write the decisions on each; flush at the end.

    With ``follow``, the source is followed, and records have the time at which they were read. ``advance`` is called
    with the number of records of each block, ``compile_beside`` with the number of held records before each.
    """
    block_start = 0
    timer = HoldTimer(pipeline.policy.require_stream().max_delay_s) if follow is not None else None
    if timer is not None and follow is not None:
        follow.on_idle = partial(_flush_if_overdue, pipeline, writer, timer)
    with suppress(StoppedReading):
        for decoded, lines in records.blocks:
            count = len(lines)
            for _, reason, faults in records.refused(decoded, lines):
                refusals.add(reason.value, faults)
            pipeline.summary.unknown.update(pipeline.count_unknown(decoded))
            block = pipeline.apply_quota(decoded, decoded.index + block_start)
            _count_read(pipeline.summary, block, count)
            offsets = block.index + block_start
            rejected = [(block_start + index, reason.value) for index, reason in block.rejected]
            block_start += count
            now_ms = 0 if timer is None else timer.start(offsets.tolist())
            expiry_keys = np.column_stack([np.full_like(offsets, now_ms), offsets])
            compile_beside(pipeline.waiting_count)
            decisions = pipeline.push(block, expiry_keys) if len(block) else BlockDecisions([], [])
            writer.write(decisions, rejected)
            if timer is not None:
                timer.stop(decisions)
            advance(count)
    compile_beside(pipeline.waiting_count)
    writer.write(pipeline.flush())


@dataclass(frozen=True, slots=True)
class OutputWriter:
    """Writes what a stream decides: rows, evidence, and references to unpublished records, which name ``topic``.

    Guarantee: a row is written after the evidence of its cluster. All rows of a cluster that is released as a whole are
    written by one call.
    """

    encoder: RecordEncoder
    target: RowSink | None
    evidence: RowSink | None
    quarantine: RowSink | None
    topic: str
    release: ReleaseStrategy

    def write(self, decisions: BlockDecisions, rejected: Sequence[tuple[int, str]] = ()) -> None:
        """Write the decisions on a block, and references to its rejected records (offset and reason)."""
        for clusters, rows in self.release.writes(decisions):
            # Evidence first: every row in the output has evidence, even if the process is stopped in between.
            for cluster in clusters:
                if self.evidence is not None:
                    self.evidence.write(encode_evidence([(cluster.number, cluster.offsets)], cluster.policy))
            if rows and self.target is not None:
                self.target.write(self.encoder.encode_lines(rows))
        unpublished = [*rejected, *((offset, Reason.SUPPRESSED.value) for offset in decisions.suppressed)]
        if self.quarantine is not None and unpublished:
            self.quarantine.write(encode_references(self.topic, unpublished))


class HoldTimer:
    """Tells when a record has been held for ``max_delay_s`` seconds; None: never."""

    def __init__(self, max_delay_s: float | None) -> None:
        self._max_delay_s = max_delay_s
        self._read_at: dict[int, float] = {}

    def start(self, offsets: Iterable[int]) -> int:
        """Start the time of records that are read now; return the time in ms, from a monotonic clock."""
        now = time.monotonic()
        if self._max_delay_s is not None:
            self._read_at.update(dict.fromkeys(offsets, now))
        return round(now * 1000)

    def stop(self, decisions: BlockDecisions) -> None:
        """Stop the time of records that are released or suppressed."""
        for offset in (*decisions.suppressed, *decisions.released):
            self._read_at.pop(offset, None)

    def is_overdue(self) -> bool:
        """Whether the oldest held record has reached the limit."""
        if self._max_delay_s is None or not self._read_at:
            return False
        return time.monotonic() - next(iter(self._read_at.values())) >= self._max_delay_s


def encode_evidence(clusters: Iterable[tuple[int, list[int]]], fingerprint: str) -> bytes:
    """Return one JSON line for each cluster: its number, the offsets of its members, the fingerprint of the policy."""
    return msgspec.json.Encoder().encode_lines(
        [{"partition": 0, "cluster": number, "offsets": offsets, "policy": fingerprint} for number, offsets in clusters]
    )


def encode_references(topic: str, unpublished: Iterable[tuple[int, str]]) -> bytes:
    """Return one JSON line for each record that is not published: its offset and the reason."""
    return msgspec.json.Encoder().encode_lines(
        [{"topic": topic, "partition": 0, "offset": offset, "reason": reason} for offset, reason in unpublished]
    )


def _require_whole_clusters(policy: Policy, *, follows: bool) -> None:
    if follows and policy.require_stream().is_ordered:
        raise ConfigError(
            "--follow: cannot keep stream.release: ordered, because after a crash it is not known which records of a "
            "cluster were written; use release: cluster, or shoal run"
        )


def summarize_stream(policy: Policy, pipeline: PartitionPipeline, elapsed_s: float) -> dict[str, Any]:
    """Return the contents of the summary file: totals, the adaptive state at the end, the fingerprint of the policy."""
    summary = pipeline.summary
    totals = summary.as_dict(pipeline.waiting_count, elapsed_s) | pipeline.adaptive_state.as_dict(policy)
    return totals | dropped_messages(policy, summary.dropped) | {"policy": policy.fingerprint}


def _flush_if_overdue(pipeline: PartitionPipeline, writer: OutputWriter, timer: HoldTimer) -> None:
    """Flush all held records if the oldest has reached ``max_delay_s`` and the source has no more data.

    Fewer subjects than ``privacy.min_population`` are not flushed: an attacker could have added all but one of them.
    """
    if timer.is_overdue() and pipeline.has_min_population:
        decisions = pipeline.flush()
        writer.write(decisions)
        timer.stop(decisions)


def _count_read(summary: RunSummary, block: Block, count: int) -> None:
    summary.records_in += count - len(block.dropped)
    summary.dropped.update(reason.value for _, reason in block.dropped)
    summary.clipped += block.clipped
    for _, reason in block.rejected:
        (summary.suppressed if reason is Reason.SUPPRESSED else summary.quarantined)[reason.value] += 1
