"""The stream clusterer: blocks of records in, verified decisions on clusters out; and the choice of its rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from shoal.arrays import LARGEST, BoolVector, Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.errors import GuaranteeError, ParameterError
from shoal.policy import MAX_DELTA, RULES, resolve_rule
from shoal.protection.diversity import NO_L, DiversityRule, Protection
from shoal.streams.diverse import BY_DISTANCE, DiverseBlockRule, DiverseRule
from shoal.streams.expiry import NO_TARGET, Rule, StreamConstraints
from shoal.streams.growth import BlockRule, GrowthRule
from shoal.streams.held_records import (
    CLUSTERS,
    END,
    RELEASED,
    SUPPRESSED,
    ArrivingBlock,
    Buffer,
    DecisionBuffer,
    Decisions,
    empty_decision_buffer,
    trim,
)
from shoal.streams.indexed import IndexedGrowthRule, is_indexable
from shoal.streams.invariants import InvariantChecker
from shoal.streams.nearest import NearestRule
from shoal.streams.steering import TargetSpan, position_faults
from shoal.tables.arguments import AnyArray, is_finite_number, is_integer

MAX_DIMENSIONS = 10_000
"""Largest number of coordinates. Memory is allocated for all of them at once, and more are probably a mistake."""
MAX_POSITION = 1 << 62  # positions and expiry keys must lie within +-2^62, so that their differences fit 64 bits
AnyNumber = TypeVar("AnyNumber", np.float64, np.int64)
_ZERO = np.zeros(1, np.int64)


class BlockColumns(NamedTuple):
    """What `StreamClusterer.push` says of the n records of a block beside their coordinates; None if not given."""

    subjects: AnyArray | None = None
    positions: AnyArray | None = None
    expiry_keys: AnyArray | None = None
    codes: AnyArray | None = None
    values: AnyArray | None = None
    bins: AnyArray | None = None


class NewClusters(NamedTuple):
    """What was decided on a part of a block, before it is verified."""

    positions: Int64Vector  # (E,): as in `Decisions`, like the next
    cluster_bounds: Int64Vector  # (G + 1,)
    suppressed: int  # number of suppressed records


class StreamClusterer:
    """Stream microaggregation with a delay of at most delta: decides which records form a cluster, and when.

    ``k``, ``delta``, ``rule``, ``max_share`` and ``code_distances`` (from 0 to 1e150) are those of `StreamAggregator`;
    ``d`` is the number of numeric coordinates. ``position`` is the weight omega_p of the position, or the target that
    it follows. A record expires as soon as an arriving record has a key that exceeds its own by more than the limit,
    one of ``expiry_limits``. While fewer than ``min_population`` distinct subjects are held, none expires by the first
    key, which is a clock. ``codes_must_agree`` (c,) says whether a cluster publishes a code only if all members have
    it; only partitions of the held records take it into account. ``diversity`` is what each cluster must satisfy in the
    ``protected`` attributes. Raises `ParameterError`, whose message names all parameters that are outside their domain.

    Guarantees: each record is in exactly one cluster, or suppressed, or held. A cluster has at least k distinct
    subjects, none with more than ``max_share`` of its records, and satisfies ``diversity``. A record is decided at the
    latest with the first arrival that is delta or more positions after it. It is suppressed only if fewer than k
    subjects are held then, or the rule finds no cluster that satisfies ``diversity``, and at the end also if fewer than
    ``min_population`` are held. Decisions do not depend on how the stream is cut into blocks. All decisions are
    verified before they are returned.

    Cost: O(delta (d + c)) memory; for time see the classes of the rules. Source: Algorithms 2 and 3 and Note 1 of J.
    Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation", ICDMW 2017 (doi:10.1109/ICDMW.2017.141), which does
    not define the end of the stream; see `flush`.
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
        fewest = 0 if np.size(distances) else 1
        if not is_integer(d) or not fewest <= d <= MAX_DIMENSIONS:
            faults.append(f"d: must be a whole number from {fewest} to {MAX_DIMENSIONS}")
        if codes_must_agree is not None and np.shape(codes_must_agree) != np.shape(distances):
            faults.append("codes_must_agree: must have one value per category column")
        if not all(is_integer(limit) and 0 <= limit < 1 << 62 for limit in expiry_limits):
            faults.append("expiry_limits: must be whole numbers, 0 or more")
        faults += _protection_faults(diversity, protected)
        if faults:
            raise ParameterError("; ".join(faults))
        k, delta, limits = int(k), int(delta), np.asarray(expiry_limits, np.int64)
        protection = None if diversity is None else Protection(diversity, protected)
        rows = 0 if protection is None else protection.rows
        weight, target = (
            position.initial(k, d, distances) if isinstance(position, TargetSpan) else (position, NO_TARGET)
        )
        constraints = StreamConstraints(
            k, delta, np.full(1, float(weight)), float(max_share), limits, min_population, target
        )
        self._weight, self._code_count, self._delta, self._limits = constraints.omega_p, len(distances), delta, limits
        self._buffer = Buffer(delta, int(d), len(limits), distances, rows, codes_must_agree)
        self._validator = InputValidator(d, len(limits), len(distances), protection)
        self._invariants = InvariantChecker(k, delta, constraints.max_share, protection)
        self._rule = _create(rule, self._buffer, constraints, protection)
        self._rule.precompile()
        self._arriving, self._decided = np.empty((0, 0), np.int64), empty_decision_buffer(0)
        """The records of the block on which is still to be decided, as rows, and the decisions of this block so far."""

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
        return self._buffer.population

    @property
    def next_position(self) -> int:
        """Position of the next record if none is given."""
        return self._validator.last + 1

    def held_positions(self) -> Int64Vector:
        """Return a copy of the positions of the held records, ascending."""
        return self._buffer.positions()

    def count_before_due(self, positions: Int64Vector, expiry_keys: Int64Matrix) -> int:
        """Return how many of the next n records, n >= 1, can be pushed for certain before a decision is due."""
        oldest, oldest_keys = self._buffer.oldest() if len(self._buffer) else (int(positions[0]), expiry_keys[0])
        is_due = positions - oldest >= self._delta
        is_due |= (expiry_keys - oldest_keys > self._limits).any(axis=1)
        return int(is_due.argmax()) if is_due.any() else len(is_due)

    def replace_coordinates(self, coordinates: Float64Matrix) -> None:
        """Replace the coordinates of the held records by finite ones (held, d), in the order of `held_positions`."""
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
        """Add a block of n records, 0 or more, and return the decisions on the records that expire, in their order.

        ``subjects`` (n,) are given in all calls or in none; without them each record is a subject of its own.
        ``positions`` (n,) are arrival ranks, strictly ascending over all calls; if omitted, they are numbered after the
        last one. ``expiry_keys`` (n, C) never decrease. A category of ``codes`` (n, c), or a value of ``values`` (n,
        q), must keep its code while a record with it is held. ``bins`` (n, q) are needed if ``diversity`` has a t.

        Raises `ParameterError` if the block is not valid, and nothing has changed; `GuaranteeError` if a decision
        violates an invariant, in this call and all later ones.
        """
        checked = self._validator.validate_coordinates(coordinates)
        self.begin(len(checked), BlockColumns(subjects, positions, expiry_keys, codes, values, bins))
        self._take(checked)
        return self.end()

    def begin(self, count: int, columns: BlockColumns) -> None:
        """Begin a block of ``count`` records as in `push`; `decide` on its parts and `end` follow."""
        self._require_decided()
        block = self._validator.validate(count, columns)
        self._invariants.register(block.positions, block.subjects, block.codes[:, self._code_count :])
        self._validator.remember(block, by_subject=columns.subjects is not None)
        self._arriving, self._decided = block.rows(), empty_decision_buffer(len(self._buffer) + count)

    def decide(self, coordinates: Float64Matrix) -> NewClusters:
        """Add the next n records of the block, with coordinates (n, d), and decide on the records that expire."""
        decided, checked = self._decided, self._validator.validate_coordinates(coordinates)
        clusters, released, suppressed = decided.counts.tolist()
        self._take(checked)
        ends = decided.clusters[END, clusters : decided.counts[CLUSTERS]] - released
        return NewClusters(
            decided.positions[released : decided.counts[RELEASED]],
            np.concatenate((_ZERO, ends)),
            int(decided.counts[SUPPRESSED]) - suppressed,
        )

    def _take(self, coordinates: Float64Matrix) -> None:
        self._rule.decide(self._arriving, coordinates, self._decided)
        self._arriving = self._arriving[:, len(coordinates) :]

    def end(self) -> Decisions:
        """Return all decisions of the block, verified; raises `GuaranteeError` as `push`, or if a record is left."""
        self._require_decided()
        return self._verified(trim(self._decided))

    def flush(self) -> Decisions:
        """Decide on all held records, as at the end of the stream; more records may be pushed afterwards.

        Rules ``greedy``, ``awo`` and ``block`` partition them (`PartitionFlushRule`); rule ``nearest`` decides on the
        oldest record in turn. If fewer than ``min_population`` subjects are held, all records are suppressed.
        """
        nothing = np.zeros(0, np.int64)
        self._invariants.register(nothing, nothing)
        return self._verified(self._rule.flush(self._validator.last))

    def _require_decided(self) -> None:
        """Raise `GuaranteeError` if the rule has not seen all records of the block, in this call and all later ones."""
        if left := self._arriving.shape[1]:
            raise GuaranteeError(f"records of a block without a decision: {left}; nothing of it is released")

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


