"""The normal form of texts that stand for subjects and confidential values."""

from __future__ import annotations

import re
from decimal import Decimal
from unicodedata import normalize

__all__ = ["NUMBER", "normal_form"]

NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,17})?")
"""Texts that are numbers."""


def normal_form(name: str) -> str:
    """Return the normal form of a string: composed, without surrounding whitespace, numbers by their value."""
    text = normalize("NFC", name).strip()
    if not NUMBER.fullmatch(text):
        return text
    sign, digits, exponent = Decimal(text).as_tuple()
    whole = "".join(map(str, digits)).lstrip("0")
    short = whole.rstrip("0")
    return f"{'-' * sign}{short}e{int(exponent) + len(whole) - len(short)}" if short else "0"
