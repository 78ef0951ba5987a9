"""The stream engine: blocks of records in, decisions out. Composes buffer, rule, guarantee and centroids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shoal.arrays import Float64Matrix, Int8Vector, Int64Matrix, Int64Vector
from shoal.clustering.embedding import exact_means
from shoal.clustering.stream.buffer import Buffer, InputValidator, SubjectEncoder, as_array
from shoal.clustering.stream.dominance import NO_DOMINANCE
from shoal.clustering.stream.dominance_kernel import Dominance
from shoal.clustering.stream.expiry import StreamConstraints
from shoal.clustering.stream.held import BY_POSITION, FLUSHED, DecisionBuffer
from shoal.clustering.stream.invariants import InvariantChecker
from shoal.clustering.stream.parameters import are_widths, is_whole, parameter_faults
from shoal.clustering.stream.rules import make_rule
from shoal.clustering.stream.steering import FIXED, TargetSpan, are_weights, position_of
from shoal.errors import ParameterError

__all__ = ["BY_POSITION", "FLUSHED", "Decisions", "Released", "StreamAggregator", "StreamClusterer"]

MOST_COLUMNS = 10_000
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
        reach: Sequence[int] = (),
        min_population: int = 0,
        dominance: Dominance | None = None,
    ) -> None:
        faults = parameter_faults(k, delta, rule, position, max_share, has_dominance=dominance is not None)
        if not is_whole(d) or not 1 <= d <= MOST_COLUMNS:
            faults.append(f"d: must be a whole number from 1 to {MOST_COLUMNS}")
        if not are_widths(reach):
            faults.append("reach: must be whole numbers, 0 or more")
        if faults:
            raise ParameterError("; ".join(faults))
        asked = NO_DOMINANCE if dominance is None else dominance
        amounts = len(asked.references)
        buffer = Buffer(int(delta), d, len(reach), amounts)
        widths = np.asarray(reach, np.int64)
        weight, target = position.beginning(int(k), d) if isinstance(position, TargetSpan) else (position, FIXED)
        self._weight = np.full(1, float(weight))
        population = int(min_population)
        demand = StreamConstraints(
            int(k), int(delta), self._weight, float(max_share), widths, population, asked, target
        )
        self._buffer = buffer
        self._border = InputValidator(d, len(reach), amounts)
        self._rule = make_rule(rule, buffer, demand)
        self._guarantee = InvariantChecker(int(k), int(delta), float(max_share), asked)

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
        return self._border.last + 1

    def held_positions(self) -> Int64Vector:
        """Return the positions of the held records, ascending; a copy."""
        return self._buffer.positions()

    def replace(self, coordinates: Float64Matrix) -> None:
        """Give the held records other coordinates (held, d), in the order of `held_positions`: finite, as in `push`."""
        self._buffer.replace(self._border.checked_coordinates(coordinates, len(self._buffer)))

    def push(
        self,
        coordinates: Float64Matrix,
        subjects: Int64Vector | None = None,
        positions: Int64Vector | None = None,
        marks: Int64Matrix | None = None,
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
        block = self._border.check(coordinates, subjects, positions, marks, amounts)
        self._guarantee.admit(block.positions, block.subjects, block.amounts)
        self._border.remember(block, by_subject=subjects is not None)
        return self._sealed(self._rule.take(block))

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
        self._guarantee.admit(nothing, nothing, None)
        return self._sealed(self._rule.finish(self._border.last))

    def _sealed(self, outcome: DecisionBuffer) -> Decisions:
        subjects, heaviest = self._guarantee.seal(outcome)
        ends, causes, newest = outcome.clusters
        suppressed, suppressed_causes, suppressed_newest, suppressed_before = outcome.suppressed
        return Decisions(
            positions=outcome.positions,
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


@dataclass(frozen=True, slots=True)
class Released:
    """What one call of a `StreamAggregator` let out. All arrays are new and belong to the caller.

    Attributes
    ----------
    positions : int64 (E,)
        Released records by their number in the stream, from 0; cluster after cluster, ascending inside a cluster.
    offsets : int64 (G + 1,)
        Cluster g is ``positions[offsets[g]:offsets[g + 1]]``.
    centroids : float64 (G, d)
        Means of the values as they were pushed.
    suppressed : int64 (S,)
        Records that will never leave: fewer than k subjects were there to hide them among.
    """

    positions: Int64Vector
    offsets: Int64Vector
    centroids: Float64Matrix
    suppressed: Int64Vector


class StreamAggregator:
    """Delta-delay stream microaggregation for users: values in, clusters with their centroids out.

    Parameters
    ----------
    k : int
        Distinct subjects in a cluster, 2 or more.
    delta : int
        Largest delay in records, k - 1 or more.
    rule : str
        ``nearest``, ``greedy``, ``awo``, ``block``, or ``auto``: ``block`` from k = 7 on and ``awo`` below.
    position : float or mapping
        Weight omega_p of the position of a record, in units of the weighted values per record; 0 or more. Or
        ``{"target_span": S}``: the weight follows the mean excess span S (records), from cluster to cluster.
    weights : sequence of float, optional
        One per attribute, above 0; multiply the values for the distance only.
    max_share : float
        Largest share of one subject in a cluster, from 1/k to 1.

    Raises
    ------
    ParameterError
        All parameters that are outside their domain, at once.

    Notes
    -----
    Values are never rescaled: give attributes of comparable ranges, or weights. Guarantees, cost and source are those
    of `StreamClusterer`, which this class feeds; memory also holds the values of up to 2 (delta + a block) records.

    Examples
    --------
    >>> stream = StreamAggregator(k=2, delta=2)
    >>> out = stream.push([[0.0], [5.0], [1.0]])
    >>> out.positions.tolist(), out.centroids.tolist()
    ([0, 2], [[0.5]])
    >>> stream.flush().suppressed.tolist()
    [1]
    """

    def __init__(
        self,
        k: int,
        delta: int,
        rule: str = "auto",
        position: float | Mapping[str, float] = 0.0,
        weights: Sequence[float] | None = None,
        max_share: float = 0.5,
    ) -> None:
        steered: Any = position_of(position)
        faults = parameter_faults(k, delta, rule, steered, max_share)
        if weights is not None and not are_weights(weights):
            faults.append("weights: must be finite numbers above 0, one per attribute")
        if faults:
            raise ParameterError("; ".join(faults))
        self._make = partial(StreamClusterer, k, delta, rule=rule, position=steered, max_share=max_share)
        self._weights = None if weights is None else np.asarray(weights, np.float64)
        self._partitioner: StreamClusterer | None = None
        self._names = SubjectEncoder(delta)
        self._delta = delta
        self._values = np.zeros((1, 0))

    def push(
        self, values: ArrayLike, subjects: ArrayLike | None = None, confidential: ArrayLike | None = None
    ) -> Released:
        """Take records and return what left on the way.

        Parameters
        ----------
        values : array_like of float64, shape (n, d)
            Quasi-identifiers, finite; d is that of the first call. Not modified.
        subjects : array_like of int or str, shape (n,), optional
            The person of each record; texts as in records, trimmed, composed and numbers by value ("7" is "07"). Left
            out (then always): every record is a person of its own.
        confidential : array_like, length n, optional
            Taken for later rules; so far only its length is looked at.

        Raises
        ------
        ParameterError
            The records cannot be taken; nothing has changed.
        GuaranteeError
            The promise would be broken; nothing is returned, now or later.
        """
        matrix = self._matrix(values)
        count, width = matrix.shape
        if confidential is not None and as_array(confidential, "confidential").shape[:1] != (count,):
            raise ParameterError(f"confidential: must have length {count}")
        partitioner = self._partitioner or self._make(width)
        codes = None if subjects is None else self._names.codes(subjects, count)
        first = partitioner.next_position
        decided = partitioner.push(matrix if self._weights is None else matrix * self._weights, codes)
        self._partitioner = partitioner
        self._names.keep(count)
        self._keep(matrix, first)
        return self._released(decided)

    def flush(self) -> Released:
        """Let everything held leave, as at the end of the stream; see `StreamClusterer.flush`."""
        partitioner = self._partitioner or self._make(1)
        return self._released(partitioner.flush())

    def _matrix(self, values: ArrayLike) -> Float64Matrix:
        given = as_array(values, "values")
        if given.ndim != 2 or given.dtype.kind not in "iuf" or not given.shape[1]:  # noqa: PLR2004 - rows and columns
            raise ParameterError("values: must be numbers, shape (n, d)")
        if self._weights is not None and given.shape[1] != len(self._weights):
            raise ParameterError(f"values: must have {len(self._weights)} columns, one per weight")
        return np.ascontiguousarray(given, np.float64)

    def _keep(self, matrix: Float64Matrix, first: int) -> None:
        """Lay values down by their positions, the first of which is given; who is held is at most delta older."""
        older, (count, width) = min(first, self._delta), matrix.shape
        if older + count > len(self._values):
            values = np.zeros((1 << (older + count).bit_length(), width))
            if older:
                held = np.arange(first - older, first)
                values[held % len(values)] = self._values[held % len(self._values)]
            self._values = values
        self._values[np.arange(first, first + count) % len(self._values)] = matrix

    def _released(self, decided: Decisions) -> Released:
        members = self._values[decided.positions % len(self._values)]
        return Released(decided.positions, decided.offsets, exact_means(members, decided.offsets), decided.suppressed)
