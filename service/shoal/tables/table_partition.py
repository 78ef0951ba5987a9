"""Partitions of the records of a table: one over all quasi-identifiers, or one per block of quasi-identifiers.

The last check of a table: each cluster keeps k, l-diversity, all shares and t-closeness by a second computation.

It counts and measures from the definitions, in numpy, and shares no arithmetic with what forms clusters. It does share
their input: the codes and bins of the records, and the weights and paths of a reference. So it does not find a wrong
code or bin; the judge reads those anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int32Vector, Int64Matrix, Int64Vector
from shoal.errors import AnonymityViolation, ConfigError
from shoal.policy import Diversity, Policy
from shoal.protection.value_codes import l_diversity_of
from shoal.scales import Embedding
from shoal.scales.coordinates import CategoryIndex
from shoal.tables.constraints import ClusterConstraints, ConfidentialAttribute
from shoal.tables.literature.approximate import dependency_tree, discretized
from shoal.tables.microaggregation import check_parameters, parameters_of, refined
from shoal.tables.refinement import BudgetUsed

__all__ = ["AlgorithmSpec", "TableData", "TablePartition", "verify_subjects", "verify_values"]

TOLERANCE = 1e-9
"""Rounding allowance for counts and distances."""


def verify_subjects(policy: Policy, subjects: Int64Vector, order: Int64Vector, bounds: Int64Vector) -> Int64Matrix:
    """Verify that each record is in one cluster, and k and the largest share of each cluster.

    Parameters
    ----------
    policy : Policy
    subjects : ndarray of int64, shape (n,)
        Subject of each record.
    order : ndarray of int64, shape (n,)
        Records, cluster after cluster.
    bounds : ndarray of int64, shape (clusters + 1,)
        Where each cluster begins in ``order``, and n.

    Returns
    -------
    ndarray of int64, shape (2, clusters)
        Row 0: number of distinct subjects of each cluster. Row 1: largest number of records of one subject.

    Raises
    ------
    AnonymityViolation
        A record is missing or in two clusters, or a cluster violates ``privacy.k`` or ``privacy.max_share``. Nothing
        was written.
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
    if (largest > policy.max_share * sizes + TOLERANCE).any():
        raise AnonymityViolation(f"a subject has a share above {policy.max_share} of a cluster; nothing was written")
    return np.stack([found, largest])


def verify_values(policy: Policy, protected: tuple[ConfidentialAttribute, ...], labels: Int32Vector) -> None:
    """Verify the protected attributes of each cluster.

    Parameters
    ----------
    policy : Policy
    protected : tuple of ConfidentialAttribute
        The protected attributes of n records.
    labels : ndarray of int32, shape (n,)
        Cluster of each record, from 0; no cluster is empty.

    Raises
    ------
    AnonymityViolation
        A cluster violates ``privacy.l``, ``privacy.max_value_share`` or ``privacy.t``. Nothing was written.
    """
    sizes = np.bincount(labels)
    for attribute in protected:
        counts = _Counts(attribute.codes, labels)
        share = policy.max_value_share
        if share is not None and (counts.largest > share * sizes + TOLERANCE).any():
            raise AnonymityViolation("a cluster exceeds privacy.max_value_share; nothing was written")
        if policy.diversity is not None and not counts.satisfy(policy.diversity, sizes).all():
            raise AnonymityViolation("a cluster violates privacy.l; nothing was written")
        if policy.t is not None and not (_distances(attribute, labels) <= policy.t + TOLERANCE).all():
            raise AnonymityViolation("a cluster is farther from the reference than privacy.t; nothing was written")


class _Counts:
    """How often each value occurs in each cluster: one entry per pair that occurs, rarest first in each cluster."""

    def __init__(self, codes: Int64Vector, labels: Int32Vector) -> None:
        pairs, counts = np.unique(np.stack([labels.astype(np.int64), codes]), axis=1, return_counts=True)
        order = np.lexsort((counts, pairs[0]))
        self._owners, self._counts = pairs[0][order], counts[order]
        self._clusters = int(labels.max()) + 1
        self._ends = np.cumsum(np.bincount(self._owners))

    @property
    def largest(self) -> Int64Vector:
        """Records with the most frequent value of each cluster."""
        return self._counts[self._ends - 1]

    def satisfy(self, diversity: Diversity, sizes: Int64Vector) -> BoolVector:
        """Return which clusters are diverse."""
        if diversity.kind == "distinct":
            return np.asarray(np.bincount(self._owners) >= diversity.l, np.bool_)
        if diversity.kind == "entropy":
            shares = self._counts / sizes[self._owners]
            entropies = np.bincount(self._owners, shares * np.log(1 / shares))
            return np.asarray(entropies >= math.log(diversity.l) - TOLERANCE, np.bool_)
        ranks_from_last = self._ends[self._owners] - np.arange(len(self._owners))  # 1 for the most frequent value
        rest = np.bincount(self._owners, self._counts * (ranks_from_last >= diversity.l), self._clusters)
        return np.asarray(self.largest < (diversity.c or 0.0) * rest - TOLERANCE, np.bool_)


