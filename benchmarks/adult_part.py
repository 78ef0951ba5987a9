"""Adult in file order through the stream engine: share released, violations, loss by scale, speed of categories."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from adult import ATTRIBUTES, NOMINAL, NUMERIC, policy_document
from adult_loss import Loss, losses
from adult_peers import mondrian
from adult_pipe import Piped, piped
from adult_release import mdav_blocks
from adult_speed import Ratios, engine_seconds, kafka_ratios, released_by_kafka
from part import Limit, Part

__all__ = ["adult_part", "mean_loss"]

K, DELTA = 10, 500
SHARE, SPEED, NODES = 0.97, 0.3, 1.0
"""Limits: share released; throughput, of four numeric attributes; seconds of 100 categories, of 20 numbers."""

OTHERS = ("MDAV, blocks", "Mondrian, blocks", "Mondrian, table")

Losses = dict[str, Loss]


def _rows(found: dict[str, Losses]) -> list[str]:
    """Return a line for each attribute, and the means by scale and of all."""
    lines = []
    for kind in ATTRIBUTES:
        scale = "nominal, taxonomy" if kind.taxonomy else kind.scale
        cells = [f"{of[kind.name].own:.3f}" for of in found.values()]
        lines.append(f"| {kind.name} | {scale} | {' | '.join(cells)} |")
    names = [kind.name for kind in ATTRIBUTES]
    by_scale = {scale: [kind.name for kind in ATTRIBUTES if kind.scale == scale] for scale in (NUMERIC, NOMINAL)}
    means: list[tuple[str, list[str], str]] = [
        ("mean, numeric", by_scale[NUMERIC], "own"),
        ("mean, nominal", by_scale[NOMINAL], "own"),
        ("mean, all", names, "own"),
        ("mean, all without the capital ones", [name for name in names if not name.startswith("capital")], "own"),
        ("mean NCP, nominal", by_scale[NOMINAL], "ncp"),
    ]
    for title, some, measure in means:
        cells = [f"{mean_loss(of, some, measure):.3f}" for of in found.values()]
        lines.append(f"| **{title}** | | {' | '.join(cells)} |")
    return lines


def _of_means(found: dict[str, Losses]) -> str:
    """Return of how many attributes the means of Mondrian's classes lose less."""
    names, own = [kind.name for kind in ATTRIBUTES], found["Shoal"]
    blocks, table = (sum(found[way][name].own < own[name].own for name in names) for way in ("its means", "its means "))
    return (
        f"Its means lose less than Shoal of {blocks} of {len(names)} attributes on the blocks, of {table} on the table."
    )


def mean_loss(of: Losses, names: Sequence[str] = (), measure: str = "own") -> float:
    """Return the mean loss of some attributes, or of all."""
    return float(np.mean([getattr(of[name], measure) for name in names or of]))


def adult_part(bootstrap: str) -> Part:
    """Measure, and write the lines."""
    began = time.monotonic()
    with TemporaryDirectory() as folder:
        whole, by_bounds = (piped(Path(folder), policy_document(scaling=scaling)) for scaling in ("spreads", "bounds"))
    _note(f"pipe: {len(whole.release.rows)} of {whole.records}, {whole.violations} violations, k = {whole.smallest}")
    ranges, means = mondrian(whole.records, K)
    block_ranges, block_means = mondrian(whole.records, K, DELTA)
    found = {
        "Shoal": losses(whole.release),
        "by bounds": losses(by_bounds.release),
        "MDAV, blocks": losses(mdav_blocks(whole.records, K, DELTA)),
        "Mondrian, blocks": losses(block_ranges),
        "its means": losses(block_means),
        "Mondrian, table": losses(ranges),
        "its means ": losses(means),
    }
    _note(", ".join(f"{name} {mean_loss(of):.3f}" for name, of in found.items()))
    same = released_by_kafka(bootstrap) == whole.lines
    kafka, (nominal, numeric) = kafka_ratios(bootstrap), engine_seconds(K, DELTA)
    share = len(whole.release.rows) / whole.records
    own, mdav, blocks, table = (mean_loss(found[name]) for name in ("Shoal", *OTHERS))
    lines = [
        *_about_loss(whole, share, found, same=same),
        *_about_speed(kafka, nominal, numeric),
        f"It took {(time.monotonic() - began) / 60:.1f} minutes.",
        "",
    ]
    return Part(
        lines,
        [
            Limit("Adult: share released", share, SHARE, at_most=False),
            Limit("Adult: violations by the judge", whole.violations + by_bounds.violations, 0, at_most=True),
            Limit("Adult: smallest class by pycanon", min(whole.smallest, by_bounds.smallest), K, at_most=False),
            Limit("Adult: same release from a topic as from a file", float(same), 1.0, at_most=False),
            Limit("Adult: loss, of MDAV on blocks", own / mdav, 1.0, at_most=True),
            Limit("Adult: loss, of Mondrian on blocks", own / blocks, 1.0, at_most=True),
            Limit("Adult: loss, of Mondrian on the table", own / table, 1.0, at_most=True),
            Limit("Adult: Kafka to Kafka, of 4 numeric attributes", kafka.dropped, SPEED, at_most=False),
            Limit("Adult: 100 categories, of 20 numeric attributes", nominal / numeric, NODES, at_most=True),
        ],
    )


