"""`shoal init`: write a draft of a policy from a sample."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from shoal.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sample, the output, the person and the questions."""
    parser.add_argument("sample", metavar="SAMPLE", help=".csv, .jsonl, .parquet or .xlsx; - is standard input")
    parser.add_argument("-o", "--output", default="-", metavar="POLICY", help="a new file; default: standard output")
    subject = "the field that names the person whom k counts, or every_record if each row is another person"
    parser.add_argument("--subject", default="", metavar="FIELD", help=subject)
    parser.add_argument("--interactive", action="store_true", help="ask what is open, and read answers line by line")
    parser.add_argument("--format", choices=("csv", "jsonl"), help="format of a pipe, or of a file with another suffix")


def execute(options: argparse.Namespace) -> int:
    """Read the sample and write the draft; standard error says what is open and what to do next."""
    from shoal.drafts import Draft, ask, read_sample, write_draft  # noqa: PLC0415 - slow; help needs none of it
    from shoal.files import open_output  # noqa: PLC0415 - as above

    target = None if options.output == "-" else Path(options.output)
    if target is not None and target.exists():
        raise ConfigError(f"{target}: exists, and may hold decisions; give a new file, or remove it")
    if options.interactive and options.sample == "-":
        raise ConfigError("--interactive reads answers from standard input; give the sample as a file")
    sample = read_sample(options.sample, options.format)
    if options.interactive:
        draft = ask(sample, options.subject, sys.stdin, sys.stderr)
    else:
        draft = Draft.of(sample, options.subject)
    text = write_draft(draft)
    with open_output(options.output) as output:
        output.write(text.encode())
    print(draft.summary(options.output, options.sample), file=sys.stderr)
    return 0
