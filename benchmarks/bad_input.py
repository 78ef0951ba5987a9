"""The service over records of which one in a hundred is malformed, beside the same without: alternating, in one run."""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from random import Random
from typing import Any

from kafka_to_kafka import Speed, fill, measure, new_topic
from shoal.policy import Policy
from shoal.policy.schema import Document

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.hostile import KINDS, MAX_BYTES, POLICY, Sent, good

__all__ = ["RECORDS", "SHARE", "bad_rounds"]

RECORDS = 300_000
SHARE = 100
"""One in so many is malformed."""


async def bad_rounds(bootstrap: str, rounds: int) -> list[tuple[Speed, Speed]]:
    """Return the speeds without and with malformed messages, of every kind in turn."""
    run = f"bench-{uuid.uuid4().hex[:8]}"
    draw = Random(1)  # noqa: S311 - made-up records
    wrong = [kind for kind in KINDS if kind.outcome != "released"]
    clean = [Sent(json.dumps(good(number)).encode()) for number in range(RECORDS)]
    mixed = list(clean)
    for turn, number in enumerate(draw.sample(range(RECORDS), RECORDS // SHARE)):
        mixed[number] = wrong[turn % len(wrong)].message(good(number), draw)
    for name, messages in (("clean", clean), ("mixed", mixed)):
        # A timestamp far ahead is one of the kinds.
        topic = await new_topic(bootstrap, f"{run}-{name}", **{"message.timestamp.after.max.ms": str(1 << 62)})
        await fill(bootstrap, topic, ((message.value, message.ahead_ms) for message in messages))
    speeds = []
    for number in range(rounds):
        # In turn the first of a pair, so that what comes second has no disadvantage.
        order = ("clean", "mixed") if number % 2 else ("mixed", "clean")
        found = {name: await _measure(bootstrap, f"{run}-{name}", f"{run}-{name}-{number}") for name in order}
        speeds.append((found["clean"], found["mixed"]))
        print(f"clean {found['clean'].per_s:,.0f}/s, 1 % bad {found['mixed'].per_s:,.0f}/s", file=sys.stderr)
    return speeds


async def _measure(bootstrap: str, source: str, target: str) -> Speed:
    side = await new_topic(bootstrap, f"{target}-quarantine")
    await new_topic(bootstrap, target)
    topics = {"bootstrap_servers": bootstrap, "group": target, "input": source, "output": target, "quarantine": side}
    document: dict[str, Any] = {**POLICY, "kafka": {**topics, "max_record_bytes": MAX_BYTES}}
    return await measure(Policy.from_document(Document.model_validate(document)), RECORDS)
