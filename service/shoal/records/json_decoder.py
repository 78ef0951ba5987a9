"""JSON messages to records: one typed decode per message, made from the policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from shoal.errors import ParameterError
from shoal.policy import Attribute, FieldType, Policy, Role
from shoal.records.block import Block, Reason, in_slices
from shoal.records.block_builder import BlockBuilder, Candidates, TailWriter, mask, refuse
from shoal.records.encoder import JsonEncoder
from shoal.records.envelope import Columns, Envelope, EnvelopeReader
from shoal.records.numerals import NumberText
from shoal.records.strict_json import prescreen, validate_strictly

__all__ = ["DEFAULT_MAX_BYTES", "JsonDecoder"]

DEFAULT_MAX_BYTES = 900_000

_MODEL = "__faust"
"""Faust writes here which of its models a record was made from; nothing about whoever the record is of."""

_REFUSED = (msgspec.MsgspecError, ValueError, TypeError, RecursionError)
"""All that a decode raises; their texts and attributes hold values, so that none may leave this module."""

_KEPT: dict[FieldType, Any] = {
    "string": str | None,
    "integer": int | float | None,  # 42.0 is an integer in JSON; whether it is one is looked at afterwards
    "number": int | float | None,
    "boolean": bool | None,
    "any": str | int | float | bool | None,
}
_well_formed = msgspec.json.Decoder(msgspec.Raw).decode
_by_name = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class JsonDecoder:
    """Makes records of JSON messages: one flat object each, with every field that the policy declares.

    An attribute with ``from: key``, ``header:NAME`` or ``timestamp`` is read from the envelope, as a cell of CSV would
    be; a field of its name in the object is undeclared. A field ``__faust`` is never in the way: unless it is
    declared it is left out, for every topic that Faust's models are sent to has it.

    Parameters
    ----------
    policy : Policy
    hash_key : bytes, optional
        Key of the subject hash, up to 64 bytes; by default one per process.
    max_bytes : int
        Longest message, and longest tail.
    encoder : TailWriter, optional
        JsonEncoder of the output, `JsonEncoder` by default.
    with_columns : bool
        Whether blocks shall hold the kept fields as typed values, too.

    Notes
    -----
    Numbers with a point or an exponent are read as float64, integers exactly. Fields that are dropped are
    checked for their syntax only. ``reads_envelopes`` tells whether `take` needs them.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        hash_key: bytes | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
        encoder: TailWriter | None = None,
        with_columns: bool = False,
    ) -> None:
        self._intake = BlockBuilder(
            policy, encoder or JsonEncoder(policy), hash_key, max_bytes, with_columns=with_columns
        )
        self._max_bytes = max_bytes
        self._fields = len(policy.value_attributes)
        self._decode = _typed_decode(policy)
        self._get = {a.name: attrgetter(f"f{number}") for number, a in enumerate(policy.value_attributes)}
        self._quasi = [attribute.name for attribute in policy.quasi_identifiers]
        self._kept = [attribute.name for attribute in policy.passthrough]
        self._integers = [number for number, attribute in enumerate(policy.passthrough) if attribute.type == "integer"]
        self._subject = None if policy.subject is None else policy.subject.name
        self._envelopes = EnvelopeReader(policy.envelope_attributes, max_bytes)
        self.reads_envelopes = bool(policy.envelope_attributes)

    def decode(self, messages: Sequence[bytes | None], envelopes: Sequence[Envelope] | None = None) -> Block:
        """Decode messages.

        Parameters
        ----------
        messages : sequence of bytes or None
            Any number; None is a message without a value. Not modified, not kept.
        envelopes : sequence of Envelope, optional
            As many, for a policy that reads keys, headers or timestamps; else they are not looked at.

        Returns
        -------
        Block
            The records, and place and reason of every other message: ``undecodable`` if it is not JSON (or nested
            more than 64 deep), ``too_large`` if it is longer than ``max_bytes`` or its kept fields are,
            ``invalid`` if it does not fit the policy. What is wrong with the value is told first.

        Raises
        ------
        ParameterError
            The policy reads envelopes, and there are none.

        Notes
        -----
        Raises nothing on account of the messages. Cost: about half of what `json.loads` takes.
        """
        if not self.reads_envelopes:
            return in_slices(self._slice, messages)
        if envelopes is None:
            raise ParameterError("the policy reads keys, headers or timestamps: values alone are not enough")
        return in_slices(self._slice, messages, envelopes)

    def _slice(self, messages: Sequence[bytes | None], envelopes: Sequence[Envelope] = ()) -> Block:
        rejected: list[tuple[int, Reason]] = []
        index, texts = self._sized(messages, rejected)
        records, refused = _decoded(self._decode, texts)
        if refused:
            rejected += [(index[place], _reason(texts[place])) for place in refused]
            index, texts = _without(index, refused), _without(texts, refused)
        twice = []
        for place in prescreen(texts, b"".join(texts), self._fields):
            if reason := validate_strictly(texts[place]):
                twice.append(place)
                rejected.append((index[place], reason))
        if twice:
            index, records = _without(index, twice), _without(records, twice)
        columns: Columns = {}
        if self.reads_envelopes:
            columns, unfit = self._envelopes.read([envelopes[place] for place in index])
            if unfit:
                rejected += [(index[place], reason) for place, reason in unfit.items()]
                index, records = _without(index, list(unfit)), _without(records, list(unfit))
                columns = {name: _without(column, list(unfit)) for name, column in columns.items()}
        return self._intake.block(self._candidates(index, records, columns, rejected), rejected)

    def _sized(
        self, messages: Sequence[bytes | None], rejected: list[tuple[int, Reason]]
    ) -> tuple[Sequence[int], Sequence[bytes]]:
        """Leave out what is no message or too large."""
        if None not in messages and max(map(len, messages), default=0) <= self._max_bytes:  # type: ignore[arg-type]
            return range(len(messages)), messages  # type: ignore[return-value]  # no None among them
        index, texts = [], []
        for place, message in enumerate(messages):
            if message is None:
                rejected.append((place, Reason.UNDECODABLE))
            elif len(message) > self._max_bytes:
                rejected.append((place, Reason.TOO_LARGE))
            else:
                index.append(place)
                texts.append(message)
        return index, texts

    def _candidates(
        self, index: Sequence[int], records: Sequence[Any], columns: Columns, rejected: list[tuple[int, Reason]]
    ) -> Candidates:
        n = len(records)

        def column(name: str) -> Iterable[Any]:
            get = self._get.get(name)
            return columns[name] if get is None else map(get, records)

        values = np.empty((n, len(self._quasi)), dtype=np.float64)
        for number, name in enumerate(self._quasi):
            values[:, number] = np.fromiter(column(name), np.float64, n)
        kept = [list(column(name)) for name in self._kept]
        candidates = Candidates(
            index=np.array(index, dtype=np.int64),
            values=values,
            subjects=None if self._subject is None else list(column(self._subject)),
            kept=kept,
        )
        fractional = [number for number in self._integers if float in set(map(type, kept[number]))]
        if fractional:
            whole = (all(map(_is_whole, numbers)) for numbers in zip(*(kept[i] for i in fractional), strict=True))
            candidates = refuse(candidates, mask(whole, n), Reason.INVALID, rejected)
        return candidates


