"""What a bound on following a person would cost: clusters that share members, suppression, quotas, a larger k.

An experiment for docs/adr/0029-following-a-person.md. An attacker knows in which clusters a person is, and names one
row of each such that an unchanged value moves least. A person's candidates are the people who are in all of these
clusters, its companions the others among them. The bound: at least K candidates are left.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from papers.common import grid
from part import Part
from reference_data import data_folder, read_rows
from shoal.arrays import Float64Matrix, Float64Vector, Int64Vector
from shoal.kafka.metadata import ENCRYPTED_BYTES
from stream_figures import write_rule

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "deploy" / "demo"))

from fetch import records

__all__ = ["Stream", "following_part", "found_by_chaining", "least_suppressed", "release", "visits"]

K, STEP = 5, 0.4  # STEP: how far an unchanged value moves between two records, in standard deviations of people
SET, GROUP = 8 * (K + 1), 8 + 4  # bytes of a person with its candidates, and with the number of a fixed group
People: TypeAlias = dict[int, frozenset[int]]


class Stream(NamedTuple):
    """Records in order of arrival: quasi-identifiers with a standard deviation of 1, person, one unchanged value."""

    name: str
    values: Float64Matrix
    people: Int64Vector
    unchanged: Float64Vector
    delta: int
    longer: int


def panel() -> Stream:
    """The wages of 545 men in eight years, one record a year, in any order within a year."""
    rows = list(records())
    rows = sorted((rows[i] for i in np.random.default_rng(0).permutation(len(rows))), key=lambda row: row["year"])
    people = np.unique([row["nr"] for row in rows], return_inverse=True)[1]
    values = np.array([[float(row[name]) for name in ("educ", "exper", "hours")] for row in rows])
    return Stream("Wage panel", _scaled(values), people, np.array([float(row["lwage"]) for row in rows]), 200, 600)


def visits(count: int = 1000) -> Stream:
    """People who come ten times, each at random."""
    random = np.random.default_rng(0)
    return _made("Visits at random", random.permutation(np.repeat(np.arange(count), 10)), random, 100, 3 * count)


def wards(beds: int = 100) -> Stream:
    """All who are in bed, in any order, a hundred times; a person stays for 5 to 15 rounds."""
    random = np.random.default_rng(0)
    inside, left, rounds = np.arange(beds), random.integers(1, 11, beds), []
    for _ in range(100):
        rounds.append(random.permutation(inside))
        left -= 1
        gone = np.flatnonzero(left == 0)
        inside[gone], left[gone] = inside.max() + 1 + np.arange(len(gone)), random.integers(5, 16, len(gone))
    return _made("Rounds in wards", np.concatenate(rounds), random, beds, 2 * beds)


def _made(name: str, people: Int64Vector, random: np.random.Generator, delta: int, longer: int) -> Stream:
    """Give each person a record of Adult; age, hours and an unchanged value then change slowly."""
    rows, count = read_rows(data_folder(), "adult"), int(people.max()) + 1
    fields = ("age", "education-num", "hours-per-week")
    now = _scaled(np.array([[float(rows[i][one]) for one in fields] for i in random.permutation(len(rows))[:count]]))
    level, values, unchanged = random.normal(size=count), np.empty((len(people), 3)), np.empty(len(people))
    for place, who in enumerate(people):
        values[place], unchanged[place] = now[who], level[who]
        now[who] += (0.02, 0.0, 0.1 * random.normal())
        level[who] += STEP * random.normal()
    return Stream(name, _scaled(values), people, unchanged, delta, longer)


def _scaled(values: Float64Matrix) -> Float64Matrix:
    return np.asarray((values - values.mean(axis=0)) / values.std(axis=0), np.float64)


def release(stream: Stream, k: int, delta: int, fewest: int, most: int = 0) -> tuple[list[Int64Vector], float]:
    """Cluster by rule `nearest` under a bound; return clusters and mean delay.

    The oldest record is due when delta more have arrived. It is suppressed if its cluster would leave the person fewer
    than ``fewest`` candidates; whom it would harm otherwise is passed over. With ``most``, companions come before
    nearer people, and a cluster takes so many of them, or the first one of a person so many people.
    """
    people, waits, clusters, delays = stream.people, np.ones(len(stream.people), np.bool_), [], []
    candidates: People = {}
    for oldest in range(len(people)):
        if not waits[oldest]:
            continue
        waits[oldest] = False
        held = oldest + np.flatnonzero(waits[oldest : oldest + delta + 1])
        ids, first = np.unique(people[held], return_index=True)
        who, record = int(people[oldest]), dict(zip(ids.tolist(), held[first].tolist(), strict=True))
        record[who] = oldest
        far = ((stream.values[list(record.values())] - stream.values[oldest]) ** 2).sum(axis=1).tolist()
        before = candidates.get(who, frozenset(record)) if most else frozenset()
        rank = {one: (one != who, one not in before, away) for one, away in zip(record, far, strict=True)}
        size = max(k, min(most, len(before & record.keys())))
        members = _members(sorted(record, key=rank.__getitem__), k, size, fewest, candidates)
        candidates |= {one: candidates.get(one, members) & members for one in members}
        cluster = np.array(sorted(record[one] for one in members), np.int64)
        waits[cluster] = False
        clusters += [cluster] if members else []
        delays += (min(oldest + delta, len(people) - 1) - cluster).tolist()
    return clusters, float(np.mean(delays))


def _members(order: Sequence[int], k: int, size: int, fewest: int, candidates: People) -> frozenset[int]:
    """Return the first people of the order that keep enough candidates; nobody if the first of all does not."""
    while len(order) >= k:
        members = frozenset(order[:size])
        harmed = {one for one in members if len(candidates.get(one, members) & members) < fewest}
        if not harmed:
            return members
        order = [] if order[0] in harmed else [one for one in order if one not in harmed]
    return frozenset()


def found_by_chaining(stream: Stream, clusters: Sequence[Int64Vector]) -> tuple[float, float, float]:
    """Let the attacker chain the clusters of each person; return means over people.

    The share of rows found; the same of later rows if the first one is known; 1 over the number of candidates, the
    chance to find the rows of a person whose value never changes and is nobody else's.
    """
    own: dict[int, dict[int, Int64Vector]] = defaultdict(dict)
    for cluster in clusters:
        for who, first in zip(*np.unique(stream.people[cluster], return_index=True), strict=True):
            own[int(who)][int(cluster[first])] = cluster
    found, later, steady = [], [], []
    for who, each in own.items():
        inside = [stream.people[each[place]] for place in sorted(each)]
        values = [stream.unchanged[each[place]] for place in sorted(each)]
        steady.append(1 / len(set.intersection(*(set(one.tolist()) for one in inside))))
        if len(each) == 1:
            found.append((inside[0] == who).mean())
            continue
        found.append(np.mean([one[row] == who for one, row in zip(inside, _smoothest(values), strict=True)]))
        values[0] = values[0][inside[0] == who][:1]
        later.append(np.mean([one[row] == who for one, row in zip(inside[1:], _smoothest(values)[1:], strict=True)]))
    return float(np.mean(found)), float(np.mean(later)) if later else np.nan, float(np.mean(steady))


def _smoothest(values: Sequence[Float64Vector]) -> list[int]:
    """Return one row of each cluster such that the sum of the steps between them is least."""
    cost, former = np.zeros(len(values[0])), []
    for before, after in pairwise(values):
        total = cost[:, None] + np.abs(before[:, None] - after[None, :])
        former.append(total.argmin(axis=0))
        cost = total.min(axis=0)
    path = [int(cost.argmin())]
    for best in reversed(former):
        path.append(int(best[path[-1]]))
    return path[::-1]


def least_suppressed(people: Int64Vector, delta: int, fewest: int) -> float:
    """Return the share of records that no rule can publish, not even one that knows the future.

    The published records of a person need ``fewest`` - 1 others who each have a record within delta of each of them.
    """
    published = 0
    for who in np.unique(people).tolist():
        near, own = Counter[int](), np.flatnonzero(people == who)
        for bit, place in enumerate(own.tolist()):
            near.update(dict.fromkeys(np.unique(people[max(0, place - delta) : place + delta + 1]).tolist(), 1 << bit))
        del near[who]
        covered = np.bincount(list(near.values()), minlength=1 << len(own))
        for bit in range(len(own)):  # of each set of records, how many people have one near each of them
            halves = covered.reshape(-1, 2, 1 << bit)
            halves[:, 0] += halves[:, 1]
        published += max((one.bit_count() for one in np.flatnonzero(covered >= fewest - 1).tolist()), default=0)
    return 1 - published / len(people)


def _by_product(stream: Stream, k: int, rule: str, at_most: int = 100) -> tuple[list[Int64Vector], float]:
    """Cluster by a rule of the product, of each person only the first ``at_most`` records."""
    order = np.argsort(stream.people, kind="stable")
    earlier = np.arange(len(order)) - np.searchsorted(stream.people[order], stream.people[order])
    kept = np.sort(order[earlier < at_most])
    found, _ = write_rule(stream.values[kept], k, stream.delta, rule, people=stream.people[kept])
    clusters = np.split(kept[found.positions], found.cluster_bounds[1:-1])
    return clusters, float((found.newest.repeat(np.diff(found.cluster_bounds)) - found.positions).mean())


def _rows(stream: Stream) -> Iterator[list[str]]:
    more = stream._replace(values=np.column_stack([stream.values, _scaled(stream.unchanged[:, None])]))
    hidden = stream._replace(unchanged=np.random.default_rng(1).random(len(stream.people)))
    for way, seen, (clusters, delay) in (
        (f"k = {K}", stream, _by_product(stream, K, "awo")),
        *((f"k = {k}", stream, _by_product(stream, k, "block")) for k in (10, 20, 50)),
        ("value a quasi-identifier", hidden, _by_product(more, K, "awo")),
        *((f"`per_subject` {n}", stream, _by_product(stream, K, "awo", n)) for n in (1, 2, 4)),
        ("companions first, no bound", stream, release(stream, K, stream.delta, 0, K)),
        (f"suppression, K = {K}", stream, release(stream, K, stream.delta, K)),
        ("companions, K = 2", stream, release(stream, K, stream.delta, 2, K)),
        (f"companions, K = {K}", stream, release(stream, K, stream.delta, K, K)),
        (f"the same, δ = {stream.longer:,}", stream, release(stream, K, stream.longer, K, K)),
        (f"the same, clusters of {2 * K} at first", stream, release(stream, K, stream.longer, K, 2 * K)),
    ):
        errors = np.concatenate([stream.values[one] - stream.values[one].mean(axis=0) for one in clusters])
        figures = (*found_by_chaining(seen, clusters), 1 - len(errors) / len(stream.people), (errors**2).mean())
        yield [way, *(f"{one:.2f}".replace("nan", "-") for one in figures), f"{delay:,.0f}"]


def _made_again(stream: Stream, later: int) -> float:
    """Return the share of the clusters of the second half that a start at a later record makes again."""
    rest = stream._replace(values=stream.values[later:], people=stream.people[later:])
    first = {tuple(one.tolist()) for one in _by_product(stream, K, "awo")[0] if one[0] >= len(stream.people) / 2}
    return len(first & {tuple((one + later).tolist()) for one in _by_product(rest, K, "awo")[0]}) / len(first)


def following_part() -> Part:
    """Measure, and return the lines."""
    lines = [
        "## What a bound on following a person would cost",
        "",
        "For docs/adr/0029-following-a-person.md (`benchmarks/following.py`). Ways with companions or suppression are",
        "not in the product. Found: rows of a person, by an attacker who knows one of them, and if the value never",
        "changes and is nobody else's. Loss: of published records, squared error over the total. In visits and wards",
        f"a value moves by {STEP} standard deviations a record. {ENCRYPTED_BYTES:,} bytes of metadata hold",
        f"{ENCRYPTED_BYTES // SET} people with {K} candidates, or {ENCRYPTED_BYTES // GROUP} with a group's number.",
        "",
    ]
    for stream in (panel(), visits(), wards()):
        least, later = (least_suppressed(stream.people, delta, K) for delta in (stream.delta, stream.longer))
        lines += [
            f"**{stream.name}**: {len(stream.people):,} records of {len(np.unique(stream.people)):,} people,",
            f"δ = {stream.delta}. With K = {K}, every rule suppresses at least {least:.0%} ({later:.0%} at δ =",
            f"{stream.longer:,}). A start 37 records later makes {_made_again(stream, 37):.0%} of clusters again.",
            "",
            *grid(["way", "found", "one known", "never changes", "suppressed", "loss", "delay"], _rows(stream)),
        ]
    return Part(lines, [])


if __name__ == "__main__":
    print("\n".join(following_part().lines))
