"""Processor time at ordinary rates: a worker and a bare copy read the same topic, while records arrive at a fixed rate.

Both run as processes of their own, and at the same time. The copy is `passthrough`: the same client, a transaction for
each partition and commit interval, nothing decoded.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kafka_to_kafka import PARTITIONS, document, messages, new_topic
from latency import send
from part import Limit, Part
from worker_process import processor_s, running

__all__ = ["rates_part"]

RATES = (0, 50, 500, 2000)
SECONDS, SETTLE_S = 20.0, 5.0
MOST_OF_COPY, MOST_IDLE = 1.5, 1.5
"""Limits: times the processor time of the copy, and percent of a core without records."""


class Share(NamedTuple):
    """Processor time at a rate, percent of a core."""

    per_s: int
    copy: float
    shoal: float


@contextmanager
def _copying(bootstrap: str, source: str, target: str) -> Iterator[int]:
    """Run the copy for the length of the context; its process id."""
    topics = {"bootstrap": bootstrap, "source": source, "target": target}
    order = json.dumps({"side": "copy", **topics, "partitions": PARTITIONS, "records": 1 << 40})
    command = [sys.executable, str(Path(__file__).with_name("kafka_side.py"))]
    process = subprocess.Popen(command, env=os.environ | {"BENCH": order})
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


async def measure_rates(bootstrap: str, seconds: float = SECONDS) -> list[Share]:
    """Measure both at each rate, one rate after the other."""
    run = f"rates-{uuid.uuid4().hex[:8]}"
    source, target, copied = [await new_topic(bootstrap, f"{run}-{name}") for name in ("in", "out", "copy")]
    content, found = document(bootstrap, source, target), []
    with tempfile.TemporaryDirectory() as folder, _copying(bootstrap, source, copied) as copy:
        async with running(content, Path(folder)) as worker:
            await worker.until_ready()
            for per_s in RATES:
                values = messages(round(per_s * (SETTLE_S + seconds)))
                sending = asyncio.create_task(send(bootstrap, source, values, per_s, PARTITIONS))
                await asyncio.sleep(SETTLE_S)
                before = processor_s(copy), processor_s(worker.process.pid)
                await asyncio.sleep(seconds)
                after = processor_s(copy), processor_s(worker.process.pid)
                shares = (100 * (late - early) / seconds for early, late in zip(before, after, strict=True))
                found.append(Share(per_s, *shares))
                print("rates: {}/s: copy {:.1f} %, Shoal {:.1f} %".format(*found[-1]), file=sys.stderr)
                await sending
    return found


def rates_part(bootstrap: str) -> Part:
    """Processor time at ordinary rates."""
    found = asyncio.run(measure_rates(bootstrap))
    lines = [
        "## Processor time at ordinary rates",
        "",
        f"Percent of a core, {PARTITIONS} partitions (k = 10, δ = 100), {SECONDS:.0f} s at each rate; beside it a copy",
        "by the same client, with a transaction per partition every 200 ms.",
        "",
        "| records/s | copy | Shoal | Shoal, x copy |",
        "|---|---|---|---|",
        *(f"| {one.per_s:,} | {one.copy:.1f} | {one.shoal:.1f} | {one.shoal / one.copy:.2f} |" for one in found),
        "",
        f"Limits: {MOST_OF_COPY} times the copy, and {MOST_IDLE} % of a core without records.",
        "",
    ]
    idle, *others = found
    limits = [Limit("idle worker, % of a core", idle.shoal, MOST_IDLE, at_most=True)]
    limits += [Limit(f"{one.per_s}/s, x copy", one.shoal / one.copy, MOST_OF_COPY, at_most=True) for one in others]
    return Part(lines, limits)


if __name__ == "__main__":
    asyncio.run(measure_rates(os.environ["SHOAL_TEST_BROKER"], float(sys.argv[1])))
