"""Adult with l-diversity and t-closeness of the occupation: share released, loss, distances, violations, speed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from adult import CONFIDENTIAL, MISSING, diverse_document, messages, texts
from adult_loss import losses
from adult_part import mean_loss
from adult_pipe import NAMES, SHOAL, Piped, clusters_of, frame_of, piped
from adult_release import Release, release_of
from adult_speed import released_by_kafka, speeds_of
from diversity import Found, distance, forced_by_distance, forced_by_values, found_in, records_in_a_row, shares_in
from papers.common import Curve, Figure, Panel, grid
from papers.figures import draw
from part import Limit, Part
from pycanon import anonymity
from shoal.cli import main

__all__ = ["diversity_part"]

K, DELTA = 10, 500
DISTINCT, CLOSE = (2, 3, 4, 5, 6), (0.3, 0.4, 0.5)
CAP = 0.5
"""The largest share of a value that comes with l."""
SHARE, LOSS, SPEED = 0.97, 1.1, 0.6
"""Limits: share released, loss of that of blocks as tables, speed of that without l."""
SIDES, TIMES = {"without l": "adult-all", "l = 3": "adult-l3"}, 3
FIGURES = Path(__file__).resolve().parents[1] / "docs" / "reports" / "figures"


class Run(NamedTuple):
    """A run: what it published, share released, mean loss, mean size, worst cluster, and what pycanon says."""

    piped: Piped
    share: float
    loss: float
    size: float
    found: Found
    pycanon: float


def diversity_part(bootstrap: str) -> Part:
    """Measure, draw, and write the lines."""
    began = time.monotonic()
    with TemporaryDirectory() as name:
        folder = Path(name)
        reference = _reference(folder)
        shares = shares_in(reference)
        without = _run(folder, {}, None, shares)
        distinct = {least: _run(folder, {"l": least}, None, shares) for least in DISTINCT}
        uncapped = _run(folder, {"l": 3, "max_value_share": 1.0}, None, shares)
        close = {t: _run(folder, {"t": t}, reference, shares) for t in CLOSE}
        strict, auto = (
            {t: mean_loss(losses(_blocks(folder, {"t": t}, reference, algorithm))) for t in CLOSE}
            for algorithm in ("strict", "auto")
        )
        plain = mean_loss(losses(_blocks(folder, {}, None, "auto")))
    values = ["" if text == MISSING else text for text in texts(CONFIDENTIAL)]
    forced = {least: forced_by_values(values, K, DELTA, least, CAP) for least in DISTINCT}
    forced_close = {t: forced_by_distance(values, K, DELTA, t, shares) for t in CLOSE}
    same = released_by_kafka(bootstrap, SIDES["l = 3"]) == distinct[3].piped.lines
    rounds = speeds_of(bootstrap, SIDES, messages() * TIMES)
    speed = median(one["without l"].cpu_us / one["l = 3"].cpu_us for one in rounds)
    draw(_figure(without, distinct, close, forced, forced_close, strict), FIGURES, "")
    rows = [
        ["nothing", *_cells(without), "", "", f"{plain:.3f}"],
        *([f"l = {least}", *_cells(run), f"{forced[least]:.2%}", "", ""] for least, run in distinct.items()),
        ["l = 3, no limit of a share", *_cells(uncapped), "", "", ""],
        *(
            [
                *(f"t = {t}", *_cells(run), f"{forced_close[t]:.2%}"),
                *(f"{strict[t]:.3f} ({run.loss / strict[t]:.2f})", f"{auto[t]:.3f}"),
            ]
            for t, run in close.items()
        ),
    ]
    runs = [without, *distinct.values(), uncapped, *close.values()]
    lines = [
        "## Adult: l-diversity and t-closeness",
        "",
        f"All {without.piped.records:,} records in the order of the file through `shoal pipe`: k = {K}, δ = {DELTA},",
        f"the occupation protected ({len(set(values))} values; a missing one is a value of its own). The reference of",
        "`t` is written by `shoal reference` from the whole table; occupations are equally far from each other. With",
        f"`l` no value has more than {CAP:.0%} of a cluster. Losses as in the part on categories, of released records.",
        f"`shoal verify` finds {sum(run.piped.violations for run in runs)} violations in all runs.",
        f"`shoal run` with l = 3 publishes {'the same records' if same else '**other records**'} from a topic.",
        "",
        "*Forced*: records that no algorithm can release, because no cluster of records that arrive at most δ before",
        "or after one of them satisfies it. *Strict*: blocks of δ records as tables, `shoal batch --algorithm strict",
        "--refine descent`, with the same reference; in brackets the loss of the stream, of that. *Auto*: the same",
        "blocks by `--algorithm auto`, which lose less without t, too. *pycanon*: the l of the release, or its t from",
        "the release's own distribution.",
        "",
        *grid(
            [
                *("required", "released", "loss", "mean size", "fewest values", "largest share", "largest distance"),
                *("pycanon", "forced", "strict", "auto"),
            ],
            rows,
        ),
        "Median number of consecutive records that are within t: "
        + ", ".join(f"{records_in_a_row(values, t, shares):.0f} for {t}" for t in CLOSE)
        + ".",
        "",
        "![share released and loss against l and t](figures/diversity-adult.svg)",
        "",
        f"Kafka to Kafka, {len(messages()) * TIMES:,} records, with l = 3 beside the same stream without: median ratio",
        f"of processor time **{speed:.2f}** (limit {SPEED}).",
        "",
        f"It took {(time.monotonic() - began) / 60:.1f} minutes.",
        "",
    ]
    return Part(lines, _limits(runs, distinct, close, strict, shares, same=same, speed=speed))


def _limits(
    runs: list[Run],
    distinct: dict[int, Run],
    close: dict[float, Run],
    strict: dict[float, float],
    shares: dict[str, float],
    *,
    same: bool,
    speed: float,
) -> list[Limit]:
    # pycanon compares with the release, whose distribution is not quite the reference.
    drift = {t: distance(_counts(run), shares) for t, run in close.items()}
    return [
        Limit("Adult: share released with l = 3", distinct[3].share, SHARE, at_most=False),
        Limit(f"Adult: share released with t = {CLOSE[-1]}", close[CLOSE[-1]].share, SHARE, at_most=False),
        Limit("Adult: violations by the judge", sum(run.piped.violations for run in runs), 0, at_most=True),
        Limit("Adult: smallest class by pycanon", min(run.piped.smallest for run in runs), K, at_most=False),
        *(
            Limit(f"Adult: {by} with l = {least}", value, least, at_most=False)
            for least, run in distinct.items()
            for by, value in (("fewest values of a cluster", run.found.values), ("l by pycanon", run.pycanon))
        ),
        *(
            Limit(f"Adult: largest share of a value with l = {least}", run.found.share, CAP + 1e-9, at_most=True)
            for least, run in distinct.items()
        ),
        *(
            Limit(f"Adult: {by} with t = {t}", value, t + more, at_most=True)
            for t, run in close.items()
            for by, value, more in (
                ("largest distance of a cluster", run.found.distance, 1e-9),
                ("t by pycanon", run.pycanon, drift[t] + 1e-9),
            )
        ),
        *(
            Limit(f"Adult: loss with t = {t}, of blocks as tables", run.loss / strict[t], LOSS, at_most=True)
            for t, run in close.items()
        ),
        Limit("Adult: same release with l = 3 from a topic as from a file", float(same), 1.0, at_most=False),
        Limit("Adult: speed with l = 3, of that without", speed, SPEED, at_most=False),
    ]


def _counts(run: Run) -> dict[str, int]:
    values = [value for cluster in clusters_of(run.piped) for value in cluster]
    return {value: values.count(value) for value in set(values)}


def _cells(run: Run) -> list[str]:
    found = run.found
    return [
        f"{run.share:.2%}",
        f"{run.loss:.3f}",
        f"{run.size:.1f}",
        str(found.values),
        f"{found.share:.2f}",
        f"{found.distance:.4f}",
        f"{run.pycanon:.4g}",
    ]


def _reference(folder: Path) -> Path:
    """Write the reference of the occupation from the whole table."""
    policy, sample, reference = folder / "plain.yaml", folder / "sample.jsonl", folder / "reference.csv"
    policy.write_text(json.dumps(diverse_document({})), encoding="utf-8")
    sample.write_bytes(b"\n".join(messages()) + b"\n")
    options = ["-i", str(sample), "-o", str(reference), "--attribute", CONFIDENTIAL]
    subprocess.run([SHOAL, "reference", str(policy), *options], check=True)
    return reference


def _run(folder: Path, privacy: dict[str, Any], reference: Path | None, shares: dict[str, float]) -> Run:
    found = piped(folder, diverse_document(privacy, reference))
    clusters, frame = clusters_of(found), frame_of(found.published)
    judged = anonymity.t_closeness if "t" in privacy else anonymity.l_diversity
    run = Run(
        found,
        len(found.release.rows) / found.records,
        mean_loss(losses(found.release)),
        float(np.mean([len(cluster) for cluster in clusters])),
        found_in(clusters, shares),
        float(judged(frame, NAMES, [CONFIDENTIAL])),
    )
    note = f"diversity: {privacy} {run.share:.2%} released, loss {run.loss:.3f}, {run.found}, pycanon {run.pycanon:.3f}"
    print(note, f"{found.violations} violations", file=sys.stderr, flush=True)
    return run


def _blocks(folder: Path, privacy: dict[str, Any], reference: Path | None, algorithm: str) -> Release:
    """Return the release of blocks of delta records as tables; the last block takes what is left."""
    policy = folder / "table.yaml"
    document = diverse_document(privacy, reference) | {"table": {"keep_order": True}}
    policy.write_text(json.dumps(document), encoding="utf-8")
    records = messages()
    source, target, proof = (folder / f"block.{name}.jsonl" for name in ("in", "out", "proof"))
    published, evidence = list[dict[str, Any]](), list[dict[str, Any]]()
    starts = [*range(0, len(records) - DELTA + 1, DELTA), len(records)]
    starts = [*starts[:-2], starts[-1]] if starts[-1] - starts[-2] < DELTA else starts
    for start, end in pairwise(starts):
        source.write_bytes(b"\n".join(records[start:end]) + b"\n")
        options = ["--algorithm", algorithm, "--refine", "descent", "--keep-order", "--evidence", str(proof)]
        if main(["batch", str(policy), "-i", str(source), "-o", str(target), *options]):
            raise SystemExit("bench: a block could not be released as a table")
        rows = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
        if len(rows) != end - start:
            raise SystemExit("bench: a table released fewer records than it has")
        for line in proof.read_text(encoding="utf-8").splitlines():
            offsets = json.loads(line)["offsets"]
            published += [rows[offset] for offset in offsets]
            evidence.append({"offsets": [start + offset for offset in offsets]})
    return release_of(published, evidence)


def _figure(
    without: Run,
    distinct: dict[int, Run],
    close: dict[float, Run],
    forced: dict[int, float],
    forced_close: dict[float, float],
    strict: dict[float, float],
) -> Figure:
    least, most = [1, *distinct], [*close]
    by_l = [without, *distinct.values()]
    return Figure(
        "diversity-adult",
        "",
        [
            Panel(
                "released with l",
                "l (1: without)",
                "share",
                [
                    Curve("Shoal", least, [run.share for run in by_l]),
                    Curve("most that can be", least, [1.0, *(1.0 - share for share in forced.values())]),
                ],
            ),
            Panel("loss with l", "l (1: without)", "mean loss", [Curve("Shoal", least, [run.loss for run in by_l])]),
            Panel(
                "released with t",
                "t",
                "share",
                [
                    Curve("Shoal", most, [run.share for run in close.values()]),
                    Curve("most that can be", most, [1.0 - share for share in forced_close.values()]),
                ],
            ),
            Panel(
                "loss with t",
                "t",
                "mean loss",
                [
                    Curve("Shoal", most, [run.loss for run in close.values()]),
                    Curve("blocks as tables, strict", most, [strict[t] for t in most]),
                    Curve("Shoal without t", most, [without.loss for _ in most]),
                ],
            ),
        ],
    )
