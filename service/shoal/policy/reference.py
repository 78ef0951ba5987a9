"""The reference of a confidential attribute: the distribution that t-closeness compares clusters with."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

__all__ = ["Reference"]


@dataclass(frozen=True)
class Reference:
    """A distribution of confidential values.

    Attributes
    ----------
    texts : tuple of str or None
        Values as in the file, without surrounding whitespace and in the Unicode form NFC; None for a missing value,
        which is the empty cell or a text of ``missing_values``. No two mean the same value.
    shares : tuple of float
        Share of each value, at least 0; their sum is 1 within 1e-6.
    """

    texts: tuple[str | None, ...]
    shares: tuple[float, ...]

    @cached_property
    def digest(self) -> str:
        """SHA-256 in hexadecimal of the distribution, whatever the order of its rows and the form of the file."""
        rows = sorted(zip(self.texts, self.shares, strict=True), key=lambda row: (row[0] is not None, row[0] or ""))
        return hashlib.sha256(json.dumps(rows, ensure_ascii=True).encode()).hexdigest()
