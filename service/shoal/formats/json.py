"""`JsonDecoder`: decode JSON messages with a typed decoder that is generated from the policy.

Split streams into lines and batches as the bytes arrive, and read JSON lines.

A file is never read as a whole, and a batch is passed on without waiting until it is full.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, BinaryIO, TypeVar, get_args

import msgspec
import numpy as np

from shoal.arrays import BoolVector
from shoal.errors import InputError, ParameterError
from shoal.formats.block import Block, DropReason, Reason
from shoal.formats.block_builder import BlockBuilder, ParsedRecords, reject_unless, to_mask
from shoal.formats.columns import (
    MISMATCH,
    ScaleColumn,
    ScaleReader,
    is_clustered,
    json_type,
    scale_reader,
    stack_columns,
)
from shoal.formats.encoder import JsonEncoder, RecordEncoder
from shoal.formats.fields import RecordField, RecordStruct, has_nested_messages, path_of
from shoal.formats.json_text import canonical_json, prescreen, validate_strictly
from shoal.formats.messages import Columns, Content, Envelope, EnvelopeReader, Unwrapper
from shoal.policy import Attribute, FieldType, Policy, Role

__all__ = [
    "BATCH_SIZE",
    "DEFAULT_MAX_BYTES",
    "JsonDecoder",
    "JsonLinesReader",
    "StoppedReading",
    "Utf8Stream",
    "read_batches",
    "read_lines",
]

DEFAULT_MAX_BYTES = 900_000

_DECODE_ERRORS = (msgspec.MsgspecError, ValueError, TypeError, RecursionError)
"""All errors that a typed decoder raises. They contain attribute values, so that none may leave this module."""

_PASSTHROUGH_TYPES: dict[FieldType, Any] = {
    "string": str | None,
    "integer": int | float | None,  # 42.0 is an integer in JSON; fractions are rejected later
    "number": int | float | None,
    "boolean": bool | None,
    "any": str | int | float | bool | None,
    "json": msgspec.Raw,
}
_check_syntax = msgspec.json.Decoder(msgspec.Raw).decode


class JsonDecoder:
    """Decodes JSON messages. Each value must be one object with every field that the policy declares.

    Fields may be inside objects of the record, and the record inside an envelope (``unwrap``).

    An attribute with ``from: key``, ``header:NAME`` or ``timestamp`` is read from the envelope of the message: its key,
    its headers and its timestamp. A field of the object that has the name of such an attribute is undeclared. A field
    ``__faust`` is ignored unless the policy declares it, because each message of a Faust model has this field.

    Parameters
    ----------
    policy : Policy
    hash_key : bytes, optional
        Key of the subject hash, up to 64 bytes; by default one random key per process.
    max_bytes : int
        Largest length of a message value, and of its encoded unchanged fields (bytes).
    encoder : RecordEncoder, optional
        Encodes the unchanged fields in the output format; by default a `JsonEncoder`.
    with_columns : bool
        Whether blocks also contain the unchanged fields as typed columns.
    refuses_headers : bool
        Whether a record is invalid in which each of two or more declared fields has its own name as its value: the
        header of a CSV file that was read as a record.

    Attributes
    ----------
    has_envelope_attributes : bool
        Whether the policy has attributes that are read from envelopes. `decode` then needs the envelopes.

    Notes
    -----
    Numbers with a point or an exponent are read as float64, integers exactly. Of fields that are ignored, only the
    syntax is checked.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        hash_key: bytes | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
        encoder: RecordEncoder | None = None,
        with_columns: bool = False,
        refuses_headers: bool = True,
    ) -> None:
        encoder = JsonEncoder(policy) if encoder is None else encoder
        self._unwrap, self._has_envelopes = Unwrapper(policy), policy.unwrap is not None
        self._builder = BlockBuilder(policy, encoder, hash_key, max_bytes, with_columns=with_columns)
        self._max_bytes = max_bytes
        self._struct = RecordStruct(
            [RecordField(path_of(a), _field_type(a), a.may_be_missing) for a in policy.value_attributes],
            rejects_undeclared=policy.undeclared == "quarantine",
        )
        self._named_fields = _named_fields(policy, self._struct.getters) if refuses_headers else []
        self._checks_nested_keys = has_nested_messages(policy)
        self._getters = dict(zip((a.name for a in policy.value_attributes), self._struct.getters, strict=True))
        self._readers = [scale_reader(attribute, policy) for attribute in policy.clustered]
        self._unchanged_fields = [attribute.name for attribute in policy.unchanged_fields]
        self._integers = [
            number for number, attribute in enumerate(policy.unchanged_fields) if attribute.type == "integer"
        ]
        self._json = [
            number
            for number, attribute in enumerate(policy.unchanged_fields)
            if attribute.type == "json" and attribute.name in self._getters
        ]
        self._subject = None if policy.subject is None else policy.subject.name
        self._envelope_reader = EnvelopeReader(policy.envelope_attributes, max_bytes)
        self.has_envelope_attributes = bool(policy.envelope_attributes)

    def decode(self, messages: Sequence[bytes | None], envelopes: Sequence[Envelope] | None = None) -> Block:
        """Decode messages.

        Parameters
        ----------
        messages : sequence of bytes or None
            Message values; None for a message without a value. Decoding is fastest with about 500 messages per call:
            the decoded objects of more than about 1000 messages do not fit the processor's cache.
        envelopes : sequence of Envelope, optional
            One per message. Required if the policy reads keys, headers or timestamps, else ignored.

        Returns
        -------
        Block
            The accepted records, and the index and reason of each rejected message. Reason ``undecodable``: the value
            is missing, is not JSON or is nested more than 64 levels deep, or a key or header that is read is not UTF-8.
            ``too_large``: the value, its unchanged fields, or a key or header that is read is longer than
            ``max_bytes``, or a category is longer than its limit. ``invalid``: the message does not fit the policy. If
            both the value and the envelope are faulty, the reason is that of the value.

        Raises
        ------
        ParameterError
            The policy has envelope attributes, and ``envelopes`` is None.

        Notes
        -----
        No content of a message raises an error. Cost: about half the time of `json.loads`.
        """
        if self.has_envelope_attributes and envelopes is None:
            raise ParameterError("the policy reads keys, headers or timestamps: pass envelopes with the values")
        rejected: list[tuple[int, Reason]] = []
        dropped: list[tuple[int, DropReason]] = []
        indexes, records = self._decode_records(messages, rejected, dropped)
        if headers := self._find_headers(records):
            rejected += [(indexes[i], Reason.INVALID) for i in headers]
            indexes, records = _remove(indexes, headers), _remove(records, headers)
        columns: Columns = {}
        if self.has_envelope_attributes and envelopes is not None:
            columns, envelope_faults = self._envelope_reader.read([envelopes[i] for i in indexes])
            if envelope_faults:
                rejected += [(indexes[i], reason) for i, reason in envelope_faults.items()]
                indexes, records = _remove(indexes, envelope_faults), _remove(records, envelope_faults)
                columns = {name: _remove(column, envelope_faults) for name, column in columns.items()}
        block = self._builder.build(self._parsed_records(indexes, records, columns, rejected), rejected)
        return replace(block, dropped=sorted(dropped)) if dropped else block

    def build(self, parsed: ParsedRecords) -> Block:
        """Return the block of records whose fields another format has given types, as if they had been messages."""
        return self._builder.build(parsed, [])

    def _decode_records(
        self,
        messages: Sequence[bytes | None],
        rejected: list[tuple[int, Reason]],
        dropped: list[tuple[int, DropReason]],
    ) -> tuple[Sequence[int], Sequence[Any]]:
        """Return the indexes and the typed records of the messages whose values have the types of the policy."""
        indexes, payloads = self._reject_by_size(messages, rejected, dropped)
        if self._has_envelopes:
            indexes, payloads = self._unwrap_each(indexes, payloads, rejected, dropped)
        records, failed = _decode_each(self._struct.decode, payloads)
        if failed:
            rejected += [(indexes[i], _rejection_reason(payloads[i])) for i in failed]
            indexes, payloads = _remove(indexes, failed), _remove(payloads, failed)
        if self._has_envelopes:  # then the whole messages are checked already
            return indexes, records
        invalid = []
        for i in prescreen(payloads, b"".join(payloads), self._struct.count_keys(records)):
            if reason := validate_strictly(payloads[i], checks_nested_keys=self._checks_nested_keys):
                invalid.append(i)
                rejected.append((indexes[i], reason))
        if invalid:
            indexes, records = _remove(indexes, invalid), _remove(records, invalid)
        return indexes, records

    def _find_headers(self, records: Sequence[Any]) -> list[int]:
        """Return the indexes of records in which each field has its own name as its value. Cost: 40 ns per record."""
        if not self._named_fields:
            return []
        get_first, first = self._named_fields[0]
        if first not in map(get_first, records):
            return []
        return [i for i, record in enumerate(records) if all(_is_text(get(record), n) for get, n in self._named_fields)]

    def _unwrap_each(
        self,
        indexes: Sequence[int],
        payloads: Sequence[bytes],
        rejected: list[tuple[int, Reason]],
        dropped: list[tuple[int, DropReason]],
    ) -> tuple[Sequence[int], Sequence[bytes]]:
        """Return the indexes of the messages that contain a record, and the records."""
        kept, records = [], []
        for index, record in zip(indexes, map(self._unwrap, payloads), strict=True):
            if isinstance(record, bytes):
                kept.append(index)
                records.append(record)
            else:
                _leave_out(index, record, rejected, dropped)
        return kept, records

    def _reject_by_size(
        self,
        messages: Sequence[bytes | None],
        rejected: list[tuple[int, Reason]],
        dropped: list[tuple[int, DropReason]],
    ) -> tuple[Sequence[int], Sequence[bytes]]:
        """Leave out messages without a value or with too large a value; return indexes and values of the others."""
        if None not in messages and max(map(len, messages), default=0) <= self._max_bytes:  # type: ignore[arg-type]
            return range(len(messages)), messages  # type: ignore[return-value]  # no None among them
        indexes, payloads = [], []
        for i, message in enumerate(messages):
            if message is None:
                _leave_out(i, self._unwrap.outcome(Content.TOMBSTONE), rejected, dropped)
            elif len(message) > self._max_bytes:
                rejected.append((i, Reason.TOO_LARGE))
            else:
                indexes.append(i)
                payloads.append(message)
        return indexes, payloads

    def _parsed_records(
        self, indexes: Sequence[int], records: Sequence[Any], columns: Columns, rejected: list[tuple[int, Reason]]
    ) -> ParsedRecords:
        """Return the columns of the decoded records that have valid unchanged fields."""
        count = len(records)

        def column(name: str) -> Iterable[Any]:
            get = self._getters.get(name)
            return columns[name] if get is None else map(get, records)

        def clustered_column(reader: ScaleReader) -> ScaleColumn:
            get = self._getters.get(reader.attribute.name)
            return reader.read_part(columns[reader.attribute.name]) if get is None else reader.read(map(get, records))

        values, categories = stack_columns(list(map(clustered_column, self._readers)), count)
        unchanged_columns = [list(column(name)) for name in self._unchanged_fields]
        is_valid = self._convert_json(unchanged_columns, count) if self._json else None
        parsed = ParsedRecords(
            index=np.array(indexes, dtype=np.int64),
            values=values,
            subjects=None if self._subject is None else list(column(self._subject)),
            unchanged_columns=unchanged_columns,
            categories=categories,
        )
        if is_valid is not None:
            parsed = reject_unless(is_valid, parsed, Reason.INVALID, rejected)
        return self._reject_fractions(parsed, rejected)

    def _convert_json(self, columns: list[list[Any]], count: int) -> BoolVector:
        """Convert the columns of type json to canonical texts; return which records have valid ones."""
        is_valid = np.ones(count, np.bool_)
        for number in self._json:
            columns[number] = list(map(_json_or_mismatch, columns[number]))
            is_valid &= to_mask((text is not MISMATCH for text in columns[number]), count)
        return is_valid

    def _reject_fractions(self, parsed: ParsedRecords, rejected: list[tuple[int, Reason]]) -> ParsedRecords:
        """Return the records without fractions in integer fields."""
        columns = [parsed.unchanged_columns[number] for number in self._integers]
        float_columns = [column for column in columns if float in set(map(type, column))]
        if not float_columns:
            return parsed
        are_integers = (all(map(_is_integer_or_null, numbers)) for numbers in zip(*float_columns, strict=True))
        return reject_unless(to_mask(are_integers, len(parsed)), parsed, Reason.INVALID, rejected)


