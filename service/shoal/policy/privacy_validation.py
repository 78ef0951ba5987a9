"""Rules of what a policy may ask for beyond k: dominance, releases of one person, a smallest population."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.policy.loader import FieldPath
from shoal.policy.schema import Document

__all__ = ["MAX_WINDOW", "option_rules"]

MAX_WINDOW = 1_000_000
"""A restart reads a window again, and counts its people in memory."""

_FEWEST_FOR_DOMINANCE = 3


def option_rules(document: Document) -> Iterator[tuple[FieldPath, str]]:
    """All that is wrong with the options of ``privacy``, as path and message."""
    yield from _dominance_rules(document)
    yield from _per_subject_rules(document)
    yield from _population_rules(document)


def _dominance_rules(document: Document) -> Iterator[tuple[FieldPath, str]]:
    privacy = document.privacy
    if privacy is None or privacy.dominance is None:
        return
    path = ("privacy", "dominance")
    if not 0 < privacy.dominance < 100:  # noqa: PLR2004 - percent
        yield path, "must be a percentage above 0 and below 100"
    elif privacy.k is not None and privacy.k < _FEWEST_FOR_DOMINANCE:
        yield path, "needs privacy.k of at least 3: of two people each could work out what the other contributed"
    for name, attribute in document.attributes.items():
        numeric = attribute.role == "quasi_identifier" and attribute.scale in {"numeric", None}
        if numeric and attribute.bounds is None:
            yield ("attributes", name, "bounds"), "missing: privacy.dominance counts contributions from the bounds"


def _per_subject_rules(document: Document) -> Iterator[tuple[FieldPath, str]]:
    section = None if document.privacy is None else document.privacy.per_subject
    if section is None:
        return
    path = ("privacy", "per_subject")
    if document.subject == "every_record":
        yield path, "cannot hold where every record is a person of its own: declare the subject, or remove it"
    if section.max is None:
        yield (*path, "max"), "missing: most records of one subject that may leave within a window"
    elif section.max < 1:
        yield (*path, "max"), "must be at least 1"
    if section.window is None:
        yield (*path, "window"), "missing: the length of a window, in records of a partition"
    elif not 1 <= section.window <= MAX_WINDOW:
        yield (*path, "window"), f"must be from 1 to {MAX_WINDOW} records"
    elif section.max is not None and section.max >= section.window:
        yield (*path, "window"), "must be longer than max, or nothing would be limited"


def _population_rules(document: Document) -> Iterator[tuple[FieldPath, str]]:
    privacy, stream = document.privacy, document.stream
    if privacy is None or privacy.min_population is None:
        return
    path = ("privacy", "min_population")
    if privacy.k is not None and privacy.min_population < privacy.k:
        yield path, "must be at least k (recommended: 2k): fewer people never leave anyway"
    elif stream is not None and stream.delta is not None and privacy.min_population > stream.delta:
        yield path, "must be at most delta: more people are never held"
