"""`microaggregate`: partition a table by any algorithm, refine the partition, and check its guarantee."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from shoal.arrays import LARGEST, Float64Matrix, Int32Vector
from shoal.clustering.static.auto import candidate_partitions, t_close_partitions
from shoal.clustering.static.constraints import ClusterConstraints, merge_until_feasible, violating_clusters
from shoal.clustering.static.exact import check_exact
from shoal.clustering.static.refinement import NO_CONSTRAINTS, REFINEMENTS, BudgetUsed, RefinedPartition
from shoal.clustering.static.refinement import refine as refine_partitions
from shoal.clustering.static.registry import T_CLOSE_ALGORITHMS, Parameter, partition, t_close_algorithm
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
    budget_used: BudgetUsed | None = None,
    constraints: ClusterConstraints = NO_CONSTRAINTS,
) -> Int32Vector:
    """Partition a table into clusters of at least k records that lie close together.

    Parameters
    ----------
    values : array_like of float64, shape (n, d)
        Coordinates, scaled by the caller; finite, at most 1e150 in absolute value; not modified.
    k : int
        Smallest cluster, 2 <= k <= n.
    algorithm : str
        ``auto``, or a name of `shoal.clustering.static.ALGORITHMS`. With t-closeness also ``strict`` or ``steered``:
        they are run once per confidential attribute, and the partition that loses least is kept.
    refine : str
        How the partition is changed to lose less: ``none``, ``descent``, ``anneal`` or ``exact`` (k of 2 or 3, at most
        6,000 records, needs the extra ``exact``).
    seed : int
        Seed of all random choices; the same seed gives the same labels.
    parameters : mapping of str to number or str, optional
        Parameters of the algorithm (`parameters_of`).
    budget_used : callable, optional
        Share of its budget that ``anneal`` or ``exact`` has used, given the number of changes tried so far; 1 ends it.
        It may count changes, read a clock, or show progress. By default the budget is 10,000 changes per record.
    constraints : ClusterConstraints
        What every cluster must satisfy besides its size. By default nothing: k counts records.

    Returns
    -------
    ndarray of int32, shape (n,)
        Cluster of each record, from 0.

    Raises
    ------
    ParameterError
        If an argument is outside its domain.
    AnonymityViolation
        If a cluster is smaller than k or violates a constraint, as when the whole table violates it. Nothing is
        returned then.

    Notes
    -----
    Guarantee: every label occurs at least k times and every cluster satisfies the constraints; both are checked on the
    result. Clusters of an algorithm that violate a constraint are merged with their nearest, and refinement makes no
    change that violates one.
    The loss is the sum of squared distances to the centroids of the clusters; `refined` returns it as well.
    """
    return refined(
        values, k, algorithm, refine, seed, parameters=parameters, budget_used=budget_used, constraints=constraints
    ).labels


def refined(
    values: ArrayLike,
    k: int = 10,
    algorithm: str = "mdav",
    refine: str = "none",
    seed: int = 0,
    *,
    parameters: Mapping[str, Parameter] | None = None,
    budget_used: BudgetUsed | None = None,
    constraints: ClusterConstraints = NO_CONSTRAINTS,
) -> RefinedPartition:
    """Partition a table as `microaggregate` does, and return the loss and the proven bound beside the labels."""
    table = _checked(values, k)
    if refine not in REFINEMENTS:
        raise ParameterError(f"refine: unknown, use one of {', '.join(REFINEMENTS)}")
    if refine == "exact":
        check_exact(len(table), k, is_unconstrained=constraints.are_none)
    if constraints.t is not None and algorithm in T_CLOSE_ALGORITHMS:
        best = t_close_partitions(table, k, t_close_algorithm(algorithm, parameters), constraints)[0]
        partitions, constraints = [best.labels], replace(constraints, buckets=best.buckets)
    elif algorithm == AUTO and not parameters:
        partitions = candidate_partitions(table, k, constraints, refined=refine != "none")
    else:
        labels = partition(table, k, algorithm, seed, parameters)
        partitions = [labels if constraints.are_none else merge_until_feasible(table, labels, k, constraints)]
    found = refine_partitions(table, partitions, k, refine, seed, budget_used, constraints)
    if violating_clusters(found.labels, k, constraints).any():
        raise AnonymityViolation("a cluster is smaller than k or violates a constraint; nothing is released")
    return found


def _checked(values: ArrayLike, k: int) -> Float64Matrix:
    """Return the coordinates as the kernels take them; raise `ParameterError` with all faults of values and k."""
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
