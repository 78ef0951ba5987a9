"""The partitioner that is chosen when nobody chooses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from shoal.arrays import Float64Matrix, Int32Vector
from shoal.clustering.static.constraints import ClusterConstraints, merge_until_feasible
from shoal.clustering.static.hilbert import hilbert
from shoal.clustering.static.mdav import mdav
from shoal.clustering.static.refinement import loss_of, refine
from shoal.clustering.static.t_closeness import TClosePartition, strict
from shoal.clustering.static.univariate import optimal
from shoal.clustering.static.vmdav import vmdav

__all__ = ["closest", "starts"]

FEW = 20_000
"""Records of which several partitions are made; the best is kept."""


def starts(values: Float64Matrix, k: int, demands: ClusterConstraints, *, refined: bool) -> list[Int32Vector]:
    """Return the partitions that ``auto`` chooses from, by the loss each has after refinement.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d), C-contiguous
        Coordinates; finite; not modified.
    k : int
        Smallest cluster, 2 <= k <= n.
    demands : Demands
        What clusters must keep.
    refined : bool
        Whether they will be refined: a run along Hilbert's curve is the worst partition to keep, and with many
        records the best and quickest to begin with.

    Returns
    -------
    list of ndarray of int32, shape (n,)
        One or several; all keep the demands if the table does.

    Notes
    -----
    One attribute: the best partition there is. Up to 20,000 records: MDAV, V-MDAV and, to be refined, Hilbert's curve.
    More: Hilbert's curve to be refined, MDAV otherwise. What does not keep the demands is mended.
    Where closeness is demanded, beside them strictly close partitions, steered by each confidential attribute in turn
    (of more records, the best of these), and refined within their buckets: the tighter t, the better to begin with.
    """
    found = _usual(values, k, demands, refined=refined)
    if not demands.are_none:
        found = [merge_until_feasible(values, labels, k, demands) for labels in found]
    if demands.t is None:
        return found
    close = closest(values, k, strict, demands)
    how = "descent" if refined else "none"
    for labels, buckets in close if len(values) <= FEW else close[:1]:
        found.append(refine(values, [labels], k, how, demands=replace(demands, buckets=buckets)).labels)
    return found


def closest(
    values: Float64Matrix, k: int, algorithm: Callable[..., TClosePartition], demands: ClusterConstraints
) -> list[TClosePartition]:
    """Return what an algorithm makes of each confidential attribute, mended, that of the least loss first."""
    found = []
    for attribute in demands.confidential:
        close = algorithm(values, k, attribute, demands.t)
        found.append(close._replace(labels=merge_until_feasible(values, close.labels, k, demands)))
    return sorted(found, key=lambda close: loss_of(values, close.labels))


def _usual(values: Float64Matrix, k: int, demands: ClusterConstraints, *, refined: bool) -> list[Int32Vector]:
    best = [optimal(values, k)] if values.shape[1] == 1 else []
    if best and demands.t is None:
        return best
    if len(values) <= FEW:
        return [*best, mdav(values, k), vmdav(values, k), *([hilbert(values, k)] if refined else [])]
    return [*best, hilbert(values, k) if refined else mdav(values, k)]