class InputValidator:
    """Validates blocks against the parameters of the stream and against the last block."""

    def __init__(self, dimensions: int, keys: int, codes: int = 0, protection: Protection | None = None) -> None:
        self._dimensions, self._key_count, self._codes, self._protection = dimensions, keys, codes, protection
        self._last_keys = np.full(keys, -MAX_POSITION, np.int64)
        self._by_subject: bool | None = None
        self.last = -1

    def validate(self, count: int, columns: BlockColumns) -> ArrivingBlock:
        """Return the columns of ``count`` records as a block, with positions and subjects filled in."""
        subjects, positions, expiry_keys, codes, values, bins = columns
        if self._by_subject is not None and self._by_subject != (subjects is not None):
            raise ParameterError("subjects: given in some blocks only; give them in all blocks or in none")
        numbered = np.arange(self.last + 1, self.last + 1 + count) if positions is None else positions
        block = ArrivingBlock(
            _expect(numbered if subjects is None else subjects, "subjects", np.int64, (count,)),
            _expect(numbered, "positions", np.int64, (count,)),
            _columns(expiry_keys, "expiry_keys", "expiry_limits", (count, self._key_count)),
            self._with_protected(_columns(codes, "codes", "code_distances", (count, self._codes)), values, bins),
        )
        if count:
            self._check_order(block, numbered=positions is None)
        return block

    def _with_protected(self, codes: Int64Matrix, values: AnyArray | None, bins: AnyArray | None) -> Int64Matrix:
        """Return the codes of category columns with those of protected attributes, and with their bins, behind them."""
        protection = self._protection
        if protection is None:
            return codes
        shape = (len(codes), protection.attributes)
        columns = [codes, _expect(values, "values", np.int64, shape)]
        if protection.has_bins:
            given = _expect(bins, "bins", np.int64, shape)
            if ((given < 0) | (given >= np.diff(protection.rule.bin_bounds))).any():
                raise ParameterError("bins: must be indices into the reference of their attribute")
            columns.append(given)
        return np.concatenate(columns, axis=1)

    def _check_order(self, block: ArrivingBlock, *, numbered: bool) -> None:
        places = block.positions
        ascends = numbered or (places[0] > self.last and (places[1:] > places[:-1]).all())
        if places[-1] >= MAX_POSITION or not ascends:
            raise ParameterError("positions: must ascend strictly, also between blocks, and be below 2^62")
        keys = block.expiry_keys
        decreasing = (keys[0] < self._last_keys).any() or (keys[1:] < keys[:-1]).any()
        if decreasing or (keys[-1] >= MAX_POSITION).any():
            raise ParameterError("expiry_keys: must not decrease, also between blocks, and be within +-2^62")

    def validate_coordinates(self, coordinates: AnyArray, count: int | None = None) -> Float64Matrix:
        """Return coordinates (count, d); raises as `validate`."""
        checked = _expect(coordinates, "coordinates", np.float64, (count, self._dimensions))
        _check_finite(checked)
        return checked

    def remember(self, block: ArrivingBlock, *, by_subject: bool) -> None:
        """Make a validated block the one that the next block is compared with."""
        if len(block.positions):
            self._by_subject = by_subject
            self.last = int(block.positions[-1])
            self._last_keys = block.expiry_keys[-1].copy()


