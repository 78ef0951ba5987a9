"""One declared field of the records, with every default filled in; and what a policy may say of each scale.

A new scale is one subclass of `ScaleRules`, and one module of `shoal.scales`.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from decimal import ROUND_DOWN, Decimal
from enum import StrEnum
from functools import cached_property
from math import inf
from typing import Any, ClassVar, Literal, Self, TypeAlias

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
from shoal.policy.texts import (
    BLANKS,
    MAX_CATEGORY_BYTES,
    TimeStep,
    format_time,
    has_lone_surrogate,
    has_repeated_value,
    is_finite_number,
    is_long_category,
    parse_time,
    time_format_fault,
)

_MAX_EXACT_INTEGER = 2**53
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
        """Parse the policy field ``from``, without its path inside the value; None if the text is not valid."""
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
    return (name,) if text == MessagePart.VALUE else tuple(text.removeprefix("value.").split("."))


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


@dataclass(frozen=True, slots=True)
class WrittenNumbers:
    """How numbers are written in texts: with separators of thousands, and with a symbol; empty if there is none."""

    thousands: str
    symbol: str
    decimal: str

    def as_dict(self) -> dict[str, str]:
        """Return the settings as plain JSON values."""
        given = {"thousands": self.thousands, "symbol": self.symbol}
        return {key: text for key, text in given.items() if text} | {"decimal": self.decimal}


DEFAULT_MAX_BYTES = 10_000
"""Limit on the length of a field of type ``json`` in bytes, encoded as JSON without blanks."""
DEFAULT_TIME_STEP = TimeStep(1, "day")
_YEAR = TimeStep(1, "year")
DEFAULT_STEPS = 200
"""A numeric attribute of a stream is published in about this many steps between its bounds."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One declared field.

    Attributes
    ----------
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
    normalize : tuple of str or None
        Of the subject: further steps by which spellings of one person become one text, sorted. None if not given.
    limits : tuple of float
        The bounds. Without bounds, a stream accepts the range in which float64 distinguishes all integers, and a table
        accepts every finite number.
    order : tuple of str or int
        Of an ordinal attribute: the categories, lowest first.
    taxonomy : Taxonomy or None
        Of a nominal attribute; None if all categories are equally far from each other.
    prefixes : tuple of int
        Of a nominal attribute: lengths of the first characters that name its groups, longest first; none without them.
    publish : {"mode", "ancestor", "median"}
        Of a nominal attribute: what a cluster publishes. ``mode`` is its most frequent category. With a taxonomy also
        ``ancestor``, the lowest common ancestor, and ``median``, the lowest node above more than half of the members.
    unknown : {"root", "quarantine"}
        A category that the taxonomy lacks is a leaf below the root, or its record is quarantined.
    unit : {"s", "ms", "us", "ns", "days", "years"} or None
        Of a time: unit of epoch numbers, or numbers of calendar years; None if times are texts.
    formats : tuple of str
        Of a time: the forms of its texts; none if they have the form of ISO 8601.
    written : WrittenNumbers or None
        Of a number: how texts of it are written; None if they are plain, and JSON has no texts of numbers.
    missing : {"quarantine", "group", "mean"}
        A record without a value is quarantined; or missing is a value; or the record takes the mean of its cluster.
    path, to : tuple of str
        Names from the outermost object to the field, in the message value and in the output. ``path`` is empty if the
        attribute is not read from the value.
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
    prefixes: tuple[int, ...] = ()
    publish: Literal["mode", "ancestor", "median"] = "mode"
    unknown: Literal["root", "quarantine"] = "root"
    unit: EpochUnit | None = None
    formats: tuple[str, ...] = ()
    time_step: TimeStep = DEFAULT_TIME_STEP
    written: WrittenNumbers | None = None
    missing: Missing = "quarantine"
    path: tuple[str, ...] = ()
    to: tuple[str, ...] = ()
    max_bytes: int = DEFAULT_MAX_BYTES
    protect: bool = False
    has_scale: bool = False
    reference: Reference | None = None
    distance: Literal["ordered", "equal", "hierarchical"] | None = None

    @property
    def is_clustered(self) -> bool:
        """Whether distances are computed on the attribute (`Policy.clustered`)."""
        return self.role in {Role.QUASI_IDENTIFIER, Role.STEERING}

    @property
    def is_nominal(self) -> bool:
        """Whether values are categories without an order."""
        return self.scale is Scale.NOMINAL

    @property
    def has_groups(self) -> bool:
        """Whether categories have groups: of a taxonomy, or by prefixes. Then they are texts."""
        return self.taxonomy is not None or bool(self.prefixes)

    @property
    def has_moments(self) -> bool:
        """Whether values have a mean and a variance."""
        return SCALE_RULES[self.scale].has_moments

    @property
    def may_be_missing(self) -> bool:
        """Whether a record without a value can be released."""
        return self.missing != "quarantine"

    def publication_step(self, *, table: bool = False) -> Decimal:
        """Return the step of published values in original units. 0 means the exact mean."""
        if self.resolution is not None:
            return self.resolution
        if self.integer and not table:
            return Decimal(1)
        if table or self.bounds is None:
            return Decimal(0)
        low, high = (Decimal(repr(bound)) for bound in self.bounds)
        return _round_down_to_1_2_5((high - low) / DEFAULT_STEPS)

    def as_dict(self, *, table: bool) -> dict[str, Any]:
        """Return the settings that concern the attribute's role, as plain JSON values.

        The fingerprint covers them. Where the default is left out, fingerprints of older policies stay.
        """
        content: dict[str, Any] = {"role": self.role.value}
        if self.is_clustered:
            content |= self._places_as_dict() | {"scale": self.scale.value}
            content |= SCALE_RULES[self.scale].settings(self, table=table)
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
            "taxonomy": self.taxonomy and _taxonomy_settings(self.taxonomy),
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