def _field_type(attribute: Attribute) -> object:
    """Return the type that the value of an attribute must have in JSON."""
    if is_clustered(attribute):
        return json_type(attribute)
    if attribute.role is not Role.IDENTIFIER:
        return _PASSTHROUGH_TYPES[attribute.type]
    if not attribute.subject:
        return msgspec.Raw
    return str if attribute.type == "string" else Any


def _named_fields(policy: Policy, getters: Sequence[Callable[[Any], Any]]) -> list[tuple[Callable[[Any], Any], str]]:
    """Return getter and name of each declared field, texts first; none if a field cannot have its name as its value."""
    fields = list(zip(policy.value_attributes, getters, strict=True))
    types = [_field_type(attribute) for attribute, _ in fields]
    if len(fields) < 2 or not all(kind in {Any, str, msgspec.Raw} or str in get_args(kind) for kind in types):  # noqa: PLR2004
        return []
    ordered = sorted(zip(types, fields, strict=True), key=lambda one: one[0] is msgspec.Raw)
    return [(get, path_of(attribute)[-1]) for _, (attribute, get) in ordered]


def _is_text(value: object, text: str) -> bool:
    """Whether a value of a decoded record is a text, and this one."""
    if isinstance(value, msgspec.Raw):
        value = msgspec.json.decode(value) if bytes(value).startswith(b'"') else None
    return type(value) is str and value == text


