"""The figures of a stream's summary, computed from the topics alone."""

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
    """Compute the figures of a stream's summary; a figure that topics do not show is null.

    Published values are computed again from the members; `shoal verify` has checked that they are equal.
    """
    records = {(line.partition, line.offset): json.loads(line.text) for line in source}
    reasons = [json.loads(line.text) for line in references]
    unusable = {(r["partition"], r["offset"]) for r in reasons if r["reason"] != "suppressed"}
    ranks = _ranks([key for key in sorted(records) if key not in unusable])
    clusters = [_members(line) for line in sorted(evidence, key=_decision_order)]
    sizes = [len(cluster) for cluster in clusters]
    people = [Counter(str(records[key][_subject(policy)]) for key in cluster) for cluster in clusters]
    losses = _losses(policy, clusters, records)
    distances = _displacement(clusters, ranks, reasons)
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
        "share": {"max": max(max(counts.values()) / size for counts, size in zip(people, sizes, strict=True))},
        **losses,
        "displacement": {"mean": float(np.mean(distances)), "max": int(np.max(distances))},
        "excess_span": {"mean": float(np.mean(spans)), "max": int(np.max(spans))},
        "delay": {"mean": None, "max": None},
        "policy": policy.fingerprint,
    }


def _subject(policy: Policy) -> str:
    return policy.subject.name if policy.subject else ""


def _decision_order(line: Line) -> tuple[int, int]:
    about = json.loads(line.text)
    return about["partition"], about["cluster"]


def _members(line: Line) -> list[tuple[int, int]]:
    about = json.loads(line.text)
    return [(about["partition"], offset) for offset in about["offsets"]]


def _ranks(keys: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Return the position of each usable record, by partition and offset, among those of its partition."""
    count: Counter[int] = Counter()
    ranks = {}
    for key in keys:
        ranks[key] = count[key[0]]
        count[key[0]] += 1
    return ranks


def _displacement(
    clusters: Sequence[list[tuple[int, int]]], ranks: dict[tuple[int, int], int], reasons: Sequence[dict[str, Any]]
) -> list[int]:
    """Return |rank in the output - rank in the input|, clusters in order of decision, members in order of offset."""
    unpublished = {(r["partition"], r["offset"]) for r in reasons}
    among_released: dict[int, dict[tuple[int, int], int]] = defaultdict(dict)
    for key in sorted(ranks):
        if key not in unpublished:
            among_released[key[0]][key] = len(among_released[key[0]])
    published_ranks: Counter[int] = Counter()
    distances = []
    for cluster in clusters:
        for key in cluster:
            distances.append(abs(published_ranks[key[0]] - among_released[key[0]][key]))
            published_ranks[key[0]] += 1
    return distances


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
