"""The grid of published means: multiples of one resolution per numeric attribute."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from shoal.arrays import BoolMatrix, Float64Matrix, Int64Matrix, Int64Vector
from shoal.clustering.embedding.exact_means import MemberSums
from shoal.errors import ParameterError

__all__ = ["PublicationGrid", "Published"]

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
        sums = MemberSums(values, cluster_bounds)
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
