"""`ProtectedReader`: the values of the protected attributes of a block, numbered by their keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.arrays import BoolVector
from shoal.policy import Attribute, Policy
from shoal.records.block import ProtectedValues
from shoal.records.confidential_keys import ConfidentialKeys, Key
from shoal.records.fault_reasons import FaultReason
from shoal.records.numerals import is_json_number

__all__ = ["ProtectedReader", "describe_unplaced"]


class ProtectedReader:
    """Reads the protected attributes of records.

    Parameters
    ----------
    policy : Policy
        There is nothing to read if it protects no values.
    """

    def __init__(self, policy: Policy) -> None:
        names = [attribute.name for attribute in policy.unchanged_fields]
        self._columns = [
            (names.index(attribute.name), _ProtectedColumn(policy, attribute)) for attribute in policy.protected
        ]

    def __len__(self) -> int:
        return len(self._columns)

    def read(self, unchanged_columns: Sequence[Sequence[Any]], count: int) -> tuple[ProtectedValues, BoolVector]:
        """Return the values of records, and which of the records have values that the references can place.

        Parameters
        ----------
        unchanged_columns : sequence of sequences
            As in `ParsedRecords`.
        count : int
            Number of records n.

        Notes
        -----
        Cost: about 0.2 µs per value.
        """
        numbers = np.empty((count, len(self._columns)), np.int64)
        keys_of_columns: list[list[Key]] = []
        are_placed = np.ones(count, np.bool_)
        for position, (number, column) in enumerate(self._columns):
            known: dict[Key, int] = {}
            keys = column.keys.keys(unchanged_columns[number])
            numbers[:, position] = [known.setdefault(key, len(known)) for key in keys]
            keys_of_columns.append(list(known))
            unplaced = [index for key, index in known.items() if column.describe_unplaced(key)]
            if unplaced:
                are_placed &= ~np.isin(numbers[:, position], unplaced)
        return ProtectedValues(numbers, keys_of_columns), are_placed


def describe_unplaced(policy: Policy, attribute: Attribute, value: object) -> str:
    """Return why a typed value cannot be compared with others of its attribute; empty if it can."""
    if attribute not in policy.protected:
        return ""
    column = _ProtectedColumn(policy, attribute)
    return column.describe_unplaced(column.keys.key(value))


class _ProtectedColumn:
    """One protected attribute, and the values that it may have."""

    def __init__(self, policy: Policy, attribute: Attribute) -> None:
        self.keys = ConfidentialKeys(attribute, policy.missing_values)
        has_order = policy.t is not None and attribute.distance == "ordered"
        self._categories = {self.keys.key_of_text(str(item)) for item in attribute.order} if has_order else set()
        self._needs_number = has_order and not attribute.order
        self._not_number = (
            FaultReason.NOT_NUMBER_AS_SCALE if attribute.reference is None else FaultReason.NOT_NUMBER_AS_REFERENCE
        )

    def describe_unplaced(self, key: Key) -> str:
        """Return why the reference cannot place a key; empty if it can."""
        if key is None:
            return ""
        if self._needs_number:
            return "" if is_json_number(key) else self._not_number
        return FaultReason.NOT_IN_ORDER if self._categories and key not in self._categories else ""
