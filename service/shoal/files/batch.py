"""Anonymize a finished table: `shoal batch`, and its options for algorithm, refinement and parameters."""

from __future__ import annotations

import heapq
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from shoal.errors import ConfigError, InputError
from shoal.files.files import AtomicOutputs, Files, RowSink, UnbufferedOutput, open_input, open_source, shown_name
from shoal.files.pipe import encode_evidence, encode_references
from shoal.files.run import (
    BackgroundRunner,
    LossReport,
    ProgressDisplay,
    RunReport,
    dropped_messages,
    reading_bar,
)
from shoal.formats import FaultReason, Reason, RecordEncoder, RecordFault, RecordSource, RefusalCounter
from shoal.kernels.pieces import Progress, telling
from shoal.observability import TABLE_COMPILE_S, CompilationNotice, logger
from shoal.policy import Policy
from shoal.tables import (
    AlgorithmSpec,
    BudgetUsed,
    Parameter,
    TablePipeline,
    TableRelease,
    check_algorithm,
    check_parameters,
    default_refinement,
    parameters_of,
)

NOT_JOINTLY_ANONYMOUS = (
    "NOT K-ANONYMOUS: each block of columns is k-anonymous, but the values of several blocks together identify a "
    "record among fewer than k, mostly uniquely"
)
LOSES_MORE_THAN_MDAV = "approximate loses more than MDAV with the same refinement; auto loses less than both"
NO_T = "t-closeness is not guaranteed: the clusters reached these earth mover's distances"
ONE_CLUSTER = "ONE CLUSTER: all rows have the same quasi-identifiers, because "
KEEP_ORDER_REFUSED = (
    "--keep-order: the policy does not allow it, because a row number then identifies the record of the row; remove "
    "it, or set table: {keep_order: true}"
)
MISSING_VALUE = {FaultReason.EMPTY, FaultReason.NULL, FaultReason.MISSING_VALUE}
"""Reasons of faults by which a record is quarantined; a field that a JSON object lacks is not among them."""
NO_RECORD = {FaultReason.REPEATED_HEADER, FaultReason.FIELD_NAMES}
"""Reasons of faults by which a record is the header of the table, or was made from it; it is quarantined."""


def run_batch(policy: Policy, files: Files, spec: AlgorithmSpec, *, keep_order: bool = False) -> RunReport:
    """Read a table, release it, and write its outputs.

    Nothing is written if a file or a record cannot be used (InputError, ConfigError, with file, line, column and
    reason), or if a cluster violates an invariant (GuaranteeError).
    """
    started = time.monotonic()
    if keep_order and not policy.keep_order:
        raise ConfigError(KEEP_ORDER_REFUSED)
    if spec.blocks and files.evidence is not None:
        raise ConfigError("--evidence: blocks have no clusters of whole records; remove it, or --param blocks")
    check_algorithm(policy, spec)
    source_format, target_format = files.formats()
    encoder = target_format.encoder(policy)
    with BackgroundRunner() as background, AtomicOutputs() as outputs, ExitStack() as stack:
        file = stack.enter_context(open_input(files.source))
        target = outputs.open(files.target)
        optional = (files.evidence, files.quarantine, files.summary)
        evidence, quarantine, summary = (
            None if name is None else outputs.open(name, private=True) for name in optional
        )
        source = open_source(file, source_format, policy, encoder, files.source, with_columns=True)
        table = TablePipeline(policy, encoder)
        with reading_bar(files.source, source.unit, file) as advance:
            quarantined, dropped = read_table(table, source, shown_name(files.source), policy, advance)
        notice = CompilationNotice(logger("batch"), TABLE_COMPILE_S)
        with notice as compilation, ProgressDisplay("clustering") as display:
            release = background.run(lambda: _release(table, policy, spec, display.tell, keep_order=keep_order))
        # Evidence first: rows written to a pipe cannot be taken back, and must have evidence.
        if evidence is not None:
            evidence.write(encode_evidence(enumerate(release.clusters()), policy.fingerprint))
        if quarantine is not None:
            quarantine.write(encode_unpublished(Path(files.source).name, release))
        if summary is not None:
            contents = release.summary | {
                "elapsed_s": time.monotonic() - started - compilation.seconds,
                "policy": policy.fingerprint,
                **dropped_messages(policy, dropped),
            }
            summary.write(json.dumps(contents, indent=2).encode() + b"\n")
        if isinstance(target, UnbufferedOutput):
            outputs.commit()
        has_same_format = type(source_format) is type(target_format)
        _write_rows(target, encoder, release.rows, source.schema if has_same_format else None)
    return report_table(policy, release, quarantined, dropped.total())


