"""Confidential attributes of a table as numbers or categories, collected block by block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.arrays import LARGEST, BoolVector, Float64Matrix, Float64Vector
from shoal.clustering.static import ConfidentialAttribute
from shoal.policy import Attribute
from shoal.records import FIRST_INEXACT, ConfidentialKeys, to_exact_number, to_number

__all__ = ["ConfidentialColumn", "z_scores"]


@dataclass(slots=True)
class ConfidentialColumn:
    """One confidential attribute.

    An attribute is numeric if its type is ``integer`` or ``number``, or ``any`` and every value is a number. Otherwise
    its values are categories. A missing value (null, a value of ``missing_values``, or an empty cell of a numeric
    attribute) is a value of its own, smaller than all others. Each distinct category is stored once.
    """

    attribute: Attribute
    _keys: ConfidentialKeys
    _parts: list[Any]
    _codes: dict[Any, int]
    _inexact: dict[int, float] = field(default_factory=dict)
    """Record number -> number that float64 does not represent exactly."""
    _count: int = 0

    @classmethod
    def of(cls, attribute: Attribute, missing_values: Sequence[str]) -> ConfidentialColumn:
        """Return an empty column; ``missing_values`` are those of the policy."""
        return cls(attribute, ConfidentialKeys(attribute, missing_values), [], {})

    def add(self, column: Sequence[Any]) -> None:
        """Add the values of the next records."""
        column = self._keys.without_missing(column)
        if self.attribute.type in {"integer", "number"}:
            numbers = np.fromiter((to_number(value) or 0.0 for value in column), np.float64, len(column))
            for index in np.flatnonzero(np.abs(numbers) >= FIRST_INEXACT).tolist():
                self._inexact[self._count + index] = to_exact_number(column[index]) or 0.0
            self._parts.append(numbers)
            self._count += len(column)
            return
        codes = self._codes
        # True == 1 in Python: keep booleans apart from numbers.
        keys = [(value,) if isinstance(value, bool) else value for value in column]
        self._parts.append(np.fromiter((codes.setdefault(key, len(codes)) for key in keys), np.int64, len(keys)))

    def numbers(self) -> Float64Vector | None:
        """Return the numbers (n,), NaN for a missing value; None if the attribute is categorical."""
        column: NDArray[Any] = np.concatenate(self._parts)
        if self.attribute.type in {"integer", "number"}:
            return column.astype(np.float64)
        known = [to_number(key) for key in self._codes]
        if self.attribute.type != "any" or any(number is None for number in known):
            return None
        numbers: Float64Vector = np.array(known, np.float64)
        return np.asarray(numbers[column], np.float64)

    def bins(self, chosen: BoolVector) -> ConfidentialAttribute:
        """Return the bins of the chosen records; numeric bins are ordered by value."""
        values = self.numbers()
        column = np.concatenate(self._parts) if values is None else np.where(np.isnan(values), -np.inf, values)
        inexact = {} if values is None else self._inexact_numbers(values)
        if inexact:
            exact = [inexact.get(index, column[index].item()) for index in np.flatnonzero(chosen).tolist()]
            ranks = {number: rank for rank, number in enumerate(sorted(set(exact)))}
            return ConfidentialAttribute(np.array([ranks[number] for number in exact]), ordered=True)
        return ConfidentialAttribute(np.unique(column[chosen], return_inverse=True)[1], values is not None)

    def _inexact_numbers(self, values: Float64Vector) -> dict[int, float]:
        """Return the exact numbers that float64 does not represent, by record number."""
        if self.attribute.type in {"integer", "number"}:
            return self._inexact
        codes, known = np.concatenate(self._parts), [to_exact_number(key) for key in self._codes]
        indices = np.flatnonzero(np.abs(values) >= FIRST_INEXACT).tolist()
        return {index: known[codes[index]] or 0.0 for index in indices}


def z_scores(columns: Sequence[Float64Vector], n: int) -> Float64Matrix:
    """Return the z-scores (n, m) of m columns: NaN for a missing value or one beyond 1e150, 0 in a constant column."""
    scaled = np.empty((n, len(columns)))
    for number, column in enumerate(columns):
        usable = np.where(np.abs(column) < LARGEST, column, np.nan)
        known = usable[~np.isnan(usable)]
        varies = len(known) > 0 and known.min() < known.max()
        mean, deviation = (known.mean(), known.std()) if varies else (known[0] if len(known) else 0.0, 1.0)
        scaled[:, number] = (usable - mean) / (deviation if deviation > 0 else 1.0)
    return scaled
