"""Keys of confidential values: two values count as one if and only if their keys are equal.

A key does not depend on the spelling. All spellings of a number are one value, whether it is a JSON number or the text
of one; blanks around a text, format characters and the form of its letters (NFKC) do not count. All spellings of a
missing value are one value, which is none of the others. In a JSON document, the order of members does not count,
either. A reader of a release could not tell such values apart by their meaning, so counting them as several would make
a cluster look more diverse than it is.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Callable, Collection
from decimal import Decimal
from typing import TypeAlias

from shoal.audit.json_documents import document_reader
from shoal.audit.parsing import Form, JsonNumber, JsonObject, json_document
from shoal.policy import Attribute, FieldType, Policy

__all__ = ["MISSING", "KeyReader", "comparable_fields", "is_number", "key_reader", "number_of", "text_key_reader"]

KeyReader: TypeAlias = Callable[[str], str]

MISSING = ""
"""Key of every missing value. Other keys begin with the letter of their kind."""
_NUMBER, _TEXT, _DOCUMENT = "ntj"
_JSON_NUMBER = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
_LONGEST_EXPONENT = 18
"""Characters. Of longer exponents no number is made: such a text is a text."""
_LARGEST_POWER = 10**17
"""Largest power of ten that numbers are compared with."""


def key_reader(kind: FieldType, missing_values: Collection[str], released: Form = "jsonl") -> KeyReader:
    """Return the function from the text of an unchanged field, which is JSON, to the key of its value.

    Parameters
    ----------
    kind : FieldType
        Type of the attribute. Only the types any, integer and number have numbers: the texts "007" and "7" of type
        string are two values. Of type json only null is missing.
    missing_values : collection of str
        Texts that stand for a missing value. JSON null and the empty text always do.
    released : {"csv", "jsonl"}
        Form of the release: a cell of type json is the text of a document, and not the document.
    """
    has_numbers = kind in {"any", "integer", "number"}
    missing = {_key_of_text(text, has_numbers=has_numbers) for text in ("", *missing_values)}

    def read(text: str) -> str:
        if text == "null":
            return MISSING
        if kind == "json":
            return _DOCUMENT + _key_of_document(json_document(json.loads(text) if released == "csv" else text))
        key = _key_of_text(json.loads(text) if text.startswith('"') else text, has_numbers=has_numbers)
        return MISSING if key in missing else key

    return read


def text_key_reader(
    attribute: Attribute, missing_values: Collection[str], released: Form
) -> Callable[[str | None], str]:
    """Return the function from a text of a reference, an order or a taxonomy to the key of the value it means."""
    read = key_reader(attribute.type, missing_values, released)
    document = document_reader("csv", released, sys.maxsize)

    def read_text(text: str | None) -> str:
        if text is None:
            return MISSING
        if attribute.type == "json":
            return read(document(text) or "null")
        return read(json.dumps(text.lower() if attribute.type == "boolean" else text))

    return read_text


def comparable_fields(policy: Policy, released: Form) -> list[tuple[int, Callable[[str], bool]]]:
    """Return the places of the unchanged fields whose values must have a place in an order, and whether one has.

    These are the protected attributes that the policy declares as ordered, if it has ``t``. Categories must be those of
    the order, and other values numbers. A missing value always has a place.
    """
    return [
        (policy.unchanged_fields.index(attribute), _comparable(attribute, policy.missing_values, released))
        for attribute in policy.protected
        if policy.t is not None and attribute.distance == "ordered"
    ]


def _comparable(attribute: Attribute, missing_values: Collection[str], released: Form) -> Callable[[str], bool]:
    read = key_reader(attribute.type, missing_values, released)
    text_key = text_key_reader(attribute, missing_values, released)
    order = {text_key(str(item)) for item in attribute.order}

    def is_comparable(text: str) -> bool:
        key = read(text)
        return key == MISSING or (key in order if order else is_number(key))

    return is_comparable


def is_number(key: str) -> bool:
    """Whether a key is that of a number."""
    return key.startswith(_NUMBER)


def number_of(key: str) -> Decimal:
    """Return the exact number of a key. Comparisons of it are exact; sums need not be."""
    digits, _, power = key.removeprefix(_NUMBER).partition("e")
    return Decimal(f"{digits}e{max(min(int(power or 0), _LARGEST_POWER), -_LARGEST_POWER)}")


def _key_of_document(value: object) -> str:
    """Return the key of a JSON document: members in no order, numbers by their value, and texts as other texts."""
    if isinstance(value, JsonObject):
        members = (f"{_quoted(name)}:{_key_of_document(item)}" for name, item in value)
        return "{" + ",".join(sorted(members)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_key_of_document, value)) + "]"
    if isinstance(value, JsonNumber):
        return _key_of_text(value, has_numbers=True)
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    return json.dumps(_folded(text))


def _folded(text: str) -> str:
    """Return a text as it looks: without letters that show nothing, and one form of letters that look alike."""
    shown = filter(lambda letter: unicodedata.category(letter) != "Cf", text)
    return unicodedata.normalize("NFKC", "".join(shown)).strip()


def _key_of_text(text: str, *, has_numbers: bool) -> str:
    text = _folded(text)
    found = _JSON_NUMBER.fullmatch(text) if has_numbers else None
    if found is None or len(found[4] or "") > _LONGEST_EXPONENT:
        return _TEXT + text
    sign, integer, fraction, exponent = found.groups(default="")
    digits = (integer + fraction).lstrip("0")
    short = digits.rstrip("0")
    if not short:
        return f"{_NUMBER}0"
    power = int(exponent or 0) - len(fraction) + len(digits) - len(short)
    return f"{_NUMBER}{sign}{short}e{power}"