def _taxonomy_settings(tree: Taxonomy) -> dict[str, Any]:
    return {"sha256": tree.digest, "leaves": len(tree.paths), "levels": tree.levels}


# ---------------------------------------------------------------- scales

Distance: TypeAlias = Literal["ordered", "equal", "hierarchical"]
_Found: TypeAlias = Iterator[tuple[str, str]]
"""A key of the attribute, and what is wrong with it."""

_MIN_STEP, _MAX_STEP = Decimal("1e-15"), Decimal("1e15")
_MIN_WIDTH = 1e-12
_TOO_WIDE = "is wider than the bounds, so all records would be equal; give a smaller step"
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_NO_SYMBOL = re.compile(r"^\s|[\d+.,'’-]|\s$")
_NO_STEP = (
    "missing: a stream learns how far values are spread, but not the step of published values; give resolution (0 "
    "publishes the exact mean), integer: true, or bounds: [low, high]"
)
TWICE = "names a value twice, such as 1 and 1.0; remove one"


class ScaleRules(ABC):
    """What a policy may say of an attribute on one scale, and what it means."""

    has_moments: ClassVar[bool] = False
    """Whether values have a mean and a variance. A stream scales their distances by bounds, or learns how to."""
    keys: ClassVar[tuple[str, ...]]
    """The keys of a quasi-identifier or a steering attribute that have a meaning on few scales, and on this one."""
    confidential_key: ClassVar[str] = ""
    """The same of a confidential attribute; empty if it cannot be on this scale."""
    types: ClassVar[tuple[FieldType | None, ...]] = ()
    """The types of a confidential attribute for which the scale has a meaning; none if it cannot be on this scale."""
    instead: ClassVar[str] = "give another scale, or none"
    """What to do about a confidential attribute that cannot be on this scale."""

    @abstractmethod
    def check(self, section: AttributeSection, _: Collection[str]) -> _Found:
        """Yield what is wrong with a quasi-identifier or steering attribute, given the texts of missing values."""

    def check_confidential(self, section: AttributeSection, missing_texts: Collection[str]) -> _Found:  # noqa: ARG002
        """Yield what is wrong with a confidential attribute."""
        yield from ()

    def check_step(self, section: AttributeSection) -> _Found:  # noqa: ARG002
        """Yield what a stream needs to know of the step of published values if there are no bounds."""
        yield from ()

    def bounds(self, section: AttributeSection) -> tuple[float, float] | None:  # noqa: ARG002
        """Return the lowest and highest value; None if there is none, or the policy says nothing."""
        return None

    def member_published(self, attribute: Attribute) -> str:  # noqa: ARG002
        """Return whose category a cluster publishes, in words, if it is that of a member; else nothing."""
        return ""

    def distance(self, section: AttributeSection) -> Distance:  # noqa: ARG002
        """Return the distance of two values of a confidential attribute."""
        return "ordered"

    @abstractmethod
    def settings(self, attribute: Attribute, *, table: bool) -> dict[str, Any]:
        """Return the settings that concern the scale, as plain JSON values in the order of the fingerprint."""


