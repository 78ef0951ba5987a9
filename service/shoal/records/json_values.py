"""Values of type ``json``: any JSON value, published as compact text."""

from __future__ import annotations

import msgspec

from shoal.records.strict_json import has_repeated_key

__all__ = ["canonical_json"]

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def canonical_json(text: bytes) -> str | None:
    """Return the canonical text of a JSON value; None for null.

    The text has no white space between its parts. Members stay in their order. An integer is written with all its
    digits, any other number as the shortest decimal number of the same float64.

    Raises
    ------
    ValueError
        The text is not JSON, a key is repeated in an object, or a number is beyond float64. The error contains no
        value.

    Notes
    -----
    Cost: about 1 µs for a value of 100 bytes.
    """
    try:
        value = _decode(text)
        canonical = _encode(value).decode()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise ValueError("not JSON") from None
    if has_repeated_key(text, value):
        raise ValueError("a key is repeated")
    return None if value is None else canonical
