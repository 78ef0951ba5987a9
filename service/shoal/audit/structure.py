"""Finds the fields of a record in a message: inside an envelope, and inside objects.

Debezium, Kafka Connect's JsonConverter and CloudEvents put envelopes around records. A message that deletes a row, or
has no value at all, is no record. The policy says whether such a message is dropped or quarantined.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from shoal.audit.parsing import TOMBSTONE, Form, JsonNumber, JsonObject, Record, as_record
from shoal.policy import Attribute, Policy

__all__ = [
    "Dropped",
    "FieldPaths",
    "MessageStructure",
    "column_name",
    "dropped_kinds",
    "input_path",
    "nested_order",
    "output_path",
]

_CONVERTED = {"schema", "payload"}
"""Names of the object that JsonConverter writes."""


class Dropped(StrEnum):
    """Why a message is dropped. The names are those of the policy and of a summary."""

    DELETES = "deletes"
    TOMBSTONES = "tombstones"


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
    """The declared fields of an object, which may be inside other objects.

    Parameters
    ----------
    paths : dict of tuple of str to str
        Name of the attribute by path.
    """

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
    return [kind.value for kind, action in actions.items() if action == "drop"]


class MessageStructure:
    """Returns the fields of messages by the names of their attributes.

    Parameters
    ----------
    policy : Policy
        ``unwrap``, ``deletes``, ``tombstones``, ``undeclared`` and the paths of the attributes.
    form : {"csv", "jsonl"}
        Cells have neither envelopes nor objects.
    """

    def __init__(self, policy: Policy, form: Form) -> None:
        self._unwrap = policy.unwrap if form == "jsonl" else None
        self._drops_deletes, self._drops_tombstones = policy.deletes == "drop", policy.tombstones == "drop"
        self._fields = FieldPaths({input_path(a): a.name for a in policy.value_attributes})
        self._optional = {input_path(a) for a in policy.value_attributes if a.may_be_missing}
        self._refuses_undeclared = policy.undeclared == "quarantine"
        self._is_flat = form == "csv" or self._fields.is_flat
        self._is_plain = self._unwrap is None and self._is_flat
        self._has_objects = form == "jsonl" and bool(self._fields.objects)

    def content(self, message: Record | None) -> Record | Dropped | None:
        """Return the fields of a message, why it is dropped, or None if it is no record."""
        if message is TOMBSTONE:
            return self._tombstone()
        if self._is_plain or message is None:
            return message
        if (self._unwrap is not None or self._has_objects) and not _has_distinct_names(message):
            return None
        record = self._unwrapped(message)
        if record is None or isinstance(record, Dropped) or self._is_flat:
            return record
        return self._named(record)

    def is_header(self, record: Record) -> bool:
        """Whether each declared field, two or more, has its own name as its value: a header was read as a record.

        ``record`` has the names of the attributes, as `content` returns it.
        """
        fields = self._fields.paths
        values = ((record.get(name), path[-1]) for path, name in fields.items())
        return len(fields) > 1 and all(type(value) is str and value == text for value, text in values)

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
        if not isinstance(operation, str) or isinstance(operation, JsonNumber):
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
            elif self._refuses_undeclared and path != ("__faust",):
                return None
        return found

    def _may_be_null(self, path: tuple[str, ...]) -> bool:
        return all(one in self._optional for one in self._fields.paths if one[: len(path)] == path)


def _has_distinct_names(message: Record) -> bool:
    """Whether no object inside a message has a name twice."""
    level: list[object] = list(message.values())
    while level:
        objects = [value for value in level if isinstance(value, JsonObject)]
        if any(len({name for name, _ in one}) < len(one) for one in objects):
            return False
        arrays = [value for value in level if isinstance(value, list) and not isinstance(value, JsonObject)]
        level = [item for one in objects for _, item in one] + [item for one in arrays for item in one]
    return True
