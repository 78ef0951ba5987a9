"""Steering: artificial attributes with a weight that pull a partition where it shall go ([1]_, Definition 3).

So far there is one, the position of a record in the stream: P = position x omega_p (Algorithm 3). It is not stored.
Two records differ in it by omega_p times the difference of their positions, which is taken in whole numbers first, so
that it stays exact after years of stream. With omega_p = 0 the stream is microaggregated as by Algorithm 2.

References
----------
.. [1] J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation: A Unified Primitive for Anonymization of Data
   Sets and Data Streams", ICDMW 2017, sections III and V. doi:10.1109/ICDMW.2017.141
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np

__all__ = ["are_weights", "is_finite_number", "order_keeping_weight", "position_faults"]


def position_faults(omega_p: float) -> list[str]:
    """Say what is wrong with a weight of the position; empty if nothing is."""
    return [] if is_finite_number(omega_p) and omega_p >= 0 else ["position: must be a finite weight, 0 or more"]


def are_weights(weights: object) -> bool:
    """Whether a parameter, whatever its kind, is a sequence of finite numbers above 0."""
    if isinstance(weights, np.ndarray) and weights.ndim == 1:
        weights = weights.tolist()
    if not isinstance(weights, Sequence) or isinstance(weights, bytes):
        return False
    return all(is_finite_number(weight) and weight > 0 for weight in weights)


def is_finite_number(value: object) -> bool:
    """Whether a parameter, whatever its kind, is a number that float64 can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    return bool(-sys.float_info.max <= value <= sys.float_info.max)


def order_keeping_weight(k: int, ranges: Sequence[float]) -> float:
    """Return the omega_p above which rule nearest does not reorder at all.

    Parameters
    ----------
    k : int
        Records in a cluster; every record must be its own subject.
    ranges : sequence of float
        Width of the range of each coordinate: 1 for an attribute scaled to [0, 1], times its weight.

    Returns
    -------
    float
        sqrt(sum of squared ranges / (2k - 1)), in units of the coordinates per position.

    Notes
    -----
    Records within k - 1 positions of the expiring one are at a squared distance of at most m + omega_p^2 (k - 1)^2 for
    m attributes in [0, 1]; those beyond are at omega_p^2 k^2 or more. Above the returned weight the first is the
    smaller, so the k oldest are taken and, by induction, these are always consecutive.
    Proposition 2 of the paper says (k - 1) sqrt(m / (2k - 1)): the factor k - 1 is what results if P is scaled so that
    k consecutive positions span omega_p. Here P is raw, as step 1 of Algorithm 3 writes it, and needs no such factor.

    Examples
    --------
    >>> round(order_keeping_weight(10, [1.0, 1.0]), 3)
    0.324
    """
    return math.sqrt(sum(width * width for width in ranges) / (2 * k - 1))
