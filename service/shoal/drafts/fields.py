"""What the values of one field are: how many, of how many people, missing, numbers, times."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final

import numpy as np

from shoal.drafts.names import Kind, kind_of
from shoal.drafts.reading import ABSENT, NESTED, Sample, Values
from shoal.policy import FieldPath, WrittenNumbers
from shoal.scales.numeric import WrittenForm, parse_numbers, replace_decimal_commas
from shoal.scales.time import parse_iso_times

MISSING_TEXTS: Final = (
    *("", "NA", "N/A", "n/a", "NULL", "null", "Null", "NaN", "nan", "?", "-", "--", ".", "..", "#N/A", "<NA>"),
    *("(null)", r"\N", "k.A.", "k. A.", "s/d", "N.A."),
)
"""Texts that mean that a value is missing, whatever else a field holds."""
DOUBTFUL_TEXTS: Final = (
    *("none", "None", "NONE", "unknown", "Unknown", "missing", "Missing", "unbekannt", "Unbekannt", "fehlt"),
    *("inconnu", "Inconnu", "desconocido", "Desconocido", "ND", "nd"),
)
"""Those that could be a category: taken for missing if a field of numbers or times has them."""
_MAY_BE_VALUES: Final = frozenset(["NA", "none", "None", "NONE", "ND", "nd"])
"""Those of them that may be a value elsewhere, as no pain is: taken for missing among numbers and times only."""
_TOLERATED = 0.005
"""Share of the values that may have another form than all others: the policy refuses their records."""
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]")
_TWO_LETTERS = re.compile(r"[A-Z]{2}")
_SYMBOL = re.compile(r"[^\d\s+.,'’-]+")
_SYMBOLS = frozenset(["%", "‰", "€", "$", "£", "¥", "EUR", "USD", "GBP", "CHF", "kg", "cm", "mm", "mg", "ml"])
"""Those that stand beside amounts. Other letters beside digits are parts of a code."""
_OF_THOUSANDS = re.compile(r"[^\d]*[1-9][0-9]{0,2}[.,][0-9]{3}[^\d]*")
_YEAR_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")
REDUCED: Final = "%Y-%m"
"""A date of ISO 8601 without a day: read without ``format`` if the resolution is a month or a year."""
DATE_FORMATS: Final = tuple(
    date + clock
    for date in (
        *("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d"),
        *("%d %b %Y", "%d-%b-%Y", "%b %d %Y"),
    )
    for clock in ("", " %H:%M", " %H:%M:%S")
)


@dataclass(frozen=True)
class Field:
    """A field of the sample.

    Attributes
    ----------
    path : path
        Names of the objects around the field, and its own.
    rows, missing, absent, nested : int
        How many rows there are, and in how many the field is null or a missing text, not there, or no scalar.
    counts, people : Counter
        For each present value how many rows, and how many people, have it.
    owners : int
        How many people have the field, be it null.
    types : set of type
        Of the present values.
    has_commas : bool
        Whether numbers in texts have a decimal comma.
    has_texts : bool
        Whether numbers are written as texts, as in CSV.
    is_rising : bool
        Whether the values are whole numbers that grow by one.
    values, persons : list
        The value and the person of each row; no persons if each row is another one.
    source : str
        The part of a message that holds the field, if it is not the value.
    has_people : bool
        Whether it is known who the person is, so that ``people`` counts people.
    """

    path: FieldPath
    rows: int
    missing: int
    absent: int
    nested: int
    counts: Counter[Any]
    people: Counter[Any]
    owners: int
    types: frozenset[type]
    has_commas: bool
    has_texts: bool
    is_rising: bool
    values: Values
    persons: Values | None
    has_people: bool = True
    source: str = ""

    @property
    def name(self) -> str:
        """The name of the attribute."""
        return ".".join(self.path)

    @property
    def kind(self) -> Kind | None:
        """What the name says."""
        return kind_of(self.name)

    @property
    def present(self) -> int:
        """Number of rows with a value."""
        return self.counts.total()

    @property
    def share_distinct(self) -> float:
        """Number of different values per row that has one."""
        return len(self.counts) / max(self.present, 1)

    @cached_property
    def texts(self) -> dict[str, Any]:
        """The present values by their texts."""
        return {text_of(value): value for value in self.counts}

    @cached_property
    def numbers(self) -> dict[Any, float] | None:
        """The numbers of the values; None if they are not (almost) all numbers, or codes with leading zeros."""
        if not self.counts or bool in self.types:
            return None
        if self.written:
            return self._written_numbers(self.written)
        if not self.has_texts:
            return None if str in self.types else {value: _number(value) for value in self.counts}
        texts = list(self.counts)
        if any(_LEADING_ZERO.match(text) and "." not in text and "," not in text for text in texts):
            return None
        if self.kind in {Kind.TIME, Kind.BIRTH} and _fits(texts, "%Y%m%d") and {*map(len, texts)} == {8}:
            return None
        found = parse_numbers(replace_decimal_commas(texts) if self.has_commas else texts).tolist()
        parsed = {text: number for text, number in zip(texts, found, strict=True) if number == number}  # noqa: PLR0124
        return parsed if self._are_enough(parsed) else None

    @cached_property
    def written(self) -> dict[str, str]:
        """The keys `thousands` and `symbol` by which (almost) all texts are numbers; empty if none is needed."""
        texts = [value for value in self.counts if isinstance(value, str)]
        symbols = {part for text in texts for part in _SYMBOL.findall(text)}
        separators = [sign for sign in ",. '" if sign != self._decimal and any(sign in text for text in texts)]
        if len(symbols) > 1 or not symbols <= _SYMBOLS or not (symbols or separators):
            return {}
        symbol = dict.fromkeys(["symbol"] * len(symbols), "".join(symbols))
        for keys in ([symbol] if symbol else []) + [symbol | {"thousands": sign} for sign in separators]:
            if self._written_numbers(keys) is not None:
                return keys
        return {}

    @property
    def may_have_thousands(self) -> bool:
        """Whether what is taken for a decimal sign may stand between thousands: three digits follow it everywhere."""
        if self.written.get("thousands"):
            return False
        signed = [value for value in self.counts if isinstance(value, str) and self._decimal in value]
        return 2 * len(signed) > len(self.counts) and all(map(_OF_THOUSANDS.fullmatch, signed))

    @property
    def _decimal(self) -> str:
        return "," if self.has_commas else "."

    def _written_numbers(self, keys: dict[str, str]) -> dict[Any, float] | None:
        form = WrittenForm(WrittenNumbers(keys.get("thousands", ""), keys.get("symbol", ""), self._decimal))
        plain = [form.plain(value) if isinstance(value, str) else str(value) for value in self.counts]
        found = zip(self.counts, parse_numbers(plain).tolist(), strict=True)
        parsed = {value: number for value, number in found if number == number}  # noqa: PLR0124
        return parsed if self._are_enough(parsed) else None

    @cached_property
    def is_whole(self) -> bool:
        """Whether all numbers are whole."""
        return self.numbers is not None and all(number.is_integer() for number in self.numbers.values())

    @cached_property
    def date_formats(self) -> list[str]:
        """Formats of all dates, ISO 8601 as an empty text; empty if the values are no dates that can be read."""
        texts = [text for text in self.counts if isinstance(text, str)]
        if not texts or self.types != {str}:
            return []
        if self._are_enough(one for one, ms in zip(texts, parse_iso_times(texts), strict=True) if np.isfinite(ms)):
            return [""]
        if all(_YEAR_MONTH.fullmatch(text) for text in texts):
            return [REDUCED]
        return [form for form in DATE_FORMATS if _fits(texts[:50], form) and _fits(texts, form)]

    def moments(self) -> list[datetime]:
        """Return the dates that the values are, without zones."""
        form = self.date_formats[0]
        if form:
            return [datetime.strptime(text, form) for text in self.counts]  # noqa: DTZ007 - only differences count
        times = parse_iso_times(list(self.counts))
        return [datetime(1970, 1, 1) + np.timedelta64(int(ms), "ms").item() for ms in times if np.isfinite(ms)]  # noqa: DTZ001

    def quantile(self, share: float) -> float:
        """Return the number below which a share of the rows are."""
        values = self.numbers or {}
        ordered = sorted((number, self.counts[value]) for value, number in values.items())
        limit, seen = share * sum(count for _, count in ordered), 0
        for number, count in ordered:
            seen += count
            if seen >= limit:
                return number
        return ordered[-1][0]

    def common(self, k: int) -> list[Any]:
        """Return the values that at least k people have."""
        return [value for value, people in self.people.items() if people >= k]

    def reached(self, k: int) -> list[float]:
        """Return the number that k people have or fall below, and the one that k have or exceed; none if fewer are."""
        numbers, persons = self.numbers or {}, self.persons or range(self.rows)
        had = [
            (numbers[value], person)
            for value, person in zip(self.values, persons, strict=True)
            if value in numbers and _is_person(person)
        ]
        had.sort(key=lambda one: one[0])
        found = []
        for ordered in (had, had[::-1]):
            seen = set()
            for number, person in ordered:
                seen.add(person)
                if len(seen) == k:
                    found.append(number)
                    break
        return sorted(found)

    def refused(self, accepted: Iterable[Any]) -> int:
        """Return how many rows have a value that is none of these."""
        return self.present - sum(self.counts[value] for value in accepted)

    def _are_enough(self, accepted: Iterable[Any]) -> bool:
        return self.refused(accepted) <= _TOLERATED * self.present


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # JSON has whole numbers of any size
        return math.inf


def text_of(value: Any) -> str:  # noqa: ANN401 - a JSON scalar
    """Return the text by which a category is matched."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def find_missing(sample: Sample) -> list[str]:
    """Return the texts of the sample that mean that a value is missing, beside an empty one."""
    seen = {path: {value for value in values if isinstance(value, str)} for path, values in sample.columns.items()}
    doubtful = (*DOUBTFUL_TEXTS, *(["NA"] if may_be_code(sample) else []))
    found = [text for text in MISSING_TEXTS[1:] if any(text in texts for texts in seen.values())]
    found = [text for text in found if text not in doubtful]
    for text in doubtful:
        holders = [path for path, texts in seen.items() if text in texts]
        amounts = [path for path in holders if _is_amount(sample, path, [*MISSING_TEXTS, *DOUBTFUL_TEXTS])]
        if amounts and (text not in _MAY_BE_VALUES or amounts == holders):
            found.append(text)
    return found


