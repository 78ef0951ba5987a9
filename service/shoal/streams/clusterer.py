"""The stream clusterer: blocks of records in, decisions on clusters out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shoal.arrays import LARGEST, BoolVector, Float64Matrix, Float64Vector, Int8Vector, Int64Matrix, Int64Vector
from shoal.errors import ParameterError
from shoal.protection import NO_L, DiversityRule
from shoal.streams.arguments import InputValidator, are_expiry_limits, is_integer, parameter_faults
from shoal.streams.expiry import StreamConstraints
from shoal.streams.held_records import BY_POSITION, FLUSHED, Buffer, DecisionBuffer
from shoal.streams.invariants import InvariantChecker
from shoal.streams.protection import Protection
from shoal.streams.rules import make_rule
from shoal.streams.steering import NO_TARGET, TargetSpan

__all__ = ["BY_POSITION", "FLUSHED", "Decisions", "StreamClusterer", "code_distance_faults"]

MAX_DIMENSIONS = 10_000
"""Largest number of coordinates. Memory is allocated for all of them at once, and more are probably a mistake."""

_ZERO = np.zeros(1, np.int64)


@dataclass(frozen=True, slots=True)
class Decisions:
    """Decisions of one call. All arrays are new and belong to the caller.

    Attributes
    ----------
    positions : int64 (E,)
        Members of the clusters, cluster after cluster in the order of decision; ascending inside a cluster.
    cluster_bounds : int64 (G + 1,)
        Cluster g is ``positions[cluster_bounds[g]:cluster_bounds[g + 1]]``.
    subjects, max_per_subject : int64 (G,)
        Distinct subjects of each cluster, at least k, and the records of the subject that has the most.
    causes : int8 (G,)
        Why each decision was taken: `BY_POSITION` (delta), `FLUSHED` (end of the stream), or c + 1 for expiry key c.
    newest : int64 (G,)
        Newest position at each decision: ``newest - position`` is the delay of a record.
    suppressed : int64 (S,)
        Suppressed records.
    suppressed_newest, suppressed_causes : int64 (S,), int8 (S,)
        As ``newest`` and ``causes``.
    suppressed_before : int64 (S,)
        Clusters of this call that were decided before each suppression; ascending.
    """

    positions: Int64Vector
    cluster_bounds: Int64Vector
    subjects: Int64Vector
    max_per_subject: Int64Vector
    causes: Int8Vector
    newest: Int64Vector
    suppressed: Int64Vector
    suppressed_newest: Int64Vector
    suppressed_causes: Int8Vector
    suppressed_before: Int64Vector


class StreamClusterer:
    """Stream microaggregation with a delay of at most delta: decides which records form a cluster, and when.

    Parameters
    ----------
    k : int
        Distinct subjects in a cluster, 2 or more.
    delta : int
        Largest delay in positions, k - 1 or more. Memory is reserved for this many records.
    d : int
        Numeric coordinates of a record, 1 or more; 0 if there are ``code_distances``.
    rule : str
        ``nearest``, ``greedy``, ``awo`` (opportunity-cost growth), ``block``, or ``auto``: ``block`` for k of 7 or
        more, else ``awo``.
    position : float or TargetSpan
        Weight omega_p of the position, in units of the coordinates per position, or the target that the weight follows.
    max_share : float
        Largest share of one subject in a cluster, from 1/k to 1.
    expiry_limits : sequence of int
        One per expiry key: a record expires as soon as the key of an arriving record exceeds its own by more.
    min_population : int
        While fewer distinct subjects are held, no record expires by the first expiry key, which is a clock.
    code_distances : ndarray of float64, shape (c,), optional
        One per category column: the squared distance of two records whose codes differ there, from 0 to 1e150, in
        squared units of the coordinates.
    codes_must_agree : ndarray of bool, shape (c,), optional
        Whether a cluster publishes a code of a category column only if all members have it, as with a common ancestor;
        by default it publishes the most frequent one. Rule block takes it into account.
    diversity : DiversityRule, optional
        l-diversity, largest share of one value and t-closeness that each cluster must satisfy (`clustering.diversity`).
    protected : int
        Number of protected attributes q that ``diversity`` applies to, 1 or more.

    Raises
    ------
    ParameterError
        One or more parameters are outside their domain; the message names all of them.

    Notes
    -----
    Guarantees: each record is in exactly one cluster, or suppressed, or held. A cluster has at least k distinct
    subjects, none with more than ``max_share`` of its records. A record is decided at the latest with the first
    arrival that is delta or more positions after it. It is suppressed only if fewer than k subjects are held
    then, and at the end also if fewer than ``min_population`` are held.

    The squared distance of two records is that of their numeric coordinates plus the ``code_distances`` of the columns
    in which their codes differ. Of codes only equality counts.

    Decisions do not depend on how the stream is cut into blocks. All decisions are verified before they are returned.

    Cost: O(delta (d + c)) memory; for time see the classes of the rules.

    Source: J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation", ICDMW 2017, Algorithms 2 and 3 and Note 1
    (doi:10.1109/ICDMW.2017.141). The paper does not define the end of the stream; see `flush`.

    Examples
    --------
    >>> stream = StreamClusterer(k=2, delta=2, d=1)
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
        code_distances: Float64Vector | None = None,
        codes_must_agree: BoolVector | None = None,
        diversity: DiversityRule | None = None,
        protected: int = 1,
    ) -> None:
        faults = parameter_faults(k, delta, rule, position, max_share)
        distances = np.zeros(0) if code_distances is None else code_distances
        faults += code_distance_faults(distances)
        if codes_must_agree is not None and np.shape(codes_must_agree) != np.shape(distances):
            faults.append("codes_must_agree: must have one value per category column")
        fewest = 0 if np.size(distances) else 1
        if not is_integer(d) or not fewest <= d <= MAX_DIMENSIONS:
            faults.append(f"d: must be a whole number from {fewest} to {MAX_DIMENSIONS}")
        if not are_expiry_limits(expiry_limits):
            faults.append("expiry_limits: must be whole numbers, 0 or more")
        faults += protection_faults(diversity, protected)
        if faults:
            raise ParameterError("; ".join(faults))
        protection = None if diversity is None else Protection(diversity, int(protected))
        rows = 0 if protection is None else protection.rows
        buffer = Buffer(int(delta), int(d), len(expiry_limits), distances, rows, codes_must_agree)
        limits = np.asarray(expiry_limits, np.int64)
        weight, target = (
            position.initial(int(k), d, distances) if isinstance(position, TargetSpan) else (position, NO_TARGET)
        )
        self._weight = np.full(1, float(weight))
        population = int(min_population)
        constraints = StreamConstraints(int(k), int(delta), self._weight, float(max_share), limits, population, target)
        self._buffer = buffer
        self._validator = InputValidator(d, len(expiry_limits), len(distances), protection)
        self._rule = make_rule(rule, buffer, constraints, protection)
        self._invariants = InvariantChecker(int(k), int(delta), float(max_share), protection)
        self._columns, self._delta, self._limits = len(distances), int(delta), limits

    @property
    def held(self) -> int:
        """Number of held records."""
        return len(self._buffer)

    @property
    def weight(self) -> float:
        """Weight of the position for the next decision."""
        return float(self._weight[0])

    @property
    def population(self) -> int:
        """Number of distinct subjects among the held records. Cost: O(held log held)."""
        return len(np.unique(self._buffer.subjects()))

    @property
    def next_position(self) -> int:
        """Position of the next record if none is given."""
        return self._validator.last + 1

    def held_positions(self) -> Int64Vector:
        """Return a copy of the positions of the held records, ascending."""
        return self._buffer.positions()

    def count_before_due(self, positions: Int64Vector, expiry_keys: Int64Matrix) -> int:
        """Return how many of the next records can surely be pushed before a decision is due.

        Parameters
        ----------
        positions : ndarray of int64, shape (n,)
            As in `push`; n of 1 or more.
        expiry_keys : ndarray of int64, shape (n, C)

        Notes
        -----
        A clock that does not count yet, because too few subjects are held, counts here.
        """
        oldest, oldest_keys = self._buffer.oldest() if len(self._buffer) else (int(positions[0]), expiry_keys[0])
        is_due = positions - oldest >= self._delta
        is_due |= (expiry_keys - oldest_keys > self._limits).any(axis=1)
        return int(is_due.argmax()) if is_due.any() else len(is_due)

    def replace_coordinates(self, coordinates: Float64Matrix) -> None:
        """Replace the coordinates of the held records; their codes stay.

        Parameters
        ----------
        coordinates : ndarray of float64, shape (held, d)
            In the order of `held_positions`; finite.

        Raises
        ------
        ParameterError
            The coordinates are not valid; nothing has changed.
        """
        self._buffer.replace_coordinates(self._validator.validate_coordinates(coordinates, len(self._buffer)))

    def push(
        self,
        coordinates: Float64Matrix,
        subjects: Int64Vector | None = None,
        positions: Int64Vector | None = None,
        expiry_keys: Int64Matrix | None = None,
        codes: Int64Matrix | None = None,
        values: Int64Matrix | None = None,
        bins: Int64Matrix | None = None,
    ) -> Decisions:
        """Add a block of records and return the decisions on the records that expire.

        Parameters
        ----------
        coordinates : ndarray of float64, shape (n, d)
            Scaled and weighted quasi-identifiers; finite; not modified. n may be 0.
        subjects : ndarray of int64, shape (n,), optional
            Subject code of each record. If omitted (then in all calls), each record is a subject of its own.
        positions : ndarray of int64, shape (n,), optional
            Arrival ranks, strictly ascending over all calls; gaps are allowed. If omitted, numbered after the last
            position.
        expiry_keys : ndarray of int64, shape (n, C), optional
            One column per expiry limit, never decreasing: a time in ms, a log offset.
        codes : ndarray of int64, shape (n, c), optional
            Code of each record in each category column. A category must keep its code while a record with it is held.
        values : ndarray of int64, shape (n, q), optional
            Value code of each record in each protected attribute; required if there is a ``diversity``. Only equality
            counts; a value must keep its code while a record with it is held.
        bins : ndarray of int64, shape (n, q), optional
            Index of each value in the reference of its attribute; required if ``diversity`` has a t.

        Returns
        -------
        Decisions
            Decisions in the order in which they were taken.

        Raises
        ------
        ParameterError
            The block is not valid; nothing has changed.
        GuaranteeError
            A decision violates an invariant. This call and all later ones raise.
        """
        block = self._validator.validate(coordinates, subjects, positions, expiry_keys, codes, values, bins)
        self._invariants.register(block.positions, block.subjects, block.codes[:, self._columns :])
        self._validator.remember(block, by_subject=subjects is not None)
        return self._verified(self._rule.push(block))

    def flush(self) -> Decisions:
        """Decide on all held records, as at the end of the stream; more records may be pushed afterwards.

        Under rules ``greedy``, ``awo`` and ``block`` all held records are decided, as the clusters of a partition:
        MDAV, then descent; clusters are merged until each satisfies the constraints. Under rule ``nearest``, and where
        even a single cluster of all records violates them, the oldest record is decided as usual while 2k distinct
        subjects are held. Fewer than 2k form one cluster around the oldest record, and records above
        ``max_share`` are decided on in turn. Fewer than k are suppressed, oldest first. If fewer than
        ``min_population`` subjects are held, all records are suppressed.

        Returns
        -------
        Decisions
            Decisions in the order in which they were taken.

        Raises
        ------
        GuaranteeError
            As `push`.
        """
        nothing = np.zeros(0, np.int64)
        self._invariants.register(nothing, nothing)
        return self._verified(self._rule.flush(self._validator.last))

    def _verified(self, decisions: DecisionBuffer) -> Decisions:
        subjects, max_per_subject = self._invariants.verify(decisions)
        ends, causes, newest = decisions.clusters
        suppressed, suppressed_causes, suppressed_newest, suppressed_before = decisions.suppressed
        return Decisions(
            positions=decisions.positions,
            cluster_bounds=np.concatenate((_ZERO, ends)),
            subjects=subjects,
            max_per_subject=max_per_subject,
            causes=causes.astype(np.int8),
            newest=newest,
            suppressed=suppressed,
            suppressed_newest=suppressed_newest,
            suppressed_causes=suppressed_causes.astype(np.int8),
            suppressed_before=suppressed_before,
        )


