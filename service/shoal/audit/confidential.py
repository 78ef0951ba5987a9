"""Checks what the policy guarantees about confidential values: ``l``, ``max_value_share`` and ``t``, by cluster.

People are counted, and their values by keys (`shoal.audit.fields`). If no person has two records and clusters satisfy
the limits, so does their union. So rows that are equal on all quasi-identifiers must satisfy them then, whatever their
clusters are.

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

from shoal.audit.fields import FIELD_SEPARATOR, MISSING, Int64Vector, is_number, key_reader, number_of, text_key_reader
from shoal.audit.originals import Originals
from shoal.audit.reading import Form
from shoal.audit.scales import TaxonomyTree, decimal_number
from shoal.audit.verdict import CheckCounter
from shoal.policy import Attribute, Diversity, Policy

NodePath = TypeVar("NodePath", bound=tuple[Hashable, ...])
"""The nodes of a value from the leaf up to the child of the root."""
_EXACT = Context(prec=5000)  # more digits than the sum of two float64 has
Weights: TypeAlias = Mapping[str, int | Fraction]
"""What each key weighs: each person one, split over the records of the person."""
Distance: TypeAlias = Callable[[Weights], float]
"""From the weight of each key to the distance of their distribution from the reference."""
TextKeys: TypeAlias = Callable[[str | None], str]
TOLERANCE = 1e-9  # rounding error of a distance or an entropy computed in float64
SHARE_TOLERANCE = Fraction(2, 10**9)
"""In people: the limit may be a rounded number, such as 0.333333333333, and the engine allows half of this."""
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

    def distance(self, bins: Sequence[int], weights: Sequence[float]) -> float:
        """Return the mean difference of the two cumulative distributions over the m - 1 steps between bins.

        Between two values of a cluster its own share is constant and that of the reference rises. Each of these
        intervals is split where the latter passes the former, and summed by prefix sums. Cost: O(bins log m).
        """
        steps = len(self._cumulative)
        if not steps:
            return 0.0
        order = np.argsort(bins)
        edges = np.concatenate([[0], np.minimum(np.asarray(bins)[order], steps), [steps]])
        shares = np.cumsum([0.0, *np.asarray(weights)[order]]) / math.fsum(weights)
        low, high = edges[:-1], edges[1:]
        middle = np.clip(np.searchsorted(self._cumulative, shares, side="right"), low, high)
        below = shares * (middle - low) - (self._prefix_sums[middle] - self._prefix_sums[low])
        above = (self._prefix_sums[high] - self._prefix_sums[middle]) - shares * (high - middle)
        return float((below + above).sum() / steps)


def equal_distance(weights: Weights, reference: Mapping[str, float]) -> float:
    """Return the distance if all values are 1 apart: what is not common to both distributions."""
    people = sum(weights.values())
    return 1.0 - math.fsum(min(weight / people, reference.get(key, 0.0)) for key, weight in weights.items())


def hierarchical_distance(paths: Mapping[NodePath, int | Fraction], reference: Mapping[NodePath, float]) -> float:
    """Return the distance if two values are as far apart as their lowest common ancestor is high, over the levels.

    The edge above a node is 1 / (2 levels) long, and carries the difference of the shares below the node.
    """
    people, levels = sum(paths.values()), len(next(iter(paths)))
    below: defaultdict[tuple[int, Hashable], float] = defaultdict(float)
    for path, weight in paths.items():
        for level, node in enumerate(path):
            below[level, node] += float(weight / people)
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
        return lambda weights: reference.distance(list(map(bin_of, weights)), list(map(float, weights.values())))
    total = math.fsum(shares.values())
    parts = {key: share / total for key, share in shares.items()}
    if attribute.taxonomy is None:
        return lambda weights: equal_distance(weights, parts)
    tree, leaves = TaxonomyTree(attribute.taxonomy), {keys(path[0]): path[0] for path in attribute.taxonomy.paths}

    def path(key: str) -> tuple[object, ...]:
        # A value that is no leaf has a path of its own. A missing value is none, whatever leaves are called.
        return tree.path(leaves[key]) if key in leaves else (("", key),) * tree.depth

    below = {path(key): share for key, share in parts.items()}
    return lambda weights: hierarchical_distance({path(key): weight for key, weight in weights.items()}, below)


def number_or_none(key: str) -> Decimal | None:
    """Return the number of a key, or of a text that is one outside JSON, such as 007; None of any other."""
    if is_number(key):
        return number_of(key)
    value = decimal_number(key[1:].strip()) if key.startswith("t") else None
    return None if value is None or not math.isfinite(value) else Decimal(repr(value))


class PeopleOfValues:
    """Who has which value in a class of records, each given by its key and its person; by default all are different."""

    def __init__(self, keys: Sequence[str], persons: Sequence[int] | None = None) -> None:
        records = Counter(persons)
        self.people = len(keys) if persons is None else len(records)
        self.weights: Weights = Counter(keys)
        if persons is None or self.people == len(keys):
            self.largest, self.assignable = max(self.weights.values(), default=0), len(self.weights)
            return
        owners: defaultdict[str, set[int]] = defaultdict(set)
        shares: defaultdict[str, Fraction] = defaultdict(Fraction)
        for key, person in zip(keys, persons, strict=True):
            owners[key].add(person)
            shares[key] += Fraction(1, records[person])
        self.weights = dict(shares)
        self.largest = max(map(len, owners.values()))
        """Most people who have one value."""
        self.assignable = assignable_values(owners)
        """Most values that can be those of different people."""


def assignable_values(owners: Mapping[str, set[int]]) -> int:
    """Return how many values can be assigned to different ones of their owners: the largest matching of both."""
    assigned: dict[int, str] = {}
    for key in owners:
        came_from: dict[int, str] = {}
        frontier, last = [key], None
        while frontier and last is None:
            reached = {person: value for value in frontier for person in owners[value] - came_from.keys()}
            came_from |= reached
            last = next((person for person in reached if person not in assigned), None)
            frontier = [assigned[person] for person in reached if person in assigned]
        while last is not None:  # each owner on the way takes the value from which it was reached
            value = came_from[last]
            before = next((person for person, own in assigned.items() if own == value), None)
            assigned[last], last = value, before
    return len(assigned)


def effective_values(found: PeopleOfValues) -> float:
    """Return the number of equally frequent values that have the entropy of these: e to the power of the entropy."""
    shares = [float(weight / found.people) for weight in found.weights.values()]
    return math.exp(-math.fsum(share * math.log(share) for share in shares))


def is_recursive_diverse(found: PeopleOfValues, c: float, l: int) -> bool:  # noqa: E741 - the name of the field
    """Whether fewer people have one value than c times what the l-th and all rarer ones weigh together."""
    return found.largest < Fraction(repr(c)) * _tail(found, l)  # the shortest decimal: 11 < 1.1 * 10 does not hold


def recursive_ratio(found: PeopleOfValues, l: int) -> float:  # noqa: E741 - the name of the field
    """Return the most people with one value over the weight of the l-th and all rarer ones; infinite without these."""
    tail = _tail(found, l)
    return float(found.largest / tail) if tail else math.inf


@dataclass(frozen=True, slots=True)
class ValueClass:
    """Records that a reader of the release cannot tell apart, by the texts of their unchanged fields."""

    label: int | str
    unchanged: Collection[str]
    members: Int64Vector | None = None  # indices of the originals; None if the records of the rows are not known


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


def people_of_classes(
    originals: Originals, column: AuditedColumn, classes: Sequence[ValueClass]
) -> list[PeopleOfValues]:
    """Return who has which value in each class."""
    return [PeopleOfValues(list(map(column.key, one.unchanged)), _persons(originals, one)) for one in classes]


def class_distances(
    originals: Originals, column: AuditedColumn, classes: Sequence[ValueClass], found: Sequence[PeopleOfValues]
) -> list[float]:
    """Return the distance of each class from the reference of the policy; without one, from all classes together."""
    attribute = column.attribute
    shares = reference_shares(attribute, column.key_of_text)
    if shares is None:
        keys = [column.key(text) for one in classes for text in one.unchanged]
        persons = [person for one in classes for person in _persons(originals, one) or ()]
        totals = PeopleOfValues(keys, persons or None).weights
        shares = {key: float(weight) for key, weight in totals.items()}
    distance = distance_from(attribute, shares, column.key_of_text, is_ordered=column.is_ordered(originals))
    return [distance(own.weights) for own in found]


def _persons(originals: Originals, one: ValueClass) -> list[int] | None:
    return None if one.members is None else originals.subjects[one.members].tolist()


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
        people = [people_of_classes(originals, column, classes) for column in columns]
        found["l", "min"] = (min(own.assignable for column in people for own in column),)
        found["value_share", "max"] = (max(own.largest / own.people for column in people for own in column),)
        if policy.t is not None:
            found |= _distances(originals, columns, classes, people)
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


def _tail(found: PeopleOfValues, l: int) -> int | Fraction:  # noqa: E741 - the name of the field
    return sum(sorted(found.weights.values(), reverse=True)[l - 1 :])


class _ValueChecks:
    """The three checks, with the values of each class counted once."""

    def __init__(self, policy: Policy, originals: Originals, classes: Sequence[ValueClass], unit: str) -> None:
        self._policy, self._originals, self._classes, self._unit = policy, originals, classes, unit
        self._columns = [AuditedColumn(policy, attribute, originals.released) for attribute in policy.protected]
        self._people = [people_of_classes(originals, column, classes) for column in self._columns]
        self._names = ", ".join(attribute.name for attribute in policy.protected)

    def diversity(self, rule: Diversity) -> CheckCounter:
        check = CheckCounter("diversity", _diversity_claim(self._names, self._policy.k, rule), self._unit)
        measure, is_diverse, worst = _diversity(rule)
        for one, *columns in zip(self._classes, *self._people, strict=True):
            check.expect(all(map(is_diverse, columns)), one.label)
            found = worst(map(measure, columns))
            check.worst = found if check.worst is None else worst((check.worst, found))
        if check.worst is not None and math.isinf(check.worst):
            check.worst, check.note = None, "a cluster has fewer than l different values"
        return check

    def value_share(self, limit: float) -> CheckCounter:
        claim = f"no value of {self._names} is one of more than {limit:g} of the people of a cluster"
        check = CheckCounter("value_share", claim, self._unit)
        most = Fraction(repr(limit))
        for one, *columns in zip(self._classes, *self._people, strict=True):
            people, largest = columns[0].people, max(column.largest for column in columns)
            check.expect(largest <= most * people + SHARE_TOLERANCE, one.label)
            check.worst = max(check.worst or 0.0, largest / people)
        return check

    def closeness(self, t: float) -> CheckCounter:
        check = CheckCounter("closeness", _closeness_claim(self._policy, t), self._unit)
        farthest = [0.0] * len(self._classes)
        for column, people in zip(self._columns, self._people, strict=True):
            farthest = list(map(max, farthest, class_distances(self._originals, column, self._classes, people)))
        for one, distance in zip(self._classes, farthest, strict=True):
            check.expect(distance <= t + TOLERANCE, one.label)
        check.worst = max(farthest, default=None)
        return check


def _diversity(
    rule: Diversity,
) -> tuple[Callable[[PeopleOfValues], float], Callable[[PeopleOfValues], bool], Callable[[Iterable[float]], float]]:
    """Return the measure of a kind of l-diversity, whether a class is diverse, and which measure is the worst."""
    if rule.kind == "entropy":
        return effective_values, lambda found: math.log(effective_values(found)) >= math.log(rule.l) - TOLERANCE, min
    least = int(rule.l)
    if rule.kind == "recursive":
        c = float(rule.c or 0)
        return (
            lambda found: recursive_ratio(found, least),
            lambda found: is_recursive_diverse(found, c, least),
            max,
        )
    return lambda found: found.assignable, lambda found: found.assignable >= least, min


def _diversity_claim(names: str, k: int, rule: Diversity) -> str:
    if rule.kind == "entropy":
        return (
            f"every cluster is entropy {rule.l:g}-diverse in {names}: its values have at least the entropy of "
            f"{rule.l:g} equally frequent ones"
        )
    if rule.kind == "recursive":
        rank = _ordinal(int(rule.l))
        return (
            f"every cluster is recursively ({rule.c:g}, {rule.l:g})-diverse in {names}: its most frequent value has "
            f"less than {rule.c:g} times as many people as the {rank} most frequent and all rarer ones together"
        )
    p_sensitive = f"; with k = {k} also called p-sensitive k-anonymity, p = {rule.l:g}" if rule.l <= k else ""
    return (
        f"every cluster has at least {rule.l:g} different values of {names}, of as many people (distinct "
        f"l-diversity{p_sensitive})"
    )


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
    originals: Originals,
    columns: Sequence[AuditedColumn],
    classes: Sequence[ValueClass],
    people: Sequence[Sequence[PeopleOfValues]],
) -> Figures:
    """Return mean and largest distance of each protected attribute, and those of the farthest one, or of several."""
    found: Figures = {}
    measured: dict[str, tuple[float, float]] = {}
    for column, own in zip(columns, people, strict=True):
        name, distances = column.attribute.name, class_distances(originals, column, classes, own)
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