def parameter_faults(k: int, delta: int, rule: str, position: object, max_share: float) -> list[str]:
    """Return everything that is wrong with the parameters of a stream, as messages; an empty list if all are valid."""
    faults = [
        f"{name}: must be a whole number" for name, value in (("k", k), ("delta", delta)) if not is_integer(value)
    ]
    if faults:
        return [*faults, *position_faults(position), *_rule_faults(rule)]
    if k < 2:  # noqa: PLR2004 - a cluster needs two subjects
        faults.append("k: must be at least 2")
    if max(k, delta) > MAX_DELTA:
        faults.append(f"k, delta: must be at most {MAX_DELTA}")
    if delta < max(k - 1, 1):
        faults.append("delta: must be at least k - 1, or no cluster could be filled")
    if not is_finite_number(max_share) or not 0 < max_share <= 1:
        faults.append("max_share: must be above 0 and at most 1")
    elif k >= 2 and max_share * min(k, MAX_DELTA) < 1 - 1e-9:  # noqa: PLR2004
        faults.append("max_share: must be at least 1/k, or k subjects could not share a cluster")
    return [*faults, *position_faults(position), *_rule_faults(rule)]


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


def _create(name: str, buffer: Buffer, constraints: StreamConstraints, protection: Protection | None) -> Rule:
    """Return the rule of a name."""
    k = constraints.k
    chosen = resolve_rule(name, k, protects_values=protection is not None)
    if chosen not in {"nearest", "greedy", "awo", "block"}:
        raise ParameterError("rule: no class implements it")
    # Opportunity costs count more with a larger k, because larger clusters cost the other records more.
    weight = 0.0 if chosen == "greedy" else min(max(0.6 * math.log2(k), 1.0), 2.5)  # greedy is awo without such costs
    if protection is not None:
        made = DiverseBlockRule if chosen == "block" else DiverseRule
        return made(buffer, constraints, BY_DISTANCE if chosen == "nearest" else weight, protection)
    if chosen == "nearest":
        return NearestRule(buffer, constraints)
    if chosen == "block":
        return BlockRule(buffer, constraints, weight)
    if chosen == "awo" and is_indexable(buffer, constraints):
        return IndexedGrowthRule(buffer, constraints, weight)
    return GrowthRule(buffer, constraints, weight)


