"""Checks the privacy options of a policy on the recomputed clusters: ``dominance``, ``per_subject``, l and t."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar

from shoal.audit.clusters import RecomputedCluster
from shoal.audit.confidential import ValueClass, check_values
from shoal.audit.originals import Originals
from shoal.audit.verdict import CheckCounter, counted
from shoal.policy import Attribute, PerSubject, Policy, Scale

__all__ = ["can_break_dominance", "check_options", "unobservable_options"]

Number = TypeVar("Number", float, Fraction)

FLOAT_MARGIN = 1 + 1e-6
"""Sums of float64 that exceed the limit by this factor exceed it exactly, too."""


def check_options(policy: Policy, originals: Originals, clusters: Sequence[RecomputedCluster]) -> list[CheckCounter]:
    """Check the options that the policy sets.

    Returns
    -------
    list of CheckCounter
        ``dominance``, ``releases`` (for ``per_subject``), and those of `check_values`.
    """
    checks = []
    if policy.dominance is not None:
        checks.append(_check_dominance(policy, policy.dominance, originals, clusters))
    if policy.per_subject is not None:
        checks.append(_check_per_subject(policy.per_subject, originals, clusters))
    if policy.protects_values:
        classes = [ValueClass(cluster.label, cluster.unchanged) for cluster in clusters]
        checks += check_values(policy, originals, classes)
    return checks


def unobservable_options(policy: Policy, *, is_end_known: bool) -> list[str]:
    """Return what files cannot show about the options of a policy.

    ``is_end_known``: whether it was checked how many subjects were held at the end of the input.
    """
    if policy.min_population is None or (is_end_known and (policy.stream is None or policy.stream.max_delay_s is None)):
        return []
    causes = "a time limit" if is_end_known else "a time limit or the end of the input"
    return [f"whether {causes} released records while fewer than {policy.min_population} subjects were held"]


def _check_per_subject(option: PerSubject, originals: Originals, clusters: Sequence[RecomputedCluster]) -> CheckCounter:
    claim = (
        f"at most {counted(option.max, 'record')} of one subject {'was' if option.max == 1 else 'were'} released from "
        f"each window of {counted(option.window, 'offset')}"
    )
    check = CheckCounter("releases", claim, "window")
    counts: Counter[tuple[int, int, int]] = Counter()
    for cluster in clusters:
        for index in cluster.members:
            window = int(originals.offsets[index]) // option.window
            counts[cluster.partition, window, int(originals.subjects[index])] += 1
    for (partition, window, _), count in sorted(counts.items()):
        check.expect(count <= option.max, f"{partition}/{window}" if partition else window)
    check.worst = max(counts.values(), default=None)
    return check


def _check_dominance(
    policy: Policy, percent: float, originals: Originals, clusters: Sequence[RecomputedCluster]
) -> CheckCounter:
    """Check the p% rule for each quasi-identifier and each value that a contribution can be measured from.

    Source: Hundepool et al., Statistical Disclosure Control (2012), chapter 4, doi:10.1002/9781118348239.
    """
    check = CheckCounter(
        "dominance", f"no subject's contribution to a cluster can be estimated to within {percent:g} %", "cluster"
    )
    share = Fraction(percent) / 100
    known_points = {
        column: _known_points(attribute)
        for column, attribute in enumerate(policy.quasi_identifiers)
        if attribute.scale is Scale.NUMERIC
    }
    for cluster in clusters:
        subjects = originals.subjects[list(cluster.members)].tolist()
        is_safe = True
        for column, points in known_points.items():
            values = originals.values[list(cluster.members), column].tolist()
            for point in points:
                margin, is_enough = _margin(values, subjects, point, share)
                is_safe &= is_enough
                if margin is not None:
                    check.worst = margin if check.worst is None else min(check.worst, margin)
        check.expect(is_safe, cluster.label)
    return check


def can_break_dominance(policy: Policy, originals: Originals, indices: Sequence[int]) -> bool:
    """Whether some cluster of at least k subjects among these records may violate ``dominance``. Cost: O(n log n).

    In such a cluster the contributions besides the two largest are those of at least k - 2 subjects. Each contributes
    at least its smallest record, and no subject contributes more than all its records.
    """
    if not indices:
        return True
    share, subjects = float(policy.dominance or 0) / 100, originals.subjects[list(indices)].tolist()
    for column, attribute in enumerate(policy.quasi_identifiers):
        if attribute.scale is not Scale.NUMERIC:
            continue
        values = originals.values[list(indices), column].tolist()
        for point in _known_points(attribute):
            amounts = [abs(value - point) for value in values]
            least: dict[int, float] = {}
            for amount, subject in zip(amounts, subjects, strict=True):
                least[subject] = min(amount, least.get(subject, amount))
            largest = _contributions(amounts, subjects, 0.0)[-1]
            if sum(sorted(least.values())[: policy.k - 2]) < share * largest * FLOAT_MARGIN:
                return True
    return False


def _known_points(attribute: Attribute) -> tuple[float, ...]:
    """Return the values from which contributions are measured: both bounds, and zero if it lies between them."""
    low, high = attribute.bounds or (0.0, 0.0)  # a policy with dominance must give bounds
    return (low, high, 0.0) if low < 0 < high else (low, high)


def _margin(
    values: Sequence[float], subjects: Sequence[int], point: float, share: Fraction
) -> tuple[float | None, bool]:
    """Return the remainder in percent of the largest contribution, and whether it is at least the required share.

    The remainder is the sum of all contributions except the two largest. The margin is None if all are zero.
    """
    rough = _contributions([abs(value - point) for value in values], subjects, 0.0)
    largest, remainder = rough[-1], sum(rough[:-2])
    if not largest:
        return None, True
    if remainder >= float(share) * largest * FLOAT_MARGIN:
        return 100 * remainder / largest, True
    exact = _contributions([abs(Fraction(value) - Fraction(point)) for value in values], subjects, Fraction())
    return 100 * remainder / largest, sum(exact[:-2], Fraction()) >= share * exact[-1]


def _contributions(amounts: Sequence[Number], subjects: Sequence[int], zero: Number) -> list[Number]:
    """Return the total of each subject, ascending."""
    totals: dict[int, Number] = defaultdict(lambda: zero)
    for amount, subject in zip(amounts, subjects, strict=True):
        totals[subject] += amount
    return sorted(totals.values())
