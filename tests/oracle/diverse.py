"""Rule nearest under l-diversity and t-closeness in plain Python; independent of what it is compared with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from oracle.naive import NaiveStream, Record

__all__ = ["NaiveDiverse", "NaiveProtection"]

TOLERANCE = 1e-9


@dataclass(frozen=True)
class NaiveProtection:
    """A rule on protected attributes: ``kind`` of l, the limits, and for each attribute its distance and its shares.

    ``paths`` gives the node of each bin at each level, leaves first.
    """

    kind: str
    l: float  # noqa: E741
    c: float
    max_value_share: float
    t: float
    distances: Sequence[str]
    shares: Sequence[Sequence[float]]
    paths: Sequence[Sequence[int]] = ()

    @property
    def values_needed(self) -> int:
        return 1 if self.kind == "none" else math.ceil(self.l - TOLERANCE)

    def is_satisfied(self, cluster: list[Record]) -> bool:
        return all(self.satisfies(cluster, number) for number in range(len(self.distances)))

    def satisfies(self, cluster: list[Record], number: int) -> bool:
        """Whether the people of a cluster satisfy it: each weighs one, split over the person's records."""
        records = Counter(record["subject"] for record in cluster)
        owners: dict[int, set[int]] = {}
        weights: Counter[int] = Counter()
        for record in cluster:
            value = record["values"][number]
            owners.setdefault(value, set()).add(record["subject"])
            weights[value] += 1 / records[record["subject"]]  # type: ignore[assignment]
        most, n = max(map(len, owners.values())), len(records)
        if most > self.max_value_share * n + TOLERANCE:
            return False
        if self.kind == "distinct" and assignable(list(owners.values())) < self.l:
            return False
        entropy = -sum(weight / n * math.log(weight / n) for weight in weights.values())
        if self.kind == "entropy" and entropy < math.log(self.l) - TOLERANCE:
            return False
        rare = sorted(weights.values(), reverse=True)[int(self.l) - 1 :]
        if self.kind == "recursive" and not most < self.c * sum(rare) - TOLERANCE:
            return False
        return self.t >= 1 or self.excess(weights, number, n, 0) <= n * self.t + TOLERANCE

    def excess(self, counts: Counter[int], number: int, n: int, open_entries: int) -> float:
        """n times a lower bound on the distance of a cluster that gets so many more records; exact without any."""
        shares, distance = self.shares[number], self.distances[number]
        if distance == "ordered":
            total = 0.0
            for end in range(1, len(shares)):
                members, expected = sum(counts[own] for own in range(end)), n * sum(shares[:end])
                total += max(0.0, members - expected, expected - members - open_entries)
            return total / (len(shares) - 1)
        trees = [list(range(len(shares)))] if distance == "equal" else list(zip(*self.paths, strict=True))
        total = 0.0
        for nodes in trees:
            for node in set(nodes):
                below = [own for own in range(len(shares)) if nodes[own] == node]
                total += max(0.0, sum(counts[own] for own in below) - n * sum(shares[own] for own in below))
        return total / len(trees)

    def least(self, counts: Counter[int], number: int, n: int, waiting: Counter[int]) -> float:
        """n times the least equal distance of a cluster of n with these counts and some of the waiting records."""
        counts, waiting = counts.copy(), waiting.copy()
        total = sum(max(0.0, counts[own] - n * share) for own, share in enumerate(self.shares[number]))
        for _ in range(n - counts.total()):
            costs = {
                own: min(max(counts[own] + 1 - n * self.shares[number][own], 0.0), 1.0)
                for own in waiting
                if waiting[own] > 0
            }
            chosen = min(costs, key=lambda own: costs[own], default=None)
            if chosen is None:
                return math.inf
            total += costs[chosen]
            counts[chosen] += 1
            waiting[chosen] -= 1
        return total


