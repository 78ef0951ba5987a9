"""Measures what k-anonymity does not cover and a reader of the verdict should know.

Fields that are published unchanged are measured one by one on the originals: unique values identify records, and values
that follow the order of arrival reveal when a record arrived. They are warnings; ``strict`` makes them a check.
`joint_uniqueness` measures fields together, on the released rows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from shoal.audit.clusters import RecomputedClusters
from shoal.audit.fields import FIELD_SEPARATOR
from shoal.audit.homogeneity import measure_homogeneity, value_classes
from shoal.audit.joint_uniqueness import MAX_UNIQUE_SHARE, MIN_RECORDS, JointUniqueness
from shoal.audit.order_information import measure_order_information
from shoal.audit.originals import Originals
from shoal.audit.releases import ReleasedRows
from shoal.audit.scales import decimal_number
from shoal.audit.verdict import CheckCounter
from shoal.policy import Policy

__all__ = ["UnchangedField", "check_unchanged_fields", "measure_release", "measure_unchanged_fields"]

MAX_ORDER_CORRELATION = 0.5
"""A larger rank correlation with the order of arrival is a warning."""
MAX_ORDER_FIELDS = 5
"""Of more fields, those with the fewest values are measured together: at most 20 sets of two and three."""


@dataclass(frozen=True, slots=True)
class UnchangedField:
    """A field that is published unchanged, or several together, and how well they identify records.

    Attributes
    ----------
    name : str
        Of several fields, their names joined by ``+``.
    unique_share : float or None
        Share of the values that occur in one record only; nulls and empty cells do not count. None for fewer than 30
        usable records, and for several fields.
    order_correlation : float or None
        Largest absolute rank correlation (Spearman) with the order of arrival in a partition. None as above.
    order_information : float or None
        Most bits that the value reveals of the position in a partition, by trends, runs or periods; 0 if below 0.2 or
        not significant (`measure_order_information`). None as above.
    is_acknowledged : bool
        Whether the policy sets ``publish_unchanged`` for it, or for each of several.
    is_combined : bool
        Whether these are several fields.
    """

    name: str
    unique_share: float | None
    order_correlation: float | None
    is_acknowledged: bool
    order_information: float | None = None
    is_combined: bool = False

    def warnings(self) -> list[str]:
        """Return a sentence for each way to identify a record by this field, without values."""
        remedy = "" if self.is_acknowledged else "; set publish_unchanged: true if this is intended"
        found = []
        if self.unique_share is not None and self.unique_share > MAX_UNIQUE_SHARE:
            found.append(
                f"{self.name} is published unchanged and {self.unique_share:.0%} of its values are unique: "
                f"a known value identifies its record{remedy}"
            )
        if self.order_correlation is not None and self.order_correlation > MAX_ORDER_CORRELATION:
            found.append(
                f"{self.name} is published unchanged and follows the order of arrival "
                f"(rank correlation {self.order_correlation:.2f}): it reveals when a record arrived{remedy}"
            )
        elif self.order_information:
            found.append(
                f"{self.name} {'are' if self.is_combined else 'is'} published unchanged and "
                f"{'together depend' if self.is_combined else 'depends'} on the position in the order of arrival "
                f"({self.order_information:.2f} bits of mutual information, p < 1e-6): this reveals when a record "
                f"arrived{remedy}"
            )
        return found


def measure_release(
    policy: Policy,
    originals: Originals,
    release: ReleasedRows,
    clusters: RecomputedClusters | None,
    unchanged: Sequence[UnchangedField],
    joint: Sequence[JointUniqueness],
) -> dict[str, float | int | None]:
    """Return the measures of the verdict.

    Returns
    -------
    dict
        If the clusters are known: ``releases_per_subject_max`` and ``releases_per_subject_mean`` (over released
        subjects) and ``largest_share`` (of one subject in a cluster). Those of `measure_homogeneity`, of clusters or
        else of rows with equal quasi-identifiers. For each field that is published unchanged: ``unique_share.NAME``,
        ``order_correlation.NAME`` and ``order_information.NAME``; the last one also for fields that depend on the order
        of arrival only together. For each of `joint`: ``joint_unique_share.NAMES``. Several names are joined by ``+``.
    """
    found: dict[str, float | int | None] = {} if clusters is None else _measure_clusters(originals, clusters)
    found |= measure_homogeneity(policy, originals, value_classes(clusters, release))
    for field in unchanged:
        if field.is_combined:
            found[f"order_information.{field.name}"] = field.order_information
            continue
        found[f"unique_share.{field.name}"] = field.unique_share
        found[f"order_correlation.{field.name}"] = field.order_correlation
        found[f"order_information.{field.name}"] = field.order_information
    return found | {f"joint_unique_share.{'+'.join(one.names)}": one.share for one in joint}


def _measure_clusters(originals: Originals, found: RecomputedClusters) -> dict[str, float | int | None]:
    members = [index for cluster in found.clusters for index in cluster.members]
    counts = np.bincount(originals.subjects[members]) if members else np.zeros(0, dtype=np.int64)
    released = counts[counts > 0]
    return {
        "releases_per_subject_max": int(released.max()) if released.size else None,
        "releases_per_subject_mean": float(released.mean()) if released.size else None,
        "largest_share": found.largest_share,
    }


def measure_unchanged_fields(policy: Policy, originals: Originals) -> list[UnchangedField]:
    """Measure the fields that are published unchanged on the usable originals.

    Returns
    -------
    list of UnchangedField
        Each field; then the sets of two and three fields that depend on the order of arrival, none of which identifies
        records by itself.

    Notes
    -----
    A position can be split over several fields, of which none depends on it: a random bit, and its sum with the last
    bit of the position. Of more than five fields, those with the fewest values are combined.

    Cost: O(n log n) per field and set of fields.
    """
    # The lines of an export may be in any order; the order of arrival is that of the offsets.
    by_offset = np.argsort(originals.offsets, kind="stable").tolist()
    usable = [index for index in by_offset if originals.is_usable(index)]
    if len(usable) < MIN_RECORDS:
        return [
            UnchangedField(attribute.name, None, None, attribute.publish_unchanged)
            for attribute in policy.unchanged_fields
        ]
    texts = [text.split(FIELD_SEPARATOR) for text in originals.unchanged_of(usable)]
    partitions, offsets = originals.partitions[usable], originals.offsets[usable]
    parts = [np.flatnonzero(partitions == one) for one in np.unique(partitions)]
    found, columns = [], []
    for column, attribute in enumerate(policy.unchanged_fields):
        values = [text[column] for text in texts]
        ranks = _ranks(values)
        columns.append(_codes(values))
        correlation = max(abs(_order_correlation(ranks[part])) for part in parts)
        information = _information(columns[-1], ranks, offsets, parts)
        unique_share = _unique_share(values)
        found.append(
            UnchangedField(attribute.name, unique_share, correlation, attribute.publish_unchanged, information)
        )
    return found + _measure_combined(found, columns, offsets, parts)


def _measure_combined(
    found: Sequence[UnchangedField],
    columns: Sequence[npt.NDArray[np.int64]],
    offsets: npt.NDArray[np.int64],
    parts: Sequence[npt.NDArray[np.int64]],
) -> list[UnchangedField]:
    """Return the smallest sets of two and three harmless fields that depend on the order of arrival."""
    harmless = sorted((n for n, field in enumerate(found) if not field.warnings()), key=lambda n: columns[n].max())
    chosen = sorted(harmless[:MAX_ORDER_FIELDS])
    together: list[frozenset[int]] = []
    sets: list[UnchangedField] = []
    for members in (frozenset(one) for size in (2, 3) for one in combinations(chosen, size)):
        if any(smaller < members for smaller in together):
            continue
        names = sorted(members)
        codes = np.unique(np.column_stack([columns[n] for n in names]), axis=0, return_inverse=True)[1].ravel()
        if information := _information(codes, None, offsets, parts):
            together.append(members)
            label, accepted = "+".join(found[n].name for n in names), all(found[n].is_acknowledged for n in names)
            sets.append(UnchangedField(label, None, None, accepted, information, is_combined=True))
    return sets


def _information(
    codes: npt.NDArray[np.int64],
    ranks: npt.NDArray[np.float64] | None,
    offsets: npt.NDArray[np.int64],
    parts: Sequence[npt.NDArray[np.int64]],
) -> float:
    """Return the most bits that a column reveals of the position in a partition."""
    measured = (
        measure_order_information(codes[part], None if ranks is None else ranks[part], offsets[part]) for part in parts
    )
    return max(found.bits for found in measured)


def _codes(values: Sequence[str]) -> npt.NDArray[np.int64]:
    known: dict[str, int] = {}
    return np.array([known.setdefault(value, len(known)) for value in values], dtype=np.int64)


def check_unchanged_fields(unchanged: Sequence[UnchangedField]) -> CheckCounter:
    """Check that no field identifies records unless the policy acknowledges it."""
    claim = "no field that identifies records is published unchanged, unless the policy sets publish_unchanged for it"
    check = CheckCounter("unchanged", claim, "field")
    for field in unchanged:
        check.expect(field.is_acknowledged or not field.warnings(), field.name)
    if not unchanged:
        check.skip("no field is published unchanged")
    return check


def _unique_share(values: Sequence[str]) -> float:
    counts = Counter(values)
    for empty in ("null", '""'):  # the second is an empty cell
        counts.pop(empty, None)
    return sum(count == 1 for count in counts.values()) / max(1, sum(counts.values()))


def _ranks(values: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return mean ranks, by number if all values are numbers and by code points otherwise; NaN for nulls."""
    known = sorted({value for value in values if value != "null"})
    numbers = {value: _number(value) for value in known}
    if all(number is not None for number in numbers.values()):
        known.sort(key=lambda value: numbers[value] or 0.0)
    codes = {value: code for code, value in enumerate(known)}
    column = np.array([codes.get(value, -1) for value in values], dtype=np.int64)
    counts = np.bincount(column[column >= 0], minlength=len(known))
    ranks = np.append(np.cumsum(counts) - (counts - 1) / 2, np.nan)
    return np.asarray(ranks[column], dtype=np.float64)


def _number(text: str) -> float | None:
    return decimal_number(json.loads(text) if text.startswith('"') else text)


def _order_correlation(ranks: npt.NDArray[np.float64]) -> float:
    """Return the correlation of ranks with positions; 0 for fewer than 30 values or equal ones."""
    positions = np.flatnonzero(~np.isnan(ranks)).astype(np.float64)
    known = ranks[~np.isnan(ranks)]
    if known.size < MIN_RECORDS or np.ptp(known) == 0:
        return 0.0
    return float(np.corrcoef(known, positions)[0, 1])
