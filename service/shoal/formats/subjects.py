"""Normalise the subjects of records.

If two texts of one person counted as two subjects, a cluster could contain fewer than k people. If two people count as
one subject, a cluster is only larger than needed. In doubt, texts are therefore treated as one subject.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TypeGuard
from unicodedata import category, combining, normalize

from shoal.formats.faults import FaultReason
from shoal.formats.json_text import canonical_number
from shoal.policy import Attribute, FieldType, NormalizeStep, Policy
from shoal.scales.scale import NumberText

_FIRST_OF_NUMBER = frozenset("+-.0123456789")
_MAX_MARKS = 30
"""Most combining characters in succession (UAX 15, Stream-Safe Text Format). Their order takes quadratic time."""

_IGNORABLE = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2065, 0x2065),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0xE0000, 0xE0FFF),
)
"""First and last code points of Unicode's Default_Ignorable_Code_Point that may have another category than Cf."""


def normaliser(
    kind: FieldType, steps: Collection[NormalizeStep] | None = None, missing_values: Collection[str] = ()
) -> Callable[[Sequence[object]], list[str]]:
    """Return the function that normalises subjects of a type: NFC, trimmed, after ``steps`` (see `fold`).

    A value that cannot be a subject becomes "", such as a text with more than 30 combining characters in
    succession, or what equals one of ``missing_values``. For every type but string, numbers and their texts become
    `canonical_number`. Cost: about 0.1 µs per ASCII text without steps, 2 µs per text with all of them.
    """
    normalise_one = _NORMALISERS[kind]
    folded = fold(steps) if steps else None

    def normalise_all(values: Sequence[object]) -> list[str]:
        if folded is not None:
            values = [folded(one) if _is_text(one) else one for one in values]
        if kind in {"string", "any"} and (texts := _ascii_texts(values)) is not None:
            if kind == "string":
                return texts
            return [(canonical_number(text) or text) if text[:1] in _FIRST_OF_NUMBER else text for text in texts]
        if folded is None:
            values = ["" if _has_too_many_marks(value) else value for value in values]
        return list(map(normalise_one, values))

    missing = frozenset(normalise_all(list(missing_values))) - {""}

    def normalise(values: Sequence[object]) -> list[str]:
        texts = normalise_all(values)
        if not missing or missing.isdisjoint(texts):
            return texts
        return ["" if text in missing else text for text in texts]

    return normalise


def _ascii_texts(values: Sequence[object]) -> list[str] | None:
    """Return texts trimmed if all are ASCII texts, which are their own NFC."""
    if not set(map(type, values)) <= {str}:
        return None
    texts: list[str] = values  # type: ignore[assignment]  # all elements are str
    return list(map(str.strip, texts)) if "".join(texts).isascii() else None


def describe_subject(policy: Policy, attribute: Attribute, value: object) -> str:
    """Return what is wrong with a subject; empty if it is valid."""
    normalise = normaliser(attribute.type, attribute.normalize, policy.missing_values)
    return "" if normalise([value])[0] else FaultReason.NOT_SUBJECT


def fold(steps: Collection[NormalizeStep]) -> Callable[[str], str]:
    """Return the function that gives the spellings of a name one text.

    The steps are applied in this order, whatever their order in the policy:

    - ``invisible`` removes characters of the Unicode category Cf, those of the category Cc that are no white space, and
      those with the property Default_Ignorable_Code_Point.
    - ``nfkc`` converts to Unicode NFKC.
    - ``casefold`` converts to NFD and applies Unicode's full case folding. With ``nfkc``, NFKC, NFD and folding are
      applied once more, because folding can yield characters that NFKC changes, and vice versa.
    - ``spaces`` makes one space of each run of white space.

    Sources: The Unicode Standard, section 3.13, definitions D145 and D146; UAX 15 (normalization forms); UAX 44
    (Default_Ignorable_Code_Point, White_Space).
    """
    forms = _forms(steps)
    keeps_invisible, keeps_case, keeps_spaces = (step not in steps for step in ("invisible", "casefold", "spaces"))

    def folded(text: str) -> str:
        if not keeps_invisible:
            text = text.translate(_WITHOUT_INVISIBLE)
        if text.isascii():  # an ASCII text is its own NFD and NFKC
            text = text if keeps_case else text.lower()
        elif _has_too_many_marks(text):
            return ""
        else:
            for form in forms:
                text = form(text)
        return text if keeps_spaces else " ".join(text.split())

    return folded


def _forms(steps: Collection[NormalizeStep]) -> list[Callable[[str], str]]:
    """Return the functions that ``nfkc`` and ``casefold`` apply, in order."""
    nfkc = [partial(normalize, "NFKC")] if "nfkc" in steps else []
    forms: list[Callable[[str], str]] = [*nfkc, partial(normalize, "NFD"), str.casefold]
    if "casefold" not in steps:
        return list(nfkc)
    return [*forms, *forms, *nfkc] if nfkc else forms


class _Translation(dict[int, int | None]):
    """Maps code points of invisible characters to None and others to themselves, each when it first occurs."""

    def __missing__(self, code: int) -> int | None:
        letter = chr(code)
        kind = category(letter)
        is_invisible = kind == "Cf" or (kind == "Cc" and not letter.isspace())
        is_invisible |= any(first <= code <= last for first, last in _IGNORABLE)
        self[code] = None if is_invisible else code
        return self[code]


_WITHOUT_INVISIBLE = _Translation()


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and not isinstance(value, NumberText)


def _normalise_text(value: object) -> str:
    return normalize("NFC", value).strip() if isinstance(value, str) else ""


def _has_too_many_marks(text: object) -> bool:
    if not isinstance(text, str) or len(text) <= _MAX_MARKS:
        return False
    count = 0
    for letter in text:
        count = count + 1 if combining(letter) else 0
        if count > _MAX_MARKS:
            return True
    return False


def _normalise_any(value: object) -> str:
    if isinstance(value, bool):
        return _normalise_boolean(value)
    if isinstance(value, int):
        value = str(value)
    if isinstance(value, NumberText) and math.isinf(float(value)):
        return ""
    text = _normalise_text(value)
    return canonical_number(text) or text


def _normalise_number(value: object) -> str:
    if isinstance(value, bool):
        return ""
    return canonical_number(_normalise_any(value)) or ""


def _normalise_integer(value: object) -> str:
    text = _normalise_number(value)
    return "" if "e-" in text else text


def _normalise_boolean(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = _normalise_text(value).lower()
    return text if text in {"true", "false"} else ""


def _normalise_string(value: object) -> str:
    return "" if isinstance(value, NumberText) else _normalise_text(value)


_NORMALISERS: dict[FieldType, Callable[[object], str]] = {
    "string": _normalise_string,
    "integer": _normalise_integer,
    "number": _normalise_number,
    "boolean": _normalise_boolean,
    "any": _normalise_any,
}
