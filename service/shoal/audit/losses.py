"""The loss of each quasi-identifier in its own measure, recomputed from the original and the published values.

Of a number or a time it is the sum of squared errors over the total sum of squares, of the members that have a value
and whose cluster publishes one. Of an ordinal attribute it is the mean distance of ranks over the largest one, and of a
nominal attribute the mean distance in the taxonomy, or the share of records whose category is not published. A missing
value is at distance 1 from every other.

In a stream, a time may be a clock: less than half of its total sum of squares is left if the mean of each window of
delta + 1 offsets of a partition is taken away. Then the sum of squared errors is over what is left, at most 1.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shoal.audit.clusters import RecomputedClusters
from shoal.audit.evidence import Summary
from shoal.audit.fields import FIELD_SEPARATOR
from shoal.audit.originals import Originals
from shoal.audit.published_values import PublishedValues
from shoal.audit.scales import Categories
from shoal.policy import Scale

__all__ = ["SQUARES", "Losses", "measure_losses"]

SQUARES = frozenset({"sse", "sst", "information_loss", "d_x"})
"""Fields of a summary that follow from the sums of squares on z-scores."""
MIN_RELATIVE_VARIANCE = 1e-20
"""Of values with a smaller variance, relative to their mean square, the total sum of squares is not compared."""


HALF_TOLERANCE = 1e-6
"""If this share around one half of the sum of squares is left, rounding decides whether a time is a clock."""


@dataclass(frozen=True, slots=True)
class Losses:
    """The loss of a release.

    Attributes
    ----------
    by_attribute : dict of str to (float or None)
        Loss of each quasi-identifier in its own measure; None if it has none or is not known.
    sse, sst : float or None
        Sums of squares on z-scores (ddof = 0) of the numbers and times that vary; None without numbers and times, or if
        one of them hardly varies.
    mean : float or None
        Mean of the losses of attributes that have one; None if one of them is not known, or none has one.
    clocks : list of str or None
        Times of which a trend is removed; None of a table, and if it is not known of all times.
    """

    by_attribute: dict[str, float | None]
    sse: float | None
    sst: float | None
    mean: float | None = None
    clocks: list[str] | None = None


class _Squares(NamedTuple):
    """Squared error, total sum of squares, and number of values; all are 0 if the values are equal."""

    error: float
    total: float
    members: int


def measure_losses(
    summary: Summary,
    originals: Originals,
    found: RecomputedClusters | None,
    published: Sequence[PublishedValues],
    window: int | None,
) -> Losses | None:
    """Return the losses; None if the clusters are not known, or the summary states no loss. Cost: O(n d).

    Parameters
    ----------
    summary : mapping
    originals : Originals
    found : RecomputedClusters or None
    published : sequence of PublishedValues
    window : int or None
        As of `AuditScope`. A summary without ``clocks`` is of an earlier version, which removed no trend.
    """
    if found is None or summary.keys().isdisjoint({"loss", "mean_loss", "clocks", *SQUARES}):
        return None
    window = window if "clocks" in summary else None
    clusters = found.clusters
    members = [np.array(cluster.members) for cluster in clusters]
    texts = [cluster.quasi.split(FIELD_SEPARATOR) for cluster in clusters]
    losses: dict[str, float | None] = {}
    squares: list[_Squares | None] = []
    clocks: dict[str, bool | None] = {}
    for column, one in enumerate(published):
        shown, name = [own[column] for own in texts], one.attribute.name
        values = [originals.values[own, column] for own in members]
        if not one.has_moments:
            categories = originals.categories[column] if originals.categories else None
            losses[name] = _mean_distance(one, values, shown, categories) if clusters else None
            continue
        numbers = [one.number_of(text) for text in shown]
        own_squares = _squares(values, numbers)
        squares.append(own_squares)
        total = 0.0 if own_squares is None else own_squares.total
        if window is not None and one.attribute.scale is Scale.TIME:
            left = _left_after_trend(originals, members, values, numbers, window)
            clocks[name] = _is_clock(left, own_squares)
            total = left if clocks[name] else total
        is_known = own_squares is not None and clocks.get(name, False) is not None
        loss = own_squares.error / total if own_squares is not None and is_known and total else None
        losses[name] = min(loss, 1.0) if loss is not None and clocks.get(name) else loss
    are_clocks_known, known = None not in clocks.values(), [loss for loss in losses.values() if loss is not None]
    is_mean_known = bool(known) and None not in squares and are_clocks_known
    return Losses(
        losses,
        *_sums(squares),
        mean=sum(known) / len(known) if is_mean_known else None,
        clocks=[name for name, is_one in clocks.items() if is_one] if window is not None and are_clocks_known else None,
    )


def _sums(squares: Sequence[_Squares | None]) -> tuple[float | None, float | None]:
    """Return the sums of squares on z-scores; None without numbers and times, or if one of them hardly varies."""
    known = [square for square in squares if square is not None]
    if not known or len(known) < len(squares):
        return None, None
    sse = sum(square.error / square.total * square.members for square in known if square.members)
    return sse, float(sum(square.members for square in known))


def _squares(values: Sequence[np.ndarray], shown: Sequence[float]) -> _Squares | None:
    """Return the sums of the members that have a value in clusters that publish one; None if they hardly differ."""
    pairs = [(own[~np.isnan(own)], number) for own, number in zip(values, shown, strict=True) if not math.isnan(number)]
    every = np.concatenate([own for own, _ in pairs]) if pairs else np.zeros(0)
    if not len(every) or every.min() == every.max():
        return _Squares(0.0, 0.0, 0)
    errors = np.concatenate([own - number for own, number in pairs])
    total = float(np.sum((every - every.mean()) ** 2))
    # Of nearly equal values, the sum of squares is a rounding error.
    is_varied = total > MIN_RELATIVE_VARIANCE * float(np.sum(every**2))
    return _Squares(float(np.sum(errors**2)), total, len(every)) if is_varied else None


def _left_after_trend(
    originals: Originals,
    members: Sequence[np.ndarray],
    values: Sequence[np.ndarray],
    shown: Sequence[float],
    window: int,
) -> float:
    """Return the squared deviations of times from the means of their windows, in whole numbers but for the last step.

    Parameters
    ----------
    originals : Originals
    members, values : sequence of ndarray
        Of each cluster: indices of its members and their times (whole milliseconds).
    shown : sequence of float
        What each cluster publishes; NaN if it is missing.
    window : int
        Offsets of a window.
    """
    times: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for indices, own, number in zip(members, values, shown, strict=True):
        known = ~np.isnan(own) if not math.isnan(number) else np.zeros(len(own), np.bool_)
        places = indices[known]
        windows = originals.offsets[places] // window
        found = zip(originals.partitions[places].tolist(), windows.tolist(), own[known].tolist(), strict=True)
        for partition, number_of_window, time in found:
            times[partition, number_of_window].append(int(time))
    return float(sum((len(own) * sum(one * one for one in own) - sum(own) ** 2) / len(own) for own in times.values()))


def _is_clock(left: float, squares: _Squares | None) -> bool | None:
    """Return whether less than half of the sum of squares is left after the trend; None if that is not known."""
    if squares is None or (squares.total and abs(2 * left - squares.total) <= HALF_TOLERANCE * squares.total):
        return None
    return 2 * left < squares.total


def _mean_distance(
    one: PublishedValues, values: Sequence[np.ndarray], shown: Sequence[str], categories: Categories | None
) -> float:
    total, count = 0.0, 0
    for own, text in zip(values, shown, strict=True):
        count += len(own)
        total += one.total_distance(own.tolist(), text, categories)
    return total / count
