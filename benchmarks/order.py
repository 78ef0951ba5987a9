"""Loss against order: every rule along a sweep of the position's weight, beside Algorithm 3 at equal excess span."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from loss import AUTO
from papers.common import Curve, Figure, Panel
from papers.figures import draw
from part import Limit, Part
from shoal import microaggregate
from shoal.arrays import Float64Matrix
from shoal.policy import resolve_rule
from stream_figures import Clusters, StreamFigures, figures_of, mean_figures, run_rule
from streams import other_streams, streams

__all__ = ["at_span", "order_part"]

K, DELTA, SEEDS, OTHER_SEEDS = 10, 100, 5, 2
WEIGHTS = (0.0, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5)
RULES = ("nearest", "greedy", "awo", "block")
KNOWN = "all known"
DRAWN = ("Census, 2 attributes, order of the file", "Census, 2 attributes, shuffled")
LIMIT = 0.85
FIGURES = Path(__file__).resolve().parents[1] / "docs" / "reports" / "figures"

Sweep = dict[str, list[StreamFigures]]
"""By rule: a figure for each weight."""


class Line(NamedTuple):
    """A stream: the spans of Algorithm 3 at each weight, and MSE over its own of each rule at that span."""

    stream: str
    spans: list[float]
    ratios: dict[str, list[float]]


def at_span(runs: list[StreamFigures], span: float) -> float:
    """Return the least MSE of a rule at no more than this mean excess span.

    Between two weights the logarithm of the MSE goes straight with the span, and a point that another one beats in both
    is left out. Without a point of so small a span: NaN. The other rule's points are taken as they are.
    """
    spans, losses = list[float](), list[float]()
    for run in sorted(runs, key=lambda one: (one.span, one.mse)):
        if not losses or run.mse < losses[-1]:
            spans.append(run.span)
            losses.append(run.mse)
    return float(np.exp(np.interp(span, spans, np.log(losses)))) if span >= spans[0] else float("nan")


def known_in_advance(values: Float64Matrix, weight: float) -> StreamFigures:
    """Measure the whole stream as a table with the position as one more attribute: MDAV and descent, no delta."""
    rows = np.column_stack([values, weight * np.arange(len(values))])
    labels = microaggregate(rows, k=K, algorithm="mdav", refine="descent")
    positions = np.lexsort((np.arange(len(values)), labels))
    sizes = np.unique(labels, return_counts=True)[1]
    cluster_bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    means = np.add.reduceat(values[positions], cluster_bounds[:-1]) / sizes[:, None]
    newest = positions[cluster_bounds[1:] - 1]
    return figures_of(values, Clusters(positions, cluster_bounds, means, newest, 0), 1.0)


def sweep_of(name: str, seeds: list[Float64Matrix], *, with_known: bool = False) -> Sweep:
    """Run every rule at every weight."""
    found = {
        rule: [mean_figures([run_rule(values, K, DELTA, rule, weight) for values in seeds]) for weight in WEIGHTS]
        for rule in RULES
    }
    if with_known:
        # Where clusters stay far below delta: elsewhere nothing bounds the delay of it.
        far = [weight for weight in WEIGHTS if weight >= 0.01]
        found[KNOWN] = [mean_figures([known_in_advance(values, weight) for values in seeds]) for weight in far]
    print(f"order: {name}", file=sys.stderr, flush=True)
    return found


def line_of(name: str, sweep: Sweep) -> Line:
    """Compare along the sweep of Algorithm 3."""
    base = sweep["nearest"]
    ratios = {
        rule: [at_span(runs, one.span) / one.mse for one in base]
        for rule, runs in sweep.items()
        if rule not in {"nearest", KNOWN}
    }
    if KNOWN in sweep:
        widest = max(run.span for run in sweep[KNOWN])
        ratios[KNOWN] = [
            at_span(sweep[KNOWN], one.span) / one.mse if one.span <= widest else float("nan") for one in base
        ]
    return Line(name, [one.span for one in base], ratios)


def order_part() -> Part:
    """Measure, draw, and write the lines about loss and order."""
    began = time.monotonic()
    sweeps = {name: sweep_of(name, seeds, with_known=name.startswith("Census")) for name, seeds in streams(SEEDS)}
    lines = [line_of(name, sweep) for name, sweep in sweeps.items()]
    others = [line_of(name, sweep_of(name, seeds)) for name, seeds in other_streams(OTHER_SEEDS)]
    minutes = (time.monotonic() - began) / 60
    for name, about in zip(DRAWN, ("order-file", "order-shuffled"), strict=True):
        draw(_figure(about, sweeps[name]), FIGURES, "")
    draw(_ratios_figure(lines), FIGURES, "")
    chosen = resolve_rule(AUTO, K)
    census = [line for line in lines if line.stream.startswith("Census")]
    return Part(
        [
            "## Loss at equal order",
            "",
            f"k = {K}, δ = {DELTA}, {SEEDS} seeds; {len(WEIGHTS)} weights of the position from 0 to {WEIGHTS[-1]}.",
            "What a rule loses over what Algorithm 3 loses at the same mean excess span: its points as they are, those",
            f"of the other rule joined (`benchmarks/order.py`). `{AUTO}` is `{chosen}`.",
            f"It took {minutes:.1f} minutes.",
            "",
            *(row for line in lines for row in _table(line)),
            "`all known`: the whole stream as one table, position as an attribute, MDAV and descent. It says what",
            "is to be had: near a span of 0 every rule cuts the stream into runs, and nothing is.",
            "",
            f"Streams that no constant was chosen on, {OTHER_SEEDS} seeds: geometric mean over the weights at which",
            f"Algorithm 3 spans {K} or more, and the worst of them.",
            "",
            "| stream | awo | block |",
            "|---|---|---|",
            *(f"| {line.stream} | {_brief(line, 'awo')} | {_brief(line, 'block')} |" for line in others),
            "",
            f"Limits of `{chosen}`, at spans of {K} or more: {LIMIT} for the mean of the streams above, of those here,",
            "and of Census, and for Census at its worst.",
            "",
            "The paper's Fig. 3, Census with TAXINC and POTHVAL in the order of the file, and shuffled; then loss over",
            "that of Algorithm 3 against the span:",
            "",
            "![loss and reordering against the weight, order of the file](figures/order-file.svg)",
            "",
            "![the same, shuffled](figures/order-shuffled.svg)",
            "",
            "![loss at equal excess span](figures/order-equal-span.svg)",
            "",
        ],
        [
            Limit("loss at equal span, mean of streams, to a span of k", _mean(lines, chosen), LIMIT, at_most=True),
            Limit("loss at equal span, mean of other streams", _mean(others, chosen), LIMIT, at_most=True),
            Limit("loss at equal span, Census, mean to a span of k", _mean(census, chosen), LIMIT, at_most=True),
            Limit("loss at equal span, Census, worst to a span of k", _worst(census, chosen), LIMIT, at_most=True),
        ],
    )


def _mixing(line: Line, rule: str) -> list[float]:
    """Ratios while Algorithm 3's clusters reach k positions or more beyond their size, without weight and with it."""
    return [ratio for ratio, span in zip(line.ratios[rule], line.spans, strict=True) if span >= K]


