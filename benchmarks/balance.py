"""How evenly a stream keeps attributes of several scales, beside tables of delta records.

The competitor is what anybody would do without a stream engine: collect delta records, release them as a table by
`shoal batch`, begin again. Losses are computed here from published texts, and not by the engine.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from mixed_streams import MixedStream, mixed_streams, unseen_streams
from numpy.typing import NDArray
from part import Limit, Part
from shoal.formats import JsonDecoder, JsonEncoder
from shoal.policy import Policy
from shoal.streams import PartitionPipeline
from shoal.tables import AlgorithmSpec, TablePipeline

__all__ = ["Losses", "balance_part", "by_pipe", "by_tables", "geometric", "losses_of"]

PUSHED = 512
"""Records of a call."""
WIDER = (3.0, 10.0)
"""How much too wide bounds are declared in further runs."""
MOST, WORST, LOOSE = 0.96, 1.05, 1.03
"""Limits: geometric mean and worst stream beside tables of delta records; loss with wide bounds beside tight ones."""

Floats = NDArray[np.float64]


class Losses(NamedTuple):
    """Loss of each quasi-identifier in its own measure, 0 to about 1.

    ``total`` measures times and numbers against their total variance. ``trend`` measures a clock against what is left
    after its trend: the variance within delta records.
    """

    total: dict[str, float]
    trend: dict[str, float]

    @property
    def mean(self) -> float:
        """Mean over the attributes, clocks against their total variance."""
        return float(np.mean(list(self.total.values())))

    @property
    def mean_after_trend(self) -> float:
        """Mean over the attributes, clocks against what is left after their trend."""
        return float(np.mean(list(self.trend.values())))


def losses_of(stream: MixedStream, released: Sequence[tuple[int, Mapping[str, Any]]]) -> Losses:
    """Return the losses of released records: each has its number in the stream, and its published values."""
    numbers = np.array([number for number, _ in released])
    total, trend = {}, {}
    for name, declared in stream.attributes.items():
        before = [stream.columns[name][number] for number in numbers]
        after = [row[name] for _, row in released]
        total[name] = trend[name] = _loss(declared, before, after)
        if name in stream.clocks:
            trend[name] = total[name] * _share_within(before, numbers // (stream.delta + 1))
    return Losses(total, trend)


def _loss(declared: Mapping[str, Any], before: Sequence[Any], after: Sequence[Any]) -> float:
    if declared["scale"] in {"numeric", "time"}:
        pairs = [(a, b) for a, b in zip(before, after, strict=True) if a is not None and b is not None]
        values, published = (np.array([_number(value) for value in column]) for column in zip(*pairs, strict=True))
        return float(((values - published) ** 2).sum() / ((values - values.mean()) ** 2).sum())
    if declared["scale"] == "ordinal":
        ranks = {text: rank for rank, text in enumerate(declared["order"])}
        errors = [abs(ranks[a] - ranks[b]) for a, b in zip(before, after, strict=True)]
        return float(np.mean(errors)) / (len(ranks) - 1)
    paths = dict(_paths(declared["taxonomy"])) if "taxonomy" in declared else {}
    return float(np.mean([_height(paths, a, b) for a, b in zip(before, after, strict=True)]))


def _share_within(times: Sequence[str], windows: NDArray[np.int64]) -> float:
    """Return the total sum of squares of times over that within windows of records."""
    values = np.array([_number(time) for time in times])
    means = (np.bincount(windows, values) / np.maximum(np.bincount(windows), 1))[windows]
    return float(((values - values.mean()) ** 2).sum() / ((values - means) ** 2).sum())


def _number(value: float | str) -> float:
    """Return a number, or a time in seconds."""
    if not isinstance(value, str):
        return float(value)
    moment = datetime.fromisoformat(value + "1970-01-01"[len(value) :])  # a published time may be a year or a month
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _paths(tree: Any, above: tuple[str, ...] = ("*",)) -> Iterator[tuple[str, tuple[str, ...]]]:  # noqa: ANN401
    """Yield each leaf of a taxonomy with its path from the root."""
    if isinstance(tree, list):
        yield from ((leaf, (*above, leaf)) for leaf in tree)
        return
    for name, below in tree.items():
        yield from _paths(below, (*above, name)) if below else [(name, (*above, name))]


def _height(paths: Mapping[str, tuple[str, ...]], value: Any, published: Any) -> float:  # noqa: ANN401
    """Return the height of the lowest common ancestor of a value and what is published, over the height of the tree."""
    if value is None or published is None or not paths:
        return float(value != published)
    levels = max(map(len, paths.values())) - 1
    path = paths[value] + (value,) * (levels + 1 - len(paths[value]))
    if published not in path:
        known = paths.get(published, (published,))
        return 1.0 - max(i for i, (a, b) in enumerate(zip(path, known, strict=False)) if a == b) / levels
    return 1.0 - max(i for i, node in enumerate(path) if node == published) / levels


def by_pipe(stream: MixedStream, policy: Policy) -> list[tuple[int, Mapping[str, Any]]]:
    """Return what the stream engine releases."""
    encoder = JsonEncoder(policy)
    pipeline, decoder = PartitionPipeline(policy, encoder), JsonDecoder(policy, encoder=encoder)
    names, lines, clusters = list(stream.attributes), stream.lines(), []
    for start in range(0, len(lines), PUSHED):
        block = decoder.decode(lines[start : start + PUSHED])
        offsets = block.index + start
        clusters += pipeline.push(block, np.column_stack([np.zeros_like(offsets), offsets])).clusters
    clusters += pipeline.flush().clusters
    values = [dict(zip(names, map(json.loads, cluster.centroid), strict=True)) for cluster in clusters]
    return [(offset, row) for cluster, row in zip(clusters, values, strict=True) for offset in cluster.offsets]


def by_tables(stream: MixedStream) -> list[tuple[int, Mapping[str, Any]]]:
    """Return what tables of delta records release, one after the other."""
    policy = stream.policy(table={"keep_order": True})
    encoder = JsonEncoder(policy)
    decoder = JsonDecoder(policy, encoder=encoder, with_columns=True)
    lines = stream.lines()
    released: list[tuple[int, Mapping[str, Any]]] = []
    # Too few records for a table of their own belong to the table before them.
    starts = [start for start in range(0, len(lines), stream.delta) if not start or len(lines) - start >= 3 * stream.k]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        table = TablePipeline(policy, encoder)
        table.add(decoder.decode(lines[start:end]), start)
        release = table.release(AlgorithmSpec(), keep_order=True)
        released += zip(sorted(release.offsets.tolist()), map(json.loads, release.rows), strict=True)
    return released


class _Row(NamedTuple):
    """Losses of a stream: of tables, of the engine, of the engine with scaling by bounds and with wider bounds."""

    stream: MixedStream
    tables: Losses
    pipe: Losses
    by_bounds: Losses
    wider: tuple[Losses, ...]

    @property
    def ratio(self) -> float:
        return self.pipe.mean / self.tables.mean


def _measured(stream: MixedStream) -> _Row:
    return _Row(
        stream,
        losses_of(stream, by_tables(stream)),
        losses_of(stream, by_pipe(stream, stream.policy())),
        losses_of(stream, by_pipe(stream, stream.policy(steering={"scaling": "bounds"}))),
        tuple(losses_of(stream, by_pipe(stream, stream.policy(wider))) for wider in WIDER),
    )


def balance_part() -> Part:
    """Measure, and return the lines about attributes of several scales."""
    rows = []
    seen, unseen = list(mixed_streams()), list(unseen_streams())
    for stream in (*seen, *unseen):
        rows.append(_measured(stream))
        print(f"balance: {stream.name}", file=sys.stderr, flush=True)
    chosen, others = rows[: len(seen)], rows[len(seen) :]
    worst = max(row.ratio for row in rows)
    loose = max(wide.mean / row.pipe.mean for row in rows for wide in row.wider)
    lines = [
        "## Attributes of several scales",
        "",
        f"{len(rows)} streams of at most 6,000 records with numbers, times, ranks and categories, k = 10, δ = 200,",
        "rule `auto`, beside tables of δ records by `shoal batch`, one after the other. The loss of a stream is the",
        "mean over its quasi-identifiers, each in its own measure: squared error over the variance, mean difference of",
        "ranks, share of records whose category is not published, or its height in the taxonomy. *After trend*: a",
        "clock is measured against its variance within δ records; otherwise it is kept in every case. *By bounds*:",
        "scaled by bounds as tight as the data (`steering: {scaling: bounds}`). Losses are those of published values.",
        "",
        "| stream | tables | Shoal | ratio | after trend | by bounds, ratio | worst attribute |",
        "|---|---|---|---|---|---|---|",
        *map(_line, chosen),
        *_means("**geometric mean**", chosen),
        "",
        "No constant was chosen on these:",
        "",
        "| stream | tables | Shoal | ratio | after trend | by bounds, ratio | worst attribute |",
        "|---|---|---|---|---|---|---|",
        *map(_line, others),
        *_means("**geometric mean**", others),
        *_means("*with a clock, all*", [row for row in rows if row.stream.clocks]),
        *_means("*without a clock, all*", [row for row in rows if not row.stream.clocks]),
        "",
        f"Bounds three and ten times too wide change the loss by a factor of at most **{loose:.3f}**.",
        "",
        "Two streams in full, the loss of each attribute:",
        "",
        "| stream | by | attributes |",
        "|---|---|---|",
        *(line for row in rows[:2] for line in _in_full(row)),
        "",
    ]
    return Part(
        lines,
        [
            Limit("mixed streams, of tables of delta", geometric(row.ratio for row in rows), MOST, at_most=True),
            Limit("the worst of them", worst, WORST, at_most=True),
            Limit("bounds ten times too wide", loose, LOOSE, at_most=True),
        ],
    )


def _line(row: _Row) -> str:
    name, loss = max(row.pipe.total.items(), key=lambda item: item[1])
    after_trend = row.pipe.mean_after_trend / row.tables.mean_after_trend
    return (
        f"| {row.stream.name} | {row.tables.mean:.3f} | {row.pipe.mean:.3f} | {row.ratio:.2f} | {after_trend:.2f} "
        f"| {row.by_bounds.mean / row.tables.mean:.2f} | {name} {loss:.2f} |"
    )


def _means(name: str, rows: Sequence[_Row]) -> list[str]:
    ratio = geometric(row.ratio for row in rows)
    after_trend = geometric(row.pipe.mean_after_trend / row.tables.mean_after_trend for row in rows)
    by_bounds = geometric(row.by_bounds.mean / row.tables.mean for row in rows)
    return [f"| {name} | | | **{ratio:.2f}** | {after_trend:.2f} | {by_bounds:.2f} | |"]


def _in_full(row: _Row) -> list[str]:
    return [
        f"| {row.stream.name} | {by} | {', '.join(f'{name} {loss:.2f}' for name, loss in losses.total.items())} |"
        for by, losses in (("tables", row.tables), ("Shoal", row.pipe), ("Shoal, by bounds", row.by_bounds))
    ]


def geometric(ratios: Iterable[float]) -> float:
    return float(np.exp(np.mean(np.log(list(ratios)))))


if __name__ == "__main__":
    print("\n".join(balance_part().lines))
