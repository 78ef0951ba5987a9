"""Keys, headers, timestamps and envelopes of real messages as attributes, judged from an export of the topics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.canaries import forms
from support.faulty_workers import export, judged
from support.kafka_broker import Headers
from support.running import Stage

T = 1_700_000_000_000
CANARY = "xq7canary9z"
ATTRIBUTES: dict[str, Any] = {
    "who": {"role": "identifier", "subject": True, "from": "key"},
    "session": {"role": "identifier", "from": "header:session"},
    "age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True, "from": "header:age"},
    "at": {"role": "quasi_identifier", "bounds": [T, T + 200_000], "resolution": 5000, "from": "timestamp"},
    "serial": {"role": "confidential", "type": "integer"},
}


async def test_keys_and_headers_are_read_and_not_published(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, partitions=2, attributes=ATTRIBUTES)
    stage.document["attributes"] = ATTRIBUTES
    count = 120
    keys: list[bytes | None] = [f"{CANARY} {number % 25}".encode() for number in range(count)]
    headers: list[Headers] = [
        [("session", CANARY.encode()), ("age", b"%d" % (number * 31 % 111)), (CANARY, CANARY.encode())]
        for number in range(count)
    ]
    values: list[bytes | None] = [b'{"serial":%d}' % number for number in range(count)]
    keys[7], keys[8], keys[9] = None, b"\xff", b" "
    headers[20] = [*headers[20], ("age", b"4")]
    headers[21] = headers[21][:1]
    headers[22] = [("session", b"\xc3"), ("age", b"4")]
    headers[23] = [("session", CANARY.encode()), ("age", CANARY.encode())]
    values[30] = json.dumps({"serial": 30, "who": CANARY}).encode()
    bad = [7, 8, 9, 20, 21, 22, 23, 30]
    for partition in (0, 1):
        part = slice(partition * 60, partition * 60 + 60)
        await stage.send(
            values[part],
            partition,
            keys=keys[part],
            headers=headers[part],
            timestamps_ms=[T + 1009 * number for number in range(60)],
        )
    async with stage.process("--drain", "--from", "earliest") as worker:
        assert await worker.ended(90) == 0, worker.said
        said = worker.said
    messages = await stage.read_topics()
    references = [json.loads(one.value or b"") for one in messages["quarantine"]]
    assert sorted(one["offset"] for one in references if one["partition"] == 0) == bad
    assert {one["offset"]: one["reason"] for one in references if one["reason"] == "undecodable"} == {
        8: "undecodable",
        22: "undecodable",
    }
    verdict = judged(stage.policy_file(), export(tmp_path, messages, "timestamp", "key", "headers"))
    assert verdict.counts["rows"] == count - len(bad)
    assert {message.key for name in ("output", "quarantine") for message in messages[name]} == {None}
    assert {message.headers for message in messages["output"]} == {()}
    left = b"".join(one.value or b"" for name in messages if name != "input" for one in messages[name])
    assert [form for form in forms(CANARY) if form in left or form in said.encode()] == []
