"""What a policy keeps of a sample (`shoal check -i`), and the reference that is made from one (`shoal reference`)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from shoal.errors import ConfigError, InputError
from shoal.files.batch import report_table
from shoal.files.files import Files, open_input, open_output, open_source
from shoal.files.pipe import OutputWriter, process_records, report_stream
from shoal.files.run import BackgroundRunner, ProgressDisplay, RunReport, reading_bar
from shoal.formats import Block, JsonEncoder, RecordEncoder, RecordSource, RefusalCounter
from shoal.kernels.pieces import Progress, telling
from shoal.observability import TABLE_COMPILE_S, CompilationNotice, KernelCompiler, logger
from shoal.policy import REFERENCE_HEADER, Attribute, Policy
from shoal.streams import PartitionPipeline, release_strategy
from shoal.tables import UNITS, AlgorithmSpec, ReferenceSample, SmoothedReference, TablePipeline


def run_sample(policy: Policy, source: str, source_format: str | None, most: int) -> RunReport:
    """Anonymize the first ``most`` records as a stream, or as a table if the policy has no stream section.

    Invalid records are counted and left out, even of a table. InputError or ConfigError if the file cannot be used or
    no record of a table can be released, GuaranteeError if a decision violates an invariant.
    """
    is_stream = policy.stream is not None
    file_format = Files(source, source_format=source_format).input_format(is_stream=is_stream)
    encoder = JsonEncoder(policy)
    log = logger("check")
    with BackgroundRunner() as background, open_input(source) as file:
        opened = open_source(file, file_format, policy, encoder, source, with_columns=not is_stream)
        records = replace(opened, blocks=_first_records(opened.blocks, most))
        if not is_stream:
            with CompilationNotice(log, TABLE_COMPILE_S), ProgressDisplay("clustering") as display:
                return background.run(lambda: _sample_table(policy, encoder, records, display.tell))
        pipeline = PartitionPipeline(policy, encoder)
        writer = OutputWriter(encoder, None, None, None, "", release_strategy(policy))
        refusals = RefusalCounter(policy.k)
        with KernelCompiler(policy, log) as compiler, reading_bar(source, opened.unit, file) as advance:
            process_records(pipeline, records, writer, None, refusals, advance, compiler.advance)
        return report_stream(policy, pipeline, refusals)


class SampleBlocks(NamedTuple):
    """The first records of a source: blocks with the number of their messages, and what was refused."""

    blocks: list[tuple[Block, int]]
    records: int
    refusals: RefusalCounter
    is_cut: bool


def read_blocks(policy: Policy, source: str, source_format: str | None, most: int) -> SampleBlocks:
    """Decode the first ``most`` records of a file, with the columns of what is published unchanged.

    InputError or ConfigError if it cannot be used.
    """
    file_format = Files(source, source_format=source_format).input_format()
    found: list[tuple[Block, int]] = []
    refusals, count = RefusalCounter(policy.k), 0
    with open_input(source) as file:
        opened = open_source(file, file_format, policy, JsonEncoder(policy), source, with_columns=True)
        for block, records in _first_records(opened.blocks, most):
            for _, reason, faults in opened.refused(block, records):
                refusals.add(reason.value, faults)
            found.append((block, len(records)))
            count += len(records)
    return SampleBlocks(found, count, refusals, count >= most)


def choose_attribute(policy: Policy, name: str | None) -> Attribute:
    """Return the confidential attribute whose values are counted; ConfigError if there is none, or several.

    Without a name it is the only protected attribute; without any, the only confidential one.
    """
    names = [attribute.name for attribute in policy.confidential]
    if not names:
        raise ConfigError("the policy has no confidential attribute, so there is no distribution to compare with")
    if name is None:
        candidates = policy.protected or policy.confidential
        if len(candidates) > 1:
            listed = ", ".join(attribute.name for attribute in candidates)
            raise ConfigError(f"--attribute: missing; the policy protects several: {listed}; run once for each")
        return candidates[0]
    if name not in names:
        raise ConfigError(f"--attribute {name}: no confidential attribute; give one of: {', '.join(names)}")
    return policy.confidential[names.index(name)]


def run_reference(
    policy: Policy, attribute: Attribute, source: str, source_format: str | None, target: str
) -> SmoothedReference:
    """Read a sample and write the smoothed distribution of a confidential attribute (`ReferenceSample`).

    The log says how many records the policy rejects, and how many values were left out. InputError or ConfigError,
    before anything is written, if the sample cannot be read or has too few subjects.
    """
    file_format = Files(source, source_format=source_format).input_format()
    sample, refusals = ReferenceSample(policy, attribute), RefusalCounter(policy.k)
    with open_input(source) as file, open_output(target) as output:
        opened = open_source(file, file_format, policy, JsonEncoder(policy), source, with_columns=True)
        count = 0
        with reading_bar(source, opened.unit, file) as advance:
            for block, records in opened.blocks:
                for _, reason, faults in opened.refused(block, records):
                    refusals.add(reason.value, faults)
                sample.add(block)
                count += len(records)
                advance(len(records))
        with ProgressDisplay("smoothing"):
            reference = sample.smooth()
        output.write(_encode(reference).encode())
    log = logger("reference")
    if refusals.total:
        log.warning(
            "records that the policy rejects were not counted",
            records=refusals.total,
            refused="; ".join(refusals.texts(count)),
        )
    if reference.unusable:
        log.warning("records with a value that is not on the scale were not counted", records=reference.unusable)
    if reference.left_out:
        log.info("values of too few subjects were left out", values=reference.left_out, fewer_than=policy.k)
    return reference


def _first_records(blocks: Iterator[tuple[Block, Sequence[Any]]], left: int) -> Iterator[tuple[Block, Sequence[Any]]]:
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


def _sample_table(policy: Policy, encoder: RecordEncoder, source: RecordSource, progress: Progress) -> RunReport:
    table, refusals, first_record = TablePipeline(policy, encoder), RefusalCounter(policy.k), 0
    for block, records in source.blocks:
        for index, reason, faults in source.refused(block, records):
            refusals.add(reason.value, faults)
            table.quarantine(first_record + index)
        for _, fault in table.find_oversized(block):
            raise InputError(fault)
        table.add(block, first_record)
        first_record += len(records)
    try:
        with telling(progress):
            release = table.release(AlgorithmSpec())
    except InputError as error:
        kinds = ["; ".join(filter(None, kind)) for kind in refusals.kinds(first_record)]
        raise InputError("; ".join([str(error), *kinds])) from None
    return report_table(policy, release, refusals)


def _encode(reference: SmoothedReference) -> str:
    """Return the file: four decimals per share, which add up to 1."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(REFERENCE_HEADER)
    for row in reference.rows:
        writer.writerow((row.text or "", f"{row.units // UNITS}.{row.units % UNITS:04}"))
    return text.getvalue()
