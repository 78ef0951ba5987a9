"""Whose record it is: one text per person, whatever the spelling, and a keyed hash of it.

Two spellings counted as two people would break the guarantee, two people counted as one only cost a little
utility: where in doubt, spellings are taken together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from hashlib import blake2b
from unicodedata import normalize

import numpy as np

from shoal.policy import FieldType
from shoal.records.block import Int64Vector
from shoal.records.numerals import NumberText, canonical, is_integral

__all__ = ["SubjectHash", "normaliser"]

_STARTS_NUMBER = frozenset("+-.0123456789")


def normaliser(kind: FieldType) -> Callable[[Sequence[object]], list[str]]:
    """Return the function that gives each subject its one text; "" stands for what cannot be a subject.

    Texts are brought to Unicode's composed form and trimmed; except for type string, numbers and texts that
    look like numbers get the one spelling of their value.
    """
    one = _NORMAL[kind]
    numeric = kind != "string"

    def normalised(values: Sequence[object]) -> list[str]:
        if kind in {"string", "any"} and set(map(type, values)) <= {str}:
            texts: list[str] = values  # type: ignore[assignment]  # all of them are str, as was just seen
            if "".join(texts).isascii():  # then the composed form is the text itself
                trimmed = list(map(str.strip, texts))
                if numeric:
                    return [(canonical(text) or text) if text[:1] in _STARTS_NUMBER else text for text in trimmed]
                return trimmed
        return list(map(one, values))

    return normalised


class SubjectHash:
    """64-bit hashes of texts under a secret key; the texts are not kept.

    Parameters
    ----------
    key : bytes or None
        Up to 64 bytes, for BLAKE2b; None: Python's own keyed hash of texts (SipHash), whose key is random and one per
        process, so that hashes mean nothing outside it. Whoever finds texts of equal hash makes two people count
        as one: that costs utility, never anonymity.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._keyed = None if key is None else blake2b(digest_size=8, key=key)

    def __call__(self, texts: Sequence[str]) -> Int64Vector:
        """Hash texts: int64, shape (n,). About 0.03 µs each, 0.3 µs with a key given; equal texts, equal hashes."""
        if self._keyed is None:
            return np.fromiter(map(hash, texts), np.int64, len(texts))
        digests = []
        fresh = self._keyed.copy
        for text in texts:
            state = fresh()
            state.update(text.encode())
            digests.append(state.digest())
        return np.frombuffer(b"".join(digests), dtype=np.int64).copy()  # a view would be read-only


def _trimmed(value: object) -> str:
    return normalize("NFC", value).strip() if isinstance(value, str) else ""


def _anything(value: object) -> str:
    if isinstance(value, bool):
        return _truth(value)
    if isinstance(value, int):
        value = str(value)
    if isinstance(value, NumberText) and math.isinf(float(value)):
        return ""
    text = _trimmed(value)
    return canonical(text) or text


def _numeric(value: object) -> str:
    if isinstance(value, bool):
        return ""
    return canonical(_anything(value)) or ""


def _integral(value: object) -> str:
    text = _numeric(value)
    return text if is_integral(text) else ""


def _truth(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = _trimmed(value).lower()
    return text if text in {"true", "false"} else ""


def _text_only(value: object) -> str:
    return "" if isinstance(value, NumberText) else _trimmed(value)


_NORMAL: dict[FieldType, Callable[[object], str]] = {
    "string": _text_only,
    "integer": _integral,
    "number": _numeric,
    "boolean": _truth,
    "any": _anything,
}
