"""A reference of confidential values from a sample, smoothed so that it shows no value of few subjects.

The file of a reference is as public as the policy. It is made from raw records, so it must not reveal one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from shoal.arrays import Int64Vector
from shoal.errors import InputError
from shoal.formats import Block, ConfidentialKeys, Key, is_json_number
from shoal.policy import Attribute, Policy

SUBJECTS_PER_BIN = 100  # a bin of numbers has at least one of this many subjects of the sample
UNITS = 10_000  # shares have four decimals
_STEPS = (1, 2, 5)
_DIGITS = 3  # the finest grid has this many digits less than the numbers of a bin have before the point
_LONGEST_PLAIN = 30  # a longer number is written with an exponent
_CONTEXT = Context(prec=1000, rounding=ROUND_HALF_EVEN)


class ReferenceRow(NamedTuple):
    """A value as text, None for the missing one; its subjects as a multiple of k; its share in units of 1 / `UNITS`."""

    text: str | None
    subjects: int
    units: int


class SmoothedReference(NamedTuple):
    """A reference.

    Attributes
    ----------
    rows : list of ReferenceRow
        Sorted by value; the missing value first. Their units add up to `UNITS`.
    left_out : int
        Number of values that were left out.
    unusable : int
        Number of records whose value is not on the scale of the attribute.
    """

    rows: list[ReferenceRow]
    left_out: int
    unusable: int


class _Count(NamedTuple):
    text: str | None
    weight: Fraction  # in subjects


class _Holders(NamedTuple):
    """The subjects of one value, and what it weighs: each subject one, split over its records."""

    subjects: set[int]
    weight: Fraction


class ReferenceSample:
    """Collects the values of one confidential attribute from a sample, and smooths their distribution.

    Parameters
    ----------
    policy : Policy
    attribute : Attribute
        A confidential attribute of the policy. Values are taken for numbers if its distance is ordered and it has no
        order, or if the policy leaves the distance open and all values of the sample are numbers or missing.

    Notes
    -----
    Each subject weighs one, split over its records. Then, with k of the policy:

    - Categories: a value of fewer than k subjects is left out. All other weights are rounded to the nearest multiple of
      k, half to even.
    - Numbers: they are sorted and cut into bins of at least 2k subjects and at least one percent of the subjects. A
      bin is represented by its median if k subjects have this very number. Otherwise the median is rounded to the
      finest grid, of steps 1, 2 or 5 times a power of ten, on which k subjects of the bin have the same rounded number.
      Weights of bins are rounded like those of categories.
    - A missing value is a category.

    So each value of the result is, rounded like it, that of at least k subjects. No value of fewer subjects is in it,
    such as the largest number of all. A record more or less changes the weights of what its subject has, each by k or
    not at all. An attacker who knows all other records of the sample can still learn that it is there, if it is the one
    by which a weight reaches the next multiple: the result is not differentially private.

    Memory: 16 bytes per record; at the end about 1 kB for each value of a subject. Cost: some 10 µs per record.
    """

    def __init__(self, policy: Policy, attribute: Attribute) -> None:
        self._k = policy.k
        self._attribute = attribute
        self._column = [a.name for a in policy.unchanged_fields].index(attribute.name)
        self._keys = ConfidentialKeys(attribute, policy.missing_values)
        self._codes: dict[Key, int] = {}
        self._parts: list[tuple[Int64Vector, Int64Vector]] = []

    def add(self, block: Block) -> None:
        """Add the next records, decoded with their unchanged columns."""
        codes = self._codes
        keys = self._keys.keys(block.unchanged_columns[self._column])
        numbers = np.fromiter((codes.setdefault(key, len(codes)) for key in keys), np.int64, len(keys))
        self._parts.append((numbers, block.subjects))

    def smooth(self) -> SmoothedReference:
        """Return the smoothed distribution.

        Raises
        ------
        InputError
            The sample has fewer than two values of k subjects or more.
        """
        by_key, unusable = self._holders_by_key()
        missing = by_key.pop(None, _Holders(set(), Fraction(0)))
        if self._is_numeric(by_key):
            found = list(_bins_of(by_key, self._k))
            left_out = 0
        else:
            found = [_Count(key, own.weight) for key, own in by_key.items() if self._is_shown(own)]
            left_out = len(by_key) - len(found)
            found.sort(key=self._place)
        if self._is_shown(missing):
            found.insert(0, _Count(None, missing.weight))
        else:
            left_out += bool(missing.subjects)
        rows = _shares_of(found, self._k)
        if len(rows) < 2:  # noqa: PLR2004 - one value alone is in every cluster
            raise InputError(
                f"attributes.{self._attribute.name}: fewer than two values have {self._k} subjects or more; give a "
                "larger sample"
            )
        return SmoothedReference(rows, left_out, unusable)

    def _is_shown(self, holders: _Holders) -> bool:
        return len(holders.subjects) >= self._k and _rounded(holders.weight, self._k) > 0

    def _holders_by_key(self) -> tuple[dict[Key, _Holders], int]:
        """Return the subjects of each key that is on the scale, and the number of records with another value."""
        keys = list(self._codes)
        is_usable = np.array([self._is_on_scale(key) for key in keys], np.bool_)
        codes = np.concatenate([np.zeros(0, np.int64), *(own for own, _ in self._parts)])
        subjects = np.concatenate([np.zeros(0, np.int64), *(own for _, own in self._parts)])
        chosen = np.flatnonzero(is_usable[codes]) if len(codes) else codes
        owners = np.unique(subjects[chosen], return_inverse=True)[1]
        records = np.bincount(owners)[owners]
        by_key: dict[Key, set[int]] = {}
        by_records: dict[Key, Counter[int]] = {}
        for code, subject, count in zip(codes[chosen].tolist(), owners.tolist(), records.tolist(), strict=True):
            by_key.setdefault(keys[code], set()).add(subject)
            by_records.setdefault(keys[code], Counter())[count] += 1
        found = {
            key: _Holders(own, sum((Fraction(n, count) for count, n in by_records[key].items()), Fraction(0)))
            for key, own in by_key.items()
        }
        return found, len(codes) - len(chosen)

    def _is_on_scale(self, key: Key) -> bool:
        if key is None or self._attribute.distance != "ordered":
            return True
        return key in self._order() if self._attribute.order else _is_number(key)

    def _is_numeric(self, keys: dict[Key, _Holders]) -> bool:
        if self._attribute.distance == "ordered":
            return not self._attribute.order
        is_open = self._attribute.type == "any" and not self._attribute.has_scale
        return is_open and all(key is not None and _is_number(key) for key in keys)

    def _order(self) -> dict[Key, int]:
        return {self._keys.key_of_text(str(item)): rank for rank, item in enumerate(self._attribute.order)}

    def _place(self, count: _Count) -> tuple[int, str]:
        return self._order().get(count.text, 0), count.text or ""


def _is_number(key: str) -> bool:
    """Return whether a key is a number in the range of float64, as the file of a reference can have it."""
    return is_json_number(key) and math.isfinite(float(key)) and (float(key) != 0 or key == "0")


def _bins_of(by_key: dict[Key, _Holders], k: int) -> Iterator[_Count]:
    """Yield bins of numbers with their representatives, ascending; equal representatives are one bin."""
    weights = {Decimal(key): own.weight for key, own in by_key.items() if key is not None}
    numbers = sorted((Decimal(key), own.subjects) for key, own in by_key.items() if key is not None)
    everyone: set[int] = set().union(*(subjects for _, subjects in numbers))
    least = max(2 * k, -(-len(everyone) // SUBJECTS_PER_BIN))
    bins: list[list[tuple[Decimal, set[int]]]] = [[]]
    inside: set[int] = set()
    for number, subjects in numbers:
        if len(inside) >= least:
            bins.append([])
            inside = set()
        bins[-1].append((number, subjects))
        inside |= subjects
    if len(inside) < least and len(bins) > 1:
        last = bins.pop()
        bins[-1] += last
    represented = [
        (representative, sum((weights[number] for number, _ in one), Fraction(0)))
        for one in bins
        if (representative := _representative(one, k)) is not None
    ]
    for representative, parts in groupby(sorted(represented, key=itemgetter(0)), key=itemgetter(0)):
        yield _Count(_plain_text(representative), sum(map(itemgetter(1), parts), Fraction(0)))


def _representative(numbers: Sequence[tuple[Decimal, set[int]]], k: int) -> Decimal | None:
    """Return the median of a bin on the finest grid where k subjects share it; None with fewer than k subjects."""
    places = [place for place, (_, subjects) in enumerate(numbers) for _ in subjects]
    if len(set().union(*map(itemgetter(1), numbers))) < k:
        return None
    lower, middle, upper = (places[(len(places) - 1) * part // 4] for part in (1, 2, 3))
    if len(numbers[middle][1]) >= k:
        return numbers[middle][0]
    exponent = max(abs(numbers[lower][0]), abs(numbers[upper][0])).adjusted() - _DIGITS
    while True:
        for leading in _STEPS:
            step = Decimal(leading).scaleb(exponent)
            if _is_shared(numbers, middle, step, k):
                return _round(numbers[middle][0], step)
        exponent += 1


def _is_shared(numbers: Sequence[tuple[Decimal, set[int]]], middle: int, step: Decimal, k: int) -> bool:
    """Return whether k subjects have numbers that are rounded like the one in the middle. Numbers ascend."""
    rounded = _round(numbers[middle][0], step)
    sharing: set[int] = set()
    for places in (range(middle, -1, -1), range(middle + 1, len(numbers))):
        for place in places:
            number, subjects = numbers[place]
            if len(sharing) >= k or _round(number, step) != rounded:
                break
            sharing |= subjects
    return len(sharing) >= k


def _round(number: Decimal, step: Decimal) -> Decimal:
    """Return the multiple of a step that is nearest to a number."""
    if number.adjusted() < step.adjusted() - 1:
        return Decimal(0)
    return _CONTEXT.multiply(_CONTEXT.divide(number, step).to_integral_value(ROUND_HALF_EVEN), step)


def _plain_text(number: Decimal) -> str:
    """Return a number without an exponent where it is short, and without trailing zeros."""
    short = _CONTEXT.normalize(number)
    text = f"{short:f}" if number else "0"
    return text if len(text) <= _LONGEST_PLAIN else str(short).replace("E+", "e").replace("E", "e")


def _rounded(weight: Fraction, k: int) -> int:
    """Return the nearest multiple of k, half to even."""
    return k * round(weight / k)


def _shares_of(counts: Sequence[_Count], k: int) -> list[ReferenceRow]:
    """Return the shares of counts rounded to multiples of k, in units; values without a unit are left out."""
    rounded = [_rounded(count.weight, k) for count in counts]
    total = sum(rounded)
    if not total:
        return []
    units = [number * UNITS // total for number in rounded]
    rests = [number * UNITS % total for number in rounded]
    for index in sorted(range(len(rests)), key=lambda index: -rests[index])[: UNITS - sum(units)]:
        units[index] += 1
    return [
        ReferenceRow(count.text, number, unit)
        for count, number, unit in zip(counts, rounded, units, strict=True)
        if unit
    ]
