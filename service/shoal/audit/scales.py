"""Reads the values of quasi-identifiers and steering attributes, by their scale, as float64.

A number is itself, a time its milliseconds since 1970, an ordinal value its rank and a nominal value the code of its
category. A missing value is NaN. None stands for a value that makes the record unusable.

Times as the policy defines them: text or epoch number to milliseconds, and the published step nearest to a mean.

All arithmetic is on integers and fractions. A time is a whole number of milliseconds since 1970-01-01T00:00Z.

The tree of a taxonomy as the audit reads it: common ancestors, medians and distances of leaves.

A node is a level and a name: level 0 holds the leaves, and the root is above the highest level. Equal names on two
levels are two nodes. A category that the taxonomy lacks is a leaf of its own directly below the root, so it differs
from every other one on all levels.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from shoal.audit.arithmetic import canonical_float, day_of, month_length, months_until, start_of_month
from shoal.audit.reading import Form, JsonNumber, json_text
from shoal.policy import Attribute, MessagePart, Scale, Taxonomy, TimeStep

__all__ = [
    "ABSENT",
    "BLANKS",
    "POINT",
    "Categories",
    "DecimalSign",
    "Node",
    "TaxonomyTree",
    "TimeGrid",
    "ValueReader",
    "decimal_number",
    "epoch_ms",
    "is_decimal",
    "is_encodable",
    "iso_ms",
    "value_reader",
]

_ISO = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?"
)
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_DAY_MS = 86_400_000
_LENGTHS = {"s": Fraction(1000), "ms": Fraction(1), "us": Fraction(1, 1000), "days": Fraction(_DAY_MS)}
"""Milliseconds of one, by unit."""
_MONTHS = 12
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 0001 to 9999."""
_MAX_MAGNITUDE, _MIN_MAGNITUDE = 1e18, 1e-9
"""Numbers beyond are no times of these years, and smaller ones are 0."""


def iso_ms(text: str) -> int | None:
    """Return the milliseconds of a date, or of a date and time, in ISO 8601; None for any other text.

    A text without a zone is in UTC, and a date is its midnight in its zone. Fractions of a millisecond are rounded half
    to even.
    """
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(found[number] or 0) for number in range(1, 7))
    if not year or not 1 <= month <= _MONTHS or not 1 <= day <= month_length(year, month):
        return None
    offset = _offset_minutes(found[8])
    if hour > 23 or minute > 59 or second > 59 or offset is None:  # noqa: PLR2004 - the clock
        return None
    seconds = day_of(year, month, day) * 86_400 + hour * 3600 + (minute - offset) * 60 + second
    return _in_range(round(seconds * 1000 + Fraction(int((found[7] or "0").ljust(9, "0")), 10**6)))


def _offset_minutes(zone: str | None) -> int | None:
    """Return the minutes of a zone east of UTC; None if its hours or minutes do not exist."""
    if zone is None or zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[-2:])
    if hours > 23 or minutes > 59:  # noqa: PLR2004 - the clock
        return None
    return (hours * 60 + minutes) * (-1 if zone.startswith("-") else 1)


def epoch_ms(text: str, unit: str) -> int | None:
    """Return the milliseconds of an epoch number, given as a decimal; None outside the years 0001 to 9999.

    Fractions of a millisecond are rounded half to even.
    """
    magnitude = abs(float(text))
    if magnitude > _MAX_MAGNITUDE:
        return None
    exact = Fraction(Decimal(text)) if magnitude >= _MIN_MAGNITUDE else Fraction(0)
    return _in_range(round(exact * _LENGTHS[unit]))


def _in_range(milliseconds: int) -> int | None:
    return milliseconds if _FIRST_MS <= milliseconds <= _LAST_MS else None


