"""Measures what k-anonymity does not cover and a reader of the verdict should know; ``strict`` checks some of it.

Unchanged fields are measured one by one on the originals: unique values identify records, and values that follow the
order of arrival reveal it. A reader that knows several fields of a person finds a row that agrees with no other in all
of them. k counts subjects as the policy normalises them: if two are spellings of one person, a cluster holds fewer
people than it seems.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, compress

import numpy as np
import numpy.typing as npt

from shoal.audit.clusters import RecomputedCluster, RecomputedClusters, members_of, starts_of
from shoal.audit.confidential import AuditedColumn, ValueClass, check_values, number_or_none
from shoal.audit.evidence import AuditScope
from shoal.audit.fields import FIELD_SEPARATOR, ChosenTexts, Int64Vector, Texts, field_codes, text_codes
from shoal.audit.originals import UNUSABLE, Originals
from shoal.audit.releases import ReleasedRows
from shoal.audit.scales import NO_VALUE, PublishedCategories, PublishedValues, decimal_number
from shoal.audit.verdict import CheckCounter, Finding, counted, percent
from shoal.policy import Policy

MIN_RECORDS = 30  # with fewer records most values are unique and most correlations are large by chance
MAX_UNIQUE_SHARE = 0.05  # a larger share of unique values, or of rows that agree with no other, is a warning
MIN_IDENTIFIER_SHARE = 0.9  # a field with a larger share of unique values that are no numbers looks like an identifier
_NO_TEXTS = frozenset({"null", '""'})  # the second is an empty cell
MAX_FIELDS = 3  # most unchanged fields that are combined
MAX_JOINT_FIELDS = 12
"""Of more fields, those that single out most rows by themselves are combined: at most 286 sets of two and three."""
MAX_ORDER_CORRELATION = 0.5  # a larger rank correlation with the order of arrival is a warning
_CATEGORY = 0.02  # width of a category of a confidential number, in standard deviations
_LARGEST = 1e150  # larger numbers have no sum of squares
_MOST_PAIRS, _FEWEST_LINKED = 200_000_000, 100
"""Most pairs of a cluster and a record that distance linkage compares, in not fewer clusters than these."""


def known_classes(found: RecomputedClusters | None) -> list[ValueClass]:
    """Return the clusters; empty if they are not known."""
    return [] if found is None else [ValueClass(one.label, one.unchanged, one.members) for one in found.clusters]


def value_classes(found: RecomputedClusters | None, release: ReleasedRows) -> list[ValueClass]:
    """Return the clusters; if they are not known, the rows of a partition with equal quasi-identifiers."""
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
    """Return the checks of `check_values` on rows with equal quasi-identifiers, where the clusters are not known."""
    subjects = originals.subjects[originals.subjects != UNUSABLE]
    has_one_record_each = len(np.unique(subjects)) == len(subjects)
    if has_one_record_each and not scope.is_ordered:
        return check_values(policy, originals, value_classes(None, release), unit="row")
    checks = check_values(policy, originals, [], unit="row")
    unknown = "the clusters of an ordered release" if scope.is_ordered else "the people of a cluster"
    for check in checks:
        check.skip(f"without evidence {unknown} are not known")
    return checks


def measure_homogeneity(
    policy: Policy, originals: Originals, classes: Sequence[ValueClass]
) -> dict[str, float | int | None]:
    """Return the shares of clusters and of their records in which all have one value of a confidential attribute."""
    measures: dict[str, float | int | None] = {}
    records = sum(len(one.unchanged) for one in classes)
    for attribute in policy.confidential:
        column = AuditedColumn(policy, attribute, originals.released)
        single = list(compress(classes, _have_one_key(column, classes)))
        measures[f"single_value_share.{attribute.name}"] = len(single) / len(classes) if classes else None
        shown = sum(len(one.unchanged) for one in single)
        measures[f"single_value_records.{attribute.name}"] = shown / records if records else None
    return measures


def _have_one_key(column: AuditedColumn, classes: Sequence[ValueClass]) -> list[bool]:
    """Return whether all values of each class are one."""
    chosen = [one.unchanged for one in classes if isinstance(one.unchanged, ChosenTexts) and len(one.unchanged)]
    every = chosen[0].every if chosen else None
    if not isinstance(every, Texts) or len(chosen) < len(classes) or any(one.every is not every for one in chosen):
        return [len(column.counts(one.unchanged)) == 1 for one in classes]
    few, of_few = every.distinct(np.concatenate([one.places for one in chosen]))
    codes = text_codes(len(few), lambda place: column.key(every[int(few[place])]))[of_few]
    ends = np.cumsum([len(one) for one in chosen])
    starts = np.concatenate(([0], ends[:-1]))
    found: list[bool] = (np.maximum.reduceat(codes, starts) == np.minimum.reduceat(codes, starts)).tolist()
    return found


def linked_share(
    originals: Originals, clusters: Sequence[RecomputedCluster], published: Sequence[PublishedValues]
) -> float | None:
    """Return ``dld``: the share of records that distance linkage finds; None without numbers, ranks and times.

    Both sides are z-scores. A published row is linked to the nearest released original, to each of m equally near ones
    with probability 1 / m; a missing value counts as the mean. Of a large release some clusters are measured, evenly
    chosen. Cost: O(n d) for each of them.
    """
    columns = [column for column, one in enumerate(published) if not isinstance(one, PublishedCategories)]
    if not columns or not clusters:
        return None
    members, starts = members_of(clusters), starts_of(clusters)
    sizes = np.diff(starts, append=len(members))
    texts = [cluster.quasi.split(FIELD_SEPARATOR) for cluster in clusters]
    rows = [_standardised(originals.values[members, column]) for column in columns]
    points = [
        _standardised(np.repeat([published[column].number_of(own[column]) for own in texts], sizes))[starts]
        for column in columns
    ]
    count = min(len(clusters), max(_MOST_PAIRS // len(members), _FEWEST_LINKED))
    chosen, links = np.arange(count) * len(clusters) // count, 0.0
    for place in chosen.tolist():
        away = np.zeros(len(members))
        for row, point in zip(rows, points, strict=True):
            away += np.square(row - point[place])
        is_nearest = away <= away.min() * (1 + 1e-12)
        own = is_nearest[starts[place] : starts[place] + sizes[place]]
        links += np.count_nonzero(own) / np.count_nonzero(is_nearest)
    return float(links / sizes[chosen].sum())


def _standardised(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return z-scores (ddof = 0): 0 for a missing value, one beyond 1e150, and where all are equal."""
    is_known = np.abs(values) < _LARGEST
    filled = np.where(is_known, values, values[is_known].mean() if is_known.any() else 0.0)
    found: npt.NDArray[np.float64] = (filled - filled.mean()) / (filled.std() if np.ptp(filled) else 1.0)
    return found


