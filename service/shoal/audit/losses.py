"""The loss of each quasi-identifier in its own measure, recomputed from the original and the published values.

Of a number or a time it is the sum of squared errors over the total sum of squares, of the members that have a value
and whose cluster publishes one. Of an ordinal attribute it is the mean distance of ranks over the largest one, and of a
nominal attribute the mean distance in the taxonomy, or the share of records whose category is not published. A missing
value is at distance 1 from every other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shoal.audit.clusters import RecomputedClusters
from shoal.audit.fields import FIELD_SEPARATOR
from shoal.audit.originals import Originals
from shoal.audit.published_values import PublishedValues
from shoal.audit.scales import Categories

__all__ = ["attribute_losses"]


def attribute_losses(
    originals: Originals, found: RecomputedClusters | None, published: Sequence[PublishedValues]
) -> dict[str, float | None]:
    """Return the loss by name; None if there are no clusters, or if all numbers are equal. Cost: O(n d)."""
    clusters = [] if found is None else found.clusters
    members = [np.array(cluster.members) for cluster in clusters]
    texts = [cluster.quasi.split(FIELD_SEPARATOR) for cluster in clusters]
    losses: dict[str, float | None] = {}
    for column, one in enumerate(published):
        shown = [own[column] for own in texts]
        values = [originals.values[own, column] for own in members]
        categories = originals.categories[column] if originals.categories else None
        if not clusters:
            losses[one.attribute.name] = None
        elif one.has_moments:
            losses[one.attribute.name] = _relative_error(values, [one.number_of(text) for text in shown])
        else:
            losses[one.attribute.name] = _mean_distance(one, values, shown, categories)
    return losses


def _relative_error(values: Sequence[np.ndarray], shown: Sequence[float]) -> float | None:
    pairs = [
        (own - number)[~np.isnan(own)] for own, number in zip(values, shown, strict=True) if not math.isnan(number)
    ]
    present = [own[~np.isnan(own)] for own, number in zip(values, shown, strict=True) if not math.isnan(number)]
    if not present:
        return None
    error, every = np.concatenate(pairs), np.concatenate(present)
    total = float(np.sum((every - every.mean()) ** 2)) if len(every) else 0.0
    return float(np.sum(error**2)) / total if total > 0 else None


def _mean_distance(
    one: PublishedValues, values: Sequence[np.ndarray], shown: Sequence[str], categories: Categories | None
) -> float:
    total, count = 0.0, 0
    for own, text in zip(values, shown, strict=True):
        count += len(own)
        total += one.total_distance(own.tolist(), text, categories)
    return total / count
