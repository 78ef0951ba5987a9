"""Ranges of stream attributes without bounds, learned from the published means.

Only published means are used, so that the committed state contains nothing that was not published. The width of a range
is three times the mean distance between the means of consecutive clusters; for uniformly distributed means this is
their range. A distance above three mean distances counts as three, so that one outlier has limited influence. Only
additions, multiplications and divisions are used, which all machines round the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector
from shoal.policy import Attribute, Policy

__all__ = ["OnlineScaler", "ScalerState", "initial_width", "unbounded_columns"]

MAX_DISTANCE = 3.0
"""Largest distance that is counted, in mean distances."""
PER_DISTANCE = 3.0
"""Width of a range over the mean distance of two of its points, for a uniform distribution."""
GAIN, INITIAL_GAIN, GAIN_DECAY = 0.05, 0.5, 16
"""Weight of one distance in the running mean: ``GAIN_DECAY / n`` for the nth, within GAIN and INITIAL_GAIN."""
MAX_CHANGE = 2.0
"""Largest factor between the widths of two consecutive epochs, after `WARMUP_CLUSTERS` clusters."""
WARMUP_CLUSTERS = 64
MIN_EPOCH = 128
INITIAL_STEPS = 200.0
"""Initial width in steps of the published grid; without a grid the initial width is 1."""
MIN_WIDTH, MAX_WIDTH = 1e-12, 2.0**54


@dataclass(frozen=True, slots=True)
class ScalerState:
    """Everything that the scaler needs to continue after a restart.

    Attributes
    ----------
    epoch : int
        Epoch in which the current widths were set; -1 before the first.
    clusters_seen : int
        Number of clusters used so far.
    last_means, mean_distances, widths : ndarray of float64, shape (L,)
        Of each attribute without bounds, original units: the last published mean, the mean distance between
        consecutive means, and the current width of the range.
    """

    epoch: int
    clusters_seen: int
    last_means: Float64Vector
    mean_distances: Float64Vector
    widths: Float64Vector


def unbounded_columns(attributes: tuple[Attribute, ...]) -> list[int]:
    """Return the indices of the quasi-identifiers without bounds that have a range: of scale numeric or time."""
    return [
        index for index, attribute in enumerate(attributes) if attribute.bounds is None and not attribute.is_nominal
    ]


def _step(attribute: Attribute) -> float:
    """Return the step of published values in the unit of values; 0 for exact means."""
    if attribute.time_step is not None:
        return float(attribute.time_step.milliseconds)
    return float(attribute.publication_step())


def initial_width(attribute: Attribute) -> float:
    """Return the width of a range before anything is published; it depends on the policy only."""
    return INITIAL_STEPS * _step(attribute) or 1.0


class OnlineScaler:
    """Learns the widths of ranges. A width is constant within an epoch, a fixed number of offsets of the partition.

    Parameters
    ----------
    attributes : tuple of Attribute
        The quasi-identifiers; ranges are learned of those without bounds.
    delta : int
        Smallest length of an epoch in offsets; at least `MIN_EPOCH` is used.
    state : ScalerState, optional
        State committed before a restart. If omitted, nothing was published yet.

    Notes
    -----
    Robustness: an attacker that controls a share s < 1/3 of the distances widens a range by a factor of at most
    (1 - s) / (1 - 3 s). With a third or more, the factor is at most 2 per epoch, up to `MAX_WIDTH`. One mean is part
    of two distances. A range is never narrower than a step of the grid, and shrinks as fast as it grows.
    Cost: some µs per cluster.
    """

    def __init__(self, attributes: tuple[Attribute, ...], delta: int, state: ScalerState | None = None) -> None:
        self.columns = unbounded_columns(attributes)
        self._epoch_length = max(delta, MIN_EPOCH)
        unbounded = [attributes[column] for column in self.columns]
        self._min_widths = np.array([max(_step(attribute), MIN_WIDTH) for attribute in unbounded])
        if state is None:
            initial = np.array([initial_width(attribute) for attribute in unbounded])
            state = ScalerState(-1, 0, np.zeros(len(unbounded)), initial / PER_DISTANCE, initial)
        self._epoch, self._clusters_seen = state.epoch, state.clusters_seen
        self._last_means, self._mean_distances = state.last_means.copy(), state.mean_distances.copy()
        self.widths = state.widths.copy()

    @classmethod
    def of(cls, policy: Policy, state: ScalerState | None) -> Self | None:
        """Return the scaler of a policy with a stream section; None if all quasi-identifiers have bounds."""
        if not unbounded_columns(policy.quasi_identifiers):
            return None
        return cls(policy.quasi_identifiers, policy.require_stream().delta, state)

    @property
    def state(self) -> ScalerState:
        """Copy of the current state."""
        arrays = (self._last_means.copy(), self._mean_distances.copy(), self.widths.copy())
        return ScalerState(self._epoch, self._clusters_seen, *arrays)

    def epoch_of(self, offset: int) -> int:
        """Return the epoch of an offset, or the current epoch if that is later."""
        return max(self._epoch, offset // self._epoch_length)

    def epoch_end(self, epoch: int) -> int:
        """Return the first offset after an epoch."""
        return (epoch + 1) * self._epoch_length

    def start_epoch(self, epoch: int) -> bool:
        """Start an epoch, if it is later than the current one; return whether the widths have changed."""
        if epoch <= self._epoch:
            return False
        self._epoch = epoch
        widths = PER_DISTANCE * self._mean_distances if self._clusters_seen > 1 else self.widths
        if self._clusters_seen >= WARMUP_CLUSTERS:
            widths = np.clip(widths, self.widths / MAX_CHANGE, self.widths * MAX_CHANGE)
        changed = bool((widths != self.widths).any())
        self.widths = widths
        return changed

    def partial_fit(self, published: Float64Matrix) -> None:
        """Update the mean distances with the published means of clusters.

        Parameters
        ----------
        published : ndarray of float64, shape (G, d)
            Published means of all quasi-identifiers, original units, in the order of decision. Not modified.
        """
        for means in published[:, self.columns]:
            if self._clusters_seen:
                gain = min(INITIAL_GAIN, max(GAIN_DECAY / self._clusters_seen, GAIN))
                relative = np.abs(means - self._last_means) / self._mean_distances
                moved = self._mean_distances * (1.0 + gain * (np.minimum(relative, MAX_DISTANCE) - 1.0))
                bounded = np.clip(moved, self._min_widths / PER_DISTANCE, MAX_WIDTH / PER_DISTANCE)
                # Equal means are ignored: else the range of an attribute that rarely varies would shrink without end.
                self._mean_distances = np.where(relative > 0.0, bounded, self._mean_distances)
            # A cluster that publishes null has no mean.
            self._last_means = np.where(np.isnan(means), self._last_means, means)
            self._clusters_seen += 1
