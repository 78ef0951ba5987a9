"""Checks the records that were not published: each must be accounted for, and none may have been dropped.

A usable record of a stream may be unpublished for these reasons only:

- it is still held at the end of the original;
- it exceeds ``privacy.per_subject``;
- fewer than k subjects were held when it expired (`held`);
- ``privacy.min_population`` was not reached at the end;
- the service rejected it by its size or by its clock.

A record of a table may be unpublished because of ``privacy.per_subject``, or because its subject would have more than
``max_share`` of the whole table.

Files decide the first four, unless a clock, the size of the offset metadata, an operator, a restart, ``dominance``, or
a promise about confidential values (`value_suppression`) may have decided on the record. Then a suppression that is
possible is a claim (`claims`) of the quarantine file or of the summary: it is counted and reported, and does not change
the outcome. One that is impossible is a fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from shoal.audit.arrivals import AdmissionLimits, BoolVector, StreamArrivals
from shoal.audit.claims import Cause, ClaimedSuppressions
from shoal.audit.clusters import SHARE_TOLERANCE, RecomputedClusters, clusters_by_partition
from shoal.audit.held import PartitionHistory
from shoal.audit.options import can_break_dominance
from shoal.audit.originals import UNUSABLE, Originals
from shoal.audit.value_suppression import BreakableValues
from shoal.audit.verdict import CheckCounter, counted
from shoal.policy import Policy

__all__ = ["Accounts", "StatedAccounts", "check_unpublished", "check_unpublished_rows", "unknown_completeness"]


@dataclass(frozen=True, slots=True)
class StatedAccounts:
    """What the run states about its unpublished records.

    Attributes
    ----------
    reasons : mapping of int to str, or None
        Reason of each referenced original, by its index; None without a quarantine file.
    suppressed : int or None
        Records that a complete summary of a file counts as suppressed; None without one, and for a topic.
    is_drained : bool
        Whether the summary states that nothing was held.
    read_records : int or None
        Records that the summary counts as read, from the first; None if it does not say, or for a topic.
    """

    reasons: Mapping[int, str] | None
    suppressed: int | None
    is_drained: bool
    read_records: int | None = None


@dataclass(slots=True)
class Accounts:
    """The unpublished records, as far as they are accounted for.

    Attributes
    ----------
    complete, suppressed : CheckCounter
        Whether no record is missing, and whether each suppression was necessary or is at least possible.
    held : int
        Records that may still be held.
    suppressible, certain : int
        Unreferenced records that were or may have been suppressed, and those that had to be.
    is_due : ndarray of bool, shape (n,)
        False for the records after which so few arrived for certain that they need not be released.
    claimed, undecided : Counter
        Numbers of records by what only the run states of them, and by what would decide. The texts follow the word
        "records".
    population : CheckCounter or None
        Whether ``privacy.min_population`` subjects were held where the end of the input released records; None if the
        policy does not set it, or the files do not show it.
    early_decisions : int or None
        Fewest decisions before delta that explain the claimed suppressions; None if not all of these are named.
    """

    complete: CheckCounter
    suppressed: CheckCounter
    is_due: BoolVector
    held: int = 0
    suppressible: int = 0
    certain: int = 0
    claimed: Counter[str] = field(default_factory=Counter)
    undecided: Counter[str] = field(default_factory=Counter)
    population: CheckCounter | None = None
    early_decisions: int | None = 0


def check_unpublished(
    policy: Policy,
    originals: Originals,
    limits: AdmissionLimits,
    found: RecomputedClusters,
    arrivals: StreamArrivals,
    stated: StatedAccounts,
) -> Accounts:
    """Check every unpublished record of a stream. Cost: O(n log n), and O(delta) more per suppressed record.

    Parameters
    ----------
    policy : Policy
        Must have a stream section.
    originals : Originals
    limits : AdmissionLimits
    found : RecomputedClusters
    arrivals : StreamArrivals
    stated : StatedAccounts

    Returns
    -------
    Accounts
    """
    accounts = _new_accounts(
        originals, f"only records with which fewer than {policy.k} subjects were held were suppressed"
    )
    examiner = _Examiner(policy, originals, limits, found, arrivals, stated, accounts)
    accounts.population = examiner.check_population()
    is_released = found.is_member()
    accounts.complete.examined += int(np.count_nonzero(is_released))
    for index in np.flatnonzero(~is_released & ~originals.is_dropped).tolist():
        examiner.examine(index)
    examiner.settle()
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
    """Check every unpublished record of a table. Cost: O(n).

    The number of suppressed records of each subject is known, and which of them are suppressed is not checked.

    Parameters
    ----------
    policy : Policy
    originals : Originals
    limits : AdmissionLimits
    found : RecomputedClusters
    reasons : mapping of int to str, or None
        Reason of each referenced original, by its index; None without a quarantine file.
    """
    accounts = _new_accounts(originals, "only records above per_subject or max_share were suppressed")
    exceeds = limits.exceeds_quota
    may_be_suppressed = _suppressed_per_subject(policy, originals, exceeds)
    is_released = found.is_member()
    if policy.min_population is not None and is_released.any():
        subjects = len(np.unique(originals.subjects[(originals.subjects != UNUSABLE) & ~exceeds]))
        accounts.population = _population(policy.min_population)
        accounts.population.expect(subjects >= policy.min_population, 0)
        accounts.population.worst = subjects
    accounts.complete.examined += int(np.count_nonzero(is_released))
    for index in np.flatnonzero(~is_released & ~originals.is_dropped).tolist():
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


def _suppressed_per_subject(policy: Policy, originals: Originals, exceeds: BoolVector) -> Counter[int]:
    """Return how many records of each subject must be suppressed so that none has too large a share of the table.

    If at most c records of every subject remain, c is the largest number that is within ``max_share`` of what remains.
    """
    counts = Counter(originals.subjects[(originals.subjects != UNUSABLE) & ~exceeds].tolist())
    if policy.subject is None or not counts:
        return Counter()
    max_share = Fraction(policy.max_share) + SHARE_TOLERANCE
    most = max(counts.values())
    left = next((c for c in range(most, 1, -1) if c <= max_share * sum(min(count, c) for count in counts.values())), 1)
    return Counter({subject: max(0, count - left) for subject, count in counts.items()})


def _population(fewest: int) -> CheckCounter:
    claim = f"the end of the input released records only where at least {fewest} subjects were held"
    return CheckCounter("population", claim, "partition")


def unknown_completeness() -> CheckCounter:
    """Return the check ``complete`` of a release whose clusters are not known."""
    check = _completeness()
    check.skip("which records were released is not known without evidence")
    return check


def _completeness() -> CheckCounter:
    claim = "every record was released, is referenced, could not be released, or may still be held"
    return CheckCounter("complete", claim, "record")


def _new_accounts(originals: Originals, suppressed: str) -> Accounts:
    return Accounts(
        _completeness(),
        CheckCounter("suppressed", suppressed, "record"),
        np.ones(len(originals), np.bool_),
    )


class _Examiner:
    """Examines the records one by one and counts the results."""

    def __init__(
        self,
        policy: Policy,
        originals: Originals,
        limits: AdmissionLimits,
        found: RecomputedClusters,
        arrivals: StreamArrivals,
        stated: StatedAccounts,
        accounts: Accounts,
    ) -> None:
        self._policy, self._originals, self._accounts, self._stated = policy, originals, accounts, stated
        self._limits, self._arrivals = limits, arrivals
        self._partitions = originals.partitions.tolist()
        self._positions = np.zeros(len(originals), np.int64)
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
            here = originals.by_partition[partition]
            self._positions[here] = found_here.positions_of(originals.offsets[here])
            if not stated.is_drained:
                history, positions = self._histories[partition], self._positions[here]
                accounts.is_due[here] = ~history.may_be_held(positions, counts_all=False)
                may_be_held = history.may_be_held(positions, counts_all=originals.is_export)
                self._may_be_held[here] = may_be_held & ~history.is_decided(originals.offsets[here])

    def check_population(self) -> CheckCounter | None:
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
        """Examine one record that was not released."""
        accounts, reasons = self._accounts, self._stated.reasons
        may_be_held = bool(self._may_be_held[index])
        reason = None if reasons is None else reasons.get(index)
        if reason is not None:
            accounts.complete.expect(True, index)
            self._examine_reference(index, reason)
        elif index == len(self._originals) - 1 and not self._originals.is_ended:
            return
        elif self._stated.read_records is not None and index >= self._stated.read_records:
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
            self._accounts.suppressed.expect(was_suppressed or cause is not None, index)
            if cause is not None:
                self._claim(index, cause)

    def _examine_unreferenced(self, index: int) -> None:
        """Examine a usable record within the limit that is neither released nor held, without a quarantine file."""
        accounts = self._accounts
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

    def settle(self) -> None:
        """Account for the records of which the files do not show whether they were suppressed.

        A complete summary of a file claims as many of them as it counts beyond those that had to be suppressed. The
        others are missing.
        """
        accounts, stated = self._accounts, self._stated.suppressed
        if self._possible:
            self._settle_unreferenced(stated)
        accounts.claimed += self._claims.texts("summary" if self._stated.reasons is None else "quarantine")
        accounts.undecided += self._claims.undecided()
        accounts.early_decisions = self._claims.fewest_moments() if self._claims.names_records else None

    def _settle_unreferenced(self, stated: int | None) -> None:
        accounts = self._accounts
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
        """Whether the record had to be suppressed."""
        if self._limits.exceeds_quota[index]:
            return True
        history = self._histories[self._partitions[index]]
        # A record of a topic that is not mentioned may have been admitted: it shows nothing of what was held.
        return history.was_short(int(self._positions[index]), counts_all=self._originals.is_export)

    def _possible_cause(self, index: int) -> Cause | None:
        """Return what may have suppressed the record although files do not show it; None if nothing may have."""
        if self._policy.dominance is not None and can_break_dominance(
            self._policy, self._originals, self._held_with(index)
        ):
            return Cause.DOMINANCE
        if self._values.can_be_broken(self._held_with(index)):
            return Cause.VALUES
        history, position = self._histories[self._partitions[index]], int(self._positions[index])
        if history.may_have_been_short(position, counts_all=True):
            return Cause.EARLY
        if self._arrivals.may_be_in_lost_window[index]:
            return Cause.WHOLE_WINDOW if self._arrivals.is_window_whole[index] else Cause.LOST_WINDOW
        return Cause.EARLY if history.may_have_been_short(position, counts_all=False) else None

    def _held_with(self, index: int) -> list[int]:
        """Return the records that may have been held with this one until it expired."""
        found, position = self._arrivals.by_partition[self._partitions[index]], int(self._positions[index])
        held: list[int] = found.indices[position : position + self._policy.require_stream().delta + 1].tolist()
        return held

    def _claim(self, index: int, cause: Cause) -> None:
        partition, position = self._partitions[index], int(self._positions[index])
        gap = self._histories[partition].clusters_before(position)
        self._claims.add(cause, partition, gap, position, int(self._originals.subjects[index]))
