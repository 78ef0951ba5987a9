"""`shoal init --topic`: a draft of what a topic holds."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from shoal.policy import Policy
from support.commands import Ended, run_command
from support.kafka_broker import produce
from support.running import Stage


def test_a_draft_of_a_topic_reads_values_and_keys_and_names_the_topics(bootstrap: str, tmp_path: Path) -> None:
    stage = asyncio.run(Stage.create(bootstrap, tmp_path, partitions=2))
    topic, policy = str(stage.document["kafka"]["input"]), tmp_path / "draft.yaml"

    def init(*words: str) -> Ended:
        return run_command("init", "--bootstrap-servers", bootstrap, *words)

    empty = init("--topic", topic)
    assert (empty.returncode, b"holds no committed message yet" in empty.stderr) == (3, True)
    values = [json.dumps({"patient": {"id": f"p{i % 200}"}, "age": 20 + i % 60}).encode() for i in range(400)]
    for partition in range(2):
        asyncio.run(produce(bootstrap, topic, values[partition::2], partitions=partition))
    assert init("--topic", topic, "--subject", "patient.id", "-o", str(policy)).returncode == 0
    drafted = Policy.load(policy).resolved()
    assert drafted["attributes"]["patient.id"]["subject"] is True
    assert drafted["attributes"]["age"]["role"] == "quasi_identifier"
    assert {"partition", "offset", "value"}.isdisjoint(drafted["attributes"])
    names = {name: drafted["kafka"][name] for name in ("input", "output", "evidence", "group")}
    others = {"output": f"{topic}.anonymous", "evidence": f"{topic}.evidence", "group": f"shoal-{topic}"}
    assert names == {"input": topic} | others
    absent = init("--topic", f"{topic}-absent")
    assert (absent.returncode, b"there is no such topic" in absent.stderr) == (3, True)
    assert init("a.csv", "--topic", topic).returncode == 2
