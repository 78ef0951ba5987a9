"""`shoal verify`: judge a release against its original, independently of the engine."""

from __future__ import annotations

import argparse
import json
import re
from contextlib import ExitStack
from pathlib import Path

from shoal.audit import verify
from shoal.cli.judged_files import JUDGED_FILES, add_judged_files, judged_files
from shoal.cli.release import require_table_option
from shoal.errors import ConfigError, GuaranteeError, InputError
from shoal.files import ProgressDisplay, open_output, refuse_overwriting
from shoal.observability import escape_control_characters
from shoal.policy import Policy
from shoal.reports import public_key, require_signature, sha256_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the files to judge and how strictly."""
    add_judged_files(parser, required=False)
    parser.add_argument(
        "--partial", action="store_true", help="judge a part: do not ask for records that were not released"
    )
    parser.add_argument(
        "--taxonomy",
        action="append",
        default=[],
        type=_named_file,
        metavar="NAME=FILE",
        help="the taxonomy of an attribute, if it is not where the policy says",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="an unchanged field of unique values, or in the order of arrival, is an error unless it has "
        "publish_unchanged: true; fields that identify records together stay a warning",
    )
    parser.add_argument("--json", metavar="FILE", help="the verdict as JSON")
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="check a signed page of shoal report in place of a release: its signature, and that it is of POLICY and "
        "of the files that are given",
    )
    parser.add_argument("--public-key", metavar="FILE", help="the public key (PEM) of the person who signed the report")
    parser.add_argument("-v", "--verbose", action="store_true", help="print what holds, the counts and the measures")


def execute(options: argparse.Namespace) -> int:
    """Print the verdict; the exit code is 0 if the release holds, 1 if it is broken, 2 if it cannot be decided."""
    if options.report is not None:
        return _check_report(options)
    missing = [f"--{name}" for name in ("original", "released") if getattr(options, name) is None]
    if missing:
        raise ConfigError(f"{' and '.join(missing)}: missing; a release is judged against its original")
    given = (options.policy, options.original, options.released, *(file for _, file in options.taxonomy))
    refuse_overwriting([options.json], *given, options.evidence, options.summary, options.quarantine)
    policy = Policy.load(options.policy, dict(options.taxonomy))
    require_table_option(options, policy)
    with ExitStack() as stack:
        file = None if options.json is None else stack.enter_context(open_output(options.json))
        with ProgressDisplay("verifying"):
            verdict = verify(policy, partial=options.partial, strict=options.strict, **judged_files(options))
        if options.taxonomy and any(check.name == "policy" and check.status == "broken" for check in verdict.checks):
            raise InputError(
                "evidence or summary name another policy than the one with the taxonomies of --taxonomy: give the "
                "files under which the release was made"
            )
        if file is not None:
            file.write(json.dumps(verdict.as_dict(), indent=2).encode() + b"\n")
    print(escape_control_characters(verdict.text(verbose=options.verbose)))
    return verdict.exit_code


def _check_report(options: argparse.Namespace) -> int:
    """Check who signed a page, that it is as it was signed, and what it is about; print that it holds."""
    if options.public_key is None:
        raise ConfigError("--report: needs --public-key FILE, the key of the person who signed it")
    page = Path(options.report).read_bytes()
    require_signature(page, public_key(options.public_key), options.report)
    fingerprint = Policy.load(options.policy, dict(options.taxonomy)).fingerprint
    named = {"POLICY": ("policy, fingerprint", fingerprint)}
    for name in JUDGED_FILES:
        if (path := getattr(options, name)) is not None:
            named[f"--{name}"] = (f"{name}: ", sha256_of(path))
    for name, (begins, digest) in named.items():
        if not re.search(f">{begins}[^<]*</td><td>{digest}<".encode(), page):
            raise GuaranteeError(f"{options.report}: is about another file than {name}")
    print(f"signed with this key, unchanged since, and about {', '.join(named)}")
    return 0


def _named_file(text: str) -> tuple[str, str]:
    """Split NAME=FILE."""
    name, _, file = text.partition("=")
    if not name or not file:
        raise argparse.ArgumentTypeError("must be NAME=FILE")
    return name, file
