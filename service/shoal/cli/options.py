"""What several commands share: options and their environment variables. It imports nothing that is slow.

An option counts first, then its variable, then the default. No message quotes a value, because it may be a secret.

A misspelt variable is refused, because the start would lack the option that was meant. A variable that resembles none
of Shoal is left alone: it may be another program's. So are those that Kubernetes sets in every pod for a Service, such
as ``SHOAL_PORT_9464_TCP`` for one with the name `shoal`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import NamedTuple

from shoal.errors import ParameterError
from shoal.health_check import DEFAULT_ADDRESS

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


class OptionVariable(NamedTuple):
    """An environment variable of an option. ``option`` is empty if only the environment gives the setting."""

    name: str
    option: str
    dest: str
    default: str | None
    choices: tuple[str, ...] | None
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
    text = f"{meaning} (variable {variable}{known})"
    action = parser.add_argument(flag, dest=dest, metavar=metavar, choices=choices, help=text)
    declared = OptionVariable(variable, flag, action.dest, default, choices, meaning)
    parser.set_defaults(variables=(*option_variables(parser), declared))


def add_secret(parser: argparse.ArgumentParser, dest: str, variable: str, *, meaning: str) -> None:
    """Declare a setting that only the environment gives: other users of a machine can read command lines."""
    declared = OptionVariable(variable, "", dest, None, None, meaning)
    parser.set_defaults(**{dest: None}, variables=(*option_variables(parser), declared))


def add_http_options(parser: argparse.ArgumentParser) -> None:
    """Declare the address, TLS and token of the HTTP port."""
    address = "address of metrics and probes"
    add_option(parser, "--http", "SHOAL_HTTP", default=DEFAULT_ADDRESS, metavar="HOST:PORT", meaning=address)
    files = (
        ("--http-certfile", "certificate of the HTTP port and its chain (PEM); the port then speaks TLS"),
        ("--http-keyfile", "private key of this certificate (PEM)"),
        ("--http-key-password-file", "file with the password of this key, if it is encrypted"),
        ("--http-token-file", "file with the bearer token that metrics and page require; the probes require none"),
    )
    for flag, meaning in files:
        variable = "SHOAL_" + flag.removeprefix("--").replace("-", "_").upper()
        add_option(parser, flag, variable, metavar="FILE", meaning=meaning)
    password = "the password of this key itself, in place of its file"  # noqa: S105 - a help text
    add_secret(parser, "http_key_password", "SHOAL_HTTP_KEY_PASSWORD", meaning=password)
    add_secret(parser, "http_token", "SHOAL_HTTP_TOKEN", meaning="the bearer token itself, in place of its file")


def option_variables(parser: argparse.ArgumentParser) -> tuple[OptionVariable, ...]:
    """Return the variables of a command, in the order of declaration."""
    declared: tuple[OptionVariable, ...] = parser.get_default("variables") or ()
    return declared


def read_variables(options: argparse.Namespace, environment: Mapping[str, str]) -> None:
    """Set the options that the command line does not give from the environment, or to their defaults.

    ParameterError names a variable whose value is unusable, and says what it must be.
    """
    for variable in options.variables:
        if getattr(options, variable.dest) is None:
            given = environment.get(variable.name)
            if given is not None and variable.choices is not None and given not in variable.choices:
                *others, last = variable.choices
                raise ParameterError(f"{variable.name}: must be {', '.join(others)} or {last}")
            if given is not None and not given.strip():
                raise ParameterError(f"{variable.name}: is empty; give a value, or unset the variable")
            setattr(options, variable.dest, variable.default if given is None else given)


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
    meant = get_close_matches(name, VARIABLES, 1, SIMILARITY)
    if name.startswith(_MISSPELT_SETTINGS):
        meant = [_SETTINGS + name.removeprefix(_MISSPELT_SETTINGS)]
    return f"{name}: unknown variable; did you mean {meant[0]}?" if meant else ""


def _is_of_service(name: str, environment: Mapping[str, str]) -> bool:
    """Return whether Kubernetes sets this variable for a Service: it sets the host of the Service, too."""
    services = [other.removesuffix(_HOST_OF_SERVICE) for other in environment if other.endswith(_HOST_OF_SERVICE)]
    endings = "_SERVICE_HOST|(_SERVICE)?_PORT(_.*)?"
    return any(re.fullmatch(f"{re.escape(service)}({endings})", name) for service in services)
