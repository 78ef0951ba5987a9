"""Turns the fields of a record into what is compared: quasi-identifiers, unchanged fields and subject.

Equal values become equal texts or numbers whatever their spelling; different values stay different. A record that does
not fit the policy is unusable: no cluster may hold it. A message that deletes a row, or has no value at all, is no
record: the policy says whether it is dropped or quarantined.

Fields of type ``json`` are compared as compact JSON. Members stay in their order. An integer has all its digits. Any
other number is the shortest decimal of its float64: it keeps a point or an exponent, so 100.0 and 100 are two values.

Confidential values have keys: two values count as one if and only if their keys are equal. A JSON number and the text
of one are one value; blanks around a text, format characters and the form of its letters (NFKC) do not count, and
neither does the order of members in a JSON document. All spellings of a missing value are one value. A reader could not
tell such values apart by their meaning, so counting them as several would make a cluster look too diverse.
"""

from __future__ import annotations

import json
import math
import re
import sys
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from functools import partial
from itertools import chain, compress, groupby
from typing import NamedTuple, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from shoal.audit.reading import (
    INTEGER,
    TOMBSTONE,
    Form,
    JsonNumber,
    JsonObject,
    Record,
    as_record,
    canonical_decimal,
    canonical_float,
    is_array,
    is_encodable,
    is_text,
    json_document,
    json_text,
    scalar_of,
)
from shoal.audit.scales import (
    ABSENT,
    JUDGED_SCALES,
    POINT,
    Categories,
    DecimalSign,
    ValueReader,
    decimal_number,
    value_reader,
)
from shoal.policy import (
    BLANKS,
    MAX_CATEGORY_BYTES,
    Attribute,
    FieldType,
    MessagePart,
    NormalizeStep,
    Policy,
    Role,
    Scale,
)

Int32Vector: TypeAlias = npt.NDArray[np.int32]
Int64Vector: TypeAlias = npt.NDArray[np.int64]
_PLACEHOLDER = "__debezium_unavailable_value"  # in place of a large value that Debezium did not read
BoolVector: TypeAlias = npt.NDArray[np.bool_]
_CONVERTED = {"schema", "payload"}  # names of the object that JsonConverter writes


class Dropped(StrEnum):
    """Why a message is dropped. The names are those of the policy and of a summary."""

    DELETES = "deletes"
    TOMBSTONES = "tombstones"
    SKIP = "skip"


def input_path(attribute: Attribute) -> tuple[str, ...]:
    """Return the names from the outermost object of a record to an attribute."""
    return attribute.path or (attribute.name,)


def output_path(attribute: Attribute) -> tuple[str, ...]:
    """Return the names from the outermost object of a released row to an attribute."""
    return attribute.to or (attribute.name,)


def column_name(attribute: Attribute) -> str:
    """Return the name of an attribute's column in a release of CSV or Parquet."""
    return ".".join(output_path(attribute))


class FieldPaths:
    """The declared fields of an object, which may be inside other objects."""

    def __init__(self, paths: dict[tuple[str, ...], str]) -> None:
        self.paths = paths
        self.objects = {path[:depth] for path in paths for depth in range(1, len(path))}

    @property
    def is_flat(self) -> bool:
        """Whether every field is one of the outermost object, under the name of its attribute."""
        return all(path == (name,) for path, name in self.paths.items())

    def items(self, record: Record, above: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], object]]:
        """Return path and value of each field in the order of the text; objects with declared fields are opened."""
        found: list[tuple[tuple[str, ...], object]] = []
        for name, value in record.items():
            path = (*above, name)
            inner = as_record(value) if path in self.objects else None
            found += [(path, value)] if inner is None else self.items(inner, path)
        return found


