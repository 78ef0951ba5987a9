"""Read, decide, write: `shoal pipe`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import BinaryIO, NoReturn, cast

import numpy as np
from tqdm import tqdm

from shoal.flow import Accounts, Admission, Flow, Outcome
from shoal.pipe.desk import Clock, Desk
from shoal.pipe.files import PIPE, Files, Form, opened_for_appending, opened_for_reading, opened_for_writing
from shoal.pipe.follow import Followed, followed
from shoal.policy import Policy
from shoal.records import (
    Block,
    CsvDecoder,
    CsvEncoder,
    CsvReader,
    Encoder,
    JsonDecoder,
    JsonLines,
    Reason,
    RecordEncoder,
    StoppedReading,
    WrappedLines,
)

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
    form, target_form = files.forms
    encoder: RecordEncoder = CsvEncoder(policy) if target_form == "csv" else Encoder(policy)
    flow = Flow(policy, encoder)
    opened = opened_for_writing if stop is None else opened_for_appending
    follow: Followed | None = None
    with ExitStack() as stack:
        if stop is None:
            source = stack.enter_context(opened_for_reading(files.source))
        else:
            follow = stack.enter_context(followed(files.source, stop))
            source = cast("BinaryIO", follow)
        # An output that grows must not begin before the input is known to be one.
        try:
            blocks = _blocks(source, form, policy, encoder, files.source)
        except StoppedReading:
            blocks = iter(())
        target = stack.enter_context(opened(files.target))
        evidence, quarantine = (
            None if name is None else stack.enter_context(opened(name, private=True))
            for name in (files.evidence, files.quarantine)
        )
        summary = None if files.summary is None else stack.enter_context(opened_for_writing(files.summary))
        desk = Desk(encoder, target, evidence, quarantine, Path(files.source).name)
        header = encoder.header()
        if header is not None:
            target.write(encoder.lines([header]))
        _decide(flow, blocks, desk, follow)
        if summary is not None:
            told = flow.accounts.summary(flow.held, time.monotonic() - began)
            summary.write(json.dumps(told, indent=2).encode() + b"\n")
    if follow is not None and follow.fault is not None:
        raise follow.fault


def _blocks(
    source: BinaryIO, form: Form, policy: Policy, encoder: RecordEncoder, name: str
) -> Iterator[tuple[Block, int]]:
    """Read a CSV header at once; then yield blocks and how many records were read for each, accepted or not."""
    name = "standard input" if name == PIPE else name
    if form == "csv":
        reader = CsvReader(source, policy, name=name)
        cells = CsvDecoder(policy, reader.columns, encoder=encoder)
        return ((cells.take(part), len(part)) for part in reader)
    messages = JsonDecoder(policy, encoder=encoder)
    if policy.from_envelope:
        wrapped = WrappedLines(source, policy, name=name)
        return ((messages.take(values, around), len(values)) for values, around in wrapped)
    return ((messages.take(part), len(part)) for part in JsonLines(source))


def _decide(flow: Flow, blocks: Iterator[tuple[Block, int]], desk: Desk, follow: Followed | None) -> None:
    """Take block after block, and write what each of them led to."""
    first = 0
    per_subject = flow.policy.per_subject
    admission = None if per_subject is None else Admission(per_subject)
    clock = Clock(flow.policy.streaming().max_delay_s) if follow is not None else None
    if clock is not None and follow is not None:
        follow.idle = partial(_let_go, flow, desk, clock)
    with _bar() as bar, suppress(StoppedReading):
        for decoded, count in blocks:
            block = decoded if admission is None else admission.admit(decoded, decoded.index + first)
            _note(flow.accounts, block, count)
            places = block.index + first
            refused = [(first + place, reason.value) for place, reason in block.rejected]
            first += count
            now = 0 if clock is None else clock.read(places.tolist())
            marks = np.column_stack([np.full_like(places, now), places])
            outcome = flow.push(block, marks) if len(block) else Outcome([], [])
            desk.write(outcome, refused)
            if clock is not None:
                clock.forget(outcome)
            bar.update(count)
    desk.write(flow.flush())


def _let_go(flow: Flow, desk: Desk, clock: Clock) -> None:
    """Let everything held leave when the oldest has waited for as long as it may and nothing more comes.

    Fewer people than `privacy.min_population` go on waiting: a clock must not part them from those who come later.
    """
    fewest = flow.policy.min_population
    if clock.is_overdue() and (fewest is None or flow.population >= fewest):
        outcome = flow.flush()
        desk.write(outcome)
        clock.forget(outcome)


def _note(accounts: Accounts, block: Block, count: int) -> None:
    accounts.records_in += count
    accounts.clipped += block.clipped
    for _, reason in block.rejected:
        (accounts.suppressed if reason is Reason.SUPPRESSED else accounts.quarantined)[reason.value] += 1


def _bar() -> tqdm[NoReturn]:
    """A progress bar on a terminal, nothing in a pipe."""
    return tqdm(unit=" records", unit_scale=True, disable=not sys.stderr.isatty(), file=sys.stderr)
