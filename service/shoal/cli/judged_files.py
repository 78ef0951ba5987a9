"""The files of a release that `shoal verify` and `shoal report` read."""

from __future__ import annotations

import argparse
from typing import Any

from shoal.cli.release import add_format_arguments

JUDGED_FILES = ("original", "released", "evidence", "summary", "quarantine")


def add_judged_files(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Declare the files of a release, and what they do not show by themselves."""
    parser.add_argument("--original", required=required, metavar="FILE", help="the input as it was")
    parser.add_argument("--released", required=required, metavar="FILE", help="what was published")
    add_format_arguments(parser)
    parser.add_argument("--evidence", metavar="FILE", help="which records formed which cluster")
    parser.add_argument("--summary", metavar="FILE", help="the summary of the run, with the counts to balance against")
    parser.add_argument("--quarantine", metavar="FILE", help="references to records that were not released")
    parser.add_argument(
        "--table", action="store_true", help="shoal batch made the release, though the policy has a stream section"
    )
    parser.add_argument(
        "--topic", action="store_true", help="the files are exports of topics, which an empty release does not show"
    )
    parser.add_argument(
        "--input-topic",
        metavar="NAME",
        help="the topic of the original, if evidence and quarantine are of several inputs (kafka.topics)",
    )


def judged_files(options: argparse.Namespace) -> dict[str, Any]:
    """Return these options as arguments of `shoal.audit.verify` and `judge`."""
    return {name: getattr(options, name) for name in JUDGED_FILES} | {
        "table": True if options.table else None,
        "form": options.format,
        "released_form": options.output_format,
        "is_export": True if options.topic else None,
        "input_topic": options.input_topic,
    }
