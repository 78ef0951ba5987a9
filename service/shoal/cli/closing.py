"""The line with which `shoal pipe` and `shoal batch` end, on standard error."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Any

from shoal.files import RunReport
from shoal.observability import escape_control_characters, logger, warn_unless_representative

__all__ = ["counts_text", "print_report"]

ALL_SUPPRESSED = (
    "no cluster satisfied the section privacy: give more records, mark the attribute that is the subject, raise "
    "stream.delta, or lower privacy.k"
)

WITHOUT_EVIDENCE = (
    "to get a release whose clusters can be verified, repeat the run with --evidence FILE, keep only the new release "
    "and withdraw this one"
)


def print_report(options: argparse.Namespace, report: RunReport) -> None:
    """Print numbers of records, loss and the next command; before it, log what was refused if that is notable.

    With ``--log json`` the line is a log line, too.
    """
    log = logger(options.command)
    if report.is_notable:
        for text in report.refusals:
            log.warning("records refused", refused=escape_control_characters(text))
    if report.is_empty:
        log.warning("nothing was released", records_in=report.records_in)
    warn_unless_representative(log, report.value_limits, report.records_in, report.released, report.suppressed)
    following = _next_command(options, report)
    if options.log == "json":
        log.info(
            "finished",
            records_in=report.records_in,
            released=report.released,
            suppressed=report.suppressed,
            refused=report.refused,
            information_loss=report.loss_percent,
            **_loss_fields(report),
            **({"not_in_taxonomy": dict(report.unknown)} if report.unknown else {}),
            **({"next": following} if following else {}),
        )
        return
    print(
        f"shoal: {escape_control_characters(_text(report) + (f'; next: {following}' if following else ''))}",
        file=sys.stderr,
    )


def _loss_fields(report: RunReport) -> dict[str, Any]:
    """Return the mean loss and the worst attribute, as parts of 1 with three significant digits."""
    if report.loss is None or report.loss.mean is None:
        return {}
    attribute, loss = report.loss.worst[0]
    worst = {"attribute": attribute.name, "loss": float(f"{loss:.3g}")}
    return {"mean_loss": float(f"{report.loss.mean:.3g}"), "worst": worst}


def _text(report: RunReport) -> str:
    loss = "" if report.loss is None else report.loss.summary()
    return ", ".join(filter(None, [counts_text(report), loss]))


def counts_text(report: RunReport) -> str:
    """Return the numbers of records in, out, suppressed and refused, and of values that a taxonomy lacks."""
    refused = f"{report.refused:,} refused"
    if report.refusals:
        refused += f" ({'; '.join(report.refusals)})"
    parts = [f"{report.records_in:,} in", f"{report.released:,} out", f"{report.suppressed:,} suppressed", refused]
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
    if report.refused >= report.suppressed and report.remedy:
        return report.remedy
    return ", or ".join([ALL_SUPPRESSED, *report.looser])
