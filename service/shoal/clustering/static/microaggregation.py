"""`microaggregate`: partition a table by any algorithm, refine the partition, and check its guarantee."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from shoal.arrays import LARGEST, Float64Matrix, Int32Vector
from shoal.clustering.static.auto import candidate_partitions, feasible_partitions, t_close_partitions
from shoal.clustering.static.confidential_values import (
    Diversity,
    Reference,
    confidential_attributes,
    default_value_share,
    parse_diversity,
    protection_faults,
)
from shoal.clustering.static.constraints import ClusterConstraints, violating_clusters
from shoal.clustering.static.exact import check_exact
from shoal.clustering.static.refinement import NO_CONSTRAINTS, BudgetUsed, RefinedPartition
from shoal.clustering.static.refinement import refine as refine_partitions
from shoal.clustering.static.registry import T_CLOSE_ALGORITHMS, Parameter, partition, t_close_algorithm
from shoal.clustering.static.validation import argument_faults, checked_values, constraint_faults
from shoal.errors import AnonymityViolation, ParameterError

__all__ = ["LARGEST", "microaggregate", "refined"]

AUTO = "auto"
LARGEST_EXPONENT = 400
"""Squares are computed without underflow or overflow if the widest range lies between two to minus this and to this."""


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
    confidential: ArrayLike | None = None,
    l: Diversity | None = None,  # noqa: E741 - the letter of the literature
    max_value_share: float | None = None,
    t: float | None = None,
    reference: Reference | Sequence[Reference] | None = None,
) -> Int32Vector:
    """Partition a table into clusters of at least k records that lie close together.

    Parameters
    ----------
    values : array_like of float64, shape (n, d)
        Coordinates, scaled by the caller: integers or floats, finite, at most 1e150 in absolute value; not modified.
    k : int
        Smallest cluster, 2 <= k <= n.
    algorithm : str
        ``auto``, or a name of `shoal.clustering.static.ALGORITHMS`. With t-closeness also ``strict`` or ``steered``:
        they are run once per confidential attribute, and the partition that loses least is kept.
    refine : str
        How the partition is changed to lose less: ``none``, ``descent``, ``anneal`` or ``exact``. The last needs the
        extra ``exact``, k of 2 or 3 and at most 6,000 records; with one attribute it needs none of these.
    seed : int
        Seed of all random choices, 0 or more; the same seed gives the same labels.
    parameters : mapping of str to number or str, optional
        Parameters of the algorithm (`parameters_of`).
    budget_used : callable, optional
        Share of its budget that ``anneal`` or ``exact`` has used, given the number of changes tried so far; 1 ends it.
        It may count changes, read a clock, or show progress. By default the budget is 10,000 changes per record.
    constraints : ClusterConstraints
        What every cluster must satisfy besides its size. By default nothing: k counts records.
    confidential : array_like of str, number or None, shape (n,) or (n, q), optional
        Values of the q confidential attributes that ``l``, ``max_value_share`` and ``t`` apply to; required with one of
        these. Numbers are compared by value, texts without surrounding whitespace, and a text that is a number as that
        number. None and NaN are one value: missing.
    l : int or mapping, optional
        l-diversity of each cluster: a number of different values, ``{"entropy": l}`` or ``{"recursive": [c, l]}``.
    max_value_share : float, optional
        Largest share of one value among the records of a cluster. By default 0.5 with a number of different values,
        else no limit.
    t : float, optional
        Largest earth mover's distance of a cluster from the reference (t-closeness).
    reference : mapping or sequence of mappings, optional
        Share of each value, for each attribute; by default the table. If all its values are numbers or missing, the
        distance is the ordered one, else the equal one.

    Returns
    -------
    ndarray of int32, shape (n,)
        Cluster of each record, from 0.

    Raises
    ------
    ParameterError
        If an argument is outside its domain or of another type; the message names it.
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
    protection = l, max_value_share, t, reference
    if confidential is not None or any(one is not None for one in protection):
        constraints = _with_confidential(constraints, values, confidential, *protection)
    return refined(
        values, k, algorithm, refine, seed, parameters=parameters, budget_used=budget_used, constraints=constraints
    ).labels


