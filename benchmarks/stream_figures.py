"""What a stream went through: loss, delay, reordering, accounts and speed of one run of any algorithm."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from shoal.arrays import Float64Matrix, Int64Vector
from shoal.streams import StreamClusterer

__all__ = ["Clusters", "StreamFigures", "figures_of", "mean_figures", "run_rule", "write_rule"]

BLOCK = 512
"""Records a call."""


class Clusters(NamedTuple):
    """What left, in order of leaving: C clusters of E records.

    ``positions`` (E,) in order of arrival inside each cluster; ``cluster_bounds`` (C + 1,); ``published`` (C, d);
    ``newest`` (C,) the last position that had arrived; ``suppressed`` how many never left.
    """

    positions: Int64Vector
    cluster_bounds: Int64Vector
    published: Float64Matrix
    newest: Int64Vector
    suppressed: int


class StreamFigures(NamedTuple):
    """Figures of one run; displacement, excess span and delay in records, ``per_s`` by processor time.

    ``mse_of_all`` counts a suppressed record as if the mean of all had been released for it.
    """

    mse: float
    mse_of_all: float
    mae: float
    moved: float
    moved_most: float
    span: float
    span_most: float
    delay: float
    delay_most: float
    released: int
    suppressed: int
    per_s: float


def figures_of(values: Float64Matrix, clusters: Clusters, seconds: float) -> StreamFigures:
    """Measure what left against what came: displacement is rank in the output against rank in the input."""
    positions, sizes = clusters.positions, np.diff(clusters.cluster_bounds)
    squares = ((values[positions] - clusters.published.repeat(sizes, axis=0)) ** 2).sum(axis=1)
    moved = np.abs(np.arange(len(positions)) - _ranks(positions))
    span = positions[clusters.cluster_bounds[1:] - 1] - positions[clusters.cluster_bounds[:-1]] + 1 - sizes
    delay = clusters.newest.repeat(sizes) - positions
    gone = np.setdiff1d(np.arange(len(values)), positions)
    return StreamFigures(
        mse=float(squares.mean()),
        mse_of_all=float((squares.sum() + ((values[gone] - values.mean(axis=0)) ** 2).sum()) / len(values)),
        mae=float(np.sqrt(squares).mean()),
        moved=float(moved.mean()),
        moved_most=float(moved.max()),
        span=float(span.mean()),
        span_most=float(span.max()),
        delay=float(delay.mean()),
        delay_most=float(delay.max()),
        released=len(positions),
        suppressed=clusters.suppressed,
        per_s=len(values) / max(seconds, 1e-9),
    )


def _ranks(positions: Int64Vector) -> NDArray[np.int64]:
    """Return the rank of each in the input among those that left."""
    ranks = np.empty(len(positions), np.int64)
    ranks[np.argsort(positions)] = np.arange(len(positions))
    return ranks


def write_rule(
    values: Float64Matrix, k: int, delta: int, rule: str, position: float = 0.0, people: Int64Vector | None = None
) -> tuple[Clusters, float]:
    """Push a whole stream through a rule; return its clusters and the processor seconds of the rule alone.

    ``people`` is the subject of each record; without it each record is a subject of its own. No subject has more than
    half of a cluster.
    """
    engine = StreamClusterer(k, delta, values.shape[1], rule=rule, position=position, max_share=0.5)
    cuts = [slice(start, start + BLOCK) for start in range(0, len(values), BLOCK)]
    began = time.process_time()
    calls = [engine.push(values[cut], None if people is None else people[cut]) for cut in cuts]
    calls.append(engine.flush())
    seconds = time.process_time() - began
    positions = np.concatenate([call.positions for call in calls])
    sizes = np.concatenate([np.diff(call.cluster_bounds) for call in calls])
    cluster_bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    means = np.add.reduceat(values[positions], cluster_bounds[:-1]) / sizes[:, None]
    newest = np.concatenate([call.newest for call in calls])
    return Clusters(positions, cluster_bounds, means, newest, sum(len(call.suppressed) for call in calls)), seconds


def run_rule(
    values: Float64Matrix, k: int, delta: int, rule: str, position: float = 0.0, people: Int64Vector | None = None
) -> StreamFigures:
    """Measure a rule on a stream; see `write_rule`."""
    return figures_of(values, *write_rule(values, k, delta, rule, position, people))


def mean_figures(runs: list[StreamFigures]) -> StreamFigures:
    """Return the mean of each figure; of the largest ones the largest."""
    columns = {name: [float(getattr(run, name)) for run in runs] for name in StreamFigures._fields}
    found = {name: max(each) if name.endswith("_most") else sum(each) / len(each) for name, each in columns.items()}
    return StreamFigures(**found)  # type: ignore[arg-type] # counts become means
