"""A finished table from decoded blocks to published rows: embed, partition, check, centroid, encode, measure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from shoal.engine.embed import Embedding
from shoal.engine.guarantee import Guarantee
from shoal.engine.static import Demands, Pace, microaggregate, surplus
from shoal.errors import ConfigError, InputError
from shoal.flow import measures
from shoal.flow.admission import Admission
from shoal.flow.confidential import Watched, standardised
from shoal.kernel.arrays import BoolVector, Float64Matrix, Int32Vector, Int64Matrix, Int64Vector
from shoal.kernel.held import BEFORE, CAUSE, END, FLUSHED, NEWEST
from shoal.kernel.held import Outcome as Decided
from shoal.policy import Policy, Role
from shoal.records import Block, RecordEncoder

__all__ = ["Choice", "Release", "Table"]


@dataclass(frozen=True, slots=True)
class Choice:
    """How a table is partitioned: names and parameters of algorithm and refinement."""

    algorithm: str = "auto"
    refine: str = "descent"
    seed: int = 0
    parameters: Mapping[str, float | str] = field(default_factory=dict)
    pace: Pace | None = None


class Release(NamedTuple):
    """What is published.

    ``rows``: published bytes, in the order of ``places``; ``places``: numbers of the released records, cluster after
    cluster; ``offsets`` (G + 1,): where clusters begin; ``suppressed``: numbers of records that are not released.
    """

    rows: list[bytes]
    places: Int64Vector
    offsets: Int64Vector
    suppressed: Int64Vector
    summary: dict[str, Any]

    def clusters(self) -> Iterator[list[int]]:
        """Members of each cluster, ascending."""
        for start, end in pairwise(self.offsets.tolist()):
            yield self.places[start:end].tolist()


class Table:
    """All records of a table.

    Parameters
    ----------
    policy : Policy
        What is protected and how strongly.
    encoder : RecordEncoder
        Of the output's format.

    Notes
    -----
    Guarantees: every released record is in one cluster, which `engine.guarantee` has counted again: k different
    subjects, none above ``max_share``. Suppressed are only records above ``privacy.per_subject``, and those by which a
    subject would own more than ``max_share`` of the whole table. Memory: values, one number per confidential
    attribute, and kept fields as bytes.
    """

    def __init__(self, policy: Policy, encoder: RecordEncoder) -> None:
        if policy.dominance is not None:
            raise ConfigError(
                "privacy.dominance: not yet for tables; remove it, or give a stream section and use shoal pipe"
            )
        self._policy, self._encoder = policy, encoder
        self._values: list[Float64Matrix] = []
        self._subjects: list[Int64Vector] = []
        self._tails: list[bytes] = []
        self._watched = [(number, Watched.of(a)) for number, a in enumerate(policy.kept) if a.role is Role.CONFIDENTIAL]
        self.clipped = 0

    def __len__(self) -> int:
        return len(self._tails)

    def add(self, block: Block) -> None:
        """Take the next records, decoded with their kept fields."""
        self._values.append(block.values)
        self._subjects.append(block.subjects)
        self._tails += block.tails
        for number, watched in self._watched:
            watched.add(block.kept[number])
        self.clipped += block.clipped

    def release(self, choice: Choice, *, keep_order: bool = False) -> Release:
        """Partition the table and publish it.

        Parameters
        ----------
        choice : Choice
            How.
        keep_order : bool
            Whether rows stay in the order of the input; else they are sorted by their bytes.

        Raises
        ------
        InputError
            There are not enough people.
        ParameterError
            There is no such algorithm, or not with these parameters.
        GuaranteeError
            A cluster does not keep what was promised: nothing is returned.
        """
        values, people = self._whole()
        stays = self._staying(values, people)
        chosen = np.flatnonzero(stays)
        values, people = values[chosen], people[chosen]
        embedding = Embedding.of_table(self._policy, values)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused as a coordinate
            coordinates = embedding.coordinates(values)
        labels = microaggregate(
            coordinates,
            self._policy.k,
            choice.algorithm,
            choice.refine,
            choice.seed,
            parameters=choice.parameters,
            pace=choice.pace,
            demands=self._demands(people),
        )
        del coordinates
        order = np.argsort(labels, kind="stable")
        offsets = np.append(0, np.cumsum(np.bincount(labels)))
        counted = self._sealed(people, order, offsets)
        texts, published = embedding.published(values[order], offsets)
        rows = self._rows(texts, chosen, labels, order, offsets, keep_order=keep_order)
        summary = self._summary(values, published, labels, offsets, stays) | {
            "subjects": {"min": int(counted[0].min())},
            "share": {"max": float((counted[1] / np.diff(offsets)).max())},
            "keep_order": keep_order,
            "algorithm": choice.algorithm,
            "refine": choice.refine,
        }
        return Release(rows, chosen[order], offsets, np.flatnonzero(~stays), summary)

    def _whole(self) -> tuple[Float64Matrix, Int64Vector]:
        if not self._values:
            raise InputError("no records: there is nothing to release")
        values, people = np.concatenate(self._values), np.concatenate(self._subjects)
        self._values.clear()
        self._subjects.clear()
        return values, np.unique(people, return_inverse=True)[1]

    def _staying(self, values: Float64Matrix, people: Int64Vector) -> BoolVector:
        """Tell which records can be released at all (n,)."""
        stays = np.ones(len(people), np.bool_)
        if self._policy.per_subject is not None:
            stays = ~Admission(self._policy.per_subject).surplus(people, np.arange(len(people)))
        least = max(self._policy.k, self._policy.min_population or 0)
        if len(np.unique(people[stays])) < least:
            raise InputError(f"fewer than {least} different people: nobody would be hidden, and nothing is released")
        if self._policy.subject is not None:
            coordinates = Embedding.of_table(self._policy, values[stays]).coordinates(values[stays])
            stays[np.flatnonzero(stays)[surplus(people[stays], self._policy.max_share, coordinates)]] = False
        return stays

    def _demands(self, people: Int64Vector) -> Demands:
        shared = self._policy.subject is not None and len(np.unique(people)) < len(people)
        return Demands(people if shared else None, self._policy.max_share)

    def _sealed(self, people: Int64Vector, order: Int64Vector, offsets: Int64Vector) -> Int64Matrix:
        """Count clusters again from the records as they came; subjects and the heaviest one's records of each."""
        count = len(people)
        guarantee = Guarantee(self._policy.k, count + 1, self._policy.max_share)
        guarantee.admit(np.arange(count), people)
        clusters = np.zeros((3, len(offsets) - 1), np.int64)
        clusters[END], clusters[CAUSE], clusters[NEWEST] = offsets[1:], FLUSHED, count - 1
        nobody = np.zeros((BEFORE + 1, 0), np.int64)
        return guarantee.seal(Decided(order, clusters, nobody, np.array([len(offsets) - 1, count, 0])))

    def _rows(
        self,
        texts: list[list[str]],
        chosen: Int64Vector,
        labels: Int32Vector,
        order: Int64Vector,
        offsets: Int64Vector,
        *,
        keep_order: bool,
    ) -> list[bytes]:
        tails = self._tails
        if keep_order:
            alone = range(len(chosen) + 1)
            return self._encoder.rows([texts[label] for label in labels], [tails[i] for i in chosen.tolist()], alone)
        rows = self._encoder.rows(texts, [tails[i] for i in chosen[order].tolist()], offsets)
        rows.sort()
        return rows

    def _summary(
        self,
        values: Float64Matrix,
        published: Float64Matrix,
        labels: Int32Vector,
        offsets: Int64Vector,
        stays: BoolVector,
    ) -> dict[str, Any]:
        sizes = np.diff(offsets)
        bounds = [a.bounds for a in self._policy.quasi_identifiers]
        own = values.max(axis=0) - values.min(axis=0)
        span = np.array([own[i] if b is None else b[1] - b[0] for i, b in enumerate(bounds)])
        numbers = [n for _, watched in self._watched if (n := watched.values()) is not None]
        scores = standardised([column[stays] for column in numbers], len(values))
        return {
            "records": len(stays),
            "released": len(values),
            "suppressed": len(stays) - len(values),
            "clipped": self.clipped,
            "clusters": len(sizes),
            "cluster_size": {"min": int(sizes.min()), "mean": float(sizes.mean()), "max": int(sizes.max())},
            **measures.losses(values, published[labels], span),
            "d_y": measures.preserved(labels, scores),
            **measures.closeness(
                labels,
                tuple(watched.bins(stays) for _, watched in self._watched),
                [watched.attribute.name for _, watched in self._watched],
            ),
            "dld": measures.disclosure(values, published, labels, offsets),
            "l_avg": measures.distinct_categories(labels, scores),
        }
