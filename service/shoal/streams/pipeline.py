"""The pipeline of one partition: decoded records in, clusters of published rows out; and its compilation ahead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.errors import GuaranteeError
from shoal.formats import Block, JsonEncoder, RecordEncoder
from shoal.policy import Policy
from shoal.protection.quota import SubjectQuota
from shoal.protection.value_codes import ValueIndex
from shoal.scales import CategoryIndex, Embedding, Scaling
from shoal.scales.loss import AttributeDistances
from shoal.streams.clusterer import BlockColumns, NewClusters, StreamClusterer
from shoal.streams.held_records import Decisions
from shoal.streams.release import (
    BlockDecisions,
    ClusterRestorer,
    DecidedCluster,
    PendingRow,
    ReorderBuffer,
    RestoredMember,
    join_decisions,
    released_in_order,
)
from shoal.streams.spreads import AdaptiveState, Spreads
from shoal.streams.stats import NO_CONFIDENTIAL_STATS, RunSummary, measure_clusters
from shoal.streams.steering import ConfidentialNumbers, DistanceSpace, TargetSpan
from shoal.tables.precompilation import artificial_block

BLOCK_RECORDS, LARGE_BLOCK_RECORDS = 512, 2048
"""Most records of a block if a commit may come between reading it and deciding on it; and of any other block."""
UNLIMITED = 1 << 60
_OFFSET, _BY_OFFSET_SPAN = 1, 2
"""Column of the offset in the expiry keys; cause of a decision by its limit. Greater is the cause by held bytes."""


class PartitionPipeline:
    """The steps from decoded records to published rows, for one partition; ``policy`` must have a stream section.

    The caller decodes a block, calls `apply_quota`, classifies the messages (of Kafka), and calls `push`; `flush`
    decides on all records that are held. Beyond a distance of ``max_offset_span`` from the newest offset the oldest
    record expires early, and when later records have more than ``stream.max_held_bytes``. ``next_cluster_number``,
    ``adaptive_state`` and ``restorer`` (the clusters that were released in part) are what a restart continues from.
    Raises `GuaranteeError` for such a cluster under ``stream.release: cluster``.

    Guarantees: a record is released once, in a cluster that was verified when it was decided, or it is suppressed.
    Decisions depend only on the records, their offsets and timestamps, and not on how the records are divided into
    blocks. Memory: ``delta`` records and two blocks; with ordered release also the rows of as many records.
    """

    def __init__(
        self,
        policy: Policy,
        encoder: RecordEncoder,
        *,
        max_offset_span: int = UNLIMITED,
        next_cluster_number: int = 0,
        adaptive_state: AdaptiveState | None = None,
        restorer: ClusterRestorer | None = None,
    ) -> None:
        stream = policy.require_stream()
        state, span = adaptive_state or AdaptiveState(), policy.target_span
        # Less 1, because a record expires when a key exceeds its own by more than the limit.
        delay_ms = UNLIMITED if stream.max_delay_s is None else max(0, round(stream.max_delay_s * 1000) - 1)
        expiry_limits = (delay_ms, max_offset_span, stream.max_held_bytes)
        self.policy, self.next_cluster_number, self._encoder = policy, next_cluster_number, encoder
        self._quota = None if policy.per_subject is None else SubjectQuota(policy.per_subject)
        self._spreads = Spreads.of(policy, state.spreads)
        self._categories = CategoryIndex(policy)
        scaling = None if self._spreads is None else self._spreads.scaling
        self._embedding = Embedding.of(policy, scaling, self._categories.trees, self._categories.texts)
        # What the policy does not ask for is not created, and costs its records nothing.
        numbers = ConfidentialNumbers(policy)
        self._numbers = numbers if len(numbers) else None
        self._space = DistanceSpace(policy, numbers) if policy.dependence > 0 else None
        shape = self._embedding if self._space is None else self._space.shape(self._embedding)
        self._values = ValueIndex(policy) if policy.protects_values else None
        protected = len(policy.protected)
        self._clusterer = StreamClusterer(
            policy.k,
            stream.delta,
            len(shape.ranges),
            rule=stream.rule,
            position=policy.position if span is None else TargetSpan(span, shape.ranges, state.position_weight),
            max_share=policy.max_share,
            expiry_limits=expiry_limits,
            min_population=policy.min_population or 0,
            code_distances=shape.code_distances,
            codes_must_agree=shape.codes_must_agree,
            diversity=None if self._values is None else self._values.rule,
            protected=max(1, protected),
        )
        self._reorder = ReorderBuffer(stream.delta, expiry_limits) if stream.is_ordered else None
        self._restorer = restorer
        if restorer and not stream.is_ordered:
            raise GuaranteeError(
                "stream.release is cluster, but a part of a cluster was released before the restart; no more is sent. "
                "Run 'shoal run POLICY --drain' with the old policy first"
            )
        # A record is decided at most delta positions after its arrival: delta, this block and the next one suffice.
        capacity = stream.delta + 2 * LARGE_BLOCK_RECORDS
        self._records = RecordStore(capacity, len(policy.clustered), len(numbers), 2 * protected)
        self._next_position = 0
        self._next_rank = self._pushed_bytes = 0
        self._distances = AttributeDistances(policy.quasi_identifiers, self._categories.trees)
        self.summary = RunSummary.of(policy)

    @property
    def waiting_count(self) -> int:
        """Number of records that are neither released nor suppressed."""
        return self._clusterer.held + (0 if self._reorder is None else len(self._reorder))

    @property
    def adaptive_state(self) -> AdaptiveState:
        """State after the decisions so far, to be committed with them."""
        weight = None if self.policy.target_span is None else self.position_weight
        return AdaptiveState(weight, None if self._spreads is None else self._spreads.state)

    @property
    def position_weight(self) -> float:
        """Weight of the position for the next decision."""
        return self._clusterer.weight

    @property
    def has_min_population(self) -> bool:
        """Whether at least ``privacy.min_population`` subjects are held, so that a timer may flush them."""
        min_population = self.policy.min_population
        return min_population is None or self._clusterer.population >= min_population

    def count_unknown(self, block: Block) -> Counter[str]:
        """Return how many values of a decoded block the taxonomy of their attribute lacks, by attribute."""
        return self._categories.count_unknown(block)

    def apply_quota(self, block: Block, offsets: Int64Vector) -> Block:
        """Suppress records above ``privacy.per_subject``; call once for each block, before its records are pushed."""
        return block if self._quota is None else self._quota.apply(block, offsets)

    def quota_window_start(self, offset: int) -> int | None:
        """Return the first offset of the quota window of ``offset``; None if the policy has no quota."""
        return None if self._quota is None else self._quota.window_start(offset)

    def suppress_window(self, offset: int) -> None:
        """Suppress all records of the quota window of ``offset``, because its first records can no longer be read."""
        if self._quota is not None:
            self._quota.suppress_window(offset)

    def push(self, block: Block, expiry_keys: Int64Matrix, is_undecided: BoolVector | None = None) -> BlockDecisions:
        """Process the accepted records of a block, at most `LARGE_BLOCK_RECORDS`.

        ``expiry_keys`` (n, 2) are stream time (ms, never decreasing; 0 without a clock) and offset of each record. The
        sum of the bytes that are published unchanged, up to and with each record, is added to them as a third key. A
        record whose ``is_undecided`` is False only takes its position, or restores its cluster. Raises `GuaranteeError`
        if the block is too large, or a decision violates an invariant; nothing is returned.
        """
        length = len(block.values)
        if length > LARGE_BLOCK_RECORDS:
            raise GuaranteeError(f"a block has more than {LARGE_BLOCK_RECORDS} records; nothing of it was sent")
        if is_undecided is None:
            is_undecided = np.ones(length, np.bool_)
        block = self._encode_categories(block)
        positions = np.arange(self._next_position, self._next_position + length)
        self._next_position += length
        expiry_keys = self._with_bytes(block, expiry_keys)
        if self._restorer:
            self._restore_clusters(self._restorer, block, positions, expiry_keys)
        arrived = self._select(block, positions, expiry_keys, is_undecided)
        self._records.put(arrived.positions, arrived.records)
        decisions = self._encode_decided(*self._decide(arrived))
        if self._reorder is not None:
            held = self._clusterer.held_positions()
            first_undecided = int(held[0]) if len(held) else self._next_position
            due = self._reorder.pop_due(arrived.positions, arrived.records.expiry_keys, first_undecided)
            decisions = released_in_order(decisions, due)
        return self._count_released(decisions)

    def flush(self) -> BlockDecisions:
        """Decide on all held records and release or suppress them, as at the end of a stream; see `StreamClusterer`."""
        if self._spreads is not None and not self._spreads.are_learned:
            self._scale_by_held(self._spreads, np.empty((0, len(self.policy.clustered))))
        decided = self._clusterer.flush()
        published = self._published(NewClusters(decided.positions, decided.cluster_bounds, len(decided.suppressed)))
        decisions = self._encode_decided(decided, [published])
        if self._reorder is not None:
            decisions = released_in_order(decisions, self._reorder.pop_all(self._clusterer.next_position - 1))
        return self._count_released(decisions)

    def _select(
        self, block: Block, positions: Int64Vector, expiry_keys: Int64Matrix, is_undecided: BoolVector
    ) -> _Arrived:
        """Return the records that were not decided before a restart."""
        chosen = slice(None) if is_undecided.all() else np.flatnonzero(is_undecided)
        unchanged_fields, nothing = np.empty(len(positions), np.object_), np.empty((len(positions), 0))
        unchanged_fields[:] = block.unchanged_fields
        numbers = nothing if self._numbers is None else self._numbers.read(block)
        protected = nothing.astype(np.int64) if self._values is None else self._values.encode(block)
        records = StoredRecords(
            block.values[chosen],
            expiry_keys[chosen],
            unchanged_fields[chosen],
            numbers[chosen],
            protected[chosen],
            block.subjects[chosen],
        )
        self._next_rank += len(positions) - len(records.values)
        return _Arrived(positions[chosen], records)

    def _with_bytes(self, block: Block, expiry_keys: Int64Matrix) -> Int64Matrix:
        """Return the expiry keys with the third one. Only its differences count, so a restart may begin at 0."""
        sizes = np.fromiter(map(len, block.unchanged_fields), np.int64, len(block.values))
        sums = np.cumsum(sizes) + self._pushed_bytes
        self._pushed_bytes += int(sizes.sum())
        return np.column_stack((expiry_keys, sums))

    def _encode_categories(self, block: Block) -> Block:
        """Return the block with the codes of this partition; drop codes that are no longer needed."""
        if self._categories.is_large:
            held = self._records.values(self._clusterer.held_positions())
            collected = [] if self._restorer is None else self._restorer.collected_values()
            self._categories.drop_unused(np.vstack([held, *collected]))
        return self._categories.encode(block)

    def _decide(self, arrived: _Arrived) -> tuple[Decisions, list[_Published]]:
        """Return the verified decisions, and what those on each part of the block that has one scaling publish."""
        positions, records = arrived
        codes, (values, bins) = self._codes(records.values), (None, None)
        if self._values is not None:
            values, bins = self._values.split(records.protected)
        columns = BlockColumns(records.subjects, positions, records.expiry_keys, codes, values, bins)
        self._clusterer.begin(len(positions), columns)
        published, start = [], 0
        while start < len(positions):
            end = start + (len(positions) if self._spreads is None else self._next_part(self._spreads, arrived, start))
            decided = self._clusterer.decide(self._coordinates(records.values[start:end], records.numbers[start:end]))
            published.append(self._published(decided))
            start = end
        return self._clusterer.end(), published

    def _published(self, decided: NewClusters) -> _Published:
        """Return what decided clusters publish, and learn from it."""
        if len(decided.cluster_bounds) == 1:
            return _Published([], np.empty((0, len(self._embedding.unit))), self._embedding.unit, decided.suppressed)
        values, people = self._records.values(decided.positions), self._records.subjects(decided.positions)
        texts, centroids = self._embedding.published(values, decided.cluster_bounds, people)
        if self._spreads is not None:
            self._learn(self._spreads, centroids, np.diff(decided.cluster_bounds))
        return _Published(texts, centroids, self._embedding.unit, decided.suppressed)

    def _coordinates(self, values: Float64Matrix, numbers: Float64Matrix) -> Float64Matrix:
        if self._space is None:
            return self._embedding.coordinates(values)
        return self._space.coordinates(self._embedding, values, numbers)

    def _codes(self, values: Float64Matrix) -> Int64Matrix:
        return self._embedding.codes(values) if self._space is None else self._space.codes(self._embedding, values)

    def _next_part(self, spreads: Spreads, arrived: _Arrived, start: int) -> int:
        """Return how many records from ``start`` on have the same scaling, and set this scaling."""
        positions, expiry_keys = arrived.positions[start:], arrived.records.expiry_keys[start:]
        epoch = spreads.epoch_of(int(expiry_keys[0, _OFFSET]))
        if spreads.start_epoch(epoch):
            self._rescale(spreads.scaling)
        length = int(np.searchsorted(expiry_keys[:, _OFFSET], spreads.epoch_end(epoch)))
        if spreads.are_learned:
            return length
        # Fewer than WARMUP clusters are published: each decision is taken with the spreads of records held then.
        before = self._clusterer.count_before_due(positions[:length], expiry_keys[:length])
        if before:
            return before
        # With too few records for a cluster, the arriving one too, nothing is compared.
        if self._clusterer.population >= self.policy.k - 1:
            self._scale_by_held(spreads, arrived.records.values[start : start + 1])
        return 1

    def _scale_by_held(self, spreads: Spreads, arriving: Float64Matrix) -> None:
        """Scale by the spreads of the held records and of those that arrive (n, d)."""
        held = self._records.values(self._clusterer.held_positions())
        self._rescale(spreads.scaling_of_held(np.vstack([held, arriving])))

    def _rescale(self, scaling: Scaling) -> None:
        """Compute the coordinates of all held records again, from their values, as a restart would. Codes stay."""
        self._embedding.rescale(scaling)
        held = self._clusterer.held_positions()
        coordinates = self._coordinates(self._records.values(held), self._records.numbers(held))
        self._clusterer.replace_coordinates(coordinates)

    def _learn(self, spreads: Spreads, published: Float64Matrix, sizes: Int64Vector) -> None:
        """Learn from clusters; once enough are published, scale by them."""
        were_learned = spreads.are_learned
        spreads.partial_fit(published, sizes)
        if not were_learned and spreads.update_scaling():
            self._rescale(spreads.scaling)

    def _count_released(self, decisions: BlockDecisions) -> BlockDecisions:
        if decisions.stats is not None:
            self.summary.add_released(decisions.stats)
        return decisions

    def _encode_decided(self, decided: Decisions, published: Sequence[_Published]) -> BlockDecisions:
        """Encode the rows of decided clusters, and measure them; those of one unit together."""
        runs = [_Published.join(list(run)) for _, run in groupby(published, lambda one: one.unit.tobytes())]
        if len(runs) == 1:
            return self._encode_run(decided, runs[0])
        parts, cluster, suppressed = [], 0, 0
        for run in runs:
            last_cluster, last_suppressed = cluster + len(run.texts), suppressed + run.suppressed
            part = decided.part(slice(cluster, last_cluster), slice(suppressed, last_suppressed))
            parts.append(self._encode_run(part, run))
            cluster, suppressed = last_cluster, last_suppressed
        return join_decisions(parts) if parts else BlockDecisions([], [])

    def _encode_run(self, decided: Decisions, published: _Published) -> BlockDecisions:
        texts, centroids, unit, _ = published
        suppressed = self._records.offsets(decided.suppressed)
        if suppressed:
            self.summary.suppressed["suppressed"] += len(suppressed)
            self._records.forget(decided.suppressed)
        if len(decided.cluster_bounds) == 1:
            self._next_rank += len(suppressed)
            return BlockDecisions([], suppressed)
        members = self._records.get(decided.positions)
        self._records.forget(decided.positions)
        bounds = decided.cluster_bounds.tolist()
        rows = self._encode(texts, members.unchanged_fields.tolist(), bounds)
        offsets = members.expiry_keys[:, _OFFSET].tolist()
        subjects, fingerprint = decided.subjects.tolist(), self.policy.fingerprint
        clusters = [
            DecidedCluster(number, offsets[start:end], rows[start:end], tuple(text), distinct, fingerprint)
            for number, ((start, end), text, distinct) in enumerate(
                zip(pairwise(bounds), texts, subjects, strict=True), self.next_cluster_number
            )
        ]
        self.next_cluster_number += len(clusters)
        if self._reorder is not None:
            self._reorder.add(decided.positions, members.expiry_keys, map(PendingRow, offsets, rows))
        of_each = centroids.repeat(np.diff(decided.cluster_bounds), axis=0)
        values = members.values[:, : of_each.shape[1]]
        distances = self._distances.measure(values, of_each, unit)
        stats = measure_clusters(decided, distances, self._next_rank)
        self._next_rank += len(decided.positions) + len(suppressed)
        growth, losses = self.summary.add_clusters(stats, values, of_each, distances.each, offsets)
        confidential, measures = NO_CONFIDENTIAL_STATS, self.summary.confidential
        if measures is not None:
            confidential = measures.add(members.numbers, members.protected, members.subjects, decided.cluster_bounds)
        is_whole = self._reorder is None
        return BlockDecisions(
            clusters,
            suppressed,
            stats,
            sst_growth=float((growth / unit**2).sum()),
            early_count=int(np.count_nonzero(decided.causes >= _BY_OFFSET_SPAN)),
            released=offsets if is_whole else [],
            rows=rows if is_whole else [],
            confidential=confidential,
            losses=losses,
        )

    def _encode(self, texts: list[list[str]], unchanged_fields: list[bytes], bounds: list[int]) -> list[bytes]:
        """Return the rows of clusters; within a cluster sorted, or in the order of members if the policy says so."""
        if not self.policy.require_stream().reveal_order:
            return self._encoder.encode_clusters(texts, unchanged_fields, bounds)
        of_each = [text for text, (start, end) in zip(texts, pairwise(bounds), strict=True) for _ in range(start, end)]
        return self._encoder.encode_clusters(of_each, unchanged_fields, range(len(unchanged_fields) + 1))

    def _restore_clusters(
        self, restorer: ClusterRestorer, block: Block, positions: Int64Vector, expiry_keys: Int64Matrix
    ) -> None:
        """Add members to the clusters decided before a restart; restore each cluster that is complete."""
        for i in np.flatnonzero(restorer.contains(expiry_keys[:, _OFFSET])).tolist():
            keys, fields = expiry_keys[i], block.unchanged_fields[i]
            subject = int(block.subjects[i])
            members = restorer.add(
                RestoredMember(int(keys[_OFFSET]), int(positions[i]), keys, block.values[i], subject, fields)
            )
            if members is not None:
                self._restore_cluster(members, restorer.released_up_to)

    def _restore_cluster(self, members: Sequence[RestoredMember], released_up_to: int) -> None:
        """Encode the rows of a cluster again and buffer those that were not released."""
        values, people = np.array([one.values for one in members]), np.array([one.subject for one in members])
        texts, _ = self._embedding.published(values, np.array([0, len(members)]), people)
        rows = self._encode(texts, [one.unchanged_fields for one in members], [0, len(members)])
        released = sum(one.offset < released_up_to for one in members)
        pending = members[released:]
        if self._reorder is not None:  # always: only ordered release has a restorer
            self._reorder.add(
                np.array([one.position for one in pending]),
                np.array([one.expiry_keys for one in pending]),
                [PendingRow(one.offset, row) for one, row in zip(pending, rows[released:], strict=True)],
            )


def precompile(policy: Policy) -> None:
    """Run all kernels that a pipeline of this policy, with a stream, needs, over a few artificial records."""
    numbers = np.arange(3 * policy.k)
    block = artificial_block(policy, numbers // 2)
    pipeline = PartitionPipeline(policy, JsonEncoder(policy))
    pipeline.push(block, np.column_stack([0 * numbers, numbers]))
    pipeline.flush()
    # Artificial records may all be suppressed, under privacy.t for instance.
    _published(policy, block)


class StoredRecords(NamedTuple):
    """Contents of n records until they are decided."""

    values: Float64Matrix  # (n, d)
    expiry_keys: Int64Matrix  # (n, 3)
    unchanged_fields: NDArray[np.object_]  # (n,): encoded as bytes
    numbers: Float64Matrix  # (n, m): confidential numbers as of `ConfidentialNumbers`
    protected: Int64Matrix  # (n, 2 q): codes and bins of protected values as of `ValueIndex`
    subjects: Int64Vector  # (n,)


class _Arrived(NamedTuple):
    """The n records of a block on which decisions are to be taken."""

    positions: Int64Vector  # (n,)
    records: StoredRecords


class _Published(NamedTuple):
    """What the clusters of consecutive decisions publish."""

    texts: list[list[str]]  # for each cluster
    centroids: Float64Matrix  # (G, q): the same as numbers
    unit: Float64Vector  # (q,): `Embedding.unit`
    suppressed: int  # number of records that these decisions suppress

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Join consecutive decisions with one unit."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            [texts for part in parts for texts in part.texts],
            np.concatenate([part.centroids for part in parts]),
            parts[0].unit,
            sum(part.suppressed for part in parts),
        )


class RecordStore:
    """Ring buffer of records by position; holds at least the last ``capacity`` positions."""

    def __init__(self, capacity: int, width: int, numbers: int, protected: int) -> None:
        size = 1 << capacity.bit_length()
        self._mask = size - 1
        self._columns = StoredRecords(
            np.empty((size, width)),
            np.full((size, 3), -1, np.int64),
            np.full(size, b"", np.object_),
            np.empty((size, numbers)),
            np.empty((size, protected), np.int64),
            np.empty(size, np.int64),
        )

    def put(self, positions: Int64Vector, records: StoredRecords) -> None:
        """Store the records of these positions, shape (n,)."""
        cells = positions & self._mask
        for column, contents in zip(self._columns, records, strict=True):
            column[cells] = contents

    def get(self, positions: Int64Vector) -> StoredRecords:
        """Return the records of these positions, shape (n,)."""
        cells = positions & self._mask
        return StoredRecords(*(column[cells] for column in self._columns))

    def forget(self, positions: Int64Vector) -> None:
        """Free the bytes of records that are decided. They may be large, and the ring is overwritten late."""
        self._columns.unchanged_fields[positions & self._mask] = b""

    def values(self, positions: Int64Vector) -> Float64Matrix:
        """Return the values of the records of these positions, shape (n, d)."""
        values: Float64Matrix = self._columns.values[positions & self._mask]
        return values

    def numbers(self, positions: Int64Vector) -> Float64Matrix:
        """Return the confidential numbers of the records of these positions, shape (n, m)."""
        numbers: Float64Matrix = self._columns.numbers[positions & self._mask]
        return numbers

    def subjects(self, positions: Int64Vector) -> Int64Vector:
        """Return the subjects of the records of these positions, shape (n,)."""
        subjects: Int64Vector = self._columns.subjects[positions & self._mask]
        return subjects

    def offsets(self, positions: Int64Vector) -> list[int]:
        """Return the offsets of the records of these positions."""
        found: list[int] = self._columns.expiry_keys[positions & self._mask, _OFFSET].tolist()
        return found


def _published(policy: Policy, block: Block) -> None:
    """Compute the published values of one cluster of all records."""
    categories, spreads = CategoryIndex(policy), Spreads.of(policy, None)
    scaling = None if spreads is None else spreads.scaling
    embedding = Embedding.of(policy, scaling, categories.trees, categories.texts)
    published = embedding.published(categories.encode(block).values, np.array([0, len(block)]))
    if spreads is not None:
        spreads.partial_fit(published.values, np.array([len(block)]))
