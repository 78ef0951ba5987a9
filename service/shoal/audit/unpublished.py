"""Accounts for the records that were not published: none may have been dropped.

A usable record of a stream may be unpublished because it is still held at the end of the original, exceeds
``privacy.per_subject``, was held with fewer than k subjects when it expired, or with fewer than
``privacy.min_population`` at the end, or because the service rejected it by its size or by its clock. A record of a
table may be unpublished because of ``per_subject``, or because its subject would have more than ``max_share`` of the
whole table.

Files decide all but the rejections, unless a clock, the size of the offset metadata, an operator, a restart, or a limit
of confidential values may have decided on the record. Then a suppression that is possible is a claim of the quarantine
file or of the summary: it is counted and reported, and does not change the outcome. One that is impossible is a fault.

**Which records were held.** Every decision of a stream concerns the oldest held record, whatever decides. It is
released in a cluster, or suppressed. So when a record is suppressed, a cluster with an older member has been decided
before, and a cluster without one is decided later. The records that were held with a suppressed record are those of
later clusters and later suppressed ones, as far as they had arrived. The oldest members of the clusters ascend in the
order of decision, and no record is held that is older than the oldest member of a decided cluster.

Where only delta and the end of the input decide, the moment is known: delta more records have arrived, or the input has
ended. A clock, the size of the metadata or an operator may decide earlier. Then at least the newest member of all
earlier clusters has arrived.

**How many decisions the claims need.** The records that one moment suppresses were all held, so they belong to fewer
than k subjects (of fewer than ``min_population`` where the policy sets it), and no cluster was decided between them. So
the claimed records of a partition, in the order of their positions, need a moment for each group of fewer than k
subjects between two clusters. The fewest groups are found by taking as many records as possible into each.

**Confidential values.** Files do not show which clusters a stream has tried. A suppression because of ``l``,
``max_value_share`` or ``t`` is possible if some of the records that may have been held form a set of at least k
subjects that breaks one of them. This is decided by counting; where it is not known, it counts as possible.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction

import numpy as np

from shoal.audit.arrivals import Arrivals, StreamArrivals
from shoal.audit.clusters import (
    SHARE_TOLERANCE,
    AdmissionLimits,
    BoolVector,
    RecomputedCluster,
    RecomputedClusters,
    clusters_by_partition,
    members_of,
    starts_of,
)
from shoal.audit.confidential import AuditedColumn
from shoal.audit.evidence import QuarantineReference
from shoal.audit.fields import Int64Vector
from shoal.audit.originals import UNKNOWN_TIMESTAMP, UNUSABLE, Originals
from shoal.audit.verdict import CheckCounter, counted
from shoal.policy import Policy

MAX_AHEAD_MS = 3_600_000  # a service rejects records with a timestamp more than this far ahead of its clock (ms)
FIRST_LOOK = 8  # so many times k records are counted first; among them are usually k subjects


class AuditedReferences:
    """The references of the quarantine, checked. The texts of what it counts follow the word "records"."""

    def __init__(self, policy: Policy, originals: Originals, limits: AdmissionLimits, is_released: BoolVector) -> None:
        self.valid = CheckCounter(
            "references", "references name existing records that were not released, each once", "reference"
        )
        self.fitting = CheckCounter(
            "reasons",
            "references hold topic, partition, offset and one of four reasons that the record allows, nothing else",
            "reference",
        )
        self.reasons: dict[int, str] = {}  # of each referenced original, by its index
        self.ahead: set[int] = set()  # usable records that are claimed to be rejected by the clock
        self.claimed: Counter[str] = Counter()  # records by what only the quarantine states
        self.undecided: Counter[str] = Counter()  # records by the file that would decide
        self._originals, self._limits = originals, limits
        self._delta = 0 if policy.stream is None else policy.stream.delta
        self._is_released = is_released
        self._logs: dict[int, _Log] = {}

    def allows(self, index: int, reason: str) -> bool:
        """Whether a record may be unpublished for this reason. Cases that files cannot decide are counted."""
        if self._originals.is_dropped[index]:
            return False
        if not self._originals.is_usable(index):
            return reason != "suppressed"
        if reason == "suppressed":
            return True
        if reason == "too_large":
            return bool(self._limits.is_too_large[index]) or self._may_be_too_large(index)
        # The record fits the policy. Only a service has a clock, and rejects what is too far ahead of it.
        return reason == "invalid" and self._originals.is_export and self._may_be_ahead(index)

    def _may_be_too_large(self, index: int) -> bool:
        if self._limits.may_be_too_large[index]:
            self.undecided[
                "referenced as too large, and the original does not show their sizes: give an original with messages "
                "as texts, or set kafka.max_record_bytes to a larger limit"
            ] += 1
            return True
        if self._originals.is_export:
            limit = "kafka.max_record_bytes: set it in the policy to the limit of the service"
            self.undecided[f"referenced as too large although within {limit}"] += 1
        return self._originals.is_export

    def _may_be_ahead(self, index: int) -> bool:
        """Whether a timestamp is later than all of those released before it, so that the clock may have refused it.

        If it is over an hour later than those of the records released next, the rejection is claimed; else disputed.
        """
        timestamp = int(self._originals.timestamps[index])
        if timestamp == UNKNOWN_TIMESTAMP:
            self.undecided[
                "referenced as invalid although usable: export the original with timestamps, which show whether they "
                "are too far ahead"
            ] += 1
            return True
        partition = int(self._originals.partitions[index])
        if partition not in self._logs:
            self._logs[partition] = _Log.of(self._originals, self._is_released, partition)
        before, after = self._logs[partition].latest_around(int(self._originals.offsets[index]), self._delta)
        if timestamp <= before:
            return False
        if after is None or timestamp <= after + MAX_AHEAD_MS:
            self.undecided[
                "referenced as invalid although usable, with a timestamp at most an hour later than the "
                "timestamps of the records released next; one too far ahead of the clock is later than that: if no "
                "record was released next, export input and output again when some are"
            ] += 1
            return True
        self.ahead.add(index)
        self.claimed[
            "rejected for a timestamp too far ahead of the clock, as the quarantine states: files do not show the clock"
        ] += 1
        return True


def check_references(
    policy: Policy,
    originals: Originals,
    limits: AdmissionLimits,
    clusters: RecomputedClusters | None,
    references: Iterable[QuarantineReference],
) -> AuditedReferences:
    """Check the references; ``clusters``: None if they are not known."""
    is_released = np.zeros(len(originals), np.bool_) if clusters is None else clusters.is_released
    found = AuditedReferences(policy, originals, limits, is_released)
    topics: set[str] = set()
    for number, reference in enumerate(references, 1):
        index = originals.find(reference.partition, reference.offset)
        found.valid.expect(index is not None and index not in found.reasons and not is_released[index], number)
        # All references name one topic, the input of the original.
        topics.add(reference.topic)
        is_wellformed = reference.is_wellformed and len(topics) == 1
        found.fitting.expect(is_wellformed and (index is None or found.allows(index, reference.reason)), number)
        if index is not None:
            found.reasons.setdefault(index, reference.reason)
    if clusters is None:
        found.valid.skip("which records were released is not known without evidence")
    return found


class PartitionHistory:
    """The arrivals of one partition and the decisions on them.

    ``may_flush_early``: whether something else than delta and the end of the input may have decided. ``counts_all``, of
    its methods: count all records that may have been admitted, and not only those that certainly were.
    """

    def __init__(
        self,
        policy: Policy,
        originals: Originals,
        arrivals: Arrivals,
        clusters: Sequence[RecomputedCluster],
        *,
        may_flush_early: bool,
    ) -> None:
        count = len(arrivals)
        self._arrivals = arrivals
        self._may_suppress_early = originals.is_export or (may_flush_early and policy.min_population is None)
        stream = policy.require_stream()
        self._k, self._delta = policy.k, stream.delta
        self._population = max(policy.k, policy.min_population or 0)
        self._subjects = originals.subjects
        self._oldest = np.arange(count, dtype=np.int32)
        """For a released record the position of the oldest member of its cluster; for others their own position."""
        self._is_released = np.zeros(count, np.bool_)
        newest = np.arange(-1, count, dtype=np.int32)  # of each position, from 1 on
        starts = ends = np.zeros(0, np.int64)
        if clusters:
            positions, firsts = arrivals.positions_of(originals.offsets[members_of(clusters)]), starts_of(clusters)
            starts, ends = np.minimum.reduceat(positions, firsts), np.maximum.reduceat(positions, firsts)
            self._oldest[positions] = np.repeat(starts, np.diff(firsts, append=len(positions)))
            self._is_released[positions] = True
            np.maximum.at(newest, starts + 1, ends.astype(np.int32))
        self._newest_of_earlier = np.maximum.accumulate(newest)[:-1]
        self._starts, self._last_start = np.sort(starts), int(starts.max(initial=0))
        self._releases_all = stream.rule == "block"
        self.is_flushed = not may_flush_early and self._has_flushed_cluster(starts, ends)
        """Whether a cluster shows that the end of the input was decided on, so that nothing is held."""

    def _has_flushed_cluster(self, starts: Int64Vector, ends: Int64Vector) -> bool:
        """Whether a cluster is too young for delta: neither it nor one released with it has a record that expired."""
        last_expired = len(self._arrivals) - 1 - self._delta
        if not self._releases_all:
            return bool((starts > last_expired).any())
        expired = int(starts[starts <= last_expired].max(initial=-1 - self._delta))
        return bool((ends > expired + self._delta).any())

    def flushed_population(self) -> int | None:
        """Return the subjects that were held when the end of the input released records; None if it is not known."""
        if not self.is_flushed or self._releases_all:  # the last clusters of rule block do not show the end
            return None
        held = self._arrivals.is_sure & (self._oldest >= len(self._arrivals) - self._delta)
        return self._subjects_of(np.flatnonzero(held))

    def may_be_held(self, positions: Int64Vector, *, counts_all: bool) -> BoolVector:
        """Return for each position whether fewer than delta records arrived after it, so that a record may be held."""
        count = len(self._arrivals)
        if self.is_flushed:
            return np.zeros(len(positions), np.bool_)
        if counts_all or not count:
            return np.asarray(count - 1 - positions < self._delta)
        at_least = self._arrivals.at_least
        return np.asarray(at_least[-1] - at_least[np.minimum(positions, count - 1)] < self._delta)

    def is_decided(self, offsets: Int64Vector) -> BoolVector:
        """Return for each offset whether it is older than the oldest member of a cluster, so that it is not held."""
        if not self._is_released.any():
            return np.zeros(len(offsets), np.bool_)
        return np.asarray(offsets < self._arrivals.offsets[self._last_start])

    def clusters_before(self, position: int) -> int:
        """Return how many clusters have a member that is older than the record at this position."""
        return int(np.searchsorted(self._starts, position))

    def was_short(self, position: int, *, counts_all: bool) -> bool:
        """Whether fewer than k subjects were held when the record at this position expired by delta or at the end."""
        last = min(position + self._delta, len(self._arrivals) - 1)
        return self._is_short(position, last, is_end=last == len(self._arrivals) - 1, counts_all=counts_all)

    def may_have_been_short(self, position: int, *, counts_all: bool) -> bool:
        """Whether fewer than k subjects may have been held when a clock or an operator decided on the record."""
        # A clock decides on nothing while fewer than ``min_population`` are held, so it suppresses no record then.
        if not self._may_suppress_early:
            return False
        last = max(position, int(self._newest_of_earlier[position]))
        return self._is_short(position, last, is_end=True, counts_all=counts_all)

    def _is_short(self, position: int, last: int, *, is_end: bool, counts_all: bool) -> bool:
        """Whether too few subjects were held: records that had arrived and were not decided before."""
        held, subjects = self._held_with(position, min(last, position + FIRST_LOOK * self._k), counts_all=counts_all)
        if subjects < self._population:
            held, subjects = self._held_with(position, last, counts_all=counts_all)
        # Fewer than min_population are suppressed at the end of the input, and then all of them.
        is_all = is_end and not self._is_released[held].any()
        return subjects < (self._population if is_all else self._k)

    def _held_with(self, position: int, last: int, *, counts_all: bool) -> tuple[Int64Vector, int]:
        """Return the positions up to ``last`` held together with this one, and the number of their subjects."""
        window = slice(position, last + 1)
        may_be_held = self._oldest[window] >= position
        held = position + np.flatnonzero(may_be_held if counts_all else may_be_held & self._arrivals.is_sure[window])
        return held, self._subjects_of(held)

    def _subjects_of(self, positions: Int64Vector) -> int:
        return len(np.unique(self._subjects[self._arrivals.indices[positions]]))


class Cause(Enum):
    """What may have suppressed a record although delta and the end of the input did not."""

    VALUES = "l, t or max_value_share"
    EARLY = "early"
    LOST_WINDOW = "a restart that lost the start of a quota window"
    WHOLE_WINDOW = "a restart, although the original has the start of the quota window"


class ClaimedSuppressions:
    """Collects claimed suppressions in the order of their positions. A file is flushed by a time limit alone."""

    def __init__(self, policy: Policy, *, is_export: bool) -> None:
        self._population = max(policy.k, policy.min_population or 0)
        has_time_limit = policy.require_stream().max_delay_s is not None and policy.min_population is None
        causes = ["a flush", "the size of the offset metadata"] if is_export else []
        self._early_causes = " or ".join([*(["a time limit"] if has_time_limit or not is_export else []), *causes])
        self._counts: Counter[Cause] = Counter()
        self.names_records = True  # whether it is stated which records were suppressed, and not only how many
        self._held: dict[int, list[tuple[int, int, int]]] = defaultdict(list)

    def add(self, cause: Cause, partition: int, gap: int, position: int, subject: int) -> None:
        """Add a record; ``gap``: how many clusters have an older member."""
        self._counts[cause] += 1
        if cause is Cause.EARLY:
            self._held[partition].append((position, gap, subject))

    def fewest_moments(self) -> int:
        """Return at how many moments the records of `Cause.EARLY` must have been suppressed. Cost: O(n log n)."""
        moments = 0
        for records in self._held.values():
            subjects: set[int] = set()
            last_gap = -1
            for _, gap, subject in sorted(records):
                if gap != last_gap or len(subjects | {subject}) >= self._population:
                    moments, subjects, last_gap = moments + 1, set(), gap
                subjects.add(subject)
        return moments

    def texts(self, source: str) -> Counter[str]:
        """Return numbers of records by what is claimed of them; ``source``: what states the suppressions."""
        found: Counter[str] = Counter()
        for cause, count in self._counts.items():
            if cause is Cause.WHOLE_WINDOW:
                continue
            named, needed = cause.value, ""
            if cause is Cause.EARLY:
                named = self._early_causes
            if cause is Cause.EARLY and self.names_records:
                needed = f" (needs at least {counted(self.fewest_moments(), 'such decision')})"
            found[
                f"suppressed because of {named}, as the {source} states: the files show that this is possible, and not "
                f"that it is so{needed}"
            ] = count
        return found

    def undecided(self) -> Counter[str]:
        """Return numbers of records by what would decide on them."""
        question = (
            "referenced as suppressed although k subjects were held: only a restart that did not find the start of "
            "their quota window in the log explains this, and the original has the start: give an original that begins "
            "where the log began then, or judge a part (--partial)"
        )
        return +Counter({question: self._counts[Cause.WHOLE_WINDOW]})


class BreakableValues:
    """Says of sets of records whether a cluster of them may break a limit of confidential values."""

    def __init__(self, policy: Policy, originals: Originals) -> None:
        self._policy, self._originals = policy, originals
        self._columns = [AuditedColumn(policy, attribute, originals.released) for attribute in policy.protected]

    def can_be_broken(self, indices: Int64Vector) -> bool:
        """Whether some set of at least k subjects among these usable records may break a limit. Cost: O(records)."""
        rule = self._policy.diversity
        if self._policy.t is not None or (rule is not None and rule.kind != "distinct"):
            return True
        return any(self._can_break(column, indices) for column in self._columns)

    def _can_break(self, column: AuditedColumn, indices: Int64Vector) -> bool:
        keys = list(map(column.key, self._originals.unchanged_of(indices)))
        own: defaultdict[str, set[int]] = defaultdict(set)
        for key, subject in zip(keys, self._originals.subjects[indices].tolist(), strict=True):
            own[key].add(subject)
        k, rule, limit = self._policy.k, self._policy.diversity, self._policy.max_value_share
        most_frequent = sorted(map(len, own.values()), reverse=True)
        if rule is not None and sum(most_frequent[: int(rule.l) - 1]) >= k:
            return True  # fewer than l values may be those of k subjects
        # The worst set has all subjects of one value, and as few others as k subjects need.
        return limit is not None and any(count > Fraction(limit) * max(k, count) for count in most_frequent)


@dataclass(frozen=True, slots=True)
class StatedAccounts:
    """What the run states about its unpublished records."""

    reasons: Mapping[int, str] | None  # as of `AuditedReferences`; None without a quarantine file
    suppressed: int | None  # by a complete summary of a file; None of a topic
    is_drained: bool
    read_end: int | None = None  # first lines that the summary counts as read; None of a topic


@dataclass(slots=True)
class Accounts:
    """The unpublished records, as far as they are accounted for."""

    complete: CheckCounter  # no record is missing
    suppressed: CheckCounter  # each suppression was necessary or is possible
    is_due: BoolVector  # false while so few records arrived for certain that it need not be released
    held: int = 0
    suppressible: int = 0  # unreferenced records that were or may have been suppressed
    certain: int = 0  # those that had to be
    claimed: Counter[str] = field(default_factory=Counter)  # as of `AuditedReferences`, of all that the run states
    undecided: Counter[str] = field(default_factory=Counter)
    population: CheckCounter | None = None  # None without ``privacy.min_population``, or if files do not show it
    early_decisions: int | None = 0  # as of `Verdict`


def check_unpublished(
    policy: Policy,
    originals: Originals,
    limits: AdmissionLimits,
    found: RecomputedClusters,
    arrivals: StreamArrivals,
    stated: StatedAccounts,
) -> Accounts:
    """Check every unpublished record of a stream. Cost: O(n log n), and O(delta) more per suppressed record."""
    examiner = _Examiner(policy, originals, limits, found, arrivals, stated)
    for index in _unpublished(originals, found, examiner.accounts):
        examiner.examine(index)
    accounts = examiner.settled()
    if not originals.is_ended and not found.is_released[-1]:
        accounts.complete.note = (
            "the last record has no end: a run with --follow does not read it, so it is not missing"
        )
    if accounts.held:
        accounts.complete.note = f"{counted(accounts.held, 'record')} may still be held: verify again later"
    return accounts


def check_unpublished_rows(
    policy: Policy,
    originals: Originals,
    limits: AdmissionLimits,
    found: RecomputedClusters,
    reasons: Mapping[int, str] | None,
) -> Accounts:
    """Check every unpublished record of a table, but not which of the records of one subject are suppressed. O(n)."""
    accounts = _new_accounts(originals, "only records above per_subject or max_share were suppressed")
    exceeds = limits.exceeds_quota
    may_be_suppressed = _suppressed_per_subject(policy, originals, exceeds)
    if policy.min_population is not None and found.is_released.any():
        subjects = len(np.unique(originals.subjects[(originals.subjects != UNUSABLE) & ~exceeds]))
        accounts.population = _population(policy.min_population)
        accounts.population.expect(subjects >= policy.min_population, 0)
        accounts.population.worst = subjects
    for index in _unpublished(originals, found, accounts):
        is_referenced = reasons is not None and index in reasons
        is_explained = not originals.is_usable(index) or bool(exceeds[index] or limits.is_too_large[index])
        if not is_explained:
            subject = int(originals.subjects[index])
            is_explained = may_be_suppressed[subject] > 0
            may_be_suppressed[subject] -= 1
        if is_referenced:
            accounts.suppressed.expect(is_explained, index)
        else:
            accounts.suppressible += is_explained and originals.is_usable(index)
        accounts.complete.expect(is_referenced or (reasons is None and is_explained), index)
    return accounts


def unknown_completeness() -> CheckCounter:
    """Return the check ``complete`` of a release whose clusters are not known."""
    check = _completeness()
    check.skip("which records were released is not known without evidence")
    return check


@dataclass(frozen=True, slots=True)
class _Log:
    """The released records of one partition in the order of their offsets; `latest`: largest timestamp up to each."""

    offsets: Int64Vector
    timestamps: Int64Vector
    latest: Int64Vector

    @classmethod
    def of(cls, originals: Originals, is_released: BoolVector, partition: int) -> _Log:
        chosen = originals.by_partition[partition]
        chosen = chosen[is_released[chosen]]
        timestamps = originals.timestamps[chosen]
        return cls(originals.offsets[chosen], timestamps, np.maximum.accumulate(timestamps))

    def latest_around(self, offset: int, count: int) -> tuple[int, int | None]:
        """Return the latest timestamp before an offset, and the latest of the next ``count`` records, None if none."""
        position = int(np.searchsorted(self.offsets, offset))
        before = int(self.latest[position - 1]) if position else UNKNOWN_TIMESTAMP
        following = self.timestamps[position : position + count]
        return before, int(following.max()) if len(following) else None


def _unpublished(originals: Originals, found: RecomputedClusters, accounts: Accounts) -> list[int]:
    """Return the records that were not released, and count the others as examined."""
    is_released = found.is_released
    accounts.complete.examined += int(np.count_nonzero(is_released))
    indices: list[int] = np.flatnonzero(~is_released & ~originals.is_dropped).tolist()
    return indices


def _suppressed_per_subject(policy: Policy, originals: Originals, exceeds: BoolVector) -> Counter[int]:
    """Return how many records of each subject must be suppressed so that none has too large a share of the table."""
    counts = Counter(originals.subjects[(originals.subjects != UNUSABLE) & ~exceeds].tolist())
    if policy.subject is None or not counts:
        return Counter()
    max_share = Fraction(policy.max_share) + SHARE_TOLERANCE
    most = max(counts.values())  # at most c of each are left, with the largest c within the share of what remains
    left = next((c for c in range(most, 1, -1) if c <= max_share * sum(min(count, c) for count in counts.values())), 1)
    return Counter({subject: max(0, count - left) for subject, count in counts.items()})


def _population(fewest: int) -> CheckCounter:
    claim = f"the end of the input released records only where at least {fewest} subjects were held"
    return CheckCounter("population", claim, "partition")


def _completeness() -> CheckCounter:
    claim = "every record was released, is referenced, could not be released, or may still be held"
    return CheckCounter("complete", claim, "record")


def _new_accounts(originals: Originals, suppressed: str) -> Accounts:
    return Accounts(
        _completeness(), CheckCounter("suppressed", suppressed, "record"), np.ones(len(originals), np.bool_)
    )


class _Examiner:
    def __init__(
        self,
        policy: Policy,
        originals: Originals,
        limits: AdmissionLimits,
        found: RecomputedClusters,
        arrivals: StreamArrivals,
        stated: StatedAccounts,
    ) -> None:
        self._policy, self._originals, self._stated = policy, originals, stated
        self.accounts = accounts = _new_accounts(
            originals, f"only records with which fewer than {policy.k} subjects were held were suppressed"
        )
        self._limits, self._arrivals = limits, arrivals
        self._may_be_held = np.zeros(len(originals), np.bool_)
        self._possible: list[tuple[int, Cause | None]] = []
        self._values = BreakableValues(policy, originals)
        self._claims = ClaimedSuppressions(policy, is_export=originals.is_export)
        self._may_flush_early = originals.is_export or policy.require_stream().max_delay_s is not None
        clusters = clusters_by_partition(found.clusters)
        self._histories = {
            partition: PartitionHistory(
                policy, originals, found_here, clusters[partition], may_flush_early=self._may_flush_early
            )
            for partition, found_here in arrivals.by_partition.items()
        }
        for partition, found_here in arrivals.by_partition.items():
            if not stated.is_drained:
                here, history = originals.by_partition[partition], self._histories[partition]
                positions = found_here.positions_of(originals.offsets[here])
                accounts.is_due[here] = ~history.may_be_held(positions, counts_all=False)
                may_be_held = history.may_be_held(positions, counts_all=originals.is_export)
                self._may_be_held[here] = may_be_held & ~history.is_decided(originals.offsets[here])

    def _check_population(self) -> CheckCounter | None:
        """Check how many subjects were held where the end of the input released records."""
        populations = {partition: history.flushed_population() for partition, history in self._histories.items()}
        known = {partition: population for partition, population in populations.items() if population is not None}
        if self._policy.min_population is None or not known:
            return None
        check = _population(self._policy.min_population)
        for partition, population in known.items():
            check.expect(population >= self._policy.min_population, partition)
        check.worst = min(known.values())
        return check

    def examine(self, index: int) -> None:
        accounts, reasons = self.accounts, self._stated.reasons
        may_be_held = bool(self._may_be_held[index])
        reason = None if reasons is None else reasons.get(index)
        if reason is not None:
            accounts.complete.expect(True, index)
            self._examine_reference(index, reason)
        elif index == len(self._originals) - 1 and not self._originals.is_ended:
            return
        elif self._stated.read_end is not None and index >= self._stated.read_end:
            accounts.complete.expect(False, index)
        elif not self._originals.is_usable(index):
            accounts.complete.expect(reasons is None or may_be_held, index)
        elif reasons is None and self._limits.is_too_large[index]:
            accounts.complete.expect(True, index)
        elif may_be_held:
            accounts.held += 1
            accounts.complete.expect(True, index)
        elif reasons is not None:
            accounts.complete.expect(False, index)
        else:
            self._examine_unreferenced(index)

    def _examine_reference(self, index: int, reason: str) -> None:
        """Examine a referenced record. One that is not usable may be refused for any reason."""
        if not self._originals.is_usable(index):
            return
        if reason == "suppressed":
            was_suppressed = self._was_suppressed(index)
            cause = None if was_suppressed else self._possible_cause(index)
            self.accounts.suppressed.expect(was_suppressed or cause is not None, index)
            if cause is not None:
                self._claim(index, cause)

    def _examine_unreferenced(self, index: int) -> None:
        """Examine a usable record within the limit that is neither released nor held, without a quarantine file."""
        accounts = self.accounts
        may_be_too_large = bool(self._limits.may_be_too_large[index])
        was_suppressed = self._was_suppressed(index)
        cause = None if was_suppressed else self._possible_cause(index)
        is_possible = cause is not None or may_be_too_large
        accounts.suppressible += was_suppressed or is_possible
        accounts.certain += was_suppressed and not may_be_too_large
        if not was_suppressed and (is_possible or self._originals.is_export):
            self._possible.append((index, cause))
        else:
            accounts.complete.expect(was_suppressed, index)

    def settled(self) -> Accounts:
        """Return the accounts, with the records of which the files do not show whether they were suppressed."""
        accounts, stated = self.accounts, self._stated.suppressed
        accounts.population = self._check_population()
        if self._possible:
            self._settle_unreferenced(stated)
        accounts.claimed += self._claims.texts("summary" if self._stated.reasons is None else "quarantine")
        accounts.undecided += self._claims.undecided()
        accounts.early_decisions = self._claims.fewest_moments() if self._claims.names_records else None
        return accounts

    def _settle_unreferenced(self, stated: int | None) -> None:
        """Claim as many records as a complete summary counts beyond those that had to be suppressed."""
        accounts = self.accounts
        if stated is None:
            accounts.undecided[
                "not released although usable, and the files do not show why: give the quarantine file (--quarantine), "
                "or judge a part (--partial)"
            ] += len(self._possible)
            return
        claimed = min(max(stated - accounts.certain, 0), len(self._possible))
        self._claims.names_records = claimed == len(self._possible)
        for number, (index, cause) in enumerate(self._possible):
            accounts.complete.expect(number < claimed, index)
            if number < claimed and cause is not None:
                self._claim(index, cause)

    def _was_suppressed(self, index: int) -> bool:
        if self._limits.exceeds_quota[index]:
            return True
        history = self._histories[self._partition(index)]
        # A record of a topic that is not mentioned may have been admitted: it shows nothing of what was held.
        return history.was_short(self._position(index), counts_all=self._originals.is_export)

    def _possible_cause(self, index: int) -> Cause | None:
        """Return what may have suppressed the record although files do not show it; None if nothing may have."""
        if self._values.can_be_broken(self._held_with(index)):
            return Cause.VALUES
        history, position = self._histories[self._partition(index)], self._position(index)
        if history.may_have_been_short(position, counts_all=True):
            return Cause.EARLY
        if self._arrivals.may_be_in_lost_window[index]:
            return Cause.WHOLE_WINDOW if self._arrivals.is_window_whole[index] else Cause.LOST_WINDOW
        return Cause.EARLY if history.may_have_been_short(position, counts_all=False) else None

    def _held_with(self, index: int) -> Int64Vector:
        """Return the records that may have been held with this one until it expired."""
        found, position = self._arrivals.by_partition[self._partition(index)], self._position(index)
        return found.indices[position : position + self._policy.require_stream().delta + 1]

    def _partition(self, index: int) -> int:
        return int(self._originals.partitions[index])

    def _position(self, index: int) -> int:
        offsets = self._originals.offsets[index : index + 1]
        return int(self._arrivals.by_partition[self._partition(index)].positions_of(offsets)[0])

    def _claim(self, index: int, cause: Cause) -> None:
        partition, position = self._partition(index), self._position(index)
        gap = self._histories[partition].clusters_before(position)
        self._claims.add(cause, partition, gap, position, int(self._originals.subjects[index]))
