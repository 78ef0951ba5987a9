"""What `pipe`, `batch` and others share: the options of files, and the line with which a release ends."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from shoal.errors import ConfigError
from shoal.files import Files, LossReport, RunReport
from shoal.formats import is_notable, streamed_formats
from shoal.observability import (
    escape_control_characters,
    log_refusals,
    logger,
    three_digits,
    warn_unless_representative,
)
from shoal.policy import Policy

ALL_SUPPRESSED = (
    "no cluster satisfied the section privacy: give more records, mark the attribute that is the subject, raise "
    "stream.delta, or lower privacy.k"
)

WITHOUT_EVIDENCE = "with --evidence FILE, the next run can be verified member by member"


def add_file_arguments(parser: argparse.ArgumentParser, formats: str, summary: str, *, read_only: str = "") -> None:
    """Declare input, output, formats, summary, evidence and quarantine.

    For the help text: ``formats`` are the suffixes that the command reads and writes, ``summary`` is what that holds,
    ``read_only`` the suffix of what it only reads.
    """
    inputs = f"{formats}, or {read_only}" if read_only else formats
    parser.add_argument("-i", "--input", default="-", metavar="FILE", help=f"{inputs}; - is standard input")
    parser.add_argument("-o", "--output", default="-", metavar="FILE", help=f"{formats}; - is standard output")
    add_format_arguments(parser)
    parser.add_argument("--summary", metavar="FILE", help=f"{summary}, as JSON")
    parser.add_argument(
        "--evidence", metavar="FILE", help="which records formed which cluster; protect it like the input"
    )
    parser.add_argument(
        "--quarantine", metavar="FILE", help="references (offset, reason) to records that are not published"
    )


def add_format_arguments(parser: argparse.ArgumentParser, *, has_output: bool = True) -> None:
    """Declare the formats of input and output."""
    formats = [one.name for one in streamed_formats()]
    parser.add_argument("--format", choices=formats, help="format of pipes, and of files with another suffix")
    if has_output:
        what = "format of the output, if it differs from --format"
        parser.add_argument("--output-format", choices=formats, help=what)


def require_table_option(options: argparse.Namespace, policy: Policy) -> None:
    """Refuse the summary of a table without --table: the checks of a stream would fail. No summary decides this."""
    if options.table or options.summary is None or policy.stream is None:
        return
    try:
        summary = json.loads(Path(options.summary).read_bytes())
    except (OSError, ValueError, RecursionError):
        return  # the judge says what is wrong with it
    if isinstance(summary, dict) and "algorithm" in summary:
        raise ConfigError(
            f"{options.summary}: the summary of a table, but the policy has a stream section; add --table if shoal "
            "batch made the release"
        )


def checked_files(options: argparse.Namespace) -> Files:
    """Return the files of a command. ConfigError if two options name the same file, or a format is unknown."""
    formats = options.format, options.output_format
    files = Files(options.input, options.output, *formats, options.summary, options.evidence, options.quarantine)
    files.check(options.policy)
    return files


def print_report(options: argparse.Namespace, report: RunReport) -> None:
    """Print numbers of records, loss and the next command; before it, log what was refused if that is notable.

    With ``--log json`` the line is a log line, too.
    """
    log = logger(options.command)
    if is_notable(report.records_in, report.released, report.refusals.total):
        log_refusals(log, report.refusals, report.records_in)
    if report.is_empty:
        log.warning("nothing was released", records_in=report.records_in)
    limits = report.loss.policy.value_limits
    warn_unless_representative(log, limits, report.records_in, report.released, report.suppressed)
    following = _next_command(options, report)
    if options.log == "json":
        log.info(
            "finished",
            records_in=report.records_in,
            released=report.released,
            suppressed=report.suppressed,
            refused=report.refusals.total,
            **({"dropped": report.dropped_count} if report.dropped_count else {}),
            information_loss=None if report.information_loss is None else three_digits(report.information_loss),
            **_loss_fields(report.loss),
            **({"not_in_taxonomy": dict(report.unknown)} if report.unknown else {}),
            **({"next": following} if following else {}),
        )
        return
    text = ", ".join(filter(None, [counts_text(report), report.loss.summary()]))
    text += f"; {following}" if following == WITHOUT_EVIDENCE else f"; next: {following}" if following else ""
    print(f"shoal: {escape_control_characters(text)}", file=sys.stderr)


def _loss_fields(losses: LossReport) -> dict[str, Any]:
    """Return the mean loss and the worst attribute, as parts of 1."""
    if losses.mean is None:
        return {}
    attribute, loss = losses.worst[0]
    worst = {"attribute": attribute.name, "loss": three_digits(loss)}
    return {"mean_loss": three_digits(losses.mean), "worst": worst}


def counts_text(report: RunReport) -> str:
    """Return the numbers of records in, out, suppressed and refused, and of values that a taxonomy lacks."""
    refused = f"{report.refusals.total:,} refused"
    if kinds := report.refusals.texts(report.records_in):
        refused += f" ({'; '.join(kinds)})"
    parts = [f"{report.records_in:,} in", f"{report.released:,} out", f"{report.suppressed:,} suppressed", refused]
    if report.dropped_count:
        parts.append(f"{report.dropped_count:,} left out as no records")
    for name, count in report.unknown.items():
        values, are = ("value", "is") if count == 1 else ("values", "are")
        parts.append(f"{count:,} {values} of {name} {are} not in its taxonomy")
    return ", ".join(parts)


def _next_command(options: argparse.Namespace, report: RunReport) -> str:
    """Return the command that judges the release, or what to change if the release is empty or has no evidence.

    It is an empty text if there is nothing to judge, if files were pipes, or if a followed input has no evidence: such
    a run cannot be repeated into the same files.
    """
    if report.is_empty:
        return _advice(report)
    if not report.released or "-" in {options.input, options.output}:
        return ""
    if options.evidence in {None, "-"}:
        return "" if getattr(options, "follow", False) else WITHOUT_EVIDENCE
    # A name that begins with a dash would be read as an option.
    policy = f"./{options.policy}" if options.policy.startswith("-") else options.policy
    words = ["shoal", "verify", policy, *_option("original", options.input), *_option("released", options.output)]
    for name in ("evidence", "quarantine", "summary", "format", "output_format"):
        value = getattr(options, name)
        if value not in {None, "-"}:
            words += _option(name.replace("_", "-"), value)
    return shlex.join([*words, *(["--table"] if options.command == "batch" else [])])


def _option(name: str, value: str) -> list[str]:
    return [f"--{name}={value}"] if value.startswith("-") else [f"--{name}", value]


def _advice(report: RunReport) -> str:
    """Return what to do so that something is released."""
    remedy, policy = report.refusals.remedy(), report.loss.policy
    if report.refusals.total >= report.suppressed and remedy:
        return remedy
    looser = {
        "lower privacy.l": policy.diversity is not None,
        "raise privacy.max_value_share": policy.max_value_share not in {None, 1},
        "raise privacy.t": policy.t is not None,
    }
    return ", or ".join([ALL_SUPPRESSED, *(change for change, is_set in looser.items() if is_set)])
