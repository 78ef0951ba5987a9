"""The last check inside the engine: decisions are verified against the records that arrived.

If a check fails, nothing of the block is released. `InvariantChecker` keeps its own list of the records that arrived,
and shares array layouts and constants with the rules, but no function that selects or counts. It takes from the rule at
which arrival a decision was made (`NEWEST`, `CAUSE`), and checks that no record due at the newest position is still
held. It shares the bins and value codes of the rules, and does not find a wrong one; the judge reads those anew.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.errors import AnonymityViolation, GuaranteeError
from shoal.kernels.containers import shell_sort
from shoal.kernels.jit import njit, njit_inline
from shoal.protection.diversity import (
    DISTINCT,
    ENTROPY,
    LAST_CHECK_TOLERANCE,
    NO_L,
    ORDERED,
    RECURSIVE,
    ClusterPeople,
    CountedValues,
    DiversityRule,
    LDiversity,
    Protection,
    people_of,
)
from shoal.streams.held_records import CAUSE, END, FLUSHED, NEWEST, POSITION, DecisionBuffer, empty_decision_buffer

VALID, NOT_HELD, TOO_FEW_SUBJECTS, SHARE_EXCEEDED, OVERDUE = range(5)
"""Results of `check_decisions`."""
SHARE_TOLERANCE = 1e-9
"""Tolerance, in records, when a count is compared with ``max_share`` x cluster size; covers rounding."""
MIN_CAPACITY = 4096
"""Smallest capacity of the registry, in records. Decided records are dropped together when it is full."""
_NAMES = {DISTINCT: "distinct", ENTROPY: "entropy", RECURSIVE: "recursive"}


class InvariantLimits(NamedTuple):
    """Smallest number of subjects ``k``, largest delay ``delta`` in positions, and largest share of a subject."""

    k: int
    delta: int
    max_share: float


class RegisteredRecords(NamedTuple):
    """The registry: records in the order of their positions."""

    positions: Int64Vector  # (n,)
    subjects: Int64Vector  # (n,)
    decided: BoolVector  # (n,): True for a record that is in a cluster or suppressed
    oldest: Int64Vector  # (1,): index of the oldest held record, or n if none is held


class InvariantChecker:
    """Registers arriving records and verifies decisions before they are returned.

    Guarantees: a verified cluster has at least k subjects, none of them above its share, and satisfies the protection.
    Each record is decided once, and before the next arrival after it is due, as far as the rule states the arrivals
    correctly; after the call no held record is due. After a violation all further calls are rejected.

    Cost: O(block + decided) per call on average, and O(log held) more per decided record if positions have gaps.
    """

    def __init__(self, k: int, delta: int, max_share: float, protection: Protection | None = None) -> None:
        self._protection = protection
        self._codes = np.zeros((0, 0 if protection is None else protection.rows), np.int64)
        self._limits = InvariantLimits(k, delta, max_share)
        self._registry = _empty_registry(0)
        self._filled = 0
        self._arrivals = np.full(1, -1, np.int64)
        self._violated = False
        self.verify(empty_decision_buffer(0))  # compiles the kernels before the first records arrive

    def register(self, positions: Int64Vector, subjects: Int64Vector, codes: Int64Matrix | None = None) -> None:
        """Add n arriving records, at ascending positions; raises `GuaranteeError` after a violated invariant."""
        if self._violated:
            raise GuaranteeError("an invariant was violated before; this stream accepts no more records")
        end = self._filled + len(positions)
        if end > len(self._registry.decided):
            self._forget_decided(len(positions))
            end = self._filled + len(positions)
        self._registry.positions[self._filled : end] = positions
        self._registry.subjects[self._filled : end] = subjects
        if codes is not None:
            self._codes[self._filled : end] = codes
        self._filled = end
        self._arrivals = np.concatenate((self._arrivals[-1:], positions))

    def verify(self, decisions: DecisionBuffer) -> Int64Matrix:
        """Verify all decisions since the last call, or raise `AnonymityViolation` or `GuaranteeError`.

        Returns, int64 (2, G): the distinct subjects of each cluster, and the records of the subject that has most.
        """
        self._violated = True  # until all checks have passed
        violated = self._violated_protection(decisions)
        positions, subjects, decided, oldest = self._registry
        registry = RegisteredRecords(
            positions[: self._filled], subjects[: self._filled], decided[: self._filled], oldest
        )
        subject_counts = np.empty((2, decisions.clusters.shape[1]), np.int64)
        decided_subjects = np.empty(decisions.positions.size + decisions.suppressed.shape[1], np.int64)
        result = check_decisions(registry, self._arrivals, decisions, self._limits, subject_counts, decided_subjects)
        fault = violated and f"a cluster {violated}"
        if result != VALID:
            fault = self._fault(result)
        if fault:
            error = GuaranteeError if result == OVERDUE else AnonymityViolation
            raise error(f"{fault}; nothing of its block was released")
        self._violated = False
        return subject_counts

    def _fault(self, result: int) -> str:
        """Return what a result of `check_decisions` other than `VALID` says."""
        k, delta, max_share = self._limits
        return {
            NOT_HELD: "a decision names a record that is not held",
            TOO_FEW_SUBJECTS: f"a cluster has fewer than {k} subjects",
            SHARE_EXCEEDED: f"a subject has a share above {max_share} of a cluster",
            OVERDUE: f"a record was not decided in time (delta is {delta})",
        }[result]

    def _forget_decided(self, arriving: int) -> None:
        """Drop decided records, and allocate twice the capacity that the held and the arriving records need."""
        kept = np.flatnonzero(~self._registry.decided[: self._filled])
        registry = _empty_registry(max(2 * (len(kept) + arriving), MIN_CAPACITY))
        codes = np.zeros((len(registry.decided), self._codes.shape[1]), np.int64)
        registry.positions[: len(kept)] = self._registry.positions[kept]
        registry.subjects[: len(kept)] = self._registry.subjects[kept]
        codes[: len(kept)] = self._codes[kept]
        self._registry, self._codes, self._filled = registry, codes, len(kept)

    def _violated_protection(self, decisions: DecisionBuffer) -> str:
        """Return the constraint on protected attributes that a cluster violates; empty if none does."""
        if self._protection is None or not decisions.clusters.shape[1]:
            return ""
        slots = np.searchsorted(self._registry.positions[: self._filled], decisions.positions)
        if (slots == self._filled).any():
            return ""  # a record that is not held, which `check_decisions` finds
        subjects, ends = self._registry.subjects[slots], decisions.clusters[END]
        return violated_constraint(self._protection, self._codes[slots], subjects, ends)


def violated_constraint(protection: Protection, codes: Int64Matrix, subjects: Int64Vector, ends: Int64Vector) -> str:
    """Return the constraint that a cluster violates, in words; empty if none does. Cluster g ends at ``ends[g]``."""
    people = people_of(np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0)), subjects)
    for attribute in range(protection.attributes):
        found = _violated_by_values(protection.rule, codes[:, attribute], people)
        if found:
            return found
        if protection.has_bins:
            bins = codes[:, protection.attributes + attribute]
            distances = distances_of_clusters(protection.rule, attribute, bins, people)
            if (distances > protection.rule.t + LAST_CHECK_TOLERANCE).any():
                return f"is farther than {protection.rule.t} from the reference"
    return ""


def distances_of_clusters(
    rule: DiversityRule, attribute: int, bins: Int64Vector, people: ClusterPeople
) -> Float64Vector:
    """Return the earth mover's distance of each cluster from the reference of an attribute, shape (G,)."""
    count = len(people.counts)
    part = slice(rule.bin_bounds[attribute], rule.bin_bounds[attribute + 1])
    reference = rule.shares[part]
    m = len(reference)
    weights = np.bincount(people.clusters * m + bins, people.weights, count * m).reshape(-1, m)
    differences: Float64Matrix = weights / people.counts[:, None] - reference
    if rule.distances[attribute] == ORDERED:
        ordered: Float64Vector = np.abs(np.cumsum(differences, axis=1))[:, :-1].sum(axis=1)
        return ordered / max(m - 1, 1)
    levels = int(rule.levels[attribute])
    found: Float64Vector = np.zeros(count)
    if not levels:
        found += np.abs(differences).sum(axis=1)
        return found / 2
    for level in range(levels):
        found += np.abs(_sums_by_node(differences, rule.paths[part, level])).sum(axis=1)
    return found / (2 * levels)


