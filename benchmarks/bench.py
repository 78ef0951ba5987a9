"""`make bench`: measure, compare with the limits, write docs/reports/benchmarks.md. Ratios of one run.

``bench.py PART ...`` measures these parts alone and leaves the others of the page as they are.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from adult_part import adult_part
from bad_input import RECORDS as BAD_RECORDS
from bad_input import bad_rounds
from balance import balance_part
from castle_rows import castle_part
from diversity_part import diversity_part
from engine import engine_part
from faust_stage import about_faust, faust_rounds, slower_by
from first_row import first_row_part
from following import following_part
from groups import groups_part
from judge_part import judge_part
from kafka_part import kafka_part
from kafka_to_kafka import Speed
from latency import latency_part
from loss import loss_part
from online import ranges_part, target_part
from order import order_part
from part import Limit, Part
from people import people_part
from privacy_part import privacy_part
from rates import rates_part
from scaling import scaling_part
from sizing import sizing_part
from start import start_part
from static_sets import FASTER, LESS, about_static_sets, static_sets

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ROOT / "docs" / "reports"
BAD_ROUNDS = 8
FAUST_ROUNDS = 3
LIMITS = {"bad": 0.9, "faust": 0.9}
"""Below these the run fails; other parts have theirs beside them."""


Pairs = list[tuple[Speed, Speed]]


def _bootstrap() -> str:
    bootstrap = os.environ.get("SHOAL_TEST_BROKER") or os.environ.get("SHOAL_KAFKA__BOOTSTRAP_SERVERS")
    if not bootstrap:
        raise SystemExit("bench: no broker; run it with 'make bench'")
    return bootstrap


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
    return Part(lines, [Limit("with bad input, of without", ratio, LIMITS["bad"], at_most=False)])


def faust_part() -> Part:
    """The stage in a Faust app."""
    rounds = asyncio.run(faust_rounds(_bootstrap(), FAUST_ROUNDS))
    slowest = min(slower_by(rounds, form, "bare") for form in ("to", "iterator"))
    slowest_part = Limit("stage, of a bare agent", slowest, LIMITS["faust"], at_most=False)
    return Part(about_faust(rounds, LIMITS["faust"]), [slowest_part])


def tables_part() -> Part:
    """Finished tables."""
    found = static_sets()
    return Part(
        about_static_sets(found),
        [
            Limit("MDAV by tree, x scan", found.faster, FASTER, at_most=False),
            Limit("loss of tables, of MDAV's", found.less, LESS, at_most=True),
            *(Limit(name, value, limit, at_most=True) for name, value, limit in found.limited),
        ],
    )


PARTS: dict[str, Callable[[], Part]] = {
    "start": lambda: start_part(_bootstrap()),
    "kafka": lambda: kafka_part(_bootstrap()),
    "latency": lambda: latency_part(_bootstrap()),
    "rates": lambda: rates_part(_bootstrap()),
    "sizing": lambda: sizing_part(_bootstrap()),
    "groups": lambda: groups_part(_bootstrap()),
    "first-row": first_row_part,
    "bad-input": bad_part,
    "faust": faust_part,
    "engine": engine_part,
    "loss": loss_part,
    "balance": balance_part,
    "scaling": scaling_part,
    "people": people_part,
    "order": order_part,
    "target": target_part,
    "ranges": ranges_part,
    "castle": castle_part,
    "tables": tables_part,
    "adult": lambda: adult_part(_bootstrap()),
    "diversity": lambda: diversity_part(_bootstrap()),
    "privacy": privacy_part,
    "judge": judge_part,
    "following": following_part,
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
    """Measure and write; 1 if a limit is not kept."""
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise SystemExit(f"bench: no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    broken = False
    for name in names or PARTS:
        began = time.monotonic()
        part = PARTS[name]()
        write({name: part.lines})
        print(f"{name}: {time.monotonic() - began:.0f} s")
        for checked in part.limits:
            sign, kept = "<=" if checked.at_most else ">=", "" if checked.is_kept else "BROKEN"
            print(f"  {checked.name}: {checked.found:.3f} {sign} {checked.limit:.3f} {kept}")
            broken = broken or not checked.is_kept
    return int(broken)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
