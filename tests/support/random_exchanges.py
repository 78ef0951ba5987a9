"""Random partitions whose records are to be exchanged between clusters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int32Vector, Int64Matrix, Int64Vector
from shoal.tables.repair import CodedRecords, exchange_categories, repair_subjects


@dataclass(frozen=True)
class RandomPartition:
    """Records and a partition of them into clusters of k to 2k - 1; no ``subjects``: each record has its own."""

    k: int
    rows: Float64Matrix
    codes: Int64Matrix
    costs: Float64Vector
    agree: BoolVector
    subjects: Int64Vector
    max_share: float
    labels: Int32Vector

    def repaired(self) -> tuple[Int32Vector, bool]:
        """Return the labels after the repair of subjects, and whether it was possible."""
        labels = self.labels.copy()
        return labels, repair_subjects(self._records, self.subjects, self.max_share, labels, self.k) >= 0

    def exchanged(self, start: Int32Vector) -> Int32Vector:
        """Return the labels after exchanges for categories."""
        labels = start.copy()
        exchange_categories(self._records, self.subjects, self.max_share, labels, self.k)
        return labels

    @property
    def _records(self) -> CodedRecords:
        return CodedRecords(self.rows, self.codes, self.costs, self.agree)


def random_partition(random: np.random.Generator, most: int = 40, *, ties: bool = False) -> RandomPartition:
    """Return a random partition; with ``ties`` many losses are equal, without them k is 3 and d 1 at least."""
    k = int(random.integers(2 if ties else 3, 6))
    n, c = int(random.integers(k, most + 1)), int(random.integers(0, 4))
    d = int(random.integers(0 if ties else 1, 3))
    sizes: list[int] = []
    while sum(sizes) < n:
        sizes.append(int(random.integers(k, 2 * k)))
    while sum(sizes) - sizes[-1] > n - k:  # the last cluster takes what is left, but k at least
        sizes.pop()
    sizes[-1] = n - sum(sizes[:-1])
    numbers = np.sort(random.permutation(3 * len(sizes))[: len(sizes)])  # some are left unused
    labels = random.permutation(np.repeat(numbers, sizes)).astype(np.int32)
    few = [int(random.integers(1, 6)) for _ in range(c)]
    codes = np.array([np.unique(random.integers(0, distinct, n), return_inverse=True)[1] for distinct in few], np.int64)
    for column in range(1, c):
        codes[column] += codes[column - 1].max() + 1
    people = [np.arange(n), random.integers(0, 2 * k, n), random.integers(0, max(1, n // 2), n)][random.integers(3)]
    distinct, subjects = np.unique(people, return_inverse=True)
    return RandomPartition(
        k=k,
        rows=random.integers(0, 3, (n, d)) / 2 if ties else random.random((n, d)),
        codes=codes.reshape(c, n),
        costs=random.choice([0.25, 1.0], c) if ties else random.random(c) * random.choice([0.05, 1.0, 5.0]),
        agree=random.random(c) < 0.5,
        subjects=np.zeros(0, np.int64) if len(distinct) == n else subjects.astype(np.int64),
        max_share=float(random.choice([1 / k, 0.5, 1.0])),
        labels=labels,
    )
