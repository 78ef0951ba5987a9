"""The composition every mode shares: a block of decoded records in, whole clusters of published bytes out."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from shoal.engine.dominance import dominance_of
from shoal.engine.embed import Embedding
from shoal.engine.stream import Decisions, Partitioner
from shoal.errors import GuaranteeError
from shoal.flow.accounts import Accounts, Figures
from shoal.kernel.arrays import BoolVector, Float64Matrix, Int64Matrix, Int64Vector
from shoal.policy import Policy
from shoal.records import Block, RecordEncoder

__all__ = ["BLOCK_RECORDS", "Cluster", "Flow", "Outcome"]

BLOCK_RECORDS = 512
"""Most records decoded and pushed at once: larger blocks fall out of the processor's cache."""

NO_REACH = 1 << 60

_BY_PLACE = 2
"""Cause of a decision: the second mark, a record's offset, went out of reach."""


class Cluster(NamedTuple):
    """A cluster that has been decided on.

    ``places`` are the members' offsets (or line numbers), ascending; ``rows`` their published bytes, sorted:
    the two orders have nothing to do with each other. ``number`` counts clusters of the partition from 0.
    """

    number: int
    places: list[int]
    rows: list[bytes]
    centroid: tuple[str, ...]
    subjects: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one block led to.

    Clusters in order of decision, offsets suppressed, the clusters' figures (None without a cluster), by how
    much the total sum of squares grew (scaled to [0, 1]), and how many clusters left because of ``reach``.
    """

    clusters: list[Cluster]
    suppressed: list[int]
    figures: Figures | None = None
    spread: float = 0.0
    early: int = 0


class Flow:
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

    Notes
    -----
    Guarantees: a record leaves once, in a cluster that `engine.guarantee` has counted again, or it is
    suppressed; decisions depend on the records and their offsets and timestamps only, never on how they were
    cut into blocks. Memory: values, offsets and kept fields of ``delta`` records and two blocks.
    """

    def __init__(self, policy: Policy, encoder: RecordEncoder, *, reach: int = NO_REACH, clusters: int = 0) -> None:
        stream = policy.streaming()
        self.policy, self.clusters, self._encoder = policy, clusters, encoder
        self._embedding = Embedding.of(policy)
        width = len(policy.quasi_identifiers)
        delay_ms = NO_REACH if stream.max_delay_s is None else max(0, round(stream.max_delay_s * 1000) - 1)
        self._partitioner = Partitioner(
            policy.k,
            stream.delta,
            width,
            rule=stream.rule,
            position=policy.position,
            max_share=policy.max_share,
            reach=(delay_ms, reach),
            min_population=policy.min_population or 0,
            dominance=dominance_of(policy),
        )
        # A slot is taken again only when its record must have left: delta, this block, and the next.
        self._slots = 1 << (stream.delta + 2 * BLOCK_RECORDS).bit_length()
        self._values = np.empty((self._slots, width))
        self._places = np.full(self._slots, -1, np.int64)
        self._tails = np.full(self._slots, b"", np.object_)
        self._next_position = 0
        self._next_rank = 0
        bounds = [a.bounds or (0.0, 1.0) for a in policy.quasi_identifiers]
        self._span = np.array([high - low for low, high in bounds])
        self.accounts = Accounts(width)

    @property
    def held(self) -> int:
        """Number of records waiting for their cluster."""
        return self._partitioner.held

    @property
    def population(self) -> int:
        """Number of different people among them."""
        return self._partitioner.population

    def push(self, block: Block, marks: Int64Matrix, fresh: BoolVector | None = None) -> Outcome:
        """Take the accepted records of a block.

        Parameters
        ----------
        block : Block
            n records; at most `BLOCK_RECORDS`.
        marks : ndarray of int64, shape (n, 2)
            Event clock (ms, never falling; 0 where there is none) and offset of each record.
        fresh : ndarray of bool, shape (n,), optional
            False for a record that was resolved before a restart: it takes its position, and nothing else.
        """
        count = len(block.values)
        if count > BLOCK_RECORDS:
            raise GuaranteeError("a block is larger than the space kept for it; nothing was sent")
        positions = np.arange(self._next_position, self._next_position + count)
        self._next_position += count
        chosen = slice(None) if fresh is None or fresh.all() else np.flatnonzero(fresh)
        positions = positions[chosen]
        self._next_rank += count - len(positions)
        values = block.values[chosen]
        slots = positions & (self._slots - 1)
        self._values[slots] = values
        self._places[slots] = marks[chosen, 1]
        tails = np.empty(count, np.object_)
        tails[:] = block.tails
        self._tails[slots] = tails[chosen]
        amounts = None if self.policy.dominance is None else values
        decided = self._partitioner.push(
            self._embedding.coordinates(values), block.subjects[chosen], positions, marks[chosen], amounts
        )
        return self._outcome(decided)

    def flush(self) -> Outcome:
        """Let everything held leave, as at the end of a stream; suppress it if the policy asks for more people."""
        return self._outcome(self._partitioner.flush())

    def _outcome(self, decided: Decisions) -> Outcome:
        suppressed = self._places[decided.suppressed & (self._slots - 1)].tolist()
        if suppressed:
            self.accounts.suppressed["suppressed"] += len(suppressed)
        if len(decided.offsets) == 1:
            self._next_rank += len(suppressed)
            return Outcome([], suppressed)
        slots = decided.positions & (self._slots - 1)
        values = self._values[slots]
        texts, published = self._embedding.published(values, decided.offsets)
        bounds = decided.offsets.tolist()
        rows = self._encoder.rows(texts, self._tails[slots].tolist(), bounds)
        places = self._places[slots].tolist()
        clusters = [
            Cluster(self.clusters + number, places[start:end], rows[start:end], tuple(texts[number]), subjects)
            for number, ((start, end), subjects) in enumerate(
                zip(pairwise(bounds), decided.subjects.tolist(), strict=True)
            )
        ]
        self.clusters += len(clusters)
        spread = published.repeat(np.diff(decided.offsets), axis=0)
        figures = self._figures(decided, values, spread)
        grown = self.accounts.add(figures, values, spread)
        early = int(np.count_nonzero(decided.causes == _BY_PLACE))
        return Outcome(clusters, suppressed, figures, float((grown / self._span**2).sum()), early)

    def _figures(self, decided: Decisions, values: Float64Matrix, published: Float64Matrix) -> Figures:
        sizes = np.diff(decided.offsets)
        starts, ends = decided.offsets[:-1], decided.offsets[1:]
        # A suppressed record takes its place in the order of leaving, as if it had been let out unseen.
        before = np.searchsorted(decided.suppressed_before, np.arange(len(sizes)), side="right")
        ranks = self._next_rank + np.arange(len(decided.positions)) + before.repeat(sizes)
        self._next_rank += len(decided.positions) + len(decided.suppressed)
        scaled = (values - published) / self._span
        squared = np.einsum("ij,ij->i", scaled, scaled)
        return Figures(
            size=sizes,
            subjects=decided.subjects,
            heaviest=decided.heaviest,
            excess_span=decided.positions[ends - 1] - decided.positions[starts] - (sizes - 1),
            delay=decided.newest.repeat(sizes) - decided.positions,
            displacement=_absolute(ranks - decided.positions),
            squared=squared,
            absolute=np.sqrt(squared),
        )


def _absolute(numbers: Int64Vector) -> Int64Vector:
    return np.abs(numbers)
