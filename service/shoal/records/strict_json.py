"""Check what the typed JSON decoder does not: repeated keys, invalid UTF-8 in dropped fields, and nesting depth.

`prescreen` clears the messages of a block at once, by counting characters of their concatenation. Only a message that
the count does not clear is checked by itself with `validate_strictly`. The result does not depend on the depth of
Python's call stack, so that a message is accepted or rejected alike in every run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from shoal.records.block import Reason

__all__ = ["prescreen", "validate_strictly"]

_MAX_DEPTH = 64
"""Maximum number of nested objects and arrays of a record, itself included."""
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_QUOTE, _COLON, _SPACE = b'": '
_KEY_ENDS = (b'":', b" :", b"\t:", b"\n:", b"\r:")
_BRACE, _CASE_BIT = 0x7B, 0x20
"""``[`` and ``{`` differ in this bit only."""
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def prescreen(messages: Sequence[bytes], joined: bytes, fields: int) -> Sequence[int]:
    """Return the indexes of the messages that a count of characters does not clear.

    A colon between key and value follows a quotation mark or white space. So the number of such colons is at least
    the number of keys. Each message is known to contain ``fields`` different keys: if it has exactly as many such
    colons, no key is repeated. A message with few opening brackets cannot be nested deeply.

    Parameters
    ----------
    messages : sequence of bytes
        Well-formed JSON objects, each with all ``fields`` declared keys.
    joined : bytes
        Concatenation of the messages.
    fields : int
        Number of declared fields.

    Returns
    -------
    sequence of int
        Increasing.

    Notes
    -----
    Cost: about 0.1 µs per message.
    """
    if not messages:
        return ()
    broken = [] if _is_utf8(joined) else [index for index, message in enumerate(messages) if not _is_utf8(message)]
    characters = np.frombuffer(joined, dtype=np.uint8)
    colons = np.flatnonzero(characters == _COLON)
    before = characters[colons - 1]
    colons = colons[(before == _QUOTE) | (before <= _SPACE)]
    brackets = np.flatnonzero((characters | _CASE_BIT) == _BRACE)
    if not broken and len(colons) == len(messages) * fields and len(brackets) < len(messages) + _MAX_DEPTH:
        return ()
    ends = np.cumsum(np.fromiter(map(len, messages), np.int64, len(messages)))
    unclear = (_count_per_message(colons, ends) != fields) | (_count_per_message(brackets, ends) > _MAX_DEPTH)
    unclear[broken] = True
    indexes: list[int] = np.flatnonzero(unclear).tolist()
    return indexes


def validate_strictly(message: bytes, max_depth: int = _MAX_DEPTH) -> Reason | None:
    """Return why a well-formed message must be rejected, or None.

    Parameters
    ----------
    message : bytes
    max_depth : int
        Maximum number of nested objects and arrays.

    Notes
    -----
    Cost: 1 µs to 10 µs for a message of 200 bytes.
    """
    if not _is_utf8(message) or _is_too_deep(message, max_depth):
        return Reason.UNDECODABLE
    return Reason.INVALID if _has_repeated_key(message) else None


def _count_per_message(positions: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return how many of the increasing positions are in each message."""
    return np.diff(np.searchsorted(positions, ends), prepend=0)


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_too_deep(message: bytes, max_depth: int) -> bool:
    if message.count(b"{") + message.count(b"[") <= max_depth:
        return False
    depth = 0
    for bracket in _STRING.sub(b"", message).translate(None, _NO_BRACKETS):
        depth += 1 if bracket | _CASE_BIT == _BRACE else -1
        if depth > max_depth:
            return True
    return False


def _has_repeated_key(message: bytes) -> bool:
    """Return whether a key is repeated at the top level, or the message is not an object.

    Keys are compared without their escapes. The second, slower parser converts no number, so that no number is too
    long for it.
    """
    try:
        distinct = len(_decode_members(message))
        if sum(map(message.count, _KEY_ENDS)) == distinct:
            return False
        pairs = json.loads(message, object_pairs_hook=tuple, parse_int=len, parse_float=len)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return True
    return len({key for key, _ in pairs}) != len(pairs)
