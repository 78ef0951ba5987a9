"""A finished table from decoded blocks to published rows: embed, partition, check, centroid, encode, measure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from shoal.arrays import LARGEST, BoolVector, Float64Matrix, Int64Vector
from shoal.clustering.embedding import Embedding
from shoal.clustering.static import records_above_share
from shoal.errors import ConfigError, InputError
from shoal.pipeline.confidential_columns import ConfidentialColumn, standardised
from shoal.pipeline.subject_quota import SubjectQuota
from shoal.pipeline.table_partition import AlgorithmSpec, TableData, TablePartition, mdav_baseline, summarise
from shoal.policy import Policy, Role
from shoal.records import Block, RecordEncoder

__all__ = ["TablePipeline", "TableRelease"]


class TableRelease(NamedTuple):
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


class TablePipeline:
    """All records of a table.

    Parameters
    ----------
    policy : Policy
        What is protected and how strongly.
    encoder : RecordEncoder
        Of the output's format.

    Notes
    -----
    Guarantees: every released record is in one cluster, which `clustering.stream.invariants` has counted again: k
    different subjects, none above ``max_share``. Suppressed are only records above ``privacy.per_subject``, and those
    by which a
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
        self._watched = [
            (number, ConfidentialColumn.of(a))
            for number, a in enumerate(policy.passthrough)
            if a.role is Role.CONFIDENTIAL
        ]
        self.clipped = 0

    def __len__(self) -> int:
        return len(self._tails)

    def too_large(self, block: Block) -> Iterator[tuple[int, str]]:
        """Find numbers whose squares fit no float: place in the block, from 0, field and remedy."""
        for place, column in np.argwhere(np.abs(block.values) > LARGEST).tolist():
            name = self._policy.quasi_identifiers[column].name
            yield place, f"field {name}: a number beyond {LARGEST:g}; give {name} in another unit"

    def add(self, block: Block) -> None:
        """Take the next records, decoded with their kept fields; none `too_large`."""
        self._values.append(block.values)
        self._subjects.append(block.subjects)
        self._tails += block.passthrough
        for number, watched in self._watched:
            watched.add(block.passthrough_columns[number])
        self.clipped += block.clipped

    def release(self, choice: AlgorithmSpec, *, keep_order: bool = False) -> TableRelease:
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
        body = self._body(values[chosen], people[chosen], stays)
        parts = body.parts(choice)
        rows = self._rows(parts, chosen, keep_order=keep_order)
        summary = summarise(body, parts) | {
            "records": len(stays),
            "released": len(chosen),
            "suppressed": len(stays) - len(chosen),
            "clipped": self.clipped,
            "keep_order": keep_order,
            "algorithm": choice.algorithm,
            "refine": choice.refine,
        }
        if (mdav := mdav_baseline(body, choice)) is not None:
            summary["mdav"] = mdav
        if len(parts) > 1:
            summary |= {"blocks": choice.blocks, "jointly_k_anonymous": False}
        return TableRelease(rows, chosen[parts[0].order], parts[0].offsets, np.flatnonzero(~stays), summary)

    def _body(self, values: Float64Matrix, people: Int64Vector, stays: BoolVector) -> TableData:
        watched = [one for _, one in self._watched]
        numbers = [column for one in watched if (column := one.values()) is not None]
        return TableData(
            policy=self._policy,
            values=values,
            people=people,
            scores=standardised([column[stays] for column in numbers], len(values)),
            confidential=tuple(one.bins(stays) for one in watched),
            names=tuple(one.attribute.name for one in watched),
        )

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
            stays = ~SubjectQuota(self._policy.per_subject).surplus(people, np.arange(len(people)))
        least = max(self._policy.k, self._policy.min_population or 0)
        if len(np.unique(people[stays])) < least:
            raise InputError(f"fewer than {least} different people: nobody would be hidden, and nothing is released")
        if self._policy.subject is not None:
            coordinates = Embedding.of_table(self._policy, values[stays]).coordinates(values[stays])
            above = records_above_share(people[stays], self._policy.max_share, coordinates)
            stays[np.flatnonzero(stays)[above]] = False
        return stays

    def _rows(self, parts: list[TablePartition], chosen: Int64Vector, *, keep_order: bool) -> list[bytes]:
        tails, part = self._tails, parts[0]
        if keep_order or len(parts) > 1:
            labels = zip(*(part.labels.tolist() for part in parts), strict=True)
            texts = [
                [text for part, label in zip(parts, own, strict=True) for text in part.texts[label]] for own in labels
            ]
            rows = self._encoder.encode_clusters(texts, [tails[i] for i in chosen.tolist()], range(len(chosen) + 1))
        else:
            rows = self._encoder.encode_clusters(
                part.texts, [tails[i] for i in chosen[part.order].tolist()], part.offsets
            )
        if not keep_order:
            rows.sort()
        return rows
