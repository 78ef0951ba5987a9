"""The contract's summary, computed from the topics alone: what went in, what came out, who is with whom."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from shoal.policy import Policy
from topics import Line

__all__ = ["summary"]


def summary(
    policy: Policy, source: Sequence[Line], target: Sequence[Line], references: Sequence[Line], evidence: Sequence[Line]
) -> dict[str, Any]:
    """Compute the figures of a stream's summary; null for what topics cannot show.

    Published values are computed again from the members, which is what the judge has just found them equal to.
    """
    records = {(line.partition, line.offset): json.loads(line.text) for line in source}
    reasons = [json.loads(line.text) for line in references]
    unusable = {(r["partition"], r["offset"]) for r in reasons if r["reason"] != "suppressed"}
    ranks = _ranks([place for place in sorted(records) if place not in unusable])
    clusters = [_members(line) for line in sorted(evidence, key=_decided)]
    sizes = [len(cluster) for cluster in clusters]
    people = [Counter(str(records[place][_subject(policy)]) for place in cluster) for cluster in clusters]
    losses = _losses(policy, clusters, records)
    moved = _displacement(clusters, ranks, reasons)
    spans = [max(ranks[p] for p in c) - min(ranks[p] for p in c) - len(c) + 1 for c in clusters]
    by_reason = Counter(r["reason"] for r in reasons)
    return {
        "records_in": len(source),
        "released": len(target),
        "suppressed": {reason: count for reason, count in by_reason.items() if reason == "suppressed"},
        "quarantined": {reason: count for reason, count in by_reason.items() if reason != "suppressed"},
        "clipped": losses.pop("clipped"),
        "held": len(source) - len(target) - len(reasons),
        "clusters": len(clusters),
        "cluster_size": {"min": min(sizes), "mean": sum(sizes) / len(sizes), "max": max(sizes)},
        "subjects": {"min": min(map(len, people))},
        "share": {"max": max(max(who.values()) / size for who, size in zip(people, sizes, strict=True))},
        **losses,
        "displacement": {"mean": float(np.mean(moved)), "max": int(np.max(moved))},
        "excess_span": {"mean": float(np.mean(spans)), "max": int(np.max(spans))},
        "delay": {"mean": None, "max": None},
    }


def _subject(policy: Policy) -> str:
    return policy.subject.name if policy.subject else ""


def _decided(line: Line) -> tuple[int, int]:
    about = json.loads(line.text)
    return about["partition"], about["cluster"]


def _members(line: Line) -> list[tuple[int, int]]:
    about = json.loads(line.text)
    return [(about["partition"], offset) for offset in about["offsets"]]


def _ranks(places: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Position of each usable record among those of its partition."""
    count: Counter[int] = Counter()
    ranks = {}
    for place in places:
        ranks[place] = count[place[0]]
        count[place[0]] += 1
    return ranks


def _displacement(
    clusters: Sequence[list[tuple[int, int]]], ranks: dict[tuple[int, int], int], reasons: Sequence[dict[str, Any]]
) -> list[int]:
    """|rank in the output - rank in the input|, clusters in order of decision, members in order of arrival."""
    held_back = {(r["partition"], r["offset"]) for r in reasons}
    among_released: dict[int, dict[tuple[int, int], int]] = defaultdict(dict)
    for place in sorted(ranks):
        if place not in held_back:
            among_released[place[0]][place] = len(among_released[place[0]])
    left: Counter[int] = Counter()
    moved = []
    for cluster in clusters:
        for place in cluster:
            moved.append(abs(left[place[0]] - among_released[place[0]][place]))
            left[place[0]] += 1
    return moved


def _losses(
    policy: Policy, clusters: Sequence[list[tuple[int, int]]], records: dict[tuple[int, int], Any]
) -> dict[str, Any]:
    attributes = policy.quasi_identifiers
    raw = np.array([[records[p][a.name] for a in attributes] for cluster in clusters for p in cluster], float)
    low, high = (np.array([(a.bounds or (0, 1))[side] for a in attributes]) for side in (0, 1))
    values = np.clip(raw, low, high)
    published = np.empty_like(values)
    start = 0
    for cluster in clusters:
        rows = slice(start, start + len(cluster))
        published[rows] = _on_grid(values[rows].mean(axis=0), [float(a.publication_step()) for a in attributes])
        start += len(cluster)
    scaled = (values - published) / (high - low)
    squared = (scaled**2).sum(axis=1)
    spread = values.var(axis=0)
    sse = float((((values - published) ** 2).sum(axis=0) / spread).sum())
    sst = float(values.size)
    return {
        "clipped": int((raw != values).sum()),
        "mse": float(squared.mean()),
        "mae": float(np.sqrt(squared).mean()),
        "sse": sse,
        "sst": sst,
        "information_loss": 100 * sse / sst,
    }


def _on_grid(centroid: NDArray[np.float64], steps: Sequence[float]) -> NDArray[np.float64]:
    return np.array(
        [value if step == 0 else round(value / step) * step for value, step in zip(centroid, steps, strict=True)]
    )
