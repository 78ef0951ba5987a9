"""The loss of each quasi-identifier in its own measure, recomputed from the original and the published values.

Of a number or a time it is the sum of squared errors over the total sum of squares, of the members that have a value
and whose cluster publishes one. Of an ordinal attribute it is the mean distance of ranks over the largest one, and of a
nominal attribute the mean distance in the taxonomy, or the share of records whose category is not published. A missing
value is at distance 1 from every other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shoal.audit.clusters import RecomputedClusters
from shoal.audit.fields import FIELD_SEPARATOR
from shoal.audit.originals import Originals
from shoal.audit.published_values import PublishedValues
from shoal.audit.scales import Categories

__all__ = ["Losses", "measure_losses"]

MIN_RELATIVE_VARIANCE = 1e-20
"""Of values with a smaller variance, relative to their mean square, the total sum of squares is not compared."""


@dataclass(frozen=True, slots=True)
class Losses:
    """The loss of a release.

    Attributes
    ----------
    by_attribute : dict of str to (float or None)
        Loss of each quasi-identifier in its own measure; None if it is not known.
    sse, sst : float or None
        Sums of squares on z-scores (ddof = 0) of the numbers and times that vary; None without numbers and times, or if
        one of them hardly varies.
    """

    by_attribute: dict[str, float | None]
    sse: float | None
    sst: float | None


def measure_losses(
    originals: Originals, found: RecomputedClusters | None, published: Sequence[PublishedValues]
) -> Losses:
    """Return the losses; none is known if the clusters are not. Cost: O(n d)."""
    if found is None:
        return Losses({}, None, None)
    clusters = found.clusters
    members = [np.array(cluster.members) for cluster in clusters]
    texts = [cluster.quasi.split(FIELD_SEPARATOR) for cluster in clusters]
    losses: dict[str, float | None] = {}
    squares: list[tuple[float, int] | None] = []
    for column, one in enumerate(published):
        shown = [own[column] for own in texts]
        values = [originals.values[own, column] for own in members]
        if one.has_moments:
            error = _relative_error(values, [one.number_of(text) for text in shown])
            squares.append(error)
            losses[one.attribute.name] = error[0] if error is not None and error[1] else None
        else:
            categories = originals.categories[column] if originals.categories else None
            losses[one.attribute.name] = _mean_distance(one, values, shown, categories) if clusters else None
    known = [square for square in squares if square is not None]
    if not known or len(known) < len(squares):  # without numbers, or with one that hardly varies
        return Losses(losses, None, None)
    return Losses(losses, sum(ratio * count for ratio, count in known), float(sum(count for _, count in known)))


def _relative_error(values: Sequence[np.ndarray], shown: Sequence[float]) -> tuple[float, int] | None:
    """Return the relative error of members that have a value in clusters that publish one, and their number.

    Equal values have no variance: then both are 0. None if the values hardly differ.
    """
    pairs = [(own[~np.isnan(own)], number) for own, number in zip(values, shown, strict=True) if not math.isnan(number)]
    every = np.concatenate([own for own, _ in pairs]) if pairs else np.zeros(0)
    if not len(every) or every.min() == every.max():
        return 0.0, 0
    errors = np.concatenate([own - number for own, number in pairs])
    total = float(np.sum((every - every.mean()) ** 2))
    # Of nearly equal values, the sum of squares is a rounding error.
    is_varied = total > MIN_RELATIVE_VARIANCE * float(np.sum(every**2))
    return (float(np.sum(errors**2)) / total, len(every)) if is_varied else None


def _mean_distance(
    one: PublishedValues, values: Sequence[np.ndarray], shown: Sequence[str], categories: Categories | None
) -> float:
    total, count = 0.0, 0
    for own, text in zip(values, shown, strict=True):
        count += len(own)
        total += one.total_distance(own.tolist(), text, categories)
    return total / count
