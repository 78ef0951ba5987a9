"""`shoal completion`: print a script that completes commands, options and names of files in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import shtab

_FILES = {"FILE", "POLICY"}
"""Names of arguments that shells complete with names of files."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the shell."""
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")


def execute(options: argparse.Namespace) -> int:
    """Print the script."""
    from shoal.cli.command_line import build_parser  # noqa: PLC0415 - it imports this module

    parser = build_parser()
    for action in _actions(parser):
        if action.metavar in _FILES:
            vars(action)["complete"] = shtab.FILE
    print(shtab.complete(parser, options.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the actions of a parser and of its commands."""
    for action in parser._actions:  # noqa: SLF001 - argparse shows them in no other way
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for command in action.choices.values():
                yield from _actions(command)
