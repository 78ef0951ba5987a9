"""Validation of what `microaggregate` is given. Every fault is named with its field; no value appears in a message."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shoal.arrays import LARGEST, Float64Matrix
from shoal.clustering.diversity import DISTINCT, ENTROPY, RECURSIVE, LDiversity, ValueReference
from shoal.clustering.static.constraints import ClusterConstraints
from shoal.clustering.static.emd import ConfidentialAttribute
from shoal.clustering.static.refinement import REFINEMENTS
from shoal.errors import ParameterError

__all__ = [
    "AnyArray",
    "argument_faults",
    "as_array",
    "as_objects",
    "checked_values",
    "constraint_faults",
    "is_finite_number",
    "is_integer",
    "is_number",
]

AnyArray: TypeAlias = NDArray[np.generic]
"""An array of any type."""


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
        faults.append(
            f"constraints: confidential needs attributes with integers from 0 as bins and values, shape ({n},), and "
            "bins of their reference"
        )
    return [*faults, *_value_faults(constraints)]


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a value of any type is an integer; a boolean is none."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value of any type is an integer or a float; a boolean is neither."""
    return is_integer(value) or isinstance(value, float | np.floating)


def is_finite_number(value: object) -> TypeGuard[float]:
    """Whether a value of any type is a number that float64 can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    return bool(-sys.float_info.max <= value <= sys.float_info.max)


def as_array(given: ArrayLike | Sequence[object], name: str) -> AnyArray:
    """Return any array-like as an array.

    Raises
    ------
    ParameterError
        Rows have unequal lengths, or a value is masked.
    """
    if np.ma.is_masked(given):
        raise ParameterError(f"{name}: must not be masked; fill or remove what is missing")
    try:
        return np.asarray(given)
    except ValueError:
        raise ParameterError(f"{name}: rows must have the same length") from None


def as_objects(given: ArrayLike | Sequence[object], name: str) -> AnyArray:
    """Return an array as it is, and any other array-like as an array of its objects.

    NumPy converts the values of a list to one common type: a number beside a text becomes a text, and an integer beside
    a float is rounded.

    Raises
    ------
    ParameterError
        As `as_array`.
    """
    if isinstance(given, np.ndarray):
        return as_array(given, name)
    objects = np.asarray(given, dtype=object)
    if any(isinstance(value, list | tuple | np.ndarray) for value in objects.flat):
        raise ParameterError(f"{name}: rows must have the same length")
    return objects


def _value_faults(constraints: ClusterConstraints) -> list[str]:
    """Return what is wrong with t, l and the largest share of a value."""
    faults = []
    t, share = constraints.t, constraints.max_value_share
    if t is not None and (not is_number(t) or not t >= 0):
        faults.append("constraints: t must be a number, 0 or more")
    if constraints.l is not None and not _is_l_diversity(constraints.l):
        faults.append(
            "constraints: l must be LDiversity of 2 or more values, or more than 1 by entropy, with c above 0"
        )
    if share is not None and (not is_number(share) or not 0 < share <= 1):
        faults.append("constraints: max_value_share must be above 0 and at most 1")
    if not constraints.confidential:
        stated = {"t": t, "l": constraints.l, "max_value_share": share}
        faults += [
            f"constraints: {name} needs a confidential attribute" for name, one in stated.items() if one is not None
        ]
    return faults


def _is_l_diversity(given: object) -> bool:
    """Whether a value of any type is an l-diversity that a cluster can have."""
    if not isinstance(given, LDiversity) or not is_number(given.l) or not is_number(given.c):
        return False
    if given.kind == ENTROPY:
        return 1 < given.l < math.inf
    is_whole = float(given.l).is_integer() and given.l >= 2  # noqa: PLR2004 - one value is no diversity
    return (given.kind == DISTINCT and is_whole) or (given.kind == RECURSIVE and is_whole and 0 < given.c < math.inf)


def _is_attribute(attribute: object, n: int) -> bool:
    """Whether a value of any type is a confidential attribute of n records."""
    if not isinstance(attribute, ConfidentialAttribute) or not _are_codes(attribute.bins, n):
        return False
    reference: object = attribute.reference
    if reference is not None and not (
        isinstance(reference, ValueReference) and int(attribute.bins.max()) < len(reference.weights)
    ):
        return False
    return attribute.values is None or _are_codes(attribute.values, n)


def _are_codes(codes: object, n: int) -> TypeGuard[NDArray[np.integer]]:
    """Whether a value of any type is an array of n integers from 0."""
    return (
        isinstance(codes, np.ndarray) and codes.shape == (n,) and codes.dtype.kind in "iu" and bool((codes >= 0).all())
    )
