"""Partitions of the records of a table: one over all quasi-identifiers, or one per block of quasi-identifiers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Matrix, Int32Vector, Int64Matrix, Int64Vector
from shoal.clustering.embedding import Embedding
from shoal.clustering.static import BudgetUsed, ClusterConstraints, ConfidentialAttribute, refined
from shoal.clustering.static.approximate import dependency_tree, discretized
from shoal.clustering.static.registry import check_parameters, parameters_of
from shoal.errors import ConfigError
from shoal.pipeline.category_index import CategoryIndex
from shoal.pipeline.value_index import l_diversity_of
from shoal.pipeline.value_verification import verify_subjects, verify_values
from shoal.policy import Policy

__all__ = ["AlgorithmSpec", "TableData", "TablePartition"]


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
