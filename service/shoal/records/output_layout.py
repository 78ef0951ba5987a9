"""Where the fields of an output record stand: in the outermost object, or inside objects (``to: path``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from shoal.policy import Attribute

__all__ = ["OutputField", "column_name", "json_template", "nested_fields", "order_of", "output_path", "value_at"]


class OutputField(NamedTuple):
    """A field in the order of the output.

    Attributes
    ----------
    attribute : Attribute
    opens : tuple of str
        Objects that begin with this field, the outermost first.
    closes : int
        Number of objects that end after this field.
    """

    attribute: Attribute
    opens: tuple[str, ...] = ()
    closes: int = 0


def output_path(attribute: Attribute) -> tuple[str, ...]:
    """Return the names from the outermost object of an output record to the field of an attribute."""
    return attribute.to or (attribute.name,)


def column_name(attribute: Attribute) -> str:
    """Return the name of an attribute's column in formats without objects: its path with dots."""
    return ".".join(output_path(attribute))


def nested_fields(attributes: Sequence[Attribute]) -> list[OutputField]:
    """Return the fields of a record in the order of the output.

    An object stands where its first field is declared, and contains its fields in the order of the policy.
    """
    paths = {output_path(attribute): attribute for attribute in attributes}
    ordered = list(_ordered(paths))
    fields = []
    for number, path in enumerate(ordered):
        before = _common(path, ordered[number - 1] if number else ())
        after = _common(path, ordered[number + 1] if number + 1 < len(ordered) else ())
        fields.append(OutputField(paths[path], path[before:-1], len(path) - 1 - after))
    return fields


def json_template(field: OutputField) -> bytes:
    """Return the template of a field with the objects that it opens and closes; ``%b`` stands for the value."""
    names = [
        msgspec.json.encode(name).replace(b"%", b"%%") for name in (*field.opens, output_path(field.attribute)[-1])
    ]
    return b":{".join(names) + b":%b" + b"}" * field.closes


def order_of(attributes: Sequence[Attribute], fields: Sequence[OutputField]) -> list[int]:
    """Return the indexes of attributes in the order of the output."""
    index_of = {attribute.name: index for index, attribute in enumerate(attributes)}
    return [index_of[field.attribute.name] for field in fields if field.attribute.name in index_of]


def value_at(record: Mapping[str, Any], path: Sequence[str]) -> Any:  # noqa: ANN401 - any JSON
    """Return the value of an output record at a path."""
    value: Any = record
    for name in path:
        value = value[name]
    return value


def _ordered(paths: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Yield paths so that those into one object are adjacent, at any depth."""
    below: dict[str, list[tuple[str, ...]]] = {}
    for path in paths:
        below.setdefault(path[0], []).append(path[1:])
    for name, rests in below.items():
        yield from ((name, *rest) for rest in (rests if rests == [()] else _ordered(rests)))


def _common(path: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Return how many objects, the outermost first, contain both fields."""
    common = 0
    for name, other_name in zip(path[:-1], other[:-1], strict=False):
        if name != other_name:
            break
        common += 1
    return common