def _distances(attribute: ConfidentialAttribute, labels: Int32Vector) -> Float64Vector:
    """Return the earth mover's distance of each cluster from its reference, shape (clusters,)."""
    reference = attribute.compared_with()
    shares = reference.weights / reference.weights.sum()
    if attribute.ordered:
        return _ordered_distances(attribute.bins, labels, shares)
    paths = reference.paths
    if paths is None or not paths.shape[1]:
        return _differences(attribute.bins, labels, shares)
    total: Float64Vector = np.zeros(int(labels.max()) + 1)
    for nodes in paths.T:
        owners = np.unique(nodes, return_inverse=True)[1]
        total += _differences(owners[attribute.bins], labels, np.asarray(np.bincount(owners, shares), np.float64))
    total /= paths.shape[1]
    return total


def _differences(bins: Int64Vector, labels: Int32Vector, shares: Float64Vector) -> Float64Vector:
    """Return half the sum of |share in the cluster - share in the reference| over all bins, shape (clusters,)."""
    pairs, counts = np.unique(np.stack([labels.astype(np.int64), bins]), axis=1, return_counts=True)
    own = counts / np.bincount(labels)[pairs[0]]
    other = shares[pairs[1]]
    differences = np.bincount(pairs[0], np.abs(own - other))
    absent = shares.sum() - np.bincount(pairs[0], other)  # bins that do not occur in the cluster
    return np.asarray((differences + absent) / 2, np.float64)


def _ordered_distances(bins: Int64Vector, labels: Int32Vector, shares: Float64Vector) -> Float64Vector:
    """Return the mean of |cumulative share in the cluster - in the reference| over all bins but the last.

    The records of a cluster, in the order of their bins, cut the bins into parts. In part j the cumulative share of the
    cluster is j over its size; that of the reference passes it at one bin, which is searched.
    """
    m = len(shares)
    if m == 1:
        return np.zeros(int(labels.max()) + 1)
    cumulative = np.cumsum(shares)[:-1]
    sums = np.append(0.0, np.cumsum(cumulative))
    sizes = np.bincount(labels)
    edges = np.minimum(bins[np.lexsort((bins, labels))], m - 1)
    firsts = np.cumsum(sizes) - sizes
    low, high = np.insert(edges, firsts, 0), np.insert(edges, firsts + sizes, m - 1)
    parts = sizes + 1
    owners = np.repeat(np.arange(len(sizes)), parts)
    steps = np.arange(len(owners)) - np.repeat(np.cumsum(parts) - parts, parts)
    heights = steps / sizes[owners]
    crossings = np.clip(np.searchsorted(cumulative, heights, side="right"), low, high)
    above = heights * (crossings - low) - (sums[crossings] - sums[low])
    below = (sums[high] - sums[crossings]) - heights * (high - crossings)
    return np.asarray(np.bincount(owners, above + below) / (m - 1), np.float64)


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


class TablePartition(NamedTuple):
    """A partition of n records, and what it publishes of some quasi-identifiers.

    Attributes
    ----------
    columns : ndarray of int64, shape (c,)
        Indices of these quasi-identifiers.
    labels : ndarray of int32, shape (n,)
        Cluster of each record.
    order : ndarray of int64, shape (n,)
        Indices of the records, cluster after cluster.
    bounds : ndarray of int64, shape (G + 1,)
        Cluster g is ``order[bounds[g]:bounds[g + 1]]``.
    texts : list of list of str
        Published JSON scalars of each cluster.
    published : ndarray of float64, shape (G, c)
        The same as numbers of the attributes' scales; NaN for null.
    counts : ndarray of int64, shape (2, G)
        Distinct subjects of each cluster, and records of its subject with most records.
    bound, gap : float or None
        Proven lower bound of the loss, and relative distance from it, of the exact refinement; else None.
    """

    columns: Int64Vector
    labels: Int32Vector
    order: Int64Vector
    bounds: Int64Vector
    texts: list[list[str]]
    published: Float64Matrix
    counts: Int64Matrix
    bound: float | None = None
    gap: float | None = None