def mean_of_fewest_values(policy: Policy, originals: Originals, classes: Sequence[ValueClass]) -> float | None:
    """Return ``l_avg``: the fewest values of any confidential number of a cluster, mean over clusters; None without.

    Numbers are a value if they round to the same multiple of 0.02 standard deviations; missing ones are one value.
    """
    fewest: list[int] = []
    for attribute in policy.confidential if classes else ():
        column = AuditedColumn(policy, attribute, originals.released)
        if not column.is_numeric(originals):
            continue
        found = [number_or_none(column.key(text)) for one in classes for text in one.unchanged]
        numbers = np.array([math.nan if number is None else float(number) for number in found])
        categories = np.where(np.abs(numbers) < _LARGEST, np.rint(_standardised(numbers) / _CATEGORY), math.inf)
        ends = np.cumsum([len(one.unchanged) for one in classes])[:-1]
        different = [len(np.unique(own)) for own in np.split(categories, ends)]
        fewest = list(map(min, fewest, different)) if fewest else different
    return sum(fewest) / len(fewest) if fewest else None


@dataclass(frozen=True, slots=True)
class JointUniqueness:
    """Rows that are the only ones of their partition with their quasi-identifiers and some unchanged fields."""

    names: tuple[str, ...]
    rows: int
    unique: int
    classes: int
    are_known: bool  # the policy says of each field that others may know it: role ``other``, or ``publish_unchanged``

    @property
    def share(self) -> float:
        """Share of unique rows."""
        return self.unique / self.rows

    def warnings(self) -> list[Finding]:
        """Return a finding if known fields single out too many rows."""
        if not self.are_known or self.share <= MAX_UNIQUE_SHARE:
            return []
        text = (
            f"published values together with {', '.join(self.names)}: {self.unique} of {self.rows} rows "
            f"({percent(self.share)}) in {self.classes} classes agree with no other row: a person of whom these fields "
            "are known is found"
        )
        remedy = "declare them as quasi-identifiers, or leave them out"
        figures = {"rows": self.unique, "share": self.share, "classes": self.classes}
        return [Finding("known_together", text, remedy, figures, self.names)]


