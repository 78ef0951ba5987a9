"""Characters that texts of a policy must not contain.

Which texts of a policy are numbers.

The limit on the length of one category.
"""

from __future__ import annotations

import json
import math
import re

__all__ = ["BLANKS", "JSON_NUMBER", "MAX_CATEGORY_BYTES", "has_lone_surrogate", "is_finite_number", "is_long_category"]

BLANKS = " \t"
"""What is stripped from both ends of the cells of CSV files."""


def has_lone_surrogate(text: str) -> bool:
    """Return whether a text contains a half of a character of UTF-16, which UTF-8 cannot encode."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)


JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
"""A JSON number (RFC 8259, section 6)."""


def is_finite_number(text: str) -> bool:
    """Return whether a text is a JSON number of ordinary size: sums of two such numbers can be formed exactly.

    Notes
    -----
    A reference, an order or a taxonomy has no other numbers. A confidential value of a record may be larger: every JSON
    number with an exponent of up to 18 digits is one (`shoal.formats.is_json_number`).
    """
    if not JSON_NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        return False
    return float(text) != 0 or not any(digit in text.lower().partition("e")[0] for digit in "123456789")


MAX_CATEGORY_BYTES = 1_000
"""Most bytes of one category as a JSON text in UTF-8, with its quotation marks.

A row has the categories of its cluster, so a category of one record can be published with another record. Without a
limit of its own, a row could exceed the largest message that the output accepts. The limit also bounds the memory for
the categories of held records.
"""


def is_long_category(text: str) -> bool:
    """Return whether a text, written as a JSON string, exceeds `MAX_CATEGORY_BYTES`."""
    return len(json.dumps(text, ensure_ascii=False).encode(errors="surrogatepass")) > MAX_CATEGORY_BYTES
