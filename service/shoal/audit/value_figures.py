"""What a summary states of confidential values, recomputed: distances, numbers of values, shares and ``d_y``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from shoal.audit.originals import Originals
from shoal.audit.protected_values import AuditedColumn, number_or_none
from shoal.audit.value_checks import ValueClass, class_distances
from shoal.policy import Attribute, Policy

__all__ = ["Figures", "measure_values"]

Figures: TypeAlias = dict[tuple[str, ...], tuple[float, ...]]
"""The numbers that a summary may state at a path of field names: one, or several that are right."""
_LARGEST = 1e150
"""Sums of squares of larger numbers are not compared."""
_TIE = 1e-9


def measure_values(policy: Policy, originals: Originals, classes: Sequence[ValueClass]) -> Figures:
    """Return the figures of the clusters.

    Returns
    -------
    dict
        With ``l``, ``t`` or ``max_value_share``: ``l.min``, the fewest different values of a cluster, and
        ``value_share.max``. With ``t``: mean and largest distance of each protected attribute, as streams (``emd``)
        and tables (``emd_of``) name them, and that of the attribute with the largest distance, ``emd`` of a table. With
        ``steering.dependence``: ``d_y``, the share of the variation of confidential numbers within clusters.

    Notes
    -----
    Cost: O(n log n) for each confidential attribute.
    """
    found: Figures = {}
    if not classes:
        return found
    if policy.protects_values:
        columns = [AuditedColumn(policy, attribute, originals.released) for attribute in policy.protected]
        counts = [[column.counts(one.unchanged) for one in classes] for column in columns]
        sizes = [len(one.unchanged) for one in classes]
        found["l", "min"] = (min(len(own) for column in counts for own in column),)
        shares = (max(own.values()) / size for column in counts for own, size in zip(column, sizes, strict=True))
        found["value_share", "max"] = (max(shares),)
        if policy.t is not None:
            found |= _distances(policy, originals, classes)
    if policy.dependence > 0:
        within = _variation_within(policy, originals, classes)
        found |= {} if within is None else {("d_y",): (within,)}
    return found


def _distances(policy: Policy, originals: Originals, classes: Sequence[ValueClass]) -> Figures:
    """Return mean and largest distance of each protected attribute, and those of the farthest one.

    Without a reference, versions before l-diversity compared values as they were spelt. Then several figures are right.
    """
    found: Figures = {}
    measured = {attribute: _measured(policy, originals, classes, attribute) for attribute in policy.protected}
    for attribute, pairs in measured.items():
        for group in ("emd", "emd_of"):
            found[group, attribute.name, "mean"] = tuple(mean for mean, _ in pairs)
            found[group, attribute.name, "max"] = tuple(largest for _, largest in pairs)
    largest = max(pairs[0][1] for pairs in measured.values())
    farthest = [pairs for pairs in measured.values() if abs(pairs[0][1] - largest) <= _TIE]
    found["emd", "max"] = tuple(one for pairs in farthest for _, one in pairs)
    found["emd", "mean"] = tuple(one for pairs in farthest for one, _ in pairs)
    return found


def _measured(
    policy: Policy, originals: Originals, classes: Sequence[ValueClass], attribute: Attribute
) -> list[tuple[float, float]]:
    """Return pairs of mean and largest distance: by the keys of values, and without a reference as they are spelt."""
    pairs = []
    for folds in (True, False) if attribute.reference is None else (True,):
        column = AuditedColumn(policy, attribute, originals.released, folds=folds)
        distances = class_distances(originals, column, [column.counts(one.unchanged) for one in classes])
        pairs.append((math.fsum(distances) / len(distances), max(distances)))
    return pairs


def _variation_within(policy: Policy, originals: Originals, classes: Sequence[ValueClass]) -> float | None:
    """Return ``d_y``: the relative sums of squares within clusters, weighted by the numbers of present values.

    None if no attribute varies, or a number is too large. A stream measures the attributes with bounds.
    """
    total, weight = 0.0, 0
    for attribute in policy.dependence_attributes or policy.confidential:
        column = AuditedColumn(policy, attribute, originals.released)
        if not attribute.bounds and not column.is_numeric(originals):
            continue
        groups = [
            np.array(
                [float(number) for key in map(column.key, one.unchanged) if (number := number_or_none(key)) is not None]
            )
            for one in classes
        ]
        values = np.concatenate(groups)
        if not len(values) or np.ptp(values) == 0:
            continue
        if np.abs(values).max() >= _LARGEST:
            return None
        within = math.fsum(float(((own - own.mean()) ** 2).sum()) for own in groups if len(own))
        total += within / float(((values - values.mean()) ** 2).sum()) * len(values)
        weight += len(values)
    return total / weight if weight else None
