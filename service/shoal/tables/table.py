"""A finished table: decoded records in, published rows and a summary out.

The last check of a table (`verify_subjects`, `verify_values`) counts and measures from the definitions, in numpy, and
shares no arithmetic with what forms clusters. It does share their input: the codes and bins of the records, and the
weights and paths of a reference. So it does not find a wrong code or bin; the judge reads those anew.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.arrays import LARGEST, BoolVector, Float64Matrix, Float64Vector, Int32Vector, Int64Matrix, Int64Vector
from shoal.errors import AnonymityViolation, ConfigError, GuaranteeError, InputError, ParameterError
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
from shoal.protection.diversity import LAST_CHECK_TOLERANCE, ClusterPeople, CountedValues, people_of
from shoal.protection.quota import SubjectQuota
from shoal.protection.value_codes import l_diversity_of, value_reference_of
from shoal.scales import SCALES, CategoryIndex, Embedding
from shoal.scales.loss import AttributeDistances, LossTotals, mean_loss, present_means
from shoal.tables.constraints import (
    ClusterConstraints,
    ConfidentialAttribute,
    emd_of_clusters,
    person_weights,
    records_above_share,
    violating_clusters,
)
from shoal.tables.exact import check_exact
from shoal.tables.hilbert import ONE_ATTRIBUTE
from shoal.tables.literature.approximate import dependency_tree, discretized
from shoal.tables.measures import confidential_loss, distinct_categories, linkage_share
from shoal.tables.microaggregation import T_CLOSE_ALGORITHMS, check_parameters, check_t, parameters_of, refined
from shoal.tables.parts import MAX_CODES, has_many_codes, split_by_codes
from shoal.tables.refinement import BudgetUsed

BLOCKS_REFUSED = "--param blocks: cannot be combined with privacy.l, t or max_value_share, or steered; remove blocks"
REFINING_REFUSED = "--refine: cannot follow algorithm approximate on a table with categories; remove it"


@dataclass(frozen=True, slots=True)
class AlgorithmSpec:
    """Algorithm and refinement of a table, with their parameters.

    Attributes
    ----------
    algorithm, refine : str
        Names.
    seed : int
        Seed of all random choices.
    parameters : mapping
        Parameters of the algorithm by name.
    budget_for : callable, optional
        Returns the budget of the refinement of one block, given the number of records and of blocks.
    blocks : int
        Number of quasi-identifiers that are partitioned together; 0 means all. With fewer than all, the records of a
        cluster of one block are in different clusters of another, and **the joint record is not k-anonymous**.
    """

    algorithm: str = "auto"
    refine: str = "descent"
    seed: int = 0
    parameters: Mapping[str, float | str] = field(default_factory=dict)
    budget_for: Callable[[int, int], BudgetUsed] | None = None
    blocks: int = 0


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
        Encoder of the output format.

    Notes
    -----
    Guarantees: every released record is in one cluster, and `verify_subjects` has verified that the cluster has k
    distinct subjects and no subject above ``max_share``. Only two kinds of records are suppressed: those above
    ``privacy.per_subject``, and those by which a subject has more than ``max_share`` of the whole table.
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
            (number, ConfidentialColumn(a, policy.missing_values))
            for number, a in enumerate(policy.unchanged_fields)
            if a.role is Role.CONFIDENTIAL
        ]
        self._protected = ProtectedColumns(policy)
        self.clipped = 0
        self._unknown: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._unchanged_fields)

    def find_oversized(self, block: Block) -> Iterator[tuple[int, str]]:
        """Yield the index in the block of numbers whose squares exceed float64, and what to do, without the value."""
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
        try:
            if data.has_one_record_each:
                require_feasible(data)
            partitions = data.partition(spec)
        except AnonymityViolation:
            require_feasible(data)  # names the limits that the table as a whole violates
            raise
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
            if SCALES[attribute.scale].is_coded
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
            embedding = Embedding.of_table(self._policy, stays, trees, texts)
            are_many = has_many_codes(embedding.codes(stays))
            coordinates = embedding.coordinates(stays) if are_many else embedding.dense(stays)
            above = records_above_share(subjects[can_stay], self._policy.max_share, coordinates)
            can_stay[np.flatnonzero(can_stay)[above]] = False
        return can_stay

    def _table_data(self, values: Float64Matrix, subjects: Int64Vector, can_stay: BoolVector) -> TableData:
        columns = [column for _, column in self._confidential]
        numbers = [found for column in columns if (found := column.numbers()) is not None]
        protected = self._protected.attributes(can_stay, subjects)
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
            confidential={
                column.attribute.name: with_bins.get(column.attribute.name) or column.bins(can_stay)
                for column in measured
            },
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


def check_algorithm(policy: Policy, spec: AlgorithmSpec) -> None:
    """Raise ConfigError or ParameterError if the policy alone shows that a table cannot be partitioned so."""
    d = len(policy.quasi_identifiers)
    width = d if policy.dependence == 1 else min(spec.blocks or d, d)
    if width < d and (policy.protects_values or spec.algorithm in T_CLOSE_ALGORITHMS):
        raise ConfigError(BLOCKS_REFUSED)
    check_t(spec.algorithm, spec.parameters, policy.t, len(policy.protected or policy.confidential))
    if spec.algorithm == "optimal" and width > 1:
        raise ParameterError(ONE_ATTRIBUTE)
    has_categories = any(SCALES[attribute.scale].is_coded for attribute in policy.quasi_identifiers)
    if spec.algorithm == "approximate" and spec.refine != "none" and has_categories:
        raise ConfigError(REFINING_REFUSED)
    if spec.refine == "exact":
        check_exact(0, width, policy.k, is_unconstrained=not policy.protects_values)


class TablePartition(NamedTuple):
    """A partition of n records, and what it publishes of some quasi-identifiers."""

    columns: Int64Vector  # (c,): indices of these quasi-identifiers
    labels: Int32Vector  # (n,): cluster of each record
    order: Int64Vector  # (n,): records, cluster after cluster
    bounds: Int64Vector  # (G + 1,): cluster g is ``order[bounds[g]:bounds[g + 1]]``
    texts: list[list[str]]  # published JSON scalars of each cluster
    published: Float64Matrix  # (G, c): the same as values of the scales; NaN for null
    counts: Int64Matrix  # (2, G): distinct subjects, and records of the subject with most records
    bound: float | None = None  # lower bound of the loss, proven by the exact refinement
    gap: float | None = None  # relative distance from it


@dataclass(frozen=True, slots=True)
class TableData:
    """The n records of a table that can be released."""

    policy: Policy
    values: Float64Matrix  # (n, d): clustered attributes as in `Block`, with the codes of ``categories``
    categories: CategoryIndex
    subjects: Int64Vector  # (n,): subject codes, from 0
    scores: Float64Matrix  # (n, m): numeric confidential attributes as z-scores; NaN for a missing value
    confidential: dict[str, ConfidentialAttribute]
    """The protected confidential attributes as bins, or all of them if the policy protects none; by name."""
    protected: tuple[ConfidentialAttribute, ...] = ()
    """The attributes that l, t and the largest share of a value apply to."""

    @property
    def has_one_record_each(self) -> bool:
        """Whether no subject has two records: a union of clusters that satisfy the policy then satisfies it."""
        return self.policy.subject is None or len(np.unique(self.subjects)) == len(self.subjects)

    def partition(self, spec: AlgorithmSpec) -> list[TablePartition]:
        """Partition the records once for each block of quasi-identifiers; errors as of `TablePipeline.release`."""
        d = len(self.policy.quasi_identifiers)
        # With dependence 1 quasi-identifiers have no weight: all blocks would have the same partition.
        width = d if self.policy.dependence == 1 else spec.blocks or d
        if width < d and self.policy.protects_values:
            raise ConfigError(BLOCKS_REFUSED)
        blocks = [np.arange(first, min(first + width, d)) for first in range(0, d, width)]
        embedding = Embedding.of_table(self.policy, self.values, self.categories.trees, self.categories.texts)
        return [self._partition_block(spec, embedding, columns, len(blocks)) for columns in blocks]

    def _partition_block(
        self, spec: AlgorithmSpec, embedding: Embedding, columns: Int64Vector, blocks: int
    ) -> TablePartition:
        embedding = embedding.select(columns)
        compared, algorithm, parameters = embedding, spec.algorithm, spec.parameters
        if algorithm == "approximate" and len(embedding.code_distances):
            compared, algorithm, parameters = embedding.select(self._key_attributes(spec, columns)), "mdav", {}
        constraints = self._constraints(spec.algorithm)
        codes = compared.codes(self.values)
        has_rare = spec.refine != "exact" and has_many_codes(codes)  # these have no coordinates
        parts = self._parts(compared, codes, constraints) if has_rare else [np.arange(len(self.values))]
        found = [
            refined(
                self._coordinates(compared, columns, records, has_rare=has_rare),
                self.policy.k,
                algorithm,
                spec.refine,
                spec.seed,
                parameters=parameters,
                budget_used=None if spec.budget_for is None else spec.budget_for(len(records), blocks * len(parts)),
                constraints=constraints.of(records) if len(parts) > 1 else constraints,
            )
            for records in parts
        ]
        labels = _joined_labels(parts, [partition.labels for partition in found])
        order = np.argsort(labels, kind="stable")
        bounds = np.append(0, np.cumsum(np.bincount(labels)))
        counts = verify_subjects(self.policy, self.subjects, order, bounds)
        verify_values(self.policy, self.protected, labels, self.subjects)
        proven = (found[0].bound, found[0].gap) if spec.refine == "exact" else (None, None)
        texts, published = embedding.published(self.values[order], bounds, self.subjects[order])
        return TablePartition(columns, labels, order, bounds, texts, published, counts, *proven)

    def _parts(self, embedding: Embedding, codes: Int64Matrix, constraints: ClusterConstraints) -> list[Int64Vector]:
        """Return the records of each part that is partitioned by itself."""
        coordinates = len(embedding.ranges) + (self.scores.shape[1] if self.policy.dependence else 0)
        return split_by_codes(
            codes,
            embedding.code_attributes,
            coordinates,
            self._fewest(embedding),
            lambda labels: violating_clusters(labels, self.policy.k, constraints),
        )

    def _fewest(self, embedding: Embedding) -> int:
        """Return how many records of one category a cluster needs to lose less by them."""
        return self.policy.k if embedding.codes_must_agree.all() else 2

    def _key_attributes(self, spec: AlgorithmSpec, columns: Int64Vector) -> Int64Vector:
        """Return the key attributes among quasi-identifiers; a category is one value, not a coordinate per code."""
        check_parameters(spec.algorithm, spec.parameters)
        if spec.refine != "none":
            # It would compare the key attributes only.
            raise ConfigError(REFINING_REFUSED)
        given = parameters_of(spec.algorithm) | dict(spec.parameters)
        codes = []
        for column in columns.tolist():
            values = np.nan_to_num(self.values[:, column], nan=-np.inf)
            is_coded = SCALES[self.policy.quasi_identifiers[column].scale].is_coded
            bins = len(values) if is_coded else int(given["bins"])
            codes.append(discretized(values, bins))
        return columns[dependency_tree(np.stack(codes, axis=1), str(given["measure"])).keys]

    def _coordinates(
        self, embedding: Embedding, columns: Int64Vector, records: Int64Vector, *, has_rare: bool
    ) -> Float64Matrix:
        """Return the coordinates of quasi-identifiers, and of confidential numbers if dependence is preserved.

        They are those of the records of one part. With ``has_rare``, rare categories have no coordinates.

        References
        ----------
        .. [1] D. Rebollo-Monedero, J. Forné, M. Soriano and J. Puiggalí Allepuz, "k-Anonymous Microaggregation with
           Preservation of Statistical Dependence", Information Sciences 342, 2016, section 4.
        """
        share = self.policy.dependence
        if share and not self.scores.shape[1]:
            raise ConfigError(
                "steering.dependence: no confidential attribute is numeric; give one type: number, or set it to 0"
            )
        if share == 1:
            return np.nan_to_num(self.scores[records], nan=0.0)
        values = self.values[records]
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow is refused as a coordinate
            if has_rare:
                coordinates = embedding.frequent(values, self._fewest(embedding), MAX_CODES)
            else:
                coordinates = embedding.dense(values)
        if not share:
            return coordinates
        beta = math.sqrt(share / (1 - share) * len(columns) / self.scores.shape[1])
        return np.column_stack([coordinates, beta * np.nan_to_num(self.scores[records], nan=0.0)])

    def _constraints(self, algorithm: str) -> ClusterConstraints:
        confidential = self.protected
        if algorithm in T_CLOSE_ALGORITHMS and self.policy.t is None:
            (bins,) = self.confidential.values()  # the one attribute that is steered by
            confidential = (bins._replace(values=self.protected[0].codes if self.protected else None),)
        return ClusterConstraints(
            None if self.has_one_record_each else self.subjects,
            self.policy.max_share,
            confidential,
            self.policy.t,
            l=l_diversity_of(self.policy),
            max_value_share=self.policy.max_value_share,
        )


def _joined_labels(parts: list[Int64Vector], labels: list[Int32Vector]) -> Int32Vector:
    """Return the clusters of all parts (n,), numbered part after part."""
    joined, first = np.empty(sum(map(len, parts)), np.int32), 0
    for records, own in zip(parts, labels, strict=True):
        joined[records] = first + own
        first += int(own.max()) + 1
    return joined


_REMEDIES = {
    "privacy.l": "lower privacy.l",
    "privacy.max_value_share": "raise privacy.max_value_share (with distinct l it is 0.5 unless it is given)",
    "privacy.t": "raise privacy.t, or make the reference anew",
}


def require_feasible(data: TableData) -> None:
    """Raise AnonymityViolation unless the whole table satisfies the policy.

    If no subject has two records, no partition of it does then. Otherwise one may.
    """
    policy, whole = data.policy, np.zeros(len(data.values), np.int32)
    stated = {
        "privacy.l": ClusterConstraints(data.subjects, l=l_diversity_of(policy)),
        "privacy.max_value_share": ClusterConstraints(data.subjects, max_value_share=policy.max_value_share),
        "privacy.t": ClusterConstraints(data.subjects, t=policy.t),
    }
    violated: dict[str, list[str]] = {}
    for attribute, values in zip(policy.protected, data.protected, strict=True):
        for setting, constraints in stated.items():
            if violating_clusters(whole, 1, replace(constraints, confidential=(values,))).any():
                violated.setdefault(setting, []).append(attribute.name)
    if violated:
        found = " and ".join(f"{setting} ({', '.join(names)})" for setting, names in violated.items())
        remedies = ", ".join(_REMEDIES[setting] for setting in violated)
        outcome = "so no clusters of it can" if data.has_one_record_each else "and no clusters of it were found that"
        raise AnonymityViolation(
            f"the table as a whole violates {found}, {outcome} satisfy the policy; {remedies}, "
            "or add records with other values; nothing is released"
        )


class ConfidentialColumn:
    """One confidential attribute of a table as numbers or categories, collected block by block.

    Values are numbers if the type says so, or if it is ``any`` and all are numbers; else categories. A missing value is
    a value of its own, smaller than all others.
    """

    def __init__(self, attribute: Attribute, missing_values: Sequence[str]) -> None:
        self.attribute = attribute
        self._keys = ConfidentialKeys(attribute, missing_values)
        self._is_typed = attribute.type in {"integer", "number"}
        self._parts: list[NDArray[Any]] = []
        self._codes: dict[Any, int] = {}
        self._inexact: dict[int, float] = {}  # record number -> number that float64 does not represent exactly
        self._count = 0

    def add(self, column: Sequence[Any]) -> None:
        """Add the values of the next records."""
        column = self._keys.without_missing(column)
        if self._is_typed:
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
        if self._is_typed:
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
        if self._is_typed:
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
    """Collects the values of the protected attributes of a table, block by block; each value is stored once."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._codes: list[dict[Key, int]] = [{} for _ in policy.protected]
        self._parts: list[list[Int64Vector]] = [[np.empty(0, np.int64)] for _ in policy.protected]

    def add(self, block: Block) -> None:
        """Add the values of the next records; GuaranteeError if the block does not have them."""
        if not self._codes or not len(block):
            return
        if block.protected is None:
            raise GuaranteeError("a block lacks the values of the protected attributes")
        numbers, keys = block.protected
        for column, codes in enumerate(self._codes):
            own = np.array([codes.setdefault(key, len(codes)) for key in keys[column]], np.int64)
            self._parts[column].append(own[numbers[:, column]])

    def attributes(self, chosen: BoolVector, subjects: Int64Vector) -> dict[str, ConfidentialAttribute]:
        """Return the attributes by name, for the chosen records, whose ``subjects`` are the reference by default."""
        weights = person_weights(subjects)
        return {
            attribute.name: self._of(attribute, np.concatenate(parts)[chosen], list(codes), weights)
            for attribute, parts, codes in zip(self._policy.protected, self._parts, self._codes, strict=True)
        }

    def _of(
        self, attribute: Attribute, codes: Int64Vector, keys: list[Key], weights: Float64Vector
    ) -> ConfidentialAttribute:
        """Return one attribute. Bins of categories of the table itself are in the order of their first records."""
        if self._policy.t is None:
            return ConfidentialAttribute(codes, ordered=False)
        totals = np.bincount(codes, weights, len(keys)).tolist()
        present = {key: total for key, total in zip(keys, totals, strict=True) if total}
        shares = None if attribute.reference is not None else present
        reference = ReferenceBins(attribute, self._policy.missing_values, shares)
        if attribute.reference is None and reference.distance == "equal":
            return ConfidentialAttribute(np.unique(codes, return_inverse=True)[1], ordered=False, values=codes)
        bins = np.array([reference.bin_of(key) if key in present else 0 for key in keys], np.int64)
        if (bins == NO_BIN).any():
            raise GuaranteeError("a record has a confidential value that its reference cannot place")
        is_ordered = reference.distance == "ordered"
        return ConfidentialAttribute(bins[codes], is_ordered, value_reference_of(reference), codes)


