"""`shoal init`: write a draft of a policy from a sample."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from shoal.errors import ConfigError

if TYPE_CHECKING:
    from shoal.drafts.reading import Sample


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sample, the output, the person and the questions."""
    parser.add_argument(
        "sample", metavar="SAMPLE", nargs="?", help=".csv, .jsonl, .parquet or .xlsx; - is standard input"
    )
    parser.add_argument("--topic", metavar="NAME", help="read the last messages of this topic in place of a file")
    parser.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT",
        help="brokers of the topic; other settings of the connection are variables, as SHOAL_KAFKA__SECURITY_PROTOCOL",
    )
    parser.add_argument("-o", "--output", default="-", metavar="POLICY", help="a new file; default: standard output")
    subject = "the field that names the person whom k counts, or every_record if each row is another person"
    parser.add_argument("--subject", default="", metavar="FIELD", help=subject)
    parser.add_argument("--interactive", action="store_true", help="ask what is open, and read answers line by line")
    parser.add_argument("--format", choices=("csv", "jsonl"), help="format of a pipe, or of a file with another suffix")


def execute(options: argparse.Namespace) -> int:
    """Read the sample and write the draft; standard error says what is open and what to do next."""
    from shoal.drafts import Draft, ask, kafka_section, read_sample, write_draft  # noqa: PLC0415 - slow; help needs none of it
    from shoal.files import open_output  # noqa: PLC0415 - as above

    target = None if options.output == "-" else Path(options.output)
    if target is not None and target.exists():
        raise ConfigError(f"{target}: exists, and may hold decisions; give a new file, or remove it")
    if options.interactive and options.sample == "-":
        raise ConfigError("--interactive reads answers from standard input; give the sample as a file")
    if (options.sample is None) == (options.topic is None):
        raise ConfigError("give a file as SAMPLE, or --topic NAME; one of the two")
    sample = read_sample(options.sample, options.format) if options.topic is None else _read_topic(options)
    if options.interactive:
        draft = ask(sample, options.subject, sys.stdin, sys.stderr)
    else:
        draft = Draft.of(sample, options.subject)
    text = write_draft(draft)
    if options.topic is not None:
        text += kafka_section(options.topic, options.bootstrap_servers)
    with open_output(options.output) as output:
        output.write(text.encode())
    print(draft.summary(options.output, options.sample or "SAMPLE"), file=sys.stderr)
    return 0


def _read_topic(options: argparse.Namespace) -> Sample:
    """Read the last messages of a topic. What is read is in a folder that only its owner can read, until it is read."""
    import asyncio  # noqa: PLC0415 - slow; help needs none of it

    from shoal.drafts import read_sample  # noqa: PLC0415 - as above
    from shoal.drafts.reading import MAX_BYTES, MAX_ROWS  # noqa: PLC0415 - as above
    from shoal.files import ProgressDisplay  # noqa: PLC0415 - as above
    from shoal.kafka import check_files, sample_topic  # noqa: PLC0415 - as above
    from shoal.settings import PREFIX, kafka_settings, require_no_fault  # noqa: PLC0415 - as above

    given = {} if options.bootstrap_servers is None else {"bootstrap_servers": options.bootstrap_servers}
    defaults = {"group": "shoal-init"}
    environment = os.environ | {PREFIX + name.upper(): value for name, value in given.items()}
    settings = kafka_settings(None, environment, defaults=defaults, required=("bootstrap_servers",))
    require_no_fault(None, check_files(settings))
    with ProgressDisplay("reading the topic"), TemporaryDirectory(prefix="shoal-") as folder:
        file = Path(folder, "topic.jsonl")
        file.write_bytes(asyncio.run(sample_topic(settings, options.topic, MAX_ROWS, MAX_BYTES)))
        return replace(read_sample(str(file), "jsonl"), name=f"the topic {options.topic}")
