"""What l-diversity and t-closeness are, computed from published records, and what no algorithm could release.

Distances are equal ones: half the sum of the differences of the shares.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Found", "distance", "forced_by_distance", "forced_by_values", "found_in", "records_in_a_row", "shares_in"]

Counts = NDArray[np.int64]


class Found(NamedTuple):
    """Over all clusters: the fewest different values, the largest share of a value, the largest distance."""

    values: int
    share: float
    distance: float


def shares_in(reference: Path) -> dict[str, float]:
    """Return the shares of a reference file; the empty text is that of missing values."""
    with reference.open(encoding="utf-8", newline="") as file:
        return {row["value"]: float(row["share"]) for row in csv.DictReader(file)}


def distance(counts: Mapping[str, int], shares: Mapping[str, float]) -> float:
    """Return the equal distance between counted values and a reference."""
    size = sum(counts.values())
    every = counts.keys() | shares.keys()
    return 0.5 * sum(abs(counts.get(value, 0) / size - shares.get(value, 0.0)) for value in every)


def found_in(clusters: Sequence[Sequence[str]], shares: Mapping[str, float]) -> Found:
    """Return the worst cluster in each respect; each cluster is the list of its confidential values."""
    counted = [Counter(values) for values in clusters]
    return Found(
        min(len(counts) for counts in counted),
        max(max(counts.values()) / counts.total() for counts in counted),
        max(distance(counts, shares) for counts in counted),
    )


def records_in_a_row(values: Sequence[str], t: float, shares: Mapping[str, float], step: int = 100) -> float:
    """Return the median number of consecutive records that are within ``t``, from every ``step``-th record on."""
    names = sorted(set(values) | shares.keys())
    place = {name: index for index, name in enumerate(names)}
    reference = np.array([shares.get(name, 0.0) for name in names])
    codes = np.array([place[value] for value in values])
    found = []
    for start in range(0, len(codes), step):
        counts = (codes[start : start + 2000, None] == np.arange(len(names))).cumsum(axis=0)
        sizes = np.arange(1, len(counts) + 1)[:, None]
        within = 0.5 * np.abs(counts / sizes - reference).sum(axis=1) <= t + 1e-12
        if within.any():
            found.append(int(np.argmax(within)) + 1)
    return float(np.median(found))


def _windows(values: Sequence[str], delta: int, names: Sequence[str]) -> Counts:
    """Return (records, names): how often each value occurs among the records that a record can be released with."""
    n, place = len(values), {name: index for index, name in enumerate(names)}
    cumulative = np.zeros((n + 1, len(names)), np.int64)
    cumulative[np.arange(1, n + 1), [place[value] for value in values]] = 1
    cumulative = cumulative.cumsum(axis=0)
    records = np.arange(n)
    found: Counts = cumulative[np.minimum(n, records + delta + 1)] - cumulative[np.maximum(0, records - delta)]
    return found


def forced_by_values(values: Sequence[str], k: int, delta: int, least: int, most_share: float) -> float:
    """Return the share of records that no algorithm can release in a cluster of at most 4 k records.

    A cluster needs ``least`` different values, none with more than ``most_share`` of its records. A record can be with
    those that arrive at most ``delta`` before or after it.
    """
    windows = _windows(values, delta, sorted(set(values)))
    feasible = np.zeros(len(values), bool)
    for size in range(max(k, least), 4 * k + 1):
        most = int(most_share * size + 1e-9)
        # All but one record of each of the other values may be left out, so the number of values is that of the window.
        enough = np.minimum(windows, most).sum(axis=1) >= size
        feasible |= enough & ((windows > 0).sum(axis=1) >= least) & (most > 0)
    return float(1.0 - feasible.mean())


def forced_by_distance(
    values: Sequence[str], k: int, delta: int, t: float, shares: Mapping[str, float], largest: int = 200
) -> float:
    """Return the share of records that no algorithm can release within ``t``, in clusters of up to ``largest``.

    For each size the records of the window are taken that exceed the reference least, the record itself first.
    """
    names = sorted(set(values) | shares.keys())
    windows = _windows(values, delta, names)
    reference = np.array([shares.get(name, 0.0) for name in names])
    own = np.array([names.index(value) for value in values])
    feasible = np.zeros(len(values), bool)
    for size in range(k, largest + 1):
        rest = ~feasible
        if not rest.any():
            break
        feasible[rest] = _fits(windows[rest], own[rest], reference, size, t)
    return float(1.0 - feasible.mean())


def _fits(windows: Counts, own: NDArray[np.int64], reference: NDArray[np.float64], size: int, t: float) -> Counts:
    """Return which records have a cluster of ``size`` within ``t`` in their window."""
    floors = np.floor(size * reference + 1e-9).astype(np.int64)
    # The next record of a value exceeds the reference by this, each one after it by 1.
    next_costs = 1.0 - (size * reference - floors)
    free = np.minimum(windows, floors)
    records = np.arange(len(windows))
    must = floors[own] == 0
    taken = free.sum(axis=1) + must
    cost = np.where(must, next_costs[own], 0.0)
    for value in np.argsort(next_costs):
        can = (windows[:, value] > floors[value]) & (taken < size) & ~(must & (own == value))
        taken, cost = taken + can, cost + can * next_costs[value]
    spare = np.maximum(windows - floors - 1, 0).sum(axis=1)
    more = np.maximum(size - taken, 0)
    assert windows[records, own].all()
    fits: Counts = (more <= spare) & (cost + more <= t * size + 1e-9)
    return fits
