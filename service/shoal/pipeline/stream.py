"""The composition every mode shares: a block of decoded records in, whole clusters of published bytes out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.clustering.embedding import Embedding
from shoal.clustering.stream.clusterer import Decisions, StreamClusterer
from shoal.clustering.stream.dominance import dominance_of
from shoal.clustering.stream.steering import TargetSpan
from shoal.errors import GuaranteeError
from shoal.pipeline.adaptive_state import AdaptiveState
from shoal.pipeline.decisions import BlockDecisions, DecidedCluster, joined
from shoal.pipeline.online_scaler import OnlineScaler, learned
from shoal.pipeline.release import release_strategy
from shoal.pipeline.reorder_buffer import ClusterRestorer, PendingRow, RestoredMember
from shoal.pipeline.stats import ReleaseStats, RunSummary
from shoal.pipeline.subject_quota import SubjectQuota
from shoal.policy import Policy
from shoal.records import Block, RecordEncoder

__all__ = ["BLOCK_RECORDS", "BlockDecisions", "DecidedCluster", "PartitionPipeline"]

BLOCK_RECORDS = 512
"""Most records decoded and pushed at once: larger blocks fall out of the processor's cache."""

NO_REACH = 1 << 60

_BY_PLACE = 2
"""Cause of a decision: the second mark, a record's offset, went out of reach."""


