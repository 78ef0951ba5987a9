"""Spreads of the quasi-identifiers of a stream, learned from what is published; distances are scaled by them.

A number, a rank or a time is divided by its spread, so that an attribute counts as much with loose bounds as with tight
ones. The spread is that of the published values of clusters. So the committed state contains nothing that was not
published. Before `WARMUP` clusters are published, the spread is that of the records that are held at each decision; it
is not committed, because a restart reads the same records again.

A clock only grows, and its spread over the stream says nothing about the records that are held together. For a time
whose trend makes out most of its spread, the spread is what it grows within delta records, and squared distances in it
count half: delta already limits how much of a clock is lost.

Only additions, multiplications, divisions and square roots are used, which all machines round the same way.

A restart reads the held records again, but not the records of earlier decisions. The values that these decisions
changed (`AdaptiveState`) are therefore committed with their clusters. The same decisions give the same state.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int64Vector
from shoal.errors import InputError
from shoal.kernels.jit import njit, njit_inner
from shoal.policy import Attribute, Policy
from shoal.scales import SCALES, Scaling, scale_of

WARMUP = 32  # published clusters from which on their spread is used
GAIN = 0.005  # smallest weight of the newest cluster in a mean; the nth cluster has the weight 1/n, if that is more
MAX_DEVIATION, MAX_DEVIATION_UNBOUNDED = 6.0, 2.5
"""Largest deviation of a published value from the mean that is counted, in spreads, after `LIMITED_FROM` clusters: of
an attribute with bounds, which limit it too, and of one without."""
LIMITED_FROM = 4
FAR, FEWEST_FOR_MEDIAN = 12.0, 8
"""Deviation from the median beyond which nothing counts before `WARMUP` clusters, in spreads; and fewest values."""
NORMAL = 1.4826  # standard deviation of normal values over their median deviation
CLOCK_SHARE = 0.25  # part of the variance of a time up to which the variance within delta records is that of a clock
CLOCK_WEIGHT = 0.7  # weight of a clock: squared distances in it count half
UNIFORM = math.sqrt(12.0)
"""Width of a range of evenly distributed values, in spreads. A difference of so many spreads becomes 1."""
EPOCHS_PER_DELTA, MIN_EPOCH = 8, 128
"""Epochs within delta offsets, and the shortest epoch. Each scales all held records again."""
INITIAL_STEPS = 200.0  # width before anything is known, in steps of the published grid; without a grid it is 1
MIN_WIDTH = 1e-12

_SHORT = np.int64(-(1 << 32))
"""Keeps the upper half of a float64: 20 bits of the fraction. What is committed has these bits only."""


class SpreadState(NamedTuple):
    """Everything that is needed to continue after a restart. L attributes, of which T are times."""

    epoch: int  # in which the current widths were set; -1 before the first
    clusters_seen: int  # number of clusters used so far
    means: Float64Vector  # (L,): of the published values of each attribute; NaN before the first
    variances: Float64Vector  # (L,): their variances about these means
    widths: Float64Vector  # (L,): by which distances are divided in this epoch; 0 before `WARMUP` clusters
    centers: Float64Vector  # (L,): value in place of a missing one in this epoch; 0 where no value may be missing
    last: Float64Vector  # (T,): last published time
    step_variances: Float64Vector  # (T,): half the mean square of the difference of consecutive published times
    drifts: Float64Vector  # (T,): mean growth of the published time per record


class Learned(NamedTuple):
    """What is learned from the published values, as arrays that `learn_spreads` changes; see `SpreadState`."""

    counts: Int64Vector  # (1,): clusters used so far
    means: Float64Vector
    variances: Float64Vector
    last: Float64Vector
    step_variances: Float64Vector
    drifts: Float64Vector


def learned_attributes(policy: Policy) -> list[Attribute]:
    """Return the quasi-identifiers of a stream whose spreads are learned: all but the nominal ones, or none."""
    if policy.scaling == "bounds":
        return []
    return [attribute for attribute in policy.quasi_identifiers if not SCALES[attribute.scale].is_coded]


def _initial_width(attribute: Attribute) -> float:
    """Return the width before anything is known, and where all values are equal; it depends on the policy only."""
    if attribute.bounds is not None and attribute.bounds[0] < attribute.bounds[1]:
        return attribute.bounds[1] - attribute.bounds[0]
    return INITIAL_STEPS * scale_of(attribute).smallest_step or 1.0


def _middle(attribute: Attribute) -> float:
    """Return the value in place of a missing one before anything is known."""
    return 0.0 if attribute.bounds is None else (attribute.bounds[0] + attribute.bounds[1]) / 2


class Spreads:
    """Learns spreads. A scaling is constant within an epoch, a fixed number of offsets of the partition.

    ``state`` was committed before a restart; None if nothing was published yet.

    Robustness: published values lie within the bounds of their attribute, so that a width is at most 1.8 times that of
    the bounds. Of an attribute without bounds, an attacker that controls a share s < 4/29 of the published values
    multiplies the width by at most (1 - s) / root(1 - 29 s / 4), on average and in the long run. (The most is reached
    if all extremes are on one side, where they move the mean as well.) With more, the width grows by a factor of at
    most 1.014 per cluster. A width is never below a step of the grid, and shrinks by at most 1/400 per cluster when the
    attack stops. Before `WARMUP` clusters, a value counts up to `FAR` robust spreads from the median of the values that
    are published with it. Where clusters are released one at a time there is no such median, and the first
    `LIMITED_FROM` values count fully: one extreme x among them is forgotten after at most 200 ln(x² / h) clusters,
    where h is the variance of the others. Cost: about a microsecond per cluster.
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
        self._steps = np.array([max(scale_of(attribute).smallest_step, MIN_WIDTH) for attribute in learned])
        self._times = np.array(_numbers_of_times(policy), np.int64)
        self._chosen = np.array(self.columns, np.int64)
        state = self._initial_state() if state is None else state
        of_values = state.means, state.variances, state.last, state.step_variances, state.drifts
        self._learned = Learned(np.array([state.clusters_seen]), *(array.copy() for array in of_values))
        self._epoch, self._scaling = state.epoch, Scaling(state.widths, state.centers)

    @classmethod
    def of(cls, policy: Policy, state: SpreadState | None) -> Self | None:
        """Return the spreads of a policy with a stream section; None if nothing is learned under it."""
        return cls(policy, state) if learned_attributes(policy) else None

    @property
    def state(self) -> SpreadState:
        """Copy of the current state."""
        counts, *learned = self._learned
        means, variances, last, step_variances, drifts = (array.copy() for array in learned)
        return SpreadState(self._epoch, int(counts[0]), means, variances, *self._scaling, last, step_variances, drifts)

    @property
    def are_learned(self) -> bool:
        """Whether enough clusters are published for `scaling`; before that, use `scaling_of_held`."""
        return bool(self._learned.counts[0] >= WARMUP)

    @property
    def scaling(self) -> Scaling:
        """Scaling of this epoch; before `are_learned`, one that depends on the policy only."""
        if self._scaling.widths.all():
            return self._scaling
        return Scaling(self._initial, self._middles)

    def scaling_of_held(self, values: Float64Matrix) -> Scaling:
        """Return the scaling by the spreads of held records, with values (n, d) in order of arrival."""
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
        learned, variances = self._learned, self._learned.variances
        weights = np.ones(len(variances))
        if len(self._times):
            variances = variances.copy()
            grown = learned.drifts * (self._delta + 1)
            within = learned.step_variances + grown * grown / 12.0
            are_clocks = within < CLOCK_SHARE * variances[self._times]
            clocks = self._times[are_clocks]
            variances[clocks], weights[clocks] = within[are_clocks], CLOCK_WEIGHT
        widths = np.array([self._width(i, variance) for i, variance in enumerate(variances.tolist())]) / weights
        centers = np.zeros(len(widths))
        if self._may_be_missing.any():
            centers = np.where(self._may_be_missing & ~np.isnan(learned.means), learned.means, 0.0)
        self._scaling = Scaling(_shortened(widths), centers)
        return True

    def partial_fit(self, published: Float64Matrix, sizes: Int64Vector) -> None:
        """Learn from the published values of G clusters, in the order of decision."""
        if not self.are_learned and len(published) >= FEWEST_FOR_MEDIAN:
            published = published.copy()
            for column in self.columns:
                known = ~np.isnan(published[:, column])
                published[known, column] = _without_extremes(published[known, column])
        learn_spreads(published, sizes, self._chosen, self._times, self._max_squares, self._learned)

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
    learned: Learned,
) -> None:
    """Learn from the published values (G, d) of clusters with ``sizes`` (G,).

    After each cluster, all but means and last times are cut to the bits that are committed, so that a restart changes
    nothing.
    """
    counts, means, variances = learned.counts, learned.means, learned.variances
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
        for t in range(times.size):
            limit = max_squares[times[t]] * variances[times[t]]
            _learn_time(learned, t, published[cluster, columns[times[t]]], sizes[cluster], gain, limit)
        _shorten(variances)
        _shorten(learned.step_variances)
        _shorten(learned.drifts)