class _NominalRules(ScaleRules):
    keys = ("taxonomy", "prefixes", "publish", "unknown")
    confidential_key = "taxonomy"
    types = ("string", "boolean", "json", "integer", "number", "any", None)

    def check(self, section: AttributeSection, _: Collection[str]) -> _Found:
        if section.missing == "mean":
            yield "missing", "scale nominal has no mean; use missing: group"
        has_groups = section.taxonomy is not None or section.prefixes is not None
        if not has_groups and section.publish in {"ancestor", "median"}:
            yield "publish", f"{section.publish} needs a taxonomy; give taxonomy or prefixes, or publish: mode"
        if section.prefixes is not None and section.taxonomy is not None:
            yield "prefixes", "make a taxonomy by themselves; remove taxonomy, or remove them"
        elif (lengths := section.prefixes or []) != sorted(set(lengths), reverse=True) or min(lengths, default=1) < 1:
            yield "prefixes", "must be at least 1 and become shorter, from the lowest group up, such as [3, 1]"
        if section.taxonomy is None and section.unknown is not None:
            yield "unknown", "only with a taxonomy, which says which values are known; give taxonomy, or remove it"

    def member_published(self, attribute: Attribute) -> str:
        return {"mode": "the most frequent one", "median": "the median"}.get(attribute.publish, "")

    def distance(self, section: AttributeSection) -> Distance:
        return "equal" if section.taxonomy is None else "hierarchical"

    def settings(self, attribute: Attribute, *, table: bool) -> dict[str, Any]:  # noqa: ARG002
        content: dict[str, Any] = {"publish": attribute.publish} if attribute.role is Role.QUASI_IDENTIFIER else {}
        if attribute.prefixes:
            content |= {"prefixes": list(attribute.prefixes)}
        if attribute.taxonomy is not None:
            content |= {"taxonomy": _taxonomy_settings(attribute.taxonomy), "unknown": attribute.unknown}
        return content


class _OrdinalRules(ScaleRules):
    keys = ("order",)
    confidential_key = "order"
    types = ("string", "boolean", "integer", "number", "any", None)

    def check(self, section: AttributeSection, missing_texts: Collection[str]) -> _Found:
        if section.order is None:
            yield "order", "missing: scale ordinal needs its categories; give order: [lowest, ..., highest]"
            return
        texts = [str(item) for item in section.order]
        stripped = {text.strip(BLANKS) for text in texts}
        if len(set(texts)) < len(texts):
            yield "order", "names a category twice (a number and its text are one category); remove one"
        elif len(stripped) < len(texts):
            words = "names two categories that differ in blanks at the ends only, which cells do not keep; remove one"
            yield "order", words
        elif any(map(has_lone_surrogate, texts)):
            yield "order", "contains a lone surrogate, which no message can contain; correct the name"
        elif any(map(is_long_category, texts)):
            yield "order", f"names a category of more than {MAX_CATEGORY_BYTES:,} bytes as JSON; shorten it"
        elif not stripped.isdisjoint(missing_texts):
            yield "order", "names a text that means a missing value; remove it here, or from missing_values"

    def member_published(self, attribute: Attribute) -> str:  # noqa: ARG002
        return "the median"

    def check_confidential(self, section: AttributeSection, missing_texts: Collection[str]) -> _Found:
        yield from self.check(section, missing_texts)
        if has_repeated_value(map(str, section.order or ()), section.type):
            yield "order", TWICE

    def bounds(self, section: AttributeSection) -> tuple[float, float] | None:
        return None if section.role == "confidential" else (0.0, float(len(section.order or ()) - 1))

    def settings(self, attribute: Attribute, *, table: bool) -> dict[str, Any]:  # noqa: ARG002
        return {"order": list(attribute.order)}


class _NumericRules(ScaleRules):
    has_moments = True
    keys = ("bounds", "out_of_bounds", "integer", "resolution", "thousands", "symbol")
    confidential_key = "bounds"
    types = ("integer", "number", "any", None)

    def check(self, section: AttributeSection, _: Collection[str]) -> _Found:
        yield from check_number_bounds(section)
        if section.symbol is not None and _NO_SYMBOL.search(section.symbol):
            yield "symbol", "must have no digits, blanks at its ends, or any of + - . , '; give another text"
        if isinstance(section.resolution, str):
            yield "resolution", "must be a number; a step in words is for scale: time"
            return
        step = Decimal(repr(section.resolution or 0))
        numbers = [bound for bound in section.bounds or () if not isinstance(bound, str)]
        if step != 0 and not _MIN_STEP <= step <= _MAX_STEP:
            yield "resolution", "must be 0 (publish the exact mean), or from 1e-15 to 1e15"
        elif len(numbers) == 2 and step > numbers[1] - numbers[0] > 0:  # noqa: PLR2004 - low and high
            yield "resolution", _TOO_WIDE

    def check_step(self, section: AttributeSection) -> _Found:
        if not section.integer and section.resolution is None:
            yield "resolution", _NO_STEP

    def bounds(self, section: AttributeSection) -> tuple[float, float] | None:
        return None if section.bounds is None else (float(section.bounds[0]), float(section.bounds[1]))

    def settings(self, attribute: Attribute, *, table: bool) -> dict[str, Any]:
        step = attribute.publication_step(table=table)
        own = {"integer": attribute.integer} | (attribute.written.as_dict() if attribute.written else {})
        return _range_settings(attribute, attribute.bounds and list(attribute.bounds), own, str(step))


