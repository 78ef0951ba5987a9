"""Messages of Debezium with nested rows, deletes and tombstones, through the service and the judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.faulty_workers import export, judged
from support.running import Stage

ATTRIBUTES: dict[str, Any] = {
    "who": {"role": "identifier", "subject": True, "from": "patient.id"},
    "age": {
        "role": "quasi_identifier",
        "bounds": [0, 110],
        "integer": True,
        "from": "patient.age",
        "to": "patient.age",
    },
    "serial": {"role": "confidential", "type": "integer"},
    "codes": {"role": "confidential", "type": "json", "to": "patient.codes"},
}


def change(number: int) -> bytes:
    row = {
        "patient": {"id": f"p{number % 25}", "age": number * 31 % 111},
        "serial": number,
        "codes": [number, {"a": 1.0}],
    }
    return json.dumps({"before": None, "after": row, "source": {"lsn": number}, "op": "c", "ts_ms": number}).encode()


def delete(number: int) -> bytes:
    return json.dumps({"before": {"serial": number}, "after": None, "source": {"lsn": number}, "op": "d"}).encode()


async def test_changes_are_released_and_deletes_and_tombstones_dropped(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, partitions=1, attributes=ATTRIBUTES)
    stage.document |= {"attributes": ATTRIBUTES, "unwrap": "debezium", "deletes": "drop", "tombstones": "drop"}
    messages: list[bytes | None] = []
    for number in range(60):
        messages.append(change(number))
        if number % 6 == 5:
            messages += [delete(number), None]
    messages[10] = b'{"op":"c","after":{"serial":1}}'
    await stage.send(messages, keys=[b"row"] * len(messages))
    async with stage.process("--drain", "--from", "earliest") as worker:
        assert await worker.ended(90) == 0, worker.said
        assert '"dropped": 20' in worker.said
    sent = await stage.read_topics()
    rows = [json.loads(message.value or b"") for message in sent["output"]]
    assert len(rows) == 59
    assert {(*row, *row["patient"]) for row in rows} == {("patient", "serial", "age", "codes")}
    assert all(row["patient"]["codes"] == [row["serial"], {"a": 1.0}] for row in rows)
    references = [json.loads(message.value or b"") for message in sent["quarantine"]]
    assert [(one["offset"], one["reason"]) for one in references] == [(10, "invalid")]
    verdict = judged(stage.policy_file(), export(stage.folder, sent))
    assert verdict.counts["rows"] == 59
