"""The rules for single attributes: which fields fit which role, the subject, and the steering attributes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

from shoal.policy.loader import FieldPath
from shoal.policy.protection_checks import check_confidential
from shoal.policy.scale_checks import check_scale
from shoal.policy.schema import AttributeSection, Document
from shoal.policy.text_checks import has_lone_surrogate

__all__ = ["check_attributes", "check_normalize", "check_steering", "check_subject", "is_numeric_quasi_identifier"]

Finding: TypeAlias = tuple[FieldPath, str]

MAX_JSON_BYTES = 1_000_000
"""Largest limit on a field of type ``json``. Kafka's own default limit on a message is of this size."""
MAX_WEIGHT = 1_000_000
"""Largest weight of an attribute. Sums of squared distances stay far below the largest float64."""
_CLUSTERED_FIELDS = (
    *("scale", "bounds", "out_of_bounds", "integer", "resolution", "weight", "order", "taxonomy", "publish"),
    *("unknown", "unit", "missing"),
)
"""Fields of quasi-identifiers and, in part, of steering attributes."""
_PUBLISHED_FIELDS = ("resolution", "publish", "to")
"""Fields that say how values are published."""


def check_attributes(document: Document) -> Iterator[Finding]:
    """Check role and fields of every attribute."""
    if not document.attributes:
        yield ("attributes",), "missing; declare every field of the input"
        return
    for name, attribute in document.attributes.items():
        path = ("attributes", name)
        if has_lone_surrogate(name):
            yield path, "contains a lone surrogate, which no message can contain; correct the name"
        if attribute.role is None:
            yield (*path, "role"), "missing; give identifier, quasi_identifier, confidential, other or steering"
        elif attribute.role in {"quasi_identifier", "steering"}:
            yield from _check_clustered(path, attribute, document)
        else:
            yield from _check_other_role(path, attribute, document)
    if all(attribute.role not in {"quasi_identifier", None} for attribute in document.attributes.values()):
        yield ("attributes",), "no attribute has the role quasi_identifier, so there is nothing to make k-anonymous"


def _check_clustered(path: FieldPath, attribute: AttributeSection, document: Document) -> Iterator[Finding]:
    """Check a quasi-identifier or a steering attribute."""
    role = attribute.role
    if attribute.type is not None:
        yield (*path, "type"), f"not allowed for role {role}, whose type follows from its scale; remove type"
    if attribute.max_bytes is not None:
        yield (*path, "max_bytes"), "only for a confidential attribute of type json; remove it"
    if attribute.publish_unchanged:
        yield (*path, "publish_unchanged"), f"an attribute of role {role} is never published unchanged; remove it"
    if role == "steering":
        yield from _check_unpublished(path, attribute)
    elif attribute.weight is not None and not _is_weight(attribute.weight):
        yield (*path, "weight"), f"must be above 0 and at most {MAX_WEIGHT:,}"
    yield from check_scale(path, attribute, document)


def _check_unpublished(path: FieldPath, attribute: AttributeSection) -> Iterator[Finding]:
    """Check a steering attribute: it is not published, and its weight is in another section."""
    for name in _PUBLISHED_FIELDS:
        if getattr(attribute, name) is not None:
            yield (*path, name), "an attribute of role steering is not published; remove it"
    if attribute.weight is not None:
        yield (*path, "weight"), "the weight of a steering attribute is given in steering.by; remove it here"


def _check_other_role(path: FieldPath, attribute: AttributeSection, document: Document) -> Iterator[Finding]:
    is_confidential = attribute.role == "confidential"
    for name in ("weight",) if is_confidential else _CLUSTERED_FIELDS:
        if getattr(attribute, name) is not None:
            yield (*path, name), f"only for a quasi_identifier; remove it, or change the role from {attribute.role}"
    if is_confidential:
        yield from check_confidential(path, attribute, document)
    if attribute.role == "other" and not attribute.publish_unchanged:
        yield (
            (*path, "publish_unchanged"),
            (
                "missing: role other publishes the field unchanged, and a person who knows its value can find the "
                "record; set publish_unchanged: true to accept this, or declare a quasi_identifier or an identifier"
            ),
        )
    if attribute.role == "identifier" and attribute.publish_unchanged:
        yield (*path, "publish_unchanged"), "an identifier is never published; remove it"
    if attribute.role == "identifier" and attribute.to is not None:
        yield (*path, "to"), "an identifier is never published; remove it"
    yield from _check_json(path, attribute)


