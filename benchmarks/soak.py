"""`make soak`: half of the highest rate for a long time; writes docs/reports/soak.md.

SOAK_MINUTES (30), SOAK_WORKERS (2) and SOAK_PER_S (half of the highest rate) select another run. Records are counted
in all partitions; SOAK_VERIFIED (4) is the number of partitions that `shoal verify` judges: it takes minutes and
gigabytes for millions of records.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from measuring import Trend, trend
from part import Limit
from soak_judge import Findings
from soak_records import MALFORMED_EVERY
from soak_run import DELTA, MAX_DELAY_S, PARTITIONS, K, Sample, Soak, SoakOptions, soak

__all__ = ["limits_of", "main", "memory_trends", "page"]

REPORTS = Path(__file__).resolve().parents[1] / "docs" / "reports"
FIGURE = REPORTS / "figures" / "soak.svg"
MINUTES = 30
WARM_UP = 0.25
"""Share of the run that is left out of the slope of memory: caches and the allocator fill meanwhile."""
TOLERATED_GROWTH_MB = 2.0
"""Growth over the measured time that counts as noise in any case."""
MEASURES = {"memory_mb": "the resident memory", "in_use_mb": "the memory in use"}
SLACK_S = 2.0
"""Beyond `max_delay_s` a flush takes two commits and the way to the reader."""


def memory_trends(samples: Sequence[Sample], measure: str = "memory_mb") -> list[Trend]:
    """Return the slope of the memory of each worker (MB a minute) after the warm-up; ``measure`` is of `Sample`."""
    kept = [sample for sample in samples if sample.at_s >= WARM_UP * samples[-1].at_s]
    minutes = [sample.at_s / 60 for sample in kept]
    return [trend(minutes, list(one)) for one in zip(*(getattr(sample, measure) for sample in kept), strict=True)]


def _memory_limits(samples: Sequence[Sample]) -> list[Limit]:
    minutes = (1 - WARM_UP) * samples[-1].at_s / 60
    return [
        Limit(
            f"slope of {words} of worker {number}, MB a minute",
            one.slope,
            max(TOLERATED_GROWTH_MB / minutes, 2 * one.standard_error),
            at_most=True,
        )
        for measure, words in MEASURES.items()
        for number, one in enumerate(memory_trends(samples, measure), 1)
    ]


def limits_of(found: Soak) -> list[Limit]:
    """Return the bounds, with what was found."""
    samples, findings = found.samples, found.findings
    assert findings is not None
    lag_limit = found.per_s * MAX_DELAY_S
    longest = max(sample.delay_max for sample in samples)
    return [
        *_memory_limits(samples),
        Limit("longest lag, records", max(sample.lag for sample in samples), lag_limit, at_most=True),
        Limit("longest delay, s", longest, MAX_DELAY_S + SLACK_S, at_most=True),
        Limit("records released twice", findings.twice, 0, at_most=True),
        Limit("records lost", findings.lost, 0, at_most=True),
        Limit("clusters under k", findings.under_k, 0, at_most=True),
        Limit("partitions that shoal verify accepts", findings.verified, findings.judged, at_most=False),
    ]


def page(found: Soak) -> list[str]:
    """Return the lines of the report."""
    samples, findings = found.samples, found.findings
    assert findings is not None
    seconds, load = samples[-1].at_s, sum(sample.load for sample in samples) / len(samples)
    return [
        "# A long run at a constant rate",
        "",
        f"Written by `make soak`. {found.options.workers} workers, {PARTITIONS} partitions, k = {K}, δ = {DELTA},",
        f"max_delay_s = {MAX_DELAY_S}, one record in {MALFORMED_EVERY} malformed. First records are sent at once to",
        f"find the highest rate: {found.highest_per_s:,.0f} records a second. Then {found.per_s:,.0f} records a second",
        f"({found.per_s / max(found.highest_per_s, 1):.0%} of that) for {found.options.minutes:g} minutes; the load of",
        f"the machine ({os.cpu_count()} processors) was {load:.1f} on average.",
        *_other_options(found),
        "",
        "| bound | found | limit | |",
        "|---|---|---|---|",
        *(
            f"| {one.name} | {_figure(one.found)} | {_figure(one.limit)} | {'kept' if one.is_kept else '**broken**'} |"
            for one in limits_of(found)
        ),
        "",
        "Memory in use is what the worker has not freed, at most: each small object of Python counts as the largest",
        "one, so the figure can exceed that of resident memory. It grows if the worker keeps more and more. Resident",
        "memory also has what the allocator keeps for later; it grows in steps, whenever a worker needs more at one",
        "moment than ever before. A slope is that of a least-squares line through the means of twelve parts of the run",
        f"after the first {WARM_UP:.0%}. It is within noise if it is at most two of its standard errors, or at most",
        f"{TOLERATED_GROWTH_MB:g} MB over these parts together.",
        "",
        "| worker | memory | at the end, MB | slope, MB a minute | standard error |",
        "|---|---|---|---|---|",
        *(
            f"| {number} | {words} | {getattr(samples[-1], measure)[number - 1]:.1f} | {one.slope:+.4f} | "
            f"{one.standard_error:.4f} |"
            for measure, words in MEASURES.items()
            for number, one in enumerate(memory_trends(samples, measure), 1)
        ),
        "",
        *_account(findings, found, seconds),
        "![memory, lag and delay over time](figures/soak.svg)",
        "",
    ]


def _other_options(found: Soak) -> list[str]:
    if found.options.per_s is None and found.options.minutes >= MINUTES:
        return []
    return ["This is not the run of `make soak` alone, which takes half of the highest rate for 30 minutes."]


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def _account(findings: Findings, found: Soak, seconds: float) -> list[str]:
    cpu_us = found.cpu_s / (found.per_s * seconds) * 1e6
    delays = [sample.delay_p99 for sample in found.samples if not math.isnan(sample.delay_p99)]
    return [
        f"{findings.records:,} records: {findings.released:,} released in {findings.clusters:,} clusters,",
        f"{findings.suppressed:,} suppressed, {findings.quarantined:,} quarantined; counted from the topics alone.",
        f"`shoal verify` judged {findings.judged} of {PARTITIONS} partitions, each whole. Processor time of the",
        f"workers: {cpu_us:.0f} µs a record. The 99th percentile of the delay of records, in windows of a few seconds:",
        f"{min(delays):.2f} to {max(delays):.2f} s.",
        "",
    ]


def draw(samples: Sequence[Sample]) -> None:
    """Write memory, lag and delay over time as a figure."""
    import matplotlib as mpl  # noqa: PLC0415 - the nightly test has no matplotlib

    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the backend is chosen

    mpl.rcParams["svg.hashsalt"] = "shoal"
    minutes = [sample.at_s / 60 for sample in samples]
    figure, (memory, lag, delay) = plt.subplots(3, 1, figsize=(8, 6), sharex=True)
    for number, values in enumerate(zip(*(sample.memory_mb for sample in samples), strict=True), 1):
        memory.plot(minutes, values, label=f"worker {number}")
    memory.set_ylabel("memory, MB")
    memory.legend(frameon=False)
    lag.plot(minutes, [sample.lag for sample in samples], color="#2a6f97")
    lag.set_ylabel("lag, records")
    delay.plot(minutes, [sample.delay_p99 for sample in samples], color="#2a6f97", label="99 %")
    delay.plot(minutes, [sample.delay_max for sample in samples], color="#a9d6e5", label="longest")
    delay.set_ylabel("delay, s")
    delay.set_xlabel("minutes")
    delay.legend(frameon=False)
    for axes in (memory, lag, delay):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(bottom=0)
    figure.tight_layout()
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, metadata={"Date": None})


def main() -> int:
    """Run, write the report, and return 1 if a bound is not kept."""
    bootstrap = os.environ.get("SHOAL_TEST_BROKER") or os.environ["SHOAL_KAFKA__BOOTSTRAP_SERVERS"]
    per_s = os.environ.get("SOAK_PER_S")
    options = SoakOptions(
        float(os.environ.get("SOAK_MINUTES", f"{MINUTES}")),
        int(os.environ.get("SOAK_WORKERS", "2")),
        float(per_s) if per_s else None,
        int(os.environ.get("SOAK_VERIFIED", f"{PARTITIONS}")),
    )
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(soak(bootstrap, Path(folder), options))
    (REPORTS / "soak.md").write_text("\n".join(page(found)), encoding="utf-8")
    draw(found.samples)
    limits = limits_of(found)
    for one in limits:
        print(f"  {one.name}: {one.found:.3f} {'<=' if one.at_most else '>='} {one.limit:.3f} {_word(one)}")
    return int(not all(one.is_kept for one in limits))


def _word(limit: Limit) -> str:
    return "" if limit.is_kept else "BROKEN"


if __name__ == "__main__":
    sys.exit(main())
