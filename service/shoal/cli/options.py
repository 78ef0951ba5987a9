"""What several commands share: options, their environment variables, and the line with which `pipe` and `batch` end.

An option counts first, then its variable, then the default: `add_option` declares an option with a variable,
`read_variables` fills in what the command line has left open. No message quotes a value, because it may be a secret.

A misspelt variable is refused, because the start would lack the option that was meant. A variable that resembles none
of Shoal is left alone: it may be another program's. So are those that Kubernetes sets in every pod for a Service, such
as ``SHOAL_SERVICE_HOST`` and ``SHOAL_PORT_9464_TCP`` for one with the name `shoal`. `shoal.settings` checks the names
that begin with ``SHOAL_KAFKA__``.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from shoal.errors import ConfigError, ParameterError
from shoal.files import Files, RunReport
from shoal.formats import streamed_formats
from shoal.observability import escape_control_characters, logger, warn_unless_representative

__all__ = [
    "VARIABLES",
    "OptionVariable",
    "add_file_arguments",
    "add_format_arguments",
    "add_option",
    "add_secret",
    "check_variables",
    "checked_files",
    "counts_text",
    "option_variables",
    "print_report",
    "read_variables",
    "refuse_overwriting_inputs",
]

VARIABLES = (
    "SHOAL_FROM",
    "SHOAL_HTTP",
    "SHOAL_HTTP_CERTFILE",
    "SHOAL_HTTP_KEYFILE",
    "SHOAL_HTTP_KEY_PASSWORD",
    "SHOAL_HTTP_KEY_PASSWORD_FILE",
    "SHOAL_HTTP_TOKEN",
    "SHOAL_HTTP_TOKEN_FILE",
    "SHOAL_LOG",
    "SHOAL_LOG_LEVEL",
)
"""The variables of all commands. The parser of one command does not know those of the others."""
SIMILARITY = 0.85
_SECTIONS = ("ATTRIBUTES", "PRIVACY", "STREAM", "STEERING")
"""Sections of the policy that no variable can change."""
_SETTINGS, _MISSPELT_SETTINGS = "SHOAL_KAFKA__", "SHOAL_KAFKA_"
_HOST_OF_SERVICE = "_SERVICE_HOST"

ALL_SUPPRESSED = (
    "no cluster satisfied the section privacy: give more records, mark the attribute that is the subject, raise "
    "stream.delta, or lower privacy.k"
)

WITHOUT_EVIDENCE = (
    "to get a release whose clusters can be verified, repeat the run with --evidence FILE, keep only the new release "
    "and withdraw this one"
)


def add_file_arguments(parser: argparse.ArgumentParser, formats: str, summary: str) -> None:
    """Declare input, output, formats, summary, evidence and quarantine.

    For the help text: ``formats`` are the suffixes that the command reads and writes, ``summary`` is what that holds.
    """
    parser.add_argument("-i", "--input", default="-", metavar="FILE", help=f"{formats}; - is standard input")
    parser.add_argument("-o", "--output", default="-", metavar="FILE", help=f"{formats}; - is standard output")
    add_format_arguments(parser)
    parser.add_argument("--summary", metavar="FILE", help=f"{summary}, as JSON")
    parser.add_argument(
        "--evidence", metavar="FILE", help="which records formed which cluster; protect it like the input"
    )
    parser.add_argument(
        "--quarantine", metavar="FILE", help="references (offset, reason) to records that are not published"
    )


def add_format_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the formats of input and output."""
    formats, where = [one.name for one in streamed_formats()], "of pipes, and of files with another suffix"
    parser.add_argument("--format", choices=formats, help=f"format {where}")
    parser.add_argument("--output-format", choices=formats, help="format of the output, if it differs from --format")


def checked_files(options: argparse.Namespace) -> Files:
    """Return the files of a command. ConfigError if two options name the same file, or a format is unknown."""
    files = Files(
        source=options.input,
        target=options.output,
        source_format=options.format,
        target_format=options.output_format,
        summary=options.summary,
        evidence=options.evidence,
        quarantine=options.quarantine,
    )
    files.check(options.policy)
    return files


def refuse_overwriting_inputs(target: str | None, *sources: str | Path | None) -> None:
    """Raise ConfigError if a target is one of the files to read, also under another name."""
    if target is None or not Path(target).is_file():
        return
    if any(source is not None and Path(source).exists() and Path(source).samefile(target) for source in sources):
        raise ConfigError(f"{target}: named twice; give each its own file")


class OptionVariable(NamedTuple):
    """An environment variable of an option. ``option`` is empty if only the environment gives the setting."""

    name: str
    option: str
    dest: str
    default: object
    parse: Callable[[str], object]
    """Returns the value of a text, or raises ParameterError with what the text must be."""
    meaning: str


