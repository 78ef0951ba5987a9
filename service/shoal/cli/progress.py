"""`shoal progress`: report, export or import the committed progress of each partition."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

from shoal.errors import InputError
from shoal.files import open_output, refuse_overwriting
from shoal.kafka import check_files, export_progress, import_progress, report_progress
from shoal.policy import Policy
from shoal.settings import kafka_settings, require_no_fault


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare export and import."""
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--export", dest="export_to", metavar="FILE", help="write the progress of all partitions to a file"
    )
    either.add_argument(
        "--import", dest="import_from", metavar="FILE", help="commit exported progress; committed offsets never go back"
    )


def execute(options: argparse.Namespace) -> int:
    """Print one JSON line per partition, or export or import all progress."""
    policy = Policy.load(options.policy)
    settings = kafka_settings(policy)
    require_no_fault(policy, check_files(settings))
    if options.export_to is not None:
        refuse_overwriting([options.export_to], options.policy, settings.metadata_key_file)
        with open_output(options.export_to, private=True) as file:
            file.write(asyncio.run(export_progress(settings)).encode() + b"\n")
    elif options.import_from is not None:
        imported = asyncio.run(import_progress(_read(options.import_from), policy, settings))
        # With one input, the partitions alone.
        print(json.dumps({"imported": imported.get(settings.input or "", imported)}))
    else:
        for line in asyncio.run(report_progress(policy, settings)):
            print(json.dumps(line))
    return 0


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{path}: cannot be read as text") from None