class _TimeRules(ScaleRules):
    has_moments = True
    keys = ("bounds", "out_of_bounds", "resolution", "unit", "format")
    instead = "give its times as numbers with scale: numeric, or use scale: nominal"

    def check(self, section: AttributeSection, _: Collection[str]) -> _Found:
        resolution, unit = section.resolution, section.unit
        step = TimeStep.parse(resolution) if isinstance(resolution, str) else None
        if resolution is not None and step is None:
            steps = "15min, h, day, month or year"
            yield "resolution", f"must be the step of published times: {steps}; or a number with s, min, h or day"
        elif unit == "years" and step not in {None, _YEAR}:
            yield "resolution", "must be year with unit: years"
        elif unit == "days" and step is not None and not step.is_whole_days:
            yield "resolution", "must be whole days, month or year with unit: days; give another unit, or day"
        if section.format is not None and unit is not None:
            yield "format", "is for texts, and unit for numbers; remove one"
        elif fault := time_format_fault(_formats(section), step or DEFAULT_TIME_STEP):
            yield "format", fault
        yield from self._check_bounds(section, step)

    def _check_bounds(self, section: AttributeSection, step: TimeStep | None) -> _Found:
        if section.bounds is None:
            return
        unit = section.unit
        low, high = (parse_time(bound, unit) for bound in section.bounds)
        if low is None or high is None:
            iso = "in the form of ISO 8601, such as 2020-01-31 or 2020-01-31T12:00:00Z"
            form = iso if unit is None else f"as numbers in the unit {unit}"
            found = {_unit_of(bound) for bound in section.bounds} - {"", unit}
            form += f"; for numbers of this size set unit: {max(map(str, found))}" if found else ""
            yield "bounds", f"must be two times from year 1 to 9999, {form}: [low, high]"
        elif not low < high:
            yield "bounds", "low must be before high"
        elif step is not None and step.milliseconds > high - low:
            yield "resolution", _TOO_WIDE

    def bounds(self, section: AttributeSection) -> tuple[float, float] | None:
        low, high = (parse_time(bound, section.unit) for bound in section.bounds or ("", ""))
        return None if low is None or high is None else (low, high)

    def settings(self, attribute: Attribute, *, table: bool) -> dict[str, Any]:  # noqa: ARG002
        bounds = attribute.bounds and [format_time(bound, attribute.unit) for bound in attribute.bounds]
        own: dict[str, Any] = {} if attribute.unit is None else {"unit": attribute.unit}
        own |= {"format": list(attribute.formats)} if attribute.formats else {}
        return _range_settings(attribute, bounds, own, str(attribute.time_step))


def _unit_of(bound: float | str) -> str:
    """Return the unit in which a number is a time of the years 1973 to 2100; empty if it is none."""
    size = 0.0 if isinstance(bound, str) else abs(bound)
    return next((unit for unit, factor in _PER_SECOND.items() if 1e8 * factor <= size < 4.2e9 * factor), "")


def _formats(section: AttributeSection) -> tuple[str, ...]:
    given = section.format
    return (given,) if isinstance(given, str) else tuple(given or ())


SCALE_RULES: dict[str, ScaleRules] = {
    Scale.NUMERIC: _NumericRules(),
    Scale.ORDINAL: _OrdinalRules(),
    Scale.NOMINAL: _NominalRules(),
    Scale.TIME: _TimeRules(),
}


