"""CASTLE as published, in plain numpy: what Shoal is compared with beside Algorithm 2.

Cao, Carminati, Ferrari, Tan: CASTLE: Continuously Anonymizing Data Streams. IEEE Transactions on Dependable and Secure
Computing 8(3), 2011, doi:10.1109/TDSC.2009.47. Written from the algorithms it describes: clusters are boxes that grow
round the records they take; a record goes into the box that it enlarges least; when the oldest has waited for delta
records its box leaves whole, split if it is twice as large as it need be and merged with its nearest if it is too
small; or the oldest alone takes a box that has left already. Every record is a person of its own here, all values
numbers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from shoal.arrays import Float64Matrix
from stream_figures import Clusters, StreamFigures, figures_of

__all__ = ["CENTROIDS", "MIDPOINTS", "Castle", "Leaving", "castle_figures"]

RECENT = 100
"""mu of the paper: boxes that have left and set the bar for those to come."""
MIDPOINTS, CENTROIDS = "midpoints", "centroids"

Box = NDArray[np.float64]
"""(2, d): lowest and highest value of each attribute."""


def loss(box: Box) -> float:
    """Information loss of a box: its mean width as a share of the domain, which is [0, 1]."""
    return float((box[1] - box[0]).mean())


@dataclass(eq=False, slots=True)
class Group:
    """Records that are held together."""

    members: list[int]
    box: Box


@dataclass(slots=True)
class Leaving:
    """Clusters in the order of leaving, with the box, the mean, and the newest position at that time."""

    members: list[list[int]] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    means: list[NDArray[np.float64]] = field(default_factory=list)
    newest: list[int] = field(default_factory=list)
    suppressed: int = 0


class Castle:
    """The algorithm over a whole stream.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d)
        In [0, 1].
    k, delta, beta : int
        Size of a cluster, largest delay in records, and how many clusters there may be before records must share one.
    seed : int
        For the choices that the paper leaves to chance.

    Notes
    -----
    A record that takes a box which has left already is a cluster of its own in ``left``: with that box, and the mean of
    those who left with it. What the paper suppresses it publishes as the whole domain; here it counts as suppressed.
    Boxes that have left are kept for ever.
    """

    def __init__(self, values: Float64Matrix, k: int, delta: int, beta: int, seed: int = 0) -> None:
        self._values, self._k, self._delta, self._beta = values, k, delta, beta
        self._random = np.random.default_rng(seed)
        self._groups: list[Group] = []
        self._of: dict[int, Group] = {}
        self._reusable: list[tuple[Box, NDArray[np.float64]]] = []
        self._losses: list[float] = []
        self.left = Leaving()

    def run(self) -> Leaving:
        """Let every record in, and at the end let everything go as if records went on to come."""
        count = len(self._values)
        for position in range(count + self._delta):
            if position < count:
                self._take(position)
            due = position - self._delta
            if due in self._of:
                self._release(due, min(position, count - 1))
        return self.left

    # ------------------------------------------------------------ arrival

    def _take(self, position: int) -> None:
        group = self._best(self._values[position])
        if group is None:
            group = Group([], np.repeat(self._values[position][None], 2, axis=0))
            self._groups.append(group)
        group.members.append(position)
        group.box = _with(group.box, self._values[position])
        self._of[position] = group

    def _best(self, value: NDArray[np.float64]) -> Group | None:
        """Return the group that it enlarges least, if that is good enough or there are as many as may be."""
        if not self._groups:
            return None
        boxes = np.array([group.box for group in self._groups])
        grown = (np.maximum(boxes[:, 1], value) - np.minimum(boxes[:, 0], value)).mean(axis=1)
        enlargement = grown - (boxes[:, 1] - boxes[:, 0]).mean(axis=1)
        least = np.flatnonzero(enlargement == enlargement.min())
        good = [one for one in least if grown[one] <= self._bar]
        if not good and len(self._groups) < self._beta:
            return None
        return min((self._groups[one] for one in (good or least)), key=lambda group: len(group.members))

    @property
    def _bar(self) -> float:
        """Tau: mean loss of the boxes that left last."""
        recent = self._losses[-RECENT:]
        return sum(recent) / len(recent) if recent else 0.0

    # ------------------------------------------------------------ departure

    def _release(self, position: int, newest: int) -> None:
        group = self._of[position]
        if len(group.members) >= self._k:
            self._output(group, newest)
            return
        covering = [one for one in self._reusable if _covers(one[0], self._values[position])]
        if covering:
            box, mean = covering[int(self._random.integers(len(covering)))]
            self._forget(group, [position])
            self._write([position], box, mean, newest)
            return
        larger = sum(len(group.members) < len(other.members) for other in self._groups)
        if 2 * larger > len(self._groups) or len(self._of) < self._k:
            self._forget(group, [position])
            self.left.suppressed += 1
            return
        while len(group.members) < self._k:
            self._merge(group)
        self._output(group, newest)

    def _merge(self, group: Group) -> None:
        """Take the group in that enlarges this one least."""
        others = [other for other in self._groups if other is not group]
        costs = [loss(_joined(group.box, other.box)) for other in others]
        chosen = others[int(np.argmin(costs))]
        group.members += chosen.members
        group.box = _joined(group.box, chosen.box)
        self._of.update(dict.fromkeys(chosen.members, group))
        self._groups.remove(chosen)

    def _output(self, group: Group, newest: int) -> None:
        """Let a group go, in parts if it is large; its boxes may serve again if they are better than most."""
        parts = self._split(group.members) if len(group.members) >= 2 * self._k else [group.members]
        self._forget(group, group.members)
        for members in parts:
            inside = self._values[members]
            box, mean = np.array([inside.min(axis=0), inside.max(axis=0)]), inside.mean(axis=0)
            self._write(members, box, mean, newest)
            self._losses.append(loss(box))
            if loss(box) < self._bar:
                self._reusable.append((box, mean))

    def _split(self, members: list[int]) -> list[list[int]]:
        """Split a group: a random record with its k - 1 nearest, repeatedly; each other record joins the nearest."""
        rest, parts = list(members), []
        while len(rest) >= self._k:
            first = rest.pop(int(self._random.integers(len(rest))))
            away = np.abs(self._values[rest] - self._values[first]).mean(axis=1)
            near = np.argsort(away, kind="stable")[: self._k - 1]
            parts.append([first, *(rest[one] for one in near)])
            rest = [one for place, one in enumerate(rest) if place not in set(near.tolist())]
        boxes = [np.array([self._values[part].min(axis=0), self._values[part].max(axis=0)]) for part in parts]
        for one in rest:
            grown = [_with(box, self._values[one]) for box in boxes]
            chosen = int(np.argmin([loss(new) - loss(box) for new, box in zip(grown, boxes, strict=True)]))
            parts[chosen].append(one)
            boxes[chosen] = grown[chosen]
        return parts

    def _forget(self, group: Group, members: list[int]) -> None:
        for member in members:
            del self._of[member]
        group.members = [member for member in group.members if member in self._of]
        if not group.members:
            self._groups.remove(group)

    def _write(self, members: list[int], box: Box, mean: NDArray[np.float64], newest: int) -> None:
        self.left.members.append(sorted(members))
        self.left.boxes.append(box)
        self.left.means.append(mean)
        self.left.newest.append(newest)


def _with(box: Box, value: NDArray[np.float64]) -> Box:
    return np.array([np.minimum(box[0], value), np.maximum(box[1], value)])


def _joined(one: Box, other: Box) -> Box:
    return np.array([np.minimum(one[0], other[0]), np.maximum(one[1], other[1])])


def _covers(box: Box, value: NDArray[np.float64]) -> bool:
    return bool((box[0] <= value).all() and (value <= box[1]).all())


def castle_figures(values: Float64Matrix, k: int, delta: int, beta: int) -> dict[str, StreamFigures]:
    """Measure it, with midpoints of boxes as values as it publishes them, and with the means of its clusters."""
    began = time.process_time()
    left = Castle(values, k, delta, beta).run()
    seconds = time.process_time() - began
    sizes = [len(members) for members in left.members]
    cluster_bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.array(sizes, np.int64))])
    positions, newest = np.concatenate([np.array(one, np.int64) for one in left.members]), np.array(left.newest)
    middles = np.array(left.boxes).mean(axis=1)
    return {
        name: figures_of(values, Clusters(positions, cluster_bounds, published, newest, left.suppressed), seconds)
        for name, published in ((MIDPOINTS, middles), (CENTROIDS, np.array(left.means)))
    }