def may_be_code(sample: Sample) -> bool:
    """Return whether NA is among codes of two letters, as that of Namibia is among countries."""
    for values in sample.columns.values():
        others = {value for value in values if isinstance(value, str)} - {*MISSING_TEXTS, *DOUBTFUL_TEXTS}
        if len(others) > 1 and "NA" in values and all(map(_TWO_LETTERS.fullmatch, others)):
            return True
    return False


def describe(sample: Sample, path: FieldPath, missing: Sequence[str], persons: Values | None) -> Field:
    """Return what the values of a field are; ``persons`` are those of the rows, None if each row is another one."""
    values, gone = sample.columns[path], {"", *missing}
    rows = [
        (value, None if persons is None else persons[row])
        for row, value in enumerate(values)
        if value is not None
        and value is not ABSENT
        and value is not NESTED
        and not (value.__class__ is str and value in gone)
    ]
    counts = Counter(value for value, _ in rows)
    people = counts if persons is None else Counter(value for value, _ in set(rows))
    absent, nested = (sum(value is other for value in values) for other in (ABSENT, NESTED))
    return Field(
        path=path,
        rows=len(values),
        missing=len(values) - len(rows) - absent - nested,
        absent=absent,
        nested=nested,
        counts=counts,
        people=people,
        owners=len(values) - absent if persons is None else _owners(values, persons),
        types=frozenset(type(value) for value, _ in rows),
        has_commas=sample.dialect.get("decimal") == ",",
        has_texts=sample.has_texts or path in sample.sources,
        is_rising=_is_rising([value for value, _ in rows]),
        values=values,
        persons=persons,
        source=sample.sources.get(path, ""),
    )


