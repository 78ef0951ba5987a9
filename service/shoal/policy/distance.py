"""The distance of two confidential values: it follows from what the policy says of the attribute."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from shoal.policy.json_number import is_finite_number
from shoal.policy.reference import Reference
from shoal.policy.schema import AttributeSection

__all__ = ["is_numeric_reference", "resolve_distance"]


def resolve_distance(
    section: AttributeSection, reference: Reference | None, *, is_stream: bool
) -> Literal["ordered", "equal", "hierarchical"] | None:
    """Return the distance of a confidential attribute; None for another role, or if it depends on the values."""
    if section.role != "confidential":
        return None
    if section.scale == "nominal":
        return "equal" if section.taxonomy is None else "hierarchical"
    if section.scale is not None or section.type in {"integer", "number"}:
        return "ordered"
    if section.type not in {"any", None}:
        return "equal"
    if reference is not None:
        return "ordered" if is_numeric_reference(reference.texts) else "equal"
    return "equal" if is_stream else None


def is_numeric_reference(texts: Iterable[str | None]) -> bool:
    """Return whether all values that are not missing are numbers that a policy can have, and there is one."""
    present = [text for text in texts if text is not None]
    return bool(present) and all(map(is_finite_number, present))
