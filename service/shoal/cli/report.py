"""`shoal report`: one page about a release, for a person who decides on it."""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from shoal.audit import judge
from shoal.cli.release import add_format_arguments, require_table_option
from shoal.errors import ConfigError
from shoal.files import ProgressDisplay, open_output, refuse_overwriting
from shoal.policy import Policy
from shoal.reports import html_of, report_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the files of the release, and where the report goes."""
    parser.add_argument("--original", required=True, metavar="FILE", help="the input as it was")
    parser.add_argument("--released", required=True, metavar="FILE", help="what was published")
    add_format_arguments(parser)
    parser.add_argument("--evidence", metavar="FILE", help="which records formed which cluster")
    parser.add_argument("--summary", metavar="FILE", help="the summary of the run: it says why records were left out")
    parser.add_argument("--quarantine", metavar="FILE", help="references to records that were not released")
    parser.add_argument(
        "--table", action="store_true", help="shoal batch made the release, though the policy has a stream section"
    )
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the page (.html)")
    parser.add_argument("--json", metavar="FILE", help="every number of the page")


def execute(options: argparse.Namespace) -> int:
    """Write the report and print the verdict; the exit code is that of `shoal verify`."""
    if not options.output.lower().endswith((".html", ".htm")):
        raise ConfigError(f"{options.output}: a report is a page; give -o a name that ends in .html")
    given = {name: getattr(options, name) for name in ("policy", "original", "released", "evidence", "summary")}
    refuse_overwriting([options.output, options.json], *given.values(), options.quarantine)
    policy = Policy.load(options.policy)
    require_table_option(options, policy)
    with ExitStack() as stack:
        page = stack.enter_context(open_output(options.output))
        numbers = None if options.json is None else stack.enter_context(open_output(options.json))
        with ProgressDisplay("reporting"):
            judged = judge(
                policy,
                original=options.original,
                released=options.released,
                evidence=options.evidence,
                summary=options.summary,
                quarantine=options.quarantine,
                table=True if options.table else None,
                form=options.format,
                released_form=options.output_format,
            )
            report = report_of(policy, judged, is_table=options.table) | {"made": _made(given)}
        page.write(html_of(report).encode())
        if numbers is not None:
            numbers.write(json.dumps(report, indent=2, ensure_ascii=False).encode() + b"\n")
    print(report["verdict"]["sentence"])
    return judged.verdict.exit_code


def _made(given: dict[str, str | None]) -> dict[str, Any]:
    """Return date, versions, and names and hashes of the files."""
    files = [{"what": what, "name": Path(path).name, "sha256": _sha256(path)} for what, path in given.items() if path]
    versions = {"Shoal": version("shoal"), "Python": platform.python_version()}
    return {"date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), "versions": versions, "files": files}


def _sha256(path: str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
