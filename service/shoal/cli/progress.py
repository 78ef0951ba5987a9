"""`shoal progress`: report, export or import the committed progress of each partition.

A pipe gets one JSON object per partition, which other programs read. A terminal gets a table, unless `--json` is given.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from shoal.errors import InputError
from shoal.files import open_output, refuse_overwriting
from shoal.kafka import check_files, export_progress, import_progress, report_progress
from shoal.policy import Policy
from shoal.settings import kafka_settings, require_no_fault


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare export, import and the form of the report."""
    parser.add_argument("--json", action="store_true", help="print JSON on a terminal, too")
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--export", dest="export_to", metavar="FILE", help="write the progress of all partitions to a file"
    )
    either.add_argument(
        "--import", dest="import_from", metavar="FILE", help="commit exported progress; committed offsets never go back"
    )


def execute(options: argparse.Namespace) -> int:
    """Print the progress of each partition, or export or import all progress."""
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
        report = asyncio.run(report_progress(policy, settings))
        if sys.stdout.isatty() and not options.json:
            print(table(report, datetime.now(UTC)))
        else:
            for line in report:
                print(json.dumps(line))
    return 0


_COLUMNS = {
    "topic": "input",
    "partition": "partition",
    "state": "state",
    "held": "records held",
    "watermark": "committed offset",
    "last_commit": "last commit",
    "policy": "policy",
    "key": "key",
    "copy": "copy",
}
_UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def table(report: Sequence[Mapping[str, Any]], now: datetime) -> str:
    """Return the report as a table: one row per partition, numbers and times as people read them."""
    columns = [name for name in _COLUMNS if any(name in line for line in report)]
    rows = [[_COLUMNS[name] for name in columns]]
    rows += [[_cell(name, line.get(name), now) for name in columns] for line in report]
    widths = [max(len(row[i]) for row in rows) for i in range(len(columns))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _cell(name: str, content: object, now: datetime) -> str:
    if content is None:
        return "-"
    if name == "last_commit":
        return _ago(now - datetime.fromisoformat(str(content)))
    return f"{content:,}" if isinstance(content, int) else str(content)


def _ago(passed: timedelta) -> str:
    """Return how long ago something was, in its largest unit; a time ahead of this clock is ``0 seconds ago``."""
    seconds = max(0, round(passed.total_seconds()))
    size, unit = next((one for one in _UNITS if seconds >= one[0]), _UNITS[-1])
    count = seconds // size
    return f"{count} {unit}{'' if count == 1 else 's'} ago"


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{path}: cannot be read as text") from None