def _about_loss(piped: Piped, share: float, found: dict[str, Losses], *, same: bool) -> list[str]:
    return [
        "## Adult: categories and missing values",
        "",
        f"All {piped.records:,} records in the order of the file through `shoal pipe` with `benchmarks/adult.yaml`:",
        f"k = {K}, δ = {DELTA}, every attribute but the occupation a quasi-identifier by its scale, missing values as",
        f"a group. Released: **{share:.2%}**. `shoal verify` finds {piped.violations} violations; the smallest class",
        f"of equal quasi-identifiers has {piped.smallest} records by pycanon. `shoal run` publishes",
        f"{'the same records' if same else '**other records**'} from a topic of one partition.",
        "",
        "Loss beside MDAV on blocks of δ records (scaled by bounds, exact means) and anonypyx 0.2.11 (Mondrian) on",
        "the same blocks and on the whole table, which no stream has. Numeric: squared error over the total, of an",
        "interval that of its midpoint. Ordinal: mean difference of ranks over the largest. Nominal: tree distance of",
        "the value from a category drawn from those that are published: this is 0 only for the true category alone,",
        "and grows with a wider set as with a wrong category, so that sets, nodes and modes are on one scale. NCP is",
        "the number of other categories over all others; a set without the value counts as 1. *Its means* are",
        "means, medians and modes of Mondrian's classes, which it does not publish.",
        "*By bounds* is a second run with `steering: {scaling: bounds}`: two categories are as far apart as the ends",
        "of a range, so that categories come first. The capital gains and losses are almost all 0, and the middle of",
        "an interval with one that is not is far from the others; a mean is given without them.",
        "",
        f"| attribute | scale | {' | '.join(name.strip() for name in found)} |",
        "|---" * (len(found) + 2) + "|",
        *_rows(found),
        "",
        _of_means(found),
        "",
    ]


def _about_speed(kafka: Ratios, nominal: float, numeric: float) -> list[str]:
    return [
        "Kafka to Kafka, all 14 attributes of the same records beside 4 numeric ones, by processor time; each run is a",
        f"new process, {kafka.records:,} records, δ = {DELTA}:",
        "",
        "| round | all | 4, others unchanged | 4, others dropped | ratio | ratio |",
        "|---|---|---|---|---|---|",
        *kafka.rows,
        "",
        f"Median ratio **{kafka.dropped:.2f}** (limit {SPEED}) to the policy that drops the others,",
        f"{kafka.unchanged:.2f} to the one that publishes them unchanged.",
        "",
        "The engine alone, one nominal attribute of 100 categories in a taxonomy of three levels beside 20 numeric",
        f"ones: {nominal:.1f} and {numeric:.1f} µs a record, ratio **{nominal / numeric:.2f}** (limit {NODES:g}).",
        "",
    ]


def _note(line: str) -> None:
    print(f"adult: {line}", file=sys.stderr, flush=True)
