"""What a policy asks for beyond k and the cap, judged on the clusters: contributions, and releases of one person."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar

from shoal.audit.check_counter import CheckCounter
from shoal.audit.clusters import RecomputedCluster
from shoal.audit.originals import Originals
from shoal.audit.t_closeness import judge_closeness
from shoal.policy import Attribute, PerSubject, Policy

__all__ = ["judge_options", "not_seen"]

Number = TypeVar("Number", float, Fraction)

PLAIN = 1 + 1e-6
"""By so much more than asked for, floats are sure."""


def judge_options(policy: Policy, originals: Originals, clusters: Sequence[RecomputedCluster]) -> list[CheckCounter]:
    """Judge ``dominance``, ``per_subject`` and ``t``, if the policy sets them.

    Parameters
    ----------
    policy : Policy
        What was promised.
    originals : Originals
        The records that clusters name.
    clusters : sequence of Cluster
        All that were found.
    """
    tallies = []
    if policy.dominance is not None:
        tallies.append(_dominance(policy, policy.dominance, originals, clusters))
    if policy.per_subject is not None:
        tallies.append(_releases(policy.per_subject, originals, clusters))
    if policy.t is not None:
        tallies.append(judge_closeness(policy, policy.t, originals, clusters))
    return tallies


def not_seen(policy: Policy) -> list[str]:
    """Say which options files cannot show."""
    if policy.min_population is None:
        return []
    return [f"whether a clock or the end let anybody go while fewer than {policy.min_population} people were held"]


def _releases(rule: PerSubject, originals: Originals, clusters: Sequence[RecomputedCluster]) -> CheckCounter:
    claim = f"at most {rule.max} records of one subject were released from each window of {rule.window} offsets"
    tally = CheckCounter("releases", claim, "window")
    seen: Counter[tuple[int, int, int]] = Counter()
    for cluster in clusters:
        for index in cluster.members:
            window = int(originals.offsets[index]) // rule.window
            seen[cluster.partition, window, int(originals.subjects[index])] += 1
    for (partition, window, _), count in sorted(seen.items()):
        tally.expect(count <= rule.max, f"{partition}/{window}" if partition else window)
    tally.worst = max(seen.values(), default=None)
    return tally


def _dominance(
    policy: Policy, percent: float, originals: Originals, clusters: Sequence[RecomputedCluster]
) -> CheckCounter:
    tally = CheckCounter(
        "dominance", f"nobody's contribution to a cluster can be worked out within {percent:g} %", "cluster"
    )
    share = Fraction(percent) / 100
    points = [_points(attribute) for attribute in policy.quasi_identifiers]
    for cluster in clusters:
        people = originals.subjects[list(cluster.members)].tolist()
        holds = True
        for column, known in enumerate(points):
            values = originals.values[list(cluster.members), column].tolist()
            for point in known:
                margin, enough = _margin(values, people, point, share)
                holds &= enough
                if margin is not None:
                    tally.worst = margin if tally.worst is None else min(tally.worst, margin)
        tally.expect(holds, cluster.place)
    return tally


def _points(attribute: Attribute) -> tuple[float, ...]:
    """Points everybody knows."""
    low, high = attribute.bounds or (0.0, 0.0)  # bounds are asked for where dominance is
    return (low, high, 0.0) if low < 0 < high else (low, high)


def _margin(values: Sequence[float], people: Sequence[int], point: float, share: Fraction) -> tuple[float | None, bool]:
    """What the others contribute, in percent of the largest contribution, and whether it is enough."""
    rough = _ranked([abs(value - point) for value in values], people, 0.0)
    largest, rest = rough[-1], sum(rough[:-2])
    if not largest:
        return None, True
    if rest >= float(share) * largest * PLAIN:
        return 100 * rest / largest, True
    exact = _ranked([abs(Fraction(value) - Fraction(point)) for value in values], people, Fraction())
    return 100 * rest / largest, sum(exact[:-2], Fraction()) >= share * exact[-1]


def _ranked(amounts: Sequence[Number], people: Sequence[int], zero: Number) -> list[Number]:
    """Contributions of people, the largest last."""
    totals: dict[int, Number] = defaultdict(lambda: zero)
    for amount, person in zip(amounts, people, strict=True):
        totals[person] += amount
    return sorted(totals.values())
