"""Algorithms for tables in plain Python, as the papers describe them; imports nothing of the code that it checks.

A table is a list of tuples, a cluster a list of record numbers, a partition a list of clusters in order of creation.
Ties go to the record with the lowest number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import combinations
from typing import TypeAlias

Table: TypeAlias = Sequence[Sequence[float]]
Partition: TypeAlias = list[list[int]]


def squared_distance(one: Sequence[float], other: Sequence[float]) -> float:
    total = 0.0
    for a, b in zip(one, other, strict=True):
        total += (a - b) * (a - b)
    return total


def mean(table: Table, members: Sequence[int]) -> list[float]:
    return [math.fsum(table[i][j] for i in members) / len(members) for j in range(len(table[0]))]


def loss(table: Table, partition: Partition) -> float:
    return math.fsum(squared_distance(table[i], mean(table, cluster)) for cluster in partition for i in cluster)


def farthest(table: Table, rest: Sequence[int], centre: Sequence[float]) -> int:
    return min(rest, key=lambda i: (-squared_distance(table[i], centre), i))


def with_nearest(table: Table, rest: Sequence[int], seed: int, k: int) -> list[int]:
    others = sorted((i for i in rest if i != seed), key=lambda i: (squared_distance(table[i], table[seed]), i))
    return [seed, *others[: k - 1]]


def without(rest: Sequence[int], removed: Sequence[int]) -> list[int]:
    return [i for i in rest if i not in set(removed)]


def join_as_block(table: Table, partition: Partition, rest: list[int]) -> None:
    """All of the rest join the cluster with the centroid nearest to theirs."""
    if rest:
        centre = mean(table, rest)
        best = min(range(len(partition)), key=lambda c: (squared_distance(mean(table, partition[c]), centre), c))
        partition[best] = partition[best] + rest


def mdav(table: Table, k: int) -> Partition:
    partition, rest = [], list(range(len(table)))
    while len(rest) >= 3 * k:
        seed = farthest(table, rest, mean(table, rest))
        for opposite in (False, True):
            if opposite:
                seed = farthest(table, rest, table[seed])
            partition.append(with_nearest(table, rest, seed, k))
            rest = without(rest, partition[-1])
    if len(rest) >= 2 * k:
        partition.append(with_nearest(table, rest, farthest(table, rest, mean(table, rest)), k))
        rest = without(rest, partition[-1])
    return [*partition, rest]


def md(table: Table, k: int) -> Partition:
    partition: Partition = []
    rest = list(range(len(table)))
    while len(rest) >= 2 * k:
        one, other = min(
            combinations(rest, 2), key=lambda pair: (-squared_distance(table[pair[0]], table[pair[1]]), pair)
        )
        partition.append(with_nearest(table, rest, one, k))
        rest = without(rest, partition[-1])
        seed = other if other in rest else farthest(table, rest, table[one])
        partition.append(with_nearest(table, rest, seed, k))
        rest = without(rest, partition[-1])
    if len(rest) >= k or not partition:
        return [*partition, rest]
    join_as_block(table, partition, rest)
    return partition


def vmdav(table: Table, k: int, gamma: float) -> Partition:
    partition: Partition = []
    rest = list(range(len(table)))
    centre = mean(table, rest)
    while len(rest) >= k:
        cluster = with_nearest(table, rest, farthest(table, rest, centre), k)
        rest = without(rest, cluster)
        while rest and len(cluster) < 2 * k - 1:
            inner, nearest = min((min(squared_distance(table[i], table[m]) for m in cluster), i) for i in rest)
            outer = min((squared_distance(table[i], table[nearest]) for i in rest if i != nearest), default=math.inf)
            if not inner < gamma * outer:
                break
            cluster.append(nearest)
            rest.remove(nearest)
        partition.append(cluster)
    join_as_block(table, partition, rest)
    return partition


def best_along(table: Table, order: Sequence[int], k: int) -> float:
    """The least loss of any cut of an order into runs of k records and more."""
    best = [0.0] + [math.inf] * len(order)
    for end in range(k, len(order) + 1):
        for start in range(end - k + 1):
            best[end] = min(best[end], best[start] + loss(table, [list(order[start:end])]))
    return best[-1]


def best_of_all(table: Table, k: int) -> float:
    """The least loss of any partition at all: for a dozen records."""

    @cache
    def loss_of_one(cluster: tuple[int, ...]) -> float:
        return loss(table, [list(cluster)])

    @cache
    def search(rest: tuple[int, ...]) -> float:
        if not rest:
            return 0.0
        best = math.inf
        for size in range(k, len(rest) + 1):
            for others in combinations(rest[1:], size - 1):
                cluster = (rest[0], *others)
                best = min(best, loss_of_one(cluster) + search(tuple(without(rest, cluster))))
        return best

    return search(tuple(range(len(table))))


def entropy(values: Sequence[object]) -> float:
    return -sum(c / len(values) * math.log2(c / len(values)) for c in Counter(values).values())


def variation(one: Sequence[object], other: Sequence[object]) -> float:
    return 2.0 * entropy(list(zip(one, other, strict=True))) - entropy(one) - entropy(other)
