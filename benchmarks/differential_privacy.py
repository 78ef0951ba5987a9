"""What differential privacy of published centroids would cost: microaggregation by a fixed order, with noise.

Nothing here is part of the product; docs/adr/0024-differential-privacy.md says why. Records are replaced, not added:
two neighbouring streams differ in the values of one record, and both have as many records. A block is a run of
consecutive records, so that a record is in the same block of both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from reference_data import data_folder, read_rows
from shoal.streams import StreamClusterer
from stream_figures import BLOCK

__all__ = [
    "DELTA",
    "DRAWS",
    "EPSILONS",
    "LONGEST",
    "NOISES",
    "REPLACED",
    "SIZES",
    "Data",
    "K",
    "Noise",
    "best_loss",
    "gaussian_scale",
    "global_sensitivity",
    "individual_sensitivity",
    "insensitive_order",
    "least_size_by_distance",
    "least_size_by_ratio",
    "loss_of",
    "own_loss",
    "sizes_of",
    "spread_of",
    "tables_of",
]

Table = NDArray[np.float64]

SIZES = (10, 25, 50, 100, 250, 500)
EPSILONS = (0.1, 1.0, 10.0, 100.0)
K, DELTA = 10, 500
CHANCE = 1e-6
"""The delta of (epsilon, delta)-differential privacy with Gaussian noise."""
DRAWS, RECORDS, REPLACED, LONGEST = 4, 20_000, 20, 6000
ADULT = {
    "age": (17, 90),
    "education-num": (1, 16),
    "hours-per-week": (1, 99),
    "fnlwgt": (0, 1_500_000),
    "capital-gain": (0, 99_999),
    "capital-loss": (0, 4400),
}
"""Numeric attributes with their bounds; the first three are used alone, too."""


class Noise(NamedTuple):
    """How noise is drawn: its name, and the scale for a block of d attributes in clusters of k records at epsilon."""

    name: str
    scale: Callable[[Table, Sequence[int], float], float]
    draw: Callable[[np.random.Generator, float, tuple[int, ...]], Table]


def insensitive_order(values: Table, bits: int = 10) -> NDArray[np.int64]:
    """Return records (n,) along a Z-order curve through the unit cube: a total order that depends on no other record.

    Clusters of consecutive records of such an order change by at most one record each if one record is replaced.
    """
    cells = np.clip((values * (1 << bits)).astype(np.int64), 0, (1 << bits) - 1)
    digits = [(cells[:, column] >> bit) & 1 for bit in reversed(range(bits)) for column in range(values.shape[1])]
    return np.lexsort(digits[::-1])


def sizes_of(records: int, k: int) -> list[int]:
    """Return the sizes of clusters of k consecutive records; the last one takes the rest."""
    clusters = max(records // k, 1)
    return [k] * (clusters - 1) + [records - k * (clusters - 1)]


def global_sensitivity(values: Table, sizes: Sequence[int]) -> float:
    """Return how far all centroids together may move (L1) if each cluster exchanges a record."""
    return float(sum(values.shape[1] / size for size in sizes))


def individual_sensitivity(values: Table, sizes: Sequence[int]) -> float:
    """Return a bound of how far they move if one record of this block is replaced by any record (L1).

    ``values`` are in their order. Each cluster between the two places hands its first record, or its last, to its
    neighbour. The clusters at the ends exchange their record with one that may be anywhere.
    """
    starts = np.cumsum([0, *sizes])
    moved = []
    for handed in (values[starts[:-1]], values[starts[1:] - 1]):
        steps = np.abs(np.diff(handed, axis=0)).sum(axis=1)
        moved.append(float((steps / min(sizes)).sum()))
    return float(min(max(moved) + 2 * values.shape[1] / min(sizes), global_sensitivity(values, sizes)))


def gaussian_scale(sensitivity: float, epsilon: float, chance: float) -> float:
    """Return the least standard deviation of Gaussian noise for an L2 sensitivity (Balle and Wang 2018, theorem 8)."""

    def exceeds(scale: float) -> bool:
        half, step = sensitivity / (2 * scale), epsilon * scale / sensitivity
        # exp(epsilon) times a tail that is 0 far below its overflow.
        tail = _normal(-half - step)
        second = math.exp(epsilon + math.log(tail)) if tail > 0 else 0.0
        return _normal(half - step) - second > chance

    low, high = 1e-9 * sensitivity, 1e9 * sensitivity
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return high


def _normal(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


def _gaussian(values: Table, sizes: Sequence[int], epsilon: float) -> float:
    # Each cluster moves by at most sqrt(d) / size.
    moved = math.sqrt(sum(values.shape[1] / size**2 for size in sizes))
    return gaussian_scale(moved, epsilon, CHANCE)


NOISES = (
    Noise(
        "ε-differential privacy, Laplace",
        lambda values, sizes, epsilon: global_sensitivity(values, sizes) / epsilon,
        lambda random, scale, shape: random.laplace(0.0, scale, shape),
    ),
    Noise(
        f"(ε, {CHANCE:g})-differential privacy, Gaussian",
        _gaussian,
        lambda random, scale, shape: random.normal(0.0, scale, shape),
    ),
    Noise(
        "individual ε, Laplace (not differential privacy)",
        lambda values, sizes, epsilon: individual_sensitivity(values, sizes) / epsilon,
        lambda random, scale, shape: random.laplace(0.0, scale, shape),
    ),
)


class Data(NamedTuple):
    """A table as a stream: its records scaled to [0, 1] by their bounds, in blocks of so many."""

    name: str
    values: Table
    block: int


@cache
def tables_of() -> list[Data]:
    folder = data_folder()
    census = read_rows(folder, "census")
    adult = read_rows(folder, "adult")[:RECORDS]

    def of_census(names: Sequence[str]) -> Table:
        values = np.array([[float(row[name]) for name in names] for row in census])
        low = values.min(axis=0)
        scaled: Table = (values - low) / (values.max(axis=0) - low)
        return scaled

    low, high = np.array(list(ADULT.values()), np.float64).T
    found = (np.array([[float(row[name]) for name in ADULT] for row in adult]) - low) / (high - low)
    return [
        Data("Census, 2 attributes, blocks of 540", of_census(["TAXINC", "POTHVAL"]), 540),
        Data("Census, 13 attributes, blocks of 540", of_census(list(census[0])), 540),
        Data("Adult, 3 attributes, blocks of 500", np.ascontiguousarray(found[:, :3]), 500),
        Data("Adult, 6 attributes, blocks of 500", found, 500),
        Data("Adult, 3 attributes, blocks of 5,000", np.ascontiguousarray(found[:, :3]), 5000),
    ]


@cache
def _blocks(name: str) -> list[Table]:
    """Return the blocks of a table, each in the fixed order."""
    data = next(one for one in tables_of() if one.name == name)
    blocks = (data.values[start : start + data.block] for start in range(0, len(data.values), data.block))
    return [block[insensitive_order(block)] for block in blocks]


@cache
def loss_of(name: str, k: int, noise: Noise | None = None, epsilon: float = 0.0) -> float:
    """Return the squared error of all records of a table over their total: 1 is that of one mean for the whole table.

    A published centroid is moved into the bounds, which costs no privacy.
    """
    lost = total = 0.0
    blocks = _blocks(name)
    middle = np.concatenate(blocks).mean(axis=0)
    for number, ordered in enumerate(blocks):
        sizes = sizes_of(len(ordered), k)
        means = np.add.reduceat(ordered, np.cumsum([0, *sizes[:-1]])) / np.array(sizes)[:, None]
        total += float(((ordered - middle) ** 2).sum())
        lost += float(((ordered - means.repeat(sizes, axis=0)) ** 2).sum())
        if noise is None:
            continue
        scale = noise.scale(ordered, sizes, epsilon)
        drawn = noise.draw(np.random.default_rng([number, k]), scale, (DRAWS, *means.shape))
        moved = ((np.clip(means + drawn, 0.0, 1.0) - means) ** 2).sum(axis=2)
        lost += float((moved * np.array(sizes)).sum()) / DRAWS
    return lost / total


def own_loss(values: Table) -> float:
    """Return the loss of the rule `block` without noise at k and delta."""
    clusters = _clusters(values, "block")
    members = [list(one) for one in clusters]
    lost = sum(float(((values[one] - values[one].mean(axis=0)) ** 2).sum()) for one in members)
    released = np.concatenate([np.array(one) for one in members])
    return lost / float(((values[released] - values[released].mean(axis=0)) ** 2).sum())


def _clusters(values: Table, rule: str) -> list[frozenset[int]]:
    """Return the clusters of a rule in the order of their release."""
    engine = StreamClusterer(K, DELTA, values.shape[1], rule=rule)
    calls = [engine.push(values[start : start + BLOCK]) for start in range(0, len(values), BLOCK)]
    calls.append(engine.flush())
    return [
        frozenset(call.positions[start:end].tolist())
        for call in calls
        for start, end in zip(call.cluster_bounds[:-1], call.cluster_bounds[1:], strict=True)
    ]


def spread_of(values: Table, rule: str) -> tuple[float, float]:
    """Return how many clusters change if one record is replaced, and how often one changes far behind it.

    The second figure is the share of streams with a changed cluster all of whose records arrived more than delta later.
    """
    values = values[:LONGEST]
    random, before = np.random.default_rng(4), set(_clusters(values, rule))
    changed, far = [], []
    for place in random.integers(DELTA, LONGEST // 2, REPLACED):
        other = values.copy()
        other[place] = values[random.integers(len(values))]
        different = set(_clusters(other, rule)) - before
        changed.append(len(different))
        far.append(any(min(one) > place + DELTA for one in different))
    return float(np.mean(changed)), float(np.mean(far))


def least_size_by_distance(shares: Table, t: float) -> int:
    """Return the least number of records whose distribution has an equal distance of at most t from ``shares``."""
    size = 1
    while True:
        floors = np.floor(size * shares + 1e-9)
        rest = round(size - floors.sum())
        # The records beyond the floors go where they exceed least.
        excess = np.sort(1.0 - (size * shares - floors))[:rest].sum()
        if excess <= t * size + 1e-9:
            return size
        size += 1


def least_size_by_ratio(shares: Table, epsilon: float) -> int:
    """Return the least number of records with all shares within a factor of exp(epsilon) of ``shares``."""
    size = 1
    while True:
        least = np.ceil(size * shares * math.exp(-epsilon) - 1e-9)
        most = np.floor(size * shares * math.exp(epsilon) + 1e-9)
        if (least <= most).all() and least.sum() <= size <= most.sum():
            return size
        size += 1


def best_loss(name: str, block: int, noise: Noise, epsilon: float) -> tuple[float, int]:
    """Return the least loss over k, and that k."""
    sizes = [size for size in (*SIZES, 1000, 2500, 5000) if size <= block]
    return min((loss_of(name, size, noise, epsilon), size) for size in sizes)