def check_number_bounds(section: AttributeSection) -> _Found:
    """Yield what is wrong with the bounds of a number."""
    if section.bounds is None:
        return
    low, high = section.bounds
    if isinstance(low, str) or isinstance(high, str):
        yield "bounds", "must be two numbers: [low, high]"
    elif max(abs(low), abs(high)) > _MAX_EXACT_INTEGER:
        is_epoch = _unit_of(low) == _unit_of(high) == "ns"
        yield "bounds", f"must be from -2^53 to 2^53{'; set scale: time and unit: ns' if is_epoch else ''}"
    elif not low < high:
        yield "bounds", "low must be below high"
    elif high - low < _MIN_WIDTH:
        yield "bounds", "low and high differ by less than 1e-12; give the attribute in another unit"


def _range_settings(attribute: Attribute, bounds: object, own: dict[str, Any], step: str) -> dict[str, Any]:
    content = {"bounds": bounds, "out_of_bounds": "clip" if attribute.clip else "quarantine"} | own
    return content | {"resolution": step} if attribute.role is Role.QUASI_IDENTIFIER else content


def resolve_attribute(
    name: str,
    section: AttributeSection,
    document: Document,
    taxonomy: Taxonomy | None = None,
    reference: Reference | None = None,
) -> Attribute:
    """Fill in the defaults of one attribute of a valid document."""
    scale = Scale(section.scale or "numeric")
    rules = SCALE_RULES[scale]
    bounds = rules.bounds(section)
    limit = inf if document.stream is None else float(_MAX_EXACT_INTEGER)
    step = TimeStep.parse(section.resolution) if isinstance(section.resolution, str) else None
    given = {steering.attribute: steering.weight for steering in document.steering.by or ()}
    weight = given.get(name, section.weight)
    return Attribute(
        name=name,
        role=Role(section.role or ""),
        subject=section.subject,
        scale=scale,
        bounds=bounds,
        limits=bounds or (-limit, limit),
        clip=(section.out_of_bounds or document.out_of_bounds) == "clip",
        integer=bool(section.integer),
        resolution=_plain_decimal(section.resolution) if isinstance(section.resolution, float) else None,
        weight=1.0 if weight is None else float(weight),
        type=section.type or "any",
        source=Source.parse(section.source) or VALUE,
        publish_unchanged=section.publish_unchanged,
        # Sorted: the order of the steps is fixed, so the fingerprint must not depend on the order of the list.
        normalize=None if section.normalize is None else tuple(sorted(section.normalize)),
        order=tuple(section.order or ()),
        taxonomy=taxonomy,
        prefixes=tuple(section.prefixes or ()),
        publish=section.publish or ("mode" if taxonomy is None and section.prefixes is None else "ancestor"),
        unknown=section.unknown or "root",
        unit=section.unit,
        formats=_formats(section),
        time_step=step or (_YEAR if section.unit == "years" else DEFAULT_TIME_STEP),
        written=_written(section, document),
        missing=section.missing or "quarantine",
        path=path_of_source(name, section.source),
        to=(name,) if section.to is None else tuple(section.to.split(".")),
        max_bytes=DEFAULT_MAX_BYTES if section.max_bytes is None else section.max_bytes,
        protect=section.protect,
        has_scale=section.role == "confidential" and section.scale is not None,
        reference=reference,
        distance=_distance_of(section, reference, is_stream=document.stream is not None),
    )


def _written(section: AttributeSection, document: Document) -> WrittenNumbers | None:
    if section.thousands is None and section.symbol is None:
        return None
    decimal = (document.csv and document.csv.decimal) or "."
    return WrittenNumbers(section.thousands or "", section.symbol or "", decimal)


def _plain_decimal(value: float | Decimal) -> Decimal:
    """Return the same number without a positive exponent and without trailing zeros after the point."""
    number = Decimal(str(value))
    return number.quantize(Decimal(1)) if number == number.to_integral_value() else number.normalize()


def _round_down_to_1_2_5(width: Decimal) -> Decimal:
    """Round down to 1, 2 or 5 times a power of ten."""
    power = Decimal(1).scaleb(width.adjusted())
    leading = (width / power).quantize(Decimal(1), rounding=ROUND_DOWN)
    return _plain_decimal(power * max(step for step in (1, 2, 5) if step <= leading))


def _distance_of(section: AttributeSection, reference: Reference | None, *, is_stream: bool) -> Distance | None:
    """Return the distance of a confidential attribute; None for another role, or if it depends on the values."""
    if section.role != "confidential":
        return None
    if section.scale is not None:
        return SCALE_RULES[section.scale].distance(section)
    if section.type not in {"any", None}:
        return "ordered" if section.type in {"integer", "number"} else "equal"
    if reference is None:
        return "equal" if is_stream else None
    present = [text for text in reference.texts if text is not None]
    return "ordered" if present and all(map(is_finite_number, present)) else "equal"
