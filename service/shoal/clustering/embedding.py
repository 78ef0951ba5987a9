"""Attributes to coordinates, on which distances are computed, and members' values to published values.

Published centroids are computed here only, from raw values in original units.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple, Self

import numpy as np

from shoal.arrays import BoolMatrix, Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.clustering.numba.exact_sums import divide_sums, sum_clusters
from shoal.errors import ParameterError
from shoal.policy.resolved import Policy

__all__ = ["Embedding", "PublicationGrid", "Published", "exact_means"]

SMALLEST, LARGEST = Decimal("1e-300"), Decimal("1e300")
"""Smallest and largest resolution; floats can be divided by it, and no unit of measure needs more."""

MANY_STEPS = 1e13
"""Multiple of the resolution from which a float cannot show on which side of a tie a mean is."""

CACHED_TEXTS = 1 << 14
"""Texts cached per attribute; far more than the multiples of a resolution between usual bounds."""


class Published(NamedTuple):
    """Published values of G clusters.

    Attributes
    ----------
    texts : list of list of str
        For each cluster its d numbers as written.
    values : float64 (G, d)
        The same numbers as floats.
    """

    texts: list[list[str]]
    values: Float64Matrix


class Embedding:
    """Translates a policy's quasi-identifiers to coordinates and to published values.

    Parameters
    ----------
    origin, unit : ndarray of float64, shape (d,)
        Subtracted from raw values, and then divided by; ``unit`` is above 0. In original units.
    weights : ndarray of float64, shape (d,)
        Factors of the coordinates.
    grid : PublicationGrid
        The grid of published values.
    """

    def __init__(
        self, origin: Float64Vector, unit: Float64Vector, weights: Float64Vector, grid: PublicationGrid
    ) -> None:
        self._origin = origin
        self.unit = unit
        self._weights = weights
        self._grid = grid

    @classmethod
    def of(cls, policy: Policy, widths: Float64Vector | None = None) -> Self:
        """Return the embedding of a stream's policy.

        Parameters
        ----------
        policy : Policy
            With bounds for its quasi-identifiers, except those that have ``widths``.
        widths : ndarray of float64, optional
            Widths of the ranges of attributes without bounds, in their order. A difference of one width becomes 1.

        Raises
        ------
        ParameterError
            A quasi-identifier has neither bounds nor a width.
        """
        attributes = policy.quasi_identifiers
        missing = [attribute.name for attribute in attributes if attribute.bounds is None]
        if len(missing) != (0 if widths is None else len(widths)):
            raise ParameterError(f"bounds: missing for {', '.join(missing)}")
        bounds = np.array([attribute.bounds or (0.0, 1.0) for attribute in attributes])
        weights = np.array([attribute.weight for attribute in attributes])
        unit = bounds[:, 1] - bounds[:, 0]
        if widths is not None:
            unit[[attribute.bounds is None for attribute in attributes]] = widths
        return cls(
            bounds[:, 0], unit, weights, PublicationGrid([attribute.publication_step() for attribute in attributes])
        )

    @classmethod
    def of_table(cls, policy: Policy, values: Float64Matrix) -> Self:
        """Return the embedding of a finished table: z-scores of its raw values (n, d).

        The deviation is that of the population (ddof = 0). For a constant attribute it is taken to be 1.
        """
        attributes = policy.quasi_identifiers
        with np.errstate(over="ignore", invalid="ignore"):  # coordinates that overflow are rejected later
            deviation = values.std(axis=0)
            mean = values.mean(axis=0)
        weights = np.array([attribute.weight for attribute in attributes])
        grid = PublicationGrid([attribute.publication_step(table=policy.stream is None) for attribute in attributes])
        varies = values.min(axis=0) < values.max(axis=0)  # the computed deviation of equal numbers may not be 0
        varies &= deviation > 0  # the deviation of numbers below 1e-160 underflows
        return cls(mean, np.where(varies, deviation, 1.0), weights, grid)

    def coordinates(self, values: Float64Matrix) -> Float64Matrix:
        """Scale raw values to [0, 1] by bounds (streams) or to z-scores (tables), and multiply them by the weights.

        Parameters
        ----------
        values : ndarray of float64, shape (n, d)
            Within the bounds, in original units; not modified.

        Returns
        -------
        ndarray of float64, shape (n, d)
            New; dimensionless.
        """
        return (values - self._origin) / self.unit * self._weights

    def select(self, columns: Int64Vector) -> Embedding:
        """Return the embedding of some attributes, given by their indices."""
        grid = PublicationGrid([self._grid.resolutions[column] for column in columns.tolist()])
        return Embedding(self._origin[columns], self.unit[columns], self._weights[columns], grid)

    def published(self, values: Float64Matrix, cluster_bounds: Int64Vector) -> Published:
        """Return the published values of clusters of raw values; see `PublicationGrid.published`."""
        return self._grid.published(values, cluster_bounds)


class PublicationGrid:
    """The grid of published values: multiples of one resolution per attribute.

    Parameters
    ----------
    resolutions : list of Decimal
        One per attribute, in its units, 0 or more. With 0 the exact mean is published.

    Raises
    ------
    ParameterError
        A resolution is negative, or too small or too large for floats.
    """

    def __init__(self, resolutions: list[Decimal]) -> None:
        if any(resolution and not SMALLEST <= resolution <= LARGEST for resolution in resolutions):
            raise ParameterError(f"resolution: must be 0 or within {SMALLEST} and {LARGEST}")
        self.resolutions = resolutions
        self._steps = [_Step(resolution) if resolution else None for resolution in resolutions]
        self._per_unit = np.array([0.0 if step is None else step.per_unit for step in self._steps])

    def published(self, values: Float64Matrix, cluster_bounds: Int64Vector) -> Published:
        """Return the published values of clusters.

        Parameters
        ----------
        values : ndarray of float64, shape (E, d)
            Raw values of the members, cluster after cluster; finite; not modified.
        cluster_bounds : ndarray of int64, shape (G + 1,)
            Cluster g is ``values[cluster_bounds[g]:cluster_bounds[g + 1]]``, and not empty.

        Returns
        -------
        Published
            Texts of JSON numbers and the floats nearest to them.

        Notes
        -----
        Definition: with a resolution r, the exact rational mean of the members' floats is divided by r, rounded to an
        integer with ties to even, multiplied by r and written with the decimals of r; zero has no sign. With r = 0 it
        is rounded to the nearest float, ties to even, and written by ``repr``: it is never outside the range of the
        members. Neither depends on the order of the members.

        Cost: 2 ns per value and 0.2 µs per number; some µs more where the mean is too close to a tie for floats.
        """
        sums = _Sums(values, cluster_bounds)
        totals = sums.totals
        multiples, certain = self._multiples(totals, sums.exact, np.diff(cluster_bounds)[:, None])
        published = sums.means() if None in self._steps else np.empty_like(totals)
        columns = []
        for column, step in enumerate(self._steps):
            if step is None:
                columns.append([repr(mean) for mean in published[:, column].tolist()])
                continue
            steps: list[int] = multiples[:, column].tolist()
            for cluster in np.flatnonzero(~certain[:, column]).tolist():
                steps[cluster] = step.nearest(*sums.exact_total(cluster, column))
            columns.append(step.texts(steps))
            published[:, column] = [number * step.whole / step.unit for number in steps]
        return Published([list(row) for row in zip(*columns, strict=True)], published)

    def _multiples(
        self, totals: Float64Matrix, exact: BoolMatrix, sizes: Int64Matrix
    ) -> tuple[Int64Matrix, BoolMatrix]:
        """Divide means by their resolution in floats and round half to even; return also where that is certain."""
        with np.errstate(over="ignore", invalid="ignore"):  # a quotient that overflows is not certain
            quotients = totals / sizes * self._per_unit
            nearest = np.rint(quotients)
            steps = np.abs(quotients)
            # Four roundings change the quotient by less than 1e-15 of it; the margins are far wider.
            from_tie = 0.5 - np.abs(quotients - nearest)
            certain = exact & (steps < MANY_STEPS) & (from_tie > 1e-6 + 1e-14 * steps)
        return np.where(certain, nearest, 0.0).astype(np.int64), certain


class _Step:
    """A resolution above 0, as the fraction ``whole`` / ``unit``; ``per_unit`` is its reciprocal."""

    def __init__(self, resolution: Decimal) -> None:
        above, below = resolution.as_integer_ratio()
        self._decimals = max(0, -int(resolution.as_tuple().exponent))
        self._written: dict[int, str] = {}
        self.unit: int = 10**self._decimals
        self.whole: int = above * self.unit // below
        self.per_unit = self.unit / self.whole

    def nearest(self, total: float | Fraction, size: int) -> int:
        """Return the multiple nearest to ``total`` / ``size``, computed exactly; ties to even."""
        above, below = total.as_integer_ratio()
        whole = below * size * self.whole
        number, rest = divmod(above * self.unit, whole)
        is_up = 2 * rest > whole or (2 * rest == whole and number % 2 == 1)
        return number + 1 if is_up else number

    def texts(self, multiples: list[int]) -> list[str]:
        """Write multiples of the resolution with its decimals."""
        if len(self._written) > CACHED_TEXTS:
            self._written.clear()
        return [self._written.get(multiple) or self._write(multiple) for multiple in multiples]

    def _write(self, multiple: int) -> str:
        number = multiple * self.whole
        text = str(abs(number)).zfill(self._decimals + 1)
        if self._decimals:
            text = f"{text[: -self._decimals]}.{text[-self._decimals :]}"
        text = f"-{text}" if number < 0 else text
        self._written[multiple] = text
        return text


def exact_means(values: Float64Matrix, cluster_bounds: Int64Vector) -> Float64Matrix:
    """Return the means of clusters: the floats nearest to the exact means, independent of the order of members.

    Parameters
    ----------
    values : ndarray of float64, shape (E, d)
        Members, cluster after cluster; finite; not modified.
    cluster_bounds : ndarray of int64, shape (G + 1,)
        Cluster g is ``values[cluster_bounds[g]:cluster_bounds[g + 1]]``, and not empty.

    Returns
    -------
    ndarray of float64, shape (G, d)
        New; in the units of ``values``. Ties go to the even float, and zero has no sign.
    """
    return _Sums(values, cluster_bounds).means()


class _Sums:
    """Sums of clusters: ``totals`` plus residuals, both float64 (G, d), where ``exact``; elsewhere not representable.

    Parameters are those of `exact_means`.
    """

    def __init__(self, values: Float64Matrix, cluster_bounds: Int64Vector) -> None:
        self._values = np.require(values, np.float64, ["C", "W"])  # as kernels need them
        self._bounds = cluster_bounds
        self.totals = np.empty((len(cluster_bounds) - 1, values.shape[1]))
        self._residuals = np.empty_like(self.totals)
        self.exact: BoolMatrix = np.empty(self.totals.shape, np.bool_)
        sum_clusters(self._values, cluster_bounds, self.totals, self._residuals, self.exact)

    def means(self) -> Float64Matrix:
        """Return the means, each rounded once."""
        means, certain = np.empty_like(self.totals), np.empty_like(self.exact)
        divide_sums(self.totals, self._residuals, self.exact, self._bounds, means, certain)
        for cluster, column in np.argwhere(~certain).tolist():
            total, size = self.exact_total(cluster, column)
            means[cluster, column] = float(Fraction(total) / size) + 0.0
        return means

    def exact_total(self, cluster: int, column: int) -> tuple[float | Fraction, int]:
        """Return the exact sum of one attribute of a cluster, and the size of the cluster."""
        first, last = self._bounds[cluster : cluster + 2].tolist()
        if not self.exact[cluster, column]:
            return sum(map(Fraction, self._values[first:last, column].tolist()), Fraction()), last - first
        total, rest = float(self.totals[cluster, column]), float(self._residuals[cluster, column])
        return Fraction(total) + Fraction(rest) if rest else total, last - first