def measure_joint_uniqueness(policy: Policy, release: ReleasedRows) -> list[JointUniqueness]:
    """Measure each unchanged field, and the worst sets of two and three that others may know, of 30 rows or more."""
    published, columns = _columns(len(policy.unchanged_fields), release)
    if len(published) < MIN_RECORDS:
        return []
    is_known = [attribute.publish_unchanged for attribute in policy.unchanged_fields]
    names = [attribute.name for attribute in policy.unchanged_fields]

    def measure(fields: Sequence[int]) -> JointUniqueness:
        classes = published
        for field in fields:
            classes = _combine(classes, columns[field])
        counts = np.bincount(classes)
        unique = int(np.count_nonzero(counts == 1))
        known = all(is_known[field] for field in fields)
        return JointUniqueness(tuple(names[field] for field in fields), len(classes), unique, len(counts), known)

    alone = [measure([field]) for field in range(len(columns))]
    known = sorted((field for field in range(len(columns)) if is_known[field]), key=lambda f: -alone[f].unique)
    combined = sorted(known[:MAX_JOINT_FIELDS])
    worst = [
        max(map(measure, combinations(combined, size)), key=lambda found: found.unique)
        for size in range(2, min(MAX_FIELDS, len(combined)) + 1)
    ]
    return [*alone, *worst]


@dataclass(frozen=True, slots=True)
class NearDuplicates:
    """Subjects that differ from another one in their spelling alone; the clusters are None if they are unknown."""

    subjects: int  # of the usable originals, less their number after merging
    clusters: int | None  # that hold two subjects which would be one
    below_k: int | None  # that would have fewer than k

    def measures(self) -> dict[str, float | int | None]:
        """Return the measures of the verdict."""
        return {
            "near_duplicate_subjects": self.subjects,
            "near_duplicate_clusters": self.clusters,
            "near_duplicate_below_k": self.below_k,
        }

    def warnings(self) -> list[Finding]:
        """Return a finding if there are any."""
        if not self.subjects or self.clusters == 0:
            return []
        where = "" if self.clusters is None else f", in {counted(self.clusters, 'cluster')}"
        fewer = f": {counted(self.below_k, 'cluster')} would have fewer than k people" if self.below_k else ""
        text = (
            f"{counted(self.subjects, 'subject')} equal to another one except for case, white space, width, invisible "
            f"characters, punctuation or leading zeros{where}{fewer}"
        )
        remedy = (
            "if these are spellings of one person, set normalize: [nfkc, casefold, spaces, invisible] at the subject, "
            "and write punctuation and zeros in one way before the run"
        )
        figures = {name: value for name, value in self.measures().items() if value is not None}
        return [Finding("near_duplicate_subjects", text, remedy, figures)]


