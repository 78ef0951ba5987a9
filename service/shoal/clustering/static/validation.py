"""Validation of what `microaggregate` is given. Every fault is named with its field; no value appears in a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shoal.arrays import LARGEST, Float64Matrix
from shoal.clustering.static.constraints import ClusterConstraints
from shoal.clustering.static.emd import ConfidentialAttribute
from shoal.clustering.static.refinement import REFINEMENTS
from shoal.errors import ParameterError

__all__ = ["argument_faults", "checked_values", "constraint_faults", "is_integer", "is_number"]


def checked_values(values: ArrayLike) -> Float64Matrix:
    """Return the coordinates as the kernels take them.

    Parameters
    ----------
    values : array_like, shape (n, d)
        Of integers, floats or booleans.

    Returns
    -------
    ndarray of float64, shape (n, d)
        C-contiguous; may share memory with ``values``.

    Raises
    ------
    ParameterError
        Names what the values must be.
    """
    try:
        given = np.asarray(values)
    except (TypeError, ValueError):
        raise ParameterError("values: need shape (n, d), rows must have the same length") from None
    if given.ndim != 2 or 0 in given.shape:  # noqa: PLR2004 - records and attributes
        raise ParameterError("values: need shape (n, d), at least one record and one attribute")
    if given.dtype.kind not in "biuf":
        raise ParameterError("values: need integers or floats, no text, objects or complex numbers; convert them first")
    if np.ma.is_masked(values):
        raise ParameterError("values: must not be masked; fill or remove what is missing")
    with np.errstate(over="ignore"):  # a number too large for float64 becomes infinite and is refused here
        table: Float64Matrix = np.ascontiguousarray(given, dtype=np.float64)
        if not (np.abs(table) <= LARGEST).all():
            raise ParameterError(
                f"values: need finite numbers of at most {LARGEST:g}; scale them, fill or remove what is missing"
            )
    return table


def argument_faults(
    n: int, k: object, algorithm: object, refine: object, seed: object, parameters: object, budget_used: object
) -> list[str]:
    """Return what is wrong with the arguments of `microaggregate` for n records, as messages; empty if nothing is."""
    faults = []
    if not is_integer(k):
        faults.append("k: must be a whole number")
    elif not 2 <= k <= n:  # noqa: PLR2004 - a cluster needs two records
        faults.append("k: needs 2 <= k <= number of records")
    if not isinstance(algorithm, str):
        faults.append("algorithm: must be a name")
    if not isinstance(refine, str) or refine not in REFINEMENTS:
        faults.append(f"refine: unknown, use one of {', '.join(REFINEMENTS)}")
    if not is_integer(seed) or seed < 0:
        faults.append("seed: must be a whole number, 0 or more")
    if parameters is not None and not isinstance(parameters, Mapping):
        faults.append("parameters: must be a mapping of names to values")
    if budget_used is not None and not callable(budget_used):
        faults.append("budget_used: must be a function of the number of changes")
    return faults


def constraint_faults(constraints: object, n: int) -> list[str]:
    """Return what is wrong with the constraints on clusters of n records, as messages; empty if nothing is."""
    if not isinstance(constraints, ClusterConstraints):
        return ["constraints: must be ClusterConstraints"]
    faults = []
    for name, codes in (("subjects", constraints.subjects), ("buckets", constraints.buckets)):
        if codes is not None and not _are_codes(codes, n):
            faults.append(f"constraints: {name} must be an array of integers from 0, shape ({n},)")
    if not is_number(constraints.max_share) or not 0 < constraints.max_share <= 1:
        faults.append("constraints: max_share must be above 0 and at most 1")
    confidential: object = constraints.confidential
    if not isinstance(confidential, tuple) or not all(_is_attribute(attribute, n) for attribute in confidential):
        faults.append(f"constraints: confidential needs attributes with integers from 0 as bins, shape ({n},)")
    return faults if constraints.t is None else [*faults, *_closeness_faults(constraints)]


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a value of any type is an integer; a boolean is none."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value of any type is an integer or a float; a boolean is neither."""
    return is_integer(value) or isinstance(value, float | np.floating)


def _closeness_faults(constraints: ClusterConstraints) -> list[str]:
    """Return what is wrong with t, which is given."""
    faults = []
    if not is_number(constraints.t) or not constraints.t >= 0:
        faults.append("constraints: t must be a number, 0 or more")
    if not constraints.confidential:
        faults.append("constraints: t needs a confidential attribute")
    return faults


def _is_attribute(attribute: object, n: int) -> bool:
    """Whether a value of any type is a confidential attribute of n records."""
    return isinstance(attribute, ConfidentialAttribute) and _are_codes(attribute.bins, n)


def _are_codes(codes: object, n: int) -> TypeGuard[NDArray[np.integer]]:
    """Whether a value of any type is an array of n integers from 0."""
    return (
        isinstance(codes, np.ndarray) and codes.shape == (n,) and codes.dtype.kind in "iu" and bool((codes >= 0).all())
    )
