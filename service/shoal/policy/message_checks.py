"""The rules for the form of messages: envelopes, deletes, and the fields of the output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from shoal.policy.field_path import collisions, fault_of_path, split_path
from shoal.policy.loader import FieldPath
from shoal.policy.schema import Document

__all__ = ["check_messages"]

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