@dataclass(frozen=True, slots=True)
class TableData:
    """The n records of a table that can be released.

    Attributes
    ----------
    policy : Policy
        Attributes and constraints.
    values : ndarray of float64, shape (n, d)
        Clustered attributes as in `records.Block`, with the codes of ``categories``.
    categories : CategoryIndex
        Codes of the categories of nominal attributes.
    subjects : ndarray of int64, shape (n,)
        Subject codes, from 0.
    scores : ndarray of float64, shape (n, m)
        Numeric confidential attributes as z-scores; NaN for a missing value.
    confidential : tuple of ConfidentialAttribute
        The protected confidential attributes as bins, or all of them if the policy protects none.
    confidential_names : tuple of str
        Their names.
    protected : tuple of ConfidentialAttribute
        The attributes that l, t and the largest share of a value apply to.
    """

    policy: Policy
    values: Float64Matrix
    categories: CategoryIndex
    subjects: Int64Vector
    scores: Float64Matrix
    confidential: tuple[ConfidentialAttribute, ...]
    confidential_names: tuple[str, ...]
    protected: tuple[ConfidentialAttribute, ...] = ()

    def partition(self, spec: AlgorithmSpec) -> list[TablePartition]:
        """Partition the records once for each block of quasi-identifiers.

        Raises
        ------
        ConfigError, ParameterError
            The algorithm does not support these parameters or this policy.
        GuaranteeError
            A cluster violates an invariant.
        """
        d = len(self.policy.quasi_identifiers)
        # With dependence 1 quasi-identifiers have no weight: all blocks would have the same partition.
        width = d if self.policy.dependence == 1 else spec.blocks or d
        if width < d and self.policy.protects_values:
            raise ConfigError("--param blocks: cannot be combined with privacy.l, t or max_value_share; remove blocks")
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
        found = refined(
            self._coordinates(compared, columns),
            self.policy.k,
            algorithm,
            spec.refine,
            spec.seed,
            parameters=parameters,
            budget_used=spec.budget_for(len(self.values), blocks) if spec.budget_for is not None else None,
            constraints=self._constraints(),
        )
        labels = found.labels
        order = np.argsort(labels, kind="stable")
        bounds = np.append(0, np.cumsum(np.bincount(labels)))
        counts = verify_subjects(self.policy, self.subjects, order, bounds)
        verify_values(self.policy, self.protected, labels)
        proven = (found.bound, found.gap) if spec.refine == "exact" else (None, None)
        texts, published = embedding.published(self.values[order], bounds)
        return TablePartition(columns, labels, order, bounds, texts, published, counts, *proven)

    def _key_attributes(self, spec: AlgorithmSpec, columns: Int64Vector) -> Int64Vector:
        """Return the key attributes among quasi-identifiers; a category is one value, not a coordinate per code.

        Raises
        ------
        ConfigError
            A refinement is asked for: it would compare the key attributes only.
        ParameterError
            As `check_parameters`.
        """
        check_parameters(spec.algorithm, spec.parameters)
        if spec.refine != "none":
            raise ConfigError("--refine: cannot follow algorithm approximate on a table with categories; remove it")
        given = parameters_of(spec.algorithm) | dict(spec.parameters)
        codes = []
        for column in columns.tolist():
            values = np.nan_to_num(self.values[:, column], nan=-np.inf)
            bins = len(values) if self.policy.quasi_identifiers[column].is_nominal else int(given["bins"])
            codes.append(discretized(values, bins))
        return columns[dependency_tree(np.stack(codes, axis=1), str(given["measure"])).keys]

    def _coordinates(self, embedding: Embedding, columns: Int64Vector) -> Float64Matrix:
        """Return the coordinates of quasi-identifiers, and of confidential numbers if dependence is preserved.

        Every quasi-identifier has about the same variance, whatever its scale, and counts as one in the dependence.

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
            return np.nan_to_num(self.scores, nan=0.0)
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow is refused as a coordinate
            coordinates = embedding.dense(self.values)
        if not share:
            return coordinates
        beta = math.sqrt(share / (1 - share) * len(columns) / self.scores.shape[1])
        return np.column_stack([coordinates, beta * np.nan_to_num(self.scores, nan=0.0)])

    def _constraints(self) -> ClusterConstraints:
        shared = self.policy.subject is not None and len(np.unique(self.subjects)) < len(self.subjects)
        return ClusterConstraints(
            self.subjects if shared else None,
            self.policy.max_share,
            self.protected,
            self.policy.t,
            l=l_diversity_of(self.policy),
            max_value_share=self.policy.max_value_share,
        )
