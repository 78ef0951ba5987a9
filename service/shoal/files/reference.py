"""Write the reference of a confidential attribute from a sample: `shoal reference`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from shoal.errors import ConfigError
from shoal.files.background import elapsed_time, reading_bar
from shoal.files.files import FileFormat, open_input, open_output
from shoal.files.sources import RecordSource, open_source
from shoal.formats import Block, JsonEncoder, RefusalCounter
from shoal.observability import logger
from shoal.policy import REFERENCE_HEADER, Attribute, Policy
from shoal.tables import UNITS, ReferenceSample, SmoothedReference

__all__ = ["choose_attribute", "run_reference"]


def choose_attribute(policy: Policy, name: str | None) -> Attribute:
    """Return the confidential attribute whose values are counted.

    Parameters
    ----------
    policy : Policy
    name : str or None
        None selects the only protected attribute; without any, the only confidential one.

    Raises
    ------
    ConfigError
        There is no such attribute, or several.
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
    policy: Policy, attribute: Attribute, source: str, source_format: FileFormat, target: str
) -> SmoothedReference:
    """Read a sample and write the smoothed distribution of one attribute (`ReferenceSample`).

    Records that the policy rejects are not counted. The log says how many there are, and how many values were left out.

    Parameters
    ----------
    policy : Policy
    attribute : Attribute
        A confidential attribute of the policy.
    source : str
        Path of the sample; ``-`` is standard input.
    source_format : {"csv", "jsonl", "parquet"}
    target : str
        Path of the reference; ``-`` is standard output.

    Raises
    ------
    InputError
        The sample cannot be read, or has too few subjects. Nothing is written.
    """
    sample, refusals = ReferenceSample(policy, attribute), RefusalCounter()
    with open_input(source) as file:
        opened = open_source(file, source_format, policy, JsonEncoder(policy), source, with_columns=True)
        can_tell = opened.schema is None and file.seekable()
        count = 0
        with reading_bar(source, file.tell if can_tell else None) as advance:
            for block, read in _blocks(opened, refusals):
                sample.add(block)
                count += read
                advance(read)
    with elapsed_time("smoothing"):
        reference = sample.smooth()
    with open_output(target) as output:
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


def _blocks(source: RecordSource, refusals: RefusalCounter) -> Iterator[tuple[Block, int]]:
    """Yield each block and its number of messages; count the rejected ones."""
    for block, records in source.blocks:
        for index, reason in block.rejected:
            refusals.add(reason.value, source.describe(records[index], reason))
        yield block, len(records)


def _encode(reference: SmoothedReference) -> str:
    """Return the file: four decimals per share, which add up to 1."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(REFERENCE_HEADER)
    for row in reference.rows:
        writer.writerow((row.text or "", f"{row.units // UNITS}.{row.units % UNITS:04}"))
    return text.getvalue()
