"""Which texts of a policy mean the same confidential value: in a reference, an order or a taxonomy."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation

from shoal.policy.attribute import Attribute
from shoal.policy.distance import JSON_NUMBER
from shoal.policy.schema import AttributeSection

__all__ = ["fold_text", "has_repeated_value", "is_finite_number"]


def has_repeated_value(texts: Iterable[str], attribute: AttributeSection) -> bool:
    """Return whether two texts mean the same value of an attribute, such as 1 and 1.0."""
    folded = [fold_text(text, attribute) for text in texts]
    return len(set(folded)) < len(folded)


def fold_text(text: str | None, attribute: AttributeSection | Attribute) -> object:
    """Return what is equal for two texts of one value."""
    if text is None or attribute.type in {"string", "json"}:
        return text
    if attribute.type == "boolean":
        return text.lower()
    try:
        return Decimal(text) if JSON_NUMBER.fullmatch(text) else text
    except InvalidOperation:  # an exponent beyond that of any Decimal
        return text


def is_finite_number(text: str) -> bool:
    """Return whether a text is a JSON number of ordinary size: sums of two such numbers can be formed exactly."""
    if not JSON_NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        return False
    return float(text) != 0 or not any(digit in text.lower().partition("e")[0] for digit in "123456789")
