"""`JsonDecoder`: decode JSON messages with a typed decoder that is generated from the policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from shoal.errors import ParameterError
from shoal.policy import Attribute, FieldType, Policy, Role
from shoal.records.block import Block, Reason
from shoal.records.block_builder import BlockBuilder, ParsedRecords, reject_unless, to_mask
from shoal.records.encoder import JsonEncoder, RecordEncoder
from shoal.records.envelope import Columns, Envelope, EnvelopeReader
from shoal.records.numerals import NumberText
from shoal.records.strict_json import prescreen, validate_strictly

__all__ = ["DEFAULT_MAX_BYTES", "JsonDecoder"]

DEFAULT_MAX_BYTES = 900_000

_FAUST_FIELD = "__faust"
"""Faust adds this field to the messages of its models. It names the model and says nothing about the person."""

_DECODE_ERRORS = (msgspec.MsgspecError, ValueError, TypeError, RecursionError)
"""All errors of a typed decode. They contain values, so that none of them may leave this module."""

_PASSTHROUGH_TYPES: dict[FieldType, Any] = {
    "string": str | None,
    "integer": int | float | None,  # 42.0 is an integer in JSON; fractions are rejected later
    "number": int | float | None,
    "boolean": bool | None,
    "any": str | int | float | bool | None,
}
_decode_any = msgspec.json.Decoder(msgspec.Raw).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class JsonDecoder:
    """Decodes JSON messages: one flat object each, with every field that the policy declares.

    An attribute with ``from: key``, ``header:NAME`` or ``timestamp`` is read from the envelope; a field of its name in
    the object counts as undeclared. A field ``__faust`` is dropped unless it is declared, because every message of a
    Faust model has it.

    Parameters
    ----------
    policy : Policy
    hash_key : bytes, optional
        Key of the subject hash, up to 64 bytes; by default one random key per process.
    max_bytes : int
        Maximum length of a message, and of its encoded passthrough fields.
    encoder : RecordEncoder, optional
        JsonEncoder of the output; by default `JsonEncoder`.
    with_columns : bool
        Whether blocks also contain the passthrough fields as typed columns.

    Attributes
    ----------
    reads_envelopes : bool
        Whether `decode` needs envelopes.

    Notes
    -----
    Numbers with a point or an exponent are read as float64, integers exactly. Only the syntax of dropped fields is
    checked.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        hash_key: bytes | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
        encoder: RecordEncoder | None = None,
        with_columns: bool = False,
    ) -> None:
        encoder = JsonEncoder(policy) if encoder is None else encoder
        self._builder = BlockBuilder(policy, encoder, hash_key, max_bytes, with_columns=with_columns)
        self._max_bytes = max_bytes
        self._n_fields = len(policy.value_attributes)
        self._decode_typed = _typed_decoder(policy)
        self._getters = {a.name: attrgetter(f"f{number}") for number, a in enumerate(policy.value_attributes)}
        self._quasi_identifiers = [attribute.name for attribute in policy.quasi_identifiers]
        self._passthrough = [attribute.name for attribute in policy.passthrough]
        self._integers = [number for number, attribute in enumerate(policy.passthrough) if attribute.type == "integer"]
        self._subject = None if policy.subject is None else policy.subject.name
        self._envelope_reader = EnvelopeReader(policy.envelope_attributes, max_bytes)
        self.reads_envelopes = bool(policy.envelope_attributes)

    def decode(self, messages: Sequence[bytes | None], envelopes: Sequence[Envelope] | None = None) -> Block:
        """Decode messages.

        Parameters
        ----------
        messages : sequence of bytes or None
            Message values; None is a message without a value. Callers pass about 500 at a time: the objects of more
            than about 1000 messages do not fit the processor's cache.
        envelopes : sequence of Envelope, optional
            One per message. Required if the policy reads keys, headers or timestamps, else ignored.

        Returns
        -------
        Block
            The accepted records, and index and reason of each rejected message. ``undecodable``: not JSON, or nested
            more than 64 deep. ``too_large``: the message or its passthrough fields are longer than ``max_bytes``.
            ``invalid``: the message does not fit the policy. A fault of the value takes precedence over one of the
            envelope.

        Raises
        ------
        ParameterError
            The policy reads envelopes, and ``envelopes`` is None.

        Notes
        -----
        The content of messages raises no error. Cost: about half the time of `json.loads`.
        """
        if self.reads_envelopes and envelopes is None:
            raise ParameterError("the policy reads keys, headers or timestamps: pass envelopes with the values")
        rejected: list[tuple[int, Reason]] = []
        index, records = self._decode_records(messages, rejected)
        columns: Columns = {}
        if self.reads_envelopes and envelopes is not None:
            columns, unfit = self._envelope_reader.read([envelopes[i] for i in index])
            if unfit:
                rejected += [(index[i], reason) for i, reason in unfit.items()]
                index, records = _remove(index, unfit), _remove(records, unfit)
                columns = {name: _remove(column, unfit) for name, column in columns.items()}
        return self._builder.build(self._candidates(index, records, columns, rejected), rejected)

    def _decode_records(
        self, messages: Sequence[bytes | None], rejected: list[tuple[int, Reason]]
    ) -> tuple[Sequence[int], Sequence[Any]]:
        """Return indexes and typed records of the messages whose values fit the policy's types."""
        index, texts = self._reject_by_size(messages, rejected)
        records, failed = _decode_each(self._decode_typed, texts)
        if failed:
            rejected += [(index[i], _reason_of(texts[i])) for i in failed]
            index, texts = _remove(index, failed), _remove(texts, failed)
        unfit = []
        for i in prescreen(texts, b"".join(texts), self._n_fields):
            if reason := validate_strictly(texts[i]):
                unfit.append(i)
                rejected.append((index[i], reason))
        if unfit:
            index, records = _remove(index, unfit), _remove(records, unfit)
        return index, records

    def _reject_by_size(
        self, messages: Sequence[bytes | None], rejected: list[tuple[int, Reason]]
    ) -> tuple[Sequence[int], Sequence[bytes]]:
        """Reject messages without a value and messages that are too large."""
        if None not in messages and max(map(len, messages), default=0) <= self._max_bytes:  # type: ignore[arg-type]
            return range(len(messages)), messages  # type: ignore[return-value]  # no None among them
        index, texts = [], []
        for i, message in enumerate(messages):
            if message is None:
                rejected.append((i, Reason.UNDECODABLE))
            elif len(message) > self._max_bytes:
                rejected.append((i, Reason.TOO_LARGE))
            else:
                index.append(i)
                texts.append(message)
        return index, texts

    def _candidates(
        self, index: Sequence[int], records: Sequence[Any], columns: Columns, rejected: list[tuple[int, Reason]]
    ) -> ParsedRecords:
        n = len(records)

        def column(name: str) -> Iterable[Any]:
            get = self._getters.get(name)
            return columns[name] if get is None else map(get, records)

        values = np.empty((n, len(self._quasi_identifiers)), dtype=np.float64)
        for number, name in enumerate(self._quasi_identifiers):
            values[:, number] = np.fromiter(column(name), np.float64, n)
        passthrough = [list(column(name)) for name in self._passthrough]
        candidates = ParsedRecords(
            index=np.array(index, dtype=np.int64),
            values=values,
            subjects=None if self._subject is None else list(column(self._subject)),
            passthrough=passthrough,
        )
        with_floats = [passthrough[number] for number in self._integers if float in set(map(type, passthrough[number]))]
        if with_floats:
            is_integer = (all(map(_is_integer, numbers)) for numbers in zip(*with_floats, strict=True))
            candidates = reject_unless(to_mask(is_integer, n), candidates, Reason.INVALID, rejected)
        return candidates