class TimeGrid:
    """The publishable times of one attribute: the multiples of a step, or the starts of months or years, in UTC.

    Parameters
    ----------
    step : TimeStep
    unit : {"s", "ms", "us", "days"} or None
        Unit of published epoch numbers; None for texts.
    """

    def __init__(self, step: TimeStep, unit: str | None) -> None:
        self._step, self._unit = step, unit
        self._months = {"month": 1, "year": _MONTHS}.get(step.unit)

    def mean(self, values: Sequence[float]) -> str:
        """Return the mean of whole milliseconds as a published number or text, without quotation marks."""
        return self._text(self._nearest(Fraction(sum(map(int, values)), len(values))))

    def rounded(self, milliseconds: float) -> int:
        """Return the publishable time of the years 0001 to 9999 that is nearest to a time."""
        return self._nearest(Fraction(milliseconds))

    def parse(self, text: str) -> int | None:
        """Return the milliseconds of a published text if it is one of the grid in its only spelling; else None."""
        if self._unit is not None:
            if not _WHOLE.fullmatch(text) or len(text) > 18:  # noqa: PLR2004
                return None
            exact = int(text) * _LENGTHS[self._unit]
            found = _in_range(int(exact)) if exact.denominator == 1 else None
        else:
            found = iso_ms(text)
        return found if found is not None and self.rounded(found) == found and self._text(found) == text else None

    def _nearest(self, time: Fraction) -> int:
        if self._months is None:
            length = self._step.milliseconds
            # A time of these years is always within one step of a multiple that is inside them.
            return min(max(round(time / length), -(-_FIRST_MS // length)), _LAST_MS // length) * length
        # Ties go to the even count of months or years since 1970.
        count = self._count_until(time)
        below, above = self._start(count), self._start(count + 1)
        doubled = 2 * (time - below)
        width = above - below
        is_up = doubled > width or (doubled == width and count % 2)
        return above if is_up and above <= _LAST_MS else below  # the year 0001 begins with a month

    def _count_until(self, time: Fraction) -> int:
        """Return the number of months or years that begin after 1970-01-01 and not after a time."""
        return months_until(int(time // _DAY_MS)) // (self._months or 1)

    def _start(self, count: int) -> int:
        return start_of_month(count * (self._months or 1)) * _DAY_MS

    def _text(self, milliseconds: int) -> str:
        if self._unit is not None:
            return str(int(milliseconds / _LENGTHS[self._unit]))
        day, rest = divmod(milliseconds, _DAY_MS)
        months = months_until(day)
        years, month = divmod(months, _MONTHS)
        shown = f"{1970 + years:04}-{month + 1:02}-{day - start_of_month(months) + 1:02}"
        if self._step.is_date:
            return shown
        seconds = rest // 1000
        return f"{shown}T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


ValueReader: TypeAlias = Callable[[object], float | None]

ABSENT = object()
"""Stands for a field that a JSON object does not have."""

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_MAX_INTEGER_LENGTH = 4300
"""Characters; longer integers are not numbers (the limit of Python's int)."""
BLANKS = " \t"
"""What is ignored around a text cell. Other white space, such as a no-break space or a line end, is not."""


class Categories:
    """The categories of one nominal attribute in the order of their first records.

    ``counts``: how many members of clusters have each category, by its code.
    Without a taxonomy a category is the text of a JSON scalar; with one it is the name of a leaf.
    """

    def __init__(self, *, are_leaves: bool = False) -> None:
        self.texts: list[str] = []
        self._are_leaves = are_leaves
        self.counts: Counter[int] = Counter()
        self._codes: dict[str, int] = {}

    def code(self, text: str) -> float:
        """Return the code of a category."""
        found = self._codes.setdefault(text, len(self.texts))
        if found == len(self.texts):
            self.texts.append(text)
        return float(found)

    def json_text(self, code: float) -> str:
        """Return a category as JSON."""
        text = self.texts[int(code)]
        return json_text(text) if self._are_leaves else text


class DecimalSign:
    """Converts the numbers of a CSV dialect to numbers with a decimal point, and back."""

    def __init__(self, sign: str = ".") -> None:
        self._sign = sign
        self.is_comma = sign != "."

    def to_point(self, cell: str) -> str:
        """Write a cell with a decimal point. One that has a point where the dialect has a comma is no number."""
        if not self.is_comma:
            return cell
        return "." if "." in cell else cell.replace(self._sign, ".")

    def from_point(self, number: str) -> str:
        """Write a number as a cell of the dialect."""
        return number.replace(".", self._sign)


POINT = DecimalSign()


def is_decimal(text: str) -> bool:
    """Whether a text is an ASCII decimal number."""
    return _DECIMAL.fullmatch(text) is not None


def decimal_number(text: str) -> float | None:
    """Return the float64 nearest to an ASCII decimal number; None for any other text."""
    return float(text) if _DECIMAL.fullmatch(text) else None


def is_encodable(value: str, encoding: str = "utf-8") -> bool:
    """Whether an encoding has all characters of a text; a lone surrogate cannot be published in any."""
    if value.isascii():
        return True
    try:
        value.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def value_reader(
    attribute: Attribute, form: Form, sign: DecimalSign, missing_values: tuple[str, ...], categories: Categories | None
) -> ValueReader:
    """Return the function from the value of a field, or `ABSENT`, to its float64.

    Parameters
    ----------
    attribute : Attribute
        A quasi-identifier or steering attribute.
    form : {"csv", "jsonl"}
        How the field is written.
    sign : DecimalSign
        Of the original's cells.
    missing_values : tuple of str
        Texts that stand for a missing value. So do equal numbers, and categories with the text of one.
    categories : Categories or None
        Gets the categories of a nominal attribute.
    """
    read = _present_reader(attribute, form, sign, categories)
    if not attribute.may_be_missing and attribute.scale is Scale.NUMERIC and set(missing_values) <= {""}:
        return read  # an empty cell and null are no numbers, so the record is unusable in any case
    missing, found = frozenset(missing_values), math.nan if attribute.may_be_missing else None
    is_number = _missing_number(attribute, form, sign, missing)
    if form == "csv":
        return lambda value: found if str(value).strip(BLANKS) in missing or is_number(value) else read(value)
    return lambda value: (
        found if value is None or value is ABSENT or _is_in(value, missing) or is_number(value) else (read(value))
    )


def _is_in(value: object, missing: frozenset[str]) -> bool:
    return isinstance(value, str) and not isinstance(value, JsonNumber) and value in missing


def _missing_number(
    attribute: Attribute, form: Form, sign: DecimalSign, missing: frozenset[str]
) -> Callable[[object], bool]:
    """Return whether a value means a missing one as a number, or as the text of a number or truth value."""
    is_text = attribute.scale is Scale.TIME and attribute.unit is None
    if attribute.scale in {Scale.NOMINAL, Scale.ORDINAL} or (
        is_text and attribute.source.part is not MessagePart.TIMESTAMP
    ):
        return lambda value: isinstance(value, bool | JsonNumber) and _name(value, form) in missing
    numbers = {number for number in map(decimal_number, missing) if number is not None and math.isfinite(number)}
    if not numbers:
        return lambda _: False
    if form == "jsonl":
        return lambda value: isinstance(value, JsonNumber) and float(value) in numbers
    return lambda value: decimal_number(sign.to_point(str(value).strip(BLANKS))) in numbers


def _present_reader(attribute: Attribute, form: Form, sign: DecimalSign, categories: Categories | None) -> ValueReader:
    match attribute.scale:
        case Scale.NOMINAL:
            return _nominal_reader(attribute, form, categories or Categories())
        case Scale.ORDINAL:
            return _ordinal_reader(attribute, form)
        case Scale.TIME:
            return _BoundedReader(attribute, _time_reader(attribute, form, sign))
        case _:
            return _BoundedReader(attribute, _number_reader(form, sign))


# ---------------------------------------------------------------- numbers and times


class _BoundedReader:
    """Returns the clipped float64 of a number or a time, or None."""

    __slots__ = ("_clip", "_high", "_integer", "_low", "_number")

    def __init__(self, attribute: Attribute, number: ValueReader) -> None:
        self._low, self._high = attribute.limits
        self._clip, self._integer, self._number = attribute.clip, attribute.integer, number

    def __call__(self, value: object) -> float | None:
        number = self._number(value)
        if number is None or not math.isfinite(number) or (self._integer and not number.is_integer()):
            return None
        clipped = min(max(number, self._low), self._high)
        return clipped if self._clip or clipped == number else None


def _number_reader(form: Form, sign: DecimalSign) -> ValueReader:
    return _json_number if form == "jsonl" else lambda value: decimal_number(sign.to_point(str(value).strip(BLANKS)))


def _json_number(value: object) -> float | None:
    return float(value) if isinstance(value, JsonNumber) else None


def _time_reader(attribute: Attribute, form: Form, sign: DecimalSign) -> ValueReader:
    # Timestamps of messages are milliseconds, whatever the unit of published times is.
    unit = "ms" if attribute.source.part is MessagePart.TIMESTAMP else attribute.unit

    def read(value: object) -> float | None:
        text = _text(value, form) if unit is None or form == "csv" else value if isinstance(value, JsonNumber) else None
        if text is None:
            return None
        if unit is None:
            return _float_or_none(iso_ms(text))
        number = sign.to_point(text)
        return _float_or_none(epoch_ms(number, unit)) if is_decimal(number) else None

    return read


def _float_or_none(number: int | None) -> float | None:
    return None if number is None else float(number)


# ---------------------------------------------------------------- categories


def _text(value: object, form: Form) -> str | None:
    """Return the text of a cell without blanks around it, or a JSON string as it is; None for other values."""
    if form == "csv":
        return str(value).strip(BLANKS)
    return value if isinstance(value, str) and not isinstance(value, JsonNumber) else None


def _name(value: object, form: Form) -> str | None:
    """Return the text by which a category is matched: of a string, a truth value or a whole number."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, JsonNumber):
        return _whole_number(value)
    text = _text(value, form)
    return text if text is not None and is_encodable(text) else None


def _whole_number(text: str) -> str | None:
    """Return the digits of a whole number: exactly, or those of its float64 if it has a point or an exponent."""
    if _INTEGER.fullmatch(text):
        return str(int(text)) if len(text) <= _MAX_INTEGER_LENGTH else None
    number = float(text)
    return canonical_float(number) if number.is_integer() else None


def _nominal_reader(attribute: Attribute, form: Form, categories: Categories) -> ValueReader:
    code, taxonomy = categories.code, attribute.taxonomy

    def flat(value: object) -> float | None:
        name = _name(value, form)
        if name is None:
            return None
        is_text = isinstance(value, str) and not isinstance(value, JsonNumber)
        return code(json_text(name) if is_text else name)

    if taxonomy is None:
        return flat
    leaves = frozenset(path[0] for path in taxonomy.paths) if attribute.unknown == "quarantine" else None

    def leaf(value: object) -> float | None:
        name = _name(value, form)
        return None if name is None or (leaves is not None and name not in leaves) else code(name)

    return leaf


def _ordinal_reader(attribute: Attribute, form: Form) -> ValueReader:
    ranks = {str(item): float(rank) for rank, item in enumerate(attribute.order)}

    def read(value: object) -> float | None:
        name = _name(value, form)
        return None if name is None else ranks.get(name)

    return read


class Node(NamedTuple):
    """A leaf, an inner node or the root.

    Attributes
    ----------
    level : int
        0 for a leaf; the number of levels for the root.
    name : str
    """

    level: int
    name: str


class TaxonomyTree:
    """A taxonomy with the paths of its leaves.

    Parameters
    ----------
    taxonomy : Taxonomy

    Attributes
    ----------
    leaves, inner : frozenset of str
        Names of the leaves, and of all nodes above them. A name can be in both.
    """

    def __init__(self, taxonomy: Taxonomy) -> None:
        self.depth = len(taxonomy.paths[0])
        self.root = Node(self.depth, taxonomy.root)
        paths = [tuple(Node(level, name) for level, name in enumerate(path)) for path in taxonomy.paths]
        self._paths = {path[0].name: path for path in paths}
        self._from = {node: (None,) * node.level + path[node.level :] for path in paths for node in path}
        self.leaves = frozenset(self._paths)
        self.inner = frozenset(node.name for path in paths for node in path[1:]) | {self.root.name}

    def path(self, leaf: str) -> tuple[Node, ...]:
        """Return the nodes from a leaf up to the child of the root. A leaf of its own is on all of its levels."""
        return self._paths.get(leaf) or (Node(0, leaf),) * self.depth

    def ancestor(self, leaves: Sequence[str]) -> Node:
        """Return the lowest common ancestor; the leaf itself if all are equal."""
        paths = [self.path(name) for name in set(leaves)]
        for level in range(self.depth):
            found = {path[level] for path in paths}
            if len(found) == 1:
                return found.pop()
        return self.root

    def median(self, leaves: Sequence[str]) -> Node:
        """Return the lowest node above more than half of the leaves."""
        counts = Counter(leaves)
        for level in range(self.depth):
            weights: Counter[Node] = Counter()
            for leaf, count in counts.items():
                weights[self.path(leaf)[level]] += count
            node, weight = max(weights.items(), key=lambda item: item[1])
            if 2 * weight > len(leaves):
                return node
        return self.root

    def distance(self, leaf: str, node: Node) -> Fraction:
        """Return the height of the common ancestor of a leaf and a node, over the number of levels."""
        path = self.path(leaf)
        other = self.path(node.name) if node.level == 0 else self._from.get(node, (None,) * self.depth)
        common = (level for level in range(self.depth) if path[level] == other[level])
        return Fraction(min(common, default=self.depth), self.depth)
