"""Records that can be released, and partitions of them: one over all quasi-identifiers, or one per block of columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from shoal.arrays import Float64Matrix, Int32Vector, Int64Matrix, Int64Vector
from shoal.clustering.embedding import Embedding
from shoal.clustering.static import BudgetUsed, ClusterConstraints, ConfidentialAttribute, emd_of_clusters, refined
from shoal.clustering.static.constraints import T_TOLERANCE
from shoal.clustering.stream.held_records import BEFORE, CAUSE, END, FLUSHED, NEWEST
from shoal.clustering.stream.held_records import DecisionBuffer as Decided
from shoal.clustering.stream.invariants import InvariantChecker
from shoal.errors import AnonymityViolation, ConfigError
from shoal.pipeline import table_measures as measures
from shoal.policy import Policy

__all__ = ["AlgorithmSpec", "TableData", "TablePartition", "mdav_baseline", "summarise"]


@dataclass(frozen=True, slots=True)
class AlgorithmSpec:
    """How a table is partitioned: names and parameters of algorithm and refinement.

    ``budget_for``: given n records and the number of blocks, makes the budget of the refinement of one block.
    ``blocks``: quasi-identifiers that are partitioned together; 0: all of them. With fewer than all, records that share
    one block need not share another, and **the joint record is not k-anonymous**.
    """

    algorithm: str = "auto"
    refine: str = "descent"
    seed: int = 0
    parameters: Mapping[str, float | str] = field(default_factory=dict)
    budget_for: Callable[[int, int], BudgetUsed] | None = None
    blocks: int = 0


class TablePartition(NamedTuple):
    """A partition of n records by some columns.

    ``labels`` (n,); records in ``order`` of clusters, which begin at ``offsets`` (G + 1,); what is published of
    ``columns`` for each cluster, as texts and as numbers (G, columns); and the ``counted`` subjects of each cluster and
    records of its heaviest one (2, G). ``bound``, ``gap``: of the exact choice, else None.
    """

    columns: Int64Vector
    labels: Int32Vector
    order: Int64Vector
    offsets: Int64Vector
    texts: list[list[str]]
    published: Float64Matrix
    counted: Int64Matrix
    bound: float | None = None
    gap: float | None = None


@dataclass(frozen=True, slots=True)
class TableData:
    """n records that can be released.

    ``values`` (n, d), ``people`` (n,); ``scores`` (n, m): confidential numbers as z-scores, NaN where there is none;
    ``confidential``: all confidential attributes as bins, called ``names``.
    """

    policy: Policy
    values: Float64Matrix
    people: Int64Vector
    scores: Float64Matrix
    confidential: tuple[ConfidentialAttribute, ...]
    names: tuple[str, ...]

    def parts(self, choice: AlgorithmSpec) -> list[TablePartition]:
        """Partition the records, by each block of columns.

        Raises
        ------
        ConfigError, ParameterError
            It cannot be done as chosen.
        GuaranteeError
            A cluster does not keep what was promised.
        """
        d = self.values.shape[1]
        # Where quasi-identifiers do not count, all blocks would be partitioned alike: they are one.
        width = d if self.policy.dependence == 1 else choice.blocks or d
        if width < d and self.policy.t is not None:
            raise ConfigError("--param blocks: cannot keep privacy.t; leave one of them out")
        blocks = [np.arange(first, min(first + width, d)) for first in range(0, d, width)]
        return [self._part(choice, columns, len(blocks)) for columns in blocks]

    def _part(self, choice: AlgorithmSpec, columns: Int64Vector, blocks: int) -> TablePartition:
        embedding = Embedding.of_table(self.policy, self.values)
        found = refined(
            self._coordinates(embedding, columns),
            self.policy.k,
            choice.algorithm,
            choice.refine,
            choice.seed,
            parameters=choice.parameters,
            budget_used=choice.budget_for(len(self.values), blocks) if choice.budget_for is not None else None,
            constraints=self._constraints(),
        )
        labels = found.labels
        order = np.argsort(labels, kind="stable")
        offsets = np.append(0, np.cumsum(np.bincount(labels)))
        counted = self._sealed(order, offsets)
        self._check_closeness(labels)
        proven = (found.bound, found.gap) if choice.refine == "exact" else (None, None)
        texts, published = embedding.select(columns).published(self.values[np.ix_(order, columns)], offsets)
        return TablePartition(columns, labels, order, offsets, texts, published, counted, *proven)

    def _coordinates(self, embedding: Embedding, columns: Int64Vector) -> Float64Matrix:
        """Quasi-identifiers, and beside them confidential numbers with the weight of preserved dependence.

        References
        ----------
        .. [1] D. Rebollo-Monedero, J. Forné, M. Soriano and J. Puiggalí Allepuz, "k-Anonymous Microaggregation with
           Preservation of Statistical Dependence", Information Sciences 342, 2016, section 4.
        """
        share = self.policy.dependence
        if share and not self.scores.shape[1]:
            raise ConfigError("steering.dependence: no confidential attribute holds numbers; give type: number, or 0")
        if share == 1:
            return np.nan_to_num(self.scores, nan=0.0)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused as a coordinate
            coordinates = embedding.coordinates(self.values)[:, columns]
        if not share:
            return coordinates
        beta = math.sqrt(share / (1 - share) * len(columns) / self.scores.shape[1])
        return np.column_stack([coordinates, beta * np.nan_to_num(self.scores, nan=0.0)])

    def _constraints(self) -> ClusterConstraints:
        shared = self.policy.subject is not None and len(np.unique(self.people)) < len(self.people)
        return ClusterConstraints(
            self.people if shared else None, self.policy.max_share, self.confidential, self.policy.t
        )

    def _check_closeness(self, labels: Int32Vector) -> None:
        """Measure again how far each cluster is from the table."""
        for attribute in self.confidential if self.policy.t is not None else ():
            farthest = float(emd_of_clusters(attribute, labels).max())
            if not farthest <= (self.policy.t or 0.0) + T_TOLERANCE:
                raise AnonymityViolation("a cluster farther from the table than privacy.t was about to leave")

    def _sealed(self, order: Int64Vector, offsets: Int64Vector) -> Int64Matrix:
        """Count clusters again from the records as they came; subjects and the heaviest one's records of each."""
        count = len(self.people)
        guarantee = InvariantChecker(self.policy.k, count + 1, self.policy.max_share)
        guarantee.register(np.arange(count), self.people)
        clusters = np.zeros((3, len(offsets) - 1), np.int64)
        clusters[END], clusters[CAUSE], clusters[NEWEST] = offsets[1:], FLUSHED, count - 1
        nobody = np.zeros((BEFORE + 1, 0), np.int64)
        return guarantee.verify(Decided(order, clusters, nobody, np.array([len(offsets) - 1, count, 0])))


