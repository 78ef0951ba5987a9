"""How large a stream's attributes are, learned from what was published of them: a range for each without bounds.

Nothing but published means is looked at, so that what is committed tells nothing that was not told already. Each mean
moves the estimate by a step that does not depend on how far off it lies: one extreme is one mean among many. Only sums,
products and quotients are used, which every machine rounds alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.kernel.arrays import Float64Matrix, Float64Vector
from shoal.policy import Attribute

__all__ = ["Ranges", "RangesState", "first_width", "learned"]

INSIDE = 0.9
"""Share of published means that shall lie within half a width from the middle."""
GAIN, EAGERNESS = 0.1, 8.0
"""Step of the logarithm of a width for one mean, in the long run; and, divided by their number, for the first ones."""
DRIFT = 0.02
"""Most steps of half a width that the middle moves for one mean, in the long run."""
LARGEST_CHANGE = 2.0
"""What the widths in force change by at most from one epoch to the next, once `KNOWN` means have been seen."""
KNOWN = 64
SHORTEST_EPOCH = 128
STEPS = 200.0
"""Before anything is published, a width is so many steps of the published grid; 1 where there is no grid."""
NARROWEST, WIDEST = 1e-12, 2.0**54


@dataclass(frozen=True, slots=True)
class RangesState:
    """What is known after some clusters: all that is needed to go on.

    Attributes
    ----------
    epoch : int
        In which the widths in force were set; -1 before the first.
    seen : int
        Clusters that were looked at.
    middles, halves, widths : ndarray of float64, shape (L,)
        Of the learned attributes: where means lie, how far they spread, and the width in force; original units.
    """

    epoch: int
    seen: int
    middles: Float64Vector
    halves: Float64Vector
    widths: Float64Vector


def learned(attributes: tuple[Attribute, ...]) -> list[int]:
    """Return which of a stream's quasi-identifiers have no bounds."""
    return [index for index, attribute in enumerate(attributes) if attribute.bounds is None]


def first_width(attribute: Attribute) -> float:
    """Width of a range before anything is published, from the policy alone."""
    return STEPS * float(attribute.grid()) or 1.0


class Ranges:
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
    Robust: a width follows the 0.9-quantile of the distances of published means from their middle, as a count of those
    inside and outside. Up to a tenth of the clusters may lie anywhere without moving it without end; who spoils more
    moves it by a factor of 2 an epoch at most, up to `WIDEST`. A width is never below the step of the grid.
    """

    def __init__(self, attributes: tuple[Attribute, ...], delta: int, state: RangesState | None = None) -> None:
        self.columns = learned(attributes)
        self._length = max(delta, SHORTEST_EPOCH)
        chosen = [attributes[column] for column in self.columns]
        self._least = np.array([max(float(attribute.grid()), NARROWEST) for attribute in chosen])
        first = np.array([first_width(attribute) for attribute in chosen])
        begun = RangesState(-1, 0, np.zeros(len(chosen)), first / 2, first) if state is None else state
        self._epoch, self._seen = begun.epoch, begun.seen
        self._middles, self._halves, self.widths = begun.middles.copy(), begun.halves.copy(), begun.widths.copy()

    @property
    def state(self) -> RangesState:
        """What is known now; a copy."""
        copies = (self._middles.copy(), self._halves.copy(), self.widths.copy())
        return RangesState(self._epoch, self._seen, *copies)

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
        if not self._seen:
            return False
        wanted = 2.0 * self._halves
        if self._seen >= KNOWN:
            wanted = np.clip(wanted, self.widths / LARGEST_CHANGE, self.widths * LARGEST_CHANGE)
        changed = bool((wanted != self.widths).any())
        self.widths = wanted
        return changed

    def learn(self, published: Float64Matrix) -> None:
        """Look at the published numbers of clusters (G, d), in the order of their decision."""
        for means in published[:, self.columns]:
            if not self._seen:
                self._middles = means.copy()
            self._seen += 1
            step = max(EAGERNESS / self._seen, GAIN)
            away = (means - self._middles) / self._halves
            move = max(1.0 / self._seen, DRIFT)
            self._middles = self._middles + move * self._halves * np.clip(away, -1.0, 1.0)
            wider, narrower = 1.0 + step * INSIDE, 1.0 + step * (1.0 - INSIDE)
            halves = np.where(np.abs(away) > 1.0, self._halves * wider, self._halves / narrower)
            self._halves = np.clip(halves, self._least / 2, WIDEST / 2)
