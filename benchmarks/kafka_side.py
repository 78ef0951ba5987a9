"""One run of one side of the part `kafka`: `python kafka_side.py`, told what to do by BENCH, a JSON object.

Each run is a process of its own, because the heap of a process makes its garbage collections dearer. So the copies load
no part of Shoal. Standard output is a JSON object.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import time
from typing import Any

from passthrough import pass_through

ORDER: dict[str, Any] = json.loads(os.environ["BENCH"])
TOPICS = ORDER["bootstrap"], ORDER["source"], ORDER["target"]


def copy() -> dict[str, float]:
    """Copy the records."""
    began, cpu = time.monotonic(), time.process_time()
    asyncio.run(pass_through(*TOPICS, ORDER["partitions"], ORDER["records"]))
    elapsed, cpu = time.monotonic() - began, time.process_time() - cpu
    return {"per_s": ORDER["records"] / elapsed, "cpu_us": cpu / ORDER["records"] * 1e6}


def tuned() -> dict[str, float]:
    """Copy the records with the garbage collector as `shoal run` sets it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)
    return copy()


def shoal() -> dict[str, float]:
    """Run Shoal."""
    from kafka_to_kafka import measure, policy  # noqa: PLC0415 - the copies do not load it

    speed = asyncio.run(measure(policy(*TOPICS), ORDER["records"]))
    return {"per_s": speed.per_s, "cpu_us": speed.cpu_us}


def profile() -> dict[str, int]:
    """Run Shoal, and count where its processor time goes."""
    from kafka_to_kafka import measure, policy  # noqa: PLC0415 - the copies do not load it
    from sampling import sampled  # noqa: PLC0415 - the copies do not load it

    with sampled() as counts:
        asyncio.run(measure(policy(*TOPICS), ORDER["records"]))
    return dict(counts)


if __name__ == "__main__":
    print(json.dumps({"copy": copy, "tuned": tuned, "shoal": shoal, "profile": profile}[ORDER["side"]]()))
