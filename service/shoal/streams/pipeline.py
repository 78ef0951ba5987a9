"""The pipeline of one partition: decoded records in, clusters of published rows out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Int64Matrix, Int64Vector
from shoal.errors import GuaranteeError
from shoal.formats import Block, RecordEncoder
from shoal.policy import Policy
from shoal.protection.quota import SubjectQuota
from shoal.protection.value_codes import ValueIndex
from shoal.scales import CategoryIndex, Embedding, Scaling
from shoal.scales.loss import AttributeDistances
from shoal.streams.clusterer import Decisions, StreamClusterer
from shoal.streams.confidential_numbers import ConfidentialNumbers, DistanceSpace
from shoal.streams.record_store import RecordStore, StoredRecords
from shoal.streams.release import (
    BlockDecisions,
    ClusterRestorer,
    DecidedCluster,
    PendingRow,
    RestoredMember,
    join_decisions,
    release_strategy,
)
from shoal.streams.spreads import AdaptiveState, Spreads
from shoal.streams.stats import RunSummary, measure_clusters
from shoal.streams.steering import TargetSpan

__all__ = [
    "BLOCK_RECORDS",
    "LARGE_BLOCK_RECORDS",
    "BlockDecisions",
    "DecidedCluster",
    "PartitionPipeline",
]

BLOCK_RECORDS, LARGE_BLOCK_RECORDS = 512, 2048
"""Most records of a block that may be read and not decided on at a commit, and of any block."""

UNLIMITED = 1 << 60

_OFFSET, _BY_OFFSET_SPAN = 1, 2
"""Column of the offset in the expiry keys; cause of a decision by its limit."""


class PartitionPipeline:
    """The steps from decoded records to published rows, for one partition.

    The caller decodes a block, calls `apply_quota`, classifies the messages (of Kafka), and calls `push`. The steps:

    1. quota: `apply_quota` suppresses records above ``privacy.per_subject``;
    2. embed: give categories their codes, scale and weight numbers;
    3. cluster: add the records to the stream clusterer, which decides clusters;
    4. check: `clustering.stream.invariants` verifies every decision before it is returned;
    5. centroid: compute the published values of each cluster, which are those of its scale;
    6. encode: write the rows;
    7. release: return rows now, or keep them until they are due for release (``stream.release``).

    `push` performs steps 2 to 7; `flush` performs steps 3 to 7 on all records that are held.

    Parameters
    ----------
    policy : Policy
        Must have a stream section.
    encoder : RecordEncoder
        Encoder of the output format.
    max_offset_span : int
        Largest distance of the oldest held offset from the newest one. Beyond it the oldest record expires early.
    next_cluster_number : int
        Number of the next cluster: how many clusters were decided before a restart.
    adaptive_state : AdaptiveState, optional
        State from which the pipeline continues. If omitted, the initial state.
    restorer : ClusterRestorer, optional
        Clusters decided before a restart of which some records were not released.

    Raises
    ------
    GuaranteeError
        Under ``stream.release: cluster`` there is a cluster of which some records were released before the restart.

    Notes
    -----
    Guarantees: a record is released once, in a cluster that was verified when it was decided, or it is suppressed.
    Clusters of ``restorer`` are not verified again: their rows are encoded from the members that were committed.
    Decisions depend only on the records, their offsets and timestamps, and not on how the records are divided into
    blocks.
    Memory: values, offsets and unchanged fields of ``delta`` records and two blocks; with ordered release also the
    rows of as many records.
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
        state = adaptive_state or AdaptiveState()
        # Less 1, because a record expires when a key exceeds its own by more than the limit.
        delay_ms = UNLIMITED if stream.max_delay_s is None else max(0, round(stream.max_delay_s * 1000) - 1)
        expiry_limits = (delay_ms, max_offset_span)
        self.policy, self.next_cluster_number, self._encoder = policy, next_cluster_number, encoder
        self._quota = None if policy.per_subject is None else SubjectQuota(policy.per_subject)
        self._spreads = Spreads.of(policy, state.spreads)
        self._categories = CategoryIndex(policy)
        self._embedding = self._embed(None if self._spreads is None else self._spreads.scaling)
        self._numbers = ConfidentialNumbers(policy)
        self._space = DistanceSpace(policy, self._numbers)
        self._values = ValueIndex(policy)
        self._clusterer = StreamClusterer(
            policy.k,
            stream.delta,
            self._space.dimensions(self._embedding),
            rule=stream.rule,
            position=_position_weight(policy, self._space.ranges(self._embedding), state),
            max_share=policy.max_share,
            expiry_limits=expiry_limits,
            min_population=policy.min_population or 0,
            code_distances=self._space.code_distances(self._embedding),
            codes_must_agree=self._space.codes_must_agree(self._embedding),
            diversity=self._values.rule,
            protected=max(1, len(self._values)),
        )
        self._buffer = release_strategy(policy).buffer(stream.delta, expiry_limits)
        self._restorer = restorer or ClusterRestorer((), 0)
        if self._restorer and not stream.is_ordered:
            raise GuaranteeError(
                "stream.release is cluster, but a part of a cluster was released before the restart; no more is sent"
            )
        # A record is decided at most delta positions after its arrival: delta, this block and the next one suffice.
        capacity = stream.delta + 2 * LARGE_BLOCK_RECORDS
        self._records = RecordStore(capacity, len(policy.clustered), len(self._numbers), 2 * len(self._values))
        self._next_position = 0
        self._next_rank = 0
        self._distances = AttributeDistances(policy.quasi_identifiers, self._categories.trees)
        self.summary = RunSummary.of(policy, self._values)

    @property
    def waiting_count(self) -> int:
        """Number of records that are neither released nor suppressed."""
        return self._clusterer.held + len(self._buffer)

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
        """Suppress records above ``privacy.per_subject``. Call once for each block, before its records are pushed.

        Parameters
        ----------
        block : Block
            Decoded records.
        offsets : ndarray of int64, shape (len(block),)
            Offset of each record; ascending over all calls.

        Returns
        -------
        Block
            The remaining records; the others are in ``rejected``, as suppressed.
        """
        return block if self._quota is None else self._quota.apply(block, offsets)

    def quota_window_start(self, offset: int) -> int | None:
        """Return the first offset of the quota window of ``offset``; None if the policy has no quota.

        After a restart at ``offset`` reading must begin there, to count the records of each subject again.
        """
        return None if self._quota is None else self._quota.window_start(offset)

    def suppress_window(self, offset: int) -> None:
        """Suppress all records of the quota window of ``offset``, because its first records can no longer be read."""
        if self._quota is not None:
            self._quota.suppress_window(offset)

    def push(self, block: Block, expiry_keys: Int64Matrix, is_undecided: BoolVector | None = None) -> BlockDecisions:
        """Process the accepted records of a block.

        Parameters
        ----------
        block : Block
            n records, at most `LARGE_BLOCK_RECORDS`.
        expiry_keys : ndarray of int64, shape (n, 2)
            Stream time (ms, never decreasing; 0 without a clock) and offset of each record.
        is_undecided : ndarray of bool, shape (n,), optional
            False for a record that was completed or decided before a restart. It takes its position again, so that all
            other records have the same positions as before. Else it is used only to restore its cluster.

        Returns
        -------
        BlockDecisions
            Everything decided and released with this block.

        Raises
        ------
        GuaranteeError
            The block is too large, or a decision violates an invariant; nothing is returned.
        """
        count = len(block.values)
        if count > LARGE_BLOCK_RECORDS:
            raise GuaranteeError(f"a block has more than {LARGE_BLOCK_RECORDS} records; nothing of it was sent")
        if is_undecided is None:
            is_undecided = np.ones(count, np.bool_)
        block = self._encode_categories(block)
        if self._spreads is None or not count:
            return self._process(block, expiry_keys, is_undecided)
        parts, start = [], 0
        while start < count:
            end = start + self._next_part(self._spreads, block, expiry_keys, is_undecided, start)
            part = slice(start, end)
            parts.append(self._process(block.slice(part), expiry_keys[part], is_undecided[part]))
            start = end
        return join_decisions(parts)

    def flush(self) -> BlockDecisions:
        """Decide on all held records and release or suppress them, as at the end of a stream; see `StreamClusterer`."""
        if self._spreads is not None and not self._spreads.are_learned:
            self._scale_by_held(self._spreads, np.empty((0, len(self.policy.clustered))))
        decisions = self._encode_decided(self._clusterer.flush())
        return self._count_released(self._buffer.flush(decisions, self._clusterer.next_position - 1))

    def _process(self, block: Block, expiry_keys: Int64Matrix, is_undecided: BoolVector) -> BlockDecisions:
        positions = np.arange(self._next_position, self._next_position + len(block.values))
        self._next_position += len(positions)
        if self._restorer:
            self._restore_clusters(block, positions, expiry_keys)
        positions, subjects, records = self._select(block, positions, expiry_keys, is_undecided)
        decided = self._cluster(subjects, positions, records)
        decisions = self._encode_decided(decided)
        decisions = self._buffer.add_due(decisions, positions, records.expiry_keys, self._first_undecided)
        return self._count_released(decisions)

    def _select(
        self, block: Block, positions: Int64Vector, expiry_keys: Int64Matrix, is_undecided: BoolVector
    ) -> tuple[Int64Vector, Int64Vector, StoredRecords]:
        """Return position, subject and contents of the records that were not decided before a restart."""
        chosen = slice(None) if is_undecided.all() else np.flatnonzero(is_undecided)
        unchanged_fields = np.empty(len(positions), np.object_)
        unchanged_fields[:] = block.unchanged_fields
        numbers, protected = self._numbers.read(block), self._values.encode(block)
        records = StoredRecords(
            block.values[chosen], expiry_keys[chosen], unchanged_fields[chosen], numbers[chosen], protected[chosen]
        )
        self._next_rank += len(positions) - len(records.values)
        return positions[chosen], block.subjects[chosen], records

    def _encode_categories(self, block: Block) -> Block:
        """Return the block with the codes of this partition; drop codes, of values too, that are no longer needed."""
        if self._categories.is_large:
            held = self._records.get(self._clusterer.held_positions()).values
            self._categories.drop_unused(np.vstack([held, *self._restorer.collected_values()]))
        if self._values.is_large:
            self._values.drop_unused(self._records.get(self._clusterer.held_positions()).protected)
        return self._categories.encode(block)

    def _cluster(self, subjects: Int64Vector, positions: Int64Vector, records: StoredRecords) -> Decisions:
        """Store the records until they are decided, and return the verified decisions."""
        self._records.put(positions, records)
        return self._clusterer.push(
            self._space.coordinates(self._embedding, records.values, records.numbers),
            subjects,
            positions,
            records.expiry_keys,
            self._space.codes(self._embedding, records.values),
            *self._values.split(records.protected),
        )

    def _next_part(
        self, spreads: Spreads, block: Block, expiry_keys: Int64Matrix, is_undecided: BoolVector, start: int
    ) -> int:
        """Return how many records from ``start`` on have the same scaling, and set this scaling.

        Records decided before a restart change no scaling, so that all others are scaled in the same way again.
        """
        first = start + int(is_undecided[start:].argmax())
        if not is_undecided[first]:
            return len(is_undecided) - start
        epoch = spreads.epoch_of(int(expiry_keys[first, _OFFSET]))
        if spreads.start_epoch(epoch):
            self._rescale(spreads.scaling)
        length = int(np.searchsorted(expiry_keys[start:, _OFFSET], spreads.epoch_end(epoch)))
        if spreads.are_learned:
            return length
        # No cluster is published yet: each decision is taken with the spreads of the records that are held then.
        chosen = start + np.flatnonzero(is_undecided[start : start + length])
        before = self._clusterer.count_before_due(self._next_position + chosen - start, expiry_keys[chosen])
        if before:
            return length if before == len(chosen) else int(chosen[before]) - start
        if self._clusterer.population < self.policy.k - 1:
            return first + 1 - start  # too few for a cluster, with the arriving record too: nothing is compared
        self._scale_by_held(spreads, block.values[first : first + 1])
        return first + 1 - start

    def _scale_by_held(self, spreads: Spreads, arriving: Float64Matrix) -> None:
        """Scale by the spreads of the held records and of those that arrive (n, d)."""
        held = self._records.get(self._clusterer.held_positions()).values
        self._rescale(spreads.scaling_of_held(np.vstack([held, arriving])))

    def _embed(self, scaling: Scaling | None) -> Embedding:
        return Embedding.of(self.policy, scaling, self._categories.trees, self._categories.texts)

    def _rescale(self, scaling: Scaling) -> None:
        """Compute the coordinates of all held records again, from their values, as a restart would. Codes stay."""
        self._embedding = self._embed(scaling)
        held = self._records.get(self._clusterer.held_positions())
        coordinates = self._space.coordinates(self._embedding, held.values, held.numbers)
        self._clusterer.replace_coordinates(coordinates)

    def _learn(self, spreads: Spreads, published: Float64Matrix, sizes: Int64Vector) -> None:
        """Learn from clusters; once enough are published, scale by them."""
        were_learned = spreads.are_learned
        spreads.partial_fit(published, sizes)
        if not were_learned and spreads.update_scaling():
            self._rescale(spreads.scaling)

    def _first_undecided(self) -> int:
        """Return the position of the oldest record that is not decided."""
        held = self._clusterer.held_positions()
        return int(held[0]) if len(held) else self._next_position

    def _count_released(self, decisions: BlockDecisions) -> BlockDecisions:
        if decisions.stats is not None:
            self.summary.add_released(decisions.stats)
        return decisions

    def _encode_decided(self, decided: Decisions) -> BlockDecisions:
        """Compute the centroids of the decided clusters and encode their rows."""
        suppressed = self._records.get(decided.suppressed).expiry_keys[:, _OFFSET].tolist()
        if suppressed:
            self.summary.suppressed["suppressed"] += len(suppressed)
        if len(decided.cluster_bounds) == 1:
            self._next_rank += len(suppressed)
            return BlockDecisions([], suppressed)
        members = self._records.get(decided.positions)
        texts, centroids = self._embedding.published(members.values, decided.cluster_bounds)
        if self._spreads is not None:
            self._learn(self._spreads, centroids, np.diff(decided.cluster_bounds))
        bounds = decided.cluster_bounds.tolist()
        rows = self._encode(texts, members.unchanged_fields.tolist(), bounds)
        offsets = members.expiry_keys[:, _OFFSET].tolist()
        fingerprint = self.policy.fingerprint
        clusters = [
            DecidedCluster(
                self.next_cluster_number + number,
                offsets[start:end],
                rows[start:end],
                tuple(texts[number]),
                subjects,
                fingerprint,
            )
            for number, ((start, end), subjects) in enumerate(
                zip(pairwise(bounds), decided.subjects.tolist(), strict=True)
            )
        ]
        self.next_cluster_number += len(clusters)
        self._buffer.add(decided.positions, members.expiry_keys, map(PendingRow, offsets, rows))
        published = centroids.repeat(np.diff(decided.cluster_bounds), axis=0)
        values = members.values[:, : published.shape[1]]
        distances = self._distances.measure(values, published, self._embedding.unit)
        stats = measure_clusters(decided, distances, self._next_rank)
        self._next_rank += len(decided.positions) + len(suppressed)
        growth, losses = self.summary.add_clusters(stats, values, published, distances.each, offsets)
        return BlockDecisions(
            clusters,
            suppressed,
            stats,
            sst_growth=float((growth / self._embedding.unit**2).sum()),
            early_count=int(np.count_nonzero(decided.causes == _BY_OFFSET_SPAN)),
            confidential=self.summary.confidential.add(members, decided.cluster_bounds),
            losses=losses,
        )

    def _encode(self, texts: list[list[str]], unchanged_fields: list[bytes], bounds: list[int]) -> list[bytes]:
        """Return the rows of clusters; within a cluster sorted, or in the order of members if the policy says so."""
        if not self.policy.require_stream().reveal_order:
            return self._encoder.encode_clusters(texts, unchanged_fields, bounds)
        of_each = [text for text, (start, end) in zip(texts, pairwise(bounds), strict=True) for _ in range(start, end)]
        return self._encoder.encode_clusters(of_each, unchanged_fields, range(len(unchanged_fields) + 1))

    def _restore_clusters(self, block: Block, positions: Int64Vector, expiry_keys: Int64Matrix) -> None:
        """Add members to the clusters decided before a restart; restore each cluster that is complete."""
        for i in np.flatnonzero(self._restorer.contains(expiry_keys[:, _OFFSET])).tolist():
            keys, fields = expiry_keys[i], block.unchanged_fields[i]
            members = self._restorer.add(
                RestoredMember(int(keys[_OFFSET]), int(positions[i]), keys, block.values[i], fields)
            )
            if members is not None:
                self._restore_cluster(members)

    def _restore_cluster(self, members: Sequence[RestoredMember]) -> None:
        """Encode the rows of a cluster again and buffer those that were not released."""
        texts, _ = self._embedding.published(np.array([one.values for one in members]), np.array([0, len(members)]))
        rows = self._encode(texts, [one.unchanged_fields for one in members], [0, len(members)])
        released = sum(one.offset < self._restorer.released_up_to for one in members)
        pending = members[released:]
        self._buffer.add(
            np.array([one.position for one in pending]),
            np.array([one.expiry_keys for one in pending]),
            [PendingRow(one.offset, row) for one, row in zip(pending, rows[released:], strict=True)],
        )


def _position_weight(policy: Policy, ranges: tuple[float, ...], state: AdaptiveState) -> float | TargetSpan:
    """Return the weight of the position, or the target that it follows."""
    if policy.target_span is None:
        return policy.position
    return TargetSpan(policy.target_span, ranges, state.position_weight)
