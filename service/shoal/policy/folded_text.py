"""Which texts of a policy mean the same confidential value: in a reference, an order or a taxonomy."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from shoal.policy.attribute import Attribute
from shoal.policy.json_number import is_finite_number
from shoal.policy.schema import AttributeSection

__all__ = ["fold_text", "has_repeated_value"]


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
    return Decimal(text) if is_finite_number(text) else text
