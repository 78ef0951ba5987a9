"""Checks what the policy promises of confidential values: ``l``, ``max_value_share`` and ``t``, cluster by cluster.

Values are counted as records, by their keys (`value_keys`). All three promises are closed under merging: if clusters
keep them, so does their union. So rows that are equal on all quasi-identifiers must keep them even where it is not
known into how many clusters they belong.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from shoal.audit.originals import Originals
from shoal.audit.protected_values import AuditedColumn, distance_from, reference_shares
from shoal.audit.value_counts import effective_values, is_recursive_diverse, largest_share, recursive_ratio
from shoal.audit.verdict import CheckCounter
from shoal.policy import Attribute, Diversity, Policy

__all__ = ["ValueClass", "check_values", "class_distances"]

TOLERANCE = 1e-9
"""Rounding error of a distance or an entropy computed in float64."""
SHARE_TOLERANCE = Fraction(2, 10**9)
"""In records: the limit may be a rounded number, such as 0.333333333333, and the engine allows half of this."""


@dataclass(frozen=True, slots=True)
class ValueClass:
    """Records that a reader of the release cannot tell apart.

    Attributes
    ----------
    label : int or str
        How checks name it.
    unchanged : sequence of str
        Texts of the unchanged fields of its records; at least one record.
    """

    label: int | str
    unchanged: Sequence[str]


def check_values(
    policy: Policy, originals: Originals, classes: Sequence[ValueClass], *, unit: str = "cluster"
) -> list[CheckCounter]:
    """Check the promises that the policy makes.

    Returns
    -------
    list of CheckCounter
        ``diversity`` (for ``l``), ``value_share`` and ``closeness`` (for ``t``). Each cluster is one case, whatever the
        number of protected attributes. The worst value is the fewest values, the fewest effective ones (entropy) or
        the largest ratio (recursive); the largest share; the largest distance.

    Notes
    -----
    Cost: O(n log n) for each protected attribute.
    """
    checks: list[CheckCounter] = []
    columns = [AuditedColumn(policy, attribute, originals.released) for attribute in policy.protected]
    counts = [[column.counts(one.unchanged) for column in columns] for one in classes]
    if policy.diversity is not None:
        checks.append(_check_diversity(policy, policy.diversity, classes, counts, unit))
    if policy.max_value_share is not None:
        checks.append(_check_value_share(policy, policy.max_value_share, classes, counts, unit))
    if policy.t is not None:
        checks.append(_check_closeness(policy, policy.t, originals, columns, classes, counts, unit))
    return checks


def _names(policy: Policy) -> str:
    return ", ".join(attribute.name for attribute in policy.protected)


def _check_diversity(
    policy: Policy,
    rule: Diversity,
    classes: Sequence[ValueClass],
    counts: Sequence[Sequence[Counter[str]]],
    unit: str,
) -> CheckCounter:
    check = CheckCounter("diversity", _diversity_claim(policy, rule), unit)
    measure, is_diverse, worst = _diversity(rule)
    for one, columns in zip(classes, counts, strict=True):
        check.expect(all(is_diverse(list(column.values())) for column in columns), one.label)
        found = worst(measure(list(column.values())) for column in columns)
        check.worst = found if check.worst is None else worst((check.worst, found))
    if check.worst is not None and math.isinf(check.worst):
        check.worst, check.note = None, "a cluster has fewer than l different values"
    return check


def _diversity(
    rule: Diversity,
) -> tuple[Callable[[list[int]], float], Callable[[list[int]], bool], Callable[[Iterable[float]], float]]:
    """Return the measure of a kind of l-diversity, whether counts are diverse, and which measure is the worst."""
    if rule.kind == "entropy":
        return effective_values, lambda counts: math.log(effective_values(counts)) >= math.log(rule.l) - TOLERANCE, min
    least = int(rule.l)
    if rule.kind == "recursive":
        c = float(rule.c or 0)
        return (
            lambda counts: recursive_ratio(counts, least),
            lambda counts: is_recursive_diverse(counts, c, least),
            max,
        )
    return len, lambda counts: len(counts) >= least, min


def _diversity_claim(policy: Policy, rule: Diversity) -> str:
    names = _names(policy)
    if rule.kind == "entropy":
        return (
            f"every cluster is entropy {rule.l:g}-diverse in {names}: its values have at least the entropy of "
            f"{rule.l:g} equally frequent ones"
        )
    if rule.kind == "recursive":
        rank = _ordinal(int(rule.l))
        return (
            f"every cluster is recursively ({rule.c:g}, {rule.l:g})-diverse in {names}: its most frequent value occurs "
            f"less than {rule.c:g} times as often as the {rank} most frequent and all rarer ones together"
        )
    p_sensitive = (
        f"; with k = {policy.k} also called p-sensitive k-anonymity, p = {rule.l:g}" if rule.l <= policy.k else ""
    )
    return f"every cluster has at least {rule.l:g} different values of {names} (distinct l-diversity{p_sensitive})"


def _ordinal(number: int) -> str:
    suffix = "th" if number % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def _check_value_share(
    policy: Policy,
    limit: float,
    classes: Sequence[ValueClass],
    counts: Sequence[Sequence[Counter[str]]],
    unit: str,
) -> CheckCounter:
    claim = f"no value of {_names(policy)} has more than {limit:g} of the records of a cluster"
    check = CheckCounter("value_share", claim, unit)
    most = Fraction(repr(limit))
    for one, columns in zip(classes, counts, strict=True):
        size = len(one.unchanged)
        largest = max(largest_share(list(column.values())) for column in columns)
        check.expect(largest * size <= most * size + SHARE_TOLERANCE, one.label)
        check.worst = max(check.worst or 0.0, float(largest))
    return check


def _check_closeness(
    policy: Policy,
    t: float,
    originals: Originals,
    columns: Sequence[AuditedColumn],
    classes: Sequence[ValueClass],
    counts: Sequence[Sequence[Counter[str]]],
    unit: str,
) -> CheckCounter:
    check = CheckCounter("closeness", _closeness_claim(policy, t), unit)
    farthest = [0.0] * len(classes)
    for place, column in enumerate(columns):
        found = class_distances(originals, column, [own[place] for own in counts])
        farthest = list(map(max, farthest, found))
    for one, distance in zip(classes, farthest, strict=True):
        check.expect(distance <= t + TOLERANCE, one.label)
    check.worst = max(farthest, default=None)
    return check


def _closeness_claim(policy: Policy, t: float) -> str:
    if any(attribute.reference is not None for attribute in policy.protected):
        kinds = {attribute.name: _distance_name(attribute) for attribute in policy.protected}
        named = ", ".join(f"{name} ({kind} distance)" for name, kind in kinds.items())
        return f"no cluster is farther than {t:g} from the reference of the policy in {named}"
    return f"no confidential attribute of a cluster is farther than {t:g} from the table"


def _distance_name(attribute: Attribute) -> str:
    return attribute.distance or "ordered or equal"


def class_distances(originals: Originals, column: AuditedColumn, counts: Sequence[Counter[str]]) -> list[float]:
    """Return the distance of each class from the reference of the policy; without one, from all classes together."""
    attribute = column.attribute
    shares = reference_shares(attribute, column.key_of_text)
    if shares is None:
        totals = Counter[str]()
        for own in counts:
            totals.update(own)
        shares = {key: float(count) for key, count in totals.items()}
    distance = distance_from(attribute, shares, column.key_of_text, is_ordered=column.is_ordered(originals))
    return [distance(own) for own in counts]