def count_near_duplicates(
    policy: Policy, originals: Originals, clusters: RecomputedClusters | None
) -> NearDuplicates | None:
    """Count near-duplicate subjects. None if the subject is no text. Cost: O(n log n)."""
    merged = originals.merged
    if merged is None:
        return None
    subjects = len(merged) - len(np.unique(merged))
    if clusters is None:
        return NearDuplicates(subjects, None, None)
    with_pairs = below = 0
    for cluster in clusters.clusters:
        found = set(originals.subjects[cluster.members].tolist())
        people = len(set(merged[list(found)].tolist()))
        with_pairs += people < len(found)
        below += people < policy.k <= len(found)
    return NearDuplicates(subjects, with_pairs, below)


@dataclass(frozen=True, slots=True)
class UnchangedField:
    """A field that is published unchanged, and how well it identifies records; None for fewer than 30 records."""

    name: str
    unique_share: float | None  # of the values that occur in one record; nulls and empty cells do not count
    order_correlation: float | None  # largest absolute rank correlation (Spearman) with arrival in a partition
    is_acknowledged: bool
    has_numbers: bool = False  # whether all values are numbers

    def warnings(self) -> list[Finding]:
        """Return a finding for each way to identify a record by this field."""
        remedy = "" if self.is_acknowledged else "set publish_unchanged: true if this is intended"
        found = []
        if self.unique_share is not None and self.unique_share > MAX_UNIQUE_SHARE:
            is_like = self.unique_share > MIN_IDENTIFIER_SHARE and not self.has_numbers
            text = (
                f"{self.name} is published unchanged and {percent(self.unique_share)} of its values are unique: "
                "a known value identifies its record"
            )
            code = "identifier_like" if is_like else "unique_values"
            if is_like:
                remedy = "; ".join([f"declare {self.name} as an identifier if it is one", *filter(None, [remedy])])
            found.append(Finding(code, text, remedy, {"share": self.unique_share}, (self.name,)))
        if self.order_correlation is not None and self.order_correlation > MAX_ORDER_CORRELATION:
            text = (
                f"{self.name} is published unchanged and follows the order of arrival "
                f"(rank correlation {self.order_correlation:.2f}): it reveals when a record arrived"
            )
            figures = {"correlation": self.order_correlation}
            found.append(Finding("order_of_arrival", text, remedy, figures, (self.name,)))
        return found


def measure_release(
    policy: Policy,
    originals: Originals,
    release: ReleasedRows,
    clusters: RecomputedClusters | None,
    unchanged: Sequence[UnchangedField],
    joint: Sequence[JointUniqueness],
) -> dict[str, float | int | None]:
    """Return the measures of the verdict; without clusters, those of rows with equal quasi-identifiers."""
    found: dict[str, float | int | None] = {} if clusters is None else _measure_clusters(originals, clusters)
    found |= measure_homogeneity(policy, originals, value_classes(clusters, release))
    for field in unchanged:
        found[f"unique_share.{field.name}"] = field.unique_share
        found[f"order_correlation.{field.name}"] = field.order_correlation
    return found | {f"joint_unique_share.{'+'.join(one.names)}": one.share for one in joint}


def measure_unchanged_fields(policy: Policy, originals: Originals) -> list[UnchangedField]:
    """Measure each field that is published unchanged on the usable originals. Cost: O(n log n) per field."""
    if originals.usable < MIN_RECORDS:
        return [UnchangedField(a.name, None, None, a.publish_unchanged) for a in policy.unchanged_fields]
    parts = [indices[originals.subjects[indices] != UNUSABLE] for indices in originals.by_partition.values()]
    places, ends = np.concatenate(parts), np.cumsum([len(part) for part in parts])[:-1]
    found = []
    for column, attribute in enumerate(policy.unchanged_fields):
        codes = field_codes(originals.unchanged, places, column)
        firsts = places[np.unique(codes, return_index=True)[1]]
        known = [originals.unchanged[int(first)].split(FIELD_SEPARATOR)[column] for first in firsts]
        correlation = max(abs(_order_correlation(ranks)) for ranks in np.split(_ranks(codes, known), ends))
        share = _unique_share(codes, known)
        has_numbers = share > MIN_IDENTIFIER_SHARE and all(
            not math.isnan(_number(one)) for one in known if one not in _NO_TEXTS
        )
        found.append(UnchangedField(attribute.name, share, correlation, attribute.publish_unchanged, has_numbers))
    return found


