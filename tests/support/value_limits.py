"""Limits that policies set on confidential values, and from the truth which of them a cluster exceeds.

The truth of a value is known from how it was drawn, so that spellings need not be read. No code of Shoal is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from support.diversity_by_definition import (
    Record,
    assignable,
    entropy_of,
    is_recursive,
    people_in,
    value_share,
    weights_of,
)
from support.scale_shape import TREE

Shares: TypeAlias = dict[str, Fraction]
Faults: TypeAlias = Callable[[Sequence[Record], Shares], set[str]]

REFERENCES = Path(__file__).resolve().parents[1] / "data" / "references"
MISSING = "missing"
_ILLS: dict[str, tuple[Any, ...]] = {
    "flu": ("flu", " flu", "flu\t"),
    "cold": ("cold", "cold "),
    "gout": ("gout", "gout", "gout"),
    "1": (1, "1", "1.0", "10e-1", " 1"),
    "true": (True, "true"),
    MISSING: (None, "", "?", " "),
}
_NUMBERS: dict[str, tuple[Any, ...]] = {
    **{str(n): (n, str(n), f"{n}.0", f"{n}0e-1") for n in (1, 2, 3, 4, 5, 6)},
    MISSING: (None, "?"),
}
_CODES: dict[str, tuple[Any, ...]] = {code: (code, f"{code} ") for code in ("I21", "I50", "J18", "J45", "Z99")}
_GRADES: dict[str, tuple[Any, ...]] = {grade: (grade, f" {grade}") for grade in ("low", "mid", "high", "top")}


@dataclass(frozen=True)
class ValueLimit:
    """Options, spellings of each true value, and the limits that true values exceed beside compared shares."""

    privacy: Mapping[str, Any] = field(default_factory=dict)
    attribute: Mapping[str, Any] = field(default_factory=dict)
    spellings: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: {"flu": ("flu",)})
    faults: Faults = lambda _records, _shares: set()
    shares: Mapping[str, Fraction] = field(default_factory=dict)

    def draw(self, random: Random) -> tuple[str, Any]:
        """Return a true value and a spelling of it. The first values are more frequent."""
        truth = list(self.spellings)[int(len(self.spellings) * random.random() ** 1.3)]
        return truth, random.choice(self.spellings[truth])

    def exceeded(self, records: Sequence[Record], everyone: Sequence[Record]) -> set[str]:
        """Return the exceeded limits. Given are people and true values; ``everyone``: those of all released records."""
        return self.faults(records, dict(self.shares) or _own(everyone))


# ---------------------------------------------------------------- l and the share of one value


def _few(least: int) -> Faults:
    return lambda records, _: {"diverse"} if assignable(records) < least else set()


def _frequent(limit: Fraction) -> Faults:
    return lambda records, _: {"value share"} if value_share(records) > limit else set()


def _disordered(least: float) -> Faults:
    return lambda records, _: {"diverse"} if entropy_of(records) < math.log(least) - 1e-7 else set()


def _dominated(c: Fraction, least: int) -> Faults:
    return lambda records, _: set() if is_recursive(records, float(c), least) else {"diverse"}


def _all_of(*faults: Faults) -> Faults:
    return lambda records, shares: {fault for one in faults for fault in one(records, shares)}


# ---------------------------------------------------------------- t


def _own(records: Sequence[Record]) -> Shares:
    return {str(value): weight / people_in(records) for value, weight in weights_of(records).items()}


def _far(t: Fraction, distance: Callable[[Shares, Shares], Fraction]) -> Faults:
    return lambda records, shares: {"close"} if distance(_own(records), shares) > t else set()


def _equal(own: Shares, shares: Shares) -> Fraction:
    both = own.keys() | shares.keys()
    return sum((abs(own.get(one, Fraction()) - shares.get(one, Fraction())) for one in both), Fraction()) / 2


def _ordered(bins: Sequence[str], place: Callable[[str], str]) -> Callable[[Shares, Shares], Fraction]:
    """Return the distance over ordered bins; ``place``: the bin of a value."""

    def distance(own: Shares, shares: Shares) -> Fraction:
        placed = {one: sum((share for value, share in own.items() if place(value) == one), Fraction()) for one in bins}
        steps = zip(
            accumulate(placed[one] for one in bins),
            accumulate(shares.get(one, Fraction()) for one in bins),
            strict=True,
        )
        return sum((abs(a - b) for a, b in steps), Fraction()) / (len(bins) - 1)

    return distance


def _climbed(own: Shares, shares: Shares) -> Fraction:
    """Match equal leaves, then what is left within each group, then the rest over the root."""
    ((_, groups),) = TREE.items()
    group_of = {leaf: group for group, leaves in groups.items() for leaf in leaves}
    left, wanted, total = dict(own), dict(shares), Fraction()
    for name_of, height in ((lambda leaf: leaf, 0), (lambda leaf: group_of.get(leaf, leaf), 1), (lambda _: "", 2)):
        for leaf, other in ((a, b) for a in left for b in wanted if name_of(a) == name_of(b)):
            moved = min(left[leaf], wanted[other])
            left[leaf], wanted[other], total = left[leaf] - moved, wanted[other] - moved, total + moved * height
    return total / 2


def _nearest_number(value: str) -> str:
    return {MISSING: MISSING, "3": "2", "5": "4"}.get(value, value)


def _shares(texts: Mapping[str, str]) -> Shares:
    return {value: Fraction(text) for value, text in texts.items()}


_SHARES_OF_ILLS = _shares({"flu": "0.35", "cold": "0.25", "gout": "0.2", "1": "0.1", MISSING: "0.1"})
_SHARES_OF_NUMBERS = _shares({MISSING: "0.1", "1": "0.25", "2": "0.25", "4": "0.2", "6": "0.2"})
_SHARES_OF_CODES = _shares({"I21": "0.3", "I50": "0.3", "J18": "0.2", "J45": "0.2"})
_SHARES_OF_GRADES = _shares({"low": "0.4", "mid": "0.3", "high": "0.2", "top": "0.1"})
_NUMERIC = _ordered(tuple(_SHARES_OF_NUMBERS), _nearest_number)
_GRADED = _ordered(tuple(_GRADES), str)

VALUE_LIMITS: dict[str, ValueLimit] = {
    "none": ValueLimit(),
    "l": ValueLimit({"l": 3, "max_value_share": 1}, {}, _ILLS, _few(3)),
    "l and a share": ValueLimit({"l": 2}, {}, _ILLS, _all_of(_few(2), _frequent(Fraction(1, 2)))),
    "share": ValueLimit({"max_value_share": 0.4}, {}, _ILLS, _frequent(Fraction(2, 5))),
    "entropy": ValueLimit({"l": {"entropy": 2.5}}, {}, _ILLS, _disordered(2.5)),
    "recursive": ValueLimit({"l": {"recursive": [2, 3]}}, {}, _ILLS, _dominated(Fraction(2), 3)),
    "t, equal": ValueLimit(
        {"t": 0.45}, {"reference": str(REFERENCES / "ills.csv")}, _ILLS, _far(Fraction(9, 20), _equal), _SHARES_OF_ILLS
    ),
    "t, numbers": ValueLimit(
        {"t": 0.2},
        {"reference": str(REFERENCES / "numbers.csv")},
        _NUMBERS,
        _far(Fraction(1, 5), _NUMERIC),
        _SHARES_OF_NUMBERS,
    ),
    "t, ranks": ValueLimit(
        {"t": 0.2},
        {"reference": str(REFERENCES / "grades.csv"), "scale": "ordinal", "order": list(_GRADES)},
        _GRADES,
        _far(Fraction(1, 5), _GRADED),
        _SHARES_OF_GRADES,
    ),
    "t, tree": ValueLimit(
        {"t": 0.3},
        {"reference": str(REFERENCES / "codes.csv"), "scale": "nominal", "taxonomy": TREE},
        _CODES,
        _far(Fraction(3, 10), _climbed),
        _SHARES_OF_CODES,
    ),
    "t, own values": ValueLimit({"t": 0.35}, {"type": "string"}, _CODES, _far(Fraction(7, 20), _equal)),
}
"""By name. The last one is for tables alone: their clusters are compared with the table."""


def value_limits_of(base: str) -> tuple[str, ...]:
    """Return the names of the limits that the policy of a base can set."""
    return tuple(VALUE_LIMITS) if base.startswith("table") else tuple(VALUE_LIMITS)[:-1]
