"""Arguments of the Python interface. Every fault is named with its field; no value appears in a message."""

from __future__ import annotations

import math
import re
import sys
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import TypeAlias, TypeGuard
from unicodedata import normalize

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shoal.arrays import Int64Matrix, Int64Vector
from shoal.errors import ParameterError
from shoal.policy.policy import DEFAULT_MAX_VALUE_SHARE
from shoal.protection.diversity import (
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
from shoal.protection.value_codes import RecentCodes
from shoal.tables.constraints import ConfidentialAttribute, person_weights

AnyArray: TypeAlias = NDArray[np.generic]  # an array of any type


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a value of any type is an integer; a boolean is none."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value of any type is an integer or a float; a boolean is neither."""
    return is_integer(value) or isinstance(value, float | np.floating)


def is_finite_number(value: object) -> TypeGuard[float]:
    """Whether a value of any type is a number that float64 can hold."""
    return is_number(value) and bool(-sys.float_info.max <= value <= sys.float_info.max)


def as_array(given: ArrayLike | Sequence[object], name: str) -> AnyArray:
    """Return any array-like as an array; ParameterError if rows have unequal lengths, or a value is masked."""
    if np.ma.is_masked(given):
        raise ParameterError(f"{name}: must not be masked; fill or remove what is missing")
    try:
        return np.asarray(given)
    except ValueError:
        raise ParameterError(f"{name}: rows must have the same length") from None


def as_objects(given: ArrayLike | Sequence[object], name: str) -> AnyArray:
    """Return an array as it is, and any other array-like as an array of its objects: NumPy would convert numbers."""
    if isinstance(given, np.ndarray):
        return as_array(given, name)
    objects = np.asarray(given, dtype=object)
    if any(isinstance(value, list | tuple | np.ndarray) for value in objects.flat):
        raise ParameterError(f"{name}: rows must have the same length")
    return objects


NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,17})?")  # texts that are numbers


def normal_form(name: str) -> str:
    """Return the normal form of a string: composed, without surrounding whitespace, numbers by their value."""
    text = normalize("NFC", name).strip()
    if not NUMBER.fullmatch(text):
        return text
    sign, digits, exponent = Decimal(text).as_tuple()
    whole = "".join(map(str, digits)).lstrip("0")
    short = whole.rstrip("0")
    return f"{'-' * sign}{short}e{int(exponent) + len(whole) - len(short)}" if short else "0"


Diversity: TypeAlias = int | Mapping[str, float | Sequence[float]]
"""An ``l``: a number of distinct values, or a kind with its parameters."""

Reference: TypeAlias = Mapping[object, float]  # shares of the values of a confidential attribute

ProtectedCodes: TypeAlias = tuple[Int64Matrix, Int64Matrix | None]  # value codes (n, q), and bins (n, q) with t

SUM_TOLERANCE = 1e-6  # largest difference between 1 and the sum of the shares of a reference

_DIFFERENCES = Context(prec=1000, traps=[])
"""For the distances of two numbers of any size; exact in the range of float64 where both have few digits."""

_FORMS = "must be a whole number of 2 or more, {'entropy': a number above 1}, or {'recursive': [c above 0, l]}"


def parse_diversity(given: object) -> LDiversity | None:
    """Return the l-diversity that a caller states; ParameterError if it has none of the documented forms."""
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
    elif name == "distinct" and is_integer(value) and value >= 2:  # noqa: PLR2004
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
    """Return what is wrong with the protection of a stream, which needs a reference with t, or a table: no delta."""
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
    """Return one reference per attribute, by the keys of the values, or raise ParameterError."""
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

    Numbers are compared by their exact value, as are texts that are numbers; other texts in Unicode's composed form
    without surrounding whitespace. None and NaN are one value: missing. If all values of a reference are numbers or
    missing, its distance is the ordered one. A number that is not listed then counts as the nearest one, ties as the
    lower; missing as the lowest. Else the distance is the equal one, and values that are not listed have a bin with a
    share of 0.
    """

    def __init__(self, delta: int, references: Sequence[Mapping[object, float]]) -> None:
        self._codes = RecentCodes(delta)
        self._references = [_Bins(reference) for reference in references]

    def diversity_rule(
        self, attributes: int, diversity: LDiversity | None, max_value_share: float | None, t: float | None
    ) -> DiversityRule:
        """Return what the attributes must satisfy; with t, ParameterError unless each has a reference."""
        if t is not None and len(self._references) != attributes:
            raise ParameterError(f"reference: must be one per confidential attribute, here {attributes}")
        references = [reference.weights for reference in self._references] if t is not None else []
        return build_diversity_rule(references, l=diversity, max_value_share=max_value_share, t=t)

    def encode(self, confidential: ArrayLike | Sequence[object], count: int) -> tuple[Int64Matrix, Int64Matrix | None]:
        """Return value codes (count, q), and bins (count, q) if there are references; ParameterError if unfit."""
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
    confidential: ArrayLike, count: int, reference: object, subjects: Int64Vector | None, *, has_bins: bool
) -> tuple[ConfidentialAttribute, ...]:
    """Return the confidential attributes of a table; without ``reference`` its ``subjects`` are the reference."""
    references: Sequence[Mapping[object, float]] = []
    if has_bins:  # weights are scaled when they are used
        weights = [1.0] * count if subjects is None else person_weights(subjects).tolist()
        references = parse_references(reference) or [
            _weights_of(keys, weights) for keys in _columns_of(confidential, count)
        ]
    codes, bins = ConfidentialEncoder(count, references).encode(confidential, count)
    if bins is None:
        return tuple(ConfidentialAttribute(column, ordered=False) for column in codes.T)
    given = [_Bins(shares).weights for shares in references]
    return tuple(
        ConfidentialAttribute(np.ascontiguousarray(own), one.distance == ORDERED, one, np.ascontiguousarray(values))
        for own, one, values in zip(bins.T, given, codes.T, strict=True)
    )


def _weights_of(keys: list[object], weights: list[float]) -> dict[object, float]:
    """Return the sum of the weights of each key, in the order of their first occurrence."""
    found: dict[object, float] = {}
    for key, weight in zip(keys, weights, strict=True):
        found[key] = found.get(key, 0.0) + weight
    return found


def _columns_of(confidential: ArrayLike | Sequence[object], count: int) -> list[list[object]]:
    """Return the keys of the values, one list per attribute. A key depends on its value alone."""
    given = as_objects(confidential, "confidential")
    if given.shape[:1] != (count,) or given.ndim not in {1, 2}:
        raise ParameterError(f"confidential: must have shape ({count},) or ({count}, q)")
    columns = [given] if given.ndim == 1 else given.T
    return [[_key(value) for value in column.tolist()] for column in columns]


class _Bins:
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
        return [self._bins[key] if key in self._bins else self._unlisted(key) for key in keys]

    def _unlisted(self, key: object) -> int:
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
    stacked: Int64Vector = np.array(columns, np.int64).reshape(len(columns), count)
    return np.ascontiguousarray(stacked.T)
