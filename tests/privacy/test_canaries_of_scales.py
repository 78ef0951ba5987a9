"""No category, rank, time, steering value, nested field or deleted row is found in anything but the output."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.exposition import generate_latest
from shoal.cli import main
from shoal.formats import JsonDecoder
from shoal.kafka.metadata import CommittedState
from shoal.kafka.offsets import OffsetState
from shoal.kafka.transactions import TransactionBatch
from shoal.observability import Metrics
from shoal.policy import Policy
from shoal.policy.schema import Document
from support.attack_results import impossible
from support.attacking import Release, Wire
from support.canaries import every_logger_at_debug, traces
from support.partition_tasks import START_MS, Message, partition_task

WHO, WARD, LEAF, REFUSED, MISFIT = "whoxq7canary", "wardxq7canary", "leafxq7canary", "jobxq7canary", "rankxq7canary"
NESTED, BEFORE, DELETED, LARGE = "innerxq7canary", "beforexq7canary", "deletedxq7canary", "largexq7canary"
BAD_TIME, MINUTE, BAD_TYPE = "timexq7canary", "T06:07:08.917", "typexq7canary"
INSTANT = 1_049_522_828_917
"""A time in milliseconds; its year is published."""
HIDDEN: list[str | int] = [
    *(WHO, WARD, LEAF, REFUSED, MISFIT, NESTED, BEFORE, DELETED, LARGE, BAD_TIME, MINUTE, BAD_TYPE, INSTANT)
]
"""Not in the output, either."""
AREA, PUBLISHED = "areaxq7canary", "illxq7canary"
"""A category, which clusters publish as their mode; the text inside a JSON value, which is published unchanged."""


def policy_document(undeclared: str, dropped: str) -> dict[str, Any]:
    def nominal(source: str, **more: Any) -> dict[str, Any]:
        return {"role": "quasi_identifier", "scale": "nominal", "from": source, **more}

    tree = {"cared": ["nurse", "doctor"], "other": ["judge"]}
    time = {"role": "quasi_identifier", "scale": "time", "resolution": "year"}
    return {
        "unwrap": "debezium",
        "undeclared": undeclared,
        "deletes": dropped,
        "tombstones": dropped,
        "attributes": {
            "who": {"role": "identifier", "subject": True, "from": "patient.id"},
            "age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True, "missing": "group"},
            "job": nominal("work.job", taxonomy=tree, unknown="quarantine", publish="median"),
            "place": nominal("patient.place", taxonomy={"north": ["n1", "n2"], "south": ["s1"]}),
            "area": nominal("patient.area", missing="group"),
            "school": {"role": "quasi_identifier", "scale": "ordinal", "order": ["low", "high"], "missing": "mean"},
            "born": time | {"bounds": ["1950-01-01", "2020-01-01"], "from": "patient.born"},
            "seen": time | {"unit": "ms", "bounds": [0, 2_000_000_000_000]},
            "ward": {"role": "steering", "scale": "nominal", "missing": "group"},
            "codes": {"role": "confidential", "type": "json", "max_bytes": 200},
        },
        "steering": {"by": [{"attribute": "ward", "weight": 0.3}]},
        "privacy": {"k": 3},
        "stream": {"delta": 20},
        "kafka": {"max_record_bytes": 3000},
    }


def row(number: int, **changes: Any) -> dict[str, Any]:
    """Return a record; a change of a field inside an object has its path with two underscores."""
    record: dict[str, Any] = {
        "patient": {
            "id": f"{WHO} {number}",
            "place": f"{LEAF} {number}" if number % 10 == 0 else ["n1", "n2", "s1"][number % 3],
            "area": f"{AREA} {number % 4}" if number % 7 else None,
            "born": f"{1955 + number % 50}-04-05{MINUTE}",
        },
        "work": {"job": ["nurse", "doctor", "judge"][number % 3]},
        "age": number * 37 % 110 if number % 9 else None,
        "school": ["low", "high"][number % 2] if number % 8 else "",
        "seen": INSTANT,
        "ward": f"{WARD} {number % 3}" if number % 5 else None,
        "codes": [{PUBLISHED: number}, [PUBLISHED]],
    }
    for path, value in changes.items():
        *outer, name = path.split("__")
        place = record
        for step in outer:
            place = place[step]
        place[name] = value
    return record


def change(record: dict[str, Any] | None, number: int) -> dict[str, Any]:
    """Return the message of Debezium on a row that was changed, or deleted."""
    old = row(number, patient__id=DELETED, patient__area=BEFORE, ward=BEFORE, codes=BEFORE)
    return {"before": old, "after": record, "op": "d" if record is None else "u", "source": {"table": BEFORE}}


BAD: dict[str, dict[str, Any]] = {
    "a value that the taxonomy lacks": {"work__job": REFUSED},
    "a category that is an object": {"patient__area": {BAD_TYPE: BAD_TYPE}},
    "a category that is a fraction": {"patient__area": INSTANT + 0.5},
    "a category with half a surrogate pair": {"patient__area": f"{BAD_TYPE}\ud800"},
    "a rank that is not in the order": {"school": MISFIT},
    "a time that is none": {"patient__born": f"2003-13-45T{BAD_TIME}"},
    "a time in a year after 9999": {"seen": INSTANT * 10**6},
    "a time that is a text": {"seen": BAD_TIME},
    "a steering value that is a list": {"ward": [WARD]},
    "an object that is a text": {"work": BAD_TYPE},
    "a missing subject": {"patient__id": None},
    "a JSON value that is too long": {"codes": [LARGE] * 20},
    "a category that is too long": {"patient__area": LARGE * 300},
    "a steering value that is too long": {"ward": LARGE * 300},
}
UNDECLARED = {"work__note": {NESTED: [NESTED]}}


def message_of(number: int, changes: dict[str, Any]) -> bytes:
    return json.dumps(change(row(number, **changes), number)).encode()


def traffic(count: int) -> list[bytes | None]:
    """Good messages; each fault; deletes and tombstones; undeclared fields inside objects."""
    messages: list[bytes | None] = [message_of(number, {}) for number in range(count)]
    for place, changes in enumerate([*BAD.values(), UNDECLARED]):
        messages[5 * place + 3] = message_of(5 * place + 3, changes)
    messages[1] = json.dumps(change(None, 1)).encode()
    messages[2] = None
    messages[6] = messages[7] = f'{{"before": "{BEFORE}", "after": {{"{BAD_TYPE}'.encode()
    return messages


def policy_of(document: dict[str, Any], folder: Path) -> tuple[Policy, str]:
    path = folder / "policy.yaml"
    path.write_text(json.dumps(document))
    return Policy.from_document(Document.model_validate(document)), str(path)


class Recording(Wire):
    """A producer that keeps what it committed."""

    def __init__(self, release: Release) -> None:
        super().__init__(release)
        self.metadata: list[str] = []

    async def publish_and_commit(self, batch: TransactionBatch, committed_offset: int, metadata: str, at: int) -> None:
        self.metadata.append(metadata)
        await super().publish_and_commit(batch, committed_offset, metadata, at)


@pytest.mark.parametrize(("undeclared", "dropped"), [("drop", "quarantine"), ("quarantine", "drop")])
def test_what_a_task_sends_commits_logs_and_counts_contains_no_value(
    tmp_path: Path, undeclared: str, dropped: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    policy, _ = policy_of(policy_document(undeclared, dropped), tmp_path)
    release, metrics = Release(policy, []), Metrics()
    wire = Recording(release)

    async def run() -> None:
        beginning = CommittedState(OffsetState(committed_offset=0, next_offset=0), policy.fingerprint, 1)
        task = partition_task(
            "in",
            0,
            policy,
            JsonDecoder(policy, max_bytes=3000),
            wire,
            beginning,
            metrics,
            0.2,
            wall_clock=lambda: START_MS / 1000,
        )
        for offset, value in enumerate(traffic(300)):
            await task.process([Message(offset, START_MS, value)])
            if offset % 30 == 0:
                await task.commit()
        await task.commit(flush=True)
        await task.close(commit=True)

    asyncio.run(run())
    places = {"logs": caplog.text.encode(), "metrics": generate_latest(metrics.registry)}
    places["refusals"] = repr(vars(metrics.refusals)).encode()
    places["metadata"] = "\n".join(wire.metadata).encode()
    for name in ("out", "bad", "proof", "sums"):
        places[name] = b"\n".join(value for one in release.transactions for value in one.topics.get(name, []))
    # An earlier test of the process may have sent the logs elsewhere.
    assert all(content for place, content in places.items() if place != "logs")
    assert traces(HIDDEN, places) == []
    assert traces([AREA], {name: text for name, text in places.items() if name not in {"out", "sums"}}) == []
    assert traces([PUBLISHED], {name: text for name, text in places.items() if name != "out"}) == []
    assert AREA.encode() in places["out"]
    assert AREA.encode() in places["sums"]
    reasons = Counter(one["reason"] for one in map(json.loads, places["bad"].splitlines()))
    assert reasons == {"undecodable": 4 if dropped == "quarantine" else 3, "invalid": 11, "too_large": 3}


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in {"policy.yaml", "in.jsonl"}}


@pytest.mark.parametrize("command", ["pipe", "batch"])
def test_no_value_is_in_summary_evidence_quarantine_verdict_and_terminal_of_a_file(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, policy = policy_of(policy_document("drop", "drop"), tmp_path)
    messages = traffic(300)
    if command == "batch":  # It refuses a table with an invalid record.
        messages = [message_of(number, UNDECLARED if number % 4 else {}) for number in range(300)]
        messages[1] = json.dumps(change(None, 1)).encode()
    source, target = str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl")
    Path(source).write_bytes(b"".join((value or b"") + b"\n" for value in messages))
    sides = {name: str(tmp_path / name) for name in ("summary", "evidence", "quarantine")}
    options = [f"--{name}={path}" for name, path in sides.items()]
    kind = ["--table"] if command == "batch" else []
    checked = policy
    if command == "batch":  # A policy without a stream lets `check` release a table.
        checked = str(tmp_path / "table.yaml")
        document = policy_document("drop", "drop")
        Path(checked).write_text(json.dumps({name: part for name, part in document.items() if name != "stream"}))
    with every_logger_at_debug():
        codes = [
            main(["check", checked, "-i", source]),
            main([command, policy, "-i", source, "-o", target, *options]),
            main(["verify", policy, "--original", source, "--released", target, *options, *kind]),
        ]
        Path(target).write_bytes(b"".join(Path(target).read_bytes().splitlines(keepends=True)[5:]))
        codes.append(main(["verify", policy, "--original", source, "--released", target, *options, *kind]))
    out, err = capsys.readouterr()
    assert codes == [0, 0, 0, 1], out + err
    places = files_of(tmp_path) | {"said": (out + err).encode()}
    assert traces(HIDDEN, places) == []
    assert traces([AREA, PUBLISHED], {name: text for name, text in places.items() if name != "out.jsonl"}) == []
    assert AREA.encode() in places["out.jsonl"]


@pytest.mark.parametrize("fault", BAD)
@pytest.mark.parametrize("command", ["pipe", "batch", "verify"])
def test_an_error_about_a_record_names_its_field_and_no_value(
    tmp_path: Path, command: str, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, policy = policy_of(policy_document("drop", "drop"), tmp_path)
    messages = [message_of(number, BAD[fault] if number == 7 else {}) for number in range(30)]
    source, target = tmp_path / "in.jsonl", str(tmp_path / "out.jsonl")
    source.write_bytes(b"".join(value + b"\n" for value in messages))
    with every_logger_at_debug():
        if command == "verify":
            assert main(["pipe", policy, "-i", str(source), "-o", target]) == 0
            Path(target).write_bytes(Path(target).read_bytes().replace(b'"low"', b'"high"'))
            code = main(["verify", policy, "--original", str(source), "--released", target])
        else:
            code = main([command, policy, "-i", str(source), "-o", target])
    out, err = capsys.readouterr()
    assert code == {"pipe": 0, "batch": 2, "verify": 1}[command], out + err
    assert traces([*HIDDEN, AREA, PUBLISHED], {"said": (out + err).encode()}) == []
    assert {"pipe": "records refused", "batch": "line 8", "verify": "broken:"}[command] in out + err


def test_a_fault_of_a_taxonomy_names_the_line_and_no_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = policy_document("drop", "drop")
    document["attributes"]["job"] |= {"taxonomy": "jobs.csv"}
    (tmp_path / "policy.yaml").write_text(json.dumps(document))
    for rows in (
        f"{LEAF};a;*\n{LEAF};b;*",
        f"{LEAF};a;*\n{REFUSED};*",
        f"n;{LEAF};*\nm;{LEAF};x\nj;{LEAF};*;{REFUSED}",
    ):
        (tmp_path / "jobs.csv").write_text(f"job;group;all\n{rows}\n")
        assert main(["check", str(tmp_path / "policy.yaml")]) == 2
        out, err = capsys.readouterr()
        assert "jobs.csv line" in out + err
        assert traces(HIDDEN, {"said": (out + err).encode()}) == []
    impossible(
        "R36", "canaries in categories, ranks, times, steering, nested fields and deleted rows: none but in the output"
    )
