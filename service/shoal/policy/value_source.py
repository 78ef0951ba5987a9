"""Where in a message an attribute is read: `from: value | key | header:NAME | timestamp`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from shoal.policy.loader import FieldPath
from shoal.policy.schema import AttributeSection, Document

__all__ = ["VALUE", "Place", "Source", "source_rules"]

_HEADER = "header:"


class Place(StrEnum):
    """Parts of a message."""

    VALUE = "value"
    KEY = "key"
    HEADER = "header"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class Source:
    """A part of a message; ``header`` is the name of the header, where it is one."""

    place: Place = Place.VALUE
    header: str = ""

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read what the policy says; None if it says nothing that there is."""
        if text.startswith(_HEADER):
            name = text.removeprefix(_HEADER)
            return cls(Place.HEADER, name) if name else None
        if text in {Place.VALUE, Place.KEY, Place.TIMESTAMP}:
            return cls(Place(text))
        return None

    def __str__(self) -> str:
        """As in the policy."""
        return _HEADER + self.header if self.place is Place.HEADER else self.place.value


VALUE = Source()


def source_rules(document: Document) -> Iterator[tuple[FieldPath, str]]:
    """All that is wrong with the places attributes are read from."""
    taken: dict[Source, str] = {}
    for name, attribute in document.attributes.items():
        path = ("attributes", name, "from")
        source = Source.parse(attribute.source)
        if source is None:
            yield path, "must be value, key, timestamp or header:NAME"
        elif source.place is not Place.VALUE:
            if any("\ud800" <= letter <= "\udfff" for letter in source.header):
                yield path, "holds half a character (a lone surrogate): no header can have such a name"
            # The second would publish what the first hides.
            if source in taken:
                yield path, f"is read by attributes.{taken[source]} already; remove one of them"
            taken.setdefault(source, name)
            if source.place is Place.TIMESTAMP:
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
