"""The partitions that ``algorithm="auto"`` chooses from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from shoal.arrays import Float64Matrix, Int32Vector
from shoal.clustering.static.centroids import loss_of
from shoal.clustering.static.constraints import ClusterConstraints, merge_until_feasible
from shoal.clustering.static.hansen_mukherjee import optimal
from shoal.clustering.static.hilbert import hilbert
from shoal.clustering.static.mdav import mdav
from shoal.clustering.static.refinement import refine
from shoal.clustering.static.repair import NEAR_CLUSTERS, repair_by_swaps
from shoal.clustering.static.t_closeness import TClosePartition, strict
from shoal.clustering.static.vmdav import vmdav

__all__ = ["candidate_partitions", "feasible_partitions", "t_close_partitions"]

SEVERAL_UP_TO = 20_000
"""Records up to which several partitions are made, of which the best is kept."""


def candidate_partitions(
    values: Float64Matrix, k: int, constraints: ClusterConstraints, *, refined: bool
) -> list[Int32Vector]:
    """Return the partitions of which ``auto`` keeps the one that loses least after refinement.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d), C-contiguous
        Coordinates; finite; not modified.
    k : int
        Smallest cluster, 2 <= k <= n.
    constraints : ClusterConstraints
        What every cluster must satisfy.
    refined : bool
        Whether the partitions will be refined. Runs along a Hilbert curve lose most without refinement; with it, and
        many records, they are the best and fastest start.

    Returns
    -------
    list of ndarray of int32, shape (n,)
        One or several partitions; all satisfy the constraints if the table as one cluster does.

    Notes
    -----
    One attribute: the optimal partition. Up to 20,000 records: MDAV, V-MDAV and, if refined, the Hilbert curve. More:
    the Hilbert curve if refined, else MDAV. Clusters that violate a constraint are merged; with l-diversity or a
    largest share of a value, they first exchange records with near clusters.
    With t-closeness also `strict` partitions, one per confidential attribute (above 20,000 records only the best of
    them), refined by swaps within their buckets: the smaller t, the better they are as a start.
    """
    found = _candidates(values, k, constraints, refined=refined)
    found = [one for labels in found for one in feasible_partitions(values, labels, k, constraints, refined=refined)]
    if constraints.t is None:
        return found
    t_close = t_close_partitions(values, k, strict, constraints)
    how = "descent" if refined else "none"
    for labels, buckets in t_close if len(values) <= SEVERAL_UP_TO else t_close[:1]:
        found.append(refine(values, [labels], k, how, constraints=replace(constraints, buckets=buckets)).labels)
    return found


def feasible_partitions(
    values: Float64Matrix, labels: Int32Vector, k: int, constraints: ClusterConstraints, *, refined: bool = False
) -> list[Int32Vector]:
    """Return partitions of which every cluster satisfies the constraints, if the table as one cluster does.

    Clusters that violate a constraint are merged. For l-diversity and shares of values there are two further ways: they
    first exchange records with the nearest clusters, or also with more. The partition that loses least is returned, or
    all if they will be refined: exchange loses less before refinement, merging often less after it.
    """
    if constraints.are_none:
        return [labels]
    starts = [labels]
    if constraints.limit_values:
        starts += [repair_by_swaps(values, labels, k, constraints, near) for near in (NEAR_CLUSTERS[:1], NEAR_CLUSTERS)]
    merged = [merge_until_feasible(values, start, k, constraints) for start in starts]
    return merged if refined else [min(merged, key=lambda labels: loss_of(values, labels))]


def t_close_partitions(
    values: Float64Matrix, k: int, algorithm: Callable[..., TClosePartition], constraints: ClusterConstraints
) -> list[TClosePartition]:
    """Return the partition by an algorithm for each confidential attribute, merged until feasible, least loss first."""
    found = []
    for attribute in constraints.confidential:
        made = algorithm(values, k, attribute, constraints.t)
        labels = feasible_partitions(values, made.labels, k, constraints)[0]
        found.append(made._replace(labels=labels))
    return sorted(found, key=lambda made: loss_of(values, made.labels))


def _candidates(values: Float64Matrix, k: int, constraints: ClusterConstraints, *, refined: bool) -> list[Int32Vector]:
    """Return the candidates before constraints are taken into account."""
    best = [optimal(values, k)] if values.shape[1] == 1 else []
    if best and constraints.t is None and not constraints.limit_values:
        return best
    if len(values) <= SEVERAL_UP_TO:
        return [*best, mdav(values, k), vmdav(values, k), *([hilbert(values, k)] if refined else [])]
    return [*best, hilbert(values, k) if refined else mdav(values, k)]
