"""The part of a message that an attribute is read from: ``from: value | key | header:NAME | timestamp``.

``value.patient.birth_date``, or ``patient.birth_date``, is a field inside the objects of the value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from shoal.policy.field_path import collisions, fault_of_path, split_path
from shoal.policy.loader import FieldPath
from shoal.policy.schema import AttributeSection, Document
from shoal.policy.text_checks import has_lone_surrogate

__all__ = ["VALUE", "MessagePart", "Source", "check_sources", "path_of_source"]

_HEADER = "header:"
_VALUE = "value."
_NO_SOURCE = "must be value, key, timestamp, header:NAME or the path to a field, such as value.patient.sex"


class MessagePart(StrEnum):
    """The parts of a Kafka message."""

    VALUE = "value"
    KEY = "key"
    HEADER = "header"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class Source:
    """The part of a message that an attribute is read from. ``header`` is the header's name, else empty."""

    part: MessagePart = MessagePart.VALUE
    header: str = ""

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse the policy field ``from``. Return None if the text is not valid.

        The path to a field inside the value is left to `path_of_source`.
        """
        if text.startswith(_HEADER):
            name = text.removeprefix(_HEADER)
            return cls(MessagePart.HEADER, name) if name else None
        if text in {MessagePart.VALUE, MessagePart.KEY, MessagePart.TIMESTAMP}:
            return cls(MessagePart(text))
        return cls() if "." in text else None

    def __str__(self) -> str:
        """Return the text of the policy field ``from``."""
        return _HEADER + self.header if self.part is MessagePart.HEADER else self.part.value


VALUE = Source()


def path_of_source(name: str, text: str) -> FieldPath:
    """Return the path to the field that attribute ``name`` is read from; empty if it is not read from the value."""
    source = Source.parse(text)
    if source is None or source.part is not MessagePart.VALUE:
        return ()
    return (name,) if text == MessagePart.VALUE else split_path(text.removeprefix(_VALUE))


def check_sources(document: Document) -> Iterator[tuple[FieldPath, str]]:
    """Check the field ``from`` of every attribute."""
    readers: dict[Source, str] = {}
    for name, attribute in document.attributes.items():
        path = ("attributes", name, "from")
        source = Source.parse(attribute.source)
        if source is None:
            is_field = attribute.source and not attribute.source.startswith(_HEADER)
            yield path, f"{_NO_SOURCE}; give value.{attribute.source} for this field" if is_field else _NO_SOURCE
        elif source.part is MessagePart.VALUE:
            if fault := _fault_of_value_path(attribute.source):
                yield path, fault
        else:
            yield from _check_envelope(path, source, readers)
            readers.setdefault(source, name)
            if source.part is MessagePart.TIMESTAMP:
                yield from _check_timestamp(name, attribute)
    yield from _check_collisions(document)


def _fault_of_value_path(text: str) -> str:
    first = text.partition(".")[0]
    if text == MessagePart.VALUE:
        return ""
    if first in {MessagePart.KEY, MessagePart.HEADER, MessagePart.TIMESTAMP}:
        return f"a field inside the {first} is not read; for the field {first} of the value, start with value.{first}"
    return fault_of_path(text)


def _check_envelope(path: FieldPath, source: Source, readers: Mapping[Source, str]) -> Iterator[tuple[FieldPath, str]]:
    """Check an attribute that is read from key, header or timestamp; ``readers`` are those before it."""
    if has_lone_surrogate(source.header):
        yield path, "contains a lone surrogate, which no header name can contain; correct the name"
    # Two attributes from one source could publish with one role what the other role hides.
    if source in readers:
        yield path, f"is read by attributes.{readers[source]} already; remove one of the two attributes"


def _check_collisions(document: Document) -> Iterator[tuple[FieldPath, str]]:
    """Check that no field of the value is read twice: one role could publish what the other role hides."""
    paths = ((name, path_of_source(name, attribute.source)) for name, attribute in document.attributes.items())
    for name, other, is_same in collisions((name, path) for name, path in paths if path):
        if is_same:
            message = f"is read by attributes.{other} already; remove one of the two attributes"
        else:
            message = f"is an object around the field of attributes.{other}, or inside its field; read only one of them"
        yield ("attributes", name, "from"), message


def _check_timestamp(name: str, attribute: AttributeSection) -> Iterator[tuple[FieldPath, str]]:
    path = ("attributes", name)
    if attribute.subject:
        yield (*path, "from"), "a timestamp does not identify a person; read the subject from value, key or a header"
    if attribute.role == "confidential":
        yield (
            (*path, "role"),
            (
                "an exact timestamp identifies the record for a person who knows when it was sent; declare it as "
                "quasi_identifier, or set role: other with publish_unchanged: true to accept this"
            ),
        )
    if attribute.scale == "time" and attribute.unit != "ms":
        yield (*path, "unit"), "a timestamp is a number of milliseconds; give unit: ms"
    if attribute.type in {"string", "boolean"}:
        yield (*path, "type"), "a timestamp is a whole number of milliseconds; use integer, number or any"
