"""How numbers are spelled: which texts are numbers, and one spelling for each value."""

from __future__ import annotations

import re
from decimal import Decimal

__all__ = ["FIRST_INEXACT", "JSON_NUMBER", "NumberText", "canonical", "is_integral", "plain"]

JSON_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
"""The grammar of RFC 8259 as a regular expression without groups."""

_NUMBER = re.compile(r"([+-]?)(?:([0-9]+)\.?([0-9]*)|\.([0-9]+))(?:[eE]([+-]?[0-9]+))?")
_LONGEST_PLAIN = 400
"""Digits up to which an integer is written out: every finite float64 fits."""
_LONGEST_EXPONENT = 18
FIRST_INEXACT = 2.0**53
"""Whole numbers from here on may share a float64."""


class NumberText(str):
    """The text of a JSON number with a point or an exponent, told apart from a JSON string."""

    __slots__ = ()


def canonical(text: str) -> str | None:
    """Write a decimal number in the one spelling of its value; None if the text is no number.

    ASCII digits only, nothing around them. The value is kept exactly, whatever its length: 7, 7.0, 007, +7 and
    70e-1 are all "7". An exponent of more than 18 digits is no number.
    """
    if text.isdigit() and text.isascii() and text[0] != "0" and len(text) <= _LONGEST_PLAIN:
        return text
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    sign, whole, fraction, bare_fraction, exponent_text = found.groups("")
    fraction = fraction or bare_fraction
    if len(exponent_text) > _LONGEST_EXPONENT:
        return None
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return "0"
    significant = digits.rstrip("0")
    exponent = int(exponent_text or 0) - len(fraction) + len(digits) - len(significant)
    sign = "-" if sign == "-" else ""
    if exponent >= 0 and len(significant) + exponent <= _LONGEST_PLAIN:
        return sign + significant + "0" * exponent
    return f"{sign}{significant}e{exponent}"


def is_integral(spelling: str) -> bool:
    """Whether a spelling made by `canonical` is that of an integer."""
    return "e-" not in spelling


def plain(number: float) -> int | float:
    """Give an integral float64 as the integer that its shortest decimal spelling means, any other as it is.

    So 1e2, 100.0 and 100 are published as the same bytes, and so are 1e23 and its 24 digits.
    """
    if not number.is_integer():
        return number
    return int(number) if abs(number) < FIRST_INEXACT else int(Decimal(repr(number)))
