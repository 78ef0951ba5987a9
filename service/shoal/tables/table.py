"""The pipeline of a finished table: decoded records in, published rows and a summary out.

The check before a table is partitioned: whether the table as one cluster satisfies the policy.

Confidential attributes of a table as numbers or categories, collected block by block.

The protected attributes of a table: value codes, and bins in the reference of the policy or in the table itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.arrays import LARGEST, BoolVector, Float64Matrix, Float64Vector, Int64Vector
from shoal.errors import AnonymityViolation, GuaranteeError, InputError
from shoal.formats import (
    FIRST_INEXACT,
    NO_BIN,
    Block,
    ConfidentialKeys,
    Key,
    RecordEncoder,
    ReferenceBins,
    to_exact_number,
    to_number,
)
from shoal.policy import Attribute, Policy, Role
from shoal.protection.quota import SubjectQuota
from shoal.protection.value_codes import l_diversity_of, value_reference_of
from shoal.scales import Embedding
from shoal.scales.coordinates import CategoryIndex
from shoal.tables.constraints import ClusterConstraints, ConfidentialAttribute, records_above_share, violating_clusters
from shoal.tables.measures import mdav_baseline, summarize
from shoal.tables.table_partition import AlgorithmSpec, TableData, TablePartition

__all__ = ["ConfidentialColumn", "ProtectedColumns", "TablePipeline", "TableRelease", "require_feasible", "z_scores"]

_REMEDIES = {
    "privacy.l": "lower privacy.l",
    "privacy.max_value_share": "raise privacy.max_value_share (with distinct l it is 0.5 unless it is given)",
    "privacy.t": "raise privacy.t, or make the reference anew",
}


def require_feasible(policy: Policy, protected: tuple[ConfidentialAttribute, ...]) -> None:
    """Require that the values of the whole table satisfy the policy: otherwise those of some cluster do not, either.

    Parameters
    ----------
    policy : Policy
    protected : tuple of ConfidentialAttribute
        The values of n records, in the order of ``policy.protected``.

    Raises
    ------
    AnonymityViolation
        The message names the settings and the attributes that the table violates.
    """
    stated = {
        "privacy.l": ClusterConstraints(l=l_diversity_of(policy)),
        "privacy.max_value_share": ClusterConstraints(max_value_share=policy.max_value_share),
        "privacy.t": ClusterConstraints(t=policy.t),
    }
    violated: dict[str, list[str]] = {}
    for attribute, values in zip(policy.protected, protected, strict=True):
        labels = np.zeros(len(values.codes), np.int32)
        for setting, constraints in stated.items():
            if violating_clusters(labels, 1, replace(constraints, confidential=(values,))).any():
                violated.setdefault(setting, []).append(attribute.name)
    if violated:
        found = " and ".join(f"{setting} ({', '.join(names)})" for setting, names in violated.items())
        remedies = ", ".join(_REMEDIES[setting] for setting in violated)
        raise AnonymityViolation(
            f"the table as a whole violates {found}, so no clusters of it can satisfy the policy; {remedies}, "
            "or add records with other values; nothing is released"
        )


@dataclass(slots=True)
class ConfidentialColumn:
    """One confidential attribute.

    An attribute is numeric if its type is ``integer`` or ``number``, or ``any`` and every value is a number. Otherwise
    its values are categories. A missing value (null, a value of ``missing_values``, or an empty cell of a numeric
    attribute) is a value of its own, smaller than all others. Each distinct category is stored once.
    """

    attribute: Attribute
    _keys: ConfidentialKeys
    _parts: list[Any]
    _codes: dict[Any, int]
    _inexact: dict[int, float] = field(default_factory=dict)
    """Record number -> number that float64 does not represent exactly."""
    _count: int = 0

    @classmethod
    def of(cls, attribute: Attribute, missing_values: Sequence[str]) -> ConfidentialColumn:
        """Return an empty column; ``missing_values`` are those of the policy."""
        return cls(attribute, ConfidentialKeys(attribute, missing_values), [], {})

    def add(self, column: Sequence[Any]) -> None:
        """Add the values of the next records."""
        column = self._keys.without_missing(column)
        if self.attribute.type in {"integer", "number"}:
            numbers = np.fromiter((to_number(value) or 0.0 for value in column), np.float64, len(column))
            for index in np.flatnonzero(np.abs(numbers) >= FIRST_INEXACT).tolist():
                self._inexact[self._count + index] = to_exact_number(column[index]) or 0.0
            self._parts.append(numbers)
            self._count += len(column)
            return
        codes = self._codes
        # True == 1 in Python: keep booleans apart from numbers.
        keys = [(value,) if isinstance(value, bool) else value for value in column]
        self._parts.append(np.fromiter((codes.setdefault(key, len(codes)) for key in keys), np.int64, len(keys)))

    def numbers(self) -> Float64Vector | None:
        """Return the numbers (n,), NaN for a missing value; None if the attribute is categorical."""
        column: NDArray[Any] = np.concatenate(self._parts)
        if self.attribute.type in {"integer", "number"}:
            return column.astype(np.float64)
        known = [to_number(key) for key in self._codes]
        if self.attribute.type != "any" or any(number is None for number in known):
            return None
        numbers: Float64Vector = np.array(known, np.float64)
        return np.asarray(numbers[column], np.float64)

    def bins(self, chosen: BoolVector) -> ConfidentialAttribute:
        """Return the bins of the chosen records; numeric bins are ordered by value."""
        values = self.numbers()
        column = np.concatenate(self._parts) if values is None else np.where(np.isnan(values), -np.inf, values)
        inexact = {} if values is None else self._inexact_numbers(values)
        if inexact:
            exact = [inexact.get(index, column[index].item()) for index in np.flatnonzero(chosen).tolist()]
            ranks = {number: rank for rank, number in enumerate(sorted(set(exact)))}
            return ConfidentialAttribute(np.array([ranks[number] for number in exact]), ordered=True)
        return ConfidentialAttribute(np.unique(column[chosen], return_inverse=True)[1], values is not None)

    def _inexact_numbers(self, values: Float64Vector) -> dict[int, float]:
        """Return the exact numbers that float64 does not represent, by record number."""
        if self.attribute.type in {"integer", "number"}:
            return self._inexact
        codes, known = np.concatenate(self._parts), [to_exact_number(key) for key in self._codes]
        indices = np.flatnonzero(np.abs(values) >= FIRST_INEXACT).tolist()
        return {index: known[codes[index]] or 0.0 for index in indices}


def z_scores(columns: Sequence[Float64Vector], n: int) -> Float64Matrix:
    """Return the z-scores (n, m) of m columns: NaN for a missing value or one beyond 1e150, 0 in a constant column."""
    scaled = np.empty((n, len(columns)))
    for number, column in enumerate(columns):
        usable = np.where(np.abs(column) < LARGEST, column, np.nan)
        known = usable[~np.isnan(usable)]
        varies = len(known) > 0 and known.min() < known.max()
        mean, deviation = (known.mean(), known.std()) if varies else (known[0] if len(known) else 0.0, 1.0)
        scaled[:, number] = (usable - mean) / (deviation if deviation > 0 else 1.0)
    return scaled


class ProtectedColumns:
    """Collects the values of the protected attributes of a table, block by block.

    Parameters
    ----------
    policy : Policy

    Notes
    -----
    Memory: one number per record and attribute; each distinct value is stored once.
    """

    def __init__(self, policy: Policy) -> None:
        self._columns = [_ColumnOfTable(attribute, policy) for attribute in policy.protected]

    def add(self, block: Block) -> None:
        """Add the values of the next records.

        Raises
        ------
        GuaranteeError
            The block does not have the values of the protected attributes.
        """
        if not self._columns or not len(block):
            return
        if block.protected is None:
            raise GuaranteeError("a block lacks the values of the protected attributes")
        numbers, keys = block.protected
        for position, column in enumerate(self._columns):
            column.add(numbers[:, position], keys[position])

    def attributes(self, chosen: BoolVector) -> dict[str, ConfidentialAttribute]:
        """Return the attributes by name, for the chosen records.

        The reference of an attribute is that of the policy; without one, the distribution of the chosen records.

        Raises
        ------
        GuaranteeError
            A reference cannot place a value of a chosen record, which decoders refuse.
        """
        return {column.attribute.name: column.of(chosen) for column in self._columns}


class _ColumnOfTable:
    """The values of one protected attribute."""

    def __init__(self, attribute: Attribute, policy: Policy) -> None:
        self.attribute = attribute
        self._missing_values = policy.missing_values
        self._has_bins = policy.t is not None
        self._codes: dict[Key, int] = {}
        self._parts: list[Int64Vector] = [np.empty(0, np.int64)]

    def add(self, numbers: Int64Vector, keys: Sequence[Key]) -> None:
        """Add values, given as indices in ``keys``."""
        codes = np.array([self._codes.setdefault(key, len(self._codes)) for key in keys], np.int64)
        self._parts.append(codes[numbers])

    def of(self, chosen: BoolVector) -> ConfidentialAttribute:
        """Return the attribute for the chosen records.

        The bins of categories of the table itself are in the order of their first records. Without t, so are all.
        """
        codes, keys = np.concatenate(self._parts)[chosen], list(self._codes)
        if not self._has_bins:
            return ConfidentialAttribute(codes, ordered=False)
        counts = np.bincount(codes, minlength=len(keys)).tolist()
        present = {key: float(count) for key, count in zip(keys, counts, strict=True) if count}
        reference = ReferenceBins(
            self.attribute, self._missing_values, None if self.attribute.reference is not None else present
        )
        if self.attribute.reference is None and reference.distance == "equal":
            return ConfidentialAttribute(np.unique(codes, return_inverse=True)[1], ordered=False, values=codes)
        bins = np.array([reference.bin_of(key) if key in present else 0 for key in keys], np.int64)
        if (bins == NO_BIN).any():
            raise GuaranteeError("a record has a confidential value that its reference cannot place")
        is_ordered = reference.distance == "ordered"
        return ConfidentialAttribute(bins[codes], is_ordered, value_reference_of(reference), codes)


class TableRelease(NamedTuple):
    """The release of a table.

    Attributes
    ----------
    rows : list of bytes
        Published bytes, in the order in which they are written.
    offsets : ndarray of int64, shape (E,)
        Numbers of the released records in the input, from 0; cluster after cluster, ascending within a cluster.
    bounds : ndarray of int64, shape (G + 1,)
        Cluster g is ``offsets[bounds[g]:bounds[g + 1]]``.
    suppressed, quarantined : ndarray of int64, shapes (S,) and (Q,)
        Numbers of the suppressed and of the quarantined records, ascending.
    summary : dict
        Contents of the summary file.
    categories : dict of str to int
        Number of categories of the released records, by nominal attribute.
    """

    rows: list[bytes]
    offsets: Int64Vector
    bounds: Int64Vector
    suppressed: Int64Vector
    quarantined: Int64Vector
    summary: dict[str, Any]
    categories: dict[str, int]

    def clusters(self) -> Iterator[list[int]]:
        """Yield the record numbers of each cluster."""
        for start, end in pairwise(self.bounds.tolist()):
            yield self.offsets[start:end].tolist()


class TablePipeline:
    """Collects the records of a table and releases them.

    The caller adds decoded blocks. `release` then performs these steps: suppress records that no cluster can contain,
    embed, partition, check, centroid, encode, measure.

    Parameters
    ----------
    policy : Policy
        Attributes and constraints.
    encoder : RecordEncoder
        JsonEncoder of the output format.

    Notes
    -----
    Guarantees: every released record is in one cluster, and `clustering.stream.invariants` has verified that the
    cluster has k distinct subjects and no subject above ``max_share``. Only two kinds of records are suppressed: those
    above ``privacy.per_subject``, and those by which a subject has more than ``max_share`` of the whole table.
    Memory: values, one number per confidential attribute, and unchanged fields as bytes.
    """

    def __init__(self, policy: Policy, encoder: RecordEncoder) -> None:
        self._policy, self._encoder = policy, encoder
        self._categories = CategoryIndex(policy)
        self._values: list[Float64Matrix] = []
        self._subjects: list[Int64Vector] = []
        self._record_numbers: list[Int64Vector] = []
        self._quarantined: list[int] = []
        self._unchanged_fields: list[bytes] = []
        self._confidential = [
            (number, ConfidentialColumn.of(a, policy.missing_values))
            for number, a in enumerate(policy.unchanged_fields)
            if a.role is Role.CONFIDENTIAL
        ]
        self._protected = ProtectedColumns(policy)
        self.clipped = 0
        self._unknown: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._unchanged_fields)

    def find_oversized(self, block: Block) -> Iterator[tuple[int, str]]:
        """Find numbers whose squares exceed float64; yield the index in the block and a message with field and remedy.

        The message contains no value.
        """
        for index, column in np.argwhere(np.abs(block.values) > LARGEST).tolist():
            name = self._policy.clustered[column].name
            yield index, f"field {name}: a number beyond {LARGEST:g}; give {name} in another unit"

    def add(self, block: Block, first_record: int | None = None) -> None:
        """Add the next records, decoded with their unchanged columns; `find_oversized` must find none.

        Parameters
        ----------
        block : Block
            Decoded records.
        first_record : int, optional
            Number in the input, from 0, of the first message of the block. If omitted, the block follows the accepted
            records of all blocks before it.
        """
        self._unknown.update(self._categories.count_unknown(block))
        block = self._categories.encode(block)
        self._record_numbers.append(block.index + (len(self) if first_record is None else first_record))
        self._values.append(block.values)
        self._subjects.append(block.subjects)
        self._unchanged_fields += block.unchanged_fields
        for number, column in self._confidential:
            column.add(block.unchanged_columns[number])
        self._protected.add(block)
        self.clipped += block.clipped

    def quarantine(self, record: int) -> None:
        """Count a record that is left out, given by its number in the input; numbers must ascend."""
        self._quarantined.append(record)

    def release(self, spec: AlgorithmSpec, *, keep_order: bool = False) -> TableRelease:
        """Partition the table and encode its rows. Call once.

        Parameters
        ----------
        spec : AlgorithmSpec
            Algorithm and refinement.
        keep_order : bool
            Whether rows keep the order of the input. By default they are sorted by their bytes.

        Raises
        ------
        InputError
            The table has too few subjects.
        ConfigError, ParameterError
            The algorithm is unknown, or does not support these parameters or this policy.
        GuaranteeError
            A cluster violates an invariant, or the table as a whole violates the policy; nothing is returned.
        """
        values, subjects, records = self._collect()
        can_stay = self._find_releasable(values, subjects, records)
        chosen = np.flatnonzero(can_stay)
        data = self._table_data(values[chosen], subjects[chosen], can_stay)
        require_feasible(self._policy, data.protected)
        partitions = data.partition(spec)
        rows = self._encode(partitions, chosen, keep_order=keep_order)
        summary = summarize(data, partitions) | {
            "records": len(can_stay) + len(self._quarantined),
            "released": len(chosen),
            "suppressed": len(can_stay) - len(chosen),
            **({"quarantined": len(self._quarantined)} if self._quarantined else {}),
            "clipped": self.clipped,
            **({"unknown": dict(self._unknown)} if self._unknown else {}),
            "keep_order": keep_order,
            "algorithm": spec.algorithm,
            "refine": spec.refine,
        }
        if (mdav := mdav_baseline(data, spec)) is not None:
            summary["mdav"] = mdav
        if len(partitions) > 1:
            summary |= {"blocks": spec.blocks, "jointly_k_anonymous": False}
        first = partitions[0]
        quarantined = np.array(self._quarantined, np.int64)
        categories = {
            attribute.name: len(np.unique(column[~np.isnan(column)]))
            for attribute, column in zip(self._policy.quasi_identifiers, data.values.T, strict=False)
            if attribute.is_nominal
        }
        offsets = records[chosen[first.order]]
        return TableRelease(rows, offsets, first.bounds, records[~can_stay], quarantined, summary, categories)

    def _collect(self) -> tuple[Float64Matrix, Int64Vector, Int64Vector]:
        """Return all values, subject codes from 0 without gaps, and record numbers; the blocks are freed."""
        if not self._values:
            raise InputError("the input has no records")
        values, subjects = np.concatenate(self._values), np.concatenate(self._subjects)
        self._values.clear()
        self._subjects.clear()
        return values, np.unique(subjects, return_inverse=True)[1], np.concatenate(self._record_numbers)

    def _find_releasable(self, values: Float64Matrix, subjects: Int64Vector, records: Int64Vector) -> BoolVector:
        """Return which records can be in a cluster (n,)."""
        can_stay = np.ones(len(subjects), np.bool_)
        if self._policy.per_subject is not None:
            can_stay = ~SubjectQuota(self._policy.per_subject).exceeds_quota(subjects, records)
        fewest = max(self._policy.k, self._policy.min_population or 0)
        if len(np.unique(subjects[can_stay])) < fewest:
            raise InputError(f"fewer than {fewest} different subjects: no record can be released")
        if self._policy.subject is not None:
            trees, texts = self._categories.trees, self._categories.texts
            stays = values[can_stay]
            coordinates = Embedding.of_table(self._policy, stays, trees, texts).dense(stays)
            above = records_above_share(subjects[can_stay], self._policy.max_share, coordinates)
            can_stay[np.flatnonzero(can_stay)[above]] = False
        return can_stay

    def _table_data(self, values: Float64Matrix, subjects: Int64Vector, can_stay: BoolVector) -> TableData:
        columns = [column for _, column in self._confidential]
        numbers = [found for column in columns if (found := column.numbers()) is not None]
        protected = self._protected.attributes(can_stay)
        for column in columns if self._policy.t is not None else ():
            attribute = column.attribute
            if attribute.name in protected and attribute.distance is None and attribute.reference is None:
                # The policy leaves the distance open: texts such as 007 are numbers then, too.
                own, codes = column.bins(can_stay), protected[attribute.name].codes
                protected[attribute.name] = own._replace(values=codes) if own.ordered else protected[attribute.name]
        with_bins = protected if self._policy.t is not None else {}
        measured = [column for column in columns if not protected or column.attribute.name in protected]
        return TableData(
            policy=self._policy,
            values=values,
            categories=self._categories,
            subjects=subjects,
            scores=z_scores([column[can_stay] for column in numbers], len(values)),
            confidential=tuple(with_bins.get(column.attribute.name) or column.bins(can_stay) for column in measured),
            confidential_names=tuple(column.attribute.name for column in measured),
            protected=tuple(protected.values()),
        )

    def _encode(self, partitions: list[TablePartition], chosen: Int64Vector, *, keep_order: bool) -> list[bytes]:
        """Return the rows of the chosen records, in the order of the input or sorted by their bytes."""
        first = partitions[0]
        if keep_order or len(partitions) > 1:
            labels_of_each = zip(*(partition.labels.tolist() for partition in partitions), strict=True)
            texts = [
                [text for partition, label in zip(partitions, labels, strict=True) for text in partition.texts[label]]
                for labels in labels_of_each
            ]
            unchanged_fields = [self._unchanged_fields[i] for i in chosen.tolist()]
            rows = self._encoder.encode_clusters(texts, unchanged_fields, range(len(chosen) + 1))
        else:
            unchanged_fields = [self._unchanged_fields[i] for i in chosen[first.order].tolist()]
            rows = self._encoder.encode_clusters(first.texts, unchanged_fields, first.bounds)
        if not keep_order:
            rows.sort()
        return rows
