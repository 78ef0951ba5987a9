"""`shoal reference`: write the distribution of a confidential attribute, for t-closeness of a stream."""

from __future__ import annotations

import argparse

from shoal.cli.options import refuse_overwriting_inputs
from shoal.files import choose_attribute, run_reference
from shoal.formats import streamed_formats
from shoal.policy import Policy

__all__ = ["SUMMARY", "add_arguments", "execute"]

SUMMARY = "Write the distribution of a confidential attribute, smoothed, from a sample."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare sample, output and attribute."""
    formats, of_pipes = ".csv, .jsonl or .parquet", "format of pipes, and of files with another suffix"
    parser.add_argument("-i", "--input", default="-", metavar="SAMPLE", help=f"{formats}; - is standard input")
    parser.add_argument("-o", "--output", default="-", metavar="FILE", help="CSV with the header value,share")
    parser.add_argument("--format", choices=[one.name for one in streamed_formats()], help=of_pipes)
    parser.add_argument("--attribute", metavar="NAME", help="needed if the policy protects several attributes")


def execute(options: argparse.Namespace) -> int:
    """Read the sample and write the reference."""
    policy = Policy.load(options.policy, needs_references=False)
    attribute = choose_attribute(policy, options.attribute)
    refuse_overwriting_inputs(options.output, options.policy, options.input)
    run_reference(policy, attribute, options.input, options.format, options.output)
    return 0
