"""Unchanged fields of type ``json``: arrays, objects and scalars, published as compact JSON.

Members stay in their order. An integer has all its digits. Any other number is the shortest decimal of its float64: it
keeps a point or an exponent, so 100.0 and 100 are two values here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from shoal.audit.arithmetic import canonical_float
from shoal.audit.json_values import json_text
from shoal.audit.parsing import Form, JsonNumber, JsonObject, json_document
from shoal.audit.scales import is_encodable

__all__ = ["document_reader", "document_text", "released_document_reader"]

_INTEGER = re.compile(r"-?[0-9]+")
_EXPONENT = re.compile(r"e([+-])0*([0-9]+)")
_MAX_INTEGER_LENGTH = 4300


def document_text(value: object) -> str | None:
    """Return the compact text of a JSON value; None if a name is repeated, or a text or number has no such form."""
    if isinstance(value, JsonObject):
        if len({name for name, _ in value}) < len(value):
            return None
        return _joined("{", [_member(str(name), item) for name, item in value], "}")
    if isinstance(value, list):
        return _joined("[", list(map(document_text, value)), "]")
    return _scalar_text(value)


def _joined(start: str, texts: list[str | None], end: str) -> str | None:
    return None if None in texts else start + ",".join(map(str, texts)) + end


def _member(name: str, value: object) -> str | None:
    text = document_text(value)
    return None if text is None or not is_encodable(name) else f"{json_text(name)}:{text}"


def _scalar_text(value: object) -> str | None:
    if isinstance(value, JsonNumber):
        return _number_text(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return json_text(value) if isinstance(value, str) and is_encodable(value) else None


def _number_text(text: str) -> str | None:
    if _INTEGER.fullmatch(text):
        return str(int(text)) if len(text) <= _MAX_INTEGER_LENGTH else None
    value = float(text)
    if not math.isfinite(value):
        return None
    if not value.is_integer():
        return canonical_float(value)
    return _EXPONENT.sub(lambda found: f"e{found[1].replace('+', '')}{found[2]}", repr(value))


def document_reader(form: Form, released: Form, max_bytes: int) -> Callable[[object], str | None]:
    """Return the function from a field of the original to the text by which it is compared.

    It returns None if the field is no JSON, or is longer than ``max_bytes``. A cell of a release holds the text.
    """

    def read(value: object) -> str | None:
        text = _of_cell(str(value).strip(" \t")) if form == "csv" else document_text(value)
        if text is None or text == "null":
            return text
        if len(text.encode()) > max_bytes:
            return None
        return json_text(text) if released == "csv" else text

    return read


def released_document_reader(released: Form, *, is_binary: bool = False) -> Callable[[object], str | None]:
    """Return the same for released rows. A cell in another spelling than the compact one is no value.

    ``is_binary``: whether the release is a Parquet file, which holds the text, too.
    """

    def read_cell(value: object) -> str | None:
        cell = "" if value is None else str(value)
        text = _of_cell(cell)
        if text is None or text == "null":
            return None if cell else "null"
        if text != cell:
            return None
        return text if is_binary else json_text(text)

    return read_cell if released == "csv" or is_binary else document_text


def _of_cell(cell: str) -> str | None:
    """Return the text of a cell that holds JSON; null for an empty one."""
    if not cell:
        return "null"
    try:
        return document_text(json_document(cell))
    except ValueError:
        return None
