"""The held records of a stream as a table whose clusters must satisfy a protection."""

from __future__ import annotations

from functools import cache

import numpy as np

from shoal.arrays import Float64Matrix, Int32Vector, Int64Matrix, Int64Vector
from shoal.clustering.diversity import (
    DISTINCT,
    EQUAL,
    NO_L,
    DiversityRule,
    LDiversity,
    ValueReference,
    build_diversity_rule,
)
from shoal.clustering.static.constraints import ClusterConstraints, merge_until_feasible, violating_clusters
from shoal.clustering.static.emd import ConfidentialAttribute
from shoal.clustering.static.microaggregation import refined
from shoal.clustering.static.refinement import refine
from shoal.clustering.static.repair import repair_by_swaps
from shoal.clustering.stream.dominance import NO_DOMINANCE
from shoal.clustering.stream.expiry import StreamConstraints
from shoal.clustering.stream.held_records import HeldRecords, empty_held
from shoal.clustering.stream.protection import Protection
from shoal.clustering.stream.steering import NO_TARGET
from shoal.errors import AnonymityViolation

__all__ = ["HeldTable", "precompile_table"]

ARTIFICIAL_RECORDS = 64
"""Records that are partitioned to compile all kernels, at least: enough clusters to be merged in pairs."""


class HeldTable:
    """The held records as a table, with what clusters must satisfy.

    Parameters
    ----------
    held : HeldRecords
    points : ndarray of float64, shape (n, d)
        Coordinates of the n held records, also for categories and the weighted position.
    constraints : StreamConstraints
    protection : Protection
    """

    def __init__(
        self, held: HeldRecords, points: Float64Matrix, constraints: StreamConstraints, protection: Protection
    ) -> None:
        head, tail = held.extent.tolist()
        codes, subjects = held.codes[len(held.code_distances) :, head:tail], held.subjects[head:tail]
        self._points, self._k, self._has_t = np.ascontiguousarray(points), constraints.k, protection.has_bins
        self._constraints = _cluster_constraints(
            protection, codes.astype(np.int64), np.unique(subjects, return_inverse=True)[1], constraints.max_share
        )

    def partition(self) -> Int32Vector | None:
        """Return the clusters of the table (n,); None if no partition satisfies the constraints."""
        algorithm = "auto" if self._has_t else "mdav"
        try:
            return refined(self._points, self._k, algorithm, "descent", constraints=self._constraints).labels
        except AnonymityViolation:
            return None

    def exchange(self, labels: Int32Vector) -> Int32Vector:
        """Return a partition (n,) whose violating clusters exchanged records with near ones."""
        return repair_by_swaps(self._points, labels, self._k, self._constraints)

    def repaired(self, labels: Int32Vector) -> Int32Vector | None:
        """Return a partition whose violating clusters exchanged records or were merged; None if in vain.

        With t they are merged at once, and descent follows: it splits what has been merged without need.
        """
        labels = np.unique(labels, return_inverse=True)[1].astype(np.int32)
        if self._constraints.limit_values and not self._has_t:
            labels = self.exchange(labels)
        labels = merge_until_feasible(self._points, labels, self._k, self._constraints)
        if violating_clusters(labels, self._k, self._constraints).any():
            return None
        if self._has_t:
            labels = refine(self._points, [labels], self._k, "descent", constraints=self._constraints).labels
        return labels


@cache
def precompile_table(*, has_t: bool, limits_values: bool) -> None:
    """Compile the kernels of `HeldTable`, once, by partitioning artificial records."""
    count, k = ARTIFICIAL_RECORDS, 4
    rule = build_diversity_rule(
        [ValueReference(EQUAL, np.array([1.0, 0.0]))],
        l=LDiversity(DISTINCT, 2.0) if limits_values else None,
        t=np.nextafter(1.0, 0.0) if has_t else None,
    )
    protection = Protection(rule, 1)
    held = empty_held(count, 1, 0, protected=protection.rows)
    held.extent[:], held.subjects[:] = (0, count), np.arange(count)
    held.codes[0] = np.arange(count) % 2
    constraints = StreamConstraints(k, count, np.zeros(1), 1.0, np.zeros(0, np.int64), 0, NO_DOMINANCE, NO_TARGET)
    points = np.stack([np.arange(count) % 7, np.arange(count) % 11], axis=1).astype(np.float64)
    table = HeldTable(held, points, constraints, protection)
    table.partition()
    table.repaired(np.arange(count, dtype=np.int32))
    if limits_values:
        table.exchange(np.arange(count, dtype=np.int32))


def _cluster_constraints(
    protection: Protection, codes: Int64Matrix, subjects: Int64Vector, max_share: float
) -> ClusterConstraints:
    """Return what the clusters of a table must satisfy."""
    rule, q = protection.rule, protection.attributes
    attributes = []
    for attribute in range(q):
        values = np.unique(codes[attribute], return_inverse=True)[1]
        bins = codes[q + attribute] if protection.has_bins else values
        reference = _reference(rule, attribute) if protection.has_bins else None
        attributes.append(ConfidentialAttribute(bins, ordered=False, reference=reference, values=values))
    return ClusterConstraints(
        subjects=subjects if len(subjects) and subjects.max() + 1 < len(subjects) else None,
        max_share=max_share,
        confidential=tuple(attributes),
        t=rule.t if protection.has_bins else None,
        l=None if rule.l_kind == NO_L else LDiversity(rule.l_kind, rule.l, rule.c),
        max_value_share=rule.max_value_share if rule.max_value_share < 1.0 else None,
    )


def _reference(rule: DiversityRule, attribute: int) -> ValueReference:
    """Return the reference of an attribute."""
    part, levels = slice(rule.bin_bounds[attribute], rule.bin_bounds[attribute + 1]), int(rule.levels[attribute])
    paths = rule.paths[part, :levels] if levels else None
    return ValueReference(int(rule.distances[attribute]), rule.shares[part], paths)