def protection_faults(diversity: object, protected: object) -> list[str]:
    """Return what is wrong with a rule on protected attributes; an empty list if it is valid."""
    if diversity is None:
        return []
    if not isinstance(diversity, DiversityRule):
        return ["diversity: must be a DiversityRule"]
    faults = []
    if not 0 < diversity.max_value_share <= 1 or not 0 <= diversity.t <= 1:
        faults.append("diversity: t and max_value_share must be from 0 to 1")
    if diversity.l_kind != NO_L and not (diversity.l > 1 and diversity.c >= 0):
        faults.append("diversity: l must be above 1")
    if not is_integer(protected) or not 1 <= protected <= MAX_DIMENSIONS:
        faults.append(f"protected: must be a whole number from 1 to {MAX_DIMENSIONS}")
    elif diversity.t < 1.0 and len(diversity.distances) != protected:
        faults.append("diversity: t needs a reference for each protected attribute")
    return faults


def code_distance_faults(code_distances: object) -> list[str]:
    """Return what is wrong with the squared distances of category columns; an empty list if they are valid."""
    if (
        not isinstance(code_distances, np.ndarray)
        or code_distances.dtype != np.float64
        or code_distances.ndim != 1
        or len(code_distances) > MAX_DIMENSIONS
    ):
        return [f"code_distances: must be an array of float64, shape (c,), with c up to {MAX_DIMENSIONS}"]
    if not ((code_distances >= 0) & (code_distances <= LARGEST)).all():
        return [f"code_distances: must be from 0 to {LARGEST:g}"]
    return []
