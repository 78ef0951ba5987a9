"""Brings the spellings of a subject to one text, as the policy's ``normalize`` defines it. Separate from the engine.

The steps, in this order: `invisible` characters are removed; `nfkc` and `casefold` are applied until nothing changes;
runs of white space become one space (`spaces`). NFC and trimming follow for every subject.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from itertools import chain, groupby

from shoal.policy import NormalizeStep

__all__ = ["EVERY_STEP", "has_long_mark_sequence", "one_spelling"]

EVERY_STEP: tuple[NormalizeStep, ...] = ("nfkc", "casefold", "spaces", "invisible")

_IGNORED = frozenset(
    chain(
        (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2065, 0x3164, 0xFFA0),
        range(0x180B, 0x1810),
        range(0xFE00, 0xFE10),
        range(0xFFF0, 0xFFF9),
        range(0xE0000, 0xE1000),
    )
)
"""Code points with Unicode's property Default_Ignorable_Code_Point, except those of the category Cf."""

_MOST_MARKS = 30

_BLANKS = re.compile(r"\s+")


def one_spelling(text: str, steps: Collection[NormalizeStep]) -> str:
    """Apply the steps that a policy names to the text of a subject; an empty text if it cannot be a subject.

    Cost: O(length).

    Sources: The Unicode Standard, section 3.13 (caseless matching); UAX 15 (normalization forms).
    """
    if "invisible" in steps:
        text = "".join([letter for letter in text if not _is_invisible(letter)])
    if has_long_mark_sequence(text):
        return ""
    before = None
    while text != before:
        before = text
        if "nfkc" in steps:
            text = unicodedata.normalize("NFKC", text)
        if "casefold" in steps:
            text = unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())
    if "spaces" in steps:
        text = _BLANKS.sub(" ", text).strip()
    return text


def has_long_mark_sequence(text: str) -> bool:
    """Return whether more than 30 combining characters follow each other: such a text is no subject."""
    marks = (sum(1 for _ in letters) for combines, letters in groupby(text, _combines) if combines)
    return not text.isascii() and any(count > _MOST_MARKS for count in marks)


def _combines(letter: str) -> bool:
    return unicodedata.combining(letter) != 0


def _is_invisible(letter: str) -> bool:
    if letter.isascii():
        return not letter.isprintable() and _BLANKS.fullmatch(letter) is None
    if unicodedata.category(letter) == "Cf" or ord(letter) in _IGNORED:
        return True
    return unicodedata.category(letter) == "Cc" and _BLANKS.fullmatch(letter) is None