def _typed_decoder(policy: Policy) -> Callable[[bytes], Any]:
    """Return a decoder to a Struct with the fields f0, f1, … in the order of the policy, whatever the JSON names."""
    fields = [(f"f{number}", _field_type(attribute)) for number, attribute in enumerate(policy.value_attributes)]
    names = {f"f{number}": attribute.name for number, attribute in enumerate(policy.value_attributes)}
    strict = policy.undeclared == "quarantine"
    if any(character in '"\\' or character < " " for name in names.values() for character in name):
        return _renaming_decoder(fields, names, strict=strict)
    dropped = [("model", msgspec.Raw, msgspec.Raw())] if strict and _FAUST_FIELD not in names.values() else []
    names["model"] = _FAUST_FIELD
    record = msgspec.defstruct("Record", [*fields, *dropped], rename=names, forbid_unknown_fields=strict, gc=False)
    return msgspec.json.Decoder(record, float_hook=NumberText).decode


def _renaming_decoder(fields: list[tuple[str, Any]], names: dict[str, str], *, strict: bool) -> Callable[[bytes], Any]:
    """Return a decoder of two steps, for names that need escapes in JSON, which a Struct does not support."""
    record = msgspec.defstruct("Record", fields, forbid_unknown_fields=True, gc=False)
    decode_typed = msgspec.json.Decoder(record, float_hook=NumberText).decode
    field_of = {name: field.encode() for field, name in names.items()}

    def decode(message: bytes) -> object:
        values = _decode_members(message)
        if strict and not values.keys() <= field_of.keys() | {_FAUST_FIELD}:
            raise msgspec.ValidationError
        members = [b'"%b":%b' % (field_of[name], bytes(value)) for name, value in values.items() if name in field_of]
        return decode_typed(b"{" + b",".join(members) + b"}")

    return decode


def _field_type(attribute: Attribute) -> object:
    if attribute.role is Role.QUASI_IDENTIFIER:
        return float
    if attribute.role is not Role.IDENTIFIER:
        return _PASSTHROUGH_TYPES[attribute.type]
    if not attribute.subject:
        return msgspec.Raw
    return str if attribute.type == "string" else Any


def _is_integer(number: float | None) -> bool:
    return not isinstance(number, float) or number.is_integer()


def _decode_each(decode: Callable[[bytes], Any], texts: Iterable[bytes]) -> tuple[list[Any], list[int]]:
    """Decode all messages that can be decoded. Return the records and the indexes of the others."""
    records: list[Any] = []
    failed: list[int] = []
    decoded = map(decode, texts)
    while True:
        try:
            records.extend(decoded)  # after an error, the list keeps its elements and the map continues
        except _DECODE_ERRORS:
            failed.append(len(records) + len(failed))
        else:
            return records, failed


def _reason_of(message: bytes) -> Reason:
    """Return why a message could not be decoded: it is not JSON, or it does not fit the policy."""
    try:
        _decode_any(message)
    except _DECODE_ERRORS:
        return Reason.UNDECODABLE
    return validate_strictly(message) or Reason.INVALID


def _remove(items: Sequence[Any], indexes: Iterable[int]) -> list[Any]:
    removed = set(indexes)
    return [item for index, item in enumerate(items) if index not in removed]
