"""What a stream learns while it runs: the weight that holds a span, and the spreads of attributes."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from part import Limit, Part
from shoal.arrays import Float64Matrix, Float64Vector
from shoal.formats import Block, JsonEncoder
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.streams import PartitionPipeline, StreamClusterer
from shoal.streams.steering import TargetSpan
from streams import other_streams, streams

__all__ = ["ranges_part", "target_part"]

K, DELTA, SEEDS = 10, 100, 3
BLOCK = 512
RULES = ("nearest", "awo", "block")
TARGETS = (5, 20, 40)
SETTLED = 70
"""Clusters after which the weight is taken to have settled."""
ERROR, NARROW = 0.15, 0.1
UNITS = (1e-3, 1.0, 1e4, 1e-1, 1e2)
"""Factors of the attributes, in turn: changes of unit that the stream is not told of."""
FIRST = 1_000
LEARNED = 1.2


def all_streams() -> dict[str, list[Float64Matrix]]:
    """Return every stream of the benchmark that is longer than two thousand records."""
    every = [*streams(SEEDS), *other_streams(SEEDS)]
    return {name: seeds for name, seeds in every if len(seeds[0]) > 2_000}


# ---------------------------------------------------------------- target


def spans_of(values: Float64Matrix, rule: str, position: float | TargetSpan) -> Float64Vector:
    """Return the excess span of each cluster, in the order of their decision."""
    stream = StreamClusterer(K, DELTA, values.shape[1], rule=rule, position=position)
    calls = [stream.push(values[start : start + BLOCK]) for start in range(0, len(values), BLOCK)]
    return np.array(
        [
            call.positions[end - 1] - call.positions[first] - (end - first - 1)
            for call in calls
            for first, end in pairwise(call.cluster_bounds.tolist())
        ],
        np.float64,
    )


class Held(NamedTuple):
    """How far a mean span lies from its target, as a share of it: of the whole stream, and once it has settled.

    ``has_narrow``: without any weight more than a tenth of the clusters span less than the target.
    """

    whole: float
    settled: float
    has_narrow: bool


def held(seeds: list[Float64Matrix], target: float) -> dict[str, Held]:
    """Return the worst of the seeds, by rule."""
    found = {}
    for rule in RULES:
        spans = [spans_of(values, rule, TargetSpan(target, (1.0,) * values.shape[1])) for values in seeds]
        whole, settled = (max(abs(each[begin:].mean() / target - 1) for each in spans) for begin in (0, SETTLED))
        free = spans_of(seeds[0], rule, 0.0)
        found[rule] = Held(whole, settled, bool((free < target).mean() > NARROW))
    return found


def _percent(one: Held) -> str:
    mark = " †" if one.has_narrow else ""
    return f"{100 * one.whole:.1f} ({100 * one.settled:.1f}){mark}"


def target_part() -> Part:
    """Hold targets on every stream."""
    rows = {(name, target): held(seeds, target) for name, seeds in all_streams().items() for target in TARGETS}
    every = [one for row in rows.values() for one in row.values()]
    worst = max(one.settled for one in every if not one.has_narrow)
    narrow = max(one.settled for one in every if one.has_narrow)
    lines = [
        "## A target for the span",
        "",
        f"`position: {{target_span: S}}`, k = {K}, δ = {DELTA}: how far the mean excess span of a stream lies from S,",
        f"in per cent of S, the worst of {SEEDS} seeds; in brackets without the first {SETTLED} clusters",
        "(`benchmarks/online.py`). †: without any weight more than a tenth of the clusters span less than S, because",
        "records that are alike come together. Nothing widens these and nothing makes up for them: the mean stays",
        "below S, even where a fixed weight would come to it, spanning more elsewhere.",
        "",
        f"| stream | S | {' | '.join(RULES)} |",
        f"|---|---|{'---|' * len(RULES)}",
        *(
            f"| {name} | {target} | {' | '.join(_percent(row[rule]) for rule in RULES)} |"
            for (name, target), row in rows.items()
        ),
        "",
        f"Worst once settled: **{100 * worst:.1f} %** (limit {100 * ERROR:.0f} %); with †, which no limit is for,",
        f"{100 * narrow:.1f} %.",
        "",
    ]
    return Part(lines, [Limit("span off its target, worst stream", worst, ERROR, at_most=True)])


# ---------------------------------------------------------------- ranges


def policy_of(d: int, rule: str, bounds: list[list[float]] | None) -> Policy:
    """Return a policy over d attributes that are scaled by these bounds, or by their spreads if there are none."""
    attribute = {"role": "quasi_identifier", "scale": "numeric", "resolution": 0}
    attributes = {f"a{j}": attribute | ({} if bounds is None else {"bounds": bounds[j]}) for j in range(d)}
    document = {
        "attributes": attributes,
        "subject": "every_record",
        "privacy": {"k": K},
        "stream": {"delta": DELTA, "rule": rule},
        **({} if bounds is None else {"steering": {"scaling": "bounds"}}),
    }
    return Policy.from_document(Document.model_validate(document))


def losses(values: Float64Matrix, units: Float64Vector, policy: Policy) -> Float64Matrix:
    """Return the squared error of each record in each attribute, by place, in ``values``' units; NaN if it stayed."""
    flow, count = PartitionPipeline(policy, JsonEncoder(policy)), len(values)
    raw, found = values * units, np.full(values.shape, np.nan)
    for start in [*range(0, count, BLOCK), count]:
        part = np.arange(start, min(start + BLOCK, count))
        block = Block(raw[part], part, [b""] * len(part), part, [], 0)
        outcome = flow.push(block, np.column_stack([np.zeros_like(part), part])) if len(part) else flow.flush()
        for cluster in outcome.clusters:
            centroid = np.array([float(text) for text in cluster.centroid]) / units
            found[cluster.offsets] = (values[cluster.offsets] - centroid) ** 2
    return found


