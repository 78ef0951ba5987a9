"""The example of docs/faust.md runs as it is printed, and counts what came in."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path

from kafka_broker import create_topic, produce, read_all, wait_until

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs" / "faust" / "visits.py"
DIAGNOSES = ("asthma", "flu", "fracture")


def test_the_page_shows_the_example_as_it_is() -> None:
    page = (ROOT / "docs" / "faust.md").read_text(encoding="utf-8")
    agent = EXAMPLE.read_text(encoding="utf-8").split("@app.agent(visits)\n")[1].split("\n\n\n")[0]
    assert f"@app.agent(visits)\n{agent}\n" in page
    assert EXAMPLE.with_name("visits.yaml").read_text(encoding="utf-8") in page


async def counted(bootstrap: str, table: str) -> Counter[str]:
    """What a table holds, over all partitions (and hours), as its changelog tells."""
    found = {}
    for message in await read_all(bootstrap, f"{table}-changelog"):
        found[message.partition, message.key] = json.loads(message.value or b"{}")
    return sum((Counter(one["counts"]) for one in found.values()), Counter())


async def test_the_example_counts_every_visit_once_through_a_kill_and_a_restart(bootstrap: str, tmp_path: Path) -> None:
    name = f"visits-{uuid.uuid4().hex[:8]}"
    source = await create_topic(bootstrap, 2)
    sent = [
        json.dumps({"patient": f"p{i}", "age": i * 31 % 111, "diagnosis": DIAGNOSES[i % 7 % 3]}).encode()
        for i in range(600)
    ]
    expected = Counter(json.loads(value)["diagnosis"] for value in sent)
    environment = {
        **os.environ,
        "VISITS_APP": name,
        "VISITS_BROKER": f"kafka://{bootstrap}",
        "VISITS_TOPIC": source,
        "VISITS_WORKER": "one",
        "VISITS_DATA": str(tmp_path / "data"),
    }
    environment.pop("SHOAL_KAFKA__BOOTSTRAP_SERVERS", None)
    log = tmp_path / "app.log"

    def start() -> subprocess.Popen[bytes]:
        with log.open("ab") as said:
            command = [sys.executable, str(EXAMPLE), "worker", "--without-web", "-l", "info"]
            return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said)

    worker = start()
    try:
        await produce(bootstrap, source, sent[:300], partitions=[i % 2 for i in range(300)])

        await wait_until(lambda: "Ready" in log.read_text() or worker.poll() is not None, 60, "readiness")

        async def counts() -> bool:
            assert worker.poll() is None, log.read_text()[-3000:]
            return (await counted(bootstrap, f"{name}-in-total")).total() >= 100

        await wait_until(counts, 60, "the first counts")
        worker.kill()
        worker.wait(10)
        worker = start()
        await produce(bootstrap, source, sent[300:], partitions=[i % 2 for i in range(300)])

        async def all_counted() -> bool:
            assert worker.poll() is None, log.read_text()[-3000:]
            return (await counted(bootstrap, f"{name}-in-total")).total() >= len(sent)

        await wait_until(all_counted, 60, "all counts")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(10) == 0
    finally:
        if worker.poll() is None:
            worker.kill()
    assert await counted(bootstrap, f"{name}-in-total") == expected
    assert await counted(bootstrap, f"{name}-by-hour") == expected
