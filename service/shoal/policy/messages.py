"""The part of a message that an attribute is read from: ``from: value | key | header:NAME | timestamp``.

``value.patient.birth_date``, or ``patient.birth_date``, is a field inside the objects of the value.

Paths to fields inside the objects of a message: ``patient.birth_date``.

The rules for the form of messages: envelopes, deletes, and the fields of the output.

The CSV dialect of the input and of the output: section ``csv`` of a policy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self, TypeAlias

from shoal.policy.document import FieldPath
from shoal.policy.schema import AttributeSection, DialectSection, Document
from shoal.policy.texts import has_lone_surrogate

__all__ = [
    "VALUE",
    "CsvDialect",
    "MessagePart",
    "Source",
    "check_dialects",
    "check_messages",
    "check_sources",
    "collisions",
    "fault_of_path",
    "path_of_source",
    "resolve_dialects",
    "split_path",
]

MAX_DEPTH = 20
"""Names in a path. No message needs more, and decoders recurse once per name."""
_INDEX = re.compile(r"\[[^\]]*\]")


def split_path(text: str) -> FieldPath:
    """Return the names of a dotted path, the outermost first."""
    return tuple(text.split("."))


def fault_of_path(text: str, *, is_output: bool = False) -> str:
    """Return what is wrong with a dotted path, and the remedy; an empty text if it is valid."""
    names = split_path(text)
    if _INDEX.search(text) or any(name.isascii() and name.isdigit() for name in names):
        remedy = (
            "give a field of an object, because lists are not written"
            if is_output
            else "read the whole list as a confidential attribute of type json, or let the producer write the item "
            "into a field of its own"
        )
        return f"names an item of a list; {remedy}"
    if not all(name.strip() for name in names):
        return "has an empty name between two dots, at its start or at its end; remove a dot"
    if len(names) > MAX_DEPTH:
        return f"has more than {MAX_DEPTH} names; move the field further out"
    if has_lone_surrogate(text):
        return "contains a lone surrogate, which no message can contain; correct the name"
    return ""


def collisions(paths: Iterable[tuple[str, FieldPath]]) -> Iterator[tuple[str, str, bool]]:
    """Yield each attribute whose field is the field of another attribute, contains it or is inside it.

    Parameters
    ----------
    paths : iterable of (str, tuple of str)
        Name of each attribute and the path to its field.

    Yields
    ------
    (str, str, bool)
        The attribute, the one before it with which it collides, and whether both have the same field.
    """
    fields: dict[FieldPath, str] = {}
    objects: dict[FieldPath, str] = {}
    for name, path in paths:
        outer = [path[:length] for length in range(1, len(path))]
        for taken in (path, *outer):
            if taken in fields:
                yield name, fields[taken], taken == path
                break
        else:
            if path in objects:
                yield name, objects[path], False
        fields.setdefault(path, name)
        for prefix in outer:
            objects.setdefault(prefix, name)


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


Finding: TypeAlias = tuple[FieldPath, str]


def check_messages(document: Document) -> Iterator[Finding]:
    """Check the envelope of messages, and that every field of the output is written once."""
    if document.deletes is not None and document.unwrap != "debezium":
        yield ("deletes",), "only with unwrap: debezium, whose messages say that a row was deleted; remove it"
    written: list[tuple[str, FieldPath]] = []
    for name, attribute in document.attributes.items():
        if attribute.role in {"identifier", "steering"}:
            continue
        if attribute.to is None:
            written.append((name, (name,)))
        elif fault := fault_of_path(attribute.to, is_output=True):
            yield ("attributes", name, "to"), fault
        else:
            written.append((name, split_path(attribute.to)))
    yield from _check_output(written)


def _check_output(written: Sequence[tuple[str, FieldPath]]) -> Iterator[Finding]:
    """Check that no two fields of the output are one, or one inside the other, in any format."""
    # In formats without objects, the name of a column is the path with dots.
    columns: dict[str, tuple[str, FieldPath]] = {}
    for name, path in written:
        other, taken = columns.setdefault(".".join(path), (name, path))
        if taken != path:
            yield ("attributes", name, "to"), f"is the column of attributes.{other} in CSV, too; give it another field"
    for name, other, is_same in collisions(written):
        if is_same:
            message = f"is the field of attributes.{other} already; give one of the two another field"
        else:
            message = f"is an object around the field of attributes.{other}, or inside its field; give it another field"
        yield ("attributes", name, "to"), message


_LINE_ENDS = {"lf": "\n", "crlf": "\r\n", "cr": "\r"}


@dataclass(frozen=True, slots=True)
class CsvDialect:
    r"""One CSV dialect. The default is RFC 4180 with ``\n`` as the line end.

    Attributes
    ----------
    delimiter, quote, decimal : str
        One character each.
    escape : {"doubled", "backslash"}
        How a quotation mark inside a quoted cell is written: twice, or after a backslash.
    encoding : str
        Name of a codec of the standard library.
    line_end : str
        The characters themselves.
    multiline : bool
        Whether a cell may contain lines that would be valid records by themselves.
    """

    delimiter: str = ","
    quote: str = '"'
    escape: str = "doubled"
    decimal: str = "."
    encoding: str = "utf-8"
    line_end: str = "\n"
    multiline: bool = False

    @property
    def reader_options(self) -> dict[str, Any]:
        """Arguments for `csv.reader`, for text in which quotation marks are doubled.

        The option ``escapechar`` of `csv.reader` is not used: it drops a backslash before any character, and a
        backslash at the end of a line continues the record on the next line.
        """
        return {"delimiter": self.delimiter, "quotechar": self.quote, "doublequote": True, "strict": True}


def resolve_dialects(document: Document) -> tuple[CsvDialect, CsvDialect]:
    """Return the dialects of the input and of the output. The output inherits what it does not set."""
    section = document.csv
    if section is None:
        return CsvDialect(), CsvDialect()
    source = _override(CsvDialect(), section)
    return source, source if section.output is None else _override(source, section.output)


def check_dialects(document: Document) -> Iterator[tuple[FieldPath, str]]:
    """Check that no dialect uses one character both as delimiter and as decimal sign."""
    source, target = resolve_dialects(document)
    for path, dialect in ((("csv", "decimal"), source), (("csv", "output", "decimal"), target)):
        if dialect.delimiter == dialect.decimal:
            yield path, "is also the delimiter; give another delimiter, such as ';'"
            return


def _override(dialect: CsvDialect, section: DialectSection) -> CsvDialect:
    """Return the dialect with the settings of a section."""
    settings = section.model_dump(exclude_none=True, exclude={"output"})
    if "line_end" in settings:
        settings["line_end"] = _LINE_ENDS[settings["line_end"]]
    if settings.get("delimiter") == "tab":
        settings["delimiter"] = "\t"
    return replace(dialect, **settings)
