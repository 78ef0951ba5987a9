"""Keys of confidential values: two values count as one if and only if their keys are equal.

A key does not depend on the spelling. All spellings of a number are one value, whether it is a JSON number or the text
of one; blanks around a text and the composition of its letters do not count. All spellings of a missing value are one
value, which is none of the others. A reader of a release could not tell such values apart by their meaning, so
counting them as several would make a cluster look more diverse than it is.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Collection
from decimal import Decimal
from typing import TypeAlias

from shoal.policy import FieldType

__all__ = ["MISSING", "KeyReader", "is_number", "key_reader", "number_of"]

KeyReader: TypeAlias = Callable[[str], str]

MISSING = ""
"""Key of every missing value. Other keys begin with the letter of their kind."""
_NUMBER, _TEXT, _DOCUMENT, _TRUTH = "ntjb"
_JSON_NUMBER = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]{1,15}))?")
"""Of larger exponents no number is made: such a text is a text."""


def key_reader(kind: FieldType, missing_values: Collection[str]) -> KeyReader:
    """Return the function from the text of an unchanged field, which is JSON, to the key of its value.

    Parameters
    ----------
    kind : FieldType
        Type of the attribute. Only the types any, integer and number have numbers: the texts "007" and "7" of type
        string are two values.
    missing_values : collection of str
        Texts that stand for a missing value. JSON null always does.
    """
    has_numbers = kind in {"any", "integer", "number"}
    missing = {_key_of_text(text, has_numbers=has_numbers) for text in missing_values}

    def read(text: str) -> str:
        if text == "null":
            return MISSING
        if kind == "json":
            return _DOCUMENT + text
        if text in {"true", "false"}:
            return _TRUTH + text
        key = _key_of_text(json.loads(text) if text.startswith('"') else text, has_numbers=has_numbers)
        return MISSING if key in missing else key

    return read


def is_number(key: str) -> bool:
    """Whether a key is that of a number."""
    return key.startswith(_NUMBER)


def number_of(key: str) -> Decimal:
    """Return the exact number of a key. Comparisons of it are exact; sums need not be."""
    return Decimal(key.removeprefix(_NUMBER))


def _key_of_text(text: str, *, has_numbers: bool) -> str:
    text = unicodedata.normalize("NFC", text).strip()
    found = _JSON_NUMBER.fullmatch(text) if has_numbers else None
    if found is None:
        return _TEXT + text
    sign, integer, fraction, exponent = found.groups(default="")
    digits = (integer + fraction).lstrip("0")
    short = digits.rstrip("0")
    if not short:
        return f"{_NUMBER}0"
    power = int(exponent or 0) - len(fraction) + len(digits) - len(short)
    return f"{_NUMBER}{sign}{short}e{power}"
