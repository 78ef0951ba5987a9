"""Anonymize the beginning of a file in memory, to tell what a policy keeps of it: `shoal check -i`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from shoal.errors import InputError
from shoal.files.background import BackgroundRunner, elapsed_time, log_if_slow, reading_bar
from shoal.files.batch import report_table
from shoal.files.files import FileFormat, Files, open_input
from shoal.files.pipe import OutputWriter, compiled_pipeline, process_records, report_stream
from shoal.files.report import RunReport
from shoal.files.sources import RecordSource, open_source
from shoal.formats import Block, JsonEncoder, RecordEncoder, RefusalCounter
from shoal.observability import TABLE_COMPILE_S, CompilationNotice, logger, stream_compile_s
from shoal.policy import Policy
from shoal.streams import release_strategy
from shoal.tables import AlgorithmSpec, TablePipeline

__all__ = ["MOST_RECORDS", "run_sample"]

MOST_RECORDS = 20_000
"""Records of a sample."""
SLOW = "still anonymizing the sample"


class _Nowhere:
    """An output that is not written."""

    def write(self, data: bytes) -> None:
        """Do nothing."""


def run_sample(policy: Policy, source: str, source_format: FileFormat | None) -> RunReport:
    """Anonymize the first `MOST_RECORDS` records as a stream, or as a table if the policy has no stream section.

    Parameters
    ----------
    policy : Policy
    source : str
        Path of the input; ``-`` is standard input.
    source_format : FileFormat or None
        Format where the suffix of the path does not give it.

    Returns
    -------
    RunReport
        Numbers of records, and the loss. Invalid records are counted and left out, also of a table.

    Raises
    ------
    InputError, ConfigError
        The file cannot be used, or no record of a table can be released.
    GuaranteeError
        A decision violates an invariant.
    """
    is_stream = policy.stream is not None
    files = Files(source, source, source_format)
    file_format = (files.stream_formats() if is_stream else files.formats)[0]
    encoder = JsonEncoder(policy)
    about_s = stream_compile_s(policy) if is_stream else TABLE_COMPILE_S
    log = logger("check")
    with BackgroundRunner() as background, open_input(source) as file, CompilationNotice(log, about_s):
        opened = open_source(file, file_format, policy, encoder, source, with_columns=not is_stream)
        records = replace(opened, blocks=_first_records(opened.blocks))
        if not is_stream:
            with log_if_slow(log, SLOW), elapsed_time("clustering"):
                return background.run(lambda: _sample_table(policy, encoder, records))
        pipeline = background.run(lambda: compiled_pipeline(policy, encoder))
        writer = OutputWriter(encoder, _Nowhere(), None, None, "", release_strategy(policy))
        refusals = RefusalCounter()
        with log_if_slow(log, SLOW), reading_bar(source, file.tell) as advance:
            process_records(pipeline, records, writer, None, refusals, advance)
        return report_stream(policy, pipeline, refusals)


def _first_records(blocks: Iterator[tuple[Block, Sequence[Any]]]) -> Iterator[tuple[Block, Sequence[Any]]]:
    left = MOST_RECORDS
    for block, records in blocks:
        if len(records) > left:
            chosen = int((block.index < left).sum())
            rejected = [one for one in block.rejected if one[0] < left]
            dropped = [one for one in block.dropped if one[0] < left]
            yield replace(block.slice(slice(0, chosen)), rejected=rejected, dropped=dropped), records[:left]
        else:
            yield block, records
        left -= len(records)
        if left <= 0:
            return


def _sample_table(policy: Policy, encoder: RecordEncoder, source: RecordSource) -> RunReport:
    table, refusals, first_record = TablePipeline(policy, encoder), RefusalCounter(), 0
    for block, records in source.blocks:
        for index, reason in block.rejected:
            refusals.add(reason.value, source.describe(records[index], reason))
            table.quarantine(first_record + index)
        for _, fault in table.find_oversized(block):
            raise InputError(fault)
        table.add(block, first_record)
        first_record += len(records)
    return report_table(policy, table.release(AlgorithmSpec()), refusals)
