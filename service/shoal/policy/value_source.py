"""The part of a message that an attribute is read from: ``from: value | key | header:NAME | timestamp``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from shoal.policy.loader import FieldPath
from shoal.policy.schema import AttributeSection, Document

__all__ = ["VALUE", "MessagePart", "Source", "check_sources"]

_HEADER = "header:"


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
        """Parse the policy field ``from``. Return None if the text is not valid."""
        if text.startswith(_HEADER):
            name = text.removeprefix(_HEADER)
            return cls(MessagePart.HEADER, name) if name else None
        if text in {MessagePart.VALUE, MessagePart.KEY, MessagePart.TIMESTAMP}:
            return cls(MessagePart(text))
        return None

    def __str__(self) -> str:
        """Return the text of the policy field ``from``."""
        return _HEADER + self.header if self.part is MessagePart.HEADER else self.part.value


VALUE = Source()


def check_sources(document: Document) -> Iterator[tuple[FieldPath, str]]:
    """Check the field ``from`` of every attribute."""
    readers: dict[Source, str] = {}
    for name, attribute in document.attributes.items():
        path = ("attributes", name, "from")
        source = Source.parse(attribute.source)
        if source is None:
            yield path, "must be value, key, timestamp or header:NAME"
        elif source.part is not MessagePart.VALUE:
            if any("\ud800" <= letter <= "\udfff" for letter in source.header):
                yield path, "contains a lone surrogate, which no header name can contain; correct the name"
            # Two attributes from one source could publish with one role what the other role hides.
            if source in readers:
                yield path, f"is read by attributes.{readers[source]} already; remove one of the two attributes"
            readers.setdefault(source, name)
            if source.part is MessagePart.TIMESTAMP:
                yield from _check_timestamp(name, attribute)


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
    if attribute.type in {"string", "boolean"}:
        yield (*path, "type"), "a timestamp is a whole number of milliseconds; use integer, number or any"
