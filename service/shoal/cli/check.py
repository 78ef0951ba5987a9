"""`shoal check`: print what a policy does, in words or as JSON, or all of its faults."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from shoal.cli.options import add_http_options
from shoal.errors import ConfigError
from shoal.formats import streamed_formats
from shoal.observability import certificate_warning, escape_control_characters, logger
from shoal.observability.http_access import HttpAccess, parse_address
from shoal.policy import (
    DECIDE,
    KafkaSection,
    Policy,
    Stream,
    advise,
    explain,
    left_open,
    missing_credentials,
    shown_settings,
)
from shoal.secret_files import OPEN_TO_OTHERS
from shoal.settings import PREFIX, kafka_settings, missing_settings, require_no_fault

SAMPLE_RECORDS = 20_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sample, and the options of the HTTP port: its files are examined like those of the policy."""
    parser.add_argument(
        "-i",
        "--input",
        metavar="FILE",
        help=f"anonymize up to {SAMPLE_RECORDS:,} records of this file in memory, and print what is lost of each "
        "quasi-identifier; .csv, .jsonl, or without a stream .parquet or .xlsx; - is standard input",
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="print the resolved policy as JSON; the default in a pipe")
    shown.add_argument("--text", action="store_true", help="say in words what it does; the default on a terminal")
    formats = [one.name for one in streamed_formats()]
    parser.add_argument("--format", choices=formats, help="format of a pipe, or of a file with another suffix")
    add_http_options(parser)


def execute(options: argparse.Namespace) -> int:
    """Print the policy in words, or as JSON with every default filled in: what it leaves open, and what to decide on.

    The section ``kafka`` is printed as `shoal run` would use it in this environment, without its secrets. With a sample
    of records, print what the policy loses of it.
    """
    policy = Policy.load(options.policy)
    of_kafka: list[str] = []
    if policy.kafka is not None:
        from shoal.kafka import check_policy  # noqa: PLC0415 - slow, and not every policy is for Kafka

        check_policy(policy, options.policy)
    settings = kafka_settings(policy, required=(), has_secrets=False)
    if settings.model_fields_set:
        of_kafka = _check_kafka_files(policy, settings)
    kafka = {"kafka": shown_settings(settings)} if settings.model_fields_set else {}
    opened = _open_decisions(options.policy)
    advice = [*opened, *advise(policy), *_advise_on_missing(settings), *of_kafka, *_advise_on_http(options)]
    if options.text or (sys.stdout.isatty() and not options.json):
        lines = _in_words(policy, settings, [one for one in advice if one])
        print(escape_control_characters("\n".join(lines)))
    else:
        _print_json(policy, kafka, [one for one in advice if one])
    if options.input is not None:
        _print_sample(policy, options)
    return 0


def _print_json(policy: Policy, kafka: dict[str, Any], advice: Iterable[str]) -> None:
    """Print the policy with every default filled in; log what it leaves open and what to decide on."""
    resolved = policy.resolved() | kafka | {"fingerprint": policy.fingerprint}
    if explained := explain(policy):
        resolved["chosen"] = explained
    resolved["left_open"] = left_open(policy)
    print(escape_control_characters(json.dumps(resolved, indent=2, ensure_ascii=False)))
    for sentence in resolved["left_open"]:
        logger("cli").info(escape_control_characters(f"left open: {sentence}"))
    for sentence in advice:
        logger("cli").warning(escape_control_characters(sentence))


def _in_words(policy: Policy, settings: KafkaSection, advice: Sequence[str]) -> Iterator[str]:
    """Yield lines for a person: what becomes of each field, what is promised, what is open, and what to decide on."""
    from shoal.reports import fields_in_words, promises  # noqa: PLC0415 - slow: it has the judge

    fates: dict[tuple[str, str], list[str]] = {}
    for one in fields_in_words(policy):
        fates.setdefault((one["role"], one["becomes"]), []).append(one["name"])
    width = max(len(role) for role, _ in fates)
    yield f"fields of policy {policy.fingerprint[:16]}:"
    yield from (f"  {role:{width}}  {', '.join(names)}: {becomes}" for (role, becomes), names in fates.items())
    yield "promised:"
    yield from (f"  {sentence}" for sentence in promises(policy, is_table=False))
    if settings.model_fields_set:
        yield f"Kafka: {settings.input or '?'} to {settings.output or '?'}, group {settings.group or '?'}"
    if opened := left_open(policy):
        yield "left open:"
        yield from (f"  {sentence}" for sentence in opened)
    if advice:
        yield "to decide:"
        yield from (f"  {sentence}" for sentence in advice)


