"""`shoal reference`: write the distribution of a confidential attribute, for t-closeness of a stream."""

from __future__ import annotations

import argparse

from shoal.cli.release import add_format_arguments
from shoal.files import choose_attribute, refuse_overwriting, run_reference
from shoal.policy import Policy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare sample, output and attribute."""
    formats = ".csv, .jsonl or .parquet; - is standard input"
    parser.add_argument("-i", "--input", default="-", metavar="SAMPLE", help=formats)
    parser.add_argument("-o", "--output", default="-", metavar="FILE", help="CSV with the header value,share")
    add_format_arguments(parser, has_output=False)
    parser.add_argument("--attribute", metavar="NAME", help="needed if the policy protects several attributes")


def execute(options: argparse.Namespace) -> int:
    """Read the sample and write the reference."""
    policy = Policy.load(options.policy, needs_references=False)
    attribute = choose_attribute(policy, options.attribute)
    refuse_overwriting([options.output], options.policy, options.input)
    run_reference(policy, attribute, options.input, options.format, options.output)
    return 0
