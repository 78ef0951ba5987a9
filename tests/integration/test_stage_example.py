"""The programs of the documentation run as they are printed: the Faust example, and the export of topics."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path

from support.forked import ForkedProcess
from support.kafka_broker import admin, create_topic, end_offsets, produce, read_all, wait_until
from support.running import Stage

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs" / "faust" / "visits.py"
DIAGNOSES = ("asthma", "flu", "fracture")


def test_the_page_shows_the_example_as_it_is() -> None:
    page = (ROOT / "docs" / "faust.md").read_text(encoding="utf-8")
    agent = EXAMPLE.read_text(encoding="utf-8").split("@app.agent(visits)\n")[1].split("\n\n\n")[0]
    assert f"@app.agent(visits)\n{agent}\n" in page
    assert EXAMPLE.with_name("visits.yaml").read_text(encoding="utf-8") in page


async def counted(bootstrap: str, table: str) -> Counter[str]:
    """Return the content of a table over all partitions (and hours), from its changelog."""
    found = {}
    for message in await read_all(bootstrap, f"{table}-changelog"):
        found[message.partition, message.key] = json.loads(message.value or b"{}")
    return sum((Counter(one["counts"]) for one in found.values()), Counter())


async def test_the_sender_creates_the_topic_and_sends(bootstrap: str) -> None:
    topic = f"visits-{uuid.uuid4().hex[:8]}"
    environment = {**os.environ, "VISITS_BROKER": f"kafka://{bootstrap}", "VISITS_TOPIC": topic}
    for _ in range(2):
        command = [sys.executable, str(EXAMPLE.with_name("send.py")), "30"]
        await asyncio.to_thread(subprocess.run, command, env=environment, check=True, timeout=60)
    sent = await read_all(bootstrap, topic)
    assert Counter(message.partition for message in sent) == {0: 30, 1: 30}
    assert json.loads(sent[0].value or b"").keys() == {"patient", "age", "diagnosis"}


async def are_read(bootstrap: str, name: str) -> bool:
    """Return whether the app has committed the offsets of all counts."""
    ends = await end_offsets(bootstrap, f"{name}-diagnoses")
    async with admin(bootstrap) as client:
        committed = await client.list_consumer_group_offsets(name)
    done = {tp.partition: one.offset for tp, one in committed.items() if tp.topic == f"{name}-diagnoses"}
    return all(done.get(partition, 0) >= end for partition, end in ends.items())


async def referenced(bootstrap: str, quarantine: str) -> set[tuple[int, int]]:
    """Return the suppressed records: they waited for five seconds with fewer than k people."""
    references = [json.loads(message.value or b"") for message in await read_all(bootstrap, quarantine)]
    assert {one["reason"] for one in references} <= {"suppressed"}
    return {(one["partition"], one["offset"]) for one in references}


async def sent_on(bootstrap: str, name: str) -> Counter[str]:
    """Return the sum of the counts that the stage has sent on; a repeated cluster must be the same, and counts once."""
    clusters: dict[tuple[int, int], dict[str, int]] = {}
    for message in await read_all(bootstrap, f"{name}-diagnoses"):
        found = json.loads(message.value or b"{}")
        counts = clusters.setdefault((found["partition"], found["number"]), found["counts"])
        assert counts == found["counts"]
    for partition in {partition for partition, _ in clusters}:
        numbers = sorted(number for place, number in clusters if place == partition)
        assert numbers == list(range(len(numbers)))
    return sum(map(Counter, clusters.values()), Counter())


async def test_the_example_counts_every_visit_once_through_a_kill_and_a_restart(bootstrap: str, tmp_path: Path) -> None:
    name = f"visits-{uuid.uuid4().hex[:8]}"
    source, quarantine = await create_topic(bootstrap, 2), await create_topic(bootstrap)
    sent = [
        json.dumps({"patient": f"p{i}", "age": i * 31 % 111, "diagnosis": DIAGNOSES[i % 7 % 3]}).encode()
        for i in range(600)
    ]
    environment = {
        **os.environ,
        "VISITS_APP": name,
        "VISITS_BROKER": f"kafka://{bootstrap}",
        "VISITS_TOPIC": source,
        "VISITS_WORKER": "one",
        "VISITS_DATA": str(tmp_path / "data"),
        "SHOAL_KAFKA__QUARANTINE": quarantine,
    }
    environment.pop("SHOAL_KAFKA__BOOTSTRAP_SERVERS", None)
    log = tmp_path / "app.log"

    def start() -> ForkedProcess:
        return ForkedProcess(EXAMPLE, ["worker", "--without-web", "-l", "info"], environment, log, log)

    worker = start()
    try:
        await produce(bootstrap, source, sent[:300], partitions=[i % 2 for i in range(300)])

        await wait_until(lambda: "Ready" in log.read_text() or worker.poll() is not None, 60, "readiness")

        async def counts() -> bool:
            assert worker.poll() is None, log.read_text()[-3000:]
            return (await counted(bootstrap, f"{name}-in-total")).total() >= 100

        await wait_until(counts, 60, "the first counts")
        worker.kill()
        worker.wait(30)
        worker = start()
        await produce(bootstrap, source, sent[300:], partitions=[i % 2 for i in range(300)])

        async def all_sent_on() -> bool:
            assert worker.poll() is None, log.read_text()[-3000:]
            missing = len(await referenced(bootstrap, quarantine))
            return (await sent_on(bootstrap, name)).total() + missing >= len(sent)

        await wait_until(all_sent_on, 60, "all clusters")
        # Send all clusters again, as after a crash, with a timestamp in the next hour (a broker refuses later ones).
        again = await read_all(bootstrap, f"{name}-diagnoses")
        await produce(
            bootstrap,
            f"{name}-diagnoses",
            [message.value for message in again],
            keys=[message.key for message in again],
            partitions=[message.partition for message in again],
            timestamps_ms=[round((time.time() + 3590) * 1000)] * len(again),
        )
        await wait_until(lambda: are_read(bootstrap, name), 60, "the end of the repeats")
        await wait_until(lambda: re.search(r"counted [1-9]\d* visits", log.read_text()), 30, "the log line of the page")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
    finally:
        if worker.poll() is None:
            worker.kill()
    missing = await referenced(bootstrap, quarantine)
    assert len(missing) < 20
    left = [value for i, value in enumerate(sent) if (i % 2, i // 2) not in missing]
    expected = Counter(json.loads(value)["diagnosis"] for value in left)
    assert await sent_on(bootstrap, name) == expected
    # The tables count nothing twice. What they lack, Faust has lost, and the app has said so.
    for table in ("in-total", "by-hour"):
        found = await counted(bootstrap, f"{name}-{table}")
        assert found <= expected
        assert found == expected or "Faust lost" in log.read_text()


# ---------------------------------------------------------------- docs/export_topic.py

KINDS = {"input": "original", "output": "release", "evidence": "lines", "quarantine": "lines"}


def exported(stage: Stage, folder: Path) -> dict[str, Path]:
    """Run the script for each topic; return the files by the role of the topic."""
    environment = os.environ | {"SHOAL_KAFKA__BOOTSTRAP_SERVERS": stage.bootstrap}
    script, policy = ROOT / "docs" / "export_topic.py", stage.policy_file()
    files = {role: folder / f"{role}.jsonl" for role in KINDS}
    for role, kind in KINDS.items():
        command = [sys.executable, str(script), str(policy), stage.topics[role], kind]
        done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=60)
        assert (done.returncode, done.stderr) == (0, b"")
        files[role].write_bytes(done.stdout)
    return files


def judged(stage: Stage, files: dict[str, Path]) -> subprocess.CompletedProcess[bytes]:
    names = {"--original": "input", "--released": "output", "--evidence": "evidence", "--quarantine": "quarantine"}
    arguments = [word for option, role in names.items() for word in (option, str(files[role]))]
    command = [str(Path(sys.executable).with_name("shoal")), "verify", str(stage.policy_file()), *arguments]
    return subprocess.run(command, capture_output=True, check=False, timeout=60)


async def test_the_exports_of_all_topics_are_judged_sound(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, partitions=2)
    record_ids = await stage.put(40, 0, 1)
    record_ids += await stage.send([b'{"age": "\xff"}'])
    await stage.drained(record_ids)
    files = exported(stage, tmp_path)
    released = [json.loads(line) for line in files["output"].read_text().splitlines()]
    assert len(released) == len(await stage.read())
    assert all(isinstance(row["value"], str) for row in released)
    verdict = judged(stage, files)
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr
