"""Rules of what a policy may ask for of finished tables only: t-closeness and preserved dependence."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.policy.loader import FieldPath
from shoal.policy.schema import Document

__all__ = ["table_rules"]


def table_rules(document: Document) -> Iterator[tuple[FieldPath, str]]:
    """All that is wrong with ``privacy.t`` and ``steering.dependence``, as path and message."""
    privacy = document.privacy
    if privacy is not None and privacy.t is not None:
        yield from _closeness_rules(document, privacy.t)
    if document.steering.dependence != 0:
        yield from _dependence_rules(document)


def _closeness_rules(document: Document, t: float) -> Iterator[tuple[FieldPath, str]]:
    path = ("privacy", "t")
    if not 0 < t < 1:
        yield path, "must be above 0 and below 1: a distance between two distributions"
    if not any(attribute.role == "confidential" for attribute in document.attributes.values()):
        yield path, "no attribute is confidential: there is nothing whose distribution could be kept close"
    if document.stream is not None:
        yield path, "not yet: a stream cannot keep t, which speaks of the whole table; remove it, or remove stream"


def _dependence_rules(document: Document) -> Iterator[tuple[FieldPath, str]]:
    path = ("steering", "dependence")
    numeric = [
        a
        for a in document.attributes.values()
        if a.role == "confidential" and a.type in {"integer", "number", "any", None}
    ]
    if not 0 <= document.steering.dependence <= 1:
        yield path, "must be from 0 (only quasi-identifiers count) to 1 (only confidential attributes)"
    if not numeric:
        yield path, "no confidential attribute is a number: there is nothing that could depend; leave it at 0"
    if document.privacy is not None and document.privacy.t is not None:
        yield path, "works against privacy.t, which parts equal confidential values: keep one of them"
    if document.stream is not None:
        yield path, "not yet: dependence is for tables; leave it at 0, or remove stream"
