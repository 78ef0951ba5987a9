"""One declared field of the records, with every default filled in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_DOWN, Decimal
from enum import StrEnum
from functools import cached_property
from math import inf
from typing import Any, Literal, Self

from shoal.policy.schema import (
    AttributeSection,
    Document,
    EpochUnit,
    FieldPath,
    FieldType,
    Missing,
    NormalizeStep,
    Role,
    Scale,
)
from shoal.policy.taxonomy import Taxonomy
from shoal.policy.texts import TimeStep, format_time, is_finite_number, parse_time

__all__ = [
    "MAX_EXACT_INTEGER",
    "Attribute",
    "MessagePart",
    "Reference",
    "Source",
    "path_of_source",
    "resolve_attribute",
    "split_path",
]

MAX_EXACT_INTEGER = 2**53
"""Up to here, every integer has a float64 of its own."""
_HEADER = "header:"


class MessagePart(StrEnum):
    """The parts of a Kafka message."""

    VALUE = "value"
    KEY = "key"
    HEADER = "header"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class Source:
    """The part of a message that an attribute is read from. ``header`` is the header's name, else empty."""

    part: MessagePart = MessagePart.VALUE
    header: str = ""

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse the policy field ``from``. Return None if the text is not valid.

        The path to a field inside the value is left to `path_of_source`.
        """
        if text.startswith(_HEADER):
            name = text.removeprefix(_HEADER)
            return cls(MessagePart.HEADER, name) if name else None
        if text in {MessagePart.VALUE, MessagePart.KEY, MessagePart.TIMESTAMP}:
            return cls(MessagePart(text))
        return cls() if "." in text else None

    def __str__(self) -> str:
        """Return the text of the policy field ``from``."""
        return _HEADER + self.header if self.part is MessagePart.HEADER else self.part.value


VALUE = Source()


def path_of_source(name: str, text: str) -> FieldPath:
    """Return the path to the field that attribute ``name`` is read from; empty if it is not read from the value."""
    source = Source.parse(text)
    if source is None or source.part is not MessagePart.VALUE:
        return ()
    return (name,) if text == MessagePart.VALUE else split_path(text.removeprefix("value."))


def split_path(text: str) -> FieldPath:
    """Return the names of a dotted path, the outermost first."""
    return tuple(text.split("."))


@dataclass(frozen=True)
class Reference:
    """A distribution of confidential values.

    Attributes
    ----------
    texts : tuple of str or None
        Values as in the file, without surrounding whitespace and in the Unicode form NFC; None for a missing value,
        which is the empty cell or a text of ``missing_values``. No two mean the same value.
    shares : tuple of float
        Share of each value, at least 0; their sum is 1 within 1e-6.
    """

    texts: tuple[str | None, ...]
    shares: tuple[float, ...]

    @cached_property
    def digest(self) -> str:
        """SHA-256 in hexadecimal of the distribution, whatever the order of its rows and the form of the file."""
        rows = sorted(zip(self.texts, self.shares, strict=True), key=lambda row: (row[0] is not None, row[0] or ""))
        return hashlib.sha256(json.dumps(rows, ensure_ascii=True).encode()).hexdigest()


DEFAULT_MAX_BYTES = 10_000
"""Limit on the length of a field of type ``json`` in bytes, encoded as JSON without blanks."""
DEFAULT_TIME_STEP = TimeStep(1, "day")
DEFAULT_STEPS = 200
"""A numeric attribute of a stream is published in about this many steps between its bounds."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One declared field.

    Attributes
    ----------
    name : str
    role : Role
    subject : bool
        Whether the attribute identifies the person.
    scale, integer, weight
        Of a quasi-identifier or a steering attribute. The weight of a steering attribute is that of ``steering.by``.
    bounds : tuple of float or None
        Lowest and highest value as set in the policy; of a time in ms since 1970-01-01T00:00Z, of an ordinal attribute
        the first and the last rank. None if the policy says nothing, and for a nominal attribute.
    clip : bool
        Whether values outside the bounds are moved to them; else the record is quarantined.
    resolution : Decimal or None
        The step of published values as set in the policy. `publication_step` resolves the default.
    type : FieldType
        Of roles other than quasi-identifier and steering.
    source : Source
        The part of a message that the attribute is read from.
    publish_unchanged : bool
        Whether the policy accepts that a record can be found by this field.
    normalize : tuple of str or None
        Of the subject: further steps by which spellings of one person become one text, sorted. None if not given.
    limits : tuple of float
        The bounds. Without bounds, a stream accepts the range in which float64 distinguishes all integers, and a table
        accepts every finite number.
    order : tuple of str or int
        Of an ordinal attribute: the categories, lowest first.
    taxonomy : Taxonomy or None
        Of a nominal attribute; None if all categories are equally far from each other.
    publish : {"mode", "ancestor", "median"}
        Of a nominal attribute: what a cluster publishes. ``mode`` is its most frequent category. With a taxonomy also
        ``ancestor``, the lowest common ancestor, and ``median``, the lowest node above more than half of the members.
    unknown : {"root", "quarantine"}
        A category that the taxonomy lacks is a leaf below the root, or its record is quarantined.
    unit : {"s", "ms", "us", "days"} or None
        Of a time: unit of epoch numbers; None if times are texts in the form of ISO 8601.
    time_step : TimeStep or None
        Of a time: the step of published values.
    missing : {"quarantine", "group", "mean"}
        A record without a value is quarantined; or missing is a value; or the record takes the mean of its cluster.
    path, to : tuple of str
        Names from the outermost object to the field, in the message value and in the output. ``path`` is empty if the
        attribute is not read from the value.
    max_bytes : int
        Of a field of type ``json``: a longer one makes its record too large.
    protect : bool
        Of a confidential attribute, as in the policy. `Policy.protected` says to which attributes limits apply.
    has_scale : bool
        Of a confidential attribute: whether the policy declares its scale.
    reference : Reference or None
        Of a confidential attribute: the distribution that ``privacy.t`` compares clusters with.
    distance : {"ordered", "equal", "hierarchical"} or None
        Of a confidential attribute: the distance of two values, from which the distance of two distributions follows.
        None if it depends on the values of a table.
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
    normalize: tuple[NormalizeStep, ...] | None = None
    limits: tuple[float, float] = (-inf, inf)
    order: tuple[str | int, ...] = ()
    taxonomy: Taxonomy | None = None
    publish: Literal["mode", "ancestor", "median"] = "mode"
    unknown: Literal["root", "quarantine"] = "root"
    unit: EpochUnit | None = None
    time_step: TimeStep | None = None
    missing: Missing = "quarantine"
    path: tuple[str, ...] = ()
    to: tuple[str, ...] = ()
    max_bytes: int = DEFAULT_MAX_BYTES
    protect: bool = False
    has_scale: bool = False
    reference: Reference | None = None
    distance: Literal["ordered", "equal", "hierarchical"] | None = None

    @property
    def is_nominal(self) -> bool:
        """Whether values are categories without an order."""
        return self.scale is Scale.NOMINAL

    @property
    def has_moments(self) -> bool:
        """Whether values have a mean and a variance."""
        return self.scale in {Scale.NUMERIC, Scale.TIME}

    @property
    def may_be_missing(self) -> bool:
        """Whether a record without a value can be released."""
        return self.missing != "quarantine"

    def publication_step(self, *, table: bool = False) -> Decimal:
        """Return the step of published values in original units. 0 means the exact mean."""
        if self.resolution is not None:
            return self.resolution
        if table:
            return Decimal(0)
        if self.integer:
            return Decimal(1)
        if self.bounds is None:
            return Decimal(0)
        low, high = (Decimal(repr(bound)) for bound in self.bounds)
        return _round_down_to_1_2_5((high - low) / DEFAULT_STEPS)

    def as_dict(self, *, table: bool) -> dict[str, Any]:
        """Return the settings that concern the attribute's role, as plain JSON values.

        The fingerprint covers them. Where the default is left out, fingerprints of older policies stay.
        """
        content: dict[str, Any] = {"role": self.role.value}
        if self.role in {Role.QUASI_IDENTIFIER, Role.STEERING}:
            content |= self._places_as_dict() | {"scale": self.scale.value} | self._scale_as_dict(table=table)
            content |= {"weight": self.weight} if self.role is Role.QUASI_IDENTIFIER else {}
            return content | ({"missing": self.missing} if self.may_be_missing else {})
        options = {
            "subject": self.subject,
            "normalize": list(self.normalize or ()),
            "publish_unchanged": self.publish_unchanged,
            "max_bytes": self.max_bytes if self.type == "json" else None,
            "protect": self.protect,
            "scale": self.scale.value if self.has_scale else None,
            "order": list(self.order),
            "taxonomy": self._taxonomy_as_dict(),
            "bounds": list(self.bounds or ()),
            "reference": self.reference and {"sha256": self.reference.digest, "values": len(self.reference.texts)},
        }
        content |= {"type": self.type} | self._places_as_dict()
        return content | {name: option for name, option in options.items() if option}

    def _places_as_dict(self) -> dict[str, Any]:
        places: dict[str, Any] = {}
        if self.source.part is not MessagePart.VALUE:
            places["from"] = str(self.source)
        elif self.path != (self.name,):
            places["from"] = ".".join(("value", *self.path))
        return places if self.to == (self.name,) else places | {"to": ".".join(self.to)}

    def _scale_as_dict(self, *, table: bool) -> dict[str, Any]:
        content: dict[str, Any] = {}
        is_published = self.role is Role.QUASI_IDENTIFIER
        if self.scale is Scale.ORDINAL:
            return {"order": list(self.order)}
        if self.scale is Scale.NOMINAL:
            content |= {"publish": self.publish} if is_published else {}
            known = {"taxonomy": self._taxonomy_as_dict(), "unknown": self.unknown}
            return content | (known if self.taxonomy is not None else {})
        content["bounds"] = None if self.bounds is None else [self._plain_bound(bound) for bound in self.bounds]
        content["out_of_bounds"] = "clip" if self.clip else "quarantine"
        if self.scale is Scale.NUMERIC:
            content["integer"] = self.integer
        elif self.unit is not None:
            content["unit"] = self.unit
        if is_published:
            content["resolution"] = str(self.time_step or self.publication_step(table=table))
        return content

    def _plain_bound(self, bound: float) -> str | float:
        return format_time(bound, self.unit) if self.scale is Scale.TIME else bound

    def _taxonomy_as_dict(self) -> dict[str, Any] | None:
        tree = self.taxonomy
        return None if tree is None else {"sha256": tree.digest, "leaves": len(tree.paths), "levels": tree.levels}


