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
from shoal.cli.judged_files import add_judged_files, judged_files
from shoal.errors import ConfigError
from shoal.files import ProgressDisplay, open_output, refuse_overwriting
from shoal.policy import Policy
from shoal.reports import html_of, report_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the files of the release, and where the report goes."""
    add_judged_files(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the page (.html)")
    parser.add_argument("--json", metavar="FILE", help="every number of the page")


def execute(options: argparse.Namespace) -> int:
    """Write the report and print the verdict; the exit code is that of `shoal verify`."""
    if not options.output.lower().endswith((".html", ".htm")):
        raise ConfigError(f"{options.output}: a report is a page; give -o a name that ends in .html")
    given = {name: getattr(options, name) for name in ("policy", "original", "released", "evidence", "summary")}
    refuse_overwriting([options.output, options.json], *given.values(), options.quarantine)
    policy = Policy.load(options.policy)
    with ExitStack() as stack:
        page = stack.enter_context(open_output(options.output))
        numbers = None if options.json is None else stack.enter_context(open_output(options.json))
        with ProgressDisplay("reporting"):
            judged = judge(policy, **judged_files(options))
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
