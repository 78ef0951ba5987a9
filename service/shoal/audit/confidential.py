"""Checks what the policy guarantees about confidential values: ``l``, ``max_value_share`` and ``t``, by cluster.

Values are counted as records, by their keys (`shoal.audit.fields`). If clusters satisfy the limits, so does their
union. So rows that are equal on all quasi-identifiers must satisfy them, whatever their clusters are.

Sources: Machanavajjhala, Kifer, Gehrke and Venkitasubramaniam, l-Diversity, ACM TKDD 1(1), 2007,
doi:10.1145/1217299.1217302 (distinct, entropy and recursive l-diversity); Truta and Vinay, Privacy Protection:
p-Sensitive k-Anonymity Property, ICDE Workshops 2006, doi:10.1109/ICDEW.2006.116 (distinct, beside k); Li, Li and
Venkatasubramanian, t-Closeness (ICDE 2007), doi:10.1109/ICDE.2007.367856, section 4 (the earth mover's distance for
three ground distances). Nothing here is shared with the kernels of the engine: the hierarchical distance is summed over
the edges of the tree, and the other two over cumulative shares and over shares.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from shoal.audit.fields import FIELD_SEPARATOR, MISSING, is_number, key_reader, number_of, text_key_reader
from shoal.audit.originals import Originals
from shoal.audit.reading import Form
from shoal.audit.scales import TaxonomyTree, decimal_number
from shoal.audit.verdict import CheckCounter
from shoal.policy import Attribute, Diversity, Policy

NodePath = TypeVar("NodePath", bound=tuple[Hashable, ...])
"""The nodes of a value from the leaf up to the child of the root."""
_EXACT = Context(prec=5000)  # more digits than the sum of two float64 has
Distance: TypeAlias = Callable[[Mapping[str, int]], float]
"""From the number of members of each key to the distance of their distribution from the reference."""
TextKeys: TypeAlias = Callable[[str | None], str]
TOLERANCE = 1e-9  # rounding error of a distance or an entropy computed in float64
SHARE_TOLERANCE = Fraction(2, 10**9)
"""In records: the limit may be a rounded number, such as 0.333333333333, and the engine allows half of this."""
Figures: TypeAlias = dict[tuple[str, ...], tuple[float, ...]]
"""The numbers that a summary may state at a path of field names: one, or several that are right."""
_LARGEST = 1e150  # sums of squares of larger numbers are not compared
_TIE = 1e-9


class OrderedReference:
    """A distribution over bins in their order: the weight of each bin, the lowest first; their sum need not be 1."""

    def __init__(self, shares: Sequence[float]) -> None:
        found = np.asarray(shares, np.float64)
        self._cumulative: npt.NDArray[np.float64] = np.cumsum(found)[:-1] / found.sum()
        self._prefix_sums = np.concatenate([[0.0], np.cumsum(self._cumulative)])

    def distance(self, bins: Sequence[int]) -> float:
        """Return the mean difference of the two cumulative distributions over the m - 1 steps between bins.

        Between two values of a cluster its own share is constant and that of the reference rises. Each of these
        intervals is split where the latter passes the former, and summed by prefix sums. Cost: O(size log m).
        """
        steps = len(self._cumulative)
        if not steps:
            return 0.0
        own = np.sort(np.asarray(bins))
        edges = np.concatenate([[0], np.minimum(own, steps), [steps]])
        shares = np.arange(len(own) + 1) / len(own)
        low, high = edges[:-1], edges[1:]
        middle = np.clip(np.searchsorted(self._cumulative, shares, side="right"), low, high)
        below = shares * (middle - low) - (self._prefix_sums[middle] - self._prefix_sums[low])
        above = (self._prefix_sums[high] - self._prefix_sums[middle]) - shares * (high - middle)
        return float((below + above).sum() / steps)


def equal_distance(counts: Mapping[str, int], reference: Mapping[str, float]) -> float:
    """Return the distance if all values are 1 apart: what is not common to both distributions."""
    size = sum(counts.values())
    return 1.0 - math.fsum(min(count / size, reference.get(key, 0.0)) for key, count in counts.items())


def hierarchical_distance(paths: Mapping[NodePath, int], reference: Mapping[NodePath, float]) -> float:
    """Return the distance if two values are as far apart as their lowest common ancestor is high, over the levels.

    The edge above a node is 1 / (2 levels) long, and carries the difference of the shares below the node.
    """
    size, levels = sum(paths.values()), len(next(iter(paths)))
    below: defaultdict[tuple[int, Hashable], float] = defaultdict(float)
    for path, count in paths.items():
        for level, node in enumerate(path):
            below[level, node] += count / size
    for path, share in reference.items():
        for level, node in enumerate(path):
            below[level, node] -= share
    return math.fsum(abs(difference) for difference in below.values()) / (2 * levels)


def nearest(value: Decimal, listed: Sequence[Decimal]) -> int:
    """Return the index of the listed number, ascending, that is nearest to a value; ties go to the lower. Exact."""
    place = bisect_left(listed, value)
    if place in {0, len(listed)}:
        return min(place, len(listed) - 1)
    middle = _EXACT.divide(_EXACT.add(listed[place - 1], listed[place]), Decimal(2))
    return place - 1 if value <= middle else place


class AuditedColumn:
    """Reads the keys of one confidential attribute from the texts of unchanged fields."""

    def __init__(self, policy: Policy, attribute: Attribute, released: Form = "jsonl") -> None:
        self.attribute = attribute
        self.key_of_text = text_key_reader(attribute, policy.missing_values, released)
        self._place = policy.unchanged_fields.index(attribute)
        self._read = lru_cache(4096)(key_reader(attribute.type, policy.missing_values, released))

    def key(self, unchanged: str) -> str:
        """Return the key of a record; ``unchanged``: the texts of its unchanged fields."""
        return self._read(unchanged.split(FIELD_SEPARATOR)[self._place])

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
        has_numbers = False
        for key in map(self.key, originals.unchanged_of(np.arange(len(originals)))):
            if key != MISSING and number_or_none(key) is None:
                return False
            has_numbers |= key != MISSING
        return has_numbers


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
    """Return the distance of clusters from a reference of which ``shares`` has the weight of each key."""
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


def number_or_none(key: str) -> Decimal | None:
    """Return the number of a key, or of a text that is one outside JSON, such as 007; None of any other."""
    if is_number(key):
        return number_of(key)
    value = decimal_number(key[1:].strip()) if key.startswith("t") else None
    return None if value is None or not math.isfinite(value) else Decimal(repr(value))


def effective_values(counts: Collection[int]) -> float:
    """Return the number of equally frequent values that have the entropy of these: e to the power of the entropy."""
    size = sum(counts)
    return math.exp(-math.fsum(count / size * math.log(count / size) for count in counts))


def is_recursive_diverse(counts: Collection[int], c: float, l: int) -> bool:  # noqa: E741 - the name of the field
    """Whether the most frequent value occurs less than c times as often as the l-th and all rarer ones together."""
    first, tail = _first_and_tail(counts, l)
    return first < Fraction(repr(c)) * tail  # the shortest decimal of the float64: 11 < 1.1 * 10 does not hold


def recursive_ratio(counts: Collection[int], l: int) -> float:  # noqa: E741 - the name of the field
    """Return the count of the most frequent value over that of the l-th and all rarer ones; infinite without these."""
    first, tail = _first_and_tail(counts, l)
    return first / tail if tail else math.inf


@dataclass(frozen=True, slots=True)
class ValueClass:
    """Records that a reader of the release cannot tell apart, by the texts of their unchanged fields."""

    label: int | str
    unchanged: Collection[str]


def check_values(
    policy: Policy, originals: Originals, classes: Sequence[ValueClass], *, unit: str = "cluster"
) -> list[CheckCounter]:
    """Return ``diversity`` (for ``l``), ``value_share`` and ``closeness`` (for ``t``), as far as the policy sets them.

    Each cluster is one case. The worst value is the fewest values, the fewest effective ones (entropy) or the largest
    ratio (recursive); the largest share; the largest distance. Cost: O(n log n) for each protected attribute.
    """
    found = _ValueChecks(policy, originals, classes, unit)
    checks = [] if policy.diversity is None else [found.diversity(policy.diversity)]
    checks += [] if policy.max_value_share is None else [found.value_share(policy.max_value_share)]
    return checks + ([] if policy.t is None else [found.closeness(policy.t)])


def class_distances(originals: Originals, column: AuditedColumn, counts: Sequence[Counter[str]]) -> list[float]:
    """Return the distance of each class from the reference of the policy; without one, from all classes together."""
    attribute = column.attribute
    shares = reference_shares(attribute, column.key_of_text)
    if shares is None:
        totals = Counter[str]()
        for own in counts:
            totals.update(own)
        shares = {key: float(count) for key, count in totals.items()}
    distance = distance_from(attribute, shares, column.key_of_text, is_ordered=column.is_ordered(originals))
    return [distance(own) for own in counts]


def measure_values(policy: Policy, originals: Originals, classes: Sequence[ValueClass]) -> Figures:
    """Return the figures of the clusters, by their paths in a summary. Cost: O(n log n) for each of the attributes.

    Streams (``emd``) and tables (``emd_of``) name the distances of attributes differently; ``emd`` of a table is that
    of the farthest attribute. ``d_y`` is the share of the variation of confidential numbers within clusters.
    """
    found: Figures = {}
    if not classes:
        return found
    if policy.protects_values:
        columns = [AuditedColumn(policy, attribute, originals.released) for attribute in policy.protected]
        counts = [[column.counts(one.unchanged) for one in classes] for column in columns]
        sizes = [len(one.unchanged) for one in classes]
        found["l", "min"] = (min(len(own) for column in counts for own in column),)
        shares = (max(own.values()) / size for column in counts for own, size in zip(column, sizes, strict=True))
        found["value_share", "max"] = (max(shares),)
        if policy.t is not None:
            found |= _distances(originals, columns, counts)
    if policy.dependence > 0:
        within = _variation_within(policy, originals, classes)
        found |= {} if within is None else {("d_y",): (within,)}
    return found


def _ordered_bins(
    attribute: Attribute, shares: Mapping[str, float], keys: TextKeys
) -> tuple[Callable[[str], int], list[float]]:
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


def _first_and_tail(counts: Collection[int], l: int) -> tuple[int, int]:  # noqa: E741 - the name of the field
    ordered = sorted(counts, reverse=True)
    return ordered[0], sum(ordered[l - 1 :])


class _ValueChecks:
    """The three checks, with the values of each class counted once."""

    def __init__(self, policy: Policy, originals: Originals, classes: Sequence[ValueClass], unit: str) -> None:
        self._policy, self._originals, self._unit = policy, originals, unit
        self._labels = [one.label for one in classes]
        self._columns = [AuditedColumn(policy, attribute, originals.released) for attribute in policy.protected]
        self._counts = [[column.counts(one.unchanged) for column in self._columns] for one in classes]
        self._names = ", ".join(attribute.name for attribute in policy.protected)

    def diversity(self, rule: Diversity) -> CheckCounter:
        check = CheckCounter("diversity", _diversity_claim(self._names, self._policy.k, rule), self._unit)
        measure, is_diverse, worst = _diversity(rule)
        for label, columns in zip(self._labels, self._counts, strict=True):
            check.expect(all(is_diverse(list(column.values())) for column in columns), label)
            found = worst(measure(list(column.values())) for column in columns)
            check.worst = found if check.worst is None else worst((check.worst, found))
        if check.worst is not None and math.isinf(check.worst):
            check.worst, check.note = None, "a cluster has fewer than l different values"
        return check

    def value_share(self, limit: float) -> CheckCounter:
        claim = f"no value of {self._names} has more than {limit:g} of the records of a cluster"
        check = CheckCounter("value_share", claim, self._unit)
        most = Fraction(repr(limit))
        for label, columns in zip(self._labels, self._counts, strict=True):
            size = sum(columns[0].values())
            largest = max(max(column.values()) for column in columns)
            check.expect(largest <= most * size + SHARE_TOLERANCE, label)
            check.worst = max(check.worst or 0.0, largest / size)
        return check

    def closeness(self, t: float) -> CheckCounter:
        check = CheckCounter("closeness", _closeness_claim(self._policy, t), self._unit)
        farthest = [0.0] * len(self._labels)
        for place, column in enumerate(self._columns):
            found = class_distances(self._originals, column, [own[place] for own in self._counts])
            farthest = list(map(max, farthest, found))
        for label, distance in zip(self._labels, farthest, strict=True):
            check.expect(distance <= t + TOLERANCE, label)
        check.worst = max(farthest, default=None)
        return check


def _diversity(
    rule: Diversity,
) -> tuple[Callable[[list[int]], float], Callable[[list[int]], bool], Callable[[Iterable[float]], float]]:
    """Return the measure of a kind of l-diversity, whether counts are diverse, and which measure is the worst."""
    if rule.kind == "entropy":
        return effective_values, lambda counts: math.log(effective_values(counts)) >= math.log(rule.l) - TOLERANCE, min
    least = int(rule.l)
    if rule.kind == "recursive":
        c = float(rule.c or 0)
        return (
            lambda counts: recursive_ratio(counts, least),
            lambda counts: is_recursive_diverse(counts, c, least),
            max,
        )
    return len, lambda counts: len(counts) >= least, min


def _diversity_claim(names: str, k: int, rule: Diversity) -> str:
    if rule.kind == "entropy":
        return (
            f"every cluster is entropy {rule.l:g}-diverse in {names}: its values have at least the entropy of "
            f"{rule.l:g} equally frequent ones"
        )
    if rule.kind == "recursive":
        rank = _ordinal(int(rule.l))
        return (
            f"every cluster is recursively ({rule.c:g}, {rule.l:g})-diverse in {names}: its most frequent value occurs "
            f"less than {rule.c:g} times as often as the {rank} most frequent and all rarer ones together"
        )
    p_sensitive = f"; with k = {k} also called p-sensitive k-anonymity, p = {rule.l:g}" if rule.l <= k else ""
    return f"every cluster has at least {rule.l:g} different values of {names} (distinct l-diversity{p_sensitive})"


def _ordinal(number: int) -> str:
    suffix = "th" if number % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def _closeness_claim(policy: Policy, t: float) -> str:
    if any(attribute.reference is not None for attribute in policy.protected):
        kinds = {attribute.name: attribute.distance or "ordered or equal" for attribute in policy.protected}
        named = ", ".join(f"{name} ({kind} distance)" for name, kind in kinds.items())
        return f"no cluster is farther than {t:g} from the reference of the policy in {named}"
    return f"no confidential attribute of a cluster is farther than {t:g} from the table"


def _distances(
    originals: Originals, columns: Sequence[AuditedColumn], counts: Sequence[Sequence[Counter[str]]]
) -> Figures:
    """Return mean and largest distance of each protected attribute, and those of the farthest one, or of several."""
    found: Figures = {}
    measured: dict[str, tuple[float, float]] = {}
    for column, own in zip(columns, counts, strict=True):
        name, distances = column.attribute.name, class_distances(originals, column, own)
        mean, largest = measured[name] = math.fsum(distances) / len(distances), max(distances)
        for group in ("emd", "emd_of"):
            found[group, name, "mean"], found[group, name, "max"] = (mean,), (largest,)
    farthest = max(largest for _, largest in measured.values())
    found["emd", "max"] = (farthest,)
    found["emd", "mean"] = tuple(mean for mean, largest in measured.values() if abs(largest - farthest) <= _TIE)
    return found


def _variation_within(policy: Policy, originals: Originals, classes: Sequence[ValueClass]) -> float | None:
    """Return ``d_y``, weighted by the numbers of present values; None if nothing varies, or a number is too large."""
    total, weight = 0.0, 0
    for attribute in policy.dependence_attributes or policy.confidential:
        column = AuditedColumn(policy, attribute, originals.released)
        if not attribute.bounds and not column.is_numeric(originals):
            continue
        groups = [
            np.array(
                [float(number) for key in map(column.key, one.unchanged) if (number := number_or_none(key)) is not None]
            )
            for one in classes
        ]
        values = np.concatenate(groups)
        if not len(values) or np.ptp(values) == 0:
            continue
        if np.abs(values).max() >= _LARGEST:
            return None
        within = math.fsum(float(((own - own.mean()) ** 2).sum()) for own in groups if len(own))
        total += within / float(((values - values.mean()) ** 2).sum()) * len(values)
        weight += len(values)
    return total / weight if weight else None