@njit_inner
def _limited(away: float, square: float) -> float:
    """Return a difference, moved to the root of ``square`` if it is farther from 0."""
    limit = np.sqrt(square)
    return float(min(max(away, -limit), limit))


@njit_inner
def _learn_time(learned: Learned, t: int, value: float, size: int, gain: float, limit: float) -> None:
    """Learn from the published value of the time ``t`` of a cluster. A step counts up to the root of ``limit``."""
    last, step_variances, drifts = learned.last, learned.step_variances, learned.drifts
    if np.isnan(value):
        return
    if np.isnan(last[t]):
        last[t] = value
    step = _limited(value - last[t], limit)
    step_variances[t] += gain * (0.5 * step * step - step_variances[t])
    drifts[t] += gain * (step / size - drifts[t])
    last[t] = value


@njit_inner
def _shorten(values: Float64Vector) -> None:
    """Cut values (n,) to the bits that are committed."""
    bits = values.view(np.int64)
    for i in range(values.size):
        bits[i] &= _SHORT


_VERSION = 2
_WEIGHT = struct.Struct(">d")
_COUNTS = struct.Struct(">qq")
_LONG, _STATE_IS_SHORT = 8, 4
"""Bytes of a value that has all bits of a float64, and of one that has the upper half of them."""