def summarise(body: TableData, parts: list[TablePartition]) -> dict[str, Any]:
    """Return the figures of a partition; of several, those that speak of clusters of whole records are null."""
    sizes = np.concatenate([np.diff(part.offsets) for part in parts])
    counted = np.concatenate([part.counted for part in parts], axis=1)
    published = np.column_stack([part.published[part.labels] for part in parts])
    first, is_one = parts[0], len(parts) == 1
    known = measures.closeness(first.labels, body.confidential, list(body.names)) if is_one else measures.UNKNOWN
    rows, labels, offsets = first.published, first.labels, first.offsets
    if not is_one:
        rows, inverse = np.unique(published, axis=0, return_inverse=True)
        labels, offsets = inverse.astype(np.int32), np.append(0, np.cumsum(np.bincount(inverse)))
    return {
        "clusters": len(sizes),
        "cluster_size": {"min": int(sizes.min()), "mean": float(sizes.mean()), "max": int(sizes.max())},
        "subjects": {"min": int(counted[0].min())},
        "share": {"max": float((counted[1] / sizes).max())},
        **measures.losses(body.values, published, _span(body)),
        "d_y": measures.preserved(first.labels, body.scores) if is_one else None,
        **known,
        "dld": measures.disclosure(body.values, rows, labels, offsets),
        "l_avg": measures.distinct_categories(first.labels, body.scores) if is_one else None,
        "bound": first.bound if is_one else None,
        "gap": first.gap if is_one else None,
    }


def mdav_baseline(body: TableData, choice: AlgorithmSpec) -> dict[str, Any] | None:
    """Return what MDAV loses on the same records, for an algorithm that approximates it; None for others."""
    if choice.algorithm != "approximate" or choice.blocks:
        return None
    part = body.parts(replace(choice, algorithm="mdav", parameters={}))[0]
    found = measures.losses(body.values, part.published[part.labels], _span(body))
    return {"sse": found["sse"], "information_loss": found["information_loss"]}


def _span(body: TableData) -> Any:  # noqa: ANN401
    """What values are divided by for mse and mae: the width of the bounds, else the table's own range."""
    own = body.values.max(axis=0) - body.values.min(axis=0)
    bounds = [attribute.bounds for attribute in body.policy.quasi_identifiers]
    return np.array([own[i] if bound is None else bound[1] - bound[0] for i, bound in enumerate(bounds)])