def add_option(
    parser: argparse.ArgumentParser,
    flag: str,
    variable: str,
    *,
    meaning: str,
    default: str | None = None,
    dest: str | None = None,
    metavar: str | None = None,
    choices: tuple[str, ...] | None = None,
) -> None:
    """Declare an option that an environment variable can give, too. Default and variable are added to the help text."""
    known = f", default {default}" if default is not None else ""
    action = parser.add_argument(
        flag,
        dest=dest,
        metavar=metavar,
        choices=choices,
        help=f"{meaning} (variable {variable}{known})",
    )
    parse: Callable[[str], object] = _text if choices is None else partial(_choice, choices)
    _declare(parser, OptionVariable(variable, flag, action.dest, default, parse, meaning))


def add_secret(parser: argparse.ArgumentParser, dest: str, variable: str, *, meaning: str) -> None:
    """Declare a setting that only the environment gives: other users of a machine can read command lines."""
    parser.set_defaults(**{dest: None})
    _declare(parser, OptionVariable(variable, "", dest, None, _text, meaning))


def option_variables(parser: argparse.ArgumentParser) -> tuple[OptionVariable, ...]:
    """Return the variables of a command, in the order of declaration."""
    declared: tuple[OptionVariable, ...] = parser.get_default("variables") or ()
    return declared


def read_variables(options: argparse.Namespace, environment: Mapping[str, str]) -> None:
    """Set the options that the command line does not give from the environment, or to their defaults.

    ParameterError names a variable whose value is unusable, and says what it must be.
    """
    variables: tuple[OptionVariable, ...] = options.variables
    for variable in variables:
        if getattr(options, variable.dest) is not None:
            continue
        value: Any = variable.default
        if variable.name in environment:
            try:
                value = variable.parse(environment[variable.name])
            except ParameterError as error:
                raise ParameterError(": ".join((variable.name, str(error)))) from None
        setattr(options, variable.dest, value)


def _declare(parser: argparse.ArgumentParser, variable: OptionVariable) -> None:
    parser.set_defaults(variables=(*option_variables(parser), variable))


def _text(text: str) -> str:
    if not text.strip():
        raise ParameterError("is empty; give a value, or unset the variable")
    return text


def _choice(choices: tuple[str, ...], text: str) -> str:
    if text not in choices:
        raise ParameterError(f"must be {', '.join(choices[:-1])} or {choices[-1]}")
    return text


def check_variables(environment: Mapping[str, str]) -> None:
    """Raise ParameterError for variables whose names resemble those of options, or of Kafka settings.

    It names each with the one that may be meant, and quotes no value.
    """
    unknown = [name for name in sorted(environment) if name.startswith("SHOAL_") and name not in VARIABLES]
    own = [name for name in unknown if not name.startswith(_SETTINGS) and not _is_of_service(name, environment)]
    faults = [fault for name in own if (fault := _fault(name))]
    if faults:
        raise ParameterError("\n  ".join(faults))


def _fault(name: str) -> str:
    """Return what is wrong with a variable; an empty text if it may be another program's."""
    section, separator, setting = name.removeprefix("SHOAL_").partition("__")
    if separator and section in _SECTIONS:
        return (
            f"{name}: variables can set settings of section kafka only; "
            f"set {section.lower()}.{setting.lower().replace('__', '.')} in the policy"
        )
    meant = _meant(name)
    return f"{name}: unknown variable; did you mean {meant}?" if meant else ""


def _meant(name: str) -> str:
    """Return the most similar variable; an empty text if none is similar."""
    if name.startswith(_MISSPELT_SETTINGS):
        return _SETTINGS + name.removeprefix(_MISSPELT_SETTINGS)
    return next(iter(get_close_matches(name, VARIABLES, 1, SIMILARITY)), "")


def _is_of_service(name: str, environment: Mapping[str, str]) -> bool:
    """Return whether Kubernetes sets this variable for a Service: it sets the host of the Service, too."""
    services = [other.removesuffix(_HOST_OF_SERVICE) for other in environment if other.endswith(_HOST_OF_SERVICE)]
    endings = (_HOST_OF_SERVICE, "_SERVICE_PORT", "_SERVICE_PORT_", "_PORT", "_PORT_")
    return any(
        name == service + ending or (ending.endswith("_") and name.startswith(service + ending))
        for service in services
        for ending in endings
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
        f"shoal: {escape_control_characters(_report_text(report) + (f'; next: {following}' if following else ''))}",
        file=sys.stderr,
    )


def _loss_fields(report: RunReport) -> dict[str, Any]:
    """Return the mean loss and the worst attribute, as parts of 1 with three significant digits."""
    if report.loss is None or report.loss.mean is None:
        return {}
    attribute, loss = report.loss.worst[0]
    worst = {"attribute": attribute.name, "loss": float(f"{loss:.3g}")}
    return {"mean_loss": float(f"{report.loss.mean:.3g}"), "worst": worst}


def _report_text(report: RunReport) -> str:
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
