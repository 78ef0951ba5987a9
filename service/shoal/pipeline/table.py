"""The pipeline of a finished table: decoded records in, published rows and a summary out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from shoal.arrays import LARGEST, BoolVector, Float64Matrix, Int64Vector
from shoal.clustering.embedding import Embedding
from shoal.clustering.static import records_above_share
from shoal.errors import ConfigError, InputError
from shoal.pipeline.category_index import CategoryIndex
from shoal.pipeline.confidential_columns import ConfidentialColumn, z_scores
from shoal.pipeline.protected_columns import ProtectedColumns
from shoal.pipeline.subject_quota import SubjectQuota
from shoal.pipeline.table_measures import mdav_baseline, summarize
from shoal.pipeline.table_partition import AlgorithmSpec, TableData, TablePartition
from shoal.pipeline.whole_table import require_feasible
from shoal.policy import Policy, Role
from shoal.records import Block, RecordEncoder

__all__ = ["TablePipeline", "TableRelease"]


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

    Raises
    ------
    ConfigError
        The policy has ``privacy.dominance``, which exists for streams only.

    Notes
    -----
    Guarantees: every released record is in one cluster, and `clustering.stream.invariants` has verified that the
    cluster has k distinct subjects and no subject above ``max_share``. Only two kinds of records are suppressed: those
    above ``privacy.per_subject``, and those by which a subject has more than ``max_share`` of the whole table.
    Memory: values, one number per confidential attribute, and unchanged fields as bytes.
    """

    def __init__(self, policy: Policy, encoder: RecordEncoder) -> None:
        if policy.dominance is not None:
            raise ConfigError(
                "privacy.dominance: is not available for tables; remove it, or add a stream section and use shoal pipe"
            )
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
