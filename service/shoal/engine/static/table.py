"""The door for finished tables: a matrix in, labels out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from shoal.engine.static.auto import starts
from shoal.engine.static.refinement import REFINEMENTS, Pace
from shoal.engine.static.refinement import refine as improve
from shoal.engine.static.registry import Parameter, partition
from shoal.errors import AnonymityViolation, ParameterError
from shoal.kernel.arrays import Float64Matrix, Int32Vector

__all__ = ["LARGEST", "microaggregate"]

AUTO = "auto"
LARGEST = 1e150
"""Of a coordinate: the squares of larger ones do not fit a float."""


def microaggregate(
    values: ArrayLike,
    k: int = 10,
    algorithm: str = "mdav",
    refine: str = "none",
    seed: int = 0,
    *,
    parameters: Mapping[str, Parameter] | None = None,
    pace: Pace | None = None,
) -> Int32Vector:
    """Partition a table into clusters of at least k records that lie close together.

    Parameters
    ----------
    values : array_like of float64, shape (n, d)
        Coordinates, scaled by the caller; finite; not modified.
    k : int
        Smallest cluster, 2 <= k <= n.
    algorithm : str
        ``auto``, or a name of `shoal.engine.static.ALGORITHMS`.
    refine : str
        ``none``, ``descent`` or ``anneal``: what is done to the partition to lose less.
    seed : int
        Of all random choices; the same seed gives the same labels.
    parameters : mapping of str to number or str, optional
        Parameters of the algorithm (`parameters_of`).
    pace : callable, optional
        How far annealing has come, from 0 to 1, given the number of changes tried so far: a limit in changes or in
        time, or a progress bar. By default 10,000 changes per record.

    Returns
    -------
    ndarray of int32, shape (n,)
        Cluster of each record, from 0.

    Raises
    ------
    ParameterError
        If an argument is outside its domain.
    AnonymityViolation
        If a cluster came out smaller than k: nothing is returned.

    Notes
    -----
    Guarantee: every label occurs at least k times, counted after all else is done. k counts records here; a table in
    which a subject has several needs them to be one row each.
    Loss is the sum of squared distances to the centroids of the clusters.
    """
    table = _checked(values, k)
    if refine not in REFINEMENTS:
        raise ParameterError(f"refine: unknown, use one of {', '.join(REFINEMENTS)}")
    if algorithm == AUTO and not parameters:
        partitions = starts(table, k, refined=refine != "none")
    else:
        partitions = [partition(table, k, algorithm, seed, parameters)]
    if refine == "none" and len(partitions) == 1:
        labels = partitions[0]
    else:
        labels = improve(table, partitions, k, refine, seed, pace).labels
    if np.bincount(labels).min() < k:
        raise AnonymityViolation("a cluster of fewer than k records was about to leave")
    return labels


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