def nested_order(paths: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return paths in the order of a text: an object stands where its first field is declared."""
    tree: dict[str, list[tuple[str, ...]]] = {}
    for path in paths:
        tree.setdefault(path[0], []).append(path[1:])
    return [
        (name, *inner) for name, below in tree.items() for inner in ([()] if below == [()] else nested_order(below))
    ]


def dropped_kinds(policy: Policy) -> list[str]:
    """Return the kinds of messages that a policy drops."""
    actions = {Dropped.DELETES: policy.deletes, Dropped.TOMBSTONES: policy.tombstones}
    dropped = [kind.value for kind, action in actions.items() if action == "drop"]
    return dropped + ([Dropped.SKIP.value] if policy.skip else [])


class MessageStructure:
    """Returns the fields of messages by the names of their attributes."""

    def __init__(self, policy: Policy, form: Form) -> None:
        self._unwrap = policy.unwrap if form == "jsonl" else None
        self._drops_deletes, self._drops_tombstones = policy.deletes == "drop", policy.tombstones == "drop"
        self._fields = FieldPaths({input_path(a): a.name for a in policy.value_attributes})
        self._optional = {input_path(a) for a in policy.value_attributes if a.may_be_missing}
        self._refuses_undeclared = policy.undeclared == "quarantine"
        self._form, self._skip = form, policy.skip
        self._is_flat = form == "csv" or self._fields.is_flat
        self._is_bare = self._unwrap is None and self._is_flat
        self.is_plain = self._is_bare and not policy.skip
        self._has_objects = form == "jsonl" and bool(self._fields.objects)

    def content(self, message: Record | None) -> Record | Dropped | None:
        """Return the fields of a message, why it is dropped, or None if it is no record."""
        if message is TOMBSTONE:
            return self._tombstone()
        if self._is_bare or message is None:
            return Dropped.SKIP if message is not None and self._is_skipped(message) else message
        if (self._unwrap is not None or self._has_objects) and not _has_distinct_names(message):
            return None
        record = self._unwrapped(message)
        if record is None or isinstance(record, Dropped):
            return record
        if self._is_skipped(record):
            return Dropped.SKIP
        return record if self._is_flat else self._named(record)

    def _is_skipped(self, record: Record) -> bool:
        """Whether a field has a text by which it says that the record is none."""
        return any(name in record and self._text_of(record[name]) in texts for name, texts in self._skip.items())

    def _text_of(self, value: object) -> str | None:
        if isinstance(value, JsonNumber):
            number = canonical_decimal(value)
            return number if number is not None and INTEGER.fullmatch(number) else None
        if isinstance(value, bool):
            return json_text(value)
        if not isinstance(value, str):
            return None
        return value.strip(BLANKS) if self._form == "csv" else value

    def is_header(self, record: Record) -> bool:
        """Whether each declared field, two or more, has its own name as its value: a header was read as a record."""
        fields = self._fields.paths
        values = ((record.get(name), path[-1]) for path, name in fields.items())
        return len(fields) > 1 and all(is_text(value) and value == name for value, name in values)

    def _tombstone(self) -> Dropped | None:
        return Dropped.TOMBSTONES if self._drops_tombstones else None

    # ------------------------------------------------------------ envelopes

    def _unwrapped(self, message: Record) -> Record | Dropped | None:
        if self._unwrap is None:
            return message
        if self._unwrap == "cloudevents":
            is_event = "specversion" in message and "data_base64" not in message
            return as_record(message.get("data")) if is_event else None
        if self._unwrap == "debezium":
            return self._after(message)
        return self._payload(message) if message.keys() == _CONVERTED else None

    def _payload(self, message: Record) -> Record | Dropped | None:
        payload = message["payload"]
        return self._tombstone() if payload is None else as_record(payload)

    def _after(self, message: Record) -> Record | Dropped | None:
        """Return the row after the change of a message of Debezium."""
        change = self._payload(message) if message.keys() == _CONVERTED else message
        if change is None or isinstance(change, Dropped):
            return change
        operation, after = change.get("op"), change.get("after")
        if not is_text(operation):
            return None
        if operation == "d" or after is None:
            return Dropped.DELETES if self._drops_deletes else None
        return as_record(after)

    # ------------------------------------------------------------ objects

    def _named(self, record: Record) -> Record | None:
        """Return the declared fields by name. An object without required fields may be null."""
        found: dict[str, object] = {}
        for path, value in self._fields.items(record):
            name = self._fields.paths.get(path)
            if name is not None:
                found[name] = value
            elif path in self._fields.objects:
                # It is no object. If it is null, all fields inside it are absent.
                if value is not None or not self._may_be_null(path):
                    return None
            elif self._refuses_undeclared and path not in {("__faust",), *((name,) for name in self._skip)}:
                return None
        return found

    def _may_be_null(self, path: tuple[str, ...]) -> bool:
        return all(one in self._optional for one in self._fields.paths if one[: len(path)] == path)


def _has_distinct_names(message: Record) -> bool:
    level: list[object] = list(message.values())
    while level:
        objects = [value for value in level if isinstance(value, JsonObject)]
        if any(len({name for name, _ in one}) < len(one) for one in objects):
            return False
        arrays = [value for value in level if is_array(value)]
        level = [item for one in objects for _, item in one] + [item for one in arrays for item in one]
    return True


EVERY_STEP: tuple[NormalizeStep, ...] = ("nfkc", "casefold", "spaces", "invisible")
_IGNORED = frozenset(
    chain(
        (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2065, 0x3164, 0xFFA0),
        range(0x180B, 0x1810),
        range(0xFE00, 0xFE10),
        range(0xFFF0, 0xFFF9),
        range(0xE0000, 0xE1000),
    )
)
"""Code points with Unicode's property Default_Ignorable_Code_Point, except those of the category Cf."""
_MOST_MARKS = 30
_BLANKS = re.compile(r"\s+")


def one_spelling(text: str, steps: Collection[NormalizeStep]) -> str:
    """Apply the steps of ``normalize`` to the text of a subject; an empty text if it cannot be a subject. O(length).

    Invisible characters are removed; `nfkc` and `casefold` are applied until nothing changes; then runs of white space
    become one space. Sources: The Unicode Standard, 3.13 (caseless matching); UAX 15 (normalization forms).
    """
    if text.isascii() and text.isprintable():  # nothing is invisible, and NFKC changes nothing
        text = text.lower() if "casefold" in steps else text
        return _BLANKS.sub(" ", text).strip() if "spaces" in steps else text
    if "invisible" in steps:
        text = "".join([letter for letter in text if not _is_invisible(letter)])
    if has_long_mark_sequence(text):
        return ""
    before = None
    while text != before:
        before = text
        if "nfkc" in steps:
            text = unicodedata.normalize("NFKC", text)
        if "casefold" in steps:
            text = unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())
    if "spaces" in steps:
        text = _BLANKS.sub(" ", text).strip()
    return text


def has_long_mark_sequence(text: str) -> bool:
    """Return whether more than 30 combining characters follow each other: such a text is no subject."""
    marks = (sum(1 for _ in letters) for combines, letters in groupby(text, _combines) if combines)
    return not text.isascii() and any(count > _MOST_MARKS for count in marks)


def _combines(letter: str) -> bool:
    return unicodedata.combining(letter) != 0


def _is_invisible(letter: str) -> bool:
    if letter.isascii():
        return not letter.isprintable() and _BLANKS.fullmatch(letter) is None
    if unicodedata.category(letter) == "Cf" or ord(letter) in _IGNORED:
        return True
    return unicodedata.category(letter) == "Cc" and _BLANKS.fullmatch(letter) is None


_EXPONENT = re.compile(r"e([+-])0*([0-9]+)")