@dataclass(frozen=True, slots=True)
class AdaptiveState:
    """State that each decision may change; None where it is initial, or the policy does not have it."""

    position_weight: float | None = None
    spreads: SpreadState | None = None

    @staticmethod
    def size(policy: Policy) -> int:
        """Return the number of bytes that `to_bytes` needs under a policy; 0 if the policy has no adaptive state."""
        size = 0 if policy.target_span is None else _WEIGHT.size
        if learned := learned_attributes(policy):
            times, centers = _numbers_of_times(policy), _numbers_with_centers(policy)
            size += _COUNTS.size + len(learned) * (_LONG + 2 * _STATE_IS_SHORT)
            size += len(centers) * _LONG + len(times) * (_LONG + 2 * _STATE_IS_SHORT)
        return 1 + size if size else 0

    def to_bytes(self, policy: Policy) -> bytes:
        """Return the state as bytes, big-endian; none for the initial state.

        Version (1 byte); the weight (float64); epoch and number of clusters (int64); means, centers and last times
        (float64); then variances, widths, step variances and drifts (upper half of a float64 each).
        """
        data = b"" if self.position_weight is None else _WEIGHT.pack(self.position_weight)
        if (spreads := self.spreads) is not None:
            centers = spreads.centers[_numbers_with_centers(policy)]
            data += _COUNTS.pack(spreads.epoch, spreads.clusters_seen)
            data += np.concatenate([spreads.means, centers, spreads.last]).astype(">f8").tobytes()
            short = spreads.variances, spreads.widths, spreads.step_variances, spreads.drifts
            data += (np.concatenate(short).view(np.int64) >> 32).astype(">i4").tobytes()
        return bytes([_VERSION]) + data if data else b""

    @classmethod
    def from_bytes(cls, data: bytes, policy: Policy) -> AdaptiveState:
        """Return the state that `to_bytes` wrote under the same policy; no bytes give the initial state."""
        if not data:
            return cls()
        if len(data) != cls.size(policy) or data[0] != _VERSION:
            raise InputError(
                "the committed adaptive state was written by another version; run shoal run --drain with that version "
                "first"
            )
        weight, start = None, 1
        if policy.target_span is not None:
            (weight,) = _WEIGHT.unpack_from(data, start)
            start += _WEIGHT.size
        spreads = _spreads_of(data, start, policy) if start < len(data) else None
        state = cls(weight, spreads)
        if not state._is_valid():
            raise InputError("the committed adaptive state is corrupt")
        return state

    def as_dict(self, policy: Policy) -> dict[str, Any]:
        """Return the weight and the widths of attributes by name, for the summary of the policy's owner."""
        state: dict[str, Any] = {} if self.position_weight is None else {"position_weight": self.position_weight}
        if self.spreads is not None:
            names = [attribute.name for attribute in learned_attributes(policy)]
            widths = [width or None for width in self.spreads.widths.tolist()]
            state["widths"] = dict(zip(names, widths, strict=True))
        return state

    def _is_valid(self) -> bool:
        positive = np.array([1.0 if self.position_weight is None else self.position_weight])
        if not (np.isfinite(positive) & (positive > 0)).all():
            return False
        if (spreads := self.spreads) is None:
            return True
        finite = spreads.variances, spreads.widths, spreads.step_variances, spreads.drifts, spreads.centers
        return (
            spreads.epoch >= -1
            and spreads.clusters_seen >= 0
            and not np.isinf(np.concatenate([spreads.means, spreads.last])).any()
            and bool(np.isfinite(np.concatenate(finite)).all())
            and bool((np.concatenate([spreads.variances, spreads.widths, spreads.step_variances]) >= 0).all())
        )


