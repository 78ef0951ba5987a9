"""Keys of JSON documents: two documents are one confidential value if and only if their keys are equal."""

from __future__ import annotations

import json
import re

from shoal.policy.folded_text import fold_characters
from shoal.records.numerals import JSON_NUMBER, canonical_number

__all__ = ["document_key"]

_PART = re.compile(rf'"(?:[^"\\]|\\.)*"|{JSON_NUMBER}|true|false|null|[\[\]{{}}]', re.DOTALL)
_CLOSING = {"]": "[", "}": "{"}


def document_key(text: str) -> str:
    """Return the key of a JSON document.

    Parameters
    ----------
    text : str
        Well-formed JSON without repeated keys, as `canonical_json` returns it.

    Notes
    -----
    Members are in the order of their names, numbers are exact values, and all texts, names too, are compared as
    `fold_characters` returns them. Names that are equal then are kept, each with its value. The function does not
    call itself, so that the depth of a document has no limit of its own. Cost: about 1 µs per value in the document.
    """
    parts: list[str] = []
    outer: list[list[str]] = []
    for part in _PART.findall(text):
        if part in {"[", "{"}:
            outer.append(parts)
            parts = []
        elif part in _CLOSING:
            inner, parts = parts, outer.pop()
            members = inner if part == "]" else sorted(map(":".join, zip(inner[::2], inner[1::2], strict=True)))
            parts.append(f"{_CLOSING[part]}{','.join(members)}{part}")
        elif part.startswith('"'):
            parts.append(json.dumps(fold_characters(json.loads(part))))
        else:
            parts.append(canonical_number(part) or part)
    return parts[0]
