"""`shoal report`: one page about a release, for a person who decides on it."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack

from shoal.audit import judge
from shoal.cli.judged_files import JUDGED_FILES, add_judged_files, judged_files
from shoal.cli.release import require_table_option
from shoal.files import ProgressDisplay, open_output, refuse_overwriting
from shoal.observability import logger
from shoal.policy import Policy
from shoal.reports import html_of, origin_of, private_key, report_of, require_page_name, signed
from shoal.secret_files import OPEN_TO_OTHERS, is_open_to_others


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the files of the release, and where the report goes."""
    add_judged_files(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the page (.html)")
    parser.add_argument("--json", metavar="FILE", help="every number of the page")
    parser.add_argument(
        "--sign",
        metavar="KEY",
        help="sign the page with this private key (Ed25519, PEM); shoal verify --report checks it",
    )


def execute(options: argparse.Namespace) -> int:
    """Write the report and print the verdict; the exit code is that of `shoal verify`."""
    require_page_name(options.output)
    given = {name: getattr(options, name) for name in ("policy", *JUDGED_FILES)}
    refuse_overwriting([options.output, options.json], *given.values(), options.sign)
    key = None if options.sign is None else private_key(options.sign)
    if options.sign is not None and is_open_to_others(options.sign):
        logger("cli").warning(f"--sign: {OPEN_TO_OTHERS}")
    policy = Policy.load(options.policy)
    require_table_option(options, policy)
    with ExitStack() as stack:
        page = stack.enter_context(open_output(options.output))
        numbers = None if options.json is None else stack.enter_context(open_output(options.json))
        with ProgressDisplay("reporting"):
            judged = judge(policy, **judged_files(options))
            report = report_of(policy, judged, is_table=options.table) | {"made": origin_of(given)}
        data = html_of(report).encode()
        page.write(data if key is None else signed(data, key))
        if numbers is not None:
            numbers.write(json.dumps(report, indent=2, ensure_ascii=False).encode() + b"\n")
    print(report["verdict"]["sentence"])
    if judged.verdict.outcome != "holds":
        advice = "" if options.evidence else "; --evidence FILE shows the judge which records formed which cluster"
        print(f"shoal: {options.output} says what is broken or not examined{advice}", file=sys.stderr)
    return judged.verdict.exit_code
