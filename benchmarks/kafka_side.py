"""One run of one side of the part `kafka` or `adult`: `python kafka_side.py` does what BENCH says, a JSON object.

Each run is a process of its own, because the heap of a process makes its garbage collections dearer. So the copies load
no part of Shoal. Standard output is a JSON object.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
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


def adult(kept: str = "all", privacy: dict[str, Any] | None = None) -> dict[str, float]:
    """Run Shoal with a policy of Adult; ``kept`` says which attributes are published, ``privacy`` what beside k."""
    from adult import POLICY, diverse_document, policy_document  # noqa: PLC0415 - the copies do not load it
    from kafka_to_kafka import measure  # noqa: PLC0415 - the copies do not load it
    from shoal.policy import Policy  # noqa: PLC0415 - the copies do not load it
    from shoal.policy.schema import Document  # noqa: PLC0415 - the copies do not load it

    bootstrap, source, target = TOPICS
    topics = {"bootstrap_servers": bootstrap, "group": f"{target}-group", "input": source, "output": target}
    document = Document.model_validate(
        (diverse_document(privacy) if privacy else policy_document(kept)) | {"kafka": topics}
    )
    speed = asyncio.run(measure(Policy.from_document(document, source=str(POLICY)), ORDER["records"]))
    return {"per_s": speed.per_s, "cpu_us": speed.cpu_us}


def profile() -> dict[str, int]:
    """Run Shoal, and count where its processor time goes."""
    from kafka_to_kafka import measure, policy  # noqa: PLC0415 - the copies do not load it
    from sampling import sampled  # noqa: PLC0415 - the copies do not load it

    with sampled() as counts:
        asyncio.run(measure(policy(*TOPICS), ORDER["records"]))
    return dict(counts)


if __name__ == "__main__":
    sides: dict[str, Callable[[], Mapping[str, float]]] = {
        "copy": copy,
        "tuned": tuned,
        "shoal": shoal,
        "profile": profile,
        **{f"adult-{kept}": partial(adult, kept) for kept in ("all", "unchanged", "dropped")},
        "adult-l3": partial(adult, privacy={"l": 3}),
    }
    print(json.dumps(sides[ORDER["side"]]()))
