"""The values of confidential attributes as keys, and their distance from a reference distribution."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import TypeAlias

from shoal.audit.distributions import OrderedReference, equal_distance, hierarchical_distance, nearest
from shoal.audit.fields import FIELD_SEPARATOR
from shoal.audit.originals import Originals
from shoal.audit.parsing import Form
from shoal.audit.scales import decimal_number
from shoal.audit.taxonomy_tree import TaxonomyTree
from shoal.audit.value_keys import MISSING, is_number, key_reader, number_of, text_key_reader
from shoal.policy import Attribute, Policy

__all__ = ["AuditedColumn", "Distance", "distance_from", "number_or_none", "reference_shares"]

Distance: TypeAlias = Callable[[Mapping[str, int]], float]
"""From the number of members of each key to the distance of their distribution from the reference."""
TextKeys: TypeAlias = Callable[[str | None], str]


class AuditedColumn:
    """Reads the keys of one confidential attribute from the texts of unchanged fields.

    Parameters
    ----------
    policy : Policy
    attribute : Attribute
    released : {"csv", "jsonl"}
        Form of the release that the texts are compared with.
    folds : bool
        Whether spellings of one value have one key. Otherwise only null and the empty text are one value.

    Attributes
    ----------
    key_of_text : callable
        Returns the key that a text of the policy means.
    """

    def __init__(self, policy: Policy, attribute: Attribute, released: Form = "jsonl", *, folds: bool = True) -> None:
        self.attribute = attribute
        self.key_of_text = text_key_reader(attribute, policy.missing_values, released)
        self._place = policy.unchanged_fields.index(attribute)
        self._read = key_reader(attribute.type, policy.missing_values, released) if folds else _as_spelt
        self._known: dict[str, str] = {}

    def key(self, unchanged: str) -> str:
        """Return the key of a record; ``unchanged``: the texts of its unchanged fields."""
        text = unchanged.split(FIELD_SEPARATOR)[self._place]
        found = self._known.get(text)
        return self._known.setdefault(text, self._read(text)) if found is None else found

    def counts(self, unchanged: Iterable[str]) -> Counter[str]:
        """Return how many records have each key."""
        return Counter(map(self.key, unchanged))

    def is_ordered(self, originals: Originals) -> bool:
        """Whether values are compared by their order. If the policy leaves it open, all usable ones must be numbers."""
        if self.attribute.distance is not None:
            return self.attribute.distance == "ordered"
        return self.is_numeric(originals)

    def is_numeric(self, originals: Originals) -> bool:
        """Whether all usable values are numbers or missing, and there is a number. A type of texts has no numbers."""
        if self.attribute.type not in {"any", "integer", "number"}:
            return False
        usable = originals.unchanged_of(index for index in range(len(originals)) if originals.is_usable(index))
        keys = set(map(self.key, usable)) - {MISSING}
        return bool(keys) and all(number_or_none(key) is not None for key in keys)


def _as_spelt(text: str) -> str:
    """Return a key that keeps the spelling of a text."""
    if text in {"null", '""'}:
        return MISSING
    return f"t{json.loads(text)}" if text.startswith('"') else key_reader("number", ())(text)


def reference_shares(attribute: Attribute, keys: TextKeys) -> dict[str, float] | None:
    """Return the share of each key in the reference of the policy; None without one."""
    if attribute.reference is None:
        return None
    shares: dict[str, float] = {}
    for text, share in zip(attribute.reference.texts, attribute.reference.shares, strict=True):
        key = keys(text)
        shares[key] = shares.get(key, 0.0) + share
    return shares


def distance_from(attribute: Attribute, shares: Mapping[str, float], keys: TextKeys, *, is_ordered: bool) -> Distance:
    """Return the distance of clusters from a reference distribution.

    Parameters
    ----------
    attribute : Attribute
    shares : mapping
        Weight of each key of the reference, such as its share or its number of records.
    keys : callable
        Returns the key that a text of the policy means.
    is_ordered : bool
        Whether values are compared by their order; else by the taxonomy, or all are equally far from each other.
    """
    if is_ordered:
        bin_of, by_bin = _ordered_bins(attribute, shares, keys)
        reference = OrderedReference(by_bin)
        return lambda counts: reference.distance(
            [bin_ for key, count in counts.items() for bin_ in [bin_of(key)] * count]
        )
    total = math.fsum(shares.values())
    parts = {key: share / total for key, share in shares.items()}
    if attribute.taxonomy is None:
        return lambda counts: equal_distance(counts, parts)
    tree, leaves = TaxonomyTree(attribute.taxonomy), {keys(path[0]): path[0] for path in attribute.taxonomy.paths}

    def path(key: str) -> tuple[object, ...]:
        # A value that is no leaf has a path of its own. A missing value is none, whatever leaves are called.
        return tree.path(leaves[key]) if key in leaves else (("", key),) * tree.depth

    below = {path(key): share for key, share in parts.items()}
    return lambda counts: hierarchical_distance({path(key): count for key, count in counts.items()}, below)


def _ordered_bins(
    attribute: Attribute, shares: Mapping[str, float], keys: TextKeys
) -> tuple[Callable[[str], int], list[float]]:
    """Return the bin of each key, and the share of each bin."""
    first = [MISSING] if MISSING in shares else []
    if attribute.order:
        listed = [*first, *(keys(str(item)) for item in attribute.order)]
        places = {key: place for place, key in enumerate(listed)}
        lowest = min((place for key, place in places.items() if key in shares), default=0)
        places.setdefault(MISSING, lowest)
        return lambda key: places.get(key, lowest), [shares.get(key, 0.0) for key in listed]
    return _numeric_bins(shares, len(first))


def _numeric_bins(shares: Mapping[str, float], first: int) -> tuple[Callable[[str], int], list[float]]:
    by_number: dict[Decimal, float] = {}
    for key, share in shares.items():
        number = number_or_none(key)
        if number is not None:
            by_number[number] = by_number.get(number, 0.0) + share
    numbers = sorted(by_number)

    def bin_of(key: str) -> int:
        number = number_or_none(key)
        return 0 if number is None else first + nearest(number, numbers)

    return bin_of, [*([shares[MISSING]] if first else []), *(by_number[number] for number in numbers)]


def number_or_none(key: str) -> Decimal | None:
    """Return the number of a key, or of a text that is one outside JSON, such as 007; None of any other."""
    if is_number(key):
        return number_of(key)
    value = decimal_number(key[1:].strip()) if key.startswith("t") else None
    return None if value is None or not math.isfinite(value) else Decimal(repr(value))