def resolve_attribute(
    name: str,
    section: AttributeSection,
    document: Document,
    taxonomy: Taxonomy | None = None,
    reference: Reference | None = None,
) -> Attribute:
    """Fill in the defaults of one attribute of a valid document."""
    scale = Scale(section.scale or "numeric")
    is_clustered = section.role in {"quasi_identifier", "steering"}
    resolution = None if scale is Scale.TIME or isinstance(section.resolution, str) else section.resolution
    bounds = _bounds_of(section, scale)
    limit = inf if document.stream is None else float(MAX_EXACT_INTEGER)
    path = path_of_source(name, section.source)
    return Attribute(
        name=name,
        role=Role(section.role or ""),
        subject=section.subject,
        scale=scale,
        bounds=bounds,
        limits=bounds or (-limit, limit),
        clip=(section.out_of_bounds or document.out_of_bounds) == "clip",
        integer=bool(section.integer),
        resolution=None if resolution is None else _plain_decimal(Decimal(repr(resolution))),
        weight=_weight_of(name, section, document),
        type=section.type or "any",
        source=Source.parse(section.source) or VALUE,
        publish_unchanged=section.publish_unchanged,
        # Sorted: the order of the steps is fixed, so the fingerprint must not depend on the order of the list.
        normalize=None if section.normalize is None else tuple(sorted(section.normalize)),
        order=tuple(section.order or ()),
        taxonomy=taxonomy,
        publish=section.publish or ("mode" if taxonomy is None else "ancestor"),
        unknown=section.unknown or "root",
        unit=section.unit,
        time_step=_time_step_of(section) if is_clustered and scale is Scale.TIME else None,
        missing=section.missing or "quarantine",
        path=path,
        to=(name,) if section.to is None else split_path(section.to),
        max_bytes=DEFAULT_MAX_BYTES if section.max_bytes is None else section.max_bytes,
        protect=section.protect,
        has_scale=section.role == "confidential" and section.scale is not None,
        reference=reference,
        distance=_distance_of(section, reference, is_stream=document.stream is not None),
    )


