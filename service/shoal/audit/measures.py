"""Measures what k-anonymity does not cover and a reader of the verdict should know.

Fields that are published unchanged are measured one by one on the originals: unique values identify records, and values
that follow the order of arrival reveal when a record arrived. They are warnings; ``strict`` makes them a check.
`joint_uniqueness` measures fields together, on the released rows.

Measures how much of a release shows confidential values to a reader who knows in which cluster a person is.

Measures how many released rows are the only ones with their published values and up to three unchanged fields.

k-anonymity covers the quasi-identifiers. A reader that also knows fields of a person that are published unchanged finds
one row among those that agree in all of them; a row that agrees with no other is found for certain.

Counts subjects that differ in case, white space, width or invisible characters only.

k counts subjects as the policy normalises them. If two of these are spellings of one person, a cluster holds fewer
people than it seems.

Measures how many bits of the order of arrival a column reveals: trends, runs and periods such as ``rank mod 97``.

A rank correlation finds columns that grow or fall with the position only. Mutual information with a function of the
position finds others too. Two families of functions are tried: the number of the block in which a position lies, for
several numbers of blocks, and the position modulo a period. Periods come from the autocorrelation of the column.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from shoal.audit.clusters import RecomputedClusters
from shoal.audit.confidential import AuditedColumn, ValueClass, check_values
from shoal.audit.evidence import AuditScope
from shoal.audit.fields import FIELD_SEPARATOR
from shoal.audit.originals import Originals
from shoal.audit.published_values import NO_VALUE
from shoal.audit.releases import ReleasedRows
from shoal.audit.scales import decimal_number
from shoal.audit.verdict import CheckCounter, counted
from shoal.policy import Policy

__all__ = [
    "MAX_UNIQUE_SHARE",
    "MIN_RECORDS",
    "JointUniqueness",
    "NearDuplicates",
    "OrderInformation",
    "UnchangedField",
    "check_unchanged_fields",
    "check_values_of_rows",
    "count_near_duplicates",
    "known_classes",
    "measure_homogeneity",
    "measure_joint_uniqueness",
    "measure_order_information",
    "measure_release",
    "measure_unchanged_fields",
    "value_classes",
]


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


IntVector = npt.NDArray[np.int64]

MIN_RECORDS = 30
"""With fewer records most values are unique and most correlations are large by chance."""
MAX_UNIQUE_SHARE = 0.05
"""A larger share of unique values, or of rows that agree with no other, is a warning."""
MAX_FIELDS = 3
"""Most unchanged fields that are combined."""
MAX_JOINT_FIELDS = 12
"""Of more fields, those that single out most rows by themselves are combined: at most 286 sets of two and three."""


@dataclass(frozen=True, slots=True)
class JointUniqueness:
    """Rows that are the only ones with their published quasi-identifiers and some unchanged fields.

    Attributes
    ----------
    names : tuple of str
        The unchanged fields.
    rows, unique : int
        Number of released rows, and of those that agree with no other row of their partition.
    classes : int
        Number of classes of rows that agree.
    are_known : bool
        Whether the policy says of every one of the fields that others may know it: role ``other``, or
        ``publish_unchanged``.
    """

    names: tuple[str, ...]
    rows: int
    unique: int
    classes: int
    are_known: bool

    @property
    def share(self) -> float:
        """Share of unique rows."""
        return self.unique / self.rows

    def warnings(self) -> list[str]:
        """Return a sentence if known fields single out too many rows, without values."""
        if not self.are_known or self.share <= MAX_UNIQUE_SHARE:
            return []
        text = (
            f"published values together with {', '.join(self.names)}: {self.unique} of {self.rows} rows "
            f"({self.share:.0%}) in {self.classes} classes agree with no other row: a person of whom these fields are "
            "known is found; declare them as quasi-identifiers, or leave them out"
        )
        return [text]


def measure_joint_uniqueness(policy: Policy, release: ReleasedRows) -> list[JointUniqueness]:
    """Measure every unchanged field alone, and the worst set of two and of three fields that others may know.

    Returns
    -------
    list of JointUniqueness
        One per unchanged field, in the order of the policy; then at most one of two fields and one of three. Empty for
        fewer than 30 rows.

    Notes
    -----
    Cost: O(n log n) time per set of fields, O(n) memory.
    """
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


def _columns(width: int, release: ReleasedRows) -> tuple[IntVector, list[IntVector]]:
    """Return codes of partition and quasi-identifiers per row, and codes of each unchanged field.

    A row that could not be read is left out; another check reports it.
    """
    published: dict[tuple[int, str], int] = {}
    known: list[dict[str, int]] = [{} for _ in range(width)]
    classes: list[int] = []
    columns: list[list[int]] = [[] for _ in range(width)]
    for partition, rows in release.by_partition.items():
        for quasi, unchanged in zip(rows.quasi, rows.unchanged, strict=True):
            texts = unchanged.split(FIELD_SEPARATOR) if width else []
            if len(texts) != width:
                continue
            classes.append(published.setdefault((partition, quasi), len(published)))
            for field, text in enumerate(texts):
                columns[field].append(known[field].setdefault(text, len(known[field])))
    return np.array(classes, dtype=np.int64), [np.array(column, dtype=np.int64) for column in columns]


def _combine(classes: IntVector, column: IntVector) -> IntVector:
    """Return codes from 0 of the pairs of two codes."""
    combined: IntVector = np.unique(classes * (int(column.max()) + 1) + column, return_inverse=True)[1]
    return combined


@dataclass(frozen=True, slots=True)
class NearDuplicates:
    """Subjects that every step of ``normalize`` would merge with another.

    Attributes
    ----------
    subjects : int
        Subjects of the usable originals, less their number after merging.
    clusters : int or None
        Clusters that hold at least two subjects which would be one. None if the clusters are unknown.
    below_k : int or None
        Clusters of at least k subjects that would have fewer. None as above.
    """

    subjects: int
    clusters: int | None
    below_k: int | None

    def measures(self) -> dict[str, float | int | None]:
        """Return the measures of the verdict."""
        return {
            "near_duplicate_subjects": self.subjects,
            "near_duplicate_clusters": self.clusters,
            "near_duplicate_below_k": self.below_k,
        }

    def warnings(self) -> list[str]:
        """Return a sentence if there are any, without values."""
        if not self.subjects or self.clusters == 0:
            return []
        where = "" if self.clusters is None else f", in {counted(self.clusters, 'cluster')}"
        fewer = f" ({counted(self.below_k, 'cluster')} with fewer than k people)" if self.below_k else ""
        text = (
            f"{counted(self.subjects, 'subject')} equal to another one except for case, white space, width or "
            f"invisible characters{where}: if these are spellings of one person{fewer}, set normalize: "
            "[nfkc, casefold, spaces, invisible] at the subject"
        )
        return [text]


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
        found = set(originals.subjects[list(cluster.members)].tolist())
        people = len(set(merged[list(found)].tolist()))
        with_pairs += people < len(found)
        below += people < policy.k <= len(found)
    return NearDuplicates(subjects, with_pairs, below)


MIN_WINDOW = 30
"""With fewer records a column, or the rest after the last window, is not measured by itself."""
WINDOW = 1 << 16
"""Longer columns are measured in windows of this many records, so that the cost grows linearly."""
BINS = 16
"""Columns of many values are measured a second time, by quantiles."""
PERMUTATIONS = 100
PERIODS = 8
"""Periods that are tried per window: the highest peaks of the autocorrelation."""
FEW_PAIRS = 8
"""Up to so many possible pairs of a value and a label per record, pairs are counted without sorting."""
DRAWS = 4
MIN_INFORMATION = 0.2
"""Bits. A normal variable with a correlation of 0.5 with the position tells as much."""
MAX_P = 1e-6


@dataclass(frozen=True, slots=True)
class OrderInformation:
    """What a column reveals of the positions.

    Attributes
    ----------
    bits : float
        Mutual information with the best function of the position, minus its mean under permutations; 0 if below 0.2 or
        not significant. Of the first window in which it is significant.
    p_value : float
        Of the best function, corrected for the number of functions among which it was chosen.
    """

    bits: float = 0.0
    p_value: float = 1.0


def measure_order_information(
    codes: IntVector, ranks: npt.NDArray[np.float64] | None, positions: IntVector
) -> OrderInformation:
    """Measure one column of one partition.

    Parameters
    ----------
    codes : ndarray of int64, shape (n,)
        Equal for equal values, from 0.
    ranks : ndarray of float64, shape (n,), or None
        Mean ranks of the values; NaN for nulls. None for values without an order.
    positions : ndarray of int64, shape (n,)
        Offsets of the records, ascending.

    Returns
    -------
    OrderInformation
        Nothing for fewer than 30 records.

    Notes
    -----
    Significance: the mutual information is compared with that of 100 permutations of the column. A gamma distribution
    with their mean, deviation and skewness gives the p-value beyond the reach of so few (Winkler et al., NeuroImage 141
    (2016), section 2.5, doi:10.1016/j.neuroimage.2016.05.068). Deviation and skewness are rounded up by more than their
    sampling error, and the p-value is multiplied by the number of all functions that could have been chosen
    (Bonferroni). A column is reported from p < 1e-6 on.

    What it cannot find: a secret function of the position, and values that are unique (`unique_share` counts them).

    Cost: O(n log n) time, O(n) memory. Deterministic: the permutations have a fixed seed.
    """
    n = len(codes)
    if n < MIN_WINDOW:
        return OrderInformation()
    generator = np.random.default_rng(0)
    columns = [codes] if ranks is None or codes.max() < BINS else [codes, _quantiles(ranks)]
    # Periods of the offsets and periods among the usable records differ if some records are unusable.
    orders = [positions - positions[0], np.arange(n)]
    if orders[0][-1] == n - 1 or orders[0][-1] >= 4 * n:
        del orders[0]
    windows = [slice(first, first + WINDOW) for first in range(0, n, WINDOW)]
    if len(windows) > 1 and n - windows[-1].start < MIN_WINDOW:
        windows.pop()
    tried = len(columns) * len(orders) * len(windows)
    for column in columns:
        for order in orders:
            for window in windows:
                found = _measure_window(column[window], order[window] - order[window][0], tried, generator)
                if found.p_value < MAX_P:
                    return found
    return OrderInformation()


def _measure_window(
    column: IntVector, positions: IntVector, tried: int, generator: np.random.Generator
) -> OrderInformation:
    """Measure one window; ``tried`` is the number of windows, columns and orders."""
    values = np.unique(column, return_inverse=True)[1]
    functions = list(_functions(values, positions, generator))
    if not functions:
        return OrderInformation()
    entropies = np.array([_joint_entropy(values, labels) for labels in functions])
    shuffled = np.array([_joint_entropy(generator.permutation(values), labels) for labels in functions])
    best = int(np.argmax(shuffled - entropies))
    if shuffled[best] - entropies[best] < MIN_INFORMATION / 2:
        return OrderInformation()  # far from the limit: no need for more permutations
    many = np.array([_joint_entropy(generator.permutation(values), functions[best]) for _ in range(PERMUTATIONS)])
    choices = tried * (len(functions) + int(positions[-1]))
    p_value = min(1.0, choices * _tail(many, float(entropies[best])))
    bits = float(many.mean() - entropies[best])
    return OrderInformation(bits, p_value) if bits >= MIN_INFORMATION else OrderInformation()


def _functions(values: IntVector, positions: IntVector, generator: np.random.Generator) -> Iterator[IntVector]:
    """Yield the functions of the position that are tried: numbers of blocks, and residues of likely periods."""
    n = len(values)
    blocks = 4
    while n >= 8 * blocks:
        yield np.arange(n) * blocks // n
        blocks *= 4
    for period in _likely_periods(values, positions, generator):
        yield positions % period


def _likely_periods(values: IntVector, positions: IntVector, generator: np.random.Generator) -> list[int]:
    """Return the lags at which equal values are most frequent, compared with chance.

    Each value is a random point of the unit circle. The autocorrelation of the points estimates the share of equal
    values at every lag at once, by two Fourier transforms.
    """
    length, limit = int(positions[-1]) + 1, int(positions[-1] + 1) // 3
    if limit < 2:  # noqa: PLR2004 - period 1 says nothing
        return []
    size = 1 << (2 * length - 1).bit_length()
    total = np.zeros(limit + 2)
    for _ in range(DRAWS):
        points = np.exp(2j * np.pi * generator.random(int(values.max()) + 1))[values]
        series = np.zeros(size, dtype=np.complex128)
        series[positions] = points - points.mean()
        total += np.fft.ifft(np.abs(np.fft.fft(series)) ** 2).real[: limit + 2]
    scores = total / np.sqrt(length - np.arange(limit + 2))
    is_peak = (scores[2:-1] >= scores[1:-2]) & (scores[2:-1] >= scores[3:])
    peaks = np.flatnonzero(is_peak) + 2
    return [int(lag) for lag in peaks[np.argsort(-scores[peaks], kind="stable")][:PERIODS]]


def _joint_entropy(values: IntVector, labels: IntVector) -> float:
    """Return the entropy of pairs in bits. Mutual information is this, subtracted from a constant."""
    n, width = len(values), int(labels.max()) + 1
    pairs = values * width + labels
    if (int(values.max()) + 1) * width <= FEW_PAIRS * n:
        counts = np.bincount(pairs)
        counts = counts[counts > 0]
    else:  # most pairs do not occur
        pairs.sort()
        counts = np.diff(np.flatnonzero(np.concatenate(([True], pairs[1:] != pairs[:-1], [True]))))
    return math.log2(n) - float((counts * np.log2(counts)).sum()) / n


def _tail(shuffled: npt.NDArray[np.float64], entropy: float) -> float:
    """Return the probability that a permutation has this entropy or less, by a gamma distribution (Wilson-Hilferty)."""
    deviation = 1.2 * float(shuffled.std(ddof=1))
    distance = float(shuffled.mean()) - entropy
    if deviation <= 0:
        return 1.0
    standard = (shuffled.mean() - shuffled) / shuffled.std(ddof=1)
    skewness = 0.5 + max(0.0, float((standard**3).mean()))
    shape = 4 / skewness**2
    ratio = max(0.0, 1 + distance / deviation / math.sqrt(shape))
    normal = (ratio ** (1 / 3) - 1 + 1 / (9 * shape)) * math.sqrt(9 * shape)
    return math.erfc(normal / math.sqrt(2)) / 2


def _quantiles(ranks: npt.NDArray[np.float64]) -> IntVector:
    """Return the quantile of each value, from 0; nulls are a class of their own."""
    known = ~np.isnan(ranks)
    found = np.full(len(ranks), BINS, dtype=np.int64)
    order = np.unique(ranks[known], return_inverse=True)
    positions = (np.searchsorted(np.sort(ranks[known]), order[0]))[order[1]]
    found[known] = positions * BINS // max(1, int(known.sum()))
    return found


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