def _json_or_mismatch(text: msgspec.Raw) -> object:
    try:
        return canonical_json(bytes(text))
    except ValueError:
        return MISMATCH


def _is_integer_or_null(number: float | None) -> bool:
    """Whether a value of an integer field is whole (42.0 is) or null."""
    return not isinstance(number, float) or number.is_integer()


def _decode_each(decode: Callable[[bytes], Any], payloads: Iterable[bytes]) -> tuple[list[Any], list[int]]:
    """Decode payloads. Return the decoded records, and the indexes of the payloads that cannot be decoded."""
    records: list[Any] = []
    failed: list[int] = []
    decoded = map(decode, payloads)
    while True:
        try:
            # If this raises an error, the list keeps the records so far, and the map continues with the next payload.
            records.extend(decoded)
        except _DECODE_ERRORS:
            failed.append(len(records) + len(failed))
        else:
            return records, failed


def _rejection_reason(payload: bytes) -> Reason:
    """Return why a payload could not be decoded: it is not JSON, or it does not fit the policy."""
    try:
        _check_syntax(payload)
    except _DECODE_ERRORS:
        return Reason.UNDECODABLE
    return validate_strictly(payload) or Reason.INVALID


def _leave_out(
    index: int,
    reason: Reason | DropReason,
    rejected: list[tuple[int, Reason]],
    dropped: list[tuple[int, DropReason]],
) -> None:
    """Add a message to those that are rejected or dropped."""
    if isinstance(reason, DropReason):
        dropped.append((index, reason))
    else:
        rejected.append((index, reason))


