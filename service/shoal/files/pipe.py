"""Read, decide, write: `shoal pipe`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO, cast

import numpy as np

from shoal.errors import ConfigError
from shoal.files.follow import Followed, followed
from shoal.files.output_writer import Clock, OutputWriter
from shoal.files.outputs import AtomicOutputs, Files, RowSink, opened_for_appending, opened_for_reading
from shoal.files.progress_bar import bar
from shoal.files.sources import open_source
from shoal.pipeline import BlockDecisions, PartitionPipeline, RunSummary, release_strategy
from shoal.policy import Policy
from shoal.records import Block, CsvEncoder, JsonEncoder, Reason, RecordEncoder, StoppedReading

__all__ = ["run_pipe"]


def run_pipe(policy: Policy, files: Files, stop: Event | None = None) -> None:
    """Anonymize a file or a pipe as a stream and write what asked for beside it.

    Parameters
    ----------
    policy : Policy
        With a stream section. ``max_delay_s`` has a meaning only where a file is followed: it counts from when a line
        was read. A file that is read to its end has no clock.
    files : Files
        Source, target, formats, summary and evidence.
    stop : Event, optional
        Follow the source until this is set, and write what leaves as soon as it is decided. Without it the source is
        read to its end, and outputs appear when all is done.

    Raises
    ------
    InputError, ConfigError
        A file cannot be used; nothing is left half written.
    GuaranteeError
        Something was about to leave that must not.
    """
    began = time.monotonic()
    _require_whole_clusters(policy, follows=stop is not None)
    form, target_form = files.stream_forms()
    encoder: RecordEncoder = CsvEncoder(policy) if target_form == "csv" else JsonEncoder(policy)
    flow = PartitionPipeline(policy, encoder)
    follow: Followed | None = None
    with AtomicOutputs() as drafts, ExitStack() as stack:

        def opened(name: str, *, private: bool = False) -> RowSink:
            if stop is None:
                return drafts.open(name, private=private)
            return stack.enter_context(opened_for_appending(name, private=private))

        if stop is None:
            source = stack.enter_context(opened_for_reading(files.source))
        else:
            follow = stack.enter_context(followed(files.source, stop))
            source = cast("BinaryIO", follow)
        # An output that grows must not begin before the input is known to be one.
        try:
            blocks = open_source(source, form, policy, encoder, files.source).blocks
        except StoppedReading:
            blocks = iter(())
        target = opened(files.target)
        evidence, quarantine = (
            None if name is None else opened(name, private=True) for name in (files.evidence, files.quarantine)
        )
        # Its sums are exact: whoever has them computes with them.
        summary = None if files.summary is None else drafts.open(files.summary, private=True)
        desk = OutputWriter(encoder, target, evidence, quarantine, Path(files.source).name, release_strategy(policy))
        header = encoder.header()
        if header is not None:
            target.write(encoder.encode_lines([header]))
        _decide(flow, blocks, desk, follow)
        if summary is not None:
            told = _told(flow, time.monotonic() - began)
            summary.write(json.dumps(told, indent=2).encode() + b"\n")
    if follow is not None and follow.fault is not None:
        raise follow.fault


def _require_whole_clusters(policy: Policy, *, follows: bool) -> None:
    if follows and policy.require_stream().is_ordered:
        raise ConfigError(
            "--follow: cannot keep stream.release: ordered, for after a crash nobody knows who has left with whom; "
            "use release: cluster, or shoal run"
        )


def _told(flow: PartitionPipeline, elapsed_s: float) -> dict[str, Any]:
    """Return the summary; with what the stream has worked out by its end, where the policy leaves it to it."""
    return flow.accounts.summary(flow.held, elapsed_s) | flow.state.told(flow.policy)


def _decide(
    flow: PartitionPipeline, blocks: Iterator[tuple[Block, list[Any]]], desk: OutputWriter, follow: Followed | None
) -> None:
    """Take block after block, and write what each of them led to."""
    first = 0
    clock = Clock(flow.policy.require_stream().max_delay_s) if follow is not None else None
    if clock is not None and follow is not None:
        follow.idle = partial(_let_go, flow, desk, clock)
    with bar(unit=" records", unit_scale=True) as shown, suppress(StoppedReading):
        for decoded, read in blocks:
            count = len(read)
            block = flow.admit(decoded, decoded.index + first)
            _note(flow.accounts, block, count)
            places = block.index + first
            refused = [(first + place, reason.value) for place, reason in block.rejected]
            first += count
            now = 0 if clock is None else clock.read(places.tolist())
            marks = np.column_stack([np.full_like(places, now), places])
            outcome = flow.push(block, marks) if len(block) else BlockDecisions([], [])
            desk.write(outcome, refused)
            if clock is not None:
                clock.forget(outcome)
            shown.update(count)
    desk.write(flow.flush())


def _let_go(flow: PartitionPipeline, desk: OutputWriter, clock: Clock) -> None:
    """Let everything held leave when the oldest has waited for as long as it may and nothing more comes.

    Fewer people than `privacy.min_population` go on waiting: a clock must not part them from those who come later.
    """
    if clock.is_overdue() and flow.is_populous:
        outcome = flow.flush()
        desk.write(outcome)
        clock.forget(outcome)


def _note(accounts: RunSummary, block: Block, count: int) -> None:
    accounts.records_in += count
    accounts.clipped += block.clipped
    for _, reason in block.rejected:
        (accounts.suppressed if reason is Reason.SUPPRESSED else accounts.quarantined)[reason.value] += 1