def _with_confidential(
    constraints: object,
    values: ArrayLike,
    confidential: ArrayLike | None,
    l: Diversity | None,  # noqa: E741 - the letter of the literature
    max_value_share: float | None,
    t: float | None,
    reference: Reference | Sequence[Reference] | None,
) -> ClusterConstraints:
    """Return constraints with confidential attributes, and what these must satisfy; raise ParameterError for faults."""
    faults = protection_faults(l, max_value_share, t, reference, None)
    if confidential is None:
        faults.append("confidential: missing, l, max_value_share, t and reference apply to it")
    if not isinstance(constraints, ClusterConstraints):
        faults.append("constraints: must be ClusterConstraints")
    if faults or confidential is None or not isinstance(constraints, ClusterConstraints):
        raise ParameterError("; ".join(faults))
    return replace(
        constraints,
        confidential=confidential_attributes(
            confidential, len(checked_values(values)), reference, has_bins=t is not None
        ),
        t=t,
        l=parse_diversity(l),
        max_value_share=default_value_share(l, max_value_share),
    )


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
    table = checked_values(values)
    faults = argument_faults(len(table), k, algorithm, refine, seed, parameters, budget_used)
    faults += constraint_faults(constraints, len(table))
    if faults:
        raise ParameterError("; ".join(faults))
    k, seed = int(k), int(seed)
    if refine == "exact":
        check_exact(len(table), table.shape[1], k, is_unconstrained=constraints.are_none)
    exponent = _exponent_of(table)
    if exponent:
        table = np.ldexp(table - table.min(axis=0), -exponent)
    found = _refined(table, k, algorithm, refine, seed, parameters, budget_used, constraints)
    if violating_clusters(found.labels, k, constraints).any():
        raise AnonymityViolation("a cluster is smaller than k or violates a constraint; nothing is released")
    return _scaled(found, exponent) if exponent else found


def _refined(
    table: Float64Matrix,
    k: int,
    algorithm: str,
    refine: str,
    seed: int,
    parameters: Mapping[str, Parameter] | None,
    budget_used: BudgetUsed | None,
    constraints: ClusterConstraints,
) -> RefinedPartition:
    """Return the refined partition of checked values (n, d)."""
    if constraints.t is not None and algorithm in T_CLOSE_ALGORITHMS:
        best = t_close_partitions(table, k, t_close_algorithm(algorithm, parameters), constraints)[0]
        partitions, constraints = [best.labels], replace(constraints, buckets=best.buckets)
    elif algorithm == AUTO and not parameters:
        partitions = candidate_partitions(table, k, constraints, refined=refine != "none")
    else:
        labels = partition(table, k, algorithm, seed, parameters)
        partitions = feasible_partitions(table, labels, k, constraints, refined=refine != "none")
    return refine_partitions(table, partitions, k, refine, seed, budget_used, constraints)


def _exponent_of(table: Float64Matrix) -> int:
    """Return the power of two that scales the widest range of an attribute to 0.5 to 1; 0 where none is needed."""
    widest = float(np.ptp(table, axis=0).max())
    exponent = math.frexp(widest)[1]
    return exponent if abs(exponent) > LARGEST_EXPONENT else 0


def _scaled(found: RefinedPartition, exponent: int) -> RefinedPartition:
    """Return the result with loss and bound in the unit of the values, of a table divided by two to the exponent.

    A loss above 0 stays above 0: what is below the smallest float becomes that float, and the bound 0.
    """
    try:
        loss, bound = math.ldexp(found.loss, 2 * exponent), math.ldexp(found.bound, 2 * exponent)
    except OverflowError:
        raise ParameterError("values: their squares exceed float64; scale them") from None
    if loss == 0.0 < found.loss:
        loss = math.ulp(0.0)
        bound = loss if found.bound == found.loss else 0.0
    return found._replace(loss=loss, bound=bound)
