"""A genetic search for the best partition of a few dozen records: selection, crossover, mutation, repair.

A chromosome says for each record which cluster it is in, from 0 to one less than the records would fill by k each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.clustering.numba.distances import squared_distance
from shoal.clustering.numba.jit import njit

__all__ = ["Chances", "evolve"]


class Chances(NamedTuple):
    """How a generation is bred from the one before."""

    population: int
    crossover: float
    mutation: float


class Sums(NamedTuple):
    """Of a chromosome: how many records each cluster has, and their sums."""

    counts: Int64Vector  # (clusters,)
    totals: Float64Matrix  # (clusters, d)


@njit
def evolve(
    values: Float64Matrix,
    start: Int64Vector,
    k: int,
    generations: int,
    chances: Chances,
    random: np.random.Generator,
) -> Int64Vector:
    """Return the best chromosome that is met; ``start`` is the first of the population, the others are random.

    ``values`` (m, d) lie about the origin, m >= 2k. A ``start`` with -1 in front is random as well. The best takes the
    place of the worst of each generation, so that it is never lost.
    """
    m, d = values.shape
    clusters = m // k
    sums = Sums(np.zeros(clusters, np.int64), np.zeros((clusters, d)))
    parents, losses = np.zeros((chances.population, m), np.int64), np.zeros(chances.population)
    for c in range(chances.population):
        if c == 0 and start[0] >= 0:
            parents[c] = start
        else:
            _shuffle(parents[c], k, clusters, random)
        losses[c] = _loss(values, parents[c], sums)
    children, best = parents.copy(), np.zeros(m, np.int64)
    chosen = np.zeros(chances.population, np.int64)
    lowest = np.inf
    for generation in range(generations + 1):
        if generation > 0:
            _breed(values, k, parents, losses, children, chosen, chances, sums, random)
            for c in range(chances.population):
                losses[c] = _loss(values, children[c], sums)
        leader = np.argmin(losses)
        if losses[leader] < lowest:
            best[:], lowest = children[leader], losses[leader]
        worst = np.argmax(losses)
        children[worst], losses[worst] = best, lowest
        parents[:] = children
    return best


@njit
def _breed(
    values: Float64Matrix,
    k: int,
    parents: Int64Matrix,
    losses: Float64Vector,
    children: Int64Matrix,
    chosen: Int64Vector,
    chances: Chances,
    sums: Sums,
    random: np.random.Generator,
) -> None:
    """Fill ``children``; one that cannot be repaired stays what its parent was."""
    m, clusters = parents.shape[1], sums.counts.size
    _spin(losses, chosen, random)
    for c in range(chances.population):
        children[c] = parents[chosen[c]]
    _cross(children, chances.crossover, random)
    for c in range(chances.population):
        if random.random() < chances.mutation:
            children[c, int(random.random() * m)] = int(random.random() * clusters)
        if not _repair(values, children[c], k, sums):
            children[c] = parents[chosen[c]]


@njit
def _shuffle(chromosome: Int64Vector, k: int, clusters: int, random: np.random.Generator) -> None:
    """Draw a chromosome of legal sizes: some number of clusters of k, and the others anywhere there is room."""
    m = chromosome.size
    fewest = (m + 2 * k - 2) // (2 * k - 1)
    count = fewest + int(random.random() * (clusters - fewest + 1))
    sizes = np.zeros(count, np.int64)
    for x in range(m):
        cluster = x % count
        while x >= count * k and sizes[cluster] >= 2 * k - 1:
            cluster = (cluster + 1) % count
        if x >= count * k:
            other = int(random.random() * count)
            cluster = other if sizes[other] < 2 * k - 1 else cluster
        sizes[cluster] += 1
        chromosome[x] = cluster
    for x in range(m - 1, 0, -1):
        other = int(random.random() * (x + 1))
        chromosome[x], chromosome[other] = chromosome[other], chromosome[x]


@njit
def _count(values: Float64Matrix, chromosome: Int64Vector, sums: Sums) -> None:
    sums.counts[:] = 0
    sums.totals[:] = 0.0
    for i in range(chromosome.size):
        cluster = chromosome[i]
        sums.counts[cluster] += 1
        for j in range(values.shape[1]):
            sums.totals[cluster, j] += values[i, j]


@njit
def _loss(values: Float64Matrix, chromosome: Int64Vector, sums: Sums) -> float:
    """Return the sum of squared distances to the centroids."""
    _count(values, chromosome, sums)
    loss = 0.0
    for i in range(chromosome.size):
        cluster = chromosome[i]
        for j in range(values.shape[1]):
            away = values[i, j] - sums.totals[cluster, j] / sums.counts[cluster]
            loss += away * away
    return loss


@njit
def _spin(losses: Float64Vector, chosen: Int64Vector, random: np.random.Generator) -> None:
    """Choose parents by roulette, each with a chance in proportion to 1 / (loss + 1)."""
    total = 0.0
    for loss in losses:
        total += 1.0 / (loss + 1.0)
    for c in range(chosen.size):
        ball = random.random() * total
        chosen[c] = chosen.size - 1
        for parent in range(chosen.size):
            ball -= 1.0 / (losses[parent] + 1.0)
            if ball <= 0.0:
                chosen[c] = parent
                break


@njit
def _cross(children: Int64Matrix, chance: float, random: np.random.Generator) -> None:
    """Let neighbours exchange all that comes after one point."""
    for c in range(0, children.shape[0] - 1, 2):
        if random.random() < chance:
            for i in range(1 + int(random.random() * (children.shape[1] - 1)), children.shape[1]):
                children[c, i], children[c + 1, i] = children[c + 1, i], children[c, i]


@njit
def _repair(values: Float64Matrix, chromosome: Int64Vector, k: int, sums: Sums) -> bool:
    """Give all clusters legal sizes again; False if that does not come to an end."""
    for _ in range(2 * chromosome.size):
        _count(values, chromosome, sums)
        small, large = _misfits(sums.counts, k)
        if small >= 0:
            done = _dissolve(values, chromosome, small, k, sums)
        elif large >= 0 and sums.counts.min() == 0:
            done = _split(values, chromosome, large, int(np.argmin(sums.counts)), k, sums)
        elif large >= 0:
            done = _relieve(values, chromosome, large, k, sums)
        else:
            return True
        if not done:
            return False
    return False


@njit
def _misfits(counts: Int64Vector, k: int) -> tuple[int, int]:
    """Return the smallest cluster below k that is not empty, and the largest above 2k - 1; -1 where there is none."""
    small, large = -1, -1
    for cluster in range(counts.size):
        if 0 < counts[cluster] < k and (small < 0 or counts[cluster] < counts[small]):
            small = cluster
        if counts[cluster] > 2 * k - 1 and (large < 0 or counts[cluster] > counts[large]):
            large = cluster
    return small, large


@njit
def _nearest_with_room(values: Float64Matrix, i: int, own: int, k: int, sums: Sums) -> tuple[int, float]:
    """Return the cluster that could take one more and has the nearest centroid, and how near; -1 if none could."""
    best, chosen = np.inf, -1
    for cluster in range(sums.counts.size):
        count = sums.counts[cluster]
        if cluster == own or not 0 < count < 2 * k - 1:
            continue
        distance = 0.0
        for j in range(values.shape[1]):
            away = values[i, j] - sums.totals[cluster, j] / count
            distance += away * away
        if distance < best:
            best, chosen = distance, cluster
    return chosen, best


@njit
def _dissolve(values: Float64Matrix, chromosome: Int64Vector, small: int, k: int, sums: Sums) -> bool:
    for i in range(chromosome.size):
        if chromosome[i] == small:
            cluster, _ = _nearest_with_room(values, i, small, k, sums)
            if cluster < 0:
                return False
            chromosome[i] = cluster
            sums.counts[cluster] += 1
    return True


@njit
def _split(values: Float64Matrix, chromosome: Int64Vector, large: int, empty: int, k: int, sums: Sums) -> bool:
    """Move the record farthest from the centroid, and its nearest, into an empty cluster."""
    farthest, seed = -1.0, -1
    for i in range(chromosome.size):
        distance = (
            squared_distance(values, i, sums.totals[large] / sums.counts[large]) if chromosome[i] == large else -1.0
        )
        if distance > farthest:
            farthest, seed = distance, i
    for _ in range(k):
        nearest, record = np.inf, -1
        for i in range(chromosome.size):
            distance = squared_distance(values, i, values[seed]) if chromosome[i] == large else np.inf
            if distance < nearest:
                nearest, record = distance, i
        chromosome[record] = empty
    return True


@njit
def _relieve(values: Float64Matrix, chromosome: Int64Vector, large: int, k: int, sums: Sums) -> bool:
    """Move the one record that is nearest to another cluster with room."""
    best, record, target = np.inf, -1, -1
    for i in range(chromosome.size):
        if chromosome[i] == large:
            cluster, distance = _nearest_with_room(values, i, large, k, sums)
            if cluster >= 0 and distance < best:
                best, record, target = distance, i, cluster
    if record < 0:
        return False
    chromosome[record] = target
    return True
