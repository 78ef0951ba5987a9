"""Plain sentences for fields that do not fit the schema, without any value of the file.

The library that validates has sentences of its own ("Input should be ..."). They name Python types, so none of them is
passed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

__all__ = ["describe_fault", "did_you_mean"]

_KINDS = {
    "string": "text",
    "int": "an integer",
    "float": "a number",
    "decimal": "a number",
    "bool": "true or false",
    "list": "a list",
    "dict": "a mapping",
    "model": "a mapping",
    "mapping": "a mapping",
    "l": "an integer, {distinct: L}, {p_sensitive: L}, {entropy: L} or {recursive: [C, L]}",
}
"""What a field must be, by the first word of the library's error type."""
_LIMITS = {
    "greater_than_equal": ("ge", "at least"),
    "less_than_equal": ("le", "at most"),
    "greater_than": ("gt", "above"),
    "less_than": ("lt", "below"),
}
_NUMERIC = "did you mean numeric?"
_SCALE = (
    "unknown scale; give numeric (numbers whose differences have a meaning), ordinal (categories with an order), "
    "nominal (categories without an order) or time; a field of another kind is an identifier, which leaves it out of "
    "the output"
)


def describe_fault(details: Sequence[Mapping[str, Any]], model: type[BaseModel], tree: object) -> str:
    """Return what is wrong with one field, and what it must be.

    Parameters
    ----------
    details : sequence of mapping
        Errors of pydantic for this field, one for each type that it may have.
    model : type
        Model of the whole content.
    tree : object
        The content. Its names are compared with those of the model; its values are compared with words that a field
        allows, and never repeated.
    """
    location = tuple(map(str, details[0]["loc"]))
    if details[0]["type"] == "extra_forbidden":
        hint = did_you_mean(location[-1], _names_at(model, location[:-1]))
        return f"unknown field; {hint or 'remove it or check its spelling'}"
    if details[0]["type"] == "missing":
        return "missing"
    allowed = list(dict.fromkeys(text for detail in details for text in _allowed(detail, model, location)))
    if not allowed:
        return "has a value of the wrong kind; see the documentation of this field"
    hint = did_you_mean(_value_at(tree, location), allowed) if details[0]["type"] == "literal_error" else ""
    if details[0]["type"] == "literal_error" and location[-1] == "scale" and hint in {"", _NUMERIC}:
        # Words for categories, such as categorical, are similar to numeric, too.
        return _SCALE
    return f"must be {_joined(allowed)}" + (f"; {hint}" if hint else "")


def did_you_mean(name: object, known: Sequence[str]) -> str:
    """Return a question that names the most similar known word; an empty text if none is similar."""
    spellings = {word.lower(): word for word in known}
    found = get_close_matches(name.lower(), spellings, 1) if isinstance(name, str) else []
    return f"did you mean {spellings[found[0]]}?" if found else ""


def _allowed(detail: Mapping[str, Any], model: type[BaseModel], location: tuple[str, ...]) -> Iterator[str]:
    """Yield what a field may be."""
    kind = detail["type"]
    if kind == "literal_error":
        yield from _words(_annotation_at(model, location))
    elif kind in _LIMITS:
        name, words = _LIMITS[kind]
        yield f"{words} {detail['ctx'][name]:g}"
    elif (word := kind.partition("_")[0]) in _KINDS:
        yield _KINDS[word]


def _words(annotation: object) -> Iterator[str]:
    """Yield the words of all literals of an annotation."""
    for part in get_args(annotation):
        if get_origin(annotation) is Literal:
            yield part if part.isalnum() or (part.isprintable() and len(part) > 1) else repr(part)
        else:
            yield from _words(part)


def _joined(words: Sequence[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _annotation_at(model: type[BaseModel], location: tuple[str, ...]) -> object:
    """Return the annotation of a field by its path in the file."""
    annotation: object = model
    for step in location:
        section = _model_in(annotation)
        if section is None:
            annotation = _entry_type(annotation)
            continue
        fields = {field.alias or name: field.annotation for name, field in section.model_fields.items()}
        annotation = fields.get(step)
    return annotation


def _entry_type(annotation: object) -> object:
    """Return the type of the entries of a mapping or a list, also of one that may be missing; None without entries."""
    for part in (annotation, *get_args(annotation)):
        if get_origin(part) in {dict, list}:
            return get_args(part)[-1]
    return None


def _names_at(model: type[BaseModel], location: tuple[str, ...]) -> list[str]:
    """Return the fields that the section at a path may have."""
    section = _model_in(_annotation_at(model, location))
    return [] if section is None else [field.alias or name for name, field in section.model_fields.items()]


def _model_in(annotation: object) -> type[BaseModel] | None:
    """Return the model of a section that may be missing; None for mappings, lists and single values."""
    for part in (annotation, *(() if get_origin(annotation) in {dict, list} else get_args(annotation))):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part
    return None


def _value_at(tree: object, location: tuple[str, ...]) -> object:
    for step in location:
        if isinstance(tree, Mapping):
            tree = tree.get(step)
        elif isinstance(tree, list) and step.isdigit() and int(step) < len(tree):
            tree = tree[int(step)]
        else:
            return None
    return tree
