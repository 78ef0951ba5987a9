"""`make bench`: measure, compare with the limits, write docs/reports/benchmarks.md. Ratios of one run.

``bench.py PART ...`` measures these parts alone and leaves the others of the page as they are.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median

import matplotlib as mpl
from bad_input import RECORDS as BAD_RECORDS
from bad_input import bad_rounds
from castle_rows import castle_part
from engine import engine_part
from faust_stage import about_faust, faust_rounds, slower_by
from kafka_to_kafka import PARTITIONS, RECORDS, Speed, fill, measure_copy, measure_shoal, new_topic
from loss import loss_part
from online import ranges_part, target_part
from order import order_part
from part import Part, Promise
from people import people_part
from sampling import sampled
from shoal.policy import resolve_rule
from start import start_part
from static_sets import FASTER, LESS, about_static_sets, static_sets

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ROOT / "docs" / "reports"
FIGURE = REPORTS / "figures" / "kafka-profile.svg"
ROUNDS = 5
BAD_ROUNDS = 8
FAUST_ROUNDS = 3
LIMITS = {"kafka": 0.4, "bad": 0.9, "faust": 0.9}
"""Below these the run fails; other parts have theirs beside them."""


Pairs = list[tuple[Speed, Speed]]


def _bootstrap() -> str:
    bootstrap = os.environ.get("SHOAL_TEST_BROKER") or os.environ.get("SHOAL_KAFKA__BOOTSTRAP_SERVERS")
    if not bootstrap:
        raise SystemExit("bench: no broker; run it with 'make bench'")
    return bootstrap


async def kafka() -> tuple[Pairs, Counter[str]]:
    """Return (copy, Shoal) of each round, and the profile of one more."""
    bootstrap, run = _bootstrap(), uuid.uuid4().hex[:8]
    source = await new_topic(bootstrap, f"bench-{run}")
    await fill(bootstrap, source)
    rounds = []
    for number in range(ROUNDS):
        copied = await new_topic(bootstrap, f"bench-{run}-copy-{number}")
        released = await new_topic(bootstrap, f"bench-{run}-shoal-{number}")
        rounds.append((await measure_copy(bootstrap, source, copied), await measure_shoal(bootstrap, source, released)))
        print(f"copy {rounds[-1][0].per_s:,.0f}/s, shoal {rounds[-1][1].per_s:,.0f}/s", file=sys.stderr)
    with sampled() as counts:
        await measure_shoal(bootstrap, source, await new_topic(bootstrap, f"bench-{run}-profile"))
    return rounds, counts


def draw(counts: Counter[str]) -> None:
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


def table(one: str, other: str, rounds: Pairs) -> list[str]:
    """Write the speeds of pairs of runs."""
    return [
        (
            f"| round | {one}, records/s | {other}, records/s | ratio "
            f"| {one}, µs of processor a record | {other} | ratio |"
        ),
        "|---|---|---|---|---|---|---|",
        *(
            f"| {number} | {first.per_s:,.0f} | {second.per_s:,.0f} | {second.per_s / first.per_s:.2f} "
            f"| {first.cpu_us:.1f} | {second.cpu_us:.1f} | {first.cpu_us / second.cpu_us:.2f} |"
            for number, (first, second) in enumerate(rounds, 1)
        ),
    ]


def kafka_part() -> Part:
    """Kafka to Kafka beside a copy, and where the time goes."""
    rounds, counts = asyncio.run(kafka())
    draw(counts)
    ratio = median(shoal.per_s / copy.per_s for copy, shoal in rounds)
    lines = [
        "## Kafka to Kafka, exactly once, one process",
        "",
        f"{RECORDS:,} JSON records of about 200 bytes, {PARTITIONS} partitions, 4 quasi-identifiers, k = 10, δ = 100,",
        f"rule `{resolve_rule('auto', 10)}`; beside it a copy by the same client: read_committed,",
        "create_batch/send_batch, the same transactions every 200 ms, nothing decoded.",
        "",
        *table("copy", "Shoal", rounds),
        "",
        f"Median ratio **{ratio:.2f}** (limit {LIMITS['kafka']}).",
        "",
        "![processor time by room](figures/kafka-profile.svg)",
        "",
    ]
    return Part(lines, [Promise("kafka to kafka, of the copy", ratio, LIMITS["kafka"], at_most=False)])


def bad_part() -> Part:
    """Malformed messages among good ones."""
    rounds = asyncio.run(bad_rounds(_bootstrap(), BAD_ROUNDS))
    ratio = median(clean.cpu_us / mixed.cpu_us for clean, mixed in rounds)
    by_clock = median(mixed.per_s / clean.per_s for clean, mixed in rounds)
    lines = [
        "## One message in a hundred malformed",
        "",
        f"{BAD_RECORDS:,} messages with the policy of docs/bad-input.md, all of its kinds in turn, beside the same",
        "records without them.",
        "",
        *table("without", "with", rounds),
        "",
        f"Median ratio of processor time **{ratio:.2f}** (limit {LIMITS['bad']}), of the clock's {by_clock:.2f}: runs",
        "of three seconds swing too much by the clock to tell a tenth. What it costs: references and their topic,",
        "blocks that are not all good, a transaction for each block with a record from the far future.",
        "",
    ]
    return Part(lines, [Promise("with bad input, of without", ratio, LIMITS["bad"], at_most=False)])


def faust_part() -> Part:
    """The stage in a Faust app."""
    rounds = asyncio.run(faust_rounds(_bootstrap(), FAUST_ROUNDS))
    slowest = min(slower_by(rounds, form, "bare") for form in ("to", "iterator"))
    promise = Promise("stage, of a bare agent", slowest, LIMITS["faust"], at_most=False)
    return Part(about_faust(rounds, LIMITS["faust"]), [promise])


def tables_part() -> Part:
    """Finished tables."""
    found = static_sets()
    return Part(
        about_static_sets(found),
        [
            Promise("MDAV by tree, x scan", found.faster, FASTER, at_most=False),
            Promise("loss of tables, of MDAV's", found.less, LESS, at_most=True),
            *(Promise(name, value, limit, at_most=True) for name, value, limit in found.limited),
        ],
    )


PARTS: dict[str, Callable[[], Part]] = {
    "start": lambda: start_part(_bootstrap()),
    "kafka": kafka_part,
    "bad-input": bad_part,
    "faust": faust_part,
    "engine": engine_part,
    "loss": loss_part,
    "people": people_part,
    "order": order_part,
    "target": target_part,
    "ranges": ranges_part,
    "castle": castle_part,
    "tables": tables_part,
}
HEAD = [
    "# Benchmarks",
    "",
    "Written by `make bench`; `make bench PARTS='loss order'` does these alone. Ratios of one run on one machine;",
    "absolute speeds are that machine's and its load's.",
    "",
]


def parts_of(page: str) -> dict[str, list[str]]:
    """Return the lines of each part of the page as it is."""
    pieces = re.split(r"^<!-- ([a-z-]+) -->\n", page, flags=re.MULTILINE)[1:]
    return {name: text.splitlines() for name, text in zip(pieces[::2], pieces[1::2], strict=True)}


def write(parts: dict[str, list[str]]) -> None:
    """Write the page; parts that were not measured stay as they are."""
    page = REPORTS / "benchmarks.md"
    every = parts_of(page.read_text(encoding="utf-8")) | parts
    lines = [line for name in PARTS if name in every for line in (f"<!-- {name} -->", *every[name])]
    page.write_text("\n".join([*HEAD, *lines]).rstrip("\n") + "\n", encoding="utf-8")


def main(names: list[str]) -> int:
    """Measure and write; 1 if a promise is broken."""
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise SystemExit(f"bench: no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    broken = False
    for name in names or PARTS:
        began = time.monotonic()
        part = PARTS[name]()
        write({name: part.lines})
        print(f"{name}: {time.monotonic() - began:.0f} s")
        for promise in part.promises:
            sign, kept = "<=" if promise.at_most else ">=", "" if promise.is_kept else "BROKEN"
            print(f"  {promise.name}: {promise.found:.3f} {sign} {promise.limit:.3f} {kept}")
            broken = broken or not promise.is_kept
    return int(broken)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
