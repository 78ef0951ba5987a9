"""The text forms of numbers: which texts are numbers, and one canonical text for each value."""

from __future__ import annotations

import re
from decimal import Decimal

from shoal.policy import JSON_NUMBER as NUMBER_OF_A_POLICY

__all__ = [
    "DECIMAL",
    "FIRST_INEXACT",
    "JSON_NUMBER",
    "NumberText",
    "canonical_number",
    "integral_to_int",
    "is_integer_text",
    "is_json_number",
]

JSON_NUMBER = NUMBER_OF_A_POLICY.pattern
"""Regular expression for a JSON number (RFC 8259, section 6), without groups."""

DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
"""A decimal number in a text cell."""

_NUMBER = re.compile(r"([+-]?)(?:([0-9]+)\.?([0-9]*)|\.([0-9]+))(?:[eE]([+-]?[0-9]+))?")
_MAX_DIGITS = 400
"""An integer of up to this many digits is written without an exponent. Every finite float64 has fewer."""
_MAX_EXPONENT_DIGITS = 18
FIRST_INEXACT = 2.0**53
"""From this value on, several integers can have the same float64."""


class NumberText(str):
    """The text of a JSON number with a point or an exponent. The type distinguishes it from a JSON string."""

    __slots__ = ()


def canonical_number(text: str) -> str | None:
    """Return the canonical text of a decimal number, or None if the text is not a number.

    Only ASCII digits count, and nothing may surround the number. The value is exact at any length: 7, 7.0, 007, +7
    and 70e-1 all become "7". A text with an exponent of more than 18 digits is not a number.
    """
    if text.isdigit() and text.isascii() and text[0] != "0" and len(text) <= _MAX_DIGITS:
        return text
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    sign, whole, fraction, bare_fraction, exponent_text = match.groups("")
    fraction = fraction or bare_fraction
    if len(exponent_text) > _MAX_EXPONENT_DIGITS:
        return None
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return "0"
    significant = digits.rstrip("0")
    exponent = int(exponent_text or 0) - len(fraction) + len(digits) - len(significant)
    sign = "-" if sign == "-" else ""
    if exponent >= 0 and len(significant) + exponent <= _MAX_DIGITS:
        return sign + significant + "0" * exponent
    return f"{sign}{significant}e{exponent}"


def is_json_number(text: str) -> bool:
    """Return whether a text is a JSON number whose exponent has at most 18 digits."""
    match = _NUMBER.fullmatch(text) if NUMBER_OF_A_POLICY.fullmatch(text) else None
    return match is not None and len(match[5] or "") <= _MAX_EXPONENT_DIGITS


def is_integer_text(text: str) -> bool:
    """Return whether a text from `canonical_number` is an integer."""
    return "e-" not in text


def integral_to_int(number: float) -> int | float:
    """Return an integral float64 as the integer of its shortest decimal text, and any other float64 unchanged.

    So 1e2, 100.0 and 100 are published as the same bytes, and 1e23 as the same bytes as its 24 digits.
    """
    if not number.is_integer():
        return number
    return int(number) if abs(number) < FIRST_INEXACT else int(Decimal(repr(number)))
