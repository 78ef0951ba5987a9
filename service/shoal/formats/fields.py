"""`RecordStruct`: a typed JSON decoder for the declared fields of a record, which may be inside objects.

What tables cannot contain: envelopes of messages, and fields inside objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from shoal.arrays import Int64Vector
from shoal.errors import InputError
from shoal.formats.numerals import NumberText
from shoal.policy import Attribute, Policy

__all__ = ["FAUST_FIELD", "RecordField", "RecordStruct", "has_nested_messages", "path_of", "require_columns"]

FAUST_FIELD = "__faust"
"""Faust adds this field to the messages of its models. It names the model and says nothing about the person."""

_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def path_of(attribute: Attribute) -> tuple[str, ...]:
    """Return the names from the outermost object of a record to the field of an attribute."""
    return attribute.path or (attribute.name,)


def has_nested_messages(policy: Policy) -> bool:
    """Return whether records are inside envelopes, or attributes are fields inside objects of the record.

    No key may then be repeated at any depth. In records that are flat, objects are only dropped, and the keys inside
    them are not compared.
    """
    return policy.unwrap is not None or any(len(path_of(attribute)) > 1 for attribute in policy.value_attributes)


@dataclass(frozen=True, slots=True)
class RecordField:
    """A declared field.

    Attributes
    ----------
    path : tuple of str
        Names from the outermost object of the record to the field.
    type : type
        Type of the value, for msgspec.
    may_be_absent : bool
        Whether a record without the field is valid; its value is then UNSET.
    """

    path: tuple[str, ...]
    type: Any
    may_be_absent: bool = False


@dataclass(slots=True)
class _Node:
    """A key of a record: of a field, or of an object with fields."""

    attribute: str
    """Name of the attribute of the Struct, because keys need not be Python identifiers."""
    declared: RecordField | None = None
    children: dict[str, _Node] = field(default_factory=dict)

    def is_optional(self) -> bool:
        """Whether the key may be absent: an object may if all fields in it may."""
        if self.declared is not None:
            return self.declared.may_be_absent
        return all(child.is_optional() for child in self.children.values())

    def names(self) -> Iterator[str]:
        """Yield the keys inside this object, at any depth."""
        for name, child in self.children.items():
            yield name
            yield from child.names()


class RecordStruct:
    """Decodes records to Structs of msgspec, one Struct for each object that contains declared fields.

    Parameters
    ----------
    fields : sequence of RecordField
        No path is the beginning of another one.
    rejects_undeclared : bool
        Whether a field that is not declared is an error, at any depth; otherwise it is ignored. The field of Faust is
        always ignored.

    Attributes
    ----------
    decode : callable
        Decodes one record. It raises an error if the record does not have the declared types.
    getters : list of callable
        One per field: returns its value from a decoded record; UNSET if the field is absent.

    Notes
    -----
    A key that occurs twice is not found here; see `strict_json`. An object that is null is treated as absent.
    """

    def __init__(self, fields: Sequence[RecordField], *, rejects_undeclared: bool) -> None:
        self._rejects_undeclared = rejects_undeclared
        self._root = _Node("")
        lines = [self._insert(one) for one in fields]
        self.getters = [_getter(line) for line in lines]
        self._optional = list(_optional_lines(self._root, ()))
        names = list(self._root.names())
        self._n_keys = len(names)
        needs_escapes = any(character in '"\\' or character < " " for name in names for character in name)
        self.decode: Callable[[bytes], Any] = self._renaming_decoder() if needs_escapes else self._typed_decoder()

    def count_keys(self, records: Sequence[Any]) -> int | Int64Vector:
        """Return how many declared keys each record has, with those of objects; one number if all have as many."""
        if not self._optional:
            return self._n_keys
        counts = np.full(len(records), self._n_keys, np.int64)
        for line in self._optional:
            values = list(map(_getter(line), records))
            if msgspec.UNSET in values:
                counts -= np.fromiter((value is msgspec.UNSET for value in values), np.bool_, len(records))
        return counts

    def _insert(self, declared: RecordField) -> tuple[_Node, ...]:
        """Add a field to the tree; return the nodes from the outermost object to it."""
        node, line = self._root, []
        for name in declared.path:
            node = node.children.setdefault(name, _Node(f"f{len(node.children)}"))
            line.append(node)
        node.declared = declared
        return tuple(line)

    def _typed_decoder(self) -> Callable[[bytes], Any]:
        record = self._define(self._root, has_keys=True)
        return msgspec.json.Decoder(record, float_hook=NumberText).decode

    def _define(self, node: _Node, *, has_keys: bool) -> type[msgspec.Struct]:
        """Return the Struct of an object, with its keys or with the attributes of the Struct in place of them."""
        required: list[Any] = []
        optional: list[Any] = []
        keys = {}
        for name, child in node.children.items():
            kind = self._define(child, has_keys=has_keys) if child.declared is None else child.declared.type
            keys[child.attribute] = name
            if not child.is_optional():
                required.append((child.attribute, kind))
            else:
                optional.append((child.attribute, kind | None if child.declared is None else kind, msgspec.UNSET))
        if node is self._root and self._rejects_undeclared and FAUST_FIELD not in node.children:
            optional.append(("model", msgspec.Raw, msgspec.UNSET))
            keys["model"] = FAUST_FIELD
        return msgspec.defstruct(
            "Record",
            [*required, *optional],
            rename=keys if has_keys else None,
            forbid_unknown_fields=self._rejects_undeclared,
            gc=False,
        )

    def _renaming_decoder(self) -> Callable[[bytes], Any]:
        """Return a decoder for keys that need escapes in JSON, which a Struct does not support.

        The decoder first replaces the keys by the attributes of the Struct and leaves out undeclared fields, or raises
        an error if the policy rejects them. It then decodes the result.
        """
        decode_typed = msgspec.json.Decoder(self._define(self._root, has_keys=False), float_hook=NumberText).decode
        return lambda message: decode_typed(self._rename(self._root, message))

    def _rename(self, node: _Node, text: bytes) -> bytes:
        if node.declared is not None or (node is not self._root and not text.startswith(b"{")):
            return text
        values = _decode_fields(text)
        ignored = {FAUST_FIELD} if node is self._root else set()
        if self._rejects_undeclared and not values.keys() <= node.children.keys() | ignored:
            raise msgspec.ValidationError
        renamed = [
            b'"%b":%b' % (child.attribute.encode(), self._rename(child, bytes(values[name])))
            for name, child in node.children.items()
            if name in values
        ]
        return b"{" + b",".join(renamed) + b"}"


def _optional_lines(node: _Node, line: tuple[_Node, ...]) -> Iterator[tuple[_Node, ...]]:
    """Yield the nodes from the outermost object to each key that may be absent."""
    for child in node.children.values():
        if child.is_optional():
            yield (*line, child)
        yield from _optional_lines(child, (*line, child))


def _getter(line: Sequence[_Node]) -> Callable[[Any], Any]:
    """Return the function that returns the value of a key, or UNSET if the record does not have the key."""
    names = [node.attribute for node in line]
    if not any(node.is_optional() for node in line[:-1]):
        return attrgetter(".".join(names))

    def get(record: Any) -> Any:  # noqa: ANN401 - a Struct that is defined at run time
        for name in names[:-1]:
            record = getattr(record, name)
            if record is None or record is msgspec.UNSET:
                return msgspec.UNSET
        return getattr(record, names[-1])

    return get


def require_columns(policy: Policy, name: str, format_name: str) -> None:
    """Require that every attribute can be a column of a table.

    Parameters
    ----------
    policy : Policy
    name : str
        Name of the file in errors.
    format_name : str
        Name of its format in errors.

    Raises
    ------
    InputError
        An attribute is read from an envelope, or is a field that has another name or is inside an object; or the
        policy unwraps messages.
    """
    no_file_has = f"which no {format_name} file has; give messages as JSON lines"
    for attribute in policy.envelope_attributes:
        raise InputError(
            f"{name}: attributes.{attribute.name} is read from {attribute.source}, {no_file_has} with key, headers, "
            "timestamp and value, or remove 'from' from the policy"
        )
    for attribute in policy.value_attributes:
        if path_of(attribute) != (attribute.name,):
            raise InputError(
                f"{name}: attributes.{attribute.name} is read from the field {'.'.join(path_of(attribute))} of "
                f"messages, {no_file_has}, or remove 'from' from the policy"
            )
    if policy.unwrap is not None:
        raise InputError(
            f"{name}: unwrap: {policy.unwrap} opens the envelopes of messages, {no_file_has}, or remove unwrap from "
            "the policy"
        )
