"""Confidential values as numbers a table can be measured by: block by block, of words each different one once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.arrays import LARGEST, BoolVector, Float64Matrix, Float64Vector
from shoal.clustering.static import ConfidentialAttribute
from shoal.policy import Attribute
from shoal.records import FIRST_INEXACT, to_exact_number, to_number

__all__ = ["ConfidentialColumn", "standardised"]


@dataclass(slots=True)
class ConfidentialColumn:
    """One confidential attribute.

    Numbers (types ``integer`` and ``number``, and ``any`` if every value is a number) lie on a line, others are
    categories. No value (null, or an empty cell of a number) is one of its own, before all others.
    """

    attribute: Attribute
    _parts: list[Any]
    _codes: dict[Any, int]
    _large: dict[int, float] = field(default_factory=dict)
    """By the number of the record: whole numbers that float64 does not tell apart."""
    _count: int = 0

    @classmethod
    def of(cls, attribute: Attribute) -> ConfidentialColumn:
        """Begin with nothing."""
        return cls(attribute, [], {})

    def add(self, column: Sequence[Any]) -> None:
        """Take the values of the next records."""
        if self.attribute.type in {"integer", "number"}:
            numbers = np.fromiter((to_number(value) or 0.0 for value in column), np.float64, len(column))
            for place in np.flatnonzero(np.abs(numbers) >= FIRST_INEXACT).tolist():
                self._large[self._count + place] = to_exact_number(column[place]) or 0.0
            self._parts.append(numbers)
            self._count += len(column)
            return
        codes = self._codes
        # True == 1 in Python, and nowhere else.
        keys = [(value,) if isinstance(value, bool) else value for value in column]
        self._parts.append(np.fromiter((codes.setdefault(key, len(codes)) for key in keys), np.int64, len(keys)))

    def values(self) -> Float64Vector | None:
        """Return the numbers (n,), NaN where there is none; None if they are categories."""
        column: NDArray[Any] = np.concatenate(self._parts)
        if self.attribute.type in {"integer", "number"}:
            return column.astype(np.float64)
        known = [to_number(key) for key in self._codes]
        if self.attribute.type != "any" or any(number is None for number in known):
            return None
        numbers: Float64Vector = np.array(known, np.float64)
        return np.asarray(numbers[column], np.float64)

    def bins(self, chosen: BoolVector) -> ConfidentialAttribute:
        """Return the attribute of the chosen records as bins: by value where there are numbers."""
        values = self.values()
        column = np.concatenate(self._parts) if values is None else np.where(np.isnan(values), -np.inf, values)
        large = {} if values is None else self._large_numbers(values)
        if large:
            exact = [large.get(place, column[place].item()) for place in np.flatnonzero(chosen).tolist()]
            ranks = {number: rank for rank, number in enumerate(sorted(set(exact)))}
            return ConfidentialAttribute(np.array([ranks[number] for number in exact]), ordered=True)
        return ConfidentialAttribute(np.unique(column[chosen], return_inverse=True)[1], values is not None)

    def _large_numbers(self, values: Float64Vector) -> dict[int, float]:
        """Return the exact numbers of records that a float64 may not tell from others."""
        if self.attribute.type in {"integer", "number"}:
            return self._large
        codes, known = np.concatenate(self._parts), [to_exact_number(key) for key in self._codes]
        places = np.flatnonzero(np.abs(values) >= FIRST_INEXACT).tolist()
        return {place: known[codes[place]] or 0.0 for place in places}


def standardised(columns: Sequence[Float64Vector], n: int) -> Float64Matrix:
    """Return z-scores (n, m) of numbers, NaN where there is none (or beyond 1e150); 0 where nothing varies."""
    scaled = np.empty((n, len(columns)))
    for number, column in enumerate(columns):
        usable = np.where(np.abs(column) < LARGEST, column, np.nan)
        known = usable[~np.isnan(usable)]
        varies = len(known) > 0 and known.min() < known.max()
        mean, deviation = (known.mean(), known.std()) if varies else (known[0] if len(known) else 0.0, 1.0)
        scaled[:, number] = (usable - mean) / (deviation if deviation > 0 else 1.0)
    return scaled
