"""Which texts of a policy mean the same confidential value: in a reference, an order or a taxonomy."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation

from shoal.policy.attribute import Attribute
from shoal.policy.schema import AttributeSection
from shoal.policy.texts import JSON_NUMBER

__all__ = ["fold_characters", "fold_text", "has_repeated_value"]


def has_repeated_value(texts: Iterable[str], attribute: AttributeSection) -> bool:
    """Return whether two texts mean the same value of an attribute, such as 1 and 1.0."""
    folded = [fold_text(text, attribute) for text in texts]
    return len(set(folded)) < len(folded)


def fold_characters(text: str) -> str:
    """Return the text in the Unicode form NFKC, without format characters and surrounding whitespace.

    Format characters (Unicode category Cf), such as the zero-width space, are not visible. They are removed first: what
    they separate may be one letter. Cost: 0.1 µs for an ASCII text, else about 0.1 µs per character.
    """
    if text.isascii():
        return text.strip()
    visible = "".join(letter for letter in text if unicodedata.category(letter) != "Cf")
    return unicodedata.normalize("NFKC", visible).strip()


def fold_text(text: str | None, attribute: AttributeSection | Attribute) -> object:
    """Return what is equal for two texts of one value."""
    if text is None:
        return None
    if attribute.type == "json":
        return _fold_document(text)
    text = fold_characters(text)
    if attribute.type == "string":
        return text
    if attribute.type == "boolean":
        return text.lower()
    try:
        return Decimal(text) if JSON_NUMBER.fullmatch(text) else text
    except InvalidOperation:  # an exponent beyond that of any Decimal
        return text


def _fold_document(text: str) -> object:
    """Return what is equal for two texts of one JSON document; the text itself if it is no JSON.

    A number with a point or an exponent has the value of its float64, as in a record.
    """
    try:
        value = json.loads(text, parse_int=Decimal, parse_float=_of_float64)
        return _fold_value(value)
    except (ValueError, RecursionError):
        return text


def _fold_value(value: object) -> object:
    if isinstance(value, dict):
        members = Counter((fold_characters(name), _fold_value(item)) for name, item in value.items())
        return "object", frozenset(members.items())
    if isinstance(value, list):
        return "array", tuple(map(_fold_value, value))
    # True == 1 in Python: the kind keeps them apart.
    return type(value).__name__, fold_characters(value) if isinstance(value, str) else value


def _of_float64(text: str) -> Decimal:
    return Decimal(repr(float(text)))
