"""The protected attributes of a table: value codes, and bins in the reference of the policy or in the table itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.arrays import BoolVector, Int64Vector
from shoal.clustering.static import ConfidentialAttribute
from shoal.errors import GuaranteeError
from shoal.pipeline.value_index import value_reference_of
from shoal.policy import Attribute, Policy
from shoal.records import NO_BIN, Block, Key, ReferenceBins

__all__ = ["ProtectedColumns"]


class ProtectedColumns:
    """Collects the values of the protected attributes of a table, block by block.

    Parameters
    ----------
    policy : Policy

    Notes
    -----
    Memory: one number per record and attribute; each distinct value is stored once.
    """

    def __init__(self, policy: Policy) -> None:
        self._columns = [_ColumnOfTable(attribute, policy) for attribute in policy.protected]

    def add(self, block: Block) -> None:
        """Add the values of the next records.

        Raises
        ------
        GuaranteeError
            The block does not have the values of the protected attributes.
        """
        if not self._columns or not len(block):
            return
        if block.protected is None:
            raise GuaranteeError("a block lacks the values of the protected attributes")
        numbers, keys = block.protected
        for position, column in enumerate(self._columns):
            column.add(numbers[:, position], keys[position])

    def attributes(self, chosen: BoolVector) -> dict[str, ConfidentialAttribute]:
        """Return the attributes by name, for the chosen records.

        The reference of an attribute is that of the policy; without one, the distribution of the chosen records.

        Raises
        ------
        GuaranteeError
            A reference cannot place a value of a chosen record, which decoders refuse.
        """
        return {column.attribute.name: column.of(chosen) for column in self._columns}


class _ColumnOfTable:
    """The values of one protected attribute."""

    def __init__(self, attribute: Attribute, policy: Policy) -> None:
        self.attribute = attribute
        self._missing_values = policy.missing_values
        self._has_bins = policy.t is not None
        self._codes: dict[Key, int] = {}
        self._parts: list[Int64Vector] = [np.empty(0, np.int64)]

    def add(self, numbers: Int64Vector, keys: Sequence[Key]) -> None:
        """Add values, given as indices in ``keys``."""
        codes = np.array([self._codes.setdefault(key, len(self._codes)) for key in keys], np.int64)
        self._parts.append(codes[numbers])

    def of(self, chosen: BoolVector) -> ConfidentialAttribute:
        """Return the attribute for the chosen records.

        The bins of categories of the table itself are in the order of their first records. Without t, so are all.
        """
        codes, keys = np.concatenate(self._parts)[chosen], list(self._codes)
        if not self._has_bins:
            return ConfidentialAttribute(codes, ordered=False)
        counts = np.bincount(codes, minlength=len(keys)).tolist()
        present = {key: float(count) for key, count in zip(keys, counts, strict=True) if count}
        reference = ReferenceBins(
            self.attribute, self._missing_values, None if self.attribute.reference is not None else present
        )
        if self.attribute.reference is None and reference.distance == "equal":
            return ConfidentialAttribute(np.unique(codes, return_inverse=True)[1], ordered=False, values=codes)
        bins = np.array([reference.bin_of(key) if key in present else 0 for key in keys], np.int64)
        if (bins == NO_BIN).any():
            raise GuaranteeError("a record has a confidential value that its reference cannot place")
        is_ordered = reference.distance == "ordered"
        return ConfidentialAttribute(bins[codes], is_ordered, value_reference_of(reference), codes)
