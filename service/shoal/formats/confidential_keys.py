"""Keys of confidential values, by which they are counted, and their bins in the reference of a policy.

Two values are one value for l-diversity, for the largest share of a value and for t-closeness if their keys are equal.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from decimal import Context, Decimal, Inexact
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from shoal.arrays import BoolVector, Int64Matrix
from shoal.errors import ParameterError
from shoal.formats.faults import FaultReason
from shoal.formats.json_text import canonical_json, canonical_number, document_key, is_json_number
from shoal.policy import Attribute, Policy, Reference
from shoal.policy.texts import fold_characters
from shoal.scales import scale_of

Key: TypeAlias = str | None

NO_BIN: Final = -1
"""Takes the place of a bin where a value cannot be compared with the reference, so that its record is invalid."""

_CACHED_TEXTS = 4096
"""Texts whose keys are kept. Most confidential attributes have few different values."""
_OTHER = "\0"
"""Stands for all values that have no bin of their own. It is not a key: no taxonomy has such a name."""
_EXACT = Context(prec=2000, traps=[Inexact])
"""For the midpoints of two numbers in the range of float64: no digit is lost."""
_LARGEST_POWER = 10**17
"""Largest power of ten that numbers are compared with. Decimal has a limit, which long digits can exceed."""


class ConfidentialKeys:
    """The keys of the values of one confidential attribute; ``missing_values`` are those of the policy.

    A key is a text, or None for a missing value: None, an empty text, a text of ``missing_values``, or an equal
    number; of ``json`` only null. Of ``any``, ``integer`` and ``number``, numbers and their texts are exact, so
    that 1, ``"1"`` and ``"10e-1"`` have one key; of ``string``, ``"7"`` and ``"007"`` differ. Texts are compared as
    `fold_characters` returns them, and documents by `document_key`. A truth value has the key of its JSON text.
    """

    def __init__(self, attribute: Attribute, missing_values: Iterable[str]) -> None:
        self._has_numbers = attribute.type in {"any", "integer", "number"}
        self._is_json = attribute.type == "json"
        self._is_boolean = attribute.type == "boolean"
        self._missing = frozenset() if self._is_json else frozenset(map(self._of_text, missing_values))
        self._cache: dict[str, Key] = {}

    def keys(self, column: Sequence[Any]) -> list[Key]:
        """Return the keys of typed values. Cost: 0.1 µs for a text that occurs often, and 1 µs for any other value."""
        cache = self._cache
        if len(cache) > _CACHED_TEXTS:
            cache.clear()
        keys = []
        for value in column:
            if type(value) is not str:
                keys.append(self.key(value))
                continue
            if value not in cache:
                cache[value] = self.key(value)
            keys.append(cache[value])
        return keys

    def key(self, value: object) -> Key:
        """Return the key of one typed value."""
        if value is None or value is msgspec.UNSET:
            return None
        if isinstance(value, bool):
            key: Key = "true" if value else "false"
        elif isinstance(value, int | float):
            key = canonical_number(repr(value)) or repr(value)
        else:
            key = document_key(str(value)) if self._is_json else self._of_text(str(value))
        return None if key in self._missing else key

    def without_missing(self, column: Sequence[Any]) -> Sequence[Any]:
        """Return typed values with None in place of those that are missing by a text other than the empty one."""
        if not self._missing - {None}:
            return column
        return [None if key is None else value for value, key in zip(column, self.keys(column), strict=True)]

    def key_of_text(self, text: str | None) -> Key:
        """Return the key of a text of a reference, an order or a taxonomy; ParameterError if it should be JSON."""
        if text is not None and self._is_json:
            try:
                return self.key(canonical_json(text.encode()))
            except ValueError:
                raise ParameterError("reference: a value is not JSON") from None
        return self.key(text.lower() if text is not None and self._is_boolean else text)

    def _of_text(self, text: str) -> Key:
        folded = fold_characters(text)
        if self._has_numbers and is_json_number(folded):
            return canonical_number(folded) or folded
        return folded or None


class ReferenceBins:
    """The bins of a reference: each key of a record has one, and each bin has a share.

    ``counts``, records per key, take the place of the reference of the policy: a table can be compared with its own
    values. ``shares`` (b,) are 0 for values that the reference does not list. ``paths`` (b, levels) are the nodes
    of the bins in the taxonomy, the leaf first, numbered from 0 at each level; the bins below one node follow one
    another.

    A number that is not listed has the bin of the nearest one, of the lower one if two are equally near, and a
    missing value the lowest bin. Of values that are not ordered, all others have one last bin, with share 0; in a
    taxonomy it is a leaf of its own directly below the root, as is each listed value that the taxonomy lacks. An
    ordered value that is no number, or not in the order, has none (`NO_BIN`). ParameterError without a reference,
    or if an ordered one has a text.
    """

    def __init__(
        self, attribute: Attribute, missing_values: Iterable[str], counts: Mapping[Key, float] | None = None
    ) -> None:
        self.name = attribute.name
        self._keys = ConfidentialKeys(attribute, missing_values)
        listed = self._listed_shares(attribute.reference) if counts is None else dict(counts)
        self.distance = attribute.distance or _distance_of(listed)
        self.paths: NDArray[np.int64] = np.empty((0, 0), np.int64)
        missing: list[Key] = [None] if None in listed else []
        self._numbers: list[Decimal] = []
        self._first, self._other = len(missing), NO_BIN
        if self.distance != "ordered":
            keys, self.paths = self._keys_and_paths(attribute, listed)
            self._other = len(keys)
        elif attribute.order:
            keys = [*missing, *(self._keys.key_of_text(str(item)) for item in attribute.order)]
        else:
            numbers = sorted((_number_of(key), key) for key in listed if key is not None and is_json_number(key))
            if len(numbers) + len(missing) != len(listed) or not numbers:
                raise ParameterError("reference: an ordered one needs numbers")
            keys = [*missing, *(key for _, key in numbers)]
            self._numbers = [number for number, _ in numbers]
        self._bins = {key: index for index, key in enumerate(keys)}
        shares = [listed.get(key, 0.0) for key in keys]
        if self.distance == "ordered":
            lowest = min((index for index, key in enumerate(keys) if key in listed), default=0)
            self._bins.setdefault(None, lowest)
        else:
            shares.append(0.0)
        self.shares: NDArray[np.float64] = np.array(shares, np.float64)

    def bin_of(self, key: Key) -> int:
        """Return the bin of a key of `ConfidentialKeys`; `NO_BIN` if the record is invalid."""
        if key is None or key in self._bins or not self._numbers:
            return self._bins.get(key, self._other)
        return self._first + bisect_left(self._midpoints, _number_of(key)) if is_json_number(key) else NO_BIN

    @cached_property
    def _midpoints(self) -> list[Decimal]:
        """Midpoints of neighbors, for values that are not listed; a table lists all, of any size."""
        return [_EXACT.divide(_EXACT.add(low, high), Decimal(2)) for low, high in pairwise(self._numbers)]

    def _listed_shares(self, reference: Reference | None) -> dict[Key, float]:
        if reference is None:
            raise ParameterError(f"attributes.{self.name}: has no reference")
        shares: dict[Key, float] = {}
        for text, share in zip(reference.texts, reference.shares, strict=True):
            key = self._keys.key_of_text(text)
            shares[key] = shares.get(key, 0.0) + share
        return shares

    def _keys_and_paths(self, attribute: Attribute, listed: dict[Key, float]) -> tuple[list[Key], NDArray[np.int64]]:
        """Return the keys of all bins but the last, and the nodes of all bins."""
        taxonomy = attribute.taxonomy
        lines = {} if taxonomy is None else {self._keys.key_of_text(path[0]): path for path in taxonomy.paths}
        rest = sorted(listed.keys() - lines.keys(), key=lambda key: (key is not None, key or ""))
        keys = [*sorted(lines, key=lambda key: lines[key][::-1]), *rest]
        levels = 0 if taxonomy is None else taxonomy.levels
        paths = np.empty((len(keys) + 1, levels), np.int64)
        for level in range(levels):
            nodes: dict[object, int] = {}
            for index, key in enumerate((*keys, _OTHER)):
                # A leaf of its own has a node of its own at each level.
                node = lines[key][level:] if key in lines else index
                paths[index, level] = nodes.setdefault(node, len(nodes))
        return keys, paths


class ProtectedValues(NamedTuple):
    """The values of the q protected attributes of n records."""

    numbers: Int64Matrix
    """Index of each value in ``keys``, shape (n, q)."""
    keys: Sequence[Sequence[str | None]]
    """The keys of the values of each attribute, each once, as of `ConfidentialKeys`."""

    def select(self, records: BoolVector | slice) -> ProtectedValues:
        """Return the values of some records. The keys stay the same."""
        return ProtectedValues(self.numbers[records], self.keys)


class ProtectedReader:
    """Reads the protected attributes of records."""

    def __init__(self, policy: Policy) -> None:
        names = [attribute.name for attribute in policy.unchanged_fields]
        self._columns = [
            (names.index(attribute.name), _ProtectedColumn(policy, attribute)) for attribute in policy.protected
        ]

    def read(self, unchanged_columns: Sequence[Sequence[Any]], count: int) -> tuple[ProtectedValues, BoolVector]:
        """Return the values of records, and which records have values that the references can place."""
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
        self._not_in_order = scale_of(attribute).off_scale.reason
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
        return self._not_in_order if self._categories and key not in self._categories else ""


def _distance_of(listed: Iterable[Key]) -> Literal["ordered", "equal"]:
    """Return the distance that the values of a table decide."""
    present = [key for key in listed if key is not None]
    return "ordered" if present and all(map(is_json_number, present)) else "equal"


def _number_of(key: str) -> Decimal:
    """Return the number of a key that is a JSON number; only one far beyond the range of float64 is not exact."""
    digits, _, power = key.lower().partition("e")
    return Decimal(f"{digits}e{max(min(int(power or 0), _LARGEST_POWER), -_LARGEST_POWER)}")
