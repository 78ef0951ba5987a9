"""The resolved policy: every default filled in, nothing left to decide. Read it, never change it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from decimal import ROUND_DOWN, Decimal
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, Literal, Self

from shoal.errors import Fault, PolicyError
from shoal.policy.csv_dialect import CsvDialect, dialects
from shoal.policy.loader import FieldPath, Lines, line_of, read_document
from shoal.policy.rule_choice import explain_rule, resolve_rule
from shoal.policy.schema import (
    AttributeSection,
    Document,
    FieldType,
    KafkaSection,
    PerSubjectSection,
    Role,
    Scale,
    StreamSection,
)
from shoal.policy.validation import MAX_EXACT_INTEGER, check_document
from shoal.policy.value_source import VALUE, MessagePart, Source

__all__ = ["Attribute", "PerSubject", "Policy", "Stream"]

DEFAULT_MAX_SHARE = 0.5
SECRETS = {"sasl_password", "ssl_password", "metadata_key"}
DEFAULT_STEPS = 200
"""A numeric attribute is published on a grid of about this many steps between its bounds."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One declared field.

    ``bounds``, ``clip``, ``integer``, ``resolution`` and ``weight`` speak of quasi-identifiers only;
    ``type`` of all others; ``publish_unchanged`` of what is kept: its owner knows that a record can be found by it.
    ``source`` is the part of a message it is read from. ``limits`` are the bounds; a stream without them takes what a
    float64 tells apart in steps of 1. ``resolution`` is what the policy says; None means the default, which differs
    between streams and tables (`publication_step`).
    """

    name: str
    role: Role
    subject: bool = False
    scale: Scale = Scale.NUMERIC
    bounds: tuple[float, float] | None = None
    clip: bool = True
    integer: bool = False
    resolution: Decimal | None = None
    weight: float = 1.0
    type: FieldType = "any"
    source: Source = VALUE
    publish_unchanged: bool = False
    limits: tuple[float, float] = (-inf, inf)

    def publication_step(self, *, table: bool = False) -> Decimal:
        """Step of the published values (original units; 0: the exact mean), from the policy alone."""
        if self.resolution is not None:
            return self.resolution
        if table:
            return Decimal(0)
        if self.integer:
            return Decimal(1)
        if self.bounds is None:
            return Decimal(0)
        low, high = (Decimal(repr(bound)) for bound in self.bounds)
        return _one_two_five((high - low) / DEFAULT_STEPS)


@dataclass(frozen=True, slots=True)
class Stream:
    """How long a record may wait (``delta`` in records, ``max_delay_s`` in seconds) and the rule, never ``auto``.

    ``reason`` says why it is that rule where the policy left it to ``auto``; it decides nothing.
    """

    delta: int
    max_delay_s: float | None
    rule: str
    release: Literal["cluster", "ordered"]
    reveal_order: bool = False
    reason: str = ""

    @property
    def is_ordered(self) -> bool:
        """Whether each record leaves at its own expiry, in the order of the input."""
        return self.release == "ordered"


@dataclass(frozen=True, slots=True)
class PerSubject:
    """At most ``max`` records of one subject leave per window.

    Window j of a partition are its offsets from ``j * window`` to ``(j + 1) * window - 1`` (in files: numbers of
    records).
    """

    max: int
    window: int


@dataclass(frozen=True)
class Policy:
    """What is protected and how strongly.

    ``position`` is the weight of the position; it counts for nothing where there is a ``target_span`` to follow.
    Made by `load` or `from_document` only, so that an object of this class has been checked.
    """

    attributes: tuple[Attribute, ...]
    undeclared: Literal["quarantine", "drop"]
    k: int
    max_share: float
    stream: Stream | None
    position: float
    kafka: KafkaSection | None
    csv: CsvDialect
    csv_output: CsvDialect
    dominance: float | None = None
    per_subject: PerSubject | None = None
    min_population: int | None = None
    t: float | None = None
    dependence: float = 0.0
    target_span: float | None = None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read and check a policy file (YAML, or TOML by its suffix).

        Raises
        ------
        PolicyError
            With every fault at once, each with its line.
        InputError
            The file cannot be read.
        """
        document, faults, lines = read_document(Path(path))
        return cls.from_document(document, faults, lines, source=str(path))

    @classmethod
    def from_document(
        cls, document: Document, faults: list[Fault] | None = None, lines: Lines | None = None, source: str = "policy"
    ) -> Self:
        """Check the rules over a document and resolve it."""
        found = list(faults or [])
        known = [fault.path for fault in found]
        for path, message in check_document(document):
            # A field that was refused already is missing from the document; that it is missing is no news.
            if not any(_covers(path, other) for other in known):
                found.append(Fault(path, message, line_of(path, lines or {})))
        if found:
            raise PolicyError(found, source)
        return cls._resolve(document)

    @classmethod
    def _resolve(cls, document: Document) -> Self:
        privacy, position = document.privacy, document.steering.position
        if privacy is None or privacy.k is None:  # refused by the rules
            raise PolicyError([Fault((), "incomplete")])
        max_share = DEFAULT_MAX_SHARE if privacy.max_share is None else float(privacy.max_share)
        return cls(
            attributes=tuple(_resolved(name, section, document) for name, section in document.attributes.items()),
            undeclared=document.undeclared,
            k=privacy.k,
            max_share=max_share,
            stream=_stream(document.stream, privacy.k, has_dominance=privacy.dominance is not None),
            position=0.0 if isinstance(position, dict) else float(position),
            target_span=float(position["target_span"]) if isinstance(position, dict) else None,
            kafka=document.kafka,
            dominance=_optional_float(privacy.dominance),
            per_subject=_per_subject(privacy.per_subject),
            min_population=privacy.min_population,
            t=_optional_float(privacy.t),
            dependence=float(document.steering.dependence),
            csv=dialects(document)[0],
            csv_output=dialects(document)[1],
        )

    @cached_property
    def quasi_identifiers(self) -> tuple[Attribute, ...]:
        """Attributes that are made equal within a cluster, in the policy's order."""
        return tuple(a for a in self.attributes if a.role is Role.QUASI_IDENTIFIER)

    @cached_property
    def passthrough(self) -> tuple[Attribute, ...]:
        """Attributes published as they are (confidential and other), in the policy's order."""
        return tuple(a for a in self.attributes if a.role in {Role.CONFIDENTIAL, Role.OTHER})

    @cached_property
    def confidential(self) -> tuple[Attribute, ...]:
        """Attributes that are published as they are and that nobody should be able to guess of a person."""
        return tuple(a for a in self.passthrough if a.role is Role.CONFIDENTIAL)

    @cached_property
    def published(self) -> tuple[Attribute, ...]:
        """Attributes of the output, in its order."""
        return tuple(a for a in self.attributes if a.role is not Role.IDENTIFIER)

    @cached_property
    def value_attributes(self) -> tuple[Attribute, ...]:
        """Attributes that are fields of the message's value, in the policy's order."""
        return tuple(a for a in self.attributes if a.source.part is MessagePart.VALUE)

    @cached_property
    def envelope_attributes(self) -> tuple[Attribute, ...]:
        """Attributes read from what stands around the value: key, headers, timestamp; in the policy's order."""
        return tuple(a for a in self.attributes if a.source.part is not MessagePart.VALUE)

    @cached_property
    def subject(self) -> Attribute | None:
        """The attribute that names the person; None where every record is a person of its own."""
        return next((a for a in self.attributes if a.subject), None)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over attributes, privacy, stream and steering; not over kafka and csv."""
        content = {key: value for key, value in self.resolved().items() if key not in {"kafka", "csv"}}
        return hashlib.sha256(json.dumps(content, ensure_ascii=True).encode()).hexdigest()

    def require_stream(self, source: str = "policy") -> Stream:
        """Return the stream section; a policy without one cannot run a stream.

        Raises
        ------
        PolicyError
            If the section is missing.
        """
        if self.stream is None:
            raise PolicyError([Fault(("stream",), "missing: a stream needs at least stream.delta")], source)
        return self.stream

    def resolved(self) -> dict[str, Any]:
        """Every setting with its default, as plain values; secrets are left out."""
        content: dict[str, Any] = {
            "attributes": {a.name: _described(a, table=self.stream is None) for a in self.attributes},
            "undeclared": self.undeclared,
            "privacy": self._privacy(),
            "steering": {"position": self._position(), "dependence": self.dependence},
        }
        if self.subject is None:
            content["subject"] = "every_record"
        if self.stream is not None:
            content["stream"] = {
                "delta": self.stream.delta,
                "max_delay_s": self.stream.max_delay_s,
                "rule": self.stream.rule,
                "release": self.stream.release,
            }
            if self.stream.is_ordered:
                content["stream"]["reveal_order"] = self.stream.reveal_order
        if (self.csv, self.csv_output) != (CsvDialect(), CsvDialect()):
            content["csv"] = asdict(self.csv) | {"output": asdict(self.csv_output)}
        if self.kafka is not None:
            content["kafka"] = self.kafka.model_dump(exclude_none=True, exclude=SECRETS)
        return content

    def _position(self) -> float | dict[str, float]:
        return self.position if self.target_span is None else {"target_span": self.target_span}

    def _privacy(self) -> dict[str, Any]:
        """``privacy`` as plain values; options that are not asked for are left out."""
        about: dict[str, Any] = {"k": self.k, "max_share": self.max_share}
        if self.dominance is not None:
            about["dominance"] = self.dominance
        if self.per_subject is not None:
            about["per_subject"] = {"max": self.per_subject.max, "window": self.per_subject.window}
        if self.min_population is not None:
            about["min_population"] = self.min_population
        if self.t is not None:
            about["t"] = self.t
        return about


def _stream(section: StreamSection | None, k: int, *, has_dominance: bool) -> Stream | None:
    if section is None or section.delta is None:
        return None
    rule = resolve_rule(section.rule, k, has_dominance=has_dominance)
    reason = explain_rule(section.rule, k, has_dominance=has_dominance)
    limit = _optional_float(section.max_delay_s)
    return Stream(section.delta, limit, rule, section.release, section.reveal_order, reason)


def _covers(path: FieldPath, known: FieldPath) -> bool:
    """Whether a refused field is the one a rule speaks of, holds it, or is an item of its list."""
    return path[: len(known)] == known or (path == known[:-1] and known[-1].isdigit())


def _optional_float(value: float | None) -> float | None:
    return None if value is None else float(value)


def _per_subject(section: PerSubjectSection | None) -> PerSubject | None:
    if section is None or section.max is None or section.window is None:  # refused by the rules if half of it
        return None
    return PerSubject(section.max, section.window)


def _resolved(name: str, section: AttributeSection, document: Document) -> Attribute:
    resolution = section.resolution
    bounds = None if section.bounds is None else (float(section.bounds[0]), float(section.bounds[1]))
    return Attribute(
        name=name,
        role=Role(section.role or ""),
        subject=section.subject,
        bounds=bounds,
        limits=bounds
        or ((-inf, inf) if document.stream is None else (-float(MAX_EXACT_INTEGER), float(MAX_EXACT_INTEGER))),
        clip=(section.out_of_bounds or document.out_of_bounds) == "clip",
        integer=bool(section.integer),
        resolution=None if resolution is None else _plain_decimal(Decimal(repr(resolution))),
        weight=1.0 if section.weight is None else float(section.weight),
        type=section.type or "any",
        source=Source.parse(section.source) or VALUE,
        publish_unchanged=section.publish_unchanged,
    )


def _plain_decimal(number: Decimal) -> Decimal:
    """The same number without a positive exponent and without trailing zeros after the point."""
    if number == number.to_integral_value():
        return number.quantize(Decimal(1))
    return number.normalize()


def _one_two_five(width: Decimal) -> Decimal:
    """Round down to 1, 2 or 5 times a power of ten."""
    power = Decimal(1).scaleb(width.adjusted())
    leading = (width / power).quantize(Decimal(1), rounding=ROUND_DOWN)
    return _plain_decimal(power * max(step for step in (1, 2, 5) if step <= leading))


def _described(attribute: Attribute, *, table: bool) -> dict[str, Any]:
    # Left out where it is the usual one, so that older fingerprints stay what they are.
    source = {} if attribute.source.part is MessagePart.VALUE else {"from": str(attribute.source)}
    if attribute.role is not Role.QUASI_IDENTIFIER:
        about: dict[str, Any] = {"role": attribute.role.value, "type": attribute.type, **source}
        if attribute.subject:
            about["subject"] = True
        if attribute.publish_unchanged:
            about["publish_unchanged"] = True
        return about
    return {
        "role": attribute.role.value,
        **source,
        "scale": attribute.scale.value,
        "bounds": None if attribute.bounds is None else list(attribute.bounds),
        "out_of_bounds": "clip" if attribute.clip else "quarantine",
        "integer": attribute.integer,
        "resolution": str(attribute.publication_step(table=table)),
        "weight": attribute.weight,
    }
