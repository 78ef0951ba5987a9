"""Checks t-closeness: the distance of the confidential values of each cluster from those of the whole release.

The distance is the earth mover's distance with ordered distance for numbers and equal distance for other values.
Source: Li, Li and Venkatasubramanian, t-Closeness (ICDE 2007), doi:10.1109/ICDE.2007.367856.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import numpy.typing as npt

from shoal.audit.clusters import RecomputedCluster
from shoal.audit.fields import FIELD_SEPARATOR
from shoal.audit.originals import Originals
from shoal.audit.scales import decimal_number
from shoal.audit.verdict import CheckCounter
from shoal.policy import Policy, Role

__all__ = ["check_closeness"]

TOLERANCE = 1e-9
"""Rounding error of a distance computed in float64."""
NULLS = {"null", '""'}
MAX_INTEGER_LENGTH = 4300
"""Characters; longer integers are read as float64 (the limit of Python's int)."""
_INTEGER = re.compile(r"[+-]?[0-9]+")


def check_closeness(
    policy: Policy, t: float, originals: Originals, clusters: Sequence[RecomputedCluster]
) -> CheckCounter:
    """Check that no cluster is farther than ``t`` from the release in any confidential attribute.

    An attribute is numeric if its type says so, or if it has type ``any`` and all usable originals hold numbers. The
    worst value of the check is the largest distance of a cluster.
    """
    check = CheckCounter(
        "closeness", f"no confidential attribute of a cluster is farther than {t:g} from the table", "cluster"
    )
    if not clusters:
        return check
    farthest = np.zeros(len(clusters))
    usable = originals.unchanged_of(index for index in range(len(originals)) if originals.is_usable(index))
    for column, attribute in enumerate(policy.unchanged_fields):
        if attribute.role is not Role.CONFIDENTIAL:
            continue
        is_numeric = attribute.type in {"integer", "number"} or (
            attribute.type == "any" and all(_number(text.split(FIELD_SEPARATOR)[column]) is not None for text in usable)
        )
        texts = [[unchanged.split(FIELD_SEPARATOR)[column] for unchanged in cluster.unchanged] for cluster in clusters]
        distances = _ordered_distances(texts) if is_numeric else _equal_distances(texts)
        farthest = np.maximum(farthest, distances)
    for cluster, distance in zip(clusters, farthest.tolist(), strict=True):
        check.expect(distance <= t + TOLERANCE, cluster.label)
    check.worst = float(farthest.max())
    return check


def _number(text: str) -> float | None:
    """Return the value of a text, minus infinity for a null; None if it is not a number."""
    if text in NULLS:
        return -math.inf
    if text.startswith('"'):
        text = json.loads(text).strip(" \t")
        if not text:
            return -math.inf
        value = decimal_number(text)
        if value is None or not math.isfinite(value):
            return None
    if text in {"true", "false"}:
        return None
    if _INTEGER.fullmatch(text) and len(text) <= MAX_INTEGER_LENGTH:
        return int(text)
    number = float(text)
    return int(Decimal(repr(number))) if number.is_integer() else number


def _ordered_distances(texts: Sequence[Sequence[str]]) -> npt.NDArray[np.float64]:
    """Return the ordered distance of each cluster: the mean difference of the two cumulative distributions.

    The mean is taken over the steps between the m distinct values of the release. Between two values of a cluster its
    cumulative share is constant and that of the release rises. Each of these intervals is split where the latter
    passes the former, so that the absolute differences can be summed with prefix sums.
    """
    numbers = [[number for text in cluster if (number := _number(text)) is not None] for cluster in texts]
    # Ranks of exact numbers: as float64, large integers that differ would be equal.
    ranks = {number: rank for rank, number in enumerate(sorted({number for own in numbers for number in own}))}
    values = [np.sort([ranks[number] for number in own]) for own in numbers]
    points, counts = np.unique(np.concatenate(values), return_counts=True)
    if len(points) == 1:
        return np.zeros(len(texts))
    cumulative = np.cumsum(counts)[:-1] / counts.sum()
    prefix_sums = np.concatenate([[0.0], np.cumsum(cumulative)])
    distances = np.empty(len(texts))
    for number, own in enumerate(values):
        starts = np.minimum(np.searchsorted(points, own), len(cumulative))
        edges = np.concatenate([[0], starts, [len(cumulative)]])
        shares = np.arange(len(own) + 1) / len(own)
        low, high = edges[:-1], edges[1:]
        middle = np.clip(np.searchsorted(cumulative, shares, side="right"), low, high)
        below = shares * (middle - low) - (prefix_sums[middle] - prefix_sums[low])
        above = (prefix_sums[high] - prefix_sums[middle]) - shares * (high - middle)
        distances[number] = (below + above).sum() / len(cumulative)
    return distances


def _equal_distances(texts: Sequence[Sequence[str]]) -> npt.NDArray[np.float64]:
    """Return the equal distance of each cluster: half the sum of the absolute differences of shares."""
    totals = Counter(text for cluster in texts for text in cluster)
    n = totals.total()
    distances = np.empty(len(texts))
    for number, cluster in enumerate(texts):
        counts = Counter(cluster)
        overlap = sum(min(count / len(cluster), totals[text] / n) for text, count in counts.items())
        distances[number] = 1.0 - overlap
    return distances
