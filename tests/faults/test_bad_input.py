"""Malformed messages of every kind among good ones: each has its stated outcome, and the valid ones are processed."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from prometheus_client.parser import text_string_to_metric_families
from shoal.audit import verify
from shoal.files import Files, run_pipe
from shoal.policy import Policy
from support.canaries import LOUD, traces
from support.faulty_workers import export, judged
from support.hostile import CANARY, CELLS, KINDS, MAX_BYTES, POLICY, Sent, good, page
from support.kafka_broker import Message, broker, end_offsets, wait_until
from support.running import Stage

BAD = [2_000, pytest.param(50_000, marks=pytest.mark.nightly)]
PARTITIONS = 4
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reports" / "malformed.md"
RecordId = tuple[int, int]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker() as address:
        yield address


def mixture(bad: int) -> list[tuple[Sent, str]]:
    """Messages and their stated outcomes: so many bad ones, as many good ones, and odd ones among them."""
    draw = random.Random(7)
    wrong, odd = ([kind for kind in KINDS if (kind.outcome == "released") is is_good] for is_good in (False, True))
    plan: list[Any] = [kind for kind, _ in zip(cycle(wrong), range(bad), strict=False)]
    plan += [kind for kind, _ in zip(cycle(odd), range(bad // 25), strict=False)]
    plan += [None] * bad
    draw.shuffle(plan)
    return [
        (Sent(json.dumps(good(number)).encode()), "released")
        if kind is None
        else (kind.message(good(number), draw), kind.outcome)
        for number, kind in enumerate(plan)
    ]


async def send(bootstrap: str, topic: str, messages: Sequence[Sent]) -> list[RecordId]:
    """Append messages in turn to the partitions, in whole batches; return (partition, offset) of each."""
    now_ms = round(time.time() * 1000)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, max_batch_size=1 << 19) as producer:
        for partition in range(PARTITIONS):
            batch = producer.create_batch()
            for message in messages[partition::PARTITIONS]:
                stamp = max(0, now_ms + message.ahead_ms)
                headers = [(CANARY, CANARY.encode())]
                content = {"key": CANARY.encode(), "value": message.value, "timestamp": stamp, "headers": headers}
                if batch.append(**content) is None:
                    batch.close()
                    await producer.send_batch(batch, topic, partition=partition)
                    batch = producer.create_batch()
                    batch.append(**content)
            batch.close()
            await producer.send_batch(batch, topic, partition=partition)
        await producer.flush()
    return [(number % PARTITIONS, number // PARTITIONS) for number in range(len(messages))]


def counted(scrape: str) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for family in text_string_to_metric_families(scrape):
        for one in family.samples:
            if one.name == "shoal_records_total":
                found[one.labels["outcome"], one.labels["reason"]] += round(one.value)
    return found


def test_the_page_states_the_tested_outcomes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


async def stage_of(bootstrap: str, folder: Path) -> Stage:
    """Topics for hostile messages; the input takes any timestamp."""
    stamps = {"message.timestamp.after.max.ms": str(1 << 62)}
    stage = await Stage.create(bootstrap, folder, partitions=PARTITIONS, configs=stamps)
    stage.document |= {name: POLICY[name] for name in ("attributes", "privacy", "stream")}
    stage.document["kafka"]["max_record_bytes"] = MAX_BYTES
    return stage


async def serve(stage: Stage, count: int) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """Read all with one worker and drain with another; return their metrics and their last log lines."""
    options: dict[str, Any] = {"program": (LOUD,)}
    most_held = PARTITIONS * (POLICY["stream"]["delta"] + 1)
    shown: dict[str, bytes] = {}
    async with stage.command("run", "--http", "127.0.0.1:0", "--from", "earliest", name="one", **options) as one:

        async def is_through() -> bool:
            assert one.code is None, one.said[-2000:]
            found = counted((await one.get("/metrics"))[1])
            return found["in", ""] == count and 2 * count - found.total() <= most_held

        await wait_until(is_through, 60, "the end of the input")
        for path in ("/metrics", "/", "/livez", "/readyz"):
            shown[path] = (await one.get(path))[1].encode()
        assert await one.terminated() == 0
    async with stage.command("run", "--http", "127.0.0.1:0", "--drain", name="two", **options) as two:
        assert await two.ended(60) == 0, two.said[-2000:]
    shown |= {name: (stage.folder / name).read_bytes() for name in ("one.log", "one.out", "two.log", "two.out")}
    ends = [line for process in (one, two) for line in process.lines("stopped") if "in" in line]
    assert len(ends) == 2
    for partition in range(PARTITIONS):
        found = await stage.committed(partition)
        assert found is not None
        shown[f"metadata {partition}"] = found.metadata.encode()
    return shown, ends


def check_outcomes(outcomes: Sequence[str], reasons: dict[int, str], released: list[int]) -> dict[int, str]:
    """See that each message has the outcome that is stated for it, and none has two; return the stated reasons."""
    stated = {number: outcome for number, outcome in enumerate(outcomes) if outcome != "released"}
    assert {number: reason for number, reason in reasons.items() if reason != "suppressed"} == stated
    assert sorted([*released, *reasons]) == list(range(len(outcomes)))
    return stated


async def verdict_on(stage: Stage, read: dict[str, list[Message]]) -> bytes:
    """Return the verdict on the topics; every check must hold."""
    files = export(stage.folder, read, "timestamp")
    verdict = await asyncio.to_thread(judged, stage.policy_file(), files)
    return (verdict.text() + json.dumps(verdict.as_dict())).encode()


@pytest.mark.parametrize("bad", BAD)
async def test_every_malformed_message_has_its_stated_outcome_in_the_service(
    bootstrap: str, tmp_path: Path, bad: int
) -> None:
    stage = await stage_of(bootstrap, tmp_path)
    sent = mixture(bad)
    record_ids = await send(bootstrap, stage.topics["input"], [message for message, _ in sent])
    assert sum((await end_offsets(bootstrap, stage.topics["input"])).values()) == len(sent)
    shown, ends = await serve(stage, len(sent))
    read = await stage.read_topics()
    references = [json.loads(message.value or b"") for message in read["quarantine"]]
    clusters = [json.loads(message.value or b"") for message in read["evidence"]]
    number_of = {record_id: number for number, record_id in enumerate(record_ids)}
    reasons = {number_of[one["partition"], one["offset"]]: one["reason"] for one in references}
    released = [number_of[cluster["partition"], offset] for cluster in clusters for offset in cluster["offsets"]]
    assert len(reasons) == len(references)
    stated = check_outcomes([outcome for _, outcome in sent], reasons, released)
    assert sorted(json.loads(message.value or b"")["serial"] for message in read["output"]) == sorted(released)
    # The counts equal those of the topics: in the metrics of the first run and at the end of both.
    quarantined = Counter(stated.values())
    metrics = counted(shown["/metrics"].decode())
    assert {reason: count for (outcome, reason), count in metrics.items() if outcome == "quarantined"} == quarantined
    totals = {name: sum(line[name] for line in ends) for name in ("in", "released", "suppressed", "quarantined")}
    suppressed = len(reasons) - len(stated)
    assert suppressed < PARTITIONS * POLICY["privacy"]["k"]
    assert totals == {
        "in": len(sent),
        "released": len(released),
        "suppressed": suppressed,
        "quarantined": quarantined.total(),
    }
    # Verification succeeds, and no value is anywhere else.
    shown["verdict"] = await verdict_on(stage, read)
    shown |= {name: repr(messages).encode() for name, messages in read.items() if name != "input"}
    assert traces([CANARY], shown) == []


# ---------------------------------------------------------------- files


def run_and_judge(folder: Path, source: str, lines: Sequence[tuple[bytes, str]], header: bytes = b"") -> None:
    """Anonymize a file of lines with stated outcomes; check the outcomes, and verify the release."""
    policy_file = folder / "policy.yaml"
    policy_file.write_text(json.dumps(POLICY))
    policy = Policy.load(policy_file)
    files = Files(
        source=str(folder / source),
        target=str(folder / f"out{Path(source).suffix}"),
        summary=str(folder / "summary.json"),
        evidence=str(folder / "evidence.jsonl"),
        quarantine=str(folder / "quarantine.jsonl"),
    )
    (folder / source).write_bytes(header + b"".join(line + b"\n" for line, _ in lines))
    run_pipe(policy, files)
    references = [json.loads(line) for line in (folder / "quarantine.jsonl").read_text().splitlines()]
    reasons = {one["offset"]: one["reason"] for one in references}
    assert len(reasons) == len(references)
    clusters = [json.loads(line)["offsets"] for line in (folder / "evidence.jsonl").read_text().splitlines()]
    released = [line for cluster in clusters for line in cluster]
    stated = check_outcomes([outcome for _, outcome in lines], reasons, released)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["quarantined"] == Counter(stated.values())
    assert summary["released"] == len(released)
    written = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != source}
    assert traces([CANARY], written) == []
    verdict = verify(
        policy,
        folder / source,
        files.target,
        folder / "evidence.jsonl",
        folder / "summary.json",
        quarantine=folder / "quarantine.jsonl",
    )
    assert verdict.exit_code == 0, verdict.text()


def is_a_line(message: Sent) -> bool:
    """Whether a message can be a line of a file, which has no timestamps and takes up to 900,000 bytes."""
    return message.value is not None and b"\n" not in message.value and message.ahead_ms <= 0


@pytest.mark.parametrize("bad", BAD)
def test_every_malformed_line_has_its_stated_outcome_in_a_pipe(tmp_path: Path, bad: int) -> None:
    lines = [
        (sent.value or b"", outcome) for sent, outcome in mixture(bad) if is_a_line(sent) and outcome != "too_large"
    ]
    longest = b'"' + b"x" * 900_000 + b'"'
    lines[1000:1000] = [(longest, "too_large")] * 3
    lines.append((json.dumps(good(10**6)).encode(), "released"))
    run_and_judge(tmp_path, "in.jsonl", lines)
    assert sum(outcome != "released" for _, outcome in lines) > bad * 0.9


@pytest.mark.parametrize("bad", BAD)
def test_every_malformed_csv_line_has_its_stated_outcome_in_a_pipe(tmp_path: Path, bad: int) -> None:
    draw = random.Random(8)
    plan: list[Any] = [kind for kind, _ in zip(cycle(CELLS), range(bad // 5), strict=False)]
    plan += [None] * len(plan)
    draw.shuffle(plan)
    lines = []
    for number, kind in enumerate([*plan, None]):
        cells = {name: str(value).lower() for name, value in good(number).items()}
        line = ",".join((cells | (kind.cells if kind else {})).values()).encode(errors="surrogateescape")
        lines.append((kind.line(line), kind.outcome) if kind else (line, "released"))
    run_and_judge(tmp_path, "in.csv", lines, ",".join(good(0)).encode() + b"\n")
