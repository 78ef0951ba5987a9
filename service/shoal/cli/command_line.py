"""Arguments in, exit code out: the parser of all commands, signals, and the last error handler."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import NoReturn, Protocol, cast

from shoal.cli.options import add_option, check_variables, read_variables
from shoal.errors import ParameterError, ShoalError
from shoal.process_end import end_process_if_compiling

CLOSED_PIPE = 128 + signal.SIGPIPE
"""Exit code of a command whose output pipe was closed: that of a program which does not handle the signal."""

NOT_REPLACED = "outputs that are written as a whole were not changed"


class Command(Protocol):
    """A module of this package that holds one command."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options of the command; ``POLICY`` and ``--log`` are declared for every command."""

    def execute(self, options: argparse.Namespace) -> int:
        """Run the command and return the exit code."""


COMMANDS = {
    "init": "Write a draft of a policy from a sample of records.",
    "check": "Print the resolved policy, or all of its faults.",
    "tune": "Try settings on a sample: what each loses, delays and risks; recommend one.",
    "run": "Run the service: Kafka to Kafka, exactly once.",
    "pipe": "Run the stream clusterer over a file or a pipe, without a broker.",
    "verify": "Judge what was released, independently of the engine.",
    "report": "Write a page about a release, for a person who decides on it.",
    "progress": "Report the committed progress of each partition.",
    "batch": "Anonymize a finished table with little information loss.",
    "reference": "Write the distribution of a confidential attribute, smoothed, from a sample.",
    "explain": "Say what an exit code, the code of an error, a reason or a check means.",
    "warm": "Compile ahead the kernels of a policy (of its stream, or of tables), or of every rule and of tables.",
    "completion": "Print the script with which a shell completes commands, options and files.",
    "schema": "Print the JSON Schema of a policy, for editors.",
    "health": "Ask a worker whether it is alive: exit code 0, or 1 with the reason.",
}
"""Modules of this package (`health`: of `shoal`), each imported when it is needed, with a line for ``shoal --help``."""
EXAMPLES = {
    "init": "shoal init visits.csv -o policy.yaml --subject patient",
    "check": "shoal check policy.yaml -i visits.csv",
    "tune": "shoal tune policy.yaml -i visits.csv -o tune.html --target 'loss<=20%,delay<=100'",
    "run": "shoal run policy.yaml --from earliest",
    "pipe": "shoal pipe policy.yaml -i visits.csv -o released.csv --evidence evidence.jsonl",
    "verify": "shoal verify policy.yaml --original visits.csv --released released.csv --evidence evidence.jsonl",
    "report": (
        "shoal report policy.yaml --original visits.csv --released released.csv --evidence evidence.jsonl "
        "-o report.html"
    ),
    "progress": "shoal progress policy.yaml --export progress.json",
    "batch": "shoal batch policy.yaml -i table.csv -o released.csv --evidence evidence.jsonl",
    "reference": "shoal reference policy.yaml -i sample.csv -o reference.csv",
    "warm": "shoal warm policy.yaml",
    "explain": "shoal explain undecodable 2",
    "completion": "shoal completion bash > shoal.bash",
    "schema": "shoal schema > policy.schema.json",
    "health": "shoal health --http 127.0.0.1:9464 --ready",
}
"""An example of each command, for its help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, by default that of ``sys.argv``, and return its exit code.

    It is 0 done, 1 the guarantee or a check failed, 2 unusable input, 3 broker, 4 a target of `tune` is out of reach,
    130 interrupted, 141 the reader of an output pipe has closed it.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    name = arguments[0] if arguments else ""
    parser = build_parser([name] if name in COMMANDS else [])
    if name and not name.startswith("-") and name not in COMMANDS:
        _refuse(parser, name)
    options = parser.parse_args(arguments)
    try:
        check_variables(os.environ)
        read_variables(options, os.environ)
    except ParameterError as error:
        options.parser.error(str(error))
    if not gc.isenabled():
        # The console script has left it off until here. What is loaded now is never examined.
        gc.freeze()
        gc.enable()
    from shoal.observability import install_exception_hooks, set_up_logs  # noqa: PLC0415 - slow; help needs no log

    set_up_logs(options.log, options.log_level)
    install_exception_hooks()
    try:
        code = _execute(options)
    except SystemExit as end:  # of a signal
        end_process_if_compiling(end.code if isinstance(end.code, int) else 1)
        raise
    end_process_if_compiling(code)
    return code


def _refuse(parser: argparse.ArgumentParser, name: str) -> NoReturn:
    """End with exit code 2, because there is no command with this name."""
    from shoal.policy import did_you_mean  # noqa: PLC0415 - slow, and only needed here

    parser.error(f"unknown command; {did_you_mean(name, list(COMMANDS)) or 'use one of ' + ', '.join(COMMANDS)}")


def _execute(options: argparse.Namespace) -> int:
    """Run the command; report the error that ended it, and return the exit code."""
    from shoal.observability import raise_location  # noqa: PLC0415 - see main

    try:
        _handle_signals()
        code = _command(options.command).execute(options)
        if sys.stdout is not None:
            sys.stdout.flush()  # a closed pipe is reported here, and not by the interpreter at its exit
    except ShoalError as error:
        _report(options, error.code, str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError as error:
        _discard_output()
        where = f"{error.filename or 'standard output'}: its reader has closed the pipe"
        _report(options, "output_closed", f"{where}; not everything was written")
        return CLOSED_PIPE
    except OSError as error:
        _discard_output()
        _report(options, "input", f"{error.filename or 'a file or stream'}: {error.strerror}")
        return 2
    except Exception as error:  # noqa: BLE001 - the text of an unknown error could hold attribute values
        _report(options, "unexpected", f"unexpected {raise_location(error)}: {NOT_REPLACED}")
        return 2
    return code


def build_parser(names: Collection[str] = COMMANDS.keys()) -> argparse.ArgumentParser:
    """Return a parser that knows all commands, and the options of these."""
    common = argparse.ArgumentParser(add_help=False)
    style, level = "style of the log on standard error", "log lines of this level and above"
    add_option(common, "--log", "SHOAL_LOG", choices=("json", "text"), default="text", meaning=style)
    levels = ("debug", "info", "warning", "error")
    add_option(common, "--log-level", "SHOAL_LOG_LEVEL", choices=levels, default="info", meaning=level)
    parser = argparse.ArgumentParser(prog="shoal", description="Makes personal records k-anonymous while they move.")
    parser.add_argument("--version", action="version", version=f"shoal {version('shoal')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, dest="command")
    for name, summary in COMMANDS.items():
        # Abbreviated options are refused: a new option could change what an abbreviation means.
        command = commands.add_parser(
            name,
            parents=[common],
            allow_abbrev=False,
            description=summary,
            help=summary,
            epilog=f"example:\n  {EXAMPLES[name]}" if name in EXAMPLES else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name not in names:
            continue
        if name == "warm":
            command.add_argument("policy", metavar="POLICY", nargs="?", help="the policy file; default: every rule")
        elif name not in {"init", "schema", "health", "explain", "completion"}:
            command.add_argument("policy", metavar="POLICY", help="the policy file (YAML or JSON)")
        _command(name).add_arguments(command)
        command.set_defaults(parser=command)
    return parser


def _command(name: str) -> Command:
    return cast("Command", import_module("shoal.health_check" if name == "health" else f"shoal.cli.{name}"))


def _handle_signals() -> None:
    """Let SIGTERM and SIGHUP end the process by an exception, so that half-written files are removed."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _discard_output() -> None:
    """Redirect standard output to nothing: the interpreter would flush it into a closed pipe at its exit."""
    with contextlib.suppress(OSError):
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(options: argparse.Namespace, code: str, text: str) -> None:
    """Print on standard error why the command ends, in the chosen log style."""
    from shoal.observability import escape_control_characters, logger  # noqa: PLC0415 - see main

    if options.log == "json":
        logger("cli").error("stopped", code=code, reason=text)
    else:
        print(f"shoal: {escape_control_characters(text)}", file=sys.stderr)
