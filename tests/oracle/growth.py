"""Rules greedy and awo in plain Python, one simple step after the other; independent of what it is compared with."""

from __future__ import annotations

from oracle.naive import NaiveStream, Record, subjects_of
from oracle.partitions import squared_distance

__all__ = ["NaiveGrowth"]


class NaiveGrowth(NaiveStream):
    """Clusters grow around their mean; ``opportunity_weight`` is 0 for greedy."""

    opportunity_weight = 0.0
    max_candidates = 10**9

    def expire(self, cause: int) -> None:
        oldest = self.buffer[0]
        if self.subjects_held() < self.k:
            self.suppress(cause)
            return
        candidates = self.by_distance(oldest)[1 : 1 + self.max_candidates]
        opportunity_costs = {record["position"]: self.opportunity_cost(record) for record in candidates}
        cluster, centre = [oldest], self.row(oldest)
        while subjects_of(cluster) < self.k and candidates:
            size = len(cluster)
            costs = [
                size / (size + 1.0) * squared_distance(self.row(record), centre) - opportunity_costs[record["position"]]
                for record in candidates
            ]
            chosen = candidates.pop(costs.index(min(costs)))
            cluster.append(chosen)
            centre = [c + (x - c) / (size + 1) for c, x in zip(centre, self.row(chosen), strict=True)]
        if subjects_of(cluster) < self.k:
            super().expire(cause)
            return
        cluster = self.with_old_records(cluster, centre) if len(cluster) == self.k else self.cap(cluster)
        self.release(cluster, cause)

    def opportunity_cost(self, record: Record) -> float:
        """Half the mean squared distance from the k - 1 nearest held records, times the age, times the weight."""
        if not self.opportunity_weight:
            return 0.0
        others = sorted(self.distance(other, record) for other in self.buffer if other is not record)
        nearest = 0.0
        for distance in others[: self.k - 1]:
            nearest += distance
        share = self.opportunity_weight * 0.5 / float((self.k - 1) * self.delta)
        return share * float(self.newest - record["position"]) * nearest

    def row(self, record: Record) -> list[float]:
        return [*record["x"], self.omega_p * float(record["position"] - self.buffer[0]["position"])]

    def with_old_records(self, cluster: list[Record], centre: list[float]) -> list[Record]:
        """Exchange young members for the oldest held records until the next due record finds k records."""
        cluster, oldest = list(cluster), self.buffer[0]
        while True:
            remaining = [record for record in self.buffer if record not in cluster]
            if not remaining or len(remaining) + remaining[0]["position"] - oldest["position"] >= self.k:
                return cluster
            first = remaining[0]
            same = [member for member in cluster if member["subject"] == first["subject"]]
            younger = [member for member in (same or cluster) if member["position"] > first["position"]]
            if not younger:
                return cluster
            squared = [squared_distance(member["x"], centre[:-1]) for member in younger]
            cluster[cluster.index(younger[squared.index(max(squared))])] = first