def check_unchanged_fields(unchanged: Sequence[UnchangedField]) -> CheckCounter:
    """Check that no field identifies records unless the policy acknowledges it."""
    claim = "no field that identifies records is published unchanged, unless the policy sets publish_unchanged for it"
    check = CheckCounter("unchanged", claim, "field")
    for field in unchanged:
        check.expect(field.is_acknowledged or not field.warnings(), field.name)
    if not unchanged:
        check.skip("no field is published unchanged")
    return check


def _columns(width: int, release: ReleasedRows) -> tuple[Int64Vector, list[Int64Vector]]:
    """Return codes of partition and quasi-identifiers of each readable row, and codes of each unchanged field."""
    classes = [np.zeros(0, np.int64)]
    columns: list[list[Int64Vector]] = [[np.zeros(0, np.int64)] for _ in range(width)]
    first = 0
    for rows in release.by_partition.values():
        few, of_few = rows.unchanged.distinct(np.arange(len(rows)))
        texts = map(rows.unchanged.__getitem__, few.tolist())
        is_readable = np.array([not width or text.count(FIELD_SEPARATOR) == width - 1 for text in texts], np.bool_)
        readable = np.flatnonzero(is_readable[of_few])
        classes.append(first + field_codes(rows.quasi, readable))
        first += len(rows)
        for field, column in enumerate(columns):
            column.append(field_codes(rows.unchanged, readable, field))
    return np.concatenate(classes), [np.concatenate(column) for column in columns]


def _combine(classes: Int64Vector, column: Int64Vector) -> Int64Vector:
    combined: Int64Vector = np.unique(classes * (int(column.max()) + 1) + column, return_inverse=True)[1]
    return combined


def _measure_clusters(originals: Originals, found: RecomputedClusters) -> dict[str, float | int | None]:
    counts = np.bincount(originals.subjects[members_of(found.clusters)])
    released = counts[counts > 0]
    return {
        "releases_per_subject_max": int(released.max()) if released.size else None,
        "releases_per_subject_mean": float(released.mean()) if released.size else None,
        "largest_share": found.largest_share,
    }


def _unique_share(codes: Int64Vector, known: Sequence[str]) -> float:
    counts = np.bincount(codes, minlength=len(known))
    counts = counts[[text not in _NO_TEXTS for text in known]]
    return int(np.count_nonzero(counts == 1)) / max(1, int(counts.sum()))


def _ranks(codes: Int64Vector, known: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return mean ranks, by number if all values are numbers and by code points otherwise; NaN for nulls."""
    order = np.argsort(np.array(known, object), kind="stable")
    order = order[np.array([text != "null" for text in known], np.bool_)[order]]
    numbers = np.fromiter((_number(known[code]) for code in order), np.float64, len(order))
    if not np.isnan(numbers).any():
        order = order[np.argsort(numbers, kind="stable")]
    counts = np.bincount(codes, minlength=len(known))[order]
    ranks = np.full(len(known), np.nan)
    ranks[order] = np.cumsum(counts) - (counts - 1) / 2
    return ranks[codes]


def _number(text: str) -> float:
    found = decimal_number(json.loads(text) if text.startswith('"') else text)
    return math.nan if found is None else found


def _order_correlation(ranks: npt.NDArray[np.float64]) -> float:
    """Return the correlation of ranks with positions; 0 for fewer than 30 values or equal ones."""
    positions = np.flatnonzero(~np.isnan(ranks)).astype(np.float64)
    known = ranks[~np.isnan(ranks)]
    if known.size < MIN_RECORDS or np.ptp(known) == 0:
        return 0.0
    return float(np.corrcoef(known, positions)[0, 1])
