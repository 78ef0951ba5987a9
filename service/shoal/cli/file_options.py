"""Options that several commands share: input, output, formats and side files."""

from __future__ import annotations

import argparse
from pathlib import Path

from shoal.errors import ConfigError
from shoal.files import Files

__all__ = ["add_file_arguments", "add_format_arguments", "checked_files", "refuse_overwriting_inputs"]


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
    formats, where = ("csv", "jsonl"), "of pipes, and of files with another suffix"
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
