"""Rules of a policy that one field alone cannot show. Each rule is a generator of (path, message)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from itertools import chain
from typing import TypeAlias

from shoal.policy.csv_dialect import check_dialects
from shoal.policy.loader import FieldPath
from shoal.policy.privacy_validation import option_rules
from shoal.policy.rule_choice import supports_dominance
from shoal.policy.schema import AttributeSection, Document, KafkaSection, PrivacySection, StreamSection
from shoal.policy.table_validation import table_rules
from shoal.policy.value_source import check_sources

__all__ = ["MAX_DELTA", "MAX_EXACT_INTEGER", "check_document"]

Finding: TypeAlias = tuple[FieldPath, str]

_QUASI_ONLY = ("scale", "bounds", "out_of_bounds", "integer", "resolution", "weight", "order", "taxonomy")
_KEY_LIKE = re.compile(r"[0-9a-fA-F]{64}|[A-Za-z0-9+/_-]{43}=?")
MAX_EXACT_INTEGER = 2**53
MAX_DELTA = 10_000_000
"""The buffer is allocated at once: more would rather be a mistake."""
_LONGEST_DELAY_S = 1_000_000_000
"""30 years; times in ms stay far within 64 bits."""
_FINEST, _COARSEST = Decimal("1e-15"), Decimal("1e15")


def check_document(document: Document) -> Iterator[Finding]:
    """All that is wrong with a document whose single fields are well formed."""
    return chain(
        _attribute_rules(document),
        check_sources(document),
        check_dialects(document),
        _subject_rules(document),
        _privacy_rules(document.privacy),
        option_rules(document),
        table_rules(document),
        _stream_rules(document),
        _steering_rules(document),
        _kafka_rules(document.kafka),
    )


def _attribute_rules(document: Document) -> Iterator[Finding]:
    if not document.attributes:
        yield ("attributes",), "missing: declare every field of the input"
        return
    for name, attribute in document.attributes.items():
        path = ("attributes", name)
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            yield path, "holds half a character (a lone surrogate): no message can have such a name"
        if attribute.role is None:
            yield (*path, "role"), "missing: identifier, quasi_identifier, confidential or other"
            continue
        rules = _quasi_rules if attribute.role == "quasi_identifier" else _kept_rules
        yield from rules(path, attribute)
    if all(attribute.role not in {"quasi_identifier", None} for attribute in document.attributes.values()):
        yield ("attributes",), "no quasi_identifier: there is nothing to make k-anonymous"


def _quasi_rules(path: FieldPath, attribute: AttributeSection) -> Iterator[Finding]:
    if attribute.type is not None:
        yield (*path, "type"), "a quasi_identifier is a number by its scale; remove type"
    if attribute.publish_unchanged:
        yield (*path, "publish_unchanged"), "a quasi_identifier is never published unchanged; remove it"
    if attribute.scale in {"ordinal", "nominal", "time"}:
        yield (*path, "scale"), f"not yet: scale '{attribute.scale}' is refused until it exists; use numeric"
        return
    for name in ("order", "taxonomy"):
        if getattr(attribute, name) is not None:
            yield (*path, name), "only for ordinal or nominal scales; remove it"
    yield from _bounds_rules(path, attribute.bounds)
    if attribute.weight is not None and not (attribute.weight > 0 and math.isfinite(attribute.weight)):
        yield (*path, "weight"), "must be a finite number above 0"
    yield from _resolution_rules(path, attribute)


def _bounds_rules(path: FieldPath, bounds: list[float] | None) -> Iterator[Finding]:
    if bounds is None:
        return
    if len(bounds) != 2:  # noqa: PLR2004 - low and high
        yield (*path, "bounds"), "must be [low, high]"
    elif not all(math.isfinite(bound) and abs(bound) <= MAX_EXACT_INTEGER for bound in bounds):
        yield (*path, "bounds"), "must be finite and within +-2^53"
    elif not bounds[0] < bounds[1]:
        yield (*path, "bounds"), "low must be below high"
    elif bounds[1] - bounds[0] < float(_FINEST) * 1000:
        yield (*path, "bounds"), "are closer together than 1e-12: give the attribute in another unit"


def _resolution_rules(path: FieldPath, attribute: AttributeSection) -> Iterator[Finding]:
    if attribute.resolution is None:
        return
    if isinstance(attribute.resolution, str):
        yield (*path, "resolution"), "not yet: a resolution in words belongs to scale time; give a number"
        return
    try:
        size = Decimal(repr(attribute.resolution))
    except InvalidOperation:  # pragma: no cover - repr of a number always parses
        size = Decimal("nan")
    if not size.is_finite() or size < 0:
        yield (*path, "resolution"), "must be 0 (publish the exact mean) or a finite number above 0"
    elif size != 0 and not _FINEST <= size <= _COARSEST:
        yield (*path, "resolution"), "must be 0, or between 1e-15 and 1e15"
    elif attribute.bounds is not None and len(attribute.bounds) == 2:  # noqa: PLR2004
        low, high = attribute.bounds
        if math.isfinite(high - low) and size > high - low > 0:
            yield (*path, "resolution"), "is wider than the bounds: every record would look the same"


def _kept_rules(path: FieldPath, attribute: AttributeSection) -> Iterator[Finding]:
    for name in _QUASI_ONLY:
        if getattr(attribute, name) is not None:
            yield (*path, name), f"only for quasi_identifiers; remove it, or change role from {attribute.role}"
    if attribute.role == "other" and not attribute.publish_unchanged:
        yield (
            (*path, "publish_unchanged"),
            (
                "missing: role other publishes the field unchanged, and whoever knows it can link the record: say "
                "publish_unchanged: true if that is meant, or declare it a quasi_identifier or an identifier"
            ),
        )
    if attribute.role == "identifier" and attribute.publish_unchanged:
        yield (*path, "publish_unchanged"), "an identifier is never published; remove it"


def _subject_rules(document: Document) -> Iterator[Finding]:
    marked = [name for name, attribute in document.attributes.items() if attribute.subject]
    for name in marked:
        if document.attributes[name].role not in {"identifier", None}:
            yield ("attributes", name, "subject"), "the subject is never published: its role must be identifier"
    if len(marked) > 1:
        for name in marked[1:]:
            yield ("attributes", name, "subject"), f"a second subject: attributes.{marked[0]} is marked already"
    if marked and document.subject == "every_record":
        yield ("subject",), f"every_record contradicts attributes.{marked[0]}.subject: keep one of them"
    if not marked and document.subject is None:
        yield (
            ("attributes",),
            (
                "whose records are these? mark exactly one attribute with subject: true, "
                "or say subject: every_record at the top level"
            ),
        )


def _privacy_rules(privacy: PrivacySection | None) -> Iterator[Finding]:
    if privacy is None:
        yield ("privacy",), "missing: give at least privacy.k"
        return
    if privacy.k is None:
        yield ("privacy", "k"), "missing: the smallest number of people in a cluster"
    elif not 2 <= privacy.k <= MAX_DELTA:  # noqa: PLR2004 - one person alone is no cluster
        yield ("privacy", "k"), f"must be at least 2, and at most {MAX_DELTA}"
    yield from _share_rules(privacy.max_share, privacy.k)
    if privacy.l is not None:
        yield ("privacy", "l"), "not yet: privacy.l is refused until it can be kept; remove it"


def _share_rules(max_share: float | None, k: int | None) -> Iterator[Finding]:
    path = ("privacy", "max_share")
    if max_share is None:
        return
    if not 0 < max_share <= 1:
        yield path, "must be above 0 and at most 1"
    elif k is not None and k >= 2 and Decimal(repr(max_share)) * k < 1 and max_share < 1 / k:  # noqa: PLR2004
        yield path, "must be at least 1/k: k people cannot each own less"


def _stream_rules(document: Document) -> Iterator[Finding]:
    stream = document.stream
    if stream is None:
        return
    yield from _delay_rules(stream, document.privacy)
    has_dominance = document.privacy is not None and document.privacy.dominance is not None
    if has_dominance and not supports_dominance(stream.rule):
        yield ("stream", "rule"), "privacy.dominance is kept by rule nearest only; use auto or nearest"
    if stream.reveal_order and stream.release != "ordered":
        yield ("stream", "reveal_order"), "speaks of release: ordered only; remove it"
    for name, attribute in document.attributes.items():
        numeric = attribute.role == "quasi_identifier" and attribute.scale in {"numeric", None}
        if numeric and attribute.bounds is None and attribute.resolution is None and not attribute.integer:
            yield (
                ("attributes", name, "resolution"),
                (
                    "missing: without bounds a stream learns the range, but the step of published values must stand "
                    "here: give resolution (0 publishes the exact mean), integer: true, or bounds: [low, high]"
                ),
            )


def _delay_rules(stream: StreamSection, privacy: PrivacySection | None) -> Iterator[Finding]:
    if stream.delta is None:
        yield ("stream", "delta"), "missing: the largest delay, in records"
    elif not 1 <= stream.delta <= MAX_DELTA:
        yield ("stream", "delta"), f"must be from 1 to {MAX_DELTA}"
    elif privacy is not None and privacy.k is not None and stream.delta < privacy.k - 1:
        yield ("stream", "delta"), "must be at least k - 1, or no cluster could ever be filled"
    if stream.max_delay_s is not None and not 0 < stream.max_delay_s <= _LONGEST_DELAY_S:
        yield ("stream", "max_delay_s"), f"must be a number of seconds above 0, at most {_LONGEST_DELAY_S}"


def _steering_rules(document: Document) -> Iterator[Finding]:
    steering = document.steering
    if isinstance(steering.position, dict):
        yield from _target_rules(document, steering.position)
    elif not (steering.position >= 0 and math.isfinite(steering.position)):
        yield ("steering", "position"), "must be a finite weight, 0 or more"


def _target_rules(document: Document, position: dict[str, float]) -> Iterator[Finding]:
    path = ("steering", "position")
    if set(position) != {"target_span"}:
        yield path, "must be a weight, or {target_span: S}, the mean excess span to hold, in records"
    elif not 0 <= position["target_span"] <= MAX_DELTA:
        yield (*path, "target_span"), f"must be a number of records from 0 to {MAX_DELTA}"
    elif document.stream is None:
        yield path, "a table has no order to keep: give a weight, or a stream section"


def _kafka_rules(kafka: KafkaSection | None) -> Iterator[Finding]:
    if kafka is None:
        return
    if kafka.metadata_key is not None:
        yield (
            ("kafka", "metadata_key"),
            "a key does not belong into a policy: put it into a file and name that in kafka.metadata_key_file",
        )
    if _KEY_LIKE.fullmatch(kafka.metadata_key_file or ""):
        yield ("kafka", "metadata_key_file"), "looks like a key: put it into a file and name that here"
    seen: dict[str, str] = {}
    for name in ("input", "output", "quarantine", "clusters", "evidence"):
        topic = getattr(kafka, name)
        if topic is None:
            continue
        if not topic:
            yield ("kafka", name), "must not be empty"
        elif topic in seen:
            yield ("kafka", name), f"is the same topic as kafka.{seen[topic]}: each needs its own"
        seen[topic] = name
