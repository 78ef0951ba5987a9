"""Spreads of the quasi-identifiers of a stream, learned from what is published; distances are scaled by them.

A number, a rank or a time is divided by its spread, so that an attribute counts as much with loose bounds as with tight
ones. The spread is that of the published values of clusters. So the committed state contains nothing that was not
published. Before `WARMUP` clusters are published, the spread is that of the records that are held at each decision; it
is not committed, because a restart reads the same records again.

A clock only grows, and its spread over the stream says nothing about the records that are held together. For a time
whose trend makes out most of its spread, the spread is what it grows within delta records, and squared distances in it
count half: delta already limits how much of a clock is lost.

Only additions, multiplications, divisions and square roots are used, which all machines round the same way.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int64Vector
from shoal.clustering.embedding import Scaling
from shoal.clustering.numba.jit import njit, njit_inner
from shoal.policy import Attribute, Policy, Scale

__all__ = ["SpreadState", "Spreads", "learned_attributes"]

WARMUP = 32
"""Published clusters from which on their spread is used."""
GAIN = 0.005
"""Smallest weight of the newest cluster in a mean; the nth cluster has the weight 1/n, if that is more."""
MAX_DEVIATION, MAX_DEVIATION_UNBOUNDED = 6.0, 2.5
"""Largest deviation of a published value from the mean that is counted, in spreads, after `LIMITED_FROM` clusters: of
an attribute with bounds, which limit it too, and of one without."""
LIMITED_FROM = 4
FAR, FEWEST_FOR_MEDIAN = 12.0, 8
"""Deviation from the median beyond which nothing counts before `WARMUP` clusters, in spreads that a median deviation
stands for; and the values from which on there is such a deviation."""
NORMAL = 1.4826
"""Standard deviation of normal values over their median deviation."""
CLOCK_SHARE = 0.25
"""Part of the variance of a time up to which the variance within delta records is that of a clock."""
CLOCK_WEIGHT = 0.7
"""Weight of a clock: squared distances in it count half."""
UNIFORM = math.sqrt(12.0)
"""Width of a range of evenly distributed values, in spreads. A difference of so many spreads becomes 1."""
EPOCHS_PER_DELTA, MIN_EPOCH = 8, 128
"""Epochs within delta offsets, and the shortest epoch. Each scales all held records again."""
INITIAL_STEPS = 200.0
"""Width before anything is known, in steps of the published grid; without a grid it is 1."""
MIN_WIDTH = 1e-12

_SHORT = np.int64(-(1 << 32))
"""Keeps the upper half of a float64: 20 bits of the fraction. What is committed has these bits only."""


class SpreadState(NamedTuple):
    """Everything that is needed to continue after a restart. L attributes, of which T are times.

    Attributes
    ----------
    epoch : int
        Epoch in which the current widths were set; -1 before the first.
    clusters_seen : int
        Number of clusters used so far.
    means : ndarray of float64, shape (L,)
        Mean of the published values of each attribute; NaN before the first.
    variances : ndarray of float64, shape (L,)
        Their variances about these means.
    widths : ndarray of float64, shape (L,)
        Widths by which distances are divided in this epoch; 0 before `WARMUP` clusters.
    centers : ndarray of float64, shape (L,)
        Value in place of a missing one in this epoch; 0 where no value may be missing.
    last : ndarray of float64, shape (T,)
        Last published time.
    step_variances : ndarray of float64, shape (T,)
        Half the mean square of the difference of consecutive published times.
    drifts : ndarray of float64, shape (T,)
        Mean growth of the published time per record.
    """

    epoch: int
    clusters_seen: int
    means: Float64Vector
    variances: Float64Vector
    widths: Float64Vector
    centers: Float64Vector
    last: Float64Vector
    step_variances: Float64Vector
    drifts: Float64Vector


def learned_attributes(policy: Policy) -> list[Attribute]:
    """Return the quasi-identifiers of a stream whose spreads are learned: all but the nominal ones, or none."""
    if policy.scaling == "bounds":
        return []
    return [attribute for attribute in policy.quasi_identifiers if not attribute.is_nominal]


def _step(attribute: Attribute) -> float:
    """Return the step of published values in the unit of values; 0 for exact means."""
    if attribute.time_step is not None:
        return float(attribute.time_step.milliseconds)
    return 1.0 if attribute.scale is Scale.ORDINAL else float(attribute.publication_step())


def _initial_width(attribute: Attribute) -> float:
    """Return the width before anything is known, and where all values are equal; it depends on the policy only."""
    if attribute.bounds is not None and attribute.bounds[0] < attribute.bounds[1]:
        return attribute.bounds[1] - attribute.bounds[0]
    return INITIAL_STEPS * _step(attribute) or 1.0


def _middle(attribute: Attribute) -> float:
    """Return the value in place of a missing one before anything is known."""
    return 0.0 if attribute.bounds is None else (attribute.bounds[0] + attribute.bounds[1]) / 2


class Spreads:
    """Learns spreads. A scaling is constant within an epoch, a fixed number of offsets of the partition.

    Parameters
    ----------
    policy : Policy
        With a stream section.
    state : SpreadState, optional
        State committed before a restart. If omitted, nothing was published yet.

    Notes
    -----
    Robustness: published values lie within the bounds of their attribute, so that a width is at most 1.8 times that of
    the bounds. Of an attribute without bounds, an attacker that controls a share s < 4/29 of the published values
    multiplies the width by at most (1 - s) / root(1 - 29 s / 4), on average and in the long run. (The most is reached
    if all extremes are on one side, where they move the mean, too.) With more, the width grows by a factor of at most
    1.014 per cluster. A width is never below a step of the grid, and shrinks by at most 1/400 per cluster when the
    attack stops. Before `WARMUP` clusters, a value counts up to `FAR` robust spreads from the median of the values that
    are published with it. Where clusters are released one at a time there is no such median, and the first
    `LIMITED_FROM` values count fully: one extreme x among them is forgotten after at most 200 ln(x² / h) clusters,
    where h is the variance of the others.
    Cost: about a microsecond per cluster.
    """

    def __init__(self, policy: Policy, state: SpreadState | None = None) -> None:
        learned = learned_attributes(policy)
        self.columns = [policy.quasi_identifiers.index(attribute) for attribute in learned]
        self._delta = policy.require_stream().delta
        self._epoch_length = max(self._delta // EPOCHS_PER_DELTA, MIN_EPOCH)
        self._initial = np.array([_initial_width(attribute) for attribute in learned])
        self._middles = np.array([_middle(attribute) for attribute in learned])
        self._may_be_missing = np.array([attribute.may_be_missing for attribute in learned], np.bool_)
        limits = [MAX_DEVIATION_UNBOUNDED if a.bounds is None else MAX_DEVIATION for a in learned]
        self._max_squares = np.array(limits) ** 2
        self._steps = np.array([max(_step(attribute), MIN_WIDTH) for attribute in learned])
        self._times = np.array([i for i, a in enumerate(learned) if a.scale is Scale.TIME], np.int64)
        self._chosen = np.array(self.columns, np.int64)
        state = self._initial_state() if state is None else state
        self._epoch, self._counts = state.epoch, np.array([state.clusters_seen])
        self._means, self._variances = state.means.copy(), state.variances.copy()
        self._last, self._step_variances = state.last.copy(), state.step_variances.copy()
        self._drifts = state.drifts.copy()
        self._scaling = Scaling(state.widths.copy(), state.centers.copy())

    @classmethod
    def of(cls, policy: Policy, state: SpreadState | None) -> Self | None:
        """Return the spreads of a policy with a stream section; None if nothing is learned under it."""
        return cls(policy, state) if learned_attributes(policy) else None

    @property
    def state(self) -> SpreadState:
        """Copy of the current state."""
        learned = self._means, self._variances, self._scaling.widths, self._scaling.centers
        of_times = self._last, self._step_variances, self._drifts
        return SpreadState(
            self._epoch, int(self._counts[0]), *(array.copy() for array in learned), *(one.copy() for one in of_times)
        )

    @property
    def are_learned(self) -> bool:
        """Whether enough clusters are published for `scaling`; before that, use `scaling_of_held`."""
        return bool(self._counts[0] >= WARMUP)

    @property
    def scaling(self) -> Scaling:
        """Scaling of this epoch; before `are_learned`, one that depends on the policy only."""
        if self._scaling.widths.all():
            return self._scaling
        return Scaling(self._initial, self._middles)

    def scaling_of_held(self, values: Float64Matrix) -> Scaling:
        """Return the scaling by the spreads of held records.

        Parameters
        ----------
        values : ndarray of float64, shape (n, d)
            Their values as in `records.Block`, in order of arrival; not modified.
        """
        widths, centers = self._initial.copy(), self._middles.copy()
        for number, column in enumerate(self.columns):
            known = values[~np.isnan(values[:, column]), column]
            if len(known):
                known = _without_extremes(known)
                centers[number] = known.mean()
                deviations = known - centers[number]
                widths[number] = self._width(number, float((deviations * deviations).mean()))
        return Scaling(widths, centers)

    def epoch_of(self, offset: int) -> int:
        """Return the epoch of an offset, or the current epoch if that is later."""
        return max(self._epoch, offset // self._epoch_length)

    def epoch_end(self, epoch: int) -> int:
        """Return the first offset after an epoch."""
        return (epoch + 1) * self._epoch_length

    def start_epoch(self, epoch: int) -> bool:
        """Start an epoch, if it is later than the current one; return whether the scaling has changed."""
        if epoch <= self._epoch:
            return False
        self._epoch = epoch
        return self.update_scaling()

    def update_scaling(self) -> bool:
        """Scale by what has been learned so far, if it suffices; return whether the scaling has changed."""
        if not self.are_learned:
            return False
        variances, weights = self._variances.copy(), np.ones(len(self._variances))
        grown = self._drifts * (self._delta + 1)
        within = self._step_variances + grown * grown / 12.0
        are_clocks = within < CLOCK_SHARE * variances[self._times]
        clocks = self._times[are_clocks]
        variances[clocks], weights[clocks] = within[are_clocks], CLOCK_WEIGHT
        widths = np.array([self._width(i, variance) for i, variance in enumerate(variances.tolist())]) / weights
        centers = np.where(self._may_be_missing & ~np.isnan(self._means), self._means, 0.0)
        self._scaling = Scaling(_shortened(widths), centers)
        return True

    def partial_fit(self, published: Float64Matrix, sizes: Int64Vector) -> None:
        """Learn from the published values of clusters.

        Parameters
        ----------
        published : ndarray of float64, shape (G, d)
            Published values of all quasi-identifiers, in original units, in the order of decision; NaN for null. Not
            modified.
        sizes : ndarray of int64, shape (G,)
            Records of each cluster.
        """
        if not self.are_learned and len(published) >= FEWEST_FOR_MEDIAN:
            published = published.copy()
            for column in self.columns:
                known = ~np.isnan(published[:, column])
                published[known, column] = _without_extremes(published[known, column])
        learn_spreads(
            published,
            sizes,
            self._chosen,
            self._times,
            self._max_squares,
            self._counts,
            self._means,
            self._variances,
            self._last,
            self._step_variances,
            self._drifts,
        )

    def _width(self, number: int, variance: float) -> float:
        """Return the width for a variance; equal values tell nothing."""
        if not 0.0 < variance < math.inf:
            return float(self._initial[number])
        return max(UNIFORM * math.sqrt(variance), float(self._steps[number]))

    def _initial_state(self) -> SpreadState:
        count, times = len(self.columns), len(self._times)
        unknown = np.full(count, np.nan)
        zeros, zeros_of_times = np.zeros(count), np.zeros(times)
        return SpreadState(-1, 0, unknown, zeros, zeros, zeros, np.full(times, np.nan), zeros_of_times, zeros_of_times)


def _without_extremes(values: Float64Vector) -> Float64Vector:
    """Return values (n,), those farther than `FAR` spreads from their median moved there; the spread is robust."""
    if len(values) < FEWEST_FOR_MEDIAN:
        return values
    median = float(np.median(values))
    reach = FAR * NORMAL * float(np.median(np.abs(values - median)))
    return np.clip(values, median - reach, median + reach) if reach > 0.0 else values


def _shortened(values: Float64Vector) -> Float64Vector:
    """Return values (n,) with the bits that are committed."""
    return (values.view(np.int64) & _SHORT).view(np.float64)


@njit
def learn_spreads(
    published: Float64Matrix,
    sizes: Int64Vector,
    columns: Int64Vector,
    times: Int64Vector,
    max_squares: Float64Vector,
    counts: Int64Vector,
    means: Float64Vector,
    variances: Float64Vector,
    last: Float64Vector,
    step_variances: Float64Vector,
    drifts: Float64Vector,
) -> None:
    """Update means and variances (L,), and the figures of times (T,), with the published values (G, d) of clusters.

    ``columns`` (L,) are the attributes among the published values and ``times`` (T,) the times among these;
    ``max_squares`` (L,) are the largest squared deviations that count, in variances; ``counts`` (1,) is the number of
    clusters so far. After each cluster, all but means and last times are cut to the
    bits that are committed, so that a restart changes nothing.
    """
    for cluster in range(published.shape[0]):
        counts[0] += 1
        gain = max(1.0 / counts[0], GAIN)
        for i in range(columns.size):
            value = published[cluster, columns[i]]
            if np.isnan(value):
                continue
            if np.isnan(means[i]):
                means[i] = value
            away = value - means[i]
            if counts[0] > LIMITED_FROM and variances[i] > 0.0:
                away = _limited(away, max_squares[i] * variances[i])
            variances[i] = (1.0 - gain) * (variances[i] + gain * away * away)
            means[i] += gain * away
        limits = max_squares[times] * variances[times]
        _learn_times(published[cluster], sizes[cluster], gain, columns[times], limits, last, step_variances, drifts)
        _shorten(variances)
        _shorten(step_variances)
        _shorten(drifts)


@njit_inner
def _limited(away: float, square: float) -> float:
    """Return a difference, moved to the root of ``square`` if it is farther from 0."""
    limit = np.sqrt(square)
    return float(min(max(away, -limit), limit))


@njit_inner
def _learn_times(
    published: Float64Vector,
    size: int,
    gain: float,
    columns: Int64Vector,
    limits: Float64Vector,
    last: Float64Vector,
    step_variances: Float64Vector,
    drifts: Float64Vector,
) -> None:
    """Update the figures of times (T,), of attributes ``columns``, with the published values (d,) of a cluster.

    Steps count up to the roots of ``limits`` (T,).
    """
    for t in range(columns.size):
        value = published[columns[t]]
        if np.isnan(value):
            continue
        if np.isnan(last[t]):
            last[t] = value
        step = _limited(value - last[t], limits[t])
        step_variances[t] += gain * (0.5 * step * step - step_variances[t])
        drifts[t] += gain * (step / size - drifts[t])
        last[t] = value


@njit_inner
def _shorten(values: Float64Vector) -> None:
    """Cut values (n,) to the bits that are committed."""
    bits = values.view(np.int64)
    for i in range(values.size):
        bits[i] &= _SHORT