def _check_json(path: FieldPath, attribute: AttributeSection) -> Iterator[Finding]:
    """Check a field that may hold an object or a list."""
    if attribute.type == "json" and attribute.role != "confidential":
        yield (
            (*path, "type"),
            "json is only for a confidential attribute; declare single fields inside it by their path",
        )
    if attribute.max_bytes is None:
        return
    if attribute.type != "json":
        yield (*path, "max_bytes"), "only for a confidential attribute of type json; remove it"
    elif not 1 <= attribute.max_bytes <= MAX_JSON_BYTES:
        yield (*path, "max_bytes"), f"must be from 1 to {MAX_JSON_BYTES} bytes"


def check_subject(document: Document) -> Iterator[Finding]:
    """Check that exactly one attribute is the subject, or that every record is a different person."""
    marked = [name for name, attribute in document.attributes.items() if attribute.subject]
    for name in marked:
        if document.attributes[name].role not in {"identifier", None}:
            yield ("attributes", name, "subject"), "the subject is never published; set its role to identifier"
    if len(marked) > 1:
        for name in marked[1:]:
            yield (
                ("attributes", name, "subject"),
                f"only one attribute can be the subject, and attributes.{marked[0]} is marked already; unmark one",
            )
    if marked and document.subject == "every_record":
        yield ("subject",), f"every_record contradicts attributes.{marked[0]}.subject; remove one of the two"
    if not marked and document.subject is None:
        yield (
            ("attributes",),
            (
                "no subject: mark the attribute that identifies the person with subject: true, or set "
                "subject: every_record at the top level if every record belongs to a different person"
            ),
        )


def check_normalize(document: Document) -> Iterator[Finding]:
    """Check the steps by which spellings of one person become one text."""
    for name, attribute in document.attributes.items():
        path, steps = ("attributes", name, "normalize"), attribute.normalize
        if steps is None:
            continue
        if not attribute.subject:
            yield path, "only for the subject, whose spellings are counted as one person; remove it"
        elif attribute.type not in {"string", "any", None}:
            yield path, f"only for a subject of type string or any; remove it, or change the type from {attribute.type}"
        elif len(set(steps)) < len(steps):
            yield path, "names a step twice; remove one"


def check_steering(document: Document) -> Iterator[Finding]:
    """Check that the attributes of role ``steering`` are those of ``steering.by``, each with a weight."""
    path, entries = ("steering", "by"), document.steering.by or ()
    names = Counter(entry.attribute for entry in entries)
    for index, entry in enumerate(entries):
        place = (*path, str(index))
        if entry.weight is None:
            yield (*place, "weight"), "missing; give a number above 0"
        elif not _is_weight(entry.weight):
            yield (*place, "weight"), f"must be above 0 and at most {MAX_WEIGHT:,}"
        if fault := _fault_of_steering(entry.attribute, document, names):
            yield (*place, "attribute"), fault
    for name, attribute in document.attributes.items():
        if attribute.role == "steering" and name not in names:
            # The list has no line, and no fault of its own, if there is no section.
            where = path if "steering" in document.model_fields_set else ("attributes", name, "role")
            yield where, f"no weight of attributes.{name}; add {{attribute: {name}, weight: W}} to steering.by"


def _fault_of_steering(name: str | None, document: Document, names: Counter[str | None]) -> str:
    """Return what is wrong with the name of an entry of ``steering.by``; ``names`` counts those of all entries."""
    if name is None:
        return "missing; name an attribute of role steering"
    if name not in document.attributes:
        return "is not declared; add it to attributes with role: steering"
    if document.attributes[name].role not in {"steering", None}:
        return f"attributes.{name} must have role: steering"
    return "is listed twice; remove one" if names[name] > 1 else ""


def is_numeric_quasi_identifier(attribute: AttributeSection) -> bool:
    """Return whether an attribute is a published number."""
    return attribute.role == "quasi_identifier" and attribute.scale in {"numeric", None}


def _is_weight(weight: float) -> bool:
    return 0 < weight <= MAX_WEIGHT
