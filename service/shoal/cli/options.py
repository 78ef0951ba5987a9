"""Options that several commands share: input, output, formats and side files.

Options of commands that an environment variable can give, too.

`add_option` declares such an option, and `read_variables` fills in what the command line has left open: an option
counts first, then its variable, then the default. No message quotes a value, because it may be a secret.

Misspelt environment variables of options: a start without the option that was meant is refused.

A variable that resembles none of Shoal is left alone: it may be another program's. So are those that Kubernetes sets in
every pod for a Service, such as ``SHOAL_SERVICE_HOST`` and ``SHOAL_PORT_9464_TCP`` for one with the name `shoal`.
`shoal.settings` checks the names that begin with ``SHOAL_KAFKA__``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from shoal.errors import ConfigError, ParameterError
from shoal.files import Files
from shoal.formats import streamed_formats

__all__ = [
    "VARIABLES",
    "OptionVariable",
    "add_file_arguments",
    "add_format_arguments",
    "add_option",
    "add_secret",
    "check_variables",
    "checked_files",
    "option_variables",
    "read_variables",
    "refuse_overwriting_inputs",
]


def add_file_arguments(parser: argparse.ArgumentParser, formats: str, summary: str) -> None:
    """Declare input, output, formats, summary, evidence and quarantine.

    Parameters
    ----------
    parser
        Of one command.
    formats : str
        File suffixes that the command reads and writes, for the help text.
    summary : str
        What the summary holds, for the help text.
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
    """Return the files of a command.

    Raises
    ------
    ConfigError
        Two options name the same file, or a format cannot be determined.
    """
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
    """Refuse a target that is one of the files to read, also under another name.

    Raises
    ------
    ConfigError
        The target is one of the sources.
    """
    if target is None or not Path(target).is_file():
        return
    if any(source is not None and Path(source).exists() and Path(source).samefile(target) for source in sources):
        raise ConfigError(f"{target}: named twice; give each its own file")


Parser: TypeAlias = Callable[[str], object]


class OptionVariable(NamedTuple):
    """An environment variable of an option.

    Attributes
    ----------
    name : str
        The variable, such as ``SHOAL_LOG``.
    option : str
        The option, such as ``--log``; empty if only the environment gives this setting.
    dest : str
        The attribute of the parsed options.
    default : object
        The value without option and variable.
    parse : callable
        Returns the value of a text. It raises ParameterError with what the text must be.
    meaning : str
        The help text.
    """

    name: str
    option: str
    dest: str
    default: object
    parse: Parser
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
    is_list: bool = False,
) -> None:
    """Declare an option that an environment variable can give, too.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    flag : str
        The option, such as ``--log``.
    variable : str
        The environment variable.
    meaning : str
        Help text. The default and the name of the variable are added.
    default : str, optional
        Value without option and variable.
    dest : str, optional
        Attribute of the parsed options; by default that of the flag.
    metavar : str, optional
        What the help shows for the value.
    choices : tuple of str, optional
        All values that are allowed.
    is_list : bool
        Whether the option is repeatable. The variable then holds a list with commas, and the default is an empty list.
    """
    known = f", default {default}" if default is not None else ""
    action = parser.add_argument(
        flag,
        action="append" if is_list else "store",
        dest=dest,
        metavar=metavar,
        choices=choices,
        help=f"{meaning} (variable {variable}{known})",
    )
    parse: Parser = _list if is_list else _text if choices is None else partial(_choice, choices)
    _declare(parser, OptionVariable(variable, flag, action.dest, [] if is_list else default, parse, meaning))


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

    Raises
    ------
    ParameterError
        A variable has an unusable value. The text names the variable and says what it must be.
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


def _list(text: str) -> list[str]:
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        raise ParameterError("has an empty item; give a list with commas, or unset the variable")
    return items


VARIABLES = (
    "SHOAL_FROM",
    "SHOAL_HTTP",
    "SHOAL_HTTP_CERTFILE",
    "SHOAL_HTTP_HOST",
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


def check_variables(environment: Mapping[str, str]) -> None:
    """Refuse variables whose names resemble those of options, or of Kafka settings.

    Raises
    ------
    ParameterError
        Names each such variable with the one that may be meant. It quotes no value.
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
