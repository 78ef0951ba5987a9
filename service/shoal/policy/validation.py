"""The rules that involve more than one field of a policy.

Each check is a generator of (path of the field, message). A message names the fault and the remedy and never
contains an attribute value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from decimal import Decimal
from itertools import chain
from typing import TypeAlias

from shoal.policy.attribute_checks import (
    check_attributes,
    check_normalize,
    check_steering,
    check_subject,
    is_numeric_quasi_identifier,
)
from shoal.policy.connection import check_names
from shoal.policy.csv_dialect import check_dialects
from shoal.policy.loader import FieldPath
from shoal.policy.message_checks import check_messages
from shoal.policy.protection_checks import check_protection
from shoal.policy.rule_choice import supports_dominance
from shoal.policy.scale_checks import check_missing, check_missing_values
from shoal.policy.schema import Document, KafkaSection, PrivacySection, StreamSection
from shoal.policy.value_source import check_sources

__all__ = ["MAX_DELTA", "check_document"]

Finding: TypeAlias = tuple[FieldPath, str]

MAX_DELTA = 10_000_000
"""The buffer of ``delta`` records is allocated at the start. A larger value is most likely a mistake."""
MAX_WINDOW = 1_000_000
"""A restart reads the current window again and counts its subjects in memory."""
_MAX_DELAY_S = 1_000_000_000
"""About 30 years. Times in ms stay far within 64 bits."""
_MIN_K_FOR_DOMINANCE = 3
_KEY_LIKE = re.compile(r"[0-9a-fA-F]{64}|[A-Za-z0-9+/_-]{43}=?")
"""32 bytes in hexadecimal or base64."""


def check_document(document: Document) -> Iterator[Finding]:
    """Yield every violated rule of a document whose single fields are well formed, as path and message."""
    return chain(
        check_attributes(document),
        check_sources(document),
        check_messages(document),
        check_missing(document),
        check_missing_values(document),
        check_dialects(document),
        check_subject(document),
        check_normalize(document),
        _check_privacy(document.privacy),
        _check_dominance(document),
        _check_per_subject(document),
        _check_min_population(document),
        check_protection(document),
        _check_stream(document),
        _check_scaling(document),
        _check_position(document),
        check_steering(document),
        _check_kafka(document.kafka),
    )


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
    if not any(map(is_numeric_quasi_identifier, document.attributes.values())):
        yield path, "limits nothing, because no quasi-identifier is numeric; remove it"
    for name, attribute in document.attributes.items():
        if is_numeric_quasi_identifier(attribute) and attribute.bounds is None:
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


def _check_scaling(document: Document) -> Iterator[Finding]:
    """Check that a stream knows how to scale distances in each attribute, and the step of what it publishes."""
    by_bounds = document.steering.scaling == "bounds"
    if document.stream is None:
        if by_bounds:
            yield ("steering", "scaling"), "only for streams; remove it, or add a stream section"
        return
    for name, attribute in document.attributes.items():
        is_unbounded = attribute.bounds is None and attribute.scale in {"numeric", "time", None}
        if is_unbounded and attribute.role == "steering":
            yield (
                ("attributes", name, "bounds"),
                "missing: a stream scales a steering attribute by its bounds; give bounds: [low, high]",
            )
        if is_unbounded and by_bounds and attribute.role == "quasi_identifier":
            yield (
                ("attributes", name, "bounds"),
                "missing: steering.scaling is bounds; give bounds: [low, high], or remove scaling",
            )
            continue
        has_step = attribute.bounds is not None or attribute.resolution is not None or attribute.integer
        if is_numeric_quasi_identifier(attribute) and not has_step:
            yield (
                ("attributes", name, "resolution"),
                (
                    "missing: a stream learns how far values are spread, but not the step of published values; give "
                    "resolution (0 publishes the exact mean), integer: true, or bounds: [low, high]"
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