def document_text(value: object) -> str | None:
    """Return the compact text of a JSON value; None if a name is repeated, or a text or number has no such form."""
    if isinstance(value, JsonObject):
        if as_record(value) is None or not all(is_encodable(name) for name, _ in value):
            return None
        members = [(json_text(name), document_text(item)) for name, item in value]
        is_text_of_all = all(text is not None for _, text in members)
        return "{" + ",".join(f"{name}:{text}" for name, text in members) + "}" if is_text_of_all else None
    if is_array(value):
        texts = [document_text(item) for item in value]
        return None if None in texts else "[" + ",".join(map(str, texts)) + "]"
    if isinstance(value, JsonNumber):
        return _number_text(value)
    return _field("any", value)


def _number_text(text: str) -> str | None:
    if INTEGER.fullmatch(text):
        return canonical_decimal(text)
    value = float(text)
    if not math.isfinite(value):
        return None
    if not value.is_integer():
        return canonical_float(value)
    return _EXPONENT.sub(lambda found: f"e{found[1].replace('+', '')}{found[2]}", repr(value))


def document_reader(form: Form, released: Form, max_bytes: int) -> Callable[[object], str | None]:
    """Return the function from a field of the original to its text; None if it is no JSON, or too long."""

    def read(value: object) -> str | None:
        text = _of_cell(str(value).strip(" \t")) if form == "csv" else document_text(value)
        if text is None or text == "null":
            return text
        if len(text.encode()) > max_bytes:
            return None
        return json_text(text) if released == "csv" else text

    return read


def released_document_reader(released: Form, *, is_binary: bool = False) -> Callable[[object], str | None]:
    """Return the same for released rows. A cell in another spelling than the compact one is no value."""

    def read_cell(value: object) -> str | None:
        cell = "" if value is None else str(value)
        text = _of_cell(cell)
        if text is None or text == "null":
            return None if cell else "null"
        if text != cell:
            return None
        return text if is_binary else json_text(text)

    return read_cell if released == "csv" or is_binary else document_text


def _of_cell(cell: str) -> str | None:
    """Return the text of a cell that holds JSON; null for an empty one."""
    if not cell:
        return "null"
    try:
        return document_text(json_document(cell))
    except ValueError:
        return None


KeyReader: TypeAlias = Callable[[str], str]
MISSING = ""
"""Key of every missing value. Other keys begin with the letter of their kind."""
_NUMBER, _TEXT, _DOCUMENT = "ntj"
_JSON_NUMBER = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
_LONGEST_EXPONENT = 18
"""Characters. Of longer exponents no number is made: such a text is a text."""
_LARGEST_POWER = 10**17  # largest power of ten that numbers are compared with


