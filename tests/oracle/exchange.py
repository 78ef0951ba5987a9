"""Exchanges of records between clusters in plain Python; imports nothing of what is compared with it.

The loss of a partition is computed anew for every change that is tried. In a column of codes a cluster loses each
record whose code is not its most frequent one. If its members must agree, six tenths of the loss are those of all
members, unless all have the same code.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from oracle.partitions import squared_distance

__all__ = ["Exchanges"]

Labels = list[int]


@dataclass(frozen=True)
class Exchanges:
    """Records and constraints; ``subjects`` is empty if each record has its own.

    Clusters are numbered from 0, and numbers may be left unused.
    """

    rows: Sequence[Sequence[float]]
    codes: Sequence[Sequence[int]]  # one sequence of codes per column
    costs: Sequence[float]
    agree: Sequence[bool]
    subjects: Sequence[int]
    max_share: float
    k: int

    def loss(self, labels: Labels) -> float:
        return math.fsum(self.loss_of(members) for members in clusters_of(labels))

    def loss_of(self, members: list[int]) -> float:
        """The loss of one cluster, in numbers and in codes."""
        if not members:
            return 0.0
        lost = [squared_distance(self.rows[i], self.mean(members)) for i in members]
        for column, cost, must_agree in zip(self.codes, self.costs, self.agree, strict=True):
            count = len(members) - max(Counter(column[i] for i in members).values())
            all_or_none = len(members) if count else 0
            lost.append(cost * (0.6 * all_or_none + 0.4 * count if must_agree else count))
        return math.fsum(lost)

    def mean(self, members: list[int]) -> list[float]:
        return [math.fsum(column) / len(members) for column in zip(*(self.rows[i] for i in members), strict=True)]

    def violation(self, members: list[int]) -> int:
        """How many subjects a cluster lacks, and how many records of one subject are above its share."""
        if not self.subjects:
            return 0
        counts = Counter(self.subjects[i] for i in members)
        above = max(counts.values()) - self.max_share * len(members) - 1e-9
        return max(0, self.k - len(counts)) + max(0, math.ceil(above))

    def repaired(self, labels: Labels) -> tuple[Labels, bool]:
        """Swap records, always at the least cost, until no cluster violates a constraint or no swap helps one."""
        labels = list(labels)
        for cluster in sorted(set(labels)):
            while self.violation(clusters_of(labels)[cluster]):
                after = self.cheapest_repair(labels, cluster)
                if after is None:
                    return labels, False
                labels = after
        return labels, True

    def cheapest_repair(self, labels: Labels, cluster: int) -> Labels | None:
        before = clusters_of(labels)
        members = before[cluster]
        owners = [self.subjects[i] for i in members]
        found: list[tuple[float, Labels]] = []
        for i in members:
            if owners.count(self.subjects[i]) == 1:
                continue
            for other, target in enumerate(labels):
                if target == cluster or self.subjects[other] == self.subjects[i]:
                    continue
                after = swapped(labels, i, other)
                one, two = (clusters_of(after)[number] for number in (cluster, target))
                helps = self.violation(one) < self.violation(members)
                if helps and self.violation(two) <= self.violation(before[target]):
                    found.append((self.change(before, cluster, target, one, two), after))
        return min(found, key=lambda item: item[0])[1] if found else None

    def exchanged(self, labels: Labels) -> Labels:
        """Let each record in turn join a cluster that publishes a code of it, where that gains."""
        labels = list(labels)
        for i in range(len(labels)):
            found = self.changes_of(labels, i)
            if found:
                least, after = min(found, key=lambda item: item[0])
                labels = after if least < -1e-9 else labels
        return labels

    def changes_of(self, labels: Labels, i: int) -> list[tuple[float, Labels]]:
        """All changes that are tried for a record, with what each of them adds to the loss."""
        before, own = clusters_of(labels), labels[i]
        found = []
        for target in self.targets_of(before, own, i):
            tried = [swapped(labels, i, other) for other in before[target]]
            if len(before[own]) > self.k and len(before[target]) < 2 * self.k - 1:
                tried.append([target if x == i else label for x, label in enumerate(labels)])
            for after in tried:
                one, two = (clusters_of(after)[number] for number in (own, target))
                if self.violation(one) + self.violation(two) == 0:
                    found.append((self.change(before, own, target, one, two), after))
        return found

    def targets_of(self, before: list[list[int]], own: int, i: int) -> list[int]:
        """The clusters that publish a code of a record that its own does not, unless they are too far away."""
        reach = squared_distance(self.rows[i], self.mean(before[own]))
        for cost, must_agree in zip(self.costs, self.agree, strict=True):
            reach += cost * (2.0 + (0.6 * 2 * self.k if must_agree else 0.0))
        found = set()
        for column in self.codes:
            if not publishes(before[own], column, column[i]):
                found |= {c for c, members in enumerate(before) if publishes(members, column, column[i])}
        return sorted(c for c in found if squared_distance(self.rows[i], self.mean(before[c])) < reach)

    def change(self, before: list[list[int]], own: int, target: int, one: list[int], two: list[int]) -> float:
        losses = [self.loss_of(members) for members in (one, two)]
        return math.fsum([*losses, -self.loss_of(before[own]), -self.loss_of(before[target])])


def publishes(members: list[int], column: Sequence[int], code: int) -> bool:
    counts = Counter(column[i] for i in members)
    return counts[code] > 0 and counts[code] == max(counts.values())


def clusters_of(labels: Labels) -> list[list[int]]:
    """The members of each cluster, also of numbers that are left unused."""
    found: list[list[int]] = [[] for _ in range(max(labels) + 1)]
    for i, label in enumerate(labels):
        found[label].append(i)
    return found


def swapped(labels: Labels, i: int, other: int) -> Labels:
    after = list(labels)
    after[i], after[other] = labels[other], labels[i]
    return after