def _typed_decode(policy: Policy) -> Callable[[bytes], Any]:
    """Compile the policy: fields f0, f1, … in its order, whatever their JSON names are."""
    fields = [(f"f{number}", _typed(attribute)) for number, attribute in enumerate(policy.value_attributes)]
    names = {f"f{number}": attribute.name for number, attribute in enumerate(policy.value_attributes)}
    strict = policy.undeclared == "quarantine"
    if any(character in '"\\' or character < " " for name in names.values() for character in name):
        return _decode_renamed(fields, names, strict=strict)
    left_out = [("model", msgspec.Raw, msgspec.Raw())] if strict and _MODEL not in names.values() else []
    names["model"] = _MODEL
    record = msgspec.defstruct("Record", [*fields, *left_out], rename=names, forbid_unknown_fields=strict, gc=False)
    return msgspec.json.Decoder(record, float_hook=NumberText).decode


def _decode_renamed(fields: list[tuple[str, Any]], names: dict[str, str], *, strict: bool) -> Callable[[bytes], Any]:
    """Decode in two steps, for names that a Struct cannot carry because they need escapes in JSON."""
    record = msgspec.defstruct("Record", fields, forbid_unknown_fields=True, gc=False)
    typed = msgspec.json.Decoder(record, float_hook=NumberText).decode
    place = {name: field.encode() for field, name in names.items()}

    def decode(message: bytes) -> object:
        values = _by_name(message)
        if strict and not values.keys() <= place.keys() | {_MODEL}:
            raise msgspec.ValidationError
        members = [b'"%b":%b' % (place[name], bytes(value)) for name, value in values.items() if name in place]
        return typed(b"{" + b",".join(members) + b"}")

    return decode


def _typed(attribute: Attribute) -> object:
    if attribute.role is Role.QUASI_IDENTIFIER:
        return float
    if attribute.role is not Role.IDENTIFIER:
        return _KEPT[attribute.type]
    if not attribute.subject:
        return msgspec.Raw
    return str if attribute.type == "string" else Any


def _is_whole(number: float | None) -> bool:
    return not isinstance(number, float) or number.is_integer()


def _decoded(decode: Callable[[bytes], Any], texts: Iterable[bytes]) -> tuple[list[Any], list[int]]:
    """Decode all that can be decoded; the map goes on after a message that cannot."""
    records: list[Any] = []
    refused: list[int] = []
    todo = map(decode, texts)
    while True:
        try:
            records.extend(todo)  # what was decoded before a failure stays in the list
        except _REFUSED:
            refused.append(len(records) + len(refused))
        else:
            return records, refused


def _reason(message: bytes) -> Reason:
    """Why a message could not be decoded: it is no JSON at all, or not the JSON that the policy declares."""
    try:
        _well_formed(message)
    except _REFUSED:
        return Reason.UNDECODABLE
    return validate_strictly(message) or Reason.INVALID


def _without(items: Sequence[Any], places: Sequence[int]) -> list[Any]:
    left_out = set(places)
    return [item for place, item in enumerate(items) if place not in left_out]