def held_memory(stream: Stream, max_record_bytes: int) -> str:
    """Return how much memory the records that wait can need."""
    largest = stream.delta * max_record_bytes
    words = f"delta {stream.delta:,} x kafka.max_record_bytes {max_record_bytes:,} is {_megabytes(largest)}"
    if largest > stream.max_held_bytes:
        words += f"; beyond stream.max_held_bytes, {_megabytes(stream.max_held_bytes)}, records are decided early"
    needed = _megabytes(min(largest, stream.max_held_bytes))
    return f"memory: {words}. A worker can need {needed} for each of its partitions, beside some 300 MB"


def _megabytes(size_bytes: int) -> str:
    return f"{max(1, round(size_bytes / 1e6)):,} MB"


def _open_decisions(path: str) -> list[str]:
    """Return the lines of a draft of `shoal init` that its author has not decided on yet."""
    lines = enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1)
    marked = [(number, line.strip()) for number, line in lines if DECIDE in line]
    return [f"line {number}: decide, and remove the mark: {line.partition(DECIDE)[2]}" for number, line in marked]


def _print_sample(policy: Policy, options: argparse.Namespace) -> None:
    """Anonymize a sample in memory, and print what the policy loses of it."""
    from shoal.cli.release import counts_text  # noqa: PLC0415 - slow: it clusters
    from shoal.files import run_sample  # noqa: PLC0415 - as above

    report = run_sample(policy, options.input, options.format, SAMPLE_RECORDS)
    lines = [f"sample: {counts_text(report)}", *report.loss.lines()]
    lines += [f"{text}; {remedy}" for text, remedy in report.refusals.kinds(report.records_in) if remedy]
    if policy.stream is not None and report.records_in <= policy.stream.delta:
        lines.append(f"the sample has no more records than delta {policy.stream.delta}: a longer one tells more")
    print(escape_control_characters("\n".join(lines)))


def _check_kafka_files(policy: Policy, settings: KafkaSection) -> list[str]:
    """Refuse unusable files of the settings; return advice on the others, and log the memory that is needed.

    A file that cannot be read here is no fault: `shoal run` may run elsewhere, as another user. Advice is on that, on
    certificates that are not valid much longer, and on secrets that are not secret.
    """
    from shoal.kafka import certificate_files, check_files, open_secret_files  # noqa: PLC0415 - slow

    if policy.stream is not None:
        logger("cli").info(held_memory(policy.stream, settings.max_record_bytes))
    found = list(check_files(settings, has_secrets=False))
    require_no_fault(policy, (fault for fault in found if not fault.is_unread))
    return [
        *(f"kafka.{fault.field}: {fault.message}; shoal run needs it where it runs" for fault in found),
        *(certificate_warning(certificate, path) for certificate, path in certificate_files(settings).items()),
        *(f"kafka.{field}: {OPEN_TO_OTHERS}" for field in open_secret_files(settings)),
    ]


def _advise_on_http(options: argparse.Namespace) -> Iterator[str]:
    """Yield a sentence for each setting of the HTTP port that `shoal run` refuses or warns of."""
    access = HttpAccess.of(options)
    try:
        parse_address(options.http)
        access.certificate()
        access.token_check()
    except ConfigError as error:
        yield str(error) + "; shoal run refuses this where it runs"
        return
    if access.certfile is not None:
        yield certificate_warning("http", access.certfile)
    for setting in access.open_secret_files():
        yield f"{setting}: {OPEN_TO_OTHERS}"


def _advise_on_missing(settings: KafkaSection) -> Iterator[str]:
    """Yield a sentence for each setting that `shoal run` needs and that a policy for Kafka does not have."""
    if settings.model_fields_set:
        for name in missing_settings(settings):
            yield f"kafka.{name}: missing; shoal run needs it in the policy or as {PREFIX}{name.upper()}"
        for name in missing_credentials(settings):
            yield f"kafka.{name}: missing; shoal run needs it as {PREFIX}{name.upper()}"