def _remove(items: Sequence[Any], indexes: Iterable[int]) -> list[Any]:
    """Return the items without those at these indexes."""
    removed = set(indexes)
    return [item for index, item in enumerate(items) if index not in removed]


BATCH_SIZE = 512
"""Maximum number of messages in a batch. The objects of about 1000 messages no longer fit the processor's cache."""

_CHUNK_BYTES = 1 << 16
_REPLACEMENT = "shoal.replacement"
codecs.register_error(_REPLACEMENT, lambda error: ("\udcff", getattr(error, "end", 1)))

Item = TypeVar("Item", bytes, list[str] | None)


class StoppedReading(Exception):  # noqa: N818 - not an error
    """Raised by a stream to stop its reader. A line or record that is incomplete is dropped."""


class JsonLinesReader:
    """The lines of a stream as messages.

    Parameters
    ----------
    stream : binary file object
        A file opened in binary mode, or a pipe. It is not closed.
    max_bytes : int
        Maximum length of a line. A longer line is cut to some bytes more, so that a decoder rejects it as too large.

    Yields
    ------
    list of bytes
        1 to 512 lines without their ends, as soon as they have arrived. Blank lines at the end of the file and a byte
        order mark at its beginning are dropped.
    """

    def __init__(self, stream: BinaryIO, *, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._stream = stream
        self._max_bytes = max_bytes

    def __iter__(self) -> Iterator[Sequence[bytes]]:
        # A line that is cut off must be too long also without a byte order mark.
        lines = read_lines(self._stream, self._max_bytes + len(codecs.BOM_UTF8))
        return read_batches(_without_byte_order_mark(lines), b"")


class Utf8Stream:
    """Converts a stream from another encoding to UTF-8.

    Bytes that cannot be decoded become the byte FF, which no UTF-8 text contains.

    Parameters
    ----------
    stream : binary file object
        Read as bytes arrive. It is not closed.
    encoding : str
        Name of a codec of the standard library.
    name : str
        Name of the stream in errors.
    """

    def __init__(self, stream: BinaryIO, encoding: str, name: str = "input") -> None:
        self._read = _reader_of(stream)
        self._encoding, self._name = encoding, name
        self._decoder = codecs.getincrementaldecoder(encoding)(_REPLACEMENT)
        self._is_at_end = False

    def read1(self, size: int) -> bytes:
        """Return at least one byte as soon as there are any, or no bytes at the end of the stream.

        Raises
        ------
        InputError
            The encoding needs a byte order mark, and the stream has none.
        """
        text = ""
        while not (text or self._is_at_end):
            chunk = self._read(size)
            self._is_at_end = not chunk
            try:
                text = self._decoder.decode(chunk, final=self._is_at_end)
            except UnicodeError:
                raise InputError(
                    f"{self._name}, line 1: no byte order mark, which {self._encoding} needs; give csv.encoding "
                    "utf-16-le or utf-16-be"
                ) from None
        return text.encode("utf-8", "surrogateescape")


def read_lines(stream: BinaryIO | Utf8Stream, max_bytes: int, line_end: bytes = b"\n") -> Iterator[list[bytes]]:
    """Yield lines without their ends as they arrive, any number at once. A longer line is cut to max_bytes + 1."""
    read = _reader_of(stream)
    rest, is_skipping = b"", False
    while chunk := read(_CHUNK_BYTES):
        if is_skipping:
            end = chunk.find(line_end)
            if end < 0:
                continue
            chunk, is_skipping = chunk[end:], False
        lines = (rest + chunk).split(line_end)
        rest = lines.pop()
        if len(rest) > max_bytes:
            rest, is_skipping = rest[: max_bytes + 1], True
        if lines:
            yield lines
    if rest:
        yield [rest]


def read_batches(parts: Iterable[Sequence[Item]], blank: Item) -> Iterator[Sequence[Item]]:
    """Yield batches of at most `BATCH_SIZE` items. Blank items at the end of the stream are dropped."""
    pending_blanks = 0
    for part in parts:
        items = _without_blank_end(part)
        if items:
            for start in range(0, pending_blanks, BATCH_SIZE):
                yield [blank] * min(BATCH_SIZE, pending_blanks - start)
            for start in range(0, len(items), BATCH_SIZE):
                yield items[start : start + BATCH_SIZE]
            pending_blanks = 0
        pending_blanks += len(part) - len(items)


def _reader_of(stream: BinaryIO | Utf8Stream) -> Callable[[int], bytes]:
    """Return the method that reads what has arrived. The stream of a followed file has no ``read1``."""
    return stream.read1 if hasattr(stream, "read1") else stream.read


def _without_byte_order_mark(parts: Iterator[list[bytes]]) -> Iterator[list[bytes]]:
    for first in parts:
        yield [first[0].removeprefix(codecs.BOM_UTF8), *first[1:]]
        yield from parts


def _without_blank_end(items: Sequence[Item]) -> Sequence[Item]:
    end = len(items)
    while end and _is_blank(items[end - 1]):
        end -= 1
    return items[:end]


def _is_blank(item: bytes | list[str] | None) -> bool:
    return not item.strip() if isinstance(item, bytes) else item == []
