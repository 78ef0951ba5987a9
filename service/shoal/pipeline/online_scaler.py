"""How large a stream's attributes are, learned from what was published of them: a range for each without bounds.

Nothing but published means is looked at, so that what is committed tells nothing that was not told already. A range is
three times the mean distance between the means of clusters that were decided one after the other, which for values that
are spread evenly is their range. No distance counts for more than three: one extreme is one among many. Only sums,
products and quotients are used, which every machine rounds alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector
from shoal.policy import Attribute

__all__ = ["OnlineScaler", "ScalerState", "first_width", "learned"]

FARTHEST = 3.0
"""No distance counts for more than so many mean ones."""
PER_DISTANCE = 3.0
"""Width of a range over the mean distance of two of its points, if these are spread evenly."""
GAIN, EAGER_GAIN, EAGER = 0.05, 0.5, 16
"""What one distance counts in the mean of all: in the long run; at first; and ``EAGER / n`` for the nth in between."""
LARGEST_CHANGE = 2.0
"""What the widths in force change by at most from one epoch to the next, once `KNOWN` clusters have been seen."""
KNOWN = 64
SHORTEST_EPOCH = 128
STEPS = 200.0
"""Before anything is published, a width is so many steps of the published grid; 1 where there is no grid."""
NARROWEST, WIDEST = 1e-12, 2.0**54


@dataclass(frozen=True, slots=True)
class ScalerState:
    """What is known after some clusters: all that is needed to go on.

    Attributes
    ----------
    epoch : int
        In which the widths in force were set; -1 before the first.
    seen : int
        Clusters that were looked at.
    last, distances, widths : ndarray of float64, shape (L,)
        Of the learned attributes: the last published mean, the mean distance, and the width in force; original units.
    """

    epoch: int
    seen: int
    last: Float64Vector
    distances: Float64Vector
    widths: Float64Vector


def learned(attributes: tuple[Attribute, ...]) -> list[int]:
    """Return which of a stream's quasi-identifiers have no bounds."""
    return [index for index, attribute in enumerate(attributes) if attribute.bounds is None]


def first_width(attribute: Attribute) -> float:
    """Width of a range before anything is published, from the policy alone."""
    return STEPS * float(attribute.publication_step()) or 1.0


class OnlineScaler:
    """Widths of ranges, in force for an epoch each: so many offsets of the partition, cut as windows are.

    Parameters
    ----------
    attributes : tuple of Attribute
        The quasi-identifiers; those without bounds are learned.
    delta : int
        An epoch is not shorter than this.
    state : RangesState, optional
        As committed; left out: nothing is published yet.

    Notes
    -----
    Robust: where a share s of the distances is of somebody's making, a range is at most (1 - s) / (1 - 3 s) times as
    wide; who makes a third of them or more moves it by a factor of 2 an epoch at most, up to `WIDEST`. One mean is
    part of two distances. A range is never below the step of the grid, and comes back as fast as it went.
    Cost: some µs a cluster.
    """

    def __init__(self, attributes: tuple[Attribute, ...], delta: int, state: ScalerState | None = None) -> None:
        self.columns = learned(attributes)
        self._length = max(delta, SHORTEST_EPOCH)
        chosen = [attributes[column] for column in self.columns]
        self._least = np.array([max(float(attribute.publication_step()), NARROWEST) for attribute in chosen])
        first = np.array([first_width(attribute) for attribute in chosen])
        begun = ScalerState(-1, 0, np.zeros(len(chosen)), first / PER_DISTANCE, first) if state is None else state
        self._epoch, self._seen = begun.epoch, begun.seen
        self._last, self._distances, self.widths = begun.last.copy(), begun.distances.copy(), begun.widths.copy()

    @property
    def state(self) -> ScalerState:
        """What is known now; a copy."""
        return ScalerState(self._epoch, self._seen, self._last.copy(), self._distances.copy(), self.widths.copy())

    def epoch_of(self, place: int) -> int:
        """Return the epoch of an offset, not before the present one."""
        return max(self._epoch, place // self._length)

    def end_of(self, epoch: int) -> int:
        """Return the first offset after an epoch."""
        return (epoch + 1) * self._length

    def enter(self, epoch: int) -> bool:
        """Go on to an epoch; return whether other widths are in force now."""
        if epoch <= self._epoch:
            return False
        self._epoch = epoch
        wanted = PER_DISTANCE * self._distances if self._seen > 1 else self.widths
        if self._seen >= KNOWN:
            wanted = np.clip(wanted, self.widths / LARGEST_CHANGE, self.widths * LARGEST_CHANGE)
        changed = bool((wanted != self.widths).any())
        self.widths = wanted
        return changed

    def learn(self, published: Float64Matrix) -> None:
        """Look at the published numbers of clusters (G, d), in the order of their decision."""
        for means in published[:, self.columns]:
            if self._seen:
                gain = min(EAGER_GAIN, max(EAGER / self._seen, GAIN))
                apart = np.abs(means - self._last) / self._distances
                moved = self._distances * (1.0 + gain * (np.minimum(apart, FARTHEST) - 1.0))
                bounded = np.clip(moved, self._least / PER_DISTANCE, WIDEST / PER_DISTANCE)
                # Equal means tell nothing of a scale: a column that hardly varies must not become ever more important.
                self._distances = np.where(apart > 0.0, bounded, self._distances)
            self._last = means.copy()
            self._seen += 1
