"""The rules that involve more than one field of a policy.

Each check is a generator of (path of the field, message). A message names the fault and the remedy and never
contains an attribute value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from itertools import chain
from typing import TypeAlias

from shoal.policy.connection import check_names
from shoal.policy.csv_dialect import check_dialects
from shoal.policy.loader import FieldPath
from shoal.policy.rule_choice import supports_dominance
from shoal.policy.schema import AttributeSection, Document, KafkaSection, PrivacySection, StreamSection
from shoal.policy.value_source import check_sources

__all__ = ["MAX_DELTA", "MAX_EXACT_INTEGER", "check_document"]

Finding: TypeAlias = tuple[FieldPath, str]

MAX_EXACT_INTEGER = 2**53
"""Up to here, every integer has a float64 of its own."""
MAX_DELTA = 10_000_000
"""The buffer of ``delta`` records is allocated at the start. A larger value is most likely a mistake."""
MAX_WINDOW = 1_000_000
"""A restart reads the current window again and counts its subjects in memory."""
_MAX_DELAY_S = 1_000_000_000
"""About 30 years. Times in ms stay far within 64 bits."""
_MIN_STEP, _MAX_STEP = Decimal("1e-15"), Decimal("1e15")
_MIN_K_FOR_DOMINANCE = 3
_QUASI_IDENTIFIER_FIELDS = ("scale", "bounds", "out_of_bounds", "integer", "resolution", "weight", "order", "taxonomy")
_KEY_LIKE = re.compile(r"[0-9a-fA-F]{64}|[A-Za-z0-9+/_-]{43}=?")
"""32 bytes in hexadecimal or base64."""


def check_document(document: Document) -> Iterator[Finding]:
    """Yield every violated rule of a document whose single fields are well formed, as path and message."""
    return chain(
        _check_attributes(document),
        check_sources(document),
        check_dialects(document),
        _check_subject(document),
        _check_normalize(document),
        _check_privacy(document.privacy),
        _check_dominance(document),
        _check_per_subject(document),
        _check_min_population(document),
        _check_t_closeness(document),
        _check_dependence(document),
        _check_stream(document),
        _check_position(document),
        _check_kafka(document.kafka),
    )


# ---------------------------------------------------------------- attributes


def _check_attributes(document: Document) -> Iterator[Finding]:
    if not document.attributes:
        yield ("attributes",), "missing; declare every field of the input"
        return
    for name, attribute in document.attributes.items():
        path = ("attributes", name)
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            yield path, "contains a lone surrogate, which no message can contain; correct the name"
        if attribute.role is None:
            yield (*path, "role"), "missing; give identifier, quasi_identifier, confidential or other"
            continue
        is_clustered = attribute.role in {"quasi_identifier", "steering"}
        check = _check_quasi_identifier if is_clustered else _check_other_role
        yield from check(path, attribute)
    if all(attribute.role not in {"quasi_identifier", None} for attribute in document.attributes.values()):
        yield ("attributes",), "no attribute has the role quasi_identifier, so there is nothing to make k-anonymous"


def _check_quasi_identifier(path: FieldPath, attribute: AttributeSection) -> Iterator[Finding]:
    if attribute.type is not None:
        yield (*path, "type"), "not allowed for a quasi_identifier, whose type follows from its scale; remove type"
    if attribute.publish_unchanged:
        yield (*path, "publish_unchanged"), "a quasi_identifier is never published unchanged; remove it"
    for name in ("order", "taxonomy"):
        if attribute.scale in {"numeric", None} and getattr(attribute, name) is not None:
            yield (*path, name), "only for scale ordinal or nominal; remove it"
    if attribute.scale in {"ordinal", "nominal", "time"}:
        return
    yield from _check_bounds(path, attribute.bounds)
    if attribute.weight is not None and not (attribute.weight > 0 and math.isfinite(attribute.weight)):
        yield (*path, "weight"), "must be a finite number above 0"
    yield from _check_resolution(path, attribute)


def _check_bounds(path: FieldPath, section: list[float | str] | None) -> Iterator[Finding]:
    if section is None:
        return
    bounds = [bound for bound in section if not isinstance(bound, str)]
    if len(bounds) != 2:  # noqa: PLR2004 - low and high
        yield (*path, "bounds"), "must be two numbers: [low, high]"
    elif not all(math.isfinite(bound) and abs(bound) <= MAX_EXACT_INTEGER for bound in bounds):
        yield (*path, "bounds"), "must be finite and from -2^53 to 2^53"
    elif not bounds[0] < bounds[1]:
        yield (*path, "bounds"), "low must be below high"
    elif bounds[1] - bounds[0] < float(_MIN_STEP) * 1000:
        yield (*path, "bounds"), "low and high differ by less than 1e-12; give the attribute in another unit"


def _check_resolution(path: FieldPath, attribute: AttributeSection) -> Iterator[Finding]:
    if attribute.resolution is None:
        return
    if isinstance(attribute.resolution, str):
        yield (*path, "resolution"), "not supported in this version: a resolution in words; give a number"
        return
    try:
        step = Decimal(repr(attribute.resolution))
    except InvalidOperation:  # pragma: no cover - repr of a number always parses
        step = Decimal("nan")
    if not step.is_finite() or step < 0:
        yield (*path, "resolution"), "must be 0 (publish the exact mean) or a finite number above 0"
    elif step != 0 and not _MIN_STEP <= step <= _MAX_STEP:
        yield (*path, "resolution"), "must be 0, or from 1e-15 to 1e15"
    elif attribute.bounds is not None and len(attribute.bounds) == 2:  # noqa: PLR2004
        low, high = map(float, attribute.bounds)
        if math.isfinite(high - low) and step > high - low > 0:
            yield (*path, "resolution"), "is wider than the bounds, so all records would be equal; give a smaller step"


def _check_other_role(path: FieldPath, attribute: AttributeSection) -> Iterator[Finding]:
    for name in _QUASI_IDENTIFIER_FIELDS:
        if getattr(attribute, name) is not None:
            yield (*path, name), f"only for a quasi_identifier; remove it, or change the role from {attribute.role}"
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


def _check_subject(document: Document) -> Iterator[Finding]:
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


def _check_normalize(document: Document) -> Iterator[Finding]:
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


def _is_numeric_quasi_identifier(attribute: AttributeSection) -> bool:
    return attribute.role == "quasi_identifier" and attribute.scale in {"numeric", None}


# ---------------------------------------------------------------- privacy


def _check_privacy(privacy: PrivacySection | None) -> Iterator[Finding]:
    if privacy is None:
        yield ("privacy",), "missing; give at least privacy.k"
        return
    if privacy.k is None:
        yield ("privacy", "k"), "missing; give the minimum number of distinct subjects in a cluster"
    elif not 2 <= privacy.k <= MAX_DELTA:  # noqa: PLR2004 - one subject alone is no cluster
        yield ("privacy", "k"), f"must be from 2 to {MAX_DELTA}"
    yield from _check_max_share(privacy.max_share, privacy.k)
    if privacy.l is not None:
        yield ("privacy", "l"), "not supported in this version; remove it"


def _check_max_share(max_share: float | None, k: int | None) -> Iterator[Finding]:
    path = ("privacy", "max_share")
    if max_share is None:
        return
    if not 0 < max_share <= 1:
        yield path, "must be above 0 and at most 1"
    elif k is not None and k >= 2 and Decimal(repr(max_share)) * k < 1 and max_share < 1 / k:  # noqa: PLR2004
        yield path, "must be at least 1/k: in a cluster of k subjects at least one has this share"


def _check_dominance(document: Document) -> Iterator[Finding]:
    privacy = document.privacy
    if privacy is None or privacy.dominance is None:
        return
    path = ("privacy", "dominance")
    if not 0 < privacy.dominance < 100:  # noqa: PLR2004 - percent
        yield path, "must be a percentage above 0 and below 100"
    elif privacy.k is not None and privacy.k < _MIN_K_FOR_DOMINANCE:
        yield path, "needs privacy.k of at least 3: of two subjects, each can compute what the other contributed"
    for name, attribute in document.attributes.items():
        if _is_numeric_quasi_identifier(attribute) and attribute.bounds is None:
            yield (
                ("attributes", name, "bounds"),
                "missing: privacy.dominance measures contributions from the bounds; give bounds: [low, high]",
            )


def _check_per_subject(document: Document) -> Iterator[Finding]:
    section = None if document.privacy is None else document.privacy.per_subject
    if section is None:
        return
    path = ("privacy", "per_subject")
    if document.subject == "every_record":
        yield path, "limits nothing with subject: every_record; mark the attribute that is the subject, or remove it"
    if section.max is None:
        yield (*path, "max"), "missing; give the maximum number of records of one subject released per window"
    elif section.max < 1:
        yield (*path, "max"), "must be at least 1"
    if section.window is None:
        yield (*path, "window"), "missing; give the length of a window in records of a partition"
    elif not 1 <= section.window <= MAX_WINDOW:
        yield (*path, "window"), f"must be from 1 to {MAX_WINDOW} records"
    elif section.max is not None and section.max >= section.window:
        yield (*path, "window"), "must be longer than max, or nothing is limited"


def _check_min_population(document: Document) -> Iterator[Finding]:
    privacy, stream = document.privacy, document.stream
    if privacy is None or privacy.min_population is None:
        return
    path = ("privacy", "min_population")
    if privacy.k is not None and privacy.min_population < privacy.k:
        yield path, "must be at least k (recommended: 2k); fewer than k subjects are never released"
    elif stream is not None and stream.delta is not None and privacy.min_population > stream.delta:
        yield path, "must be at most delta: the buffer never holds more subjects"


# ---------------------------------------------------------------- options of tables


def _check_t_closeness(document: Document) -> Iterator[Finding]:
    if document.privacy is None or document.privacy.t is None:
        return
    path = ("privacy", "t")
    if not 0 < document.privacy.t < 1:
        yield path, "must be above 0 and below 1: it is a distance between two distributions"
    if not any(attribute.role == "confidential" for attribute in document.attributes.values()):
        yield path, "no attribute is confidential, so there is no distribution to compare; remove it"
    if document.stream is not None:
        yield (
            path,
            "not supported in this version: t-closeness of a stream; remove it, or remove stream to release a table",
        )


def _check_dependence(document: Document) -> Iterator[Finding]:
    if document.steering.dependence == 0:
        return
    path = ("steering", "dependence")
    numeric = [
        a
        for a in document.attributes.values()
        if a.role == "confidential" and a.type in {"integer", "number", "any", None}
    ]
    if not 0 <= document.steering.dependence <= 1:
        yield path, "must be from 0 (only quasi-identifiers count) to 1 (only confidential attributes count)"
    if not numeric:
        yield path, "no confidential attribute is a number, so there is no dependence to preserve; set it to 0"
    if document.privacy is not None and document.privacy.t is not None:
        yield path, "conflicts with privacy.t, which separates equal confidential values; remove one of the two"
    if document.stream is not None:
        yield path, "not supported in this version: dependence in a stream; set it to 0, or remove stream"


# ---------------------------------------------------------------- stream and steering


def _check_stream(document: Document) -> Iterator[Finding]:
    stream = document.stream
    if stream is None:
        return
    yield from _check_delay(stream, document.privacy)
    has_dominance = document.privacy is not None and document.privacy.dominance is not None
    if has_dominance and not supports_dominance(stream.rule):
        yield ("stream", "rule"), "does not support privacy.dominance; use auto or nearest"
    if stream.reveal_order and stream.release != "ordered":
        yield ("stream", "reveal_order"), "only for release: ordered; remove it"
    for name, attribute in document.attributes.items():
        has_step = attribute.bounds is not None or attribute.resolution is not None or attribute.integer
        if _is_numeric_quasi_identifier(attribute) and not has_step:
            yield (
                ("attributes", name, "resolution"),
                (
                    "missing: a stream without bounds learns the range of the values, but not the step of published "
                    "values; give resolution (0 publishes the exact mean), integer: true, or bounds: [low, high]"
                ),
            )


def _check_delay(stream: StreamSection, privacy: PrivacySection | None) -> Iterator[Finding]:
    if stream.delta is None:
        yield ("stream", "delta"), "missing; give the maximum delay in records"
    elif not 1 <= stream.delta <= MAX_DELTA:
        yield ("stream", "delta"), f"must be from 1 to {MAX_DELTA}"
    elif privacy is not None and privacy.k is not None and stream.delta < privacy.k - 1:
        yield ("stream", "delta"), "must be at least k - 1, or no cluster can reach k subjects"
    if stream.max_delay_s is not None and not 0 < stream.max_delay_s <= _MAX_DELAY_S:
        yield ("stream", "max_delay_s"), f"must be above 0 and at most {_MAX_DELAY_S} seconds"


def _check_position(document: Document) -> Iterator[Finding]:
    path, position = ("steering", "position"), document.steering.position
    if not isinstance(position, dict):
        if not (position >= 0 and math.isfinite(position)):
            yield path, "must be a finite weight, 0 or more"
    elif set(position) != {"target_span"}:
        yield path, "must be a weight, or {target_span: S} with the mean excess span to hold, in records"
    elif not 0 <= position["target_span"] <= MAX_DELTA:
        yield (*path, "target_span"), f"must be a number of records from 0 to {MAX_DELTA}"
    elif document.stream is None:
        yield path, "a table has no order to preserve; give a weight, or add a stream section"


# ---------------------------------------------------------------- Kafka


def _check_kafka(kafka: KafkaSection | None) -> Iterator[Finding]:
    if kafka is None:
        return
    if kafka.metadata_key is not None:
        yield (
            ("kafka", "metadata_key"),
            "a policy must not contain a key; put the key into a file and give its path in kafka.metadata_key_file",
        )
    if _KEY_LIKE.fullmatch(kafka.metadata_key_file or ""):
        yield ("kafka", "metadata_key_file"), "looks like a key; put the key into a file and give its path here"
    for name in KafkaSection.model_fields:
        if getattr(kafka, name) == "":
            yield ("kafka", name), "must not be empty; give a value or remove the field"
    yield from check_names(kafka)
