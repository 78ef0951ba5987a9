"""Confidential values of the Python interface: parameters of their protection, value codes, and bins of a reference."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import TypeAlias
from unicodedata import normalize

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shoal.arrays import Int64Matrix, Int64Vector
from shoal.clustering.diversity import (
    DISTINCT,
    ENTROPY,
    EQUAL,
    ORDERED,
    RECURSIVE,
    DiversityRule,
    LDiversity,
    ValueReference,
    build_diversity_rule,
)
from shoal.clustering.static.emd import ConfidentialAttribute
from shoal.clustering.static.normal_form import NUMBER
from shoal.clustering.static.recent_codes import RecentCodes
from shoal.clustering.static.validation import as_objects, is_finite_number, is_integer
from shoal.errors import ParameterError
from shoal.policy.resolved_sections import DEFAULT_MAX_VALUE_SHARE

__all__ = [
    "ConfidentialEncoder",
    "Diversity",
    "ProtectedCodes",
    "Reference",
    "confidential_attributes",
    "default_value_share",
    "parse_diversity",
    "parse_references",
    "protection_faults",
]

Diversity: TypeAlias = int | Mapping[str, float | Sequence[float]]
"""An ``l``: a number of distinct values, or a kind with its parameters."""

Reference: TypeAlias = Mapping[object, float]
"""Shares of the values of a confidential attribute."""

ProtectedCodes: TypeAlias = tuple[Int64Matrix, Int64Matrix | None]
"""Value codes (n, q), and bins (n, q) with t."""

SUM_TOLERANCE = 1e-6
"""Largest difference between 1 and the sum of the shares of a reference."""

_DIFFERENCES = Context(prec=1000, traps=[])
"""For the distances of two numbers of any size; exact in the range of float64 where both have few digits."""

_KINDS = {"distinct": DISTINCT, "p_sensitive": DISTINCT, "entropy": ENTROPY}
_FORMS = "must be a whole number of 2 or more, {'entropy': a number above 1}, or {'recursive': [c above 0, l]}"


def parse_diversity(given: object) -> LDiversity | None:
    """Return the l-diversity that a caller states.

    Raises
    ------
    ParameterError
        It is none of the forms that `StreamAggregator` documents.
    """
    if given is None:
        return None
    named = given if isinstance(given, Mapping) else {"distinct": given}
    if len(named) != 1:
        raise ParameterError(f"l: {_FORMS}")
    name, value = next(iter(named.items()))
    if name == "recursive" and isinstance(value, Sequence) and len(value) == 2:  # noqa: PLR2004 - c and l
        c, number = value
        if is_finite_number(c) and c > 0 and is_integer(number) and number >= 2:  # noqa: PLR2004
            return LDiversity(RECURSIVE, float(number), float(c))
    elif name == "entropy" and is_finite_number(value) and value > 1:
        return LDiversity(ENTROPY, float(value))
    elif _KINDS.get(str(name)) == DISTINCT and is_integer(value) and value >= 2:  # noqa: PLR2004
        return LDiversity(DISTINCT, float(value))
    raise ParameterError(f"l: {_FORMS}")


def default_value_share(given: object, max_value_share: float | None) -> float | None:
    """Return the largest share of one value, where a caller states ``l`` and perhaps that share."""
    diversity = parse_diversity(given)
    if max_value_share is None and diversity is not None and diversity.kind == DISTINCT:
        return DEFAULT_MAX_VALUE_SHARE
    return max_value_share


def protection_faults(
    given: object, max_value_share: object, t: object, reference: object, delta: int | None
) -> list[str]:
    """Return what is wrong with the parameters of the protection; an empty list if they are valid.

    ``delta`` is that of a stream, which needs a reference with ``t``; None for a table, which does not.
    """
    faults = []
    try:
        diversity = parse_diversity(given)
        if diversity is not None and is_integer(delta) and diversity.l > delta + 1:
            faults.append("l: must be at most delta + 1, the number of records that are held")
    except ParameterError as error:
        faults.append(str(error))
    try:
        if not parse_references(reference) and t is not None and delta is not None:
            faults.append("reference: required with t")
    except ParameterError as error:
        faults.append(str(error))
    if max_value_share is not None and not (is_finite_number(max_value_share) and 0 < max_value_share <= 1):
        faults.append("max_value_share: must be above 0 and at most 1")
    if t is not None and not (is_finite_number(t) and 0 < t <= 1):
        faults.append("t: must be above 0 and at most 1")
    return faults


def parse_references(given: object) -> list[dict[object, float]]:
    """Return one reference per attribute, by the keys of the values.

    Raises
    ------
    ParameterError
        A reference is no mapping of two or more values to shares, or lists a value twice.
    """
    if given is None:
        return []
    found = []
    for reference in [given] if isinstance(given, Mapping) else list(given) if isinstance(given, Sequence) else [None]:
        if not isinstance(reference, Mapping) or len(reference) < 2:  # noqa: PLR2004 - one value has no distance
            raise ParameterError("reference: must map two or more values to their shares, for each attribute")
        shares = {_key(value): share for value, share in reference.items()}
        if len(shares) < len(reference):
            raise ParameterError("reference: lists a value twice")
        if not all(is_finite_number(share) and share >= 0 for share in shares.values()):
            raise ParameterError("reference: shares must be numbers, 0 or more")
        if abs(math.fsum(shares.values()) - 1) > SUM_TOLERANCE:
            raise ParameterError("reference: shares must sum to 1")
        found.append(shares)
    return found


class ConfidentialEncoder:
    """Encodes confidential values: a code per distinct value, and its bin in the reference.

    Numbers are compared by their exact value, texts in Unicode's composed form without surrounding whitespace, and a
    text that is a number as that number. None and NaN are one value: missing.

    Parameters
    ----------
    delta : int
        A value keeps its code for at least this many records after its last occurrence.
    references : list of dict
        As `parse_references` returns them; empty without t.

    Notes
    -----
    If all values of a reference are numbers or missing, its distance is the ordered one. A number that is not listed
    then counts as the nearest one, ties as the lower; missing as the lowest. Else the distance is the equal one, and
    values that are not listed have a bin with a share of 0. Memory: the values of 2 delta records and two blocks.
    """

    def __init__(self, delta: int, references: Sequence[Mapping[object, float]]) -> None:
        self._codes = RecentCodes(delta)
        self._references = [_Bins(reference) for reference in references]

    def diversity_rule(
        self, attributes: int, diversity: LDiversity | None, max_value_share: float | None, t: float | None
    ) -> DiversityRule:
        """Return what the attributes must satisfy.

        Raises
        ------
        ParameterError
            With t, there is not one reference per attribute.
        """
        if t is not None and len(self._references) != attributes:
            raise ParameterError(f"reference: must be one per confidential attribute, here {attributes}")
        references = [reference.weights for reference in self._references] if t is not None else []
        return build_diversity_rule(references, l=diversity, max_value_share=max_value_share, t=t)

    def encode(self, confidential: ArrayLike | Sequence[object], count: int) -> tuple[Int64Matrix, Int64Matrix | None]:
        """Return value codes (count, q), and bins (count, q) if there are references.

        Raises
        ------
        ParameterError
            The values are not one per record and attribute, or one is no number where the reference is ordered.
        """
        columns = _columns_of(confidential, count)
        if self._references and len(columns) != len(self._references):
            raise ParameterError(f"confidential: must have {len(self._references)} columns, one per reference")
        bins = [reference.bins_of(keys) for reference, keys in zip(self._references, columns, strict=False)]
        codes = [[self._codes.code_of((number, key)) for key in keys] for number, keys in enumerate(columns)]
        return _stacked(codes, count), _stacked(bins, count) if bins else None

    def remember(self, count: int) -> None:
        """Count accepted records. Values without an occurrence among the last delta records are dropped eventually."""
        self._codes.remember(count)


def confidential_attributes(
    confidential: ArrayLike, count: int, reference: object, *, has_bins: bool
) -> tuple[ConfidentialAttribute, ...]:
    """Return the confidential attributes of a table.

    Parameters
    ----------
    confidential : array_like of str, number or None, shape (count,) or (count, q)
        Values, as `ConfidentialEncoder.encode` takes them.
    count : int
        Number of records.
    reference : mapping or sequence of mappings, optional
        As of `parse_references`; None: the table itself.
    has_bins : bool
        Whether the values are compared with the reference.

    Raises
    ------
    ParameterError
        As `ConfidentialEncoder.encode`, or there is not one reference per attribute.
    """
    references = parse_references(reference) if has_bins else []
    codes, bins = ConfidentialEncoder(count, references).encode(confidential, count)
    if not has_bins:
        return tuple(ConfidentialAttribute(column, ordered=False) for column in codes.T)
    if bins is None:  # the table is the reference
        references = [_shares_of(keys) for keys in _columns_of(confidential, count)]
        bins = ConfidentialEncoder(count, references).encode(confidential, count)[1]
    weights = [_Bins(shares).weights for shares in references]
    return tuple(
        ConfidentialAttribute(np.ascontiguousarray(own), one.distance == ORDERED, one, np.ascontiguousarray(values))
        for own, one, values in zip(() if bins is None else bins.T, weights, codes.T, strict=True)
    )


def _columns_of(confidential: ArrayLike | Sequence[object], count: int) -> list[list[object]]:
    """Return the keys of the values, one list per attribute. A key depends on its value alone."""
    given = as_objects(confidential, "confidential")
    if given.shape[:1] != (count,) or given.ndim not in {1, 2}:
        raise ParameterError(f"confidential: must have shape ({count},) or ({count}, q)")
    columns = [given] if given.ndim == 1 else given.T
    return [[_key(value) for value in column.tolist()] for column in columns]


def _shares_of(keys: Sequence[object]) -> dict[object, float]:
    """Return how often each value of a table occurs; shares are not needed, as references are scaled."""
    return {key: float(count) for key, count in Counter(keys).items()}


class _Bins:
    """The bins of a reference."""

    def __init__(self, reference: Mapping[object, float]) -> None:
        self._is_ordered = all(key is None or isinstance(key, int | Decimal) for key in reference)
        listed = sorted(reference, key=_order) if self._is_ordered else list(reference)
        self._bins = {key: number for number, key in enumerate(listed)}
        self._numbers = [key for key in listed if isinstance(key, int | Decimal)]
        shares = np.array([reference[key] for key in listed], np.float64)
        self.weights = ValueReference(
            ORDERED if self._is_ordered else EQUAL, shares if self._is_ordered else np.append(shares, 0.0)
        )

    def bins_of(self, keys: list[object]) -> list[int]:
        """Return the bin of each value."""
        return [self._bins[key] if key in self._bins else self._unlisted(key) for key in keys]

    def _unlisted(self, key: object) -> int:
        """Return the bin of a value that is not listed."""
        if not self._is_ordered:
            return len(self._bins)
        if key is None:
            return 0
        if not isinstance(key, int | Decimal):
            raise ParameterError("confidential: must be numbers or missing, as the reference is")
        above = bisect_left(self._numbers, key)
        near = self._numbers[max(above - 1, 0) : above + 1]
        return self._bins[min(near, key=lambda number: (abs(_DIFFERENCES.subtract(number, key)), number))]


def _order(key: object) -> tuple[bool, object]:
    """Return what the values of an ordered reference are sorted by: missing first."""
    return (key is not None, 0 if key is None else key)


def _is_comparable(value: object) -> bool:
    """Whether equal values can be found: values that are compared by identity would all differ."""
    try:
        hash(value)
    except TypeError:
        return False
    return type(value).__eq__ is not object.__eq__


def _key(value: object) -> object:
    """Return what two equal confidential values have in common: an exact number, a text, True or False, or None."""
    if value is None or (isinstance(value, float | np.floating) and math.isnan(value)):
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Decimal) and value.is_nan():
        return None
    if not _is_comparable(value):
        raise ParameterError("confidential: must be texts, numbers, True, False or None")
    if isinstance(value, bool):
        return ("bool", value)  # True is not the number 1
    if isinstance(value, str):
        text = normalize("NFC", value).strip()
        return Decimal(text) if NUMBER.fullmatch(text) else text
    return Decimal(repr(value)) if isinstance(value, float) else value


def _stacked(columns: list[list[int]], count: int) -> NDArray[np.int64]:
    """Return columns as an array (count, columns)."""
    stacked: Int64Vector = np.array(columns, np.int64).reshape(len(columns), count)
    return np.ascontiguousarray(stacked.T)