def _violated_by_values(rule: DiversityRule, values: Int64Vector, people: ClusterPeople) -> str:
    """Return which of l-diversity and the largest share a cluster violates in one attribute."""
    found = CountedValues(values, people)
    if (found.largest > rule.max_value_share * people.counts + LAST_CHECK_TOLERANCE).any():
        return f"has a value that a share above {rule.max_value_share} of its people have"
    if rule.l_kind == NO_L or found.satisfy(LDiversity(rule.l_kind, rule.l, rule.c)).all():
        return ""
    return f"has no {_NAMES[rule.l_kind]} {rule.l:g}-diversity"


def _sums_by_node(differences: Float64Matrix, nodes: Int64Vector) -> Float64Matrix:
    """Return the sums (G, nodes) of the columns below each node."""
    _, owners = np.unique(nodes, return_inverse=True)
    sums = np.zeros((owners.max() + 1, len(differences)))
    np.add.at(sums, owners, differences.T)
    return sums.T


def _empty_registry(capacity: int) -> RegisteredRecords:
    """Allocate a registry."""
    positions, subjects = np.zeros((2, capacity), np.int64)
    return RegisteredRecords(positions, subjects, np.zeros(capacity, np.bool_), np.zeros(1, np.int64))


@njit
def check_decisions(
    registry: RegisteredRecords,
    arrivals: Int64Vector,
    decisions: DecisionBuffer,
    limits: InvariantLimits,
    subject_counts: Int64Matrix,
    decided_subjects: Int64Vector,
) -> int:
    """Verify decisions, mark their records as decided, and return the result."""
    if not _mark_decided(registry, decisions.suppressed[POSITION], decided_subjects) or not _mark_decided(
        registry, decisions.positions, decided_subjects
    ):
        return NOT_HELD
    ends, start = decisions.clusters[END], 0
    for cluster in range(ends.size):
        subjects, max_per_subject = _count_subjects(decided_subjects[start : ends[cluster]])
        subject_counts[0, cluster], subject_counts[1, cluster] = subjects, max_per_subject
        if subjects < limits.k:
            return TOO_FEW_SUBJECTS
        if max_per_subject > limits.max_share * (ends[cluster] - start) + SHARE_TOLERANCE:
            return SHARE_EXCEEDED
        start = ends[cluster]
    oldest = _advance_oldest(registry)
    overdue = (
        _is_overdue(decisions.positions, ends, decisions.clusters, arrivals, limits.delta)
        or _is_overdue(decisions.suppressed[POSITION], ends[:0], decisions.suppressed, arrivals, limits.delta)
        or (oldest < registry.decided.size and arrivals[arrivals.size - 1] - registry.positions[oldest] >= limits.delta)
    )
    return OVERDUE if overdue else VALID


