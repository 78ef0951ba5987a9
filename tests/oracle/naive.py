"""Rule nearest in plain Python, one simple step after the other; it imports nothing of what it is compared with.

Records are dictionaries in a list, oldest first. Distances are summed in the order of the kernels, the position first,
then attribute by attribute, so that both resolve ties alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

Record: TypeAlias = dict[str, Any]
Entry: TypeAlias = tuple[str, tuple[int, ...], int, int]
"""The kind of decision ("cluster" or "suppressed"), positions, cause, and newest position at the decision."""

FLUSHED = -1
BY_POSITION = 0


class NaiveStream:
    """Delta-delay stream microaggregation by the nearest rule."""

    def __init__(
        self,
        k: int,
        delta: int,
        omega_p: float = 0.0,
        max_share: float = 0.5,
        expiry_limits: Sequence[int] = (),
        population: int = 0,
    ) -> None:
        self.k, self.delta, self.omega_p, self.max_share = k, delta, omega_p, max_share
        self.expiry_limits, self.population = list(expiry_limits), population
        self.buffer: list[Record] = []
        self.newest = -1
        self.log: list[Entry] = []

    def push(
        self,
        x: Sequence[float],
        subject: object,
        position: int,
        expiry_keys: Iterable[int] = (),
        values: Sequence[float] = (),
    ) -> None:
        now: Record = {"x": list(x), "subject": subject, "position": position}
        now |= {"expiry_keys": list(expiry_keys), "values": list(values)}
        self.buffer.append(now)
        self.newest = position
        while self.buffer and (cause := self.cause_of(self.buffer[0], now)) is not None:
            self.expire(cause)

    def flush(self) -> None:
        if self.subjects_held() < self.population:
            while self.buffer:
                self.suppress(FLUSHED)
        while self.buffer:
            if self.k <= self.subjects_held() < 2 * self.k:
                self.release(self.cap(self.by_distance(self.buffer[0])), FLUSHED)
            else:
                self.expire(FLUSHED)

    def cause_of(self, oldest: Record, now: Record) -> int | None:
        if now["position"] - oldest["position"] >= self.delta:
            return BY_POSITION
        for column, limit in enumerate(self.expiry_limits):
            if column == 0 and self.subjects_held() < self.population:
                continue
            if now["expiry_keys"][column] - oldest["expiry_keys"][column] > limit:
                return column + 1
        return None

    def expire(self, cause: int) -> None:
        if self.subjects_held() < self.k:
            self.suppress(cause)
        else:
            self.release(self.nearest(), cause)

    def nearest(self) -> list[Record]:
        """The oldest record and as few of its nearest as have k subjects, none above its share."""
        cluster: list[Record] = []
        for record in self.by_distance(self.buffer[0]):
            cluster.append(record)
            if subjects_of(cluster) == self.k:
                break
        return self.cap(cluster)

    def suppress(self, cause: int) -> None:
        oldest = self.buffer.pop(0)
        self.log.append(("suppressed", (oldest["position"],), cause, self.newest))

    def cap(self, cluster: list[Record]) -> list[Record]:
        """Remove the farthest record of a subject above its share, one by one; ``cluster`` is sorted by distance."""
        cluster = list(cluster)
        while True:
            records_of = Counter(member["subject"] for member in cluster)
            allowed = self.max_share * len(cluster) + 1e-9
            surplus = [member for member in cluster[1:] if records_of[member["subject"]] > allowed]
            if not surplus:
                return cluster
            cluster.remove(surplus[-1])

    def release(self, cluster: list[Record], cause: int) -> None:
        for member in cluster:
            self.buffer.remove(member)
        members = tuple(sorted(member["position"] for member in cluster))
        self.log.append(("cluster", members, cause, self.newest))

    def by_distance(self, s: Record) -> list[Record]:
        others = [record for record in self.buffer if record is not s]
        return [s, *sorted(others, key=lambda record: (self.distance(record, s), record["position"]))]

    def distance(self, x: Record, s: Record) -> float:
        step = self.omega_p * float(x["position"] - s["position"])
        total = step * step
        for one, other in zip(x["x"], s["x"], strict=True):
            total += (one - other) * (one - other)
        return total

    def subjects_held(self) -> int:
        return len({record["subject"] for record in self.buffer})


def subjects_of(cluster: list[Record]) -> int:
    return len({member["subject"] for member in cluster})


def log_of(calls: Iterable[Any]) -> list[Entry]:
    """Return the decisions of several calls as one log, in the form of the naive stream's log."""
    log: list[Entry] = []
    for decided in calls:
        suppressed = zip(
            decided.suppressed.tolist(),
            decided.suppressed_causes.tolist(),
            decided.suppressed_newest.tolist(),
            decided.suppressed_before.tolist(),
            strict=True,
        )
        suppressions = [
            (before, ("suppressed", (position,), cause, newest)) for position, cause, newest, before in suppressed
        ]
        bounds = decided.cluster_bounds.tolist()
        for cluster, (start, end) in enumerate(pairwise(bounds)):
            log += [entry for before, entry in suppressions if before == cluster]
            members = tuple(decided.positions[start:end].tolist())
            log.append(("cluster", members, int(decided.causes[cluster]), int(decided.newest[cluster])))
        log += [entry for before, entry in suppressions if before == len(bounds) - 1]
    return log
