"""The stage in a Faust app beside an agent that parses and forwards, and beside the service, in turn on one topic."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from statistics import median

from kafka_to_kafka import PARTITIONS, Speed, document, fill, measure, messages, new_topic, policy

__all__ = ["FORMS", "Rounds", "about_faust", "faust_rounds", "slower_by"]

RECORDS = 60_000
MEASURED = 50_000
"""So many of them: what is held at the end does not come."""
FORMS = ("bare", "to", "iterator", "service")
LIMIT_S = 180.0

Rounds = list[dict[str, Speed]]


async def faust_rounds(bootstrap: str, rounds: int) -> Rounds:
    """Measure each form in each round, in turn."""
    run = f"bench-{uuid.uuid4().hex[:8]}"
    source = await new_topic(bootstrap, run)
    await fill(bootstrap, source, ((value, 0) for value in messages(RECORDS)))
    found: Rounds = []
    for number in range(rounds):
        speeds = {}
        for form in FORMS[number % len(FORMS) :] + FORMS[: number % len(FORMS)]:
            target = await new_topic(bootstrap, f"{run}-{form}-{number}")
            if form == "service":
                speeds[form] = await measure(policy(bootstrap, source, target), RECORDS)
            else:
                speeds[form] = await asyncio.to_thread(_app, bootstrap, source, target, form)
            print(f"faust {form}: {speeds[form].per_s:,.0f}/s", file=sys.stderr)
        found.append(speeds)
    return found


def _app(bootstrap: str, source: str, target: str, form: str) -> Speed:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        order = {"form": form, "bootstrap": bootstrap, "source": source, "target": target, "records": MEASURED}
        order |= {"group": f"{target}-group", "result": str(result), "policy": document(bootstrap, source, target)}
        command = [sys.executable, str(Path(__file__).with_name("faust_app.py")), "worker", "--without-web"]
        environment = os.environ | {"BENCH": json.dumps(order)}
        done = subprocess.run(command, env=environment, capture_output=True, timeout=LIMIT_S, check=False)
        if not result.exists():
            raise SystemExit(f"bench: the Faust worker ended early: {done.stderr[-2000:].decode()}")
        return Speed(**json.loads(result.read_text()))


def slower_by(rounds: Rounds, form: str, than: str) -> float:
    """Median ratio of speeds: of one form to another."""
    return median(one[form].per_s / one[than].per_s for one in rounds)


def about_faust(rounds: Rounds, limit: float) -> list[str]:
    """Write the lines about the stage."""
    names = {"bare": "bare agent", "to": "stage, to=topic", "iterator": "stage, iterator", "service": "shoal run"}
    return [
        "## A stage in a Faust app",
        "",
        f"One Faust worker, {MEASURED:,} records as above, {PARTITIONS} partitions: an agent that parses and sends on",
        "each record, the stage in both forms, and the service; records a second, and µs of processor a record.",
        "",
        "| round | " + " | ".join(names[form] for form in FORMS) + " |",
        "|---" * (len(FORMS) + 1) + "|",
        *(
            f"| {number} | "
            + " | ".join(f"{one[form].per_s:,.0f}/s, {one[form].cpu_us:.0f} µs" for form in FORMS)
            + " |"
            for number, one in enumerate(rounds, 1)
        ),
        "",
        (
            f"Median ratios to the bare agent: published **{slower_by(rounds, 'to', 'bare'):.2f}**, iterator "
            f"**{slower_by(rounds, 'iterator', 'bare'):.2f}** (limit {limit} for both); to the service "
            f"{slower_by(rounds, 'to', 'service'):.3f}: what Faust takes"
        ),
        "for each record before the stage sees it.",
        "",
    ]
