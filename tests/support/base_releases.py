"""Small sound releases that tests falsify, and a composer of rows that shares no code with Shoal.

Every record has a unique tag, which is published unchanged: it tells from which record a row was made.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from shoal.files import Files, parse_algorithm_options, run_batch, run_pipe
from shoal.policy import Policy
from support.making import policy_of
from support.partition_tasks import Message
from support.scale_shape import ScaleShape
from support.topic_runs import run_topic

Record = dict[str, Any]

FIELDS = ("age", "income", "tag", "ward")
STEPS = {"age": 1, "income": 500}
BOUNDS = {"age": (0, 110), "income": (0, 100_000)}
BASES = ("stream", "stream csv", "ordered", "table", "table csv", "topic", "topic ordered")
_WARDS = ("north", "south", 'the "old" wing', "é, 2nd floor")
_BROKEN = ("{", '{"patient": "p1"}', "[]")


@dataclass(frozen=True)
class Base:
    """A sound release.

    ``document``: the policy. ``records``: those of the original; None for a line that is no record. ``places``:
    partition and offset of each record. ``clusters``: members of each cluster, as indexes into the records, in the
    order of the release. ``shape``: what the rows are made of, if the records have an attribute of every scale.
    """

    name: str
    document: dict[str, Any]
    original: bytes
    records: tuple[Record | None, ...]
    places: tuple[tuple[int, int], ...]
    clusters: tuple[tuple[int, ...], ...]
    shape: ScaleShape | None = None

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns of a row."""
        return FIELDS if self.shape is None else self.shape.fields

    @property
    def k(self) -> int:
        return int(self.document["privacy"]["k"])

    @property
    def delta(self) -> int | None:
        """Largest delay in records; None for a table."""
        return self.document["stream"]["delta"] if "stream" in self.document else None

    @property
    def is_csv(self) -> bool:
        return self.name.endswith("csv")

    @property
    def is_table(self) -> bool:
        return self.name.startswith("table")

    @property
    def is_ordered(self) -> bool:
        return self.name.endswith("ordered")

    @property
    def is_topic(self) -> bool:
        return self.name.startswith("topic")

    def record(self, index: int) -> Record:
        """Return a record that is one."""
        found = self.records[index]
        assert found is not None
        return found


def _document(name: str, k: int, delta: int) -> dict[str, Any]:
    unchanged = {"type": "string", "publish_unchanged": True}
    document: dict[str, Any] = {
        "attributes": {
            "patient": {"role": "identifier", "subject": True},
            "age": {"role": "quasi_identifier", "bounds": list(BOUNDS["age"]), "integer": True, "resolution": 1},
            "income": {"role": "quasi_identifier", "bounds": list(BOUNDS["income"]), "resolution": 500},
            "tag": {"role": "confidential", **unchanged},
            "ward": {"role": "other", **unchanged},
        },
        "privacy": {"k": k},
    }
    if not name.startswith("table"):
        document["stream"] = {"delta": delta, "release": "ordered" if name.endswith("ordered") else "cluster"}
    return document


def _records(random: Random, count: int, people: int) -> list[Record]:
    tags = random.sample(range(10_000), count)
    return [
        {
            "patient": f"p{random.randrange(people)}",
            "age": random.randrange(-3, 116),
            "income": random.randrange(400_000) / 4,
            "tag": f"t{tag:04}",
            "ward": random.choice(_WARDS),
        }
        for tag in tags
    ]


# ---------------------------------------------------------------- composer


def _mean_of(records: Iterable[Record], name: str) -> str:
    """Return the published value of a quasi-identifier: the mean of the clipped values, as a multiple of its step."""
    low, high = BOUNDS[name]
    clipped = [Fraction(min(max(record[name], low), high)) for record in records]
    return str(round(sum(clipped) / len(clipped) / STEPS[name]) * STEPS[name])


def row_text(base: Base, record: Record, means: Sequence[str]) -> str:
    """Return a published row: the means of a cluster, and what the record publishes unchanged."""
    if base.shape is not None:
        return base.shape.row(record, means)
    if base.is_csv:
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow([*means, record["tag"], record["ward"]])
        return text.getvalue()
    shown = [f'"{name}":{mean}' for name, mean in zip(STEPS, means, strict=True)]
    shown += [f'"{name}":{json.dumps(record[name], ensure_ascii=False)}' for name in ("tag", "ward")]
    return "{" + ",".join(shown) + "}"


def shown_of(base: Base, members: Iterable[int], released: Iterable[int]) -> list[str]:
    """Return what a cluster publishes of the quasi-identifiers; ``released``: the members of all clusters."""
    records = [base.record(index) for index in members]
    if base.shape is not None:
        return list(base.shape.shown_of(records, [base.record(index) for index in released]))
    return [_mean_of(records, name) for name in STEPS]


