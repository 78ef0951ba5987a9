"""Arithmetic of measurements: percentiles, and the slope of a series with its standard error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

__all__ = ["Trend", "percentile", "trend"]


class Trend(NamedTuple):
    """Least-squares slope of a series (units of y per unit of x) and its standard error."""

    slope: float
    standard_error: float

    def is_within_noise(self, tolerated: float) -> bool:
        """Return whether the slope is at most the tolerated one, or not above 0 by more than two standard errors."""
        return self.slope <= max(tolerated, 2 * self.standard_error)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed (nearest rank).

    NaN if there is no value.
    """
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def trend(xs: Sequence[float], ys: Sequence[float], groups: int = 12) -> Trend:
    """Return the slope of the means of consecutive groups of a series.

    Samples of memory or lag depend on the samples before them, so the usual standard error would be too small. Means
    of long groups depend on each other much less.

    Parameters
    ----------
    xs, ys : sequence of float, shape (n,)
        Times and samples; n >= 3.
    groups : int
        Most groups; fewer samples are groups of one.

    Notes
    -----
    Source: batch means, Law and Kelton, Simulation Modeling and Analysis, section on steady-state simulation.
    """
    count = min(groups, len(xs))
    if count < 3:
        return Trend(math.nan, math.nan)
    edges = [round(number * len(xs) / count) for number in range(count + 1)]
    spans = [slice(start, end) for start, end in pairwise(edges)]
    xs, ys = ([math.fsum(values[span]) / len(values[span]) for span in spans] for values in (xs, ys))
    mean_x, mean_y = math.fsum(xs) / count, math.fsum(ys) / count
    spread = math.fsum((x - mean_x) ** 2 for x in xs)
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    residuals = math.fsum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in zip(xs, ys, strict=True))
    return Trend(slope, math.sqrt(residuals / (count - 2) / spread))
