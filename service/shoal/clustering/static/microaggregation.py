"""The door for finished tables: a matrix in, labels out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from shoal.arrays import LARGEST, Float64Matrix, Int32Vector
from shoal.clustering.static.auto import closest, starts
from shoal.clustering.static.constraints import ClusterConstraints, merge_until_feasible, violating_clusters
from shoal.clustering.static.exact import check_exact
from shoal.clustering.static.refinement import NO_DEMANDS, REFINEMENTS, Pace, Refined
from shoal.clustering.static.refinement import refine as improve
from shoal.clustering.static.registry import T_CLOSE_ALGORITHMS, Parameter, close_algorithm, partition
from shoal.errors import AnonymityViolation, ParameterError

__all__ = ["LARGEST", "microaggregate", "refined"]

AUTO = "auto"


def microaggregate(
    values: ArrayLike,
    k: int = 10,
    algorithm: str = "mdav",
    refine: str = "none",
    seed: int = 0,
    *,
    parameters: Mapping[str, Parameter] | None = None,
    pace: Pace | None = None,
    demands: ClusterConstraints = NO_DEMANDS,
) -> Int32Vector:
    """Partition a table into clusters of at least k records that lie close together.

    Parameters
    ----------
    values : array_like of float64, shape (n, d)
        Coordinates, scaled by the caller; finite; not modified.
    k : int
        Smallest cluster, 2 <= k <= n.
    algorithm : str
        ``auto``, or a name of `shoal.clustering.static.ALGORITHMS`; where closeness is demanded ``strict`` or
        ``steered``, too, steered by each confidential attribute in turn, of which the one that loses least is kept.
    refine : str
        ``none``, ``descent``, ``anneal`` or ``exact`` (k of 2 and 3, at most 6,000 records, with the extra ``exact``):
        what is done to the partition to lose less.
    seed : int
        Of all random choices; the same seed gives the same labels.
    parameters : mapping of str to number or str, optional
        Parameters of the algorithm (`parameters_of`).
    pace : callable, optional
        How far ``anneal`` or ``exact`` has come, from 0 to 1, given the number of changes tried so far: a limit in
        changes or in time, or a progress bar. By default 10,000 changes per record.
    demands : Demands
        What every cluster must keep beside its size: k different subjects, a largest share of one of them, closeness to
        the table. By default nothing: k counts records.

    Returns
    -------
    ndarray of int32, shape (n,)
        Cluster of each record, from 0.

    Raises
    ------
    ParameterError
        If an argument is outside its domain.
    AnonymityViolation
        If a cluster came out smaller than k or does not keep what is asked, as where the whole table does not: nothing
        is returned.

    Notes
    -----
    Guarantee: every label occurs at least k times and all demands are kept, counted after all else is done. Where an
    algorithm's clusters do not keep them, the nearest are joined; refinement makes no change that breaks them.
    Loss is the sum of squared distances to the centroids of the clusters; `refined` tells it, too.
    """
    return refined(values, k, algorithm, refine, seed, parameters=parameters, pace=pace, demands=demands).labels


def refined(
    values: ArrayLike,
    k: int = 10,
    algorithm: str = "mdav",
    refine: str = "none",
    seed: int = 0,
    *,
    parameters: Mapping[str, Parameter] | None = None,
    pace: Pace | None = None,
    demands: ClusterConstraints = NO_DEMANDS,
) -> Refined:
    """Do what `microaggregate` does, and return the loss and the proven bound (``exact``) beside the labels."""
    table = _checked(values, k)
    if refine not in REFINEMENTS:
        raise ParameterError(f"refine: unknown, use one of {', '.join(REFINEMENTS)}")
    if refine == "exact":
        check_exact(len(table), k, is_free=demands.are_none)
    if demands.t is not None and algorithm in T_CLOSE_ALGORITHMS:
        close = closest(table, k, close_algorithm(algorithm, parameters), demands)[0]
        partitions, demands = [close.labels], replace(demands, buckets=close.buckets)
    elif algorithm == AUTO and not parameters:
        partitions = starts(table, k, demands, refined=refine != "none")
    else:
        labels = partition(table, k, algorithm, seed, parameters)
        partitions = [labels if demands.are_none else merge_until_feasible(table, labels, k, demands)]
    found = improve(table, partitions, k, refine, seed, pace, demands)
    if violating_clusters(found.labels, k, demands).any():
        raise AnonymityViolation("a cluster of fewer than k, or that does not keep what is asked, was about to leave")
    return found


def _checked(values: ArrayLike, k: int) -> Float64Matrix:
    """Return the coordinates as the kernels take them, or say all that is wrong."""
    table = np.ascontiguousarray(values, dtype=np.float64)
    faults = []
    if table.ndim != 2 or 0 in table.shape:  # noqa: PLR2004
        faults.append("values: need shape (n, d), at least one record and one attribute")
    elif not (np.abs(table) <= LARGEST).all():
        faults.append(f"values: need finite numbers of at most {LARGEST:g}")
    if k < 2 or k > len(table):  # noqa: PLR2004
        faults.append("k: needs 2 <= k <= number of records")
    if faults:
        raise ParameterError("; ".join(faults))
    return table