def _numbers_of_times(policy: Policy) -> list[int]:
    """Return the places of times among the learned attributes."""
    return [i for i, attribute in enumerate(learned_attributes(policy)) if SCALES[attribute.scale].has_trend]


def _numbers_with_centers(policy: Policy) -> list[int]:
    """Return the places of attributes that may be missing among the learned ones: only they need a center."""
    return [i for i, attribute in enumerate(learned_attributes(policy)) if attribute.may_be_missing]


def _spreads_of(data: bytes, start: int, policy: Policy) -> SpreadState:
    """Return the spreads that begin at ``start`` of the bytes of a state."""
    count = len(learned_attributes(policy))
    times, centers = len(_numbers_of_times(policy)), _numbers_with_centers(policy)
    epoch, clusters_seen = _COUNTS.unpack_from(data, start)
    start += _COUNTS.size
    long = np.frombuffer(data, ">f8", count + len(centers) + times, start).astype(np.float64)
    start += long.nbytes
    short: Float64Vector = (np.frombuffer(data, ">i4", offset=start).astype(np.int64) << 32).view(np.float64)
    means, known_centers, last = np.split(long, [count, count + len(centers)])
    variances, widths, step_variances, drifts = np.split(short, [count, 2 * count, 2 * count + times])
    all_centers = np.zeros(count)
    all_centers[centers] = known_centers
    return SpreadState(epoch, clusters_seen, means, variances, widths, all_centers, last, step_variances, drifts)
