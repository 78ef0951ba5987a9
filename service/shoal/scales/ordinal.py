"""Scale ``ordinal``: categories with an order. A value is the rank of its category, from 0."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import msgspec
import numpy as np

from shoal.arrays import Float64Vector, Int64Vector
from shoal.policy import Attribute, Scale
from shoal.scales.scale import (
    INVALID,
    AttributeScale,
    Publisher,
    ScaleColumn,
    ScaleFault,
    ScaleReader,
    cluster_of_each,
    text_of,
    whole_text,
)

NOT_IN_ORDER = ScaleFault("not in its order", "add the category to order, or correct the values")


class OrdinalScale(AttributeScale, scale=Scale.ORDINAL):
    """Ranks are coordinates; a cluster publishes the lower median."""

    has_categories = True
    faults = (NOT_IN_ORDER,)
    smallest_step = 1.0
    off_scale = NOT_IN_ORDER
    one_type = "write the items of {}.order as texts only, or as integers only"

    @property
    def pattern(self) -> str:
        """Any item of the order."""
        return "|".join(map(re.escape, self._items()))

    @property
    def published_types(self) -> set[type]:
        """Those of the items."""
        return set(map(type, self.attribute.order))

    def reader(self, missing_values: Iterable[str], *, has_commas: bool = False) -> ScaleReader:
        """Return what converts categories to ranks."""
        return _OrdinalReader(self.attribute, missing_values, has_commas=has_commas)

    def values_at(self, shares: Float64Vector) -> Float64Vector:
        """Return ranks, which are whole numbers."""
        return np.rint(super().values_at(shares))

    def publisher(self, *, is_exact: bool, is_table: bool) -> Publisher:  # noqa: ARG002
        """Return what computes medians."""
        return _Medians(self._items())

    def _items(self) -> list[str]:
        """Return the items of the order as JSON scalars."""
        return [msgspec.json.encode(item).decode() for item in self.attribute.order]


class _Medians(Publisher):
    """The lower median of the ranks, written as the item of the order.

    References
    ----------
    .. [1] J. Domingo-Ferrer and V. Torra, "Ordinal, Continuous and Heterogeneous k-Anonymity Through
       Microaggregation", Data Mining and Knowledge Discovery 11(2), 2005. doi:10.1007/s10618-005-0007-5
    """

    def __init__(self, texts: list[str]) -> None:
        self._texts = texts

    def publish(self, values: Float64Vector, bounds: Int64Vector) -> tuple[list[str], Float64Vector]:
        """Return the item at the index (n - 1) // 2 of the sorted ranks of n members."""
        sizes = np.diff(bounds)
        ordered = values[np.lexsort((values, cluster_of_each(bounds)))]
        medians = ordered[bounds[:-1] + (sizes - 1) // 2]
        return [self._texts[rank] for rank in medians.astype(np.int64).tolist()], medians


class _OrdinalReader(ScaleReader):
    """Ranks of categories with an order."""

    def __init__(self, attribute: Attribute, missing_values: Iterable[str], *, has_commas: bool = False) -> None:
        super().__init__(attribute, missing_values, has_commas=has_commas)
        self._ranks: dict[str | None, float] = {str(item): float(rank) for rank, item in enumerate(attribute.order)}

    def _parse(self, column: Sequence[Any]) -> ScaleColumn:
        texts = column if set(map(type, column)) <= {str} else map(text_of, column)
        return ScaleColumn(np.fromiter(map(self._ranks.get, texts, repeat(INVALID)), np.float64, len(column)))

    def _parse_cells(self, cells: Sequence[str]) -> ScaleColumn:
        """Match 2.0 with the item 2, as in typed formats: programs write whole numbers with a point."""
        if self._ranks.keys() >= set(cells):
            return self._parse(cells)
        return self._parse([cell if cell in self._ranks else whole_text(cell) or cell for cell in cells])
