"""How far the confidential values of each cluster are from those of all that was released.

In: clusters with the texts of their kept fields. Out: one check, whose worst value is the largest distance found.
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

from shoal.audit.check_counter import CheckCounter
from shoal.audit.clusters import RecomputedCluster
from shoal.audit.fields import decimal_number
from shoal.audit.originals import Originals
from shoal.policy import Policy, Role

__all__ = ["judge_closeness"]

SLACK = 1e-9
NOTHING = {"null", '""'}
LONGEST = 4300
"""Digits of a whole number that is read as one."""
_WHOLE = re.compile(r"[+-]?[0-9]+")


def judge_closeness(
    policy: Policy, t: float, originals: Originals, clusters: Sequence[RecomputedCluster]
) -> CheckCounter:
    """Judge that no cluster is farther than ``t`` from the table in any confidential attribute.

    Numbers lie on a line, each one step from the next that occurs; texts and truth values are all equally far from each
    other. What has no declared type is a number if all its values are.
    """
    tally = CheckCounter(
        "closeness", f"no confidential attribute of a cluster is farther than {t:g} from the table", "cluster"
    )
    if not clusters:
        return tally
    farthest = np.zeros(len(clusters))
    usable = originals.kept_of(index for index in range(len(originals)) if originals.is_usable(index))
    for column, attribute in enumerate(policy.passthrough):
        if attribute.role is not Role.CONFIDENTIAL:
            continue
        is_line = attribute.type in {"integer", "number"} or (
            attribute.type == "any" and all(_number(text.split("\x00")[column]) is not None for text in usable)
        )
        texts = [[kept.split("\x00")[column] for kept in cluster.kept] for cluster in clusters]
        found = _along(texts) if is_line else _apart(texts)
        farthest = np.maximum(farthest, found)
    for cluster, distance in zip(clusters, farthest.tolist(), strict=True):
        tally.expect(distance <= t + SLACK, cluster.place)
    tally.worst = float(farthest.max())
    return tally


def _number(text: str) -> float | None:
    """Value of a text, minus infinity for nothing; None if it is no number."""
    if text in NOTHING:
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
    if _WHOLE.fullmatch(text) and len(text) <= LONGEST:
        return int(text)
    number = float(text)
    return int(Decimal(repr(number))) if number.is_integer() else number


def _along(texts: Sequence[Sequence[str]]) -> npt.NDArray[np.float64]:
    """Distance of each cluster on a line: mean difference of cumulative shares over the steps between values."""
    numbers = [[number for text in cluster if (number := _number(text)) is not None] for cluster in texts]
    # Only their order counts, and which are equal: a float would make large whole numbers so.
    ranks = {number: rank for rank, number in enumerate(sorted({number for own in numbers for number in own}))}
    values = [np.sort([ranks[number] for number in own]) for own in numbers]
    points, counts = np.unique(np.concatenate(values), return_counts=True)
    if len(points) == 1:
        return np.zeros(len(texts))
    whole = np.cumsum(counts)[:-1] / counts.sum()
    area = np.concatenate([[0.0], np.cumsum(whole)])
    found = np.empty(len(texts))
    for number, own in enumerate(values):
        # From its j-th value to the next the share of a cluster is j / size; that of the table rises past it once.
        edges = np.concatenate([[0], np.minimum(np.searchsorted(points, own), len(whole)), [len(whole)]])
        shares = np.arange(len(own) + 1) / len(own)
        low, high = edges[:-1], edges[1:]
        middle = np.clip(np.searchsorted(whole, shares, side="right"), low, high)
        below = shares * (middle - low) - (area[middle] - area[low])
        above = (area[high] - area[middle]) - shares * (high - middle)
        found[number] = (below + above).sum() / len(whole)
    return found


def _apart(texts: Sequence[Sequence[str]]) -> npt.NDArray[np.float64]:
    """Half the sum of the differences of shares."""
    whole = Counter(text for cluster in texts for text in cluster)
    total = whole.total()
    found = np.empty(len(texts))
    for number, cluster in enumerate(texts):
        own = Counter(cluster)
        found[number] = 1.0 - sum(min(count / len(cluster), whole[text] / total) for text, count in own.items())
    return found
