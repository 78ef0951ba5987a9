"""Which texts of a policy are numbers."""

from __future__ import annotations

import math
import re

__all__ = ["JSON_NUMBER", "is_finite_number"]

JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
"""A JSON number (RFC 8259, section 6)."""


def is_finite_number(text: str) -> bool:
    """Return whether a text is a JSON number of ordinary size: sums of two such numbers can be formed exactly.

    Notes
    -----
    A reference, an order or a taxonomy has no other numbers. A confidential value of a record may be larger: every JSON
    number with an exponent of up to 18 digits is one (`shoal.records.is_json_number`).
    """
    if not JSON_NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        return False
    return float(text) != 0 or not any(digit in text.lower().partition("e")[0] for digit in "123456789")
