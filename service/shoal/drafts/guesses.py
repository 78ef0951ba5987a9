"""Guess role, scale and keys of a field, each with its reason.

Where a guess may be wrong, the more protective one is taken: a field that could name a person is dropped, any other is
a quasi-identifier. Only a field whose name says that its values are sensitive is confidential, and only if few rows
have a value of their own: it is published unchanged.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Sequence
from typing import Any, Final

from shoal.drafts.fields import REDUCED, Field, nice_step, text_of
from shoal.drafts.names import CONFIDENTIAL, IDENTIFIERS, Kind
from shoal.drafts.orders import find_order

MOST_DISTINCT: Final = 0.5
"""With more different values per row, a text names rows, and a confidential field is not published unchanged."""
_FEW, _TWO = 20, 2
_LONG_NUMBER = 7
"""Digits from which numbers of one length are ids, if most rows have one of their own."""
_MOST_CODES = 50
_LONG_TEXT, _LONGEST_TEXT, _MANY_WORDS = 60, 200, 5
_LEAST_IDS = 0.05
"""Different values per row from which a field with the name of an id is taken for one of people."""
_LARGEST = 1e15
"""Bounds beyond it could not be computed with exactly."""
_SMALLEST = 1e-9
"""Numbers that differ by less would need a finer resolution than there is."""
_STEPS = 100
_MOST_LEFT = 0.01
"""Share of the rows that an order may leave out."""
_ICD = re.compile(r"[A-Z][0-9]{2}(\.?[0-9A-Z]{1,4})?")
_MOST_OF = 0.9
"""Share of the texts of a field that have a form, if the field has it."""
_PATTERNS = {
    "e-mail addresses": re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+"),
    "addresses of the network": re.compile(
        r"[a-z]+://\S+|[0-9]{1,3}(\.[0-9]{1,3}){3}|([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}"
    ),
    "ids": re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}|[0-9A-Fa-f]{32,128}"),
    "numbers of accounts or people": re.compile(
        r"[A-Z]{2}[0-9]{2}( ?[0-9A-Z]{4}){3,7}[0-9A-Z ]{0,4}|[0-9]{3}-[0-9]{2}-[0-9]{4}"
    ),
    "phone numbers": re.compile(
        r"(\+|00)[0-9][0-9 ()/.-]{6,18}|\(?0[0-9]{2,5}\)?[ /-][0-9][0-9 -]{4,12}"
        r"|\(?[0-9]{3}\)?[ .-][0-9]{3}[.-][0-9]{4}"
    ),
}
_EPOCHS = (("s", 1e8, 4.2e9), ("ms", 1e11, 4.2e12), ("us", 1e14, 4.2e15), ("ns", 1e17, 4.2e18))


@dataclasses.dataclass(frozen=True, slots=True)
class Guess:
    """What a field may be. ``decide`` is what only a person can say, as a sentence; no value is in a text."""

    field: Field
    role: str
    keys: dict[str, Any] = dataclasses.field(default_factory=dict)
    reason: str = ""
    decide: str = ""


def guess(one: Field, k: int, *, role: str | None = None) -> Guess:
    """Return role and keys of a field that is not the subject; a given role is not guessed."""
    if role == "identifier":
        return Guess(one, role, reason="not published, as you said")
    if role is None:
        dropped = _dropped(one)
        if dropped is not None:
            return dropped
    if role == "confidential" or (role is None and _is_confidential(one)):
        return _confidential(one, k, is_given=role is not None)
    return _quasi_identifier(one, k)


# ---------------------------------------------------------------- identifiers


def _dropped(one: Field) -> Guess | None:
    """Return the guess of a field that is not to be published; None if it may be."""
    if not one.present and not one.nested:
        return Guess(one, "identifier", reason="no row has a value")
    if one.nested:
        ask = "to publish it whole, with everything in it, make it confidential with type: json"
        return Guess(one, "identifier", reason="lists or objects, which may hold anything", decide=ask)
    if one.kind in IDENTIFIERS and _is_of_person(one):
        return Guess(one, "identifier", reason=f"the name says: {one.kind}")
    if why := _names_rows(one):
        return Guess(one, "identifier", reason=why)
    return None


def _is_of_person(one: Field) -> bool:
    """Return whether a field with the name of an identifier is one.

    An id that few values share out is a category, and a note of numbers is a mark of a school.
    """
    if one.kind is Kind.TEXT:
        return one.numbers is None
    if one.kind is not Kind.ID:
        return True
    return one.share_distinct >= _LEAST_IDS and len(one.counts) > 1 and not (one.numbers and not one.is_whole)


def _names_rows(one: Field) -> str:
    """Return why the values could name a row or a person; empty if they do not."""
    if _prefixes(one):
        return ""
    if one.kind is Kind.POSTCODE and _is_unique(one):
        return "most rows have a postcode of their own"
    if one.numbers is not None:
        return _ids(one, one.numbers.values())
    if one.date_formats or one.types <= {bool}:
        return ""
    return _texts(one)


def _ids(one: Field, numbers: Collection[float]) -> str:
    if one.is_rising and one.kind not in {Kind.TIME, Kind.BIRTH} and not one.missing:
        return "numbers the rows"
    if max(map(abs, numbers)) > _LARGEST and not _epoch_unit(one):
        return "numbers too large to compute with, as ids are"
    if 0 < max(numbers) - min(numbers) < _SMALLEST:
        return "numbers that differ too little to compute with; write them in another unit to keep them"
    lengths = {len(text_of(value)) for value in one.counts}
    has_one_length = one.is_whole and len(lengths) == 1 and lengths.pop() >= _LONG_NUMBER
    if has_one_length and _is_unique(one) and not _epoch_unit(one) and not one.written:
        return "most rows have a number of their own, all of one length, as ids are"
    return ""


def _texts(one: Field) -> str:
    for what, pattern in _PATTERNS.items():
        if sum(map(bool, map(pattern.fullmatch, one.texts))) > _MOST_OF * len(one.texts):
            return f"the values look like {what}"
    if float in one.types:
        return "texts beside numbers, which have no scale together"
    words = sum(len(text.split()) for text in one.texts) / len(one.texts)
    longest = max(map(len, one.texts))
    is_long = longest > _LONGEST_TEXT or (longest > _LONG_TEXT and one.share_distinct > _LEAST_IDS)
    if is_long or words >= _MANY_WORDS:
        return "free text, which may hold names"
    if not _is_unique(one):
        return ""
    return "most rows have a text of their own"


def _is_unique(one: Field) -> bool:
    return one.share_distinct > MOST_DISTINCT and len(one.counts) > _FEW


# ---------------------------------------------------------------- confidential values


def _is_confidential(one: Field) -> bool:
    """Return whether the name says so, and the values can be published unchanged."""
    if one.kind not in CONFIDENTIAL or one.absent or one.date_formats:
        return False
    return one.share_distinct <= MOST_DISTINCT


def _confidential(one: Field, k: int, *, is_given: bool) -> Guess:
    kind = "string" if one.numbers is None or one.written else "integer" if one.is_whole else "number"
    if one.types == {bool}:
        kind = "boolean"
    if len(one.types) > 1:
        kind = "any"
    if one.has_texts and one.numbers is not None and one.refused(one.numbers):
        kind = "any"
    reason = f"{'as you said' if is_given else f'the name says: {one.kind}'}; published unchanged"
    if rare := one.refused(one.common(k)):
        reason += f"; {rows_in_words(rare, k)} have a value that fewer than {k} people have"
    if one.absent:
        reason += f"; {rows_in_words(one.absent, k)} lack it and are refused"
    ask = "may each value be published unchanged? Else make it a quasi_identifier"
    return Guess(one, "confidential", {"type": kind}, reason, "" if is_given else ask)


# ---------------------------------------------------------------- quasi-identifiers


def _quasi_identifier(one: Field, k: int) -> Guess:
    keys, reason, ask = _scaled(one, k)
    if one.missing or one.absent:
        keys["missing"] = "group"
        reason += f"; {rows_in_words(one.missing + one.absent, k)} lack it"
    if one.kind in CONFIDENTIAL:
        reason += f"; the name says: {one.kind}, but unchanged its values could name rows"
    return Guess(one, "quasi_identifier", keys, reason, ask)


def rows_in_words(count: int, k: int) -> str:
    """Return a number of rows in words; one below k is not told."""
    return f"{count:,} rows" if count >= k else f"fewer than {k} rows"


def _scaled(one: Field, k: int) -> tuple[dict[str, Any], str, str]:
    """Return the keys of the scale that fits, why, and what to decide."""
    if one.date_formats:
        return _time(one)
    if one.numbers is not None:
        if unit := _epoch_unit(one):
            resolution = "year" if one.kind is Kind.BIRTH else "day"
            return {"scale": "time", "resolution": resolution, "unit": unit}, "times as numbers since 1970", ""
        if not _is_category(one):
            return _numeric(one, k)
    return _nominal(one, k)


def _is_category(one: Field) -> bool:
    """Return whether numbers are only names of categories."""
    if one.kind is Kind.POSTCODE and one.is_whole:
        return True
    most = _MOST_CODES if one.kind is Kind.CODE and one.is_whole else _TWO
    return len(one.counts) <= most and (one.has_texts or one.is_whole)


def _epoch_unit(one: Field) -> str:
    """Return the unit of times that are numbers since 1970; empty if they are not, or the name does not say so."""
    if one.kind not in {Kind.TIME, Kind.BIRTH} or not one.is_whole or one.numbers is None:
        return ""
    low, high = min(one.numbers.values()), max(one.numbers.values())
    return next((unit for unit, least, most in _EPOCHS if least <= low and high <= most), "")


def _time(one: Field) -> tuple[dict[str, Any], str, str]:
    formats, moments = one.date_formats, one.moments()
    days = (max(moments) - min(moments)).days if moments else 0
    has_clock = any(moment.hour or moment.minute for moment in moments)
    if one.kind is Kind.BIRTH:
        resolution, reason = "year", "dates of birth, published to the year"
    elif days > 731 or formats[0] == REDUCED:  # noqa: PLR2004 - two years
        resolution, reason = "month", "times over several years, published to the month"
    elif has_clock and days < 31:  # noqa: PLR2004 - a month
        resolution, reason = "h", "times within a month, published to the hour"
    else:
        resolution, reason = "day", "times, published to the day"
    keys: dict[str, Any] = {"scale": "time", "resolution": resolution}
    ask = ""
    if formats[0] not in {"", REDUCED}:
        keys["format"] = formats[0]
        if len(formats) > 1:
            ask = f"every date fits {' and '.join(formats)}; keep the format that is meant"
    return keys, f"{reason}; no bounds, so that later times are not clipped", ask


def _numeric(one: Field, k: int) -> tuple[dict[str, Any], str, str]:
    reached = one.reached(k)
    low, high = outer_bounds(one, k, *reached) if reached else (0.0, 1.0)
    keys: dict[str, Any] = {"scale": "numeric", "bounds": [low, high]} | one.written
    spread = one.quantile(0.95) - one.quantile(0.05) or high - low
    step = nice_step(spread / _STEPS)
    if one.is_whole:
        keys["integer"] = True
        if step > 1:
            keys["resolution"] = step
    else:
        keys["resolution"] = step
    words = "whole numbers" if one.is_whole else "numbers"
    wrong = one.refused(one.numbers or {})
    words += ", published without signs" if one.written else ""
    also = f"; {rows_in_words(wrong, k)} have no number and are refused" if wrong else ""
    ask = "" if reached else f"fewer than {k} people have a number, and no rare one is written here: give bounds"
    if one.may_have_thousands:
        ask = "three digits follow each decimal sign: if it stands between thousands, set thousands and csv.decimal"
    return keys, f"{words}, {len(one.counts):,} different; bounds, which clip, are what {k} people reach{also}", ask


def outer_bounds(one: Field, k: int, low: float, high: float) -> tuple[float, float]:
    """Return round numbers outside what k people reach; none is a value that fewer have."""
    rare = {number for value, number in (one.numbers or {}).items() if one.people[value] < k}
    if one.kind is Kind.AGE and low >= 0 and 20 < high <= 120 and rare.isdisjoint({0.0, 120.0}):  # noqa: PLR2004
        return 0.0, 120.0
    step = nice_step((high - low) / 10 or abs(high) or 1.0)
    if one.is_whole:
        step = max(step, 1.0)
    below, above = math.floor(low / step), math.ceil(high / step)
    while _round(below * step) in rare:
        below -= 1
    while _round(above * step) in rare or above == below:
        above += 1
    return _round(below * step), _round(above * step)


def _round(number: float) -> float:
    return float(f"{number:.12g}")


def _nominal(one: Field, k: int) -> tuple[dict[str, Any], str, str]:
    count = len(one.counts)
    nominal: dict[str, Any] = {"scale": "nominal"}
    if order := find_order(list(one.texts)):
        return _ordinal(one, order, k)
    if levels := _prefixes(one):
        return nominal | {"prefixes": levels}, f"codes, {count:,} different; near if they begin alike", ""
    reason = f"categories, {count:,} different"
    if one.types == {bool} or count <= _TWO:
        return nominal, reason, ""
    if count > _MOST_CODES:
        return nominal, reason, "many categories lose much: give a taxonomy, which says what belongs together"
    return nominal, reason, ""


def _ordinal(one: Field, order: Sequence[str], k: int) -> tuple[dict[str, Any], str, str]:
    """Return an order of the words that at least k people have; a category, if too many rows have others."""
    common = {text_of(value) for value in one.common(k)}
    kept = [text for text in order if text in common]
    if not one.has_people:
        ask = "the words have an order: say who the person is with --subject, or give scale: ordinal, order"
        return {"scale": "nominal"}, f"categories, {len(one.counts):,} different", ask
    left = one.refused(one.texts[text] for text in kept)
    if len(kept) < _TWO or left > _MOST_LEFT * one.present:
        ask = "the words have an order, but some are rare, and no rare word is written here: give scale: ordinal, order"
        return {"scale": "nominal"}, f"categories, {len(one.counts):,} different", ask
    ask = ""
    if left:
        rows = rows_in_words(left, k)
        ask = f"order lacks words that fewer than {k} people have, and {rows} with them are refused: fill them in"
    return {"scale": "ordinal", "order": kept}, f"{len(order)} words that have an order", ask


def _prefixes(one: Field) -> list[int]:
    """Return the lengths of beginnings by which codes are grouped; none if they are no codes."""
    if len(one.counts) < _FEW:
        return []
    texts = list(one.texts)
    if all(_ICD.fullmatch(text) for text in texts):
        return [3, 1]
    lengths = {len(text) for text in texts}
    if one.kind is not Kind.POSTCODE or min(lengths) < 4:  # noqa: PLR2004
        return []
    return [3, 1] if max(lengths) >= 5 else [2, 1]  # noqa: PLR2004