def report_table(
    policy: Policy, release: TableRelease, quarantined: RefusalCounter, dropped_count: int = 0
) -> RunReport:
    """Return what a run did; ``quarantined``: the records that were left out."""
    numbers = release.summary
    return RunReport(
        numbers["records"],
        numbers["released"],
        numbers["suppressed"],
        LossReport(policy, numbers["loss"], release.categories, is_table=True),
        quarantined,
        numbers["information_loss"],
        numbers.get("unknown", {}),
        dropped_count,
    )


def encode_unpublished(topic: str, release: TableRelease) -> bytes:
    """Return one JSON line for each record that is not published, by its number."""
    suppressed = ((record, Reason.SUPPRESSED.value) for record in release.suppressed.tolist())
    invalid = ((record, Reason.INVALID.value) for record in release.quarantined.tolist())
    return encode_references(topic, heapq.merge(suppressed, invalid))


def read_table(
    table: TablePipeline, source: RecordSource, name: str, policy: Policy, advance: Callable[[int], None]
) -> tuple[RefusalCounter, Counter[str]]:
    """Add all records to the table; return which were quarantined, and the dropped messages by reason.

    The whole source is read, so that the InputError of invalid records, which calls it ``name``, tells all faults:
    where the first one is, and how many there are for each field and reason. ``advance`` is called with the number of
    records of each block.
    """
    first, refusals, quarantined = "", RefusalCounter(policy.k), RefusalCounter()
    dropped = Counter[str]()
    block_start = 0
    for block, records in source.blocks:
        dropped.update(reason for _, reason in block.dropped)
        for index, reason, faults in source.refused(block, records):
            if _may_be_left_out(faults, policy):
                table.quarantine(block_start + index)
                quarantined.add(reason.value, faults)
                continue
            refusals.add(reason.value, faults)
            first = first or f"{source.unit} {source.line_of(block_start + index)}{faults[0].location}"
        if not first:
            for index, fault in table.find_oversized(block):
                record = block_start + int(block.index[index])
                raise InputError(f"{name}, {source.unit} {source.line_of(record)}, {fault}")
            table.add(block, block_start)
        block_start += len(records)
        advance(len(records))
    if refusals.total:
        text = f"{name}, {first}; correct the record or remove it: a table is released whole or not at all"
        if refusals.total > 1:
            text += f"; {refusals.total:,} records are refused ({'; '.join(refusals.texts(block_start))})"
        text += f"; what to change: {refusals.remedy()}"
        raise InputError(text)
    return quarantined, dropped


def _may_be_left_out(faults: list[RecordFault], policy: Policy) -> bool:
    """Return whether a table may lack a record: a header, or values of ``missing: quarantine`` are missing."""
    clustered = {attribute.name for attribute in policy.clustered}
    missing = MISSING_VALUE if "" in policy.missing_values else MISSING_VALUE - {FaultReason.EMPTY}
    return all(fault.reason in NO_RECORD or (fault.reason in missing and fault.field in clustered) for fault in faults)


def _release(
    table: TablePipeline, policy: Policy, spec: AlgorithmSpec, progress: Progress, *, keep_order: bool
) -> TableRelease:
    """Release the table, and log warnings about the result."""
    with telling(progress):
        release = table.release(spec, keep_order=keep_order)
    log, summary = logger("batch"), release.summary
    if "jointly_k_anonymous" in summary:
        log.warning(NOT_JOINTLY_ANONYMOUS, blocks=spec.blocks)
    if summary["gap"] is not None:
        log.info("loss is above the proven lower bound by at most", percent=round(100 * summary["gap"], 3))
    if "target_t" in spec.parameters:
        reached = {f"emd_{name}": round(value, 4) for name, value in summary["emd"].items()}
        log.warning(NO_T, target_t=spec.parameters["target_t"], **reached)
    if summary["clusters"] == 1 and summary["released"] >= 2 * policy.k:
        log.warning(_one_cluster(policy))
    mdav = summary.get("mdav", {}).get("sse")
    if mdav and (ratio := round(summary["sse"] / mdav, 2)) > 1:
        log.warning(LOSES_MORE_THAN_MDAV, times_mdav=ratio)
    return release


