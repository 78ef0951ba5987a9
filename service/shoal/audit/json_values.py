"""JSON texts as Python values, without a loss: repeated names, their order, and all digits of numbers."""

from __future__ import annotations

import json
from typing import NoReturn

__all__ = ["JsonNumber", "JsonObject", "json_document", "json_text", "json_value"]

json_text = json.JSONEncoder(ensure_ascii=False).encode
"""Write a value as JSON with the fewest escapes."""


class JsonObject(list[tuple[str, object]]):
    """A JSON object as a list of pairs, with repeated names and in its order."""

    __slots__ = ()


class JsonNumber(str):
    """The text of a JSON number."""

    __slots__ = ()


def _refuse(_name: str) -> NoReturn:
    # The standard library accepts NaN and Infinity, which are not JSON.
    raise ValueError


_with_numbers = json.JSONDecoder(object_pairs_hook=JsonObject, parse_constant=_refuse)
_with_number_texts = json.JSONDecoder(
    object_pairs_hook=JsonObject, parse_constant=_refuse, parse_int=JsonNumber, parse_float=JsonNumber
)


def json_value(text: bytes) -> object:
    """Parse one JSON text with its numbers as int and float; objects become `JsonObject`.

    Raises
    ------
    ValueError
        Not UTF-8 or not JSON. Its message holds the text: never show it.
    """
    try:
        return _with_numbers.decode(text.decode())
    except RecursionError:
        raise ValueError from None


def json_document(text: str) -> object:
    """Parse one JSON text with its numbers as `JsonNumber`.

    Raises
    ------
    ValueError
        Not JSON. Its message holds the text: never show it.
    """
    try:
        return _with_number_texts.decode(text)
    except RecursionError:
        raise ValueError from None
