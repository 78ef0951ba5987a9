"""The limit on the length of one category."""

from __future__ import annotations

import json

__all__ = ["MAX_CATEGORY_BYTES", "is_long_category"]

MAX_CATEGORY_BYTES = 1_000
"""Most bytes of one category as a JSON text in UTF-8, with its quotation marks.

A row has the categories of its cluster, so a category of one record can be published with another record. Without a
limit of its own, a row could exceed the largest message that the output accepts. The limit also bounds the memory for
the categories of held records.
"""


def is_long_category(text: str) -> bool:
    """Return whether a text, written as a JSON string, exceeds `MAX_CATEGORY_BYTES`."""
    return len(json.dumps(text, ensure_ascii=False).encode(errors="surrogatepass")) > MAX_CATEGORY_BYTES
