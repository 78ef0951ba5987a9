"""`make bench`: measure, compare with the limits, and write docs/benchmarks.md with its figure. Ratios of one run."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections import Counter
from pathlib import Path
from statistics import median

import matplotlib as mpl
from bad_input import RECORDS as BAD_RECORDS
from bad_input import bad_rounds
from engine import Speeds, engine_rows
from faust_stage import Rounds, about_faust, faust_rounds, slower_by
from kafka_to_kafka import PARTITIONS, RECORDS, Speed, fill, measure_copy, measure_shoal, new_topic
from loss import BY_K, about_loss, loss_rows, summary
from sampling import sampled
from static_sets import FASTER, LESS, about_static_sets, static_sets

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FIGURE = DOCS / "figures" / "kafka-profile.svg"
ROUNDS = 5
BAD_ROUNDS = 8
FAUST_ROUNDS = 3
LIMITS = {
    "kafka": 0.3,
    "engine": 8.0,
    "bad": 0.9,
    "mdav": FASTER,
    "loss": 1.0 / LESS,
    "by k": 1.2,
    "stream": 1.0 / 0.82,
    "worst": 1.0 / 1.02,
    "faust": 0.9,
}
"""Below these the run fails."""


Pairs = list[tuple[Speed, Speed]]


async def kafka() -> tuple[Pairs, Counter[str], Pairs, Rounds]:
    """Return (copy, Shoal) of each round, the profile of one more, (without, with bad input), and rounds with Faust."""
    bootstrap = os.environ.get("SHOAL_TEST_BROKER") or os.environ.get("SHOAL_KAFKA__BOOTSTRAP_SERVERS")
    if not bootstrap:
        raise SystemExit("bench: no broker; run it with 'make bench'")
    run = uuid.uuid4().hex[:8]
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
    return rounds, counts, await bad_rounds(bootstrap, BAD_ROUNDS), await faust_rounds(bootstrap, FAUST_ROUNDS)


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


def about_bad_input(rounds: Pairs, ratio: float) -> list[str]:
    """Write the lines about malformed messages."""
    by_clock = median(mixed.per_s / clean.per_s for clean, mixed in rounds)
    return [
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


def write(engine: list[Speeds], rounds: Pairs, ratio: float, about: list[str]) -> None:
    """Write the page; ``about`` are the lines of its other parts."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`. Ratios of one run on one machine; absolute speeds are that machine's and its load's.",
        "",
        "## Kafka to Kafka, exactly once, one process",
        "",
        f"{RECORDS:,} JSON records of about 200 bytes, {PARTITIONS} partitions, 4 quasi-identifiers, k = 10, δ = 100;",
        "beside it a copy by the same client: read_committed, create_batch/send_batch, the same transactions every",
        "200 ms, nothing decoded.",
        "",
        *table("copy", "Shoal", rounds),
        "",
        f"Median ratio **{ratio:.2f}** (limit {LIMITS['kafka']}).",
        "",
        "![processor time by room](figures/kafka-profile.svg)",
        "",
        "## Engine alone, one core",
        "",
        "Against rule `nearest` in plain numpy (`benchmarks/numpy_twin.py`), float64, blocks of 512.",
        "",
        "| δ | attributes | k | `nearest`, x numpy | in StreamAggregator with centroids | the rule that loses least |",
        "|---|---|---|---|---|---|",
        *(
            f"| {delta} | {m} | {k} | {rule:.1f} | {whole:.1f} | {leanest:.2f} |"
            for delta, m, k, rule, whole, leanest in engine
        ),
        "",
        f"Limit at δ = 100, 5 attributes, k = 10: {LIMITS['engine']:.0f}.",
        "",
        *about,
    ]
    (DOCS / "benchmarks.md").write_text("\n".join(lines))


def main() -> int:
    """Measure and write; 1 if a limit is not reached."""
    engine, tables, losses = engine_rows(), static_sets(), loss_rows()
    rounds, counts, bad, faust = asyncio.run(kafka())
    ratio = median(shoal.per_s / copy.per_s for copy, shoal in rounds)
    bad_ratio = median(clean.cpu_us / mixed.cpu_us for clean, mixed in bad)
    draw(counts)
    about = [*about_bad_input(bad, bad_ratio), *about_faust(faust, LIMITS["faust"])]
    write(engine, rounds, ratio, [*about, *about_loss(losses), *about_static_sets(tables)])
    best, leanest = next(ratios[0:3:2] for delta, m, k, *ratios in engine if (delta, m, k) == (100, 5, 10))
    print(f"kafka to kafka {ratio:.2f} of the copy; {bad_ratio:.2f} with bad input; engine {best:.1f} x numpy")
    mean, worst = summary(losses, BY_K)
    print(f"block from k = 7, else awo: loss {mean:.2f} of nearest, at worst {worst:.2f}; {leanest:.2f} x numpy")
    found = {
        "kafka": ratio,
        "engine": best,
        "bad": bad_ratio,
        "mdav": tables.faster,
        "loss": 1.0 / tables.less,
        "by k": leanest,
        "stream": 1.0 / mean,
        "worst": 1.0 / worst,
        "faust": min(slower_by(faust, form, "bare") for form in ("to", "iterator")),
    }
    return 0 if all(found[name] >= limit for name, limit in LIMITS.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