class PartitionPipeline:
    """One partition from decoded blocks to published clusters.

    Parameters
    ----------
    policy : Policy
        With a stream section.
    encoder : RecordEncoder
        Of the output's format.
    reach : int
        Most offsets between the oldest held record and the newest; the oldest expires early beyond it.
    clusters : int
        Clusters decided before this process: the number of the next one.
    course : bytes
        What `course` was after these decisions; nothing at the beginning.
    reunion : Reunion, optional
        Clusters decided before this process of which somebody has yet to leave.

    Notes
    -----
    Guarantees: a record leaves once, in a cluster that `clustering.stream.invariants` has counted again, or it is
    suppressed; decisions depend on the records and their offsets and timestamps only, never on how they were
    cut into blocks. Memory: values, offsets and kept fields of ``delta`` records and two blocks; rows of as many where
    each record leaves by itself.
    """

    def __init__(
        self,
        policy: Policy,
        encoder: RecordEncoder,
        *,
        reach: int = NO_REACH,
        clusters: int = 0,
        course: bytes = b"",
        reunion: ClusterRestorer | None = None,
    ) -> None:
        stream = policy.require_stream()
        self.policy, self.clusters, self._encoder = policy, clusters, encoder
        begun = AdaptiveState.unpack(course, policy)
        self._ranges = OnlineScaler(policy.quasi_identifiers, stream.delta, begun.ranges) if _learns(policy) else None
        self._embedding = Embedding.of(policy, None if self._ranges is None else self._ranges.widths)
        width = len(policy.quasi_identifiers)
        delay_ms = NO_REACH if stream.max_delay_s is None else max(0, round(stream.max_delay_s * 1000) - 1)
        self._partitioner = StreamClusterer(
            policy.k,
            stream.delta,
            width,
            rule=stream.rule,
            position=_position(policy, begun),
            max_share=policy.max_share,
            expiry_limits=(delay_ms, reach),
            min_population=policy.min_population or 0,
            dominance=dominance_of(policy),
        )
        self._waiting = release_strategy(policy).buffer(stream.delta, (delay_ms, reach))
        self._quota = None if policy.per_subject is None else SubjectQuota(policy.per_subject)
        self._reunion = reunion or ClusterRestorer((), 0)
        if self._reunion and not stream.is_ordered:
            raise GuaranteeError("clusters leave as a whole, and a part of one has left before; nothing was sent")
        # A cell is taken again only when its record must have been decided on: delta, this block, and the next.
        self._cells = 1 << (stream.delta + 2 * BLOCK_RECORDS).bit_length()
        self._values = np.empty((self._cells, width))
        self._marks = np.full((self._cells, 2), -1, np.int64)
        self._tails = np.full(self._cells, b"", np.object_)
        self._next_position = 0
        self._next_rank = 0
        self.accounts = RunSummary(width)

    @property
    def held(self) -> int:
        """Number of records waiting to leave."""
        return self._partitioner.held + len(self._waiting)

    @property
    def course(self) -> bytes:
        """What the decisions so far leave to later ones, to be committed with them."""
        return self.state.pack()

    @property
    def state(self) -> AdaptiveState:
        """The same, to be looked at."""
        weight = None if self.policy.target_span is None else self.weight
        return AdaptiveState(weight, None if self._ranges is None else self._ranges.state)

    @property
    def weight(self) -> float:
        """Weight of the position for the next decision."""
        return self._partitioner.weight

    @property
    def is_populous(self) -> bool:
        """Whether a clock may let everything held leave: `privacy.min_population` different people are there."""
        fewest = self.policy.min_population
        return fewest is None or self._partitioner.population >= fewest

    def admit(self, block: Block, places: Int64Vector) -> Block:
        """Refuse records that exceed ``privacy.per_subject``; each block passes here before its records are pushed.

        Parameters
        ----------
        block : Block
            Decoded records.
        places : ndarray of int64, shape (len(block),)
            Offset or number of each record; ascending over all calls.

        Returns
        -------
        Block
            Without the refused records, which are among ``rejected`` as suppressed.
        """
        return block if self._quota is None else self._quota.admit(block, places)

    def quota_window_start(self, place: int) -> int | None:
        """Return the first offset of the quota window of ``place``; None where the policy has no quota.

        A restart at ``place`` must read from there on, to count the records of each subject again.
        """
        return None if self._quota is None else self._quota.start_of(place)

    def suppress_window(self, place: int) -> None:
        """Suppress all records of the quota window of ``place``: its beginning can no longer be counted."""
        if self._quota is not None:
            self._quota.give_up(place)

    def push(self, block: Block, marks: Int64Matrix, fresh: BoolVector | None = None) -> BlockDecisions:
        """Take the accepted records of a block.

        Parameters
        ----------
        block : Block
            n records; at most `BLOCK_RECORDS`.
        marks : ndarray of int64, shape (n, 2)
            Event clock (ms, never falling; 0 where there is none) and offset of each record.
        fresh : ndarray of bool, shape (n,), optional
            False for a record that was resolved or decided on before a restart: it takes its position, and nothing
            else, but for a member of a cluster that is to be made again.
        """
        count = len(block.values)
        if count > BLOCK_RECORDS:
            raise GuaranteeError("a block is larger than the space kept for it; nothing was sent")
        if self._ranges is None or not count:
            return self._push(block, marks, fresh)
        outcomes, start = [], 0
        while start < count:
            # Only what is taken in moves the ranges: a second try meets the same records.
            taken = start if fresh is None else start + int(fresh[start:].argmax())
            epoch = self._ranges.epoch_of(int(marks[taken, 1]))
            if (fresh is None or fresh[taken]) and self._ranges.enter(epoch):
                self._embed_anew(self._ranges.widths)
            part = slice(start, start + int(np.searchsorted(marks[start:, 1], self._ranges.end_of(epoch))))
            outcomes.append(self._push(block.slice(part), marks[part], None if fresh is None else fresh[part]))
            start = part.stop
        return joined(outcomes)

    def _embed_anew(self, widths: Float64Vector) -> None:
        """Put all that is held on other ranges; from the raw values, as a restart would."""
        self._embedding = Embedding.of(self.policy, widths)
        cells = self._partitioner.held_positions() & (self._cells - 1)
        self._partitioner.replace_coordinates(self._embedding.coordinates(self._values[cells]))

    def _push(self, block: Block, marks: Int64Matrix, fresh: BoolVector | None) -> BlockDecisions:
        count = len(block.values)
        positions = np.arange(self._next_position, self._next_position + count)
        self._next_position += count
        if self._reunion:
            self._reunite(block, positions, marks)
        chosen = slice(None) if fresh is None or fresh.all() else np.flatnonzero(fresh)
        positions = positions[chosen]
        self._next_rank += count - len(positions)
        values, marks = block.values[chosen], marks[chosen]
        cells = positions & (self._cells - 1)
        self._values[cells] = values
        self._marks[cells] = marks
        tails = np.empty(count, np.object_)
        tails[:] = block.passthrough
        self._tails[cells] = tails[chosen]
        amounts = None if self.policy.dominance is None else values
        decided = self._partitioner.push(
            self._embedding.coordinates(values), block.subjects[chosen], positions, marks, amounts
        )
        return self._leave(self._waiting.due(self._outcome(decided), positions, marks, self._first_undecided))

    def flush(self) -> BlockDecisions:
        """Let everything held leave, as at the end of a stream; suppress it if the policy asks for more people."""
        decisions = self._outcome(self._partitioner.flush())
        return self._leave(self._waiting.flush(decisions, self._partitioner.next_position - 1))

    def _first_undecided(self) -> int:
        held = self._partitioner.held_positions()
        return int(held[0]) if len(held) else self._next_position

    def _leave(self, decisions: BlockDecisions) -> BlockDecisions:
        """Count the records that leave with these decisions."""
        if decisions.figures is not None:
            self.accounts.leave(decisions.figures)
        return decisions

    # ------------------------------------------------------------------ clusters

    def _outcome(self, decided: Decisions) -> BlockDecisions:
        """Turn the engine's decisions into clusters of published rows."""
        suppressed = self._marks[decided.suppressed & (self._cells - 1), 1].tolist()
        if suppressed:
            self.accounts.suppressed["suppressed"] += len(suppressed)
        if len(decided.offsets) == 1:
            self._next_rank += len(suppressed)
            return BlockDecisions([], suppressed)
        cells = decided.positions & (self._cells - 1)
        values = self._values[cells]
        texts, published = self._embedding.published(values, decided.offsets)
        unit = self._embedding.unit
        if self._ranges is not None:
            self._ranges.learn(published)
        bounds = decided.offsets.tolist()
        rows = self._rows(texts, self._tails[cells].tolist(), bounds)
        places = self._marks[cells, 1].tolist()
        clusters = [
            DecidedCluster(self.clusters + number, places[start:end], rows[start:end], tuple(texts[number]), subjects)
            for number, ((start, end), subjects) in enumerate(
                zip(pairwise(bounds), decided.subjects.tolist(), strict=True)
            )
        ]
        self.clusters += len(clusters)
        spread = published.repeat(np.diff(decided.offsets), axis=0)
        figures = self._figures(decided, values, spread)
        grown = self.accounts.add(figures, values, spread)
        self._waiting.add(decided.positions, self._marks[cells], map(PendingRow, places, rows))
        early = int(np.count_nonzero(decided.causes == _BY_PLACE))
        return BlockDecisions(clusters, suppressed, figures, float((grown / unit**2).sum()), early)

    def _rows(self, texts: list[list[str]], tails: list[bytes], bounds: list[int]) -> list[bytes]:
        """Published bytes, in the order of the members' places: dealt, unless the policy reveals the order."""
        if not self.policy.require_stream().reveal_order:
            return self._encoder.encode_clusters(texts, tails, bounds)
        own = [text for text, (start, end) in zip(texts, pairwise(bounds), strict=True) for _ in range(start, end)]
        return self._encoder.encode_clusters(own, tails, range(len(tails) + 1))

    def _figures(self, decided: Decisions, values: Float64Matrix, published: Float64Matrix) -> ReleaseStats:
        sizes = np.diff(decided.offsets)
        starts, ends = decided.offsets[:-1], decided.offsets[1:]
        # A suppressed record takes its place in the order of leaving, as if it had been let out unseen.
        before = np.searchsorted(decided.suppressed_before, np.arange(len(sizes)), side="right")
        ranks = self._next_rank + np.arange(len(decided.positions)) + before.repeat(sizes)
        self._next_rank += len(decided.positions) + len(decided.suppressed)
        scaled = (values - published) / self._embedding.unit
        squared = np.einsum("ij,ij->i", scaled, scaled)
        return ReleaseStats(
            size=sizes,
            subjects=decided.subjects,
            heaviest=decided.heaviest,
            excess_span=decided.positions[ends - 1] - decided.positions[starts] - (sizes - 1),
            delay=decided.newest.repeat(sizes) - decided.positions,
            displacement=_absolute(ranks - decided.positions),
            squared=squared,
            absolute=np.sqrt(squared),
        )

    # ------------------------------------------------------------------ one by one

    def _reunite(self, block: Block, positions: Int64Vector, marks: Int64Matrix) -> None:
        """Make clusters again whose members have all come."""
        for i in np.flatnonzero(self._reunion.are_awaited(marks[:, 1])).tolist():
            members = self._reunion.take(
                RestoredMember(int(marks[i, 1]), int(positions[i]), marks[i], block.values[i], block.passthrough[i])
            )
            if members is not None:
                self._put_again(members)

    def _put_again(self, members: Sequence[RestoredMember]) -> None:
        texts, _ = self._embedding.published(np.array([one.values for one in members]), np.array([0, len(members)]))
        rows = self._rows(texts, [one.tail for one in members], [0, len(members)])
        left = sum(one.place < self._reunion.frontier for one in members)
        waiting = members[left:]
        self._waiting.add(
            np.array([one.position for one in waiting]),
            np.array([one.marks for one in waiting]),
            [PendingRow(one.place, row) for one, row in zip(waiting, rows[left:], strict=True)],
        )


def _learns(policy: Policy) -> bool:
    return bool(learned(policy.quasi_identifiers))


def _position(policy: Policy, course: AdaptiveState) -> float | TargetSpan:
    if policy.target_span is None:
        return policy.position
    # Coordinates reach from 0 to an attribute's weight.
    return TargetSpan(policy.target_span, tuple(a.weight for a in policy.quasi_identifiers), course.weight)


def _absolute(numbers: Int64Vector) -> Int64Vector:
    return np.abs(numbers)
