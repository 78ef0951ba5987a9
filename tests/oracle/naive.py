"""The method in plain Python, one obvious step after the other; imports nothing of what it judges.

Records are dictionaries in a list, oldest first. Distances are summed in the same order as in the paper's formula
written out: position first, then attribute by attribute, so that ties are ties here and there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

Record: TypeAlias = dict[str, Any]
Entry: TypeAlias = tuple[str, tuple[int, ...], int, int]
"""What was decided ("cluster" or "suppressed"), the positions, the cause, the newest position at that moment."""

FLUSHED = -1
BY_POSITION = 0


@dataclass
class NaiveDecisions:
    """Clusters and suppressions in the order in which they were decided."""

    log: list[Entry] = field(default_factory=list)

    @property
    def clusters(self) -> list[tuple[int, ...]]:
        return [members for kind, members, _, _ in self.log if kind == "cluster"]

    @property
    def suppressed(self) -> list[int]:
        return [members[0] for kind, members, _, _ in self.log if kind == "suppressed"]


@dataclass(frozen=True)
class NaiveDominance:
    """The p %-rule: share is p / 100; for each amount of a record, points to count from, and (point, step of grid)."""

    share: float
    points: list[list[tuple[float, float]]]

    def stands_out(self, cluster: list[Record], met: list[object]) -> object | None:
        """Return who stands out in a cluster, of several equally large ones who was met last; None if nobody does."""
        for number, points in enumerate(self.points):
            for point, half_step in points:
                totals = dict.fromkeys(met, 0.0)
                for record in cluster:
                    totals[record["subject"]] += abs(record["amounts"][number] - point)
                ranked = sorted(met, key=lambda subject: (totals[subject], met.index(subject)))
                rest = sum(totals[subject] for subject in ranked[:-2])
                largest = totals[ranked[-1]]
                in_doubt = 1 + 1e-9
                is_blurred = sum(totals.values()) * in_doubt < half_step * len(cluster)
                if largest > 0 and rest < self.share * largest * in_doubt and not is_blurred:
                    return ranked[-1]
        return None


class NaiveStream:
    """Delta-delay stream microaggregation by the nearest rule."""

    def __init__(
        self,
        k: int,
        delta: int,
        omega_p: float = 0.0,
        max_share: float = 0.5,
        reach: Sequence[int] = (),
        population: int = 0,
        dominance: NaiveDominance | None = None,
    ) -> None:
        self.population = population
        self.dominance = dominance
        self.k = k
        self.delta = delta
        self.omega_p = omega_p
        self.max_share = max_share
        self.reach = list(reach)
        self.buffer: list[Record] = []
        self.newest = -1
        self.decisions = NaiveDecisions()

    def push(
        self,
        x: Sequence[float],
        subject: object,
        position: int,
        marks: Iterable[int] = (),
        amounts: Sequence[float] = (),
    ) -> None:
        now = {"x": list(x), "subject": subject, "position": position, "marks": list(marks), "amounts": list(amounts)}
        self.buffer.append(now)
        self.newest = position
        while self.buffer and (cause := self.why_due(self.buffer[0], now)) is not None:
            self.expire(cause)

    def flush(self) -> None:
        if self.subjects_held() < self.population:
            while self.buffer:
                self.suppress(FLUSHED)
        while self.buffer:
            if self.k <= self.subjects_held() < 2 * self.k and self.dominance is not None:
                self.expire_balanced(FLUSHED, len(self.buffer) + 1)
            elif self.k <= self.subjects_held() < 2 * self.k:
                self.release(self.cap(self.by_distance(self.buffer[0])), FLUSHED)
            else:
                self.expire(FLUSHED)

    def why_due(self, oldest: Record, now: Record) -> int | None:
        if now["position"] - oldest["position"] >= self.delta:
            return BY_POSITION
        for column, reach in enumerate(self.reach):
            if column == 0 and self.subjects_held() < self.population:
                continue
            if now["marks"][column] - oldest["marks"][column] > reach:
                return column + 1
        return None

    def expire(self, cause: int) -> None:
        oldest = self.buffer[0]
        if self.dominance is not None:
            self.expire_balanced(cause, self.k)
            return
        if self.subjects_held() < self.k:
            self.suppress(cause)
            return
        cluster: list[Record] = []
        for record in self.by_distance(oldest):
            cluster.append(record)
            if len({member["subject"] for member in cluster}) == self.k:
                break
        self.release(self.cap(cluster), cause)

    def suppress(self, cause: int) -> None:
        oldest = self.buffer.pop(0)
        self.decisions.log.append(("suppressed", (oldest["position"],), cause, self.newest))

    def expire_balanced(self, cause: int, wanted: int) -> None:
        """As `expire`, but whoever stands out is handed back, and more records are taken until nobody does."""
        waiting = self.by_distance(self.buffer[0])
        cluster: list[Record] = []
        met: list[object] = []
        patience = 4 * self.k
        while True:
            record = waiting.pop(0)
            cluster.append(record)
            if record["subject"] not in met:
                met.append(record["subject"])
            is_last = not waiting or patience == 0
            fits = False
            if subjects_of(cluster) >= wanted or is_last:
                patience -= 1
                cluster, fits = self.balance(cluster, met)
            if is_last or (fits and subjects_of(cluster) >= wanted):
                break
        if fits and (subjects_of(cluster) >= wanted or not waiting):
            self.release(cluster, cause)
        else:
            self.suppress(cause)

    def balance(self, cluster: list[Record], met: list[object]) -> tuple[list[Record], bool]:
        assert self.dominance is not None
        while subjects_of(cluster) >= self.k:
            cluster = self.cap(cluster)
            person = self.dominance.stands_out(cluster, met)
            if person is None:
                return cluster, True
            farthest = max(place for place, member in enumerate(cluster) if member["subject"] == person)
            if farthest == 0:
                break
            cluster = [member for place, member in enumerate(cluster) if place != farthest]
        return cluster, False

    def cap(self, cluster: list[Record]) -> list[Record]:
        """Hand back the farthest record of a subject above its share, one by one; ``cluster`` is by distance."""
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
        self.decisions.log.append(("cluster", members, cause, self.newest))

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
    """Read the decisions of several calls of an engine as one log like the naive stream's own."""
    log: list[Entry] = []
    for decided in calls:
        told = zip(
            decided.suppressed.tolist(),
            decided.suppressed_causes.tolist(),
            decided.suppressed_newest.tolist(),
            decided.suppressed_before.tolist(),
            strict=True,
        )
        alone = [(before, ("suppressed", (position,), cause, newest)) for position, cause, newest, before in told]
        offsets = decided.offsets.tolist()
        for cluster, (start, end) in enumerate(pairwise(offsets)):
            log += [entry for before, entry in alone if before == cluster]
            members = tuple(decided.positions[start:end].tolist())
            log.append(("cluster", members, int(decided.causes[cluster]), int(decided.newest[cluster])))
        log += [entry for before, entry in alone if before == len(offsets) - 1]
    return log
