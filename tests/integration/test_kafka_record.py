"""What `shoal run` writes to a broker is what it wrote before its modules were renamed (`golden.record`).

Recorded are, for four policies, everything that is deterministic of what an outside reader sees: released messages,
evidence, references, the cluster topic, the progress beside the committed offset, metrics, reports and exit codes.
All records are on the broker before the start, in one partition and with fixed timestamps.

Which clusters share a transaction depends on the clock, and with it their order in the topics. So messages are
compared as a sorted list; with ordered release, those of the output in the order of the topic. The committed text is
read here by its documented layout, without the code under test: its checksum is verified and everything but the time
of the commit is recorded. Names of topics, which are random, are replaced. Of metrics the names, labels and help
texts are recorded, and the counts of records and clusters; all others depend on time.

``SHOAL_WRITE_RECORD=1 pytest tests/integration/test_kafka_record.py`` writes kafka.json anew and fails.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from golden.record.inputs import FIRST_MS, message, records
from golden.record.recorder import differences, dumped, rounded
from prometheus_client.parser import text_string_to_metric_families
from support.kafka_broker import Wanted, create_topics, produce, wait_until
from support.running import SIDE, Stage

RECORD = Path(__file__).parents[1] / "golden" / "record" / "kafka.json"
COUNT = 240
FIELDS = ("who", "age", "income", "code", "cost")

_AGE = {"role": "quasi_identifier", "bounds": [0, 110], "integer": True}
_ATTRIBUTES: dict[str, Any] = {
    "who": {"role": "identifier", "subject": True},
    "age": _AGE,
    "income": {"role": "quasi_identifier", "bounds": [0, 1000]},
    "code": {"role": "confidential", "type": "string"},
    "cost": {"role": "confidential", "type": "number"},
}
_LEARNED = {
    "age": {"role": "quasi_identifier", "integer": True},
    "income": {"role": "quasi_identifier", "resolution": 1},
}
POLICIES: dict[str, dict[str, Any]] = {
    "cluster release, per_subject, target_span": {
        "attributes": _ATTRIBUTES,
        "privacy": {"k": 3, "per_subject": {"max": 2, "window": 100}},
        "stream": {"delta": 20, "rule": "awo"},
        "steering": {"position": {"target_span": 6}},
    },
    "ordered release, block, learned ranges": {
        "attributes": _ATTRIBUTES | _LEARNED,
        "privacy": {"k": 7},
        "stream": {"delta": 40, "release": "ordered"},
    },
    "cluster release, nearest, subject from the key": {
        "attributes": _ATTRIBUTES | {"who": {"role": "identifier", "subject": True, "from": "key"}},
        "privacy": {"k": 3, "min_population": 8},
        "stream": {"delta": 20, "rule": "nearest"},
        "out_of_bounds": "quarantine",
    },
    "ordered release, every_record": {
        "attributes": _ATTRIBUTES | {"who": {"role": "identifier", "from": "header:owner"}},
        "subject": "every_record",
        "privacy": {"k": 3},
        "stream": {"delta": 20, "rule": "greedy", "release": "ordered"},
        "steering": {"position": 0.01},
    },
}


def anonymous(stage: Stage, text: str) -> str:
    """Replace the random names of topics."""
    for name, topic in stage.topics.items():
        text = text.replace(topic, f"<{name}>")
    return text


def progress_of(topics: dict[str, str], offset: int, text: str) -> dict[str, Any]:
    """Read the progress beside a committed offset: all but the time of the commit and the place of its rows."""
    assert text.startswith("shoal1:"), text
    raw = base64.b64decode(text.removeprefix("shoal1:"), validate=True)
    body, checksum = raw[:-4], raw[-4:]
    assert zlib.crc32(f"{topics['input']}\n0\n{offset}\n".encode() + body).to_bytes(4, "big") == checksum
    sections, at = {}, 1
    while at < len(body):
        tag = body[at]
        size, at = varint_at(body, at + 1)
        sections[tag], at = body[at : at + size], at + size
    first, numbers, at = sections.pop(1), [], 0
    for _ in range(8):
        number, at = varint_at(first, at)
        numbers.append(number)
    names = ("ahead", "clock", "clusters", "drain", "time of the commit", "anchor", "anchor's time", "since")
    fields: dict[str, Any] = dict(zip(names, numbers, strict=True))
    assert fields.pop("time of the commit") > FIRST_MS
    # Where the rows are depends on the clock.
    assert sections.pop(129)[-4:] == zlib.crc32(topics["output"].encode()).to_bytes(4, "big")
    rest = {str(tag): content.hex() for tag, content in sections.items()}
    return fields | {"offset": offset, "version": body[0], "sections": rest}


def varint_at(body: bytes, at: int) -> tuple[int, int]:
    """Return a number, and where the next one begins."""
    number = shift = 0
    while True:
        number |= (body[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if body[at - 1] < 128:
            return number, at


async def published(stage: Stage) -> dict[str, Any]:
    """Return what readers of committed data see in all topics."""
    found: dict[str, Any] = {}
    is_ordered = stage.document["stream"].get("release") == "ordered"
    for name in SIDE:
        messages = await stage.read(name)
        assert all(one.timestamp_ms > FIRST_MS for one in messages)
        assert name == "evidence" or all((one.key, one.headers) == (None, ()) for one in messages)
        values = [anonymous(stage, (one.value or b"").decode()) for one in messages]
        found[name] = values if is_ordered and name == "output" else sorted(values)
    return found


def metrics_of(text: str) -> dict[str, Any]:
    """Return names, labels and help texts of all metrics, and the counts that no clock decides."""
    found: dict[str, Any] = {}
    for family in text_string_to_metric_families(text):
        labels = {f"{one.name}{{{', '.join(sorted(one.labels))}}}" for one in family.samples}
        found[family.name] = {"type": family.type, "help": family.documentation, "samples": sorted(labels)}
        if family.name in {"shoal_records", "shoal_records_held", "shoal_clusters_released"}:
            found[family.name]["values"] = sorted(
                f"{one.labels.get('outcome', '')} {one.labels.get('reason', '')} {one.value:g}"
                for one in family.samples
                if not one.name.endswith("_created")
            )
    return found


def is_balanced(metrics: dict[str, Any]) -> bool:
    """Whether each record that was read is counted as released, refused or held: no transaction is under way."""
    counts: Counter[str] = Counter()
    for name in ("shoal_records", "shoal_records_held"):
        for line in metrics[name].get("values", []):
            counts["in" if line.startswith("in ") else "elsewhere"] += round(float(line.split()[-1]))
    return counts["in"] == counts["elsewhere"] == COUNT


async def stage_of(bootstrap: str, folder: Path, document: dict[str, Any]) -> Stage:
    """Make topics that keep old messages, and put all records there."""
    roles = ("input", *SIDE)
    wanted = [Wanted(configs={"retention.ms": "-1"})] * len(roles)
    topics = dict(zip(roles, await create_topics(bootstrap, wanted), strict=True))
    source = document["attributes"]["who"].get("from", "value")
    messages = [
        message(one, offset, FIELDS if source == "value" else FIELDS[1:])
        for offset, one in enumerate(records(COUNT, seed=31))
    ]
    values: list[bytes | None] = [one["value"].encode() for one in messages]
    values[50], values[90], values[130] = b"{", b'{"who": "p1"}', None
    await produce(
        bootstrap,
        topics["input"],
        values,
        keys=[one["key"].encode() for one in messages],
        headers=[[(name, value.encode()) for name, value in one["headers"]] for one in messages],
        timestamps_ms=[one["timestamp"] for one in messages],
        partitions=0,
    )
    kafka = {"group": f"group-{topics['input']}", "commit_interval_ms": 50, **topics}
    return Stage(bootstrap, folder, topics, document | {"kafka": kafka})


async def reported(stage: Stage, when: str) -> dict[str, Any]:
    """Return what `shoal progress` reports and exports, and what readers see."""
    report, file = stage.command("progress", name=f"report {when}"), stage.folder / "progress.json"
    codes = [await report.ended(120)]
    codes.append(await stage.command("progress", "--export", str(file), name=f"export {when}").ended(120))
    lines = [json.loads(line) for line in report.out.read_text("utf-8").splitlines()]
    assert all(one.pop("last_commit") for one in lines)
    export = json.loads(file.read_text("utf-8"))
    (entry,) = export.pop("partitions")
    committed = progress_of(stage.topics, entry.pop("offset"), entry.pop("metadata"))
    return {
        "exit": codes,
        "report": json.loads(anonymous(stage, json.dumps(rounded(lines)))),
        "export": json.loads(anonymous(stage, json.dumps(export | entry))),
        "committed": committed,
    } | await published(stage)


async def outcome(bootstrap: str, folder: Path, document: dict[str, Any]) -> dict[str, Any]:
    """Run the service to the end of the topic, stop it, and drain; return the outputs."""
    stage = await stage_of(bootstrap, folder, document)
    refused = await stage.process(name="refused").ended(120)
    async with stage.process("--from", "earliest") as service:

        async def is_at_the_end() -> bool:
            assert service.code is None, service.said[-2000:]
            found = await stage.committed()
            if found is None or not (found.metadata or "").startswith("shoal1:"):
                return False
            done = progress_of(stage.topics, found.offset, found.metadata)
            return bool(done["offset"] + done["ahead"] == COUNT)

        async def are_balanced() -> dict[str, Any]:
            found = metrics_of((await service.get("/metrics"))[1])
            return found if is_balanced(found) else {}

        await wait_until(is_at_the_end, 120, "a commit at the end of the topic")
        metrics = await wait_until(are_balanced, what="metrics after the last commit")
        stopped = await service.terminated(120)
    found = {"refused without --from": refused, "stopped": stopped, "metrics": metrics}
    found["before the drain"] = await reported(stage, "before")
    drained = await stage.process("--drain", name="drain").ended(120)
    return found | {"after the drain": await reported(stage, "after"), "drained": drained}


@pytest.mark.parametrize("name", POLICIES)
async def test_what_is_on_the_broker_is_unchanged(name: str, bootstrap: str, tmp_path: Path) -> None:
    now = json.loads(json.dumps(await outcome(bootstrap, tmp_path, POLICIES[name])))
    writing = os.environ.get("SHOAL_WRITE_RECORD") == "1"
    record = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    if writing:
        RECORD.write_text(dumped(record | {name: now}), encoding="utf-8")
    assert not writing, "written; run it again without SHOAL_WRITE_RECORD"
    found = differences(record[name], now)
    assert not found, f"{len(found)} parts differ:\n" + "\n".join(line[:1000] for line in found)