class Loss(NamedTuple):
    """Loss with learned spreads over that with bounds, after the first thousand records.

    ``by_range``: attributes scaled by their true range, which is what bounds say. ``by_deviation``: by their deviation.
    ``at_first``: by range, the first thousand alone.
    """

    by_range: float
    by_deviation: float
    at_first: float


def learned(seeds: list[Float64Matrix], rule: str) -> Loss:
    """Compare on every seed; return the means."""
    units, ratios = np.resize(UNITS, seeds[0].shape[1]), []
    bounds = [[0.0, unit] for unit in units.tolist()]
    for values in seeds:
        known, without = (losses(values, units, policy_of(len(units), rule, each)) for each in (bounds, None))
        deviations = np.where(values.std(axis=0) > 0, values.std(axis=0), 1.0)
        later, first = slice(FIRST, None), slice(0, FIRST)
        ratios.append(
            [
                np.nansum(without[part] / scale**2) / np.nansum(known[part] / scale**2)
                for part, scale in ((later, 1.0), (later, deviations), (first, 1.0))
            ]
        )
    return Loss(*np.mean(ratios, axis=0).tolist())


def ranges_part() -> Part:
    """Learn ranges on every stream."""
    rows = {name: {rule: learned(seeds, rule) for rule in RULES} for name, seeds in all_streams().items()}
    means = {
        rule: [float(np.exp(np.mean([np.log(row[rule][which]) for row in rows.values()]))) for which in (0, 1, 2)]
        for rule in RULES
    }
    lines = [
        "## Spreads that are learned",
        "",
        f"Attributes without bounds, in units of {', '.join(f'{unit:g}' for unit in UNITS)} times their range in turn,",
        "`resolution: 0`: squared error over that of the same stream scaled by its true ranges as bounds, measured by",
        f"its true range; in brackets by its standard deviation; k = {K}, δ = {DELTA}, {SEEDS} seeds,",
        f"after {FIRST:,} records.",
        "",
        f"| stream | {' | '.join(RULES)} |",
        f"|---|{'---|' * len(RULES)}",
        *(
            f"| {name} | {' | '.join(f'{one.by_range:.2f} ({one.by_deviation:.2f})' for one in row.values())} |"
            for name, row in rows.items()
        ),
        f"| **geometric mean** | {' | '.join(f'**{mean[0]:.2f} ({mean[1]:.2f})**' for mean in means.values())} |",
        f"| mean of the first {FIRST:,} | {' | '.join(f'{mean[2]:.2f}' for mean in means.values())} |",
        "",
        f"Limit by range {LEARNED}. Bounds that an extreme stretches make an attribute count for little: what is",
        "learned gives it more weight, a loss by one measure and a gain by the other. (`benchmarks/online.py`)",
        "",
    ]
    found = max(mean[0] for mean in means.values())
    return Part(lines, [Limit("loss with learned spreads, of that with bounds", found, LEARNED, at_most=True)])


if __name__ == "__main__":
    for part in (target_part(), ranges_part()):
        print("\n".join(part.lines), *part.limits, sep="\n")
