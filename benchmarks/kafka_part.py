"""Kafka to Kafka: Shoal beside copies that do not look inside, each run in its own process, on the same topic."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import subprocess
import sys
import sysconfig
import uuid
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
from kafka_to_kafka import PARTITIONS, RECORDS, Speed, fill, new_topic
from part import Limit, Part
from shoal.policy import resolve_rule

__all__ = ["kafka_part"]

FIGURE = Path(__file__).resolve().parents[1] / "docs" / "reports" / "figures" / "kafka-profile.svg"
SIDES = {"copy": "copy", "tuned": "tuned copy", "shoal": "Shoal"}
ROUNDS, LIMIT_S = 5, 600.0
LIMIT = 0.3
"""Below this share of the copy the run fails."""

Rounds = list[dict[str, Speed]]


async def _run(side: str, bootstrap: str, source: str, target: str) -> dict[str, Any]:
    """Run one side in a new process, and return what it prints."""
    await new_topic(bootstrap, target)
    topics = {"bootstrap": bootstrap, "source": source, "target": target}
    order = json.dumps({"side": side, **topics, "partitions": PARTITIONS, "records": RECORDS})
    command = [sys.executable, str(Path(__file__).with_name("kafka_side.py"))]
    done = await asyncio.to_thread(
        subprocess.run, command, env=os.environ | {"BENCH": order}, stdout=subprocess.PIPE, timeout=LIMIT_S, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def _measure(bootstrap: str) -> tuple[Rounds, Counter[str]]:
    """Return the speed of each side in each round, and the profile of one more run."""
    run = f"bench-{uuid.uuid4().hex[:8]}"
    source = await new_topic(bootstrap, run)
    await fill(bootstrap, source)
    rounds: Rounds = []
    for number in range(ROUNDS):
        # In turn the first, so that no side always follows the same one.
        first = number % len(SIDES)
        order = [*SIDES][first:] + [*SIDES][:first]
        found = {side: Speed(**await _run(side, bootstrap, source, f"{run}-{side}-{number}")) for side in order}
        rounds.append(found)
        print("kafka:", ", ".join(f"{side} {found[side].cpu_us:.1f} µs" for side in SIDES), file=sys.stderr, flush=True)
    return rounds, Counter(await _run("profile", bootstrap, source, f"{run}-profile"))


def _draw(counts: Counter[str]) -> None:
    """Write the profile as a figure."""
    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the backend is chosen

    mpl.rcParams["svg.hashsalt"] = "shoal"
    names, numbers = zip(*reversed(counts.most_common()), strict=True)
    total = sum(numbers)
    figure, axes = plt.subplots(figsize=(8, 0.45 * len(names) + 1))
    axes.barh(names, [100 * number / total for number in numbers], color="#2a6f97")
    axes.set_xlabel("processor time of the worker, %")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, metadata={"Date": None})


def _interpreter() -> str:
    is_optimized = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    kind = "with" if is_optimized else "without"
    return (
        f"{platform.python_implementation()} {platform.python_version()}, {platform.python_compiler()}, {kind} "
        "profile-guided optimization"
    )


def _ratios(rounds: Rounds, than: str) -> tuple[float, float]:
    """Return the median ratios of Shoal to another side: processor time, and the clock."""
    return (
        median(one[than].cpu_us / one["shoal"].cpu_us for one in rounds),
        median(one["shoal"].per_s / one[than].per_s for one in rounds),
    )


def _table(rounds: Rounds) -> list[str]:
    ratios = ("Shoal, of the copy", "of the tuned copy")
    return [
        f"| round | {' | '.join([*SIDES.values(), *ratios])} |",
        "|---" * (len(SIDES) + len(ratios) + 1) + "|",
        *(
            f"| {number} | "
            + " | ".join(
                [f"{one[side].cpu_us:.1f} µs, {one[side].per_s:,.0f}/s" for side in SIDES]
                + ["{:.2f}, {:.2f}".format(*_ratios([one], than)) for than in ("copy", "tuned")]
            )
            + " |"
            for number, one in enumerate(rounds, 1)
        ),
    ]


def kafka_part(bootstrap: str) -> Part:
    """Kafka to Kafka beside copies, and where the time goes."""
    rounds, counts = asyncio.run(_measure(bootstrap))
    _draw(counts)
    (cpu, clock), (tuned_cpu, tuned_clock) = _ratios(rounds, "copy"), _ratios(rounds, "tuned")
    lines = [
        "## Kafka to Kafka, exactly once, one process",
        "",
        f"{RECORDS:,} JSON records of about 200 bytes, {PARTITIONS} partitions, 4 quasi-identifiers, k = 10, δ = 100,",
        f"rule `{resolve_rule('auto', 10)}`; beside it a copy by the same client: read_committed,",
        "create_batch/send_batch, the same transactions every 200 ms, nothing decoded. Each run is a new process, from",
        "starting the clients to closing them; the copies load nothing else. The tuned copy has the garbage collector",
        "of `shoal run`: the heap is frozen, and a collection comes after 50,000 allocations instead of 700.",
        f"Interpreter: {_interpreter()}.",
        "",
        "Microseconds of processor time a record, and records a second by the clock; ratios of both.",
        "",
        *_table(rounds),
        "",
        f"Median ratio of processor time **{cpu:.2f}** (limit {LIMIT}), of the clock's {clock:.2f}; beside the tuned",
        f"copy {tuned_cpu:.2f} and {tuned_clock:.2f}.",
        "",
        "![processor time by package](figures/kafka-profile.svg)",
        "",
    ]
    return Part(lines, [Limit("kafka to kafka, of the copy", cpu, LIMIT, at_most=False)])