def verify_subjects(policy: Policy, subjects: Int64Vector, order: Int64Vector, bounds: Int64Vector) -> Int64Matrix:
    """Verify that each record is in one cluster, and k and the largest share of each; AnonymityViolation if not.

    ``order`` (n,) lists the records, cluster after cluster; clusters begin at ``bounds``. Returns (2, clusters):
    distinct subjects, and most records of one subject.
    """
    count, sizes = len(subjects), np.diff(bounds)
    if len(order) != count or (np.bincount(order, minlength=count) != 1).any() or sizes.sum() != count:
        raise AnonymityViolation("a record is not in exactly one cluster; nothing was written")
    owners = np.repeat(np.arange(len(sizes)), sizes)
    codes = np.unique(subjects, return_inverse=True)[1]
    pairs, records = np.unique(owners * count + codes[order], return_counts=True)
    found = np.bincount(pairs // count, minlength=len(sizes))
    largest = np.zeros(len(sizes), np.int64)
    np.maximum.at(largest, pairs // count, records)
    if (found < policy.k).any():
        raise AnonymityViolation(f"a cluster has fewer than {policy.k} subjects; nothing was written")
    if (largest > policy.max_share * sizes + LAST_CHECK_TOLERANCE).any():
        raise AnonymityViolation(f"a subject has a share above {policy.max_share} of a cluster; nothing was written")
    return np.stack([found, largest])


def verify_values(
    policy: Policy, protected: tuple[ConfidentialAttribute, ...], labels: Int32Vector, subjects: Int64Vector
) -> None:
    """Verify l, t and the largest share of a value among the people of each cluster; AnonymityViolation if violated."""
    people, diversity = people_of(labels, subjects), l_diversity_of(policy)
    share = policy.max_value_share
    for attribute in protected:
        values = CountedValues(attribute.codes, people)
        if share is not None and (values.largest > share * people.counts + LAST_CHECK_TOLERANCE).any():
            raise AnonymityViolation("a cluster exceeds privacy.max_value_share; nothing was written")
        if diversity is not None and not values.satisfy(diversity).all():
            raise AnonymityViolation("a cluster violates privacy.l; nothing was written")
        t = policy.t
        if t is not None and not (_distances(attribute, people, subjects) <= t + LAST_CHECK_TOLERANCE).all():
            raise AnonymityViolation("a cluster is farther from the reference than privacy.t; nothing was written")


def _distances(attribute: ConfidentialAttribute, people: ClusterPeople, subjects: Int64Vector) -> Float64Vector:
    """Return the earth mover's distance of each cluster from its reference, shape (clusters,)."""
    reference = attribute.compared_with(subjects)
    shares = reference.weights / reference.weights.sum()
    if attribute.ordered:
        return _ordered_distances(attribute.bins, people, shares)
    paths = reference.paths
    if paths is None or not paths.shape[1]:
        return _differences(attribute.bins, people, shares)
    total: Float64Vector = np.zeros(len(people.counts))
    for nodes in paths.T:
        owners = np.unique(nodes, return_inverse=True)[1]
        total += _differences(owners[attribute.bins], people, np.asarray(np.bincount(owners, shares), np.float64))
    total /= paths.shape[1]
    return total


def _differences(bins: Int64Vector, people: ClusterPeople, shares: Float64Vector) -> Float64Vector:
    """Return half the sum of |share in the cluster - share in the reference| over all bins, shape (clusters,)."""
    pairs, numbers = np.unique(people.clusters * len(shares) + bins, return_inverse=True)
    owners, other = pairs // len(shares), shares[pairs % len(shares)]
    own = np.bincount(numbers, people.weights) / people.counts[owners]
    differences = np.bincount(owners, np.abs(own - other))
    absent = shares.sum() - np.bincount(owners, other)  # bins that do not occur in the cluster
    return np.asarray((differences + absent) / 2, np.float64)


def _ordered_distances(bins: Int64Vector, people: ClusterPeople, shares: Float64Vector) -> Float64Vector:
    """Return the mean of |cumulative share in the cluster - in the reference| over all bins but the last.

    The records of a cluster, in the order of their bins, cut the bins into parts. In part j the cumulative share of the
    cluster is the weight of j records over its people; that of the reference passes it at one bin, which is searched.
    """
    m, sizes = len(shares), np.bincount(people.clusters)
    if m == 1:
        return np.zeros(len(sizes))
    cumulative = np.cumsum(shares)[:-1]
    sums = np.append(0.0, np.cumsum(cumulative))
    order, firsts = np.lexsort((bins, people.clusters)), np.cumsum(sizes) - sizes
    edges = np.minimum(bins[order], m - 1)
    low, high = np.insert(edges, firsts, 0), np.insert(edges, firsts + sizes, m - 1)
    owners = np.repeat(np.arange(len(sizes)), sizes + 1)
    # Each cluster is summed by itself: in a sum over the table weights would be rounded more.
    parts = np.split(np.insert(people.weights[order], firsts, 0.0), (firsts + np.arange(len(sizes)))[1:])
    heights = np.concatenate([np.cumsum(part) for part in parts]) / people.counts[owners]
    crossings = np.clip(np.searchsorted(cumulative, heights, side="right"), low, high)
    above = heights * (crossings - low) - (sums[crossings] - sums[low])
    below = (sums[high] - sums[crossings]) - heights * (high - crossings)
    return np.asarray(np.bincount(owners, above + below) / (m - 1), np.float64)


def summarize(data: TableData, partitions: list[TablePartition]) -> dict[str, Any]:
    """Return the measures of a release; with several partitions those of clusters of whole records are null."""
    sizes = np.concatenate([np.diff(partition.bounds) for partition in partitions])
    counts = np.concatenate([partition.counts for partition in partitions], axis=1)
    published = np.column_stack([partition.published[partition.labels] for partition in partitions])
    first, is_one = partitions[0], len(partitions) == 1
    return {
        "clusters": len(sizes),
        "cluster_size": {"min": int(sizes.min()), "mean": float(sizes.mean()), "max": int(sizes.max())},
        "subjects": {"min": int(counts[0].min())},
        "share": {"max": float((counts[1] / sizes).max())},
        **_losses(data, published),
        "d_y": confidential_loss(first.labels, data.scores) if is_one else None,
        **measure_closeness(first.labels, data.confidential if is_one else {}, data.subjects),
        **(measure_diversity(data.protected, first.labels, data.subjects) if is_one and data.protected else {}),
        "dld": _linkage(data, published, first if is_one else None),
        "l_avg": distinct_categories(first.labels, data.scores) if is_one else None,
        "bound": first.bound if is_one else None,
        "gap": first.gap if is_one else None,
    }


def mdav_baseline(data: TableData, spec: AlgorithmSpec) -> dict[str, Any] | None:
    """Return the loss of MDAV on the same records, as a baseline for ``approximate``; None for other algorithms."""
    if spec.algorithm != "approximate" or spec.blocks:
        return None
    partition = data.partition(replace(spec, algorithm="mdav", parameters={}))[0]
    losses = _losses(data, partition.published[partition.labels])
    return {"sse": losses["sse"], "information_loss": losses["information_loss"]}


def _losses(data: TableData, published: Float64Matrix) -> dict[str, Any]:
    """Return the measures of loss: of numbers as z-scores, of all in units of their widths, of each in its own."""
    attributes = data.policy.quasi_identifiers
    values = data.values[:, : len(attributes)]
    ranges = np.nan_to_num(np.fmax.reduce(values, axis=0) - np.fmin.reduce(values, axis=0), nan=0.0)
    units = np.array(
        [w if a.bounds is None else a.bounds[1] - a.bounds[0] for a, w in zip(attributes, ranges, strict=True)]
    )
    distances = AttributeDistances(attributes, data.categories.trees).measure(
        values, published, np.where(units > 0, units, 1.0)
    )
    totals = LossTotals.of(attributes, values, published, distances.each)
    sse, sst = (totals.sse, totals.sst) if totals.has_numbers else (None, None)
    by_attribute = totals.by_attribute()
    return {
        "sse": sse,
        "sst": sst,
        "information_loss": 100 * sse / sst if sse is not None and sst else None,
        "mse": float(distances.squared.mean()),
        "mae": float(np.sqrt(distances.squared).mean()),
        "d_x": sse / sst if sse is not None and sst else None,
        "loss": by_attribute,
        "mean_loss": mean_loss(by_attribute),
    }


def _linkage(data: TableData, published: Float64Matrix, partition: TablePartition | None) -> float | None:
    """Return ``dld`` of the attributes with an order; None if there are none. A missing value counts as the mean."""
    attributes = data.policy.quasi_identifiers
    columns = [i for i, attribute in enumerate(attributes) if not SCALES[attribute.scale].is_coded]
    if not columns:
        return None
    is_all = len(columns) == data.values.shape[1]
    values = _filled(data.values if is_all else data.values[:, columns])
    if partition is not None:
        rows = _filled(partition.published if is_all else partition.published[:, columns])
        return linkage_share(values, rows, partition.labels, partition.bounds)
    rows, inverse = np.unique(_filled(published[:, columns]), axis=0, return_inverse=True)
    bounds = np.append(0, np.cumsum(np.bincount(inverse)))
    return linkage_share(values, rows, inverse.astype(np.int32), bounds)


def _filled(values: Float64Matrix) -> Float64Matrix:
    """Return the values with the mean of their column for missing ones."""
    absent = np.isnan(values)
    return np.where(absent, present_means(values, ~absent)[1], values) if absent.any() else values


def measure_closeness(
    labels: Int32Vector, confidential: Mapping[str, ConfidentialAttribute], subjects: Int64Vector
) -> dict[str, Any]:
    """Return mean and largest earth mover's distance over the clusters, by attribute and of the worst attribute."""
    emd_of: dict[str, Any] = {}
    for name, attribute in confidential.items():
        distances = emd_of_clusters(attribute, labels, subjects)
        emd_of[name] = {"mean": float(distances.mean()), "max": float(distances.max())}
    worst = max(emd_of.values(), key=lambda distance: distance["max"], default={"mean": None, "max": None})
    return {"emd": dict(worst), "emd_of": emd_of}


def measure_diversity(
    protected: tuple[ConfidentialAttribute, ...], labels: Int32Vector, subjects: Int64Vector
) -> dict[str, Any]:
    """Return the smallest number of values and the largest share of one, over all clusters and protected attributes."""
    people = people_of(labels, subjects)
    values = [CountedValues(attribute.codes, people) for attribute in protected]
    return {
        "l": {"min": min(int(own.distinct.min()) for own in values)},
        "value_share": {"max": max(float((own.largest / people.counts).max()) for own in values)},
    }
