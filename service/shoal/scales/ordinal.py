"""Scale ``ordinal``: categories with an order. A value is the rank of its category, from 0."""

from __future__ import annotations

import re

import msgspec
import numpy as np

from shoal.arrays import Float64Vector, Int64Vector
from shoal.policy import Scale
from shoal.scales.scale import AttributeScale, Publisher, ScaleFault, cluster_of_each

__all__ = ["OrdinalScale"]

NOT_IN_ORDER = ScaleFault("not in its order", "add the category to order, or correct the values")


class OrdinalScale(AttributeScale, scale=Scale.ORDINAL):
    """Ranks are coordinates; a cluster publishes the lower median."""

    has_categories = True
    faults = (NOT_IN_ORDER,)

    @property
    def smallest_step(self) -> float:
        """One rank."""
        return 1.0

    @property
    def pattern(self) -> str:
        """Any item of the order."""
        return "|".join(map(re.escape, self._items()))

    @property
    def off_scale(self) -> ScaleFault:
        """The category is not in the order."""
        return NOT_IN_ORDER

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