def _owners(values: Values, persons: Values) -> int:
    """Return how many people have a field; a row without a person counts for none."""
    having = {person for value, person in zip(values, persons, strict=True) if value is not ABSENT}
    return sum(map(_is_person, having))


def _is_person(person: Any) -> bool:  # noqa: ANN401 - a JSON scalar
    return person is not None and person is not ABSENT and person is not NESTED


def _is_amount(sample: Sample, path: FieldPath, missing: Sequence[str]) -> bool:
    field = describe(sample, path, missing, None)
    return field.numbers is not None or bool(field.date_formats)


def _is_rising(values: Values) -> bool:
    """Return whether the values are whole numbers that grow by one, as those of rows do."""
    try:
        numbers = np.array([int(value) for value in values])
    except (ValueError, TypeError, OverflowError):
        return False
    return len(numbers) > 1 and bool((np.diff(numbers) == 1).all())


def _fits(texts: Sequence[str], form: str) -> bool:
    try:
        for text in texts:
            datetime.strptime(text, form)  # noqa: DTZ007 - only whether it fits
    except ValueError:
        return False
    return True


def nice_step(size: float) -> float:
    """Return the largest of 1, 2 or 5 times a power of ten that is not above a size.

    >>> nice_step(0.07), nice_step(3.65), nice_step(999)
    (0.05, 2.0, 500.0)
    """
    power = 10.0 ** np.floor(np.log10(size))
    return float(f"{max(factor for factor in (1, 2, 5) if factor * power <= size * (1 + 1e-9)) * power:.12g}")
