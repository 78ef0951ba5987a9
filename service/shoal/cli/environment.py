"""Options of commands that an environment variable can give, too.

`add_option` declares such an option, and `read_variables` fills in what the command line has left open: an option
counts first, then its variable, then the default. No message quotes a value, because it may be a secret.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from shoal.errors import ParameterError

__all__ = ["OptionVariable", "add_option", "add_secret", "option_variables", "read_variables"]

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
