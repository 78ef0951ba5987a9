"""C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shoal.arrays import Float64Matrix, Int8Vector, Int64Matrix, Int64Vector
from shoal.clustering.stream.buffer import Buffer
from shoal.clustering.stream.dominance import NO_DOMINANCE, Dominance
from shoal.clustering.stream.expiry import StreamConstraints
from shoal.clustering.stream.held_records import BY_POSITION, FLUSHED, DecisionBuffer
from shoal.clustering.stream.invariants import InvariantChecker
from shoal.clustering.stream.rules import make_rule
from shoal.clustering.stream.steering import NO_TARGET, TargetSpan
from shoal.clustering.stream.validation import InputValidator, are_expiry_limits, is_integer, parameter_faults
from shoal.errors import ParameterError

__all__ = ["BY_POSITION", "FLUSHED", "Decisions", "StreamClusterer"]

MAX_DIMENSIONS = 10_000
"""A row of the buffer is allocated at once: more would rather be a mistake."""

_ZERO = np.zeros(1, np.int64)


@dataclass(frozen=True, slots=True)
class Decisions:
    """What one call decided. All arrays are new and belong to the caller.

    Attributes
    ----------
    positions : int64 (E,)
        Released records, cluster after cluster in the order of decision; ascending inside a cluster.
    offsets : int64 (G + 1,)
        Cluster g is ``positions[offsets[g]:offsets[g + 1]]``.
    subjects, heaviest : int64 (G,)
        Distinct subjects of each cluster, at least k; records of its heaviest subject.
    causes : int8 (G,)
        Why the decision was taken: `BY_POSITION` (delta), column + 1 of the mark that went out of reach, or `FLUSHED`.
    newest : int64 (G,)
        Last position that had arrived at the decision: ``newest - position`` is the delay of a record.
    suppressed, suppressed_newest : int64 (S,)
        Records that will never leave, and the same for them.
    suppressed_causes : int8 (S,)
        As ``causes``.
    suppressed_before : int64 (S,)
        Clusters of this call that were decided before; never descends.
    """

    positions: Int64Vector
    offsets: Int64Vector
    subjects: Int64Vector
    heaviest: Int64Vector
    causes: Int8Vector
    newest: Int64Vector
    suppressed: Int64Vector
    suppressed_newest: Int64Vector
    suppressed_causes: Int8Vector
    suppressed_before: Int64Vector


class StreamClusterer:
    """Delta-delay stream microaggregation: tells which records form which cluster, and when.

    Parameters
    ----------
    k : int
        Distinct subjects in a cluster, 2 or more.
    delta : int
        Largest delay in positions, k - 1 or more. Memory is reserved for this many records.
    d : int
        Coordinates of a record, 1 or more.
    rule : str
        ``nearest``, ``greedy``, ``awo``, ``block``, or ``auto``: ``block`` from k = 7 on and ``awo`` below.
    position : float or TargetSpan
        Weight omega_p of the position, in units of the coordinates per position; or what it follows.
    max_share : float
        Largest share of one subject in a cluster, from 1/k to 1.
    reach : sequence of int
        One per mark column: a record leaves as soon as the mark of an arriving record exceeds its own by more.
    min_population : int
        While fewer distinct subjects are held, no record leaves by the first mark, which is a clock.
    dominance : Dominance, optional
        How well nobody's contribution to a mean may be worked out; see `clustering.stream.dominance`.

    Raises
    ------
    ParameterError
        All parameters that are outside their domain, at once.

    Notes
    -----
    Guarantees: each record is in exactly one cluster, or suppressed, or held; a cluster has at least k distinct
    subjects, none with more than ``max_share`` of its records; a record leaves at the latest with the first arrival
    that is delta or more positions after it, and is suppressed only if fewer than k subjects are held then (at the
    end also if fewer than ``min_population`` are, and with ``dominance`` if somebody would stand out).
    Decisions do not depend on how the stream is cut into blocks. All this is checked before a decision is returned.
    Cost: O(delta d) memory; time as told by the rule.
    Source: paper *steered*, Algorithms 2 and 3 and Note 1 (doi:10.1109/ICDMW.2017.141). The end of the stream, which
    the paper leaves open: see `flush`.

    Examples
    --------
    >>> stream = Partitioner(k=2, delta=2, d=1)
    >>> stream.push(np.array([[0.0], [5.0], [0.1]])).positions.tolist()
    [0, 2]
    >>> stream.flush().suppressed.tolist()
    [1]
    """

    def __init__(
        self,
        k: int,
        delta: int,
        d: int,
        *,
        rule: str = "nearest",
        position: float | TargetSpan = 0.0,
        max_share: float = 0.5,
        expiry_limits: Sequence[int] = (),
        min_population: int = 0,
        dominance: Dominance | None = None,
    ) -> None:
        faults = parameter_faults(k, delta, rule, position, max_share, has_dominance=dominance is not None)
        if not is_integer(d) or not 1 <= d <= MAX_DIMENSIONS:
            faults.append(f"d: must be a whole number from 1 to {MAX_DIMENSIONS}")
        if not are_expiry_limits(expiry_limits):
            faults.append("expiry_limits: must be whole numbers, 0 or more")
        if faults:
            raise ParameterError("; ".join(faults))
        dominance_rule = NO_DOMINANCE if dominance is None else dominance
        amounts = len(dominance_rule.references)
        buffer = Buffer(int(delta), d, len(expiry_limits), amounts)
        limits = np.asarray(expiry_limits, np.int64)
        weight, target = position.initial(int(k), d) if isinstance(position, TargetSpan) else (position, NO_TARGET)
        self._weight = np.full(1, float(weight))
        population = int(min_population)
        constraints = StreamConstraints(
            int(k), int(delta), self._weight, float(max_share), limits, population, dominance_rule, target
        )
        self._buffer = buffer
        self._validator = InputValidator(d, len(expiry_limits), amounts)
        self._rule = make_rule(rule, buffer, constraints)
        self._invariants = InvariantChecker(int(k), int(delta), float(max_share), dominance_rule)

    @property
    def held(self) -> int:
        """How many records are held."""
        return len(self._buffer)

    @property
    def weight(self) -> float:
        """Weight of the position for the next decision."""
        return float(self._weight[0])

    @property
    def population(self) -> int:
        """How many distinct subjects are held. Cost: O(held log held)."""
        return len(np.unique(self._buffer.subjects()))

    @property
    def next_position(self) -> int:
        """The position that the next record gets if none is given."""
        return self._validator.last + 1

    def held_positions(self) -> Int64Vector:
        """Return the positions of the held records, ascending; a copy."""
        return self._buffer.positions()

    def replace_coordinates(self, coordinates: Float64Matrix) -> None:
        """Give the held records other coordinates (held, d), in the order of `held_positions`: finite, as in `push`."""
        self._buffer.replace_coordinates(self._validator.validate_coordinates(coordinates, len(self._buffer)))

    def push(
        self,
        coordinates: Float64Matrix,
        subjects: Int64Vector | None = None,
        positions: Int64Vector | None = None,
        expiry_keys: Int64Matrix | None = None,
        amounts: Float64Matrix | None = None,
    ) -> Decisions:
        """Take a block of records and return what was decided on the way.

        Parameters
        ----------
        coordinates : ndarray of float64, shape (n, d)
            Scaled and weighted quasi-identifiers; finite; not modified. n may be 0.
        subjects : ndarray of int64, shape (n,), optional
            Code of the person of each record. Left out (then always): every record is a person of its own.
        positions : ndarray of int64, shape (n,), optional
            Arrival ranks, strictly ascending over all calls; gaps are fine. Left out: numbered from the last on.
        marks : ndarray of int64, shape (n, C), optional
            One column per ``reach``, none ever falling: a time, a log offset.
        amounts : ndarray of float64, shape (n, a), optional
            What ``dominance`` speaks of, in the units of its references.

        Raises
        ------
        ParameterError
            The block cannot be taken; nothing has changed.
        GuaranteeError
            The promise would be broken; nothing is returned, now or later.
        """
        block = self._validator.validate(coordinates, subjects, positions, expiry_keys, amounts)
        self._invariants.register(block.positions, block.subjects, block.amounts)
        self._validator.remember(block, by_subject=subjects is not None)
        return self._verified(self._rule.push(block))

    def flush(self) -> Decisions:
        """Decide on all held records, as at the end of the stream; more may be pushed afterwards.

        All that is held leaves in the clusters of a partition: MDAV, then descent, merged until each fits. Under rule
        ``nearest``, and where not even all together fit: while 2k distinct subjects are held the oldest record expires
        as usual; fewer leave as one cluster around the oldest (what the cap on shares hands back is decided on in
        turn). Fewer than k are suppressed, oldest first; all are, if there are fewer than ``min_population`` when it
        is called.

        Raises
        ------
        GuaranteeError
            As `push`.
        """
        nothing = np.zeros(0, np.int64)
        self._invariants.register(nothing, nothing, None)
        return self._verified(self._rule.flush(self._validator.last))

    def _verified(self, decisions: DecisionBuffer) -> Decisions:
        subjects, heaviest = self._invariants.verify(decisions)
        ends, causes, newest = decisions.clusters
        suppressed, suppressed_causes, suppressed_newest, suppressed_before = decisions.suppressed
        return Decisions(
            positions=decisions.positions,
            offsets=np.concatenate((_ZERO, ends)),
            subjects=subjects,
            heaviest=heaviest,
            causes=causes.astype(np.int8),
            newest=newest,
            suppressed=suppressed,
            suppressed_newest=suppressed_newest,
            suppressed_causes=suppressed_causes.astype(np.int8),
            suppressed_before=suppressed_before,
        )