def key_reader(kind: FieldType, missing_values: Collection[str], released: Form = "jsonl") -> KeyReader:
    """Return the function from the text of an unchanged field, which is JSON, to the key of its value.

    Only the types any, integer and number have numbers: the texts "007" and "7" of type string are two values. JSON
    null and the empty text always stand for a missing value; of type json only null does.
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
    """Return the place of each protected attribute declared as ordered, with ``t``, and whether a text has a rank."""
    return [
        (policy.unchanged_fields.index(attribute), _comparable(attribute, policy.missing_values, released))
        for attribute in policy.protected
        if policy.t is not None and attribute.distance == "ordered"
    ]


def _comparable(attribute: Attribute, missing_values: Collection[str], released: Form) -> Callable[[str], bool]:
    """Categories must be those of the order, and other values numbers. A missing value always has a place."""
    read = key_reader(attribute.type, missing_values, released)
    text_key = text_key_reader(attribute, missing_values, released)
    order = {text_key(str(item)) for item in attribute.order}

    def is_comparable(text: str) -> bool:
        key = read(text)
        return key == MISSING or (key in order if order else is_number(key))

    return is_comparable


def is_number(key: str) -> bool:
    """Whether a key stands for a number."""
    return key.startswith(_NUMBER)


def number_of(key: str) -> Decimal:
    """Return the exact number of a key. Comparisons of it are exact; sums need not be."""
    digits, _, power = key.removeprefix(_NUMBER).partition("e")
    return Decimal(f"{digits}e{max(min(int(power or 0), _LARGEST_POWER), -_LARGEST_POWER)}")


def _key_of_document(value: object) -> str:
    """Return the key of a JSON document: members in no order, numbers by their value, and texts as other texts."""
    if isinstance(value, JsonObject):
        members = (f"{_key_of_document(name)}:{_key_of_document(item)}" for name, item in value)
        return "{" + ",".join(sorted(members)) + "}"
    if is_array(value):
        return "[" + ",".join(map(_key_of_document, value)) + "]"
    if isinstance(value, JsonNumber):
        return _key_of_text(value, has_numbers=True)
    return json.dumps(_folded(value)) if is_text(value) else repr(value)


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


_WITH_NUMBERS: frozenset[FieldType] = frozenset({"any", "integer", "number"})
"""Types of which a text of digits is a number."""
_INTEGER_LETTERS = frozenset("0123456789+-")
_DECIMAL_LETTERS = _INTEGER_LETTERS | frozenset(".eE")
"""Of these letters, `int` and `float` read what the judge takes for a number, and nothing else."""
UnchangedReader: TypeAlias = Callable[[object], str | None]
FIELD_SEPARATOR = "\x00"
"""Separates the texts of unchanged fields. JSON text holds no raw NUL, so no field contains it."""

_MOST_REMEMBERED = 4096
_TEXTS_OF_PASS = 1 << 16
_TEXT_END = b"\xff"  # no byte of UTF-8


class Texts(Sequence[str]):
    """Texts that take 8 bytes each, and their own bytes unless one of the last few thousand different ones is equal."""

    __slots__ = ("_bytes", "_read", "_remembered", "_starts")

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._bytes, self._starts = bytearray(), array("q")
        self._remembered: dict[str, int] = {}
        self._read: dict[int, str] = {}
        for text in texts:
            self.append(text)

    def append(self, text: str) -> None:
        """Add a text after the others."""
        start = self._remembered.get(text)
        if start is None:
            if len(self._remembered) == _MOST_REMEMBERED:
                self._remembered.clear()
            start = self._remembered[text] = len(self._bytes)
            self._bytes += text.encode(errors="surrogatepass") + _TEXT_END
        self._starts.append(start)

    def extend(self, texts: Iterable[str]) -> None:
        """Add texts after the others."""
        remembered, starts = self._remembered.get, self._starts.append
        for text in texts:
            start = remembered(text)
            if start is None:
                self.append(text)
            else:
                starts(start)

    def distinct(self, places: Int64Vector | Int32Vector) -> tuple[Int64Vector, Int32Vector]:
        """Return some of these places, with every text that is among them, and which of them each place equals."""
        every = np.frombuffer(self._starts, np.int64)
        few = every[places]
        few.sort()  # in place, as `numpy.unique` does not: large files need the memory
        few = few[np.concatenate((few[:1] >= 0, few[1:] != few[:-1]))]
        codes, first = np.empty(len(places), np.int32), np.empty(len(few), np.int64)
        for start in range(0, len(places), _TEXTS_OF_PASS):
            part = slice(start, start + _TEXTS_OF_PASS)
            codes[part] = np.searchsorted(few, every[places[part]])
        first[codes] = places  # any place of a text will do
        return first, codes

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[str]:
        return map(self._text, self._starts)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self._text(start) for start in self._starts[place]]
        return self._text(self._starts[place])

    def _text(self, start: int) -> str:
        text = self._read.get(start)
        if text is None:
            if len(self._read) == _MOST_REMEMBERED:
                self._read.clear()
            end = self._bytes.index(_TEXT_END, start)
            text = self._read[start] = self._bytes[start:end].decode(errors="surrogatepass")
        return text


@dataclass(frozen=True, slots=True)
class ChosenTexts(Collection[str]):
    """The texts at some places of many. They are read again at each use, so only their places are kept."""

    every: Sequence[str]
    places: Int64Vector

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[str]:
        return map(self.every.__getitem__, self.places.tolist())

    def __contains__(self, text: object) -> bool:
        return any(text == one for one in self)


def passes_of(count: int, text: Callable[[int], str]) -> Iterator[Int64Vector]:
    """Yield the places of so many texts in parts, equal texts in the same one; only a part needs to be in memory."""
    number = count // _TEXTS_OF_PASS + 1
    parts = np.fromiter((hash(text(place)) % number for place in range(count)), np.int32, count)
    yield from (np.flatnonzero(parts == one) for one in range(number))


def text_codes(count: int, text: Callable[[int], str]) -> Int64Vector:
    """Return codes from 0 on, equal for equal texts; ``text``: the text of a place. Cost: O(n) time, 12 bytes each."""
    codes, first = np.zeros(count, np.int64), 0
    for places in passes_of(count, text):
        known: dict[str, int] = {}
        codes[places] = [known.setdefault(text(place), len(known)) + first for place in places.tolist()]
        first += len(known)
    return codes


def field_codes(texts: Texts, places: Int64Vector, field: int | None = None) -> Int64Vector:
    """Return such codes of the texts at some places, or of one of their fields. Cost: O(n log n), 40 bytes each."""
    if not len(places):
        return np.zeros(0, np.int64)
    few, of_few = texts.distinct(places)

    def text(place: int) -> str:
        found = texts[int(few[place])]
        return found if field is None else found.split(FIELD_SEPARATOR)[field]

    return text_codes(len(few), text)[of_few]


def joint_codes(
    texts: Texts, places: Int64Vector | Int32Vector, others: Texts, other_places: Int64Vector
) -> tuple[Int32Vector, Int32Vector]:
    """Return codes of the texts at some places, and of other texts. Cost: as of `field_codes`."""
    (few, of_few), (other_few, of_others) = texts.distinct(places), others.distinct(other_places)
    count = len(few)

    def text(place: int) -> str:
        return texts[int(few[place])] if place < count else others[int(other_few[place - count])]

    codes = text_codes(count + len(other_few), text).astype(np.int32)
    return codes[:count][of_few], codes[count:][of_others]


@dataclass(frozen=True, slots=True)
class UsableRecord:
    """A record that fits the policy."""

    values: tuple[float, ...]
    unchanged: str  # texts of the unchanged fields, separated by `FIELD_SEPARATOR`
    subject: str | None  # normalised; None if every record is a subject of its own
    category_bytes: int = 0  # of the published categories as JSON, limited together with the unchanged fields


class _ScaleColumn(NamedTuple):
    """The values of one scale, of records that follow each other."""

    values: npt.NDArray[np.float64]
    is_usable: BoolVector
    is_clipped: BoolVector
    longest: int  # most bytes of a category


class ReadColumns(NamedTuple):
    """What was read of records that follow each other."""

    is_usable: BoolVector
    values: npt.NDArray[np.float64]  # (n, width); zeros where the record is unusable
    unchanged: Sequence[str]  # as of `UsableRecord`; any text where the record is unusable
    subjects: Int64Vector | Sequence[str] | None  # as of `UsableRecord`, or whole numbers, of the usable ones


class Tallies:
    """What is counted of usable records while they are read. It keeps 8 bytes for each identifier of a record.

    ``clipped``: values outside their bounds, by attribute. ``copies``: records in which an unchanged field and an
    identifier have the same value. ``people``: of each identifier other than the subject the hashes of its values, 0
    for a missing one. Two values may have one hash and count as one person; of a million values, two do with a chance
    below one in ten million.
    """

    def __init__(self, policy: Policy) -> None:
        identifiers = [a for a in policy.attributes if a.role is Role.IDENTIFIER]
        self.clipped: Counter[str] = Counter()
        self.copies: Counter[tuple[str, str]] = Counter()
        self.people = {a.name: array("q") for a in identifiers if not a.subject}
        self._people = list(self.people.items())
        self._pairs = [(a.name, one.name) for a in policy.unchanged_fields for one in identifiers]
        self._missing = frozenset(policy.missing_values) | {""}
        self._clipped: list[str] = []  # of the record that is being read

    def begin(self) -> None:
        """Begin with another record."""
        self._clipped.clear()

    @property
    def has_clipped(self) -> bool:
        """Whether a value of the record that was begun is outside its bounds."""
        return bool(self._clipped)

    def clip(self, name: str) -> None:
        """Note a value that is outside the bounds of its attribute."""
        self._clipped.append(name)

    def add(self, record: Record) -> None:
        """Count the record that was begun: it is usable."""
        if self._clipped:
            self.clipped.update(self._clipped)
        for pair in self._pairs:
            value = record[pair[0]]
            if value == record[pair[1]] and value is not None and value != "":
                self.copies[pair] += 1
        for name, hashes in self._people:
            value = record[name]
            text = "" if value is None else str(value).strip()
            hashes.append(0 if text in self._missing else hash(text))

    def add_columns(self, cells: Mapping[str, Sequence[str]], is_usable: BoolVector, *, form: Form) -> None:
        """Count usable records by their columns; what is clipped of them is counted by the caller."""
        chosen = is_usable.tolist()
        for pair in self._pairs:
            for one, other in zip(*(compress(cells[name], chosen) for name in pair), strict=True):
                # Two scalars without escapes are equal texts if and only if they are equal but for quotes.
                if one.strip('"') == other.strip('"') and _are_equal(one, other, form):
                    self.copies[pair] += 1
        for name, hashes in self._people:
            own = compress(cells[name], chosen)
            values: Iterable[object] = own if form == "csv" else map(scalar_of, own)
            texts = ("" if value is None else str(value).strip() for value in values)
            hashes.extend(0 if text in self._missing else hash(text) for text in texts)


def _are_equal(one: str, other: str, form: Form) -> bool:
    value = scalar_of(one) if form == "jsonl" else one
    return value == (scalar_of(other) if form == "jsonl" else other) and value is not None and value != ""


def _with_decimals(policy: Policy, readers: Sequence[tuple[str, ValueReader]]) -> list[tuple[str, ValueReader]]:
    """Let the readers of numbers take the texts of decimals, as rows of Parquet have them."""

    def wrapped(read: ValueReader) -> ValueReader:
        return lambda value: read(JsonNumber(value) if is_text(value) and decimal_number(value) is not None else value)

    amounts = {a.name for a in policy.clustered if JUDGED_SCALES[a.scale].is_amount}
    return [(name, wrapped(read) if name in amounts else read) for name, read in readers]


class RecordReader:
    """Reads records of an original into what a release of them would show; it collects categories by attribute."""

    def __init__(
        self,
        policy: Policy,
        original: Form,
        released: Form,
        *,
        is_parquet: bool = False,
        categories: Mapping[str, Categories] | None = None,
    ) -> None:
        self._structure = MessageStructure(policy, original)
        self._refuses_headers = original == "jsonl" and not is_parquet
        self._form, self._clustered, self._missing_values = original, policy.clustered, frozenset(policy.missing_values)
        self._has_missing_numbers = any(decimal_number(text) is not None for text in policy.missing_values)
        self._names = {attribute.name for attribute in policy.value_attributes}
        self._optional = {a.name for a in policy.value_attributes if original == "jsonl" and _may_be_absent(a)}
        self._required = self._names - self._optional
        self._from_envelope = [(attribute.name, str(attribute.source)) for attribute in policy.envelope_attributes]
        self._refuses_undeclared = policy.undeclared == "quarantine"
        # Faust adds the name of its model to every record.
        self._ignored = {"__faust", *policy.skip} - self._names if original == "jsonl" else {*policy.skip} - self._names
        placed = policy.clustered if _PLACEHOLDER not in policy.missing_values else ()
        subjects = () if policy.subject is None else (policy.subject,)
        is_debezium = policy.unwrap == "debezium"
        self._no_placeholder = [a.name for a in (*placed, *policy.unchanged_fields, *subjects) if is_debezium]
        sign = DecimalSign(policy.csv.decimal if original == "csv" else ".")
        # Steering attributes are not published, but a record without a usable one does not fit the policy.
        self._known = [_categories_of(a, (categories or {}).get(a.name)) for a in policy.clustered]
        self.tallies = Tallies(policy)
        self._quasi = [
            (
                a.name,
                value_reader(
                    *(a, source_form(a, original), sign, policy.missing_values, categories),
                    on_clip=partial(self.tallies.clip, a.name),
                ),
            )
            for a, categories in zip(policy.clustered, self._known, strict=True)
        ]
        self._quasi = _with_decimals(policy, self._quasi) if is_parquet else self._quasi
        self._width, self._has_categories = len(policy.quasi_identifiers), any(self._known)
        released_sign = DecimalSign(policy.csv_output.decimal if released == "csv" else ".")
        self._unchanged = [
            (
                a.name,
                document_reader(source_form(a, original), released, a.max_bytes)
                if a.type == "json"
                else _without_missing(
                    unchanged_reader(a.type, source_form(a, original), released, sign, released_sign),
                    *(a.type, source_form(a, original), policy.missing_values),
                ),
            )
            for a in policy.unchanged_fields
        ]
        self._comparable = comparable_fields(policy, released)
        self._subject, self._sign = policy.subject, sign
        self._no_subjects, self._no_numbers = _missing_subjects(policy)
        encoding = policy.csv_output.encoding
        # Only CSV has other encodings than those of Unicode.
        self._encoding = encoding if released == "csv" and not encoding.startswith("utf-") else None

    def content(self, message: Record | None) -> Record | Dropped | None:
        """Return the fields of a message by the names of their attributes, why it is dropped, or None."""
        return self._structure.content(message)

    def read(self, record: Record | None, envelope: Record) -> UsableRecord | None:
        """Read the fields of one record; None if it is unusable."""
        if record is None or not record.keys() >= self._required:
            return None
        if self._refuses_headers and self._structure.is_header(record):
            return None
        if any(record.get(name) == _PLACEHOLDER for name in self._no_placeholder):
            return None
        has_more = self._optional or len(record) != len(self._names)
        if self._refuses_undeclared and has_more and not record.keys() <= self._names | self._ignored:
            return None
        if self._from_envelope:
            # A field of the value with the name of such an attribute is undeclared.
            if not all(source in envelope for _, source in self._from_envelope):
                return None
            record = {**record, **{name: envelope[source] for name, source in self._from_envelope}}
        return self._usable(record)

    def _usable(self, record: Record) -> UsableRecord | None:
        if self._optional:
            record = {**dict.fromkeys(self._optional, ABSENT), **record}
        self.tallies.begin()
        values = [value for name, read in self._quasi if (value := read(record[name])) is not None]
        unchanged = [text for name, read in self._unchanged if (text := read(record[name])) is not None]
        if len(values) < len(self._quasi) or len(unchanged) < len(self._unchanged):
            return None
        if self._encoding is not None and not is_encodable("".join(unchanged), self._encoding):
            return None
        if not all(is_comparable(unchanged[place]) for place, is_comparable in self._comparable):
            return None
        subject = None if self._subject is None else self._subject_text(record[self._subject.name], self._subject)
        if self._subject is not None and subject in {None, *self._no_subjects}:
            return None
        size = self._category_bytes(values) if self._has_categories else 0
        if size is None:
            return None
        self.tallies.add(record)
        return UsableRecord(tuple(values[: self._width]), FIELD_SEPARATOR.join(unchanged), subject, size)

    # ------------------------------------------------------------ columns

    def columns_of(self, names: Sequence[str]) -> Collection[str]:
        """Return the columns that `read_columns` needs of records with these fields; none if it cannot read them."""
        is_declared = not self._refuses_undeclared or set(names) <= self._names | self._ignored
        if not self._structure.is_plain or self._from_envelope or self._encoding is not None:
            return ()
        return self._names if is_declared and set(names) >= self._names else ()

    def read_columns(self, cells: Mapping[str, Sequence[str]], fits: Callable[[int], bool]) -> ReadColumns | None:
        """Read records as `read` does; None if one of them may be a header that was read as a record, or too large.

        ``fits``: whether records are small enough whose unchanged fields and categories have so many characters.
        """
        if self._refuses_headers and all(f'"{name}"' in cells[name] for name in self._names):
            return None
        count = len(next(iter(cells.values())))
        scales = [self._scale_column(place, cells[name]) for place, (name, _) in enumerate(self._quasi)]
        unchanged = [self._unchanged_column(place, cells[name]) for place, (name, _) in enumerate(self._unchanged)]
        if not fits(sum(one.longest for one in scales) + sum(max(map(len, texts)) for texts in unchanged)):
            return None
        is_usable = np.ones(count, np.bool_)
        for one in scales:
            is_usable &= one.is_usable
        for texts in unchanged:
            is_usable &= True if all(texts) else np.array(list(map(bool, texts)))
        subjects = None
        if self._subject is not None:
            is_usable, subjects = self._subjects(self._subject, cells[self._subject.name], is_usable)
        self.tallies.add_columns(cells, is_usable, form=self._form)
        for (name, _), one in zip(self._quasi, scales, strict=True):
            if number := int(np.count_nonzero(one.is_clipped & is_usable)):
                self.tallies.clipped[name] += number
        values = np.array([one.values for one in scales[: self._width]]).reshape(self._width, count).T
        values[~is_usable] = 0.0
        rows = unchanged[0] if len(unchanged) == 1 else list(map(FIELD_SEPARATOR.join, zip(*unchanged, strict=True)))
        return ReadColumns(is_usable, values, rows or [""] * count, subjects)

    def _unchanged_column(self, place: int, cells: Sequence[str]) -> list[str]:
        """Return the texts of an unchanged field, empty where it makes the record unusable: no such text is empty."""
        texts = {cell: self._unchanged[place][1](self._value(cell)) for cell in set(cells)}
        for field, is_comparable in self._comparable:
            if field == place:
                texts = {cell: text and (text if is_comparable(text) else None) for cell, text in texts.items()}
        return [texts[cell] or "" for cell in cells]

    def _scale_column(self, place: int, cells: Sequence[str]) -> _ScaleColumn:
        found = self._numbers(self._clustered[place], cells)
        return self._scale_values(self._quasi[place][1], self._known[place], cells) if found is None else found

    def _value(self, cell: str) -> object:
        return scalar_of(cell) if self._form == "jsonl" else cell

    def _numbers(self, attribute: Attribute, cells: Sequence[str]) -> _ScaleColumn | None:
        """Read the numbers of a column at once; None if the scale, a missing value or a text is another matter."""
        may_be_missing, missing = attribute.may_be_missing, "null" if self._form == "jsonl" else ""
        if attribute.scale != Scale.NUMERIC or self._sign.is_comma or self._has_missing_numbers or attribute.written:
            return None
        if self._form == "csv" and not set("".join(cells)) <= _DECIMAL_LETTERS:
            return None
        try:
            found = np.array([float(cell) for cell in cells])
        except ValueError:
            if not may_be_missing or (missing not in self._missing_values and self._form == "csv"):
                return None
            try:
                found = np.array([math.nan if cell == missing else float(cell) for cell in cells])
            except ValueError:
                return None
        is_usable = np.isfinite(found) | np.isnan(found)
        if attribute.integer:
            is_usable &= np.isnan(found) | (found == np.floor(found))
        low, high = attribute.limits
        is_clipped = (found < low) | (found > high)
        if not attribute.clip:
            is_usable &= ~is_clipped
        return _ScaleColumn(np.where(found < low, low, np.where(found > high, high, found)), is_usable, is_clipped, 0)

    def _scale_values(self, read: ValueReader, known: Categories | None, cells: Sequence[str]) -> _ScaleColumn:
        """Read each different text of a column once."""
        found: dict[str, float | None] = {}
        clipped: set[str] = set()
        longest = 0
        for cell in set(cells):
            self.tallies.begin()
            value = read(self._value(cell))
            if self.tallies.has_clipped:
                clipped.add(cell)
            if known is not None and value is not None and not math.isnan(value):
                size = len(known.json_text(value).encode())
                value = value if size <= MAX_CATEGORY_BYTES else None
                longest = max(longest, size)
            found[cell] = value
        values = np.array([found[cell] for cell in cells], np.float64)
        is_usable = np.ones(len(cells), np.bool_)
        if None in found.values():
            is_usable = np.array([found[cell] is not None for cell in cells])
        is_clipped = np.array([cell in clipped for cell in cells]) if clipped else np.zeros(len(cells), np.bool_)
        return _ScaleColumn(values, is_usable, is_clipped, longest)

    def _subjects(
        self, subject: Attribute, cells: Sequence[str], is_usable: BoolVector
    ) -> tuple[BoolVector, Int64Vector | Sequence[str]]:
        """Return which of the usable records have a subject, and their subjects."""
        if subject.type in _WITH_NUMBERS and (self._form == "jsonl" or set("".join(cells)) <= _INTEGER_LETTERS):
            try:
                numbers = np.array(list(map(int, cells)), np.int64)
            except (ValueError, OverflowError):
                pass
            else:
                is_usable = is_usable & ~np.isin(numbers, self._no_numbers)
                return is_usable, numbers[is_usable]
        texts = {cell: self._subject_text(self._value(cell), subject) for cell in set(cells)}
        for cell, text in texts.items():
            if text in self._no_subjects:
                texts[cell] = None
        if None in texts.values():
            is_usable = is_usable & np.array([texts[cell] is not None for cell in cells])
        return is_usable, [texts[cell] or "" for cell in compress(cells, is_usable.tolist())]

    def _category_bytes(self, values: list[float]) -> int | None:
        """Return the bytes of the published categories as JSON; None if one is too long or cannot be encoded."""
        texts = [
            "" if known is None or math.isnan(value) else known.json_text(value)
            for known, value in zip(self._known, values, strict=True)
        ]
        lengths = [len(text.encode()) for text in texts]
        if max(lengths) > MAX_CATEGORY_BYTES:
            return None
        if self._encoding is not None and not is_encodable("".join(texts[: self._width]), self._encoding):
            return None
        return sum(lengths[: self._width])

    def _subject_text(self, value: object, subject: Attribute) -> str | None:
        if subject.type != "string" and isinstance(value, str) and self._sign.is_comma:
            text = value.replace(",", ".")
            value = text if decimal_number(text.strip()) is not None else value
        return _spelt_subject(value, subject)


def _categories_of(attribute: Attribute, given: Categories | None) -> Categories | None:
    """Return the given categories of an attribute, or new ones; None for a scale without categories."""
    if not JUDGED_SCALES[attribute.scale].has_categories:
        return None
    return given or Categories(are_leaves=attribute.has_groups)


def _missing_subjects(policy: Policy) -> tuple[set[str | None], Int64Vector]:
    """Return the missing texts as subjects are spelt, and those that are numbers."""
    if policy.subject is None:
        return set(), np.zeros(0, np.int64)
    texts = {_spelt_subject(text, policy.subject) for text in policy.missing_values}
    numbers = [whole_subject(text or "") for text in texts]
    return texts, np.array([number for number in numbers if number is not None], np.int64)


def _may_be_absent(attribute: Attribute) -> bool:
    return attribute.may_be_missing and attribute.role in {Role.QUASI_IDENTIFIER, Role.STEERING}


def source_form(attribute: Attribute, original: Form) -> Form:
    """Return how an attribute is written: keys and headers are texts, as cells are; timestamps are JSON numbers."""
    match attribute.source.part:
        case MessagePart.VALUE:
            return original
        case MessagePart.TIMESTAMP:
            return "jsonl"
        case _:
            return "csv"


def _spelt_subject(value: object, subject: Attribute) -> str | None:
    """Return one text per subject, with the steps of ``normalize``; None if the value cannot be a subject."""
    if is_text(value):
        if subject.normalize:
            value = one_spelling(value, subject.normalize)
        elif has_long_mark_sequence(value):
            return None
    return _normalised_subject(value, subject.type)


def _normalised_subject(value: object, kind: FieldType) -> str | None:
    """Return one text per subject, whatever the spelling; None if the value cannot be a subject of this type."""
    if isinstance(value, bool):
        return str(value).lower() if kind in {"boolean", "any"} else None
    is_written = isinstance(value, str) and is_encodable(value)
    if not is_written or (isinstance(value, JsonNumber) and canonical_decimal(value) is None):
        return None
    text = unicodedata.normalize("NFC", str(value)).strip()
    if kind == "string":
        return None if isinstance(value, JsonNumber) else text or None
    if kind == "boolean":
        return text.lower() if text.lower() in {"true", "false"} else None
    number = _exact(text)
    if number is None:
        return text or None if kind == "any" else None
    return None if kind == "integer" and number[1] < 0 else f"{number[0]}e{number[1]}"


def whole_subject(text: str) -> int | None:
    """Return the whole number of 64 bits that the text of a subject stands for; None for any other text."""
    digits, _, power = text.partition("e")
    if not digits.removeprefix("-").isdecimal() or not digits.isascii() or power not in _WHOLE_POWERS:
        return None
    number = int(digits) * 10 ** int(power) if len(digits) <= _MOST_DIGITS else 1 << 63
    return number if -(1 << 63) <= number < 1 << 63 else None


def subject_of_number(number: int) -> str:
    """Return the text of a subject that is a whole number."""
    digits = str(number)
    short = digits.rstrip("0")
    return f"{short}e{len(digits) - len(short)}" if number else "0e0"


def merged_subject(text: str, kind: FieldType) -> str | None:
    """Return what subjects of one person have in common; None if nothing is left.

    Every step of ``normalize`` is applied; then punctuation and blanks count only between two digits, and zeros before
    the first digit do not.
    """
    found = _normalised_subject(one_spelling(text, EVERY_STEP), kind)
    if found is None or (kind == "any" and _exact(found) is not None):
        return found
    if not found.isalnum():
        found = _SIGNS.sub(_between_digits, found)
    return _LEADING_ZEROS.sub("", found) if "0" in found else found


_MOST_DIGITS = 20  # of a whole number of 64 bits, with its sign
_WHOLE_POWERS = frozenset(map(str, range(_MOST_DIGITS)))
_SIGNS = re.compile(r"[\W_]+")
_LEADING_ZEROS = re.compile(r"(?<![0-9-])0+(?=[0-9])")


def _between_digits(found: re.Match[str]) -> str:
    text = found.string
    before, after = text[max(found.start() - 1, 0) : found.start()], text[found.end() : found.end() + 1]
    return "-" if before.isdigit() and after.isdigit() else ""


def _exact(text: str) -> tuple[str, int] | None:
    """Return a decimal number as digits without trailing zeros and a power of ten; None if the text is no number."""
    if decimal_number(text) is None:
        return None
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation:
        return None
    integer = "".join(map(str, digits)).lstrip("0")
    short = integer.rstrip("0")
    if not short:
        return "0", 0
    return "-" * sign + short, int(exponent) + len(integer) - len(short)


def unchanged_reader(
    kind: FieldType, original: Form, released: Form, sign: DecimalSign = POINT, released_sign: DecimalSign = POINT
) -> UnchangedReader:
    """Return the function from an unchanged field to the JSON text by which it is compared; None for another type.

    Where the type admits all of them, 1, "1" and true are three values. 1e2, 100.0 and 100 are one value.
    """
    if original == "csv":
        return lambda cell: _cell(kind, str(cell), sign)
    if released == "csv" and kind in {"string", "any"}:
        return lambda value: _as_cell(_field(kind, value), value, released_sign)
    return lambda value: _field(kind, value)


def _without_missing(
    read: UnchangedReader, kind: FieldType, original: Form, missing_values: Collection[str]
) -> UnchangedReader:
    """Return a reader to which texts that mean a missing value are null, in fields of a type that has no texts."""
    missing = frozenset(missing_values)
    if kind not in {"integer", "number", "boolean"} or missing <= {""}:
        return read
    if original == "csv":
        return lambda cell: read("" if str(cell).strip(BLANKS) in missing else cell)
    return lambda value: read(None if is_text(value) and value in missing else value)


def released_reader(
    kind: FieldType, original: Form, released: Form, released_sign: DecimalSign = POINT
) -> UnchangedReader:
    """Return the same for released rows: its texts equal those of `unchanged_reader` where the values are equal."""
    if original == "jsonl" and released == "csv" and kind == "any":
        return lambda cell: json_text(str(cell))
    return unchanged_reader(kind, released, released, released_sign, released_sign)


def _field(kind: FieldType, value: object) -> str | None:
    """Return the text of a JSON value; None for a value of another type than the field's."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return json_text(value) if kind in {"boolean", "any"} else None
    if isinstance(value, JsonNumber):
        text = canonical_decimal(value) if kind in {"integer", "number", "any"} else None
        return text if kind != "integer" or (text and INTEGER.fullmatch(text)) else None
    return json_text(value) if kind in {"string", "any"} and isinstance(value, str) and is_encodable(value) else None


def _as_cell(text: str | None, value: object, released_sign: DecimalSign) -> str | None:
    """Return the text of the cell that a JSON value becomes; null becomes the empty cell."""
    if text is None or text == "null":
        return text and '""'
    if text.startswith('"'):
        return text
    return json_text(released_sign.from_point(text) if isinstance(value, JsonNumber) else text)


def _cell(kind: FieldType, cell: str, sign: DecimalSign) -> str | None:
    if kind in {"string", "any"}:
        return json_text(cell)
    text = cell.strip(BLANKS)
    if not text:
        return "null"
    if kind == "boolean":
        return text.lower() if text.lower() in {"true", "false"} else None
    number = sign.to_point(text)
    found = None if decimal_number(number) is None else canonical_decimal(number)
    return found if kind == "number" or (found and INTEGER.fullmatch(found)) else None
