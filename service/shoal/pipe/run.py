"""Read, decide, write: `shoal pipe`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, NoReturn

import msgspec
import numpy as np
from tqdm import tqdm

from shoal.flow import Accounts, Admission, Flow, Outcome
from shoal.pipe.files import PIPE, Files, Form, opened_for_reading, opened_for_writing
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
    WrappedLines,
)

__all__ = ["run_pipe"]


def run_pipe(policy: Policy, files: Files) -> None:
    """Anonymize a file or a pipe as a stream and write what asked for beside it.

    Parameters
    ----------
    policy : Policy
        With a stream section. ``max_delay_s`` has no meaning here: a file has no clock.
    files : Files
        Source, target, formats, summary and evidence.

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
    with ExitStack() as stack:
        source = stack.enter_context(opened_for_reading(files.source))
        blocks = _blocks(source, form, policy, encoder, files.source)
        target = stack.enter_context(opened_for_writing(files.target))
        evidence, quarantine, summary = (
            None if name is None else stack.enter_context(opened_for_writing(name, private=private))
            for name, private in ((files.evidence, True), (files.quarantine, True), (files.summary, False))
        )
        header = encoder.header()
        if header is not None:
            target.write(encoder.lines([header]))
        topic = Path(files.source).name
        for outcome, refused in _decided(flow, blocks, _bar()):
            _write(outcome, encoder, target, evidence)
            if quarantine is not None:
                lines = [{"topic": topic, "partition": 0, "offset": place, "reason": why} for place, why in refused]
                quarantine.write(msgspec.json.Encoder().encode_lines(lines))
        if summary is not None:
            told = flow.accounts.summary(flow.held, time.monotonic() - began)
            summary.write(json.dumps(told, indent=2).encode() + b"\n")


def _blocks(
    source: BinaryIO, form: Form, policy: Policy, encoder: RecordEncoder, name: str
) -> Iterator[tuple[Block, int]]:
    """Yield blocks and how many records were read for each, accepted or not."""
    name = "standard input" if name == PIPE else name
    if form == "csv":
        reader = CsvReader(source, policy, name=name)
        cells = CsvDecoder(policy, reader.columns, encoder=encoder)
        yield from ((cells.take(part), len(part)) for part in reader)
    elif policy.from_envelope:
        messages = JsonDecoder(policy, encoder=encoder)
        wrapped = WrappedLines(source, policy, name=name)
        yield from ((messages.take(values, around), len(values)) for values, around in wrapped)
    else:
        messages = JsonDecoder(policy, encoder=encoder)
        yield from ((messages.take(part), len(part)) for part in JsonLines(source))


def _decided(
    flow: Flow, blocks: Iterable[tuple[Block, int]], bar: tqdm[NoReturn]
) -> Iterator[tuple[Outcome, list[tuple[int, str]]]]:
    """Yield what each block led to, and which records are not published and why."""
    first = 0
    per_subject = flow.policy.per_subject
    admission = None if per_subject is None else Admission(per_subject)
    with bar:
        for decoded, count in blocks:
            block = decoded if admission is None else admission.admit(decoded, decoded.index + first)
            _note(flow.accounts, block, count)
            places = block.index + first
            refused = [(first + place, reason.value) for place, reason in block.rejected]
            first += count
            marks = np.column_stack([np.zeros_like(places), places])
            outcome = flow.push(block, marks) if len(block) else Outcome([], [])
            yield outcome, refused + _suppressed(outcome)
            bar.update(count)
        outcome = flow.flush()
        yield outcome, _suppressed(outcome)


def _suppressed(outcome: Outcome) -> list[tuple[int, str]]:
    return [(place, Reason.SUPPRESSED.value) for place in outcome.suppressed]


def _note(accounts: Accounts, block: Block, count: int) -> None:
    accounts.records_in += count
    accounts.clipped += block.clipped
    for _, reason in block.rejected:
        (accounts.suppressed if reason is Reason.SUPPRESSED else accounts.quarantined)[reason.value] += 1


def _write(outcome: Outcome, encoder: RecordEncoder, target: BinaryIO, evidence: BinaryIO | None) -> None:
    for cluster in outcome.clusters:
        target.write(encoder.lines(cluster.rows))
        if evidence is not None:
            line = {"partition": 0, "cluster": cluster.number, "offsets": cluster.places}
            evidence.write(msgspec.json.encode(line) + b"\n")


def _bar() -> tqdm[NoReturn]:
    """A progress bar on a terminal, nothing in a pipe."""
    return tqdm(unit=" records", unit_scale=True, disable=not sys.stderr.isatty(), file=sys.stderr)