def _bounds_of(section: AttributeSection, scale: Scale) -> tuple[float, float] | None:
    if scale is Scale.ORDINAL:
        return None if section.role == "confidential" else (0.0, float(len(section.order or ()) - 1))
    if section.bounds is None or scale is Scale.NOMINAL:
        return None
    if scale is Scale.TIME:
        low, high = (parse_time(bound, section.unit) for bound in section.bounds)
        return None if low is None or high is None else (low, high)
    return float(section.bounds[0]), float(section.bounds[1])


def _time_step_of(section: AttributeSection) -> TimeStep:
    step = TimeStep.parse(section.resolution) if isinstance(section.resolution, str) else None
    return step or DEFAULT_TIME_STEP


def _weight_of(name: str, section: AttributeSection, document: Document) -> float:
    weight = section.weight
    for steering in document.steering.by or ():
        if steering.attribute == name:
            weight = steering.weight
    return 1.0 if weight is None else float(weight)


def _plain_decimal(number: Decimal) -> Decimal:
    """Return the same number without a positive exponent and without trailing zeros after the point."""
    if number == number.to_integral_value():
        return number.quantize(Decimal(1))
    return number.normalize()


def _round_down_to_1_2_5(width: Decimal) -> Decimal:
    """Round down to 1, 2 or 5 times a power of ten."""
    power = Decimal(1).scaleb(width.adjusted())
    leading = (width / power).quantize(Decimal(1), rounding=ROUND_DOWN)
    return _plain_decimal(power * max(step for step in (1, 2, 5) if step <= leading))


def _distance_of(
    section: AttributeSection, reference: Reference | None, *, is_stream: bool
) -> Literal["ordered", "equal", "hierarchical"] | None:
    """Return the distance of a confidential attribute; None for another role, or if it depends on the values."""
    if section.role != "confidential":
        return None
    if section.scale == "nominal":
        return "equal" if section.taxonomy is None else "hierarchical"
    if section.scale is not None or section.type in {"integer", "number"}:
        return "ordered"
    if section.type not in {"any", None}:
        return "equal"
    if reference is not None:
        return "ordered" if _are_numbers(reference.texts) else "equal"
    return "equal" if is_stream else None


def _are_numbers(texts: Iterable[str | None]) -> bool:
    """Return whether all values that are not missing are numbers that a policy can have, and there is one."""
    present = [text for text in texts if text is not None]
    return bool(present) and all(map(is_finite_number, present))
