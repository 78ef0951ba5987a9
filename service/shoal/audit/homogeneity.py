"""Measures how much of a release shows confidential values to a reader who knows in which cluster a person is."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.audit.clusters import RecomputedClusters
from shoal.audit.originals import Originals
from shoal.audit.protected_values import AuditedColumn
from shoal.audit.published_values import NO_VALUE
from shoal.audit.releases import ReleasedRows
from shoal.audit.scope import AuditScope
from shoal.audit.value_checks import ValueClass, check_values
from shoal.audit.verdict import CheckCounter
from shoal.policy import Policy

__all__ = ["check_values_of_rows", "known_classes", "measure_homogeneity", "value_classes"]


def known_classes(found: RecomputedClusters | None) -> list[ValueClass]:
    """Return the clusters; empty if they are not known."""
    return [] if found is None else [ValueClass(cluster.label, cluster.unchanged) for cluster in found.clusters]


def value_classes(found: RecomputedClusters | None, release: ReleasedRows) -> list[ValueClass]:
    """Return the clusters; if they are not known, the rows of each partition with equal quasi-identifiers.

    Such rows are of one or more whole clusters. They are named by their first row.
    """
    if found is not None:
        return known_classes(found)
    classes: dict[tuple[int, str], tuple[int, list[str]]] = {}
    for partition, rows in release.by_partition.items():
        for line, quasi, unchanged in zip(rows.lines, rows.quasi, rows.unchanged, strict=True):
            if quasi != NO_VALUE:
                classes.setdefault((partition, quasi), (line, []))[1].append(unchanged)
    return [ValueClass(line, unchanged) for line, unchanged in classes.values()]


def check_values_of_rows(
    policy: Policy, originals: Originals, release: ReleasedRows, scope: AuditScope
) -> list[CheckCounter]:
    """Return the checks of `check_values` on rows with equal quasi-identifiers, where the clusters are not known.

    With ``release: ordered`` some rows of a cluster may not be published yet, so nothing is examined.
    """
    if not scope.is_ordered:
        return check_values(policy, originals, value_classes(None, release), unit="row")
    checks = check_values(policy, originals, [], unit="row")
    for check in checks:
        check.skip("without evidence the clusters of an ordered release are not known")
    return checks


def measure_homogeneity(
    policy: Policy, originals: Originals, classes: Sequence[ValueClass]
) -> dict[str, float | int | None]:
    """Return measures of each confidential attribute.

    Returns
    -------
    dict
        ``single_value_share.NAME``: the share of clusters in which all records have the same value, whatever its
        spelling. ``single_value_records.NAME``: the share of records in such clusters. None without clusters.
    """
    measures: dict[str, float | int | None] = {}
    records = sum(len(one.unchanged) for one in classes)
    for attribute in policy.confidential:
        column = AuditedColumn(policy, attribute, originals.released)
        single = [one for one in classes if len(column.counts(one.unchanged)) == 1]
        measures[f"single_value_share.{attribute.name}"] = len(single) / len(classes) if classes else None
        shown = sum(len(one.unchanged) for one in single)
        measures[f"single_value_records.{attribute.name}"] = shown / records if records else None
    return measures