def _one_cluster(policy: Policy) -> str:
    """Return why no smaller cluster can satisfy the policy, and what helps."""
    if limits := policy.value_limits:
        listed = ", ".join(limits)
        return f"{ONE_CLUSTER}no smaller cluster satisfies {listed} and max_share; use auto, or relax the policy"
    return (
        f"{ONE_CLUSTER}one person has so many of the records that no smaller cluster satisfies privacy.max_share; "
        "limit the records of a person, as with privacy.per_subject: {max: 5, window: 1000000}"
    )


def _write_rows(target: RowSink, encoder: RecordEncoder, rows: list[bytes], schema: object) -> None:
    with ProgressDisplay("writing", len(rows), " records") as display:
        for piece, count in encoder.encode_table(rows, schema):
            target.write(piece)
            display.advance(count)


AUTO = "auto"
BLOCKS = "blocks"
"""Quasi-identifiers per block. No message lists it: with several blocks the joint record is not k-anonymous."""
LONGEST_S = 1e6
BUDGETED = ("anneal", "exact")
"""Refinements that end when their budget is used up."""


def parse_algorithm_options(algorithm: str, refine: str | None, given: Sequence[str], seed: int) -> AlgorithmSpec:
    """Return how a table is partitioned, from the options of a command; ``given`` are texts ``NAME=VALUE``.

    Without ``time_s`` the number of changes is fixed, so that the same seed gives the same table. ConfigError if a
    parameter is unknown or its value has the wrong type, ParameterError if the value is outside its range.
    """
    if seed < 0:
        raise ConfigError("--seed: must be 0 or more")
    refine = refine or default_refinement(algorithm)
    own = {} if algorithm == AUTO else parameters_of(algorithm)
    known = own | {BLOCKS: 1} | ({"time_s": 30.0} if refine in BUDGETED else {})
    read = _read_parameters(algorithm, given, known)
    if own:
        check_parameters(algorithm, {name: value for name, value in read.items() if name in own})
    time_s = float(read.pop("time_s")) if "time_s" in read else None
    blocks = int(read.pop(BLOCKS)) if BLOCKS in read else None
    if (blocks is not None and blocks < 1) or (time_s is not None and not 0 < time_s < LONGEST_S):
        raise ConfigError(f"--param: blocks must be 1 or more, time_s above 0 and below {LONGEST_S:g}")
    budget_for = None if time_s is None else _budget_of_seconds(time_s)
    return AlgorithmSpec(algorithm, refine, seed, read, budget_for, blocks or 0)


def _read_parameters(algorithm: str, given: Sequence[str], known: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Return the values of ``NAME=VALUE``, each of its parameter's type."""
    read: dict[str, Parameter] = {}
    for word in given:
        name, is_pair, text = word.partition("=")
        listed = ", ".join(each for each in known if each != BLOCKS) or "no parameter"
        if not is_pair:
            raise ConfigError(f"--param: needs NAME=VALUE; {algorithm} has {listed}")
        if name not in known:
            raise ConfigError(f"--param: unknown name; {algorithm} has {listed}; remove it, or correct the name")
        if name in read:
            raise ConfigError(f"--param {name}: given twice")
        try:
            read[name] = type(known[name])(text)
        except ValueError:
            kind = "a whole number" if isinstance(known[name], int) else "a number"  # a text can be anything
            raise ConfigError(f"--param {name}: needs {kind}") from None
    return read


def _budget_of_seconds(time_s: float) -> Callable[[int, int], BudgetUsed]:
    """Return what makes the budget of each block: its share of the seconds, from its first call on."""

    def budget_for(_: int, blocks: int) -> BudgetUsed:
        began: list[float] = []

        def budget_used(_: int) -> float:
            now = time.monotonic()
            began[:] = began or [now]
            return (now - began[0]) * blocks / time_s

        return budget_used

    return budget_for