def _mean(lines: list[Line], rule: str) -> float:
    return float(np.exp(np.mean([np.mean(np.log(_mixing(line, rule))) for line in lines])))


def _worst(lines: list[Line], rule: str) -> float:
    return max(max(_mixing(line, rule)) for line in lines)


def _brief(line: Line, rule: str) -> str:
    return f"{_mean([line], rule):.2f} ({_worst([line], rule):.2f})"


def _table(line: Line) -> list[str]:
    cells = {"span of Algorithm 3": [f"{span:.1f}" for span in line.spans]}
    for rule, ratios in line.ratios.items():
        cells[rule] = ["-" if np.isnan(ratio) else f"{ratio:.2f}" for ratio in ratios]
    return [
        f"| {line.stream} | {' | '.join(f'{weight:g}' for weight in WEIGHTS)} |",
        f"|---|{'---|' * len(WEIGHTS)}",
        *(f"| {name} | {' | '.join(found)} |" for name, found in cells.items()),
        "",
    ]


def _figure(name: str, sweep: Sweep) -> Figure:
    shown = [place for place, weight in enumerate(WEIGHTS) if weight <= 0.1]
    weights = [WEIGHTS[place] for place in shown]
    panels = []
    for field, title in (("mse", "MSE"), ("mae", "MAE"), ("moved_most", "largest move"), ("moved", "mean move")):
        curves = [Curve(rule, weights, [getattr(sweep[rule][place], field) for place in shown]) for rule in RULES]
        up = "records" if field.startswith("moved") else ""
        panels.append(Panel(title, "weight of the position", up, curves))
    return Figure(name, "", panels)


def _ratios_figure(lines: list[Line]) -> Figure:
    panels = []
    for rule in ("awo", "block"):
        curves = [Curve(line.stream, line.spans, [min(ratio, 1.2) for ratio in line.ratios[rule]]) for line in lines]
        panels.append(Panel(f"{rule} (cut at 1.2)", "mean excess span", "MSE / Algorithm 3's", curves))
    return Figure("order-equal-span", "", panels)


if __name__ == "__main__":
    part = order_part()
    print("\n".join(part.lines), *part.limits, sep="\n")
