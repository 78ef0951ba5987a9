"""Characters that texts of a policy must not contain."""

from __future__ import annotations

__all__ = ["BLANKS", "has_lone_surrogate"]

BLANKS = " \t"
"""What is stripped from both ends of the cells of CSV files."""


def has_lone_surrogate(text: str) -> bool:
    """Return whether a text contains a half of a character of UTF-16, which UTF-8 cannot encode."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)
