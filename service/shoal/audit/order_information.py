"""Measures how many bits of the order of arrival a column reveals: trends, runs and periods such as ``rank mod 97``.

A rank correlation finds columns that grow or fall with the position only. Mutual information with a function of the
position finds others too. Two families of functions are tried: the number of the block in which a position lies, for
several numbers of blocks, and the position modulo a period. Periods come from the autocorrelation of the column.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["OrderInformation", "measure_order_information"]

IntVector = npt.NDArray[np.int64]

MIN_WINDOW = 30
"""With fewer records a column, or the rest after the last window, is not measured by itself."""
WINDOW = 1 << 16
"""Longer columns are measured in windows of this many records, so that the cost grows linearly."""
BINS = 16
"""Columns of many values are measured a second time, by quantiles."""
PERMUTATIONS = 100
PERIODS = 8
"""Periods that are tried per window: the highest peaks of the autocorrelation."""
FEW_PAIRS = 8
"""Up to so many possible pairs of a value and a label per record, pairs are counted without sorting."""
DRAWS = 4
MIN_INFORMATION = 0.2
"""Bits. A normal variable with a correlation of 0.5 with the position tells as much."""
MAX_P = 1e-6


@dataclass(frozen=True, slots=True)
class OrderInformation:
    """What a column reveals of the positions.

    Attributes
    ----------
    bits : float
        Mutual information with the best function of the position, minus its mean under permutations; 0 if below 0.2 or
        not significant. Of the first window in which it is significant.
    p_value : float
        Of the best function, corrected for the number of functions among which it was chosen.
    """

    bits: float = 0.0
    p_value: float = 1.0


def measure_order_information(
    codes: IntVector, ranks: npt.NDArray[np.float64] | None, positions: IntVector
) -> OrderInformation:
    """Measure one column of one partition.

    Parameters
    ----------
    codes : ndarray of int64, shape (n,)
        Equal for equal values, from 0.
    ranks : ndarray of float64, shape (n,), or None
        Mean ranks of the values; NaN for nulls. None for values without an order.
    positions : ndarray of int64, shape (n,)
        Offsets of the records, ascending.

    Returns
    -------
    OrderInformation
        Nothing for fewer than 30 records.

    Notes
    -----
    Significance: the mutual information is compared with that of 100 permutations of the column. A gamma distribution
    with their mean, deviation and skewness gives the p-value beyond the reach of so few (Winkler et al., NeuroImage 141
    (2016), section 2.5, doi:10.1016/j.neuroimage.2016.05.068). Deviation and skewness are rounded up by more than their
    sampling error, and the p-value is multiplied by the number of all functions that could have been chosen
    (Bonferroni). A column is reported from p < 1e-6 on.

    What it cannot find: a secret function of the position, and values that are unique (`unique_share` counts them).

    Cost: O(n log n) time, O(n) memory. Deterministic: the permutations have a fixed seed.
    """
    n = len(codes)
    if n < MIN_WINDOW:
        return OrderInformation()
    generator = np.random.default_rng(0)
    columns = [codes] if ranks is None or codes.max() < BINS else [codes, _quantiles(ranks)]
    # Periods of the offsets and periods among the usable records differ if some records are unusable.
    orders = [positions - positions[0], np.arange(n)]
    if orders[0][-1] == n - 1 or orders[0][-1] >= 4 * n:
        del orders[0]
    windows = [slice(first, first + WINDOW) for first in range(0, n, WINDOW)]
    if len(windows) > 1 and n - windows[-1].start < MIN_WINDOW:
        windows.pop()
    tried = len(columns) * len(orders) * len(windows)
    for column in columns:
        for order in orders:
            for window in windows:
                found = _measure_window(column[window], order[window] - order[window][0], tried, generator)
                if found.p_value < MAX_P:
                    return found
    return OrderInformation()


def _measure_window(
    column: IntVector, positions: IntVector, tried: int, generator: np.random.Generator
) -> OrderInformation:
    """Measure one window; ``tried`` is the number of windows, columns and orders."""
    values = np.unique(column, return_inverse=True)[1]
    functions = list(_functions(values, positions, generator))
    if not functions:
        return OrderInformation()
    entropies = np.array([_joint_entropy(values, labels) for labels in functions])
    shuffled = np.array([_joint_entropy(generator.permutation(values), labels) for labels in functions])
    best = int(np.argmax(shuffled - entropies))
    if shuffled[best] - entropies[best] < MIN_INFORMATION / 2:
        return OrderInformation()  # far from the limit: no need for more permutations
    many = np.array([_joint_entropy(generator.permutation(values), functions[best]) for _ in range(PERMUTATIONS)])
    choices = tried * (len(functions) + int(positions[-1]))
    p_value = min(1.0, choices * _tail(many, float(entropies[best])))
    bits = float(many.mean() - entropies[best])
    return OrderInformation(bits, p_value) if bits >= MIN_INFORMATION else OrderInformation()


def _functions(values: IntVector, positions: IntVector, generator: np.random.Generator) -> Iterator[IntVector]:
    """Yield the functions of the position that are tried: numbers of blocks, and residues of likely periods."""
    n = len(values)
    blocks = 4
    while n >= 8 * blocks:
        yield np.arange(n) * blocks // n
        blocks *= 4
    for period in _likely_periods(values, positions, generator):
        yield positions % period


def _likely_periods(values: IntVector, positions: IntVector, generator: np.random.Generator) -> list[int]:
    """Return the lags at which equal values are most frequent, compared with chance.

    Each value is a random point of the unit circle. The autocorrelation of the points estimates the share of equal
    values at every lag at once, by two Fourier transforms.
    """
    length, limit = int(positions[-1]) + 1, int(positions[-1] + 1) // 3
    if limit < 2:  # noqa: PLR2004 - period 1 says nothing
        return []
    size = 1 << (2 * length - 1).bit_length()
    total = np.zeros(limit + 2)
    for _ in range(DRAWS):
        points = np.exp(2j * np.pi * generator.random(int(values.max()) + 1))[values]
        series = np.zeros(size, dtype=np.complex128)
        series[positions] = points - points.mean()
        total += np.fft.ifft(np.abs(np.fft.fft(series)) ** 2).real[: limit + 2]
    scores = total / np.sqrt(length - np.arange(limit + 2))
    is_peak = (scores[2:-1] >= scores[1:-2]) & (scores[2:-1] >= scores[3:])
    peaks = np.flatnonzero(is_peak) + 2
    return [int(lag) for lag in peaks[np.argsort(-scores[peaks], kind="stable")][:PERIODS]]


def _joint_entropy(values: IntVector, labels: IntVector) -> float:
    """Return the entropy of pairs in bits. Mutual information is this, subtracted from a constant."""
    n, width = len(values), int(labels.max()) + 1
    pairs = values * width + labels
    if (int(values.max()) + 1) * width <= FEW_PAIRS * n:
        counts = np.bincount(pairs)
        counts = counts[counts > 0]
    else:  # most pairs do not occur
        pairs.sort()
        counts = np.diff(np.flatnonzero(np.concatenate(([True], pairs[1:] != pairs[:-1], [True]))))
    return math.log2(n) - float((counts * np.log2(counts)).sum()) / n


def _tail(shuffled: npt.NDArray[np.float64], entropy: float) -> float:
    """Return the probability that a permutation has this entropy or less, by a gamma distribution (Wilson-Hilferty)."""
    deviation = 1.2 * float(shuffled.std(ddof=1))
    distance = float(shuffled.mean()) - entropy
    if deviation <= 0:
        return 1.0
    standard = (shuffled.mean() - shuffled) / shuffled.std(ddof=1)
    skewness = 0.5 + max(0.0, float((standard**3).mean()))
    shape = 4 / skewness**2
    ratio = max(0.0, 1 + distance / deviation / math.sqrt(shape))
    normal = (ratio ** (1 / 3) - 1 + 1 / (9 * shape)) * math.sqrt(9 * shape)
    return math.erfc(normal / math.sqrt(2)) / 2


def _quantiles(ranks: npt.NDArray[np.float64]) -> IntVector:
    """Return the quantile of each value, from 0; nulls are a class of their own."""
    known = ~np.isnan(ranks)
    found = np.full(len(ranks), BINS, dtype=np.int64)
    order = np.unique(ranks[known], return_inverse=True)
    positions = (np.searchsorted(np.sort(ranks[known]), order[0]))[order[1]]
    found[known] = positions * BINS // max(1, int(known.sum()))
    return found
