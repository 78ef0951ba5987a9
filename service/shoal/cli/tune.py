"""`shoal tune`: reserved for a later version; its help says so."""

from __future__ import annotations

import argparse
from typing import NoReturn

from shoal.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Accept any arguments, so that the refusal is about the command."""
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def execute(_: argparse.Namespace) -> NoReturn:
    """Refuse."""
    raise ConfigError("shoal tune: not available in this version")
