"""Rules greedy and awo in plain Python, one obvious step after the other; imports nothing of what it judges."""

from __future__ import annotations

from oracle.naive import NaiveStream, Record, subjects_of

__all__ = ["NaiveGrowth"]


class NaiveGrowth(NaiveStream):
    """Clusters grow round their mean. ``pressure`` is lambda (0: greedy), ``offered`` how many may join."""

    pressure = 0.0
    offered = 10**9

    def expire(self, cause: int) -> None:
        oldest = self.buffer[0]
        if self.subjects_held() < self.k:
            self.suppress(cause)
            return
        offer = self.by_distance(oldest)[1 : 1 + self.offered]
        prices = {record["position"]: self.price(record) for record in offer}
        cluster, centre = [oldest], self.row(oldest)
        while subjects_of(cluster) < self.k and offer:
            size = len(cluster)
            costs = [
                size / (size + 1.0) * square(self.row(record), centre) - prices[record["position"]] for record in offer
            ]
            chosen = offer.pop(costs.index(min(costs)))
            cluster.append(chosen)
            centre = [c + (x - c) / (size + 1) for c, x in zip(centre, self.row(chosen), strict=True)]
        if subjects_of(cluster) < self.k:
            super().expire(cause)
            return
        cluster = self.guarded(cluster, centre) if len(cluster) == self.k else self.cap(cluster)
        self.release(cluster, cause)

    def price(self, record: Record) -> float:
        """Half its mean squared distance to the k - 1 nearest that are held, by age, times lambda."""
        if not self.pressure:
            return 0.0
        others = sorted(self.distance(other, record) for other in self.buffer if other is not record)
        nearest = 0.0
        for distance in others[: self.k - 1]:
            nearest += distance
        share = self.pressure * 0.5 / float((self.k - 1) * self.delta)
        return share * float(self.newest - record["position"]) * nearest

    def row(self, record: Record) -> list[float]:
        return [*record["x"], self.omega_p * float(record["position"] - self.buffer[0]["position"])]

    def guarded(self, cluster: list[Record], centre: list[float]) -> list[Record]:
        """Take the oldest left behind along, while fewer than k would be there when it expires."""
        cluster, oldest = list(cluster), self.buffer[0]
        while True:
            left = [record for record in self.buffer if record not in cluster]
            if not left or len(left) + left[0]["position"] - oldest["position"] >= self.k:
                return cluster
            first = left[0]
            same = [member for member in cluster if member["subject"] == first["subject"]]
            younger = [member for member in (same or cluster) if member["position"] > first["position"]]
            if not younger:
                return cluster
            away = [square(member["x"], centre[:-1]) for member in younger]
            cluster[cluster.index(younger[away.index(max(away))])] = first


def square(one: list[float], other: list[float]) -> float:
    total = 0.0
    for x, y in zip(one, other, strict=True):
        total += (x - y) * (x - y)
    return total
