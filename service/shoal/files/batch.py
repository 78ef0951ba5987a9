"""Read a whole table, partition it, write it: `shoal batch`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from shoal.errors import ConfigError, InputError
from shoal.files.background import BackgroundRunner
from shoal.files.output_writer import evidence_of, references_to
from shoal.files.outputs import PIPE, AtomicOutputs, Files, RowSink, Whole, opened_for_reading
from shoal.files.progress_bar import bar, ticking
from shoal.files.sources import Source, open_source, parquet
from shoal.observability import logger
from shoal.pipeline import AlgorithmSpec, TablePipeline, TableRelease
from shoal.policy import Policy
from shoal.records import CsvEncoder, JsonEncoder, Reason, RecordEncoder

__all__ = ["run_batch"]

LOST = (
    "NOT K-ANONYMOUS: each block of columns is, but whoever knows values of several blocks can find the record among "
    "fewer than k, and mostly alone"
)
APPROXIMATE = "approximate loses so many times as much as MDAV, refined alike; auto loses less than both"
ONE_CLUSTER = (
    "ONE CLUSTER: all rows have the same quasi-identifiers, since only all joined keep privacy.t and max_share: "
    "use auto, or ask for less"
)
AT_ONCE = 10_000
"""Rows that are put together for one write."""


def run_batch(policy: Policy, files: Files, choice: AlgorithmSpec, *, keep_order: bool = False) -> None:
    """Anonymize a finished table and write what is asked for beside it.

    Parameters
    ----------
    policy : Policy
        What is protected and how strongly.
    files : Files
        Source, target, formats, summary, evidence, references.
    choice : Choice
        Algorithm, refinement, parameters and seed.
    keep_order : bool
        Whether rows stay in the order of the input.

    Raises
    ------
    InputError, ConfigError
        A file cannot be used, or a record of it: file, line, column and reason are told; nothing is written.
    GuaranteeError
        Something was about to leave that must not.
    """
    began = time.monotonic()
    form, target_form = files.forms
    if "parquet" in {form, target_form}:
        parquet()
    encoder: RecordEncoder = CsvEncoder(policy) if target_form == "csv" else JsonEncoder(policy)
    with BackgroundRunner() as aside, AtomicOutputs() as drafts, ExitStack() as stack:
        file = stack.enter_context(opened_for_reading(files.source))
        source = open_source(file, form, policy, encoder, files.source, keep=True)
        target = drafts.open(files.target)
        beside = (files.evidence, files.quarantine, files.summary)
        evidence, quarantine, summary = (None if name is None else drafts.open(name, private=True) for name in beside)
        table = TablePipeline(policy, encoder)
        _read(table, source, file, files.source)
        with ticking("clustering"):
            release = aside.do(lambda: _released(table, policy.k, choice, files, keep_order=keep_order))
        # Evidence first: of rows that went down a pipe somebody must know whose they were.
        if evidence is not None:
            evidence.write(evidence_of(enumerate(release.clusters())))
        if quarantine is not None:
            why = Reason.SUPPRESSED.value
            refused = ((place, why) for place in release.suppressed.tolist())
            quarantine.write(references_to(Path(files.source).name, refused))
        if summary is not None:
            told = release.summary | {"elapsed_s": time.monotonic() - began}
            summary.write(json.dumps(told, indent=2).encode() + b"\n")
        if isinstance(target, Whole):
            drafts.place()
        if target_form == "parquet":
            _write_pieces(target, parquet().encode_parquet(release.rows, policy, source.schema))
        else:
            _write_rows(target, encoder, release.rows)


def _read(table: TablePipeline, source: Source, file: BinaryIO, path: str) -> None:
    """Take all records; the first that does not fit ends it."""
    name = "standard input" if path == PIPE else path
    size = Path(path).stat().st_size if path != PIPE and Path(path).is_file() else None
    with bar(desc="reading", total=size, unit="B", unit_scale=True) as shown:
        first, unit = 0, "line" if source.schema is None else "row"
        for block, read in source.blocks:
            if block.rejected:
                place, _ = block.rejected[0]
                fault = f"{name}, {unit} {source.line_of(first + place)}{source.fault_of(read[place])}"
                raise InputError(f"{fault}; mend the record or take it out: a table is released whole or not at all")
            for place, fault in table.too_large(block):
                raise InputError(f"{name}, {unit} {source.line_of(first + place)}, {fault}")
            table.add(block)
            first += len(read)
            if size is not None and source.schema is None:
                shown.update(file.tell() - shown.n)


def _released(table: TablePipeline, k: int, choice: AlgorithmSpec, files: Files, *, keep_order: bool) -> TableRelease:
    """Partition the table; warn where the joint record is not k-anonymous."""
    if choice.blocks and files.evidence is not None:
        raise ConfigError("--evidence: blocks have no clusters of whole records; leave it out, or --param blocks")
    release = table.release(choice, keep_order=keep_order)
    if "jointly_k_anonymous" in release.summary:
        logger("batch").warning(LOST, blocks=choice.blocks)
    if release.summary["gap"] is not None:
        logger("batch").info("above the proven bound by at most", percent=round(100 * release.summary["gap"], 3))
    if release.summary["clusters"] == 1 and release.summary["released"] >= 2 * k:
        logger("batch").warning(ONE_CLUSTER)
    mdav = release.summary.get("mdav", {}).get("sse")
    if mdav and (times := round(release.summary["sse"] / mdav, 2)) > 1:
        logger("batch").warning(APPROXIMATE, times_mdav=times)
    return release


def _write_pieces(target: RowSink, pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        target.write(piece)


def _write_rows(target: RowSink, encoder: RecordEncoder, rows: list[bytes]) -> None:
    header = encoder.header()
    if header is not None:
        target.write(encoder.encode_lines([header]))
    with bar(desc="writing", total=len(rows), unit=" records", unit_scale=True) as shown:
        for start in range(0, len(rows), AT_ONCE):
            part = rows[start : start + AT_ONCE]
            target.write(encoder.encode_lines(part))
            shown.update(len(part))