@njit_inline
def _mark_decided(registry: RegisteredRecords, decided: Int64Vector, decided_subjects: Int64Vector) -> bool:
    """Mark records as decided and write their subjects to ``decided_subjects``; return False if one is not held."""
    positions, count = registry.positions, registry.positions.size
    for i in range(decided.size):
        # The last positions rarely have gaps, so that their index usually follows from the difference.
        index = count - 1 - (positions[count - 1] - decided[i]) if count else -1
        if index < 0 or index >= count or positions[index] != decided[i]:
            index = _find(positions, decided[i])
        if index < 0 or registry.decided[index]:
            return False
        registry.decided[index] = True
        decided_subjects[i] = registry.subjects[index]
    return True


@njit_inline
def _find(positions: Int64Vector, wanted: int) -> int:
    """Return the index of a position by binary search, or -1."""
    low, high = 0, positions.size
    while low < high:
        middle = (low + high) >> 1
        if positions[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < positions.size and positions[low] == wanted else -1


@njit_inline
def _advance_oldest(registry: RegisteredRecords) -> int:
    """Advance ``oldest`` over decided records and return it."""
    oldest = registry.oldest[0]
    while oldest < registry.decided.size and registry.decided[oldest]:
        oldest += 1
    registry.oldest[0] = oldest
    return int(oldest)


@njit_inline
def _count_subjects(decided_subjects: Int64Vector) -> tuple[int, int]:
    """Return the number of distinct subjects and the records of the most frequent one; sorts ``decided_subjects``."""
    shell_sort(decided_subjects)
    distinct, run, most = 0, 0, 0
    for i in range(decided_subjects.size):
        run = run + 1 if i > 0 and decided_subjects[i] == decided_subjects[i - 1] else 1
        distinct += run == 1
        most = max(most, run)
    return distinct, most


@njit_inline
def _is_overdue(
    positions: Int64Vector, ends: Int64Vector, decisions: Int64Matrix, arrivals: Int64Vector, delta: int
) -> bool:
    """Whether a record was due at an arrival earlier than the one at which it was decided."""
    arrival, start = 0, 0
    for decision in range(decisions.shape[1]):
        newest = decisions[NEWEST, decision]  # in ascending order
        while arrival + 1 < arrivals.size and arrivals[arrival + 1] < newest:
            arrival += 1
        seen = newest if decisions[CAUSE, decision] == FLUSHED else arrivals[arrival]
        end = ends[decision] if ends.size else decision + 1
        for i in range(start, end):
            if seen - positions[i] >= delta:
                return True
        start = end
    return False
