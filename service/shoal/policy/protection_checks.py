"""The rules for confidential attributes: l-diversity, t-closeness, the largest share of a value, and dependence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from shoal.policy.diversity import resolve_diversity
from shoal.policy.folded_text import has_repeated_value
from shoal.policy.loader import FieldPath
from shoal.policy.scale_checks import SCALE_FIELDS, check_numeric_bounds, check_order
from shoal.policy.schema import AttributeSection, DiversitySection, Document
from shoal.policy.taxonomy import Taxonomy

__all__ = ["check_confidential", "check_leaves", "check_protection", "is_number"]

Finding: TypeAlias = tuple[FieldPath, str]

_ALLOWED_FIELDS = ("scale", "bounds", "order", "taxonomy")
"""Fields of quasi-identifiers that a confidential attribute can have, too."""
_SCALE_OF = {"bounds": "numeric", "order": "ordinal", "taxonomy": "nominal"}
_TYPES_OF = {
    "numeric": {"integer", "number", "any", None},
    "ordinal": {"string", "integer", "number", "boolean", "any", None},
    "nominal": {"string", "integer", "number", "boolean", "any", "json", None},
}
"""The types of a confidential attribute for which a scale has a meaning."""
_MIN_DISTINCT = 2
_ROUNDING = 1e-9
"""Allowance for a share such as 0.3333333333 for a third."""


def check_confidential(path: FieldPath, attribute: AttributeSection, document: Document) -> Iterator[Finding]:
    """Check the fields of a confidential attribute that concern its scale."""
    scale = attribute.scale
    for name in SCALE_FIELDS:
        if getattr(attribute, name) is not None and name not in _ALLOWED_FIELDS:
            yield (*path, name), "only for a quasi_identifier; remove it, or change the role from confidential"
    if scale == "time":
        yield (
            (*path, "scale"),
            (
                "a confidential attribute has no scale time; give its times as numbers with scale: numeric, or use "
                "scale: nominal"
            ),
        )
        return
    yield from _check_scale(path, attribute)
    if scale == "ordinal":
        yield from check_order(path, attribute.order, document)
        if has_repeated_value(map(str, attribute.order or ()), attribute):
            yield (*path, "order"), "names a value twice, such as 1 and 1.0; remove one"
    yield from _check_bounds(path, attribute, document)


def _check_scale(path: FieldPath, attribute: AttributeSection) -> Iterator[Finding]:
    scale = attribute.scale
    for name, needed in _SCALE_OF.items():
        if getattr(attribute, name) is not None and scale != needed and (name, scale) != ("bounds", None):
            yield (*path, name), f"only for scale {needed}; remove it, or give scale: {needed}"
    if scale is not None and attribute.type not in _TYPES_OF[scale]:
        yield (*path, "scale"), f"has no meaning for type {attribute.type}; remove it, or change the type"
    if attribute.taxonomy is not None and attribute.type == "json":
        yield (*path, "taxonomy"), "type json has no names; remove it, or change the type"


def _check_bounds(path: FieldPath, attribute: AttributeSection, document: Document) -> Iterator[Finding]:
    if attribute.bounds is None:
        return
    if document.stream is None or document.steering.dependence == 0:
        yield (
            (*path, "bounds"),
            (
                "of a confidential attribute, only for steering.dependence in a stream, where they scale distances; "
                "remove it, or change the role from confidential"
            ),
        )
    elif attribute.type not in _TYPES_OF["numeric"]:
        yield (*path, "bounds"), f"only for numbers; remove it, or change the type from {attribute.type}"
    else:
        yield from check_numeric_bounds(path, attribute.bounds)


def check_leaves(document: Document, taxonomies: Mapping[str, Taxonomy]) -> Iterator[Finding]:
    """Check that no two leaves in the taxonomy of a confidential attribute mean the same value."""
    for name, taxonomy in taxonomies.items():
        attribute = document.attributes[name]
        if attribute.role == "confidential" and has_repeated_value(taxonomy.leaves, attribute):
            yield ("attributes", name, "taxonomy"), "names a value twice, such as 1 and 1.0; remove one"


def is_number(attribute: AttributeSection) -> bool:
    """Return whether a confidential attribute is declared as a number: its place in a distance has a meaning."""
    if attribute.scale is not None:
        return attribute.scale == "numeric"
    return attribute.type in {"integer", "number"} or attribute.bounds is not None


def check_protection(document: Document) -> Iterator[Finding]:
    """Check which confidential attributes are protected, and how."""
    privacy = document.privacy
    if privacy is not None:
        yield from _check_diversity(privacy.l, document)
        yield from _check_value_share(document)
        yield from _check_t(document)
    yield from _check_marks(document)
    yield from _check_dependence(document)


def _has_confidential(document: Document) -> bool:
    return any(attribute.role == "confidential" for attribute in document.attributes.values())


def _check_diversity(section: DiversitySection | None, document: Document) -> Iterator[Finding]:
    if section is None:
        return
    path = ("privacy", "l")
    given = [name for name in DiversitySection.model_fields if getattr(section, name) is not None]
    if len(given) != 1:
        yield path, "must be one of: an integer, {distinct: L}, {p_sensitive: L}, {entropy: L}, {recursive: [C, L]}"
        return
    (form,) = given
    yield from _check_form(path, form, getattr(section, form))
    if not _has_confidential(document):
        yield path, "no attribute is confidential, so there are no values to count; remove it"
    diversity, delta = resolve_diversity(section), _delta_of(document)
    if diversity is None:
        return
    if delta is not None and diversity.l > delta + 1:
        yield path, "must be at most delta + 1: the buffer never holds more records"
    for name, attribute in _protected(document):
        if (most := _most_values(attribute)) is not None and diversity.l > most:
            yield path, f"attributes.{name} has at most {most} values, a missing one included, so no cluster has l"


def _check_form(path: FieldPath, form: str, values: Any) -> Iterator[Finding]:  # noqa: ANN401 - as the form requires
    if form == "recursive":
        yield from _check_recursive(path, values)
    elif form == "entropy" and not (values > 1 and math.isfinite(values)):
        yield path, "must be a number above 1: l equally frequent values have the entropy log(l)"
    elif form != "entropy" and values < _MIN_DISTINCT:
        yield path, "must be at least 2: every cluster has one value"


def _most_values(attribute: AttributeSection) -> int | None:
    """Return how many different values an attribute can have, a missing one included; None without a limit.

    Only ``t`` rejects a value that is not in the order, so an order sets no limit.
    """
    return 3 if attribute.type == "boolean" else None


def _check_recursive(path: FieldPath, values: list[float]) -> Iterator[Finding]:
    if len(values) != 2:  # noqa: PLR2004 - c and l
        yield path, "must be two numbers: [c, l]"
    elif not (values[0] > 0 and math.isfinite(values[0])):
        yield path, "c, the first number, must be above 0"
    elif not (values[1] >= _MIN_DISTINCT and float(values[1]).is_integer()):
        yield path, "l, the second number, must be an integer of at least 2"


def _delta_of(document: Document) -> int | None:
    """Return the maximum delay in records; None for a table, or if it has a fault of its own."""
    delta = None if document.stream is None else document.stream.delta
    return delta if delta is not None and delta >= 1 else None


def _check_value_share(document: Document) -> Iterator[Finding]:
    share = None if document.privacy is None else document.privacy.max_value_share
    if share is None:
        return
    path = ("privacy", "max_value_share")
    if not 0 < share <= 1:
        yield path, "must be above 0 and at most 1"
    elif (delta := _delta_of(document)) is not None and share * (delta + 1) < 1:
        yield path, "must be at least 1 / (delta + 1): the buffer never holds more records"
    for name, attribute in _protected(document):
        if share > 0 and (most := _most_values(attribute)) is not None and share * most < 1 - _ROUNDING:
            why = f"attributes.{name} has at most {most} values, a missing one included, so one has a larger share"
            yield path, f"must be at least 1 / {most}: {why}"
    if not _has_confidential(document):
        yield path, "no attribute is confidential, so there are no values to count; remove it"


def _check_t(document: Document) -> Iterator[Finding]:
    t = None if document.privacy is None else document.privacy.t
    if t is None:
        return
    path = ("privacy", "t")
    if not 0 < t < 1:
        yield path, "must be above 0 and below 1: it is a distance between two distributions"
    if not _has_confidential(document):
        yield path, "no attribute is confidential, so there is no distribution to compare; remove it"
    if document.stream is None:
        return
    for name, attribute in _protected(document):
        if attribute.reference is None:
            yield (
                ("attributes", name, "reference"),
                (
                    "missing: in a stream, privacy.t compares each cluster with a distribution that the policy gives; "
                    "write one from a sample with shoal reference POLICY -i SAMPLE -o FILE, and name the file here"
                ),
            )


def _protected(document: Document) -> list[tuple[str, AttributeSection]]:
    """Return the protected attributes: the marked ones, or all confidential ones if none is marked."""
    confidential = [(name, a) for name, a in document.attributes.items() if a.role == "confidential"]
    return [(name, a) for name, a in confidential if a.protect] or confidential


def _check_marks(document: Document) -> Iterator[Finding]:
    """Check ``protect`` and ``reference``."""
    privacy = document.privacy
    has_t = privacy is not None and privacy.t is not None
    has_share = privacy is not None and privacy.max_value_share not in {None, 1}
    is_protecting = has_t or has_share or (privacy is not None and privacy.l is not None)
    protected = {name for name, _ in _protected(document)}
    for name, attribute in document.attributes.items():
        path = ("attributes", name)
        for field in ("protect", "reference"):
            if getattr(attribute, field) and attribute.role not in {"confidential", None}:
                yield (
                    (*path, field),
                    f"only for a confidential attribute; remove it, or change the role from {attribute.role}",
                )
        if attribute.role != "confidential":
            continue
        if attribute.protect and not is_protecting:
            yield (
                (*path, "protect"),
                "protects nothing without privacy.l, privacy.t or privacy.max_value_share; give one of them",
            )
        if attribute.reference is not None and not has_t:
            yield (
                (*path, "reference"),
                "only for privacy.t, which compares clusters with it; give privacy.t, or remove it",
            )
        elif attribute.reference is not None and name not in protected:
            yield (
                (*path, "reference"),
                "privacy.t applies to the attributes with protect: true; set it here, too, or remove the reference",
            )


def _check_dependence(document: Document) -> Iterator[Finding]:
    if document.steering.dependence == 0:
        return
    path = ("steering", "dependence")
    confidential = {name: a for name, a in document.attributes.items() if a.role == "confidential"}
    numeric = [a for a in confidential.values() if a.type in _TYPES_OF["numeric"] and a.scale in {"numeric", None}]
    if not 0 <= document.steering.dependence <= 1:
        yield path, "must be from 0 (only quasi-identifiers count) to 1 (only confidential attributes count)"
    if not numeric:
        yield path, "no confidential attribute is a number, so there is no dependence to preserve; set it to 0"
    if document.privacy is not None and document.privacy.t is not None:
        yield path, "conflicts with privacy.t, which separates equal confidential values; remove one of the two"
    if document.stream is None or not numeric:
        return
    without = [name for name, a in confidential.items() if is_number(a) and a.bounds is None]
    for name in without:
        yield (
            ("attributes", name, "bounds"),
            (
                "missing: steering.dependence in a stream needs the range of each confidential number, which is not "
                "known before the stream ends; give bounds: [low, high], which scale distances and change no value"
            ),
        )
    if not any(map(is_number, confidential.values())):
        yield (
            path,
            "no confidential attribute is declared as a number; in a stream give one bounds: [low, high]",
        )