def _protection_faults(diversity: object, protected: object) -> list[str]:
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


def _rule_faults(name: object) -> list[str]:
    """Return what is wrong with the name of a rule, as messages; an empty list if it is valid."""
    if not isinstance(name, str):
        return ["rule: must be a name"]
    if name not in {"auto", *RULES}:
        return [f"rule: unknown, use one of auto, {', '.join(RULES)}"]
    return []


def _check_finite(coordinates: Float64Matrix) -> None:
    if not np.isfinite(coordinates).all():
        raise ParameterError("coordinates: must be finite")


def _columns(array: object, name: str, parameter: str, shape: tuple[int, int]) -> Int64Matrix:
    """Return integers that may be missing if they have no columns; ``parameter`` says how many they have."""
    if array is None and shape[1]:
        raise ParameterError(f"{name}: missing, {parameter} requires {shape[1]} columns")
    return _expect(np.zeros(shape, np.int64) if array is None else array, name, np.int64, shape)


def _expect(array: object, name: str, dtype: type[AnyNumber], shape: tuple[int | None, ...]) -> NDArray[AnyNumber]:
    """Return an array of a type and a shape, where None stands for any length; `ParameterError` if it has another."""
    found = array.shape if isinstance(array, np.ndarray) and array.dtype == dtype else ()
    if len(found) == len(shape) and all(size in (None, own) for size, own in zip(shape, found, strict=True)):
        return cast("NDArray[AnyNumber]", array)
    wanted = f"({', '.join('n' if size is None else str(size) for size in shape)}{',' if len(shape) == 1 else ''})"
    raise ParameterError(f"{name}: must be an array of {dtype.__name__}, shape {wanted}")