def compose(base: Base, clusters: Sequence[Sequence[int]]) -> list[list[str]]:
    """Return the rows that Shoal would publish for these clusters: one list per cluster, or one per partition."""
    found = []
    released = [index for members in clusters for index in members]
    for members in clusters:
        means = shown_of(base, members, released)
        found.append(sorted((row_text(base, base.record(index), means) for index in members), key=str.encode))
    if base.is_table:
        return [sorted((row for rows in found for row in rows), key=str.encode)]
    if base.is_ordered:
        slots = sorted(
            (slot, row)
            for members, rows in zip(clusters, found, strict=True)
            for slot, row in zip(sorted(members), rows, strict=True)
        )
        partitions = sorted({partition for partition, _ in base.places})
        return [[row for slot, row in slots if base.places[slot][0] == one] for one in partitions]
    return found


# ---------------------------------------------------------------- making


def timestamp_of(index: int) -> int:
    """Return the timestamp of a message (ms): one per second."""
    return 1_700_000_000_000 + 1000 * index


@cache
def base_of(name: str, count: int = 120, *, people: int = 60, k: int = 3, delta: int = 20, seed: int = 1) -> Base:
    """Make a base. Shoal releases it; the order of its clusters is that of the released rows."""
    random, document = Random(f"{name}{seed}"), _document(name, k, delta)
    records: list[Record | None] = list(_records(random, count, people))
    lines = [json.dumps(record) for record in records]
    if name in {"stream", "ordered", "topic", "topic ordered"}:
        for index, line in enumerate(_BROKEN):
            lines[10 * index + 5], records[10 * index + 5] = line, None
    places = [(0, index) for index in range(count)]
    if name.startswith("topic"):
        places = _two_partitions(random, count)
        lines = exported(lines, places)
    original = "".join(f"{line}\n" for line in lines).encode()
    if name.endswith("csv"):
        original = csv_original([record for record in records if record is not None])
    released, evidence = _released(name, policy_of(**document), original, places, records)
    index_of = {place: index for index, place in enumerate(places)}
    clusters = [[index_of[line["partition"], offset] for offset in line["offsets"]] for line in evidence]
    first_row = {
        index: released.find(record["tag"].encode()) for index, record in enumerate(records) if record is not None
    }
    clusters.sort(key=lambda members: min(first_row[index] for index in members))
    return Base(name, document, original, tuple(records), tuple(places), tuple(map(tuple, clusters)))


def _two_partitions(random: Random, count: int) -> list[tuple[int, int]]:
    next_offset = [0, 1000]
    places = []
    for _ in range(count):
        partition = random.randrange(2)
        places.append((partition, next_offset[partition]))
        next_offset[partition] += random.choice((1, 1, 1, 4))
    return places


def exported(lines: Sequence[str], places: Sequence[tuple[int, int]]) -> list[str]:
    """Return the lines of the export of a topic with these messages."""
    messages = (
        {"partition": partition, "offset": offset, "value": line, "timestamp": timestamp_of(index)}
        for index, ((partition, offset), line) in enumerate(zip(places, lines, strict=True))
    )
    return [json.dumps(message) for message in messages]


def csv_original(records: Sequence[Record]) -> bytes:
    """Return records as a CSV file."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue().encode()


def _released(
    name: str, policy: Policy, original: bytes, places: Sequence[tuple[int, int]], records: Sequence[Record | None]
) -> tuple[bytes, list[dict[str, Any]]]:
    """Return what Shoal releases, and its evidence."""
    if name.startswith("topic"):
        messages: dict[int, list[Message]] = {0: [], 1: []}
        for index, ((partition, offset), record) in enumerate(zip(places, records, strict=True)):
            value = b"{" if record is None else json.dumps(record).encode()
            messages[partition].append(Message(offset, timestamp_of(index), value))
        topics = run_topic(policy, messages, 15, drains=True)
        return b"".join(line + b"\n" for line in topics["released"]), [json.loads(one) for one in topics["evidence"]]
    with TemporaryDirectory() as folder:
        suffix = "csv" if name.endswith("csv") else "jsonl"
        source, target, evidence = (Path(folder) / one for one in (f"in.{suffix}", f"out.{suffix}", "evidence.jsonl"))
        source.write_bytes(original)
        files = Files(source=str(source), target=str(target), evidence=str(evidence))
        if name.startswith("table"):
            run_batch(policy, files, parse_algorithm_options("mdav", None, (), 0))
        else:
            run_pipe(policy, files)
        return target.read_bytes(), [json.loads(line) for line in evidence.read_bytes().splitlines()]
