"""Sound releases made at random by Shoal itself, for tests that the judge accuses none of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from shoal.audit import Verdict, verify
from shoal.errors import AnonymityViolation, ConfigError, InputError
from shoal.files import Files, parse_algorithm_options, run_batch, run_pipe
from shoal.policy import MessagePart, Policy
from shoal.policy.schema import Document as Schema
from support.partition_tasks import Message
from support.random_originals import message_of, random_records, respelled, spoiled, write_csv, write_parquet
from support.random_policies import START_MS, Document, Kind, random_document, value_of, with_protection, with_scales
from support.topic_runs import run_topic

_ALGORITHMS = ("mdav", "vmdav", "md", "hilbert", "auto", "auto")
_KINDS: tuple[Kind, ...] = ("stream",) * 5 + ("table",) * 3 + ("topic",) * 2
_SIZES = (20, 20, 40, 40, 80, 160, 400)


@dataclass(frozen=True)
class SoundRelease:
    """A policy, and the files of one run under it."""

    seed: int
    kind: Kind
    document: Document
    policy: Policy
    original: Path
    released: Path
    evidence: Path
    quarantine: Path
    summary: Path | None

    def verdict(self, *, evidence: bool, quarantine: bool, summary: bool, strict: bool = False) -> Verdict | None:
        """Return the verdict on these files; None if they are refused as unusable input, which is exit code 2."""
        with suppress(InputError):
            return verify(
                self.policy,
                self.original,
                self.released,
                self.evidence if evidence else None,
                self.summary if summary else None,
                quarantine=self.quarantine if quarantine else None,
                strict=strict,
                table=True if self.kind == "table" else None,
            )
        return None

    def accusations(self, random: Random) -> list[str]:
        """Judge the release with all its files and with two random choices of them; return the faults."""
        choices = [(True, True, True), *(tuple(random.random() < 0.5 for _ in range(3)) for _ in range(2))]
        found = []
        for evidence, quarantine, summary in choices:
            strict = not self.policy.unchanged_fields
            verdict = self.verdict(evidence=evidence, quarantine=quarantine, summary=summary, strict=strict)
            code = 2 if verdict is None else verdict.exit_code
            if code not in self.expected(evidence=evidence, quarantine=quarantine, summary=summary):
                given = zip(("evidence", "quarantine", "summary"), (evidence, quarantine, summary), strict=True)
                files = [name for name, is_given in given if is_given]
                told = "input refused" if verdict is None else verdict.text()
                found.append(f"seed {self.seed}, {self.kind}, with {files}: exit {code}\n{told}")
        return found

    def expected(self, *, evidence: bool, quarantine: bool, summary: bool) -> set[int]:
        """Return the exit codes that are right for a sound release with these files beside original and release."""
        is_counted = summary and self.summary is not None
        if self.has_rejected_by_clock:  # the records released next must show the clock
            return {0, 2}
        if self.is_empty and self.kind == "topic" and not self.policy.envelope_attributes:
            is_ordered = self.policy.require_stream().is_ordered  # without rows, it may have clusters
            return {0} if quarantine and (evidence or not is_ordered) else {2}
        if not evidence or (self.is_empty and not is_counted):  # only a summary says that nothing was released
            return {0, 2}
        if not quarantine and not is_counted and self.has_suppressed:
            return {0, 2}
        return {0}

    @property
    def is_empty(self) -> bool:
        """Whether no record was released."""
        return not self.evidence.read_bytes()

    @property
    def has_rejected_by_clock(self) -> bool:
        """Whether a message may have been rejected because it was dated far ahead."""
        limit = START_MS + 3_600_000
        return self.kind == "topic" and any(
            json.loads(line).get("timestamp", limit + 1) > limit for line in self.original.read_bytes().splitlines()
        )

    @property
    def has_suppressed(self) -> bool:
        """Whether a record was suppressed."""
        return b'"suppressed"' in self.quarantine.read_bytes()


@contextmanager
def no_disk() -> Iterator[None]:
    """Do not wait for the disk when files are completed."""
    with patch("os.fsync", lambda _: None):
        yield


def sound_release(seed: int, folder: Path, *, scaled: bool = False, protected: bool = False) -> SoundRelease:
    """Make the release of this seed in a folder. A policy or table that Shoal refuses is drawn again.

    ``scaled``: whether the policy has attributes of every scale, missing values and nested fields. ``protected``:
    whether it has ``l``, ``max_value_share`` or ``t``.
    """
    random, random_of_scales, random_of_values = Random(seed), Random(f"{seed} scales"), Random(f"{seed} values")
    while True:
        kind = random.choice(_KINDS)
        document = random_document(random, kind) | _size_limit(seed)
        if scaled:
            document = with_scales(random_of_scales, document, kind)
        if protected:
            document = with_protection(random_of_values, document, kind, folder)
        try:
            policy = Policy.from_document(Schema.model_validate(document))
            return {"stream": _stream, "table": _table, "topic": _topic}[kind](seed, random, document, policy, folder)
        except (ConfigError, InputError):
            continue
        except AnonymityViolation:
            if kind != "table" or not protected:
                raise
            continue  # the whole table exceeds a limit of confidential values


def _size_limit(seed: int) -> Document:
    """Return the section of a policy that limits the sizes of records, for one seed in eight."""
    random = Random(f"{seed} size")
    limit = random.randint(100, 200)
    kafka = {"bootstrap_servers": "localhost:9092", "input": "in", "output": "out", "group": "shoal"}
    return {"kafka": kafka | {"max_record_bytes": limit}} if random.random() < 1 / 8 else {}


def _paths(folder: Path, source: str, target: str) -> dict[str, Path]:
    names = {"original": source, "released": target, "evidence": "jsonl", "quarantine": "jsonl"}
    return {name: folder / f"{name}.{suffix}" for name, suffix in names.items()}


def _files(paths: dict[str, Path], summary: Path) -> Files:
    source, target, evidence, quarantine = map(str, paths.values())
    return Files(source, target, evidence=evidence, quarantine=quarantine, summary=str(summary))


def _stream(seed: int, random: Random, document: Document, policy: Policy, folder: Path) -> SoundRelease:
    records = _records(random, policy, random.choice(_SIZES), is_table=False)
    source = "jsonl" if policy.envelope_attributes else random.choice(("jsonl", "csv"))
    if _is_nested(policy):
        source = "jsonl"
    paths = _paths(folder, source, random.choice(("jsonl", "csv", source)))
    _write_lines(random, policy, records, paths["original"], spoils=True)
    run_pipe(policy, _files(paths, folder / "summary.json"))
    return SoundRelease(seed, "stream", document, policy, **paths, summary=folder / "summary.json")


def _is_nested(policy: Policy) -> bool:
    """Whether records have a structure that cells cannot have."""
    return policy.unwrap is not None or any(
        attribute.path != (attribute.name,) for attribute in policy.value_attributes
    )


def _table(seed: int, random: Random, document: Document, policy: Policy, folder: Path) -> SoundRelease:
    records = _records(random, policy, random.choice(_SIZES[:-1]), is_table=True)
    source, target = (random.choice(("jsonl", "csv", "parquet")) for _ in range(2))
    if any(attribute.type == "json" for attribute in policy.attributes) and source == "parquet":
        source = "jsonl"
    paths = _paths(folder, source, target)
    if source == "parquet":
        write_parquet(paths["original"], records, list(records[0]))
    else:
        _write_lines(random, policy, records, paths["original"], spoils=False)
    algorithms = (*_ALGORITHMS, "strict", "steered") if policy.t is not None else _ALGORITHMS
    spec = parse_algorithm_options(random.choice(algorithms), random.choice((None, "none", "descent")), (), 0)
    run_batch(policy, _files(paths, folder / "summary.json"), spec)
    return SoundRelease(seed, "table", document, policy, **paths, summary=folder / "summary.json")


def _topic(seed: int, random: Random, document: Document, policy: Policy, folder: Path) -> SoundRelease:
    messages: dict[int, list[Message]] = {partition: [] for partition in range(random.choice((1, 2, 3)))}
    lines, next_offset = [], dict.fromkeys(messages, 0)
    for record in _records(random, policy, random.choice(_SIZES), is_table=False):
        partition = random.randrange(len(messages))
        offset = next_offset[partition] + random.choice((0, 0, 0, 0, 1, 9))
        next_offset[partition] = offset + 1
        exported = message_of(policy, record)
        if random.random() < 0.05:
            exported["value"] = random.choice((None, "{", "[]", "{}"))
        lines.append({"partition": partition, "offset": offset, **exported})
    _date(Random(f"{seed} dates"), policy, lines)
    for line in lines:
        messages[line["partition"]].append(_message(line["offset"], line))
    topics = run_topic(policy, messages, random.choice((1, 7, 30, 500)), drains=random.random() < 0.7)
    paths = _paths(folder, "jsonl", "jsonl")
    if seed % 4 == 0 and not policy.envelope_attributes:
        for line in lines:
            del line["timestamp"]
    paths["original"].write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    for name, values in topics.items():
        paths[name].write_bytes(b"".join(value + b"\n" for value in values))
    return SoundRelease(seed, "topic", document, policy, **paths, summary=None)


def _date(random: Random, policy: Policy, lines: list[dict[str, Any]]) -> None:
    """Date messages as a topic does, one after the other; in some topics a few are dated far ahead of the clock."""
    if any(attribute.source.part is MessagePart.TIMESTAMP for attribute in policy.envelope_attributes):
        return
    ahead = random.choice((0, 0.03))
    for number, line in enumerate(lines):
        late = random.choice((0, 0, 0, -40))
        line["timestamp"] = START_MS + 20 * number + late
        if random.random() < ahead:
            line["timestamp"] += random.randint(2, 48) * 3_600_000


def _message(offset: int, exported: dict[str, Any]) -> Message:
    value, key = exported["value"], exported.get("key")
    return Message(
        offset,
        exported.get("timestamp", START_MS),
        None if value is None else value.encode(),
        None if key is None else key.encode(),
        tuple((name, text.encode()) for name, text in exported.get("headers", [])),
    )


def _records(random: Random, policy: Policy, count: int, *, is_table: bool) -> list[dict[str, Any]]:
    records = random_records(random, policy, count, is_table=is_table)
    if policy.kafka is not None:
        _lengthen(Random(f"{count} lengths"), policy, records)
    return respelled(random, records, None if policy.subject is None else policy.subject.name)


def _lengthen(random: Random, policy: Policy, records: list[dict[str, Any]]) -> None:
    """Lengthen texts of unchanged fields, so that some records are above the limit of the policy, and some near it."""
    for record in records:
        for attribute in policy.unchanged_fields:
            if attribute.type in {"string", "any"} and isinstance(record[attribute.name], str):
                record[attribute.name] += random.choice(("", "é", '"', "x")) * random.randrange(160)


def _write_lines(random: Random, policy: Policy, records: list[dict[str, Any]], path: Path, *, spoils: bool) -> None:
    """Write records as JSON lines, messages or CSV, with some lines that are no records."""
    if path.suffix == ".csv":
        path.write_bytes(write_csv(policy, records, list(records[0])))
        return
    made: list[Any] = [value_of(Random(repr(record)), policy, record) for record in records]
    if policy.envelope_attributes:
        made = [message_of(policy, record, bare=True) for record in records]
    lines = [json.dumps(one, ensure_ascii=random.random() < 0.5) for one in made]
    if spoils and random.random() < 0.5:
        lines[1:] = [spoiled(random, line) if random.random() < 0.1 else line for line in lines[1:]]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