class NaiveDiverse(NaiveStream):
    """Rule nearest; a cluster that violates the protection is replaced by one that grows under it."""

    def __init__(self, k: int, delta: int, protection: NaiveProtection, max_share: float = 0.5) -> None:
        super().__init__(k, delta, 0.0, max_share)
        self.protection = protection  # values are pushed as values

    def expire(self, cause: int) -> None:
        cluster = self.own_cluster() or self.grown()
        if cluster:
            self.release(cluster, cause)
        else:
            self.suppress(cause)

    def own_cluster(self) -> list[Record]:
        if self.subjects_held() < self.k:
            return []
        cluster = self.nearest()
        return cluster if self.protection.is_satisfied(cluster) else []

    def grown(self) -> list[Record]:
        if self.subjects_held() < self.k:
            return []
        rule, largest, people = self.protection, 0, self.subjects_held()
        n = smallest = max(self.k, rule.values_needed, math.ceil(1 / rule.max_value_share - TOLERANCE))
        while n <= people:
            if not largest and self.permitted_bins([self.buffer[0]], n, 0.0) is not None:
                largest = min(max(4 * self.k, 2 * n), people)
            for strictness in self.strictness_levels() if largest else []:
                cluster = self.grown_to(n, strictness)
                if len(cluster) == n and rule.is_satisfied(cluster):
                    return cluster
            limit = largest or people
            if n == limit:
                break
            n = min(n + 1 if n == smallest else n * 3 // 2, limit)
        return []

    def strictness_levels(self) -> list[float]:
        rule = self.protection
        is_exact = rule.kind in {"none", "distinct"} and len(rule.distances) == 1
        is_exact = is_exact and (rule.t >= 1 or rule.distances[0] == "equal")
        return [0.0, 1.0] if is_exact else [0.0, 1 / 3, 2 / 3, 1.0]

    def grown_to(self, n: int, strictness: float) -> list[Record]:
        waiting = self.by_distance(self.buffer[0])
        cluster = [waiting.pop(0)]
        while len(cluster) < n:
            bins = self.permitted_bins(cluster, n, strictness)
            chosen = next((record for record in waiting if self.may_join(record, cluster, n, strictness, bins)), None)
            if chosen is None:
                return cluster
            waiting.remove(chosen)
            cluster.append(chosen)
        return cluster

    def permitted_bins(self, cluster: list[Record], n: int, strictness: float) -> list[set[int]] | None:
        """Return the bins of each attribute whose records may join; None if an attribute has none."""
        rule, found = self.protection, []
        if rule.t >= 1:
            return []
        for number, shares in enumerate(rule.shares):
            counts = Counter(record["values"][number] for record in cluster)
            waiting = Counter(record["values"][number] for record in self.buffer if record not in cluster)
            budget = n * rule.t * (1 - strictness + strictness * (len(cluster) + 1) / n)
            is_equal = rule.distances[number] == "equal" or (rule.distances[number] != "ordered" and strictness == 1)
            least = rule.least(counts, number, n, waiting) if is_equal else 0.0
            if least > n * rule.t + TOLERANCE:
                return None
            bins = set()
            for own in range(len(shares)):
                if waiting[own]:
                    joined, rest = counts + Counter({own: 1}), waiting - Counter({own: 1})
                    bound = (
                        rule.least(joined, number, n, rest)
                        if is_equal
                        else rule.excess(joined, number, n, n - len(cluster) - 1)
                    )
                    if bound <= max(budget, least) + TOLERANCE:
                        bins.add(own)
            if not bins:
                return None
            found.append(bins)
        return found

    def may_join(
        self, record: Record, cluster: list[Record], n: int, strictness: float, bins: list[set[int]] | None
    ) -> bool:
        """Whether a cluster of n can still be completed with a record."""
        if bins is None or any(own not in permitted for own, permitted in zip(record["values"], bins, strict=False)):
            return False
        rule, contributes, lacks = self.protection, False, False
        most = int(min(rule.max_value_share, self.largest_share(strictness)) * n + TOLERANCE)
        for number in range(len(rule.distances)):
            column = [member["values"][number] for member in cluster]
            missing = rule.values_needed - len(set(column))
            if not fits(column, record["values"][number], missing, most, n):
                return False
            contributes = contributes or (record["values"][number] not in column and missing > 0)
            lacks = lacks or missing > 0
        if record["subject"] in {member["subject"] for member in cluster}:
            return False
        return contributes or not (lacks and strictness == 1)

    def largest_share(self, strictness: float) -> float:
        rule = self.protection
        enough = {"entropy": 1 / max(rule.l, 1), "recursive": rule.c / (1 + rule.c * (rule.l - 1))}.get(rule.kind, 1.0)
        return 1 - strictness * (1 - min(enough, 1.0))


def assignable(owners: list[set[int]]) -> int:
    """Return how many values can be those of different people: all assignments are tried."""
    if not owners:
        return 0
    rest = owners[1:]
    given = [1 + assignable([own - {person} for own in rest]) for person in owners[0]]
    return max(assignable(rest), *given) if given else assignable(rest)


def fits(members: list[object], joining: object, missing: int, most: int, n: int) -> bool:
    """Whether a value may join, if so many are missing in a cluster of n and each occurs at most so often."""
    is_new = joining not in members and missing > 0
    return members.count(joining) < most and (is_new or missing < n - len(members))
