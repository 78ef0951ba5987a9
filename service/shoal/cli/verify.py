"""`shoal verify`: judge a release against its original, independently of the engine."""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack

from shoal.audit import verify
from shoal.cli.release import add_format_arguments, require_table_option
from shoal.errors import InputError
from shoal.files import ProgressDisplay, open_output, refuse_overwriting
from shoal.observability import escape_control_characters
from shoal.policy import Policy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the files to judge and how strictly."""
    parser.add_argument("--original", required=True, metavar="FILE", help="the input as it was")
    parser.add_argument("--released", required=True, metavar="FILE", help="what was published")
    add_format_arguments(parser)
    parser.add_argument("--evidence", metavar="FILE", help="which records formed which cluster")
    parser.add_argument("--summary", metavar="FILE", help="counts to balance against")
    parser.add_argument("--quarantine", metavar="FILE", help="references to records that were not released")
    parser.add_argument(
        "--partial", action="store_true", help="judge a part: do not ask for records that were not released"
    )
    parser.add_argument(
        "--table", action="store_true", help="shoal batch made the release, though the policy has a stream section"
    )
    parser.add_argument(
        "--topic", action="store_true", help="the files are exports of topics, which an empty release does not show"
    )
    parser.add_argument(
        "--input-topic",
        metavar="NAME",
        help="the topic of the original, if evidence and quarantine are of several inputs (kafka.topics)",
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
    parser.add_argument("-v", "--verbose", action="store_true", help="print what holds, the counts and the measures")


def execute(options: argparse.Namespace) -> int:
    """Print the verdict; the exit code is 0 if the release holds, 1 if it is broken, 2 if it cannot be decided."""
    given = (options.policy, options.original, options.released, *(file for _, file in options.taxonomy))
    refuse_overwriting([options.json], *given, options.evidence, options.summary, options.quarantine)
    policy = Policy.load(options.policy, dict(options.taxonomy))
    require_table_option(options, policy)
    with ExitStack() as stack:
        file = None if options.json is None else stack.enter_context(open_output(options.json))
        with ProgressDisplay("verifying"):
            verdict = verify(
                policy,
                original=options.original,
                released=options.released,
                evidence=options.evidence,
                summary=options.summary,
                quarantine=options.quarantine,
                partial=options.partial,
                table=True if options.table else None,
                strict=options.strict,
                form=options.format,
                released_form=options.output_format,
                is_export=True if options.topic else None,
                input_topic=options.input_topic,
            )
        if options.taxonomy and any(check.name == "policy" and check.status == "broken" for check in verdict.checks):
            raise InputError(
                "evidence or summary name another policy than the one with the taxonomies of --taxonomy: give the "
                "files under which the release was made"
            )
        if file is not None:
            file.write(json.dumps(verdict.as_dict(), indent=2).encode() + b"\n")
    print(escape_control_characters(verdict.text(verbose=options.verbose)))
    return verdict.exit_code


def _named_file(text: str) -> tuple[str, str]:
    """Split NAME=FILE."""
    name, _, file = text.partition("=")
    if not name or not file:
        raise argparse.ArgumentTypeError("must be NAME=FILE")
    return name, file
