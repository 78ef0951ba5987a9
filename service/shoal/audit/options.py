"""What a policy asks for beyond k and the cap, judged on the clusters: contributions, and releases of one person."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TypeVar

from shoal.audit.arithmetic import Grid
from shoal.audit.clusters import Cluster
from shoal.audit.originals import Originals
from shoal.audit.tally import Tally
from shoal.policy import Attribute, PerSubject, Policy

__all__ = ["judge_options", "not_seen"]

Number = TypeVar("Number", float, Fraction)

PLAIN = 1 + 1e-6
"""By so much more than asked for, floats are sure."""


def judge_options(
    policy: Policy, originals: Originals, clusters: Sequence[Cluster], grids: Sequence[Grid], *, table: bool
) -> list[Tally]:
    """Judge ``dominance`` and ``per_subject``, if the policy sets them.

    Parameters
    ----------
    policy : Policy
        What was promised.
    originals : Originals
        The records that clusters name.
    clusters : sequence of Cluster
        All that were found.
    grids : sequence of Grid
        One per quasi-identifier.
    table : bool
        Whether the defaults of tables hold.
    """
    tallies = []
    if policy.dominance is not None:
        tallies.append(_dominance(policy, policy.dominance, originals, clusters, grids, table=table))
    if policy.per_subject is not None:
        tallies.append(_releases(policy.per_subject, originals, clusters))
    return tallies


def not_seen(policy: Policy) -> list[str]:
    """Say which options files cannot show."""
    if policy.min_population is None:
        return []
    return [f"whether a clock or the end let anybody go while fewer than {policy.min_population} people were held"]


def _releases(rule: PerSubject, originals: Originals, clusters: Sequence[Cluster]) -> Tally:
    claim = f"at most {rule.max} records of one subject were released from each window of {rule.window} offsets"
    tally = Tally("releases", claim, "window")
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
    policy: Policy,
    percent: float,
    originals: Originals,
    clusters: Sequence[Cluster],
    grids: Sequence[Grid],
    *,
    table: bool,
) -> Tally:
    tally = Tally("dominance", f"nobody's contribution to a cluster can be worked out within {percent:g} %", "cluster")
    share = Fraction(percent) / 100
    points = [
        list(_points(attribute, grid, table=table))
        for attribute, grid in zip(policy.quasi_identifiers, grids, strict=True)
    ]
    for cluster in clusters:
        people = originals.subjects[list(cluster.members)].tolist()
        told = cluster.quasi.split("\x00")
        holds = True
        for column, known in enumerate(points):
            values = originals.values[list(cluster.members), column].tolist()
            for point, published in known:
                if told[column] == published:
                    continue
                margin, enough = _margin(values, people, point, share)
                holds &= enough
                if margin is not None:
                    tally.worst = margin if tally.worst is None else min(tally.worst, margin)
        tally.expect(holds, cluster.place)
    return tally


def _points(attribute: Attribute, grid: Grid, *, table: bool) -> Iterator[tuple[float, str | None]]:
    """Points everybody knows, each with its published text if it is on the grid."""
    low, high = attribute.bounds or (0.0, 0.0)  # bounds are asked for where dominance is
    step = attribute.grid(table=table)
    for point in (low, high, 0.0) if low < 0 < high else (low, high):
        is_on_grid = step != 0 and Decimal(repr(point)) % step == 0
        yield point, grid.mean([point]) if is_on_grid else None


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
