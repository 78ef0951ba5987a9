"""Where in a message an attribute is read: `from: value | key | header:NAME | timestamp`."""

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
    """Parts of a message."""

    VALUE = "value"
    KEY = "key"
    HEADER = "header"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class Source:
    """A part of a message; ``header`` is the name of the header, where it is one."""

    part: MessagePart = MessagePart.VALUE
    header: str = ""

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read what the policy says; None if it says nothing that there is."""
        if text.startswith(_HEADER):
            name = text.removeprefix(_HEADER)
            return cls(MessagePart.HEADER, name) if name else None
        if text in {MessagePart.VALUE, MessagePart.KEY, MessagePart.TIMESTAMP}:
            return cls(MessagePart(text))
        return None

    def __str__(self) -> str:
        """As in the policy."""
        return _HEADER + self.header if self.part is MessagePart.HEADER else self.part.value


VALUE = Source()


def check_sources(document: Document) -> Iterator[tuple[FieldPath, str]]:
    """All that is wrong with the places attributes are read from."""
    taken: dict[Source, str] = {}
    for name, attribute in document.attributes.items():
        path = ("attributes", name, "from")
        source = Source.parse(attribute.source)
        if source is None:
            yield path, "must be value, key, timestamp or header:NAME"
        elif source.part is not MessagePart.VALUE:
            if any("\ud800" <= letter <= "\udfff" for letter in source.header):
                yield path, "holds half a character (a lone surrogate): no header can have such a name"
            # The second would publish what the first hides.
            if source in taken:
                yield path, f"is read by attributes.{taken[source]} already; remove one of them"
            taken.setdefault(source, name)
            if source.part is MessagePart.TIMESTAMP:
                yield from _timestamp_rules(name, attribute)


def _timestamp_rules(name: str, attribute: AttributeSection) -> Iterator[tuple[FieldPath, str]]:
    path = ("attributes", name)
    if attribute.subject:
        yield (*path, "from"), "a time is no person: read the subject from the value, the key or a header"
    if attribute.role == "confidential":
        yield (
            (*path, "role"),
            (
                "an exact timestamp finds the record for whoever knows when it came: make it a quasi_identifier, or "
                "say role: other with publish_unchanged: true if that is meant"
            ),
        )
    if attribute.type in {"string", "boolean"}:
        yield (*path, "type"), "a timestamp is a whole number of milliseconds: integer, number or any"
