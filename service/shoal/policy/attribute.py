"""One declared field of the records, with every default filled in.

The reference of a confidential attribute: the distribution that t-closeness compares clusters with.

The distance of two confidential values: it follows from what the policy says of the attribute.

The rules for the scale of an attribute: its bounds, resolution, order, taxonomy and missing values.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import ROUND_DOWN, Decimal
from functools import cached_property
from math import inf
from typing import Any, Literal, TypeAlias

from shoal.policy.document import FieldPath
from shoal.policy.messages import VALUE, MessagePart, Source, path_of_source, split_path
from shoal.policy.schema import AttributeSection, Document, EpochUnit, FieldType, Missing, NormalizeStep, Role, Scale
from shoal.policy.taxonomy import Taxonomy
from shoal.policy.texts import BLANKS, MAX_CATEGORY_BYTES, has_lone_surrogate, is_finite_number, is_long_category
from shoal.policy.times import TimeStep, format_time, parse_time

__all__ = [
    "MAX_EXACT_INTEGER",
    "SCALE_FIELDS",
    "Attribute",
    "Reference",
    "check_missing",
    "check_missing_values",
    "check_numeric_bounds",
    "check_order",
    "check_scale",
    "is_numeric_reference",
    "resolve_attribute",
    "resolve_distance",
]


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


def resolve_distance(
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
        return "ordered" if is_numeric_reference(reference.texts) else "equal"
    return "equal" if is_stream else None


def is_numeric_reference(texts: Iterable[str | None]) -> bool:
    """Return whether all values that are not missing are numbers that a policy can have, and there is one."""
    present = [text for text in texts if text is not None]
    return bool(present) and all(map(is_finite_number, present))


Finding: TypeAlias = tuple[FieldPath, str]

MAX_EXACT_INTEGER = 2**53
"""Up to here, every integer has a float64 of its own."""
_MIN_STEP, _MAX_STEP = Decimal("1e-15"), Decimal("1e15")
_SCALES_OF = {
    "bounds": ("numeric", "time"),
    "out_of_bounds": ("numeric", "time"),
    "integer": ("numeric",),
    "resolution": ("numeric", "time"),
    "order": ("ordinal",),
    "taxonomy": ("nominal",),
    "publish": ("nominal",),
    "unknown": ("nominal",),
    "unit": ("time",),
}
"""The scales for which a field has a meaning."""
SCALE_FIELDS = (*_SCALES_OF, "missing")
"""The fields that are checked by the scale of an attribute."""
_STEPS = "15min, h, day, month or year"


def check_scale(path: FieldPath, attribute: AttributeSection, document: Document) -> Iterator[Finding]:
    """Check the fields that belong to the scale of a quasi-identifier or a steering attribute."""
    scale = attribute.scale or "numeric"
    for name, scales in _SCALES_OF.items():
        if getattr(attribute, name) is not None and scale not in scales:
            yield (*path, name), f"only for scale {' or '.join(scales)}; remove it, or give scale: {scales[0]}"
    if scale == "ordinal":
        yield from check_order(path, attribute.order, document)
    elif scale == "nominal":
        yield from _check_taxonomy(path, attribute)
    elif scale == "time":
        yield from _check_time(path, attribute)
    else:
        yield from check_numeric_bounds(path, attribute.bounds)
        yield from _check_numeric_resolution(path, attribute)


def check_numeric_bounds(path: FieldPath, section: list[float | str] | None) -> Iterator[Finding]:
    """Check the bounds of a number; ``path`` is that of the attribute."""
    if section is None:
        return
    bounds = [bound for bound in section if not isinstance(bound, str)]
    if len(section) != 2 or len(bounds) != 2:  # noqa: PLR2004 - low and high
        yield (*path, "bounds"), "must be two numbers: [low, high]"
    elif not all(math.isfinite(bound) and abs(bound) <= MAX_EXACT_INTEGER for bound in bounds):
        yield (*path, "bounds"), "must be finite and from -2^53 to 2^53"
    elif not bounds[0] < bounds[1]:
        yield (*path, "bounds"), "low must be below high"
    elif bounds[1] - bounds[0] < float(_MIN_STEP) * 1000:
        yield (*path, "bounds"), "low and high differ by less than 1e-12; give the attribute in another unit"


def _check_numeric_resolution(path: FieldPath, attribute: AttributeSection) -> Iterator[Finding]:
    if attribute.resolution is None:
        return
    if isinstance(attribute.resolution, str):
        yield (*path, "resolution"), "must be a number; a step in words is for scale: time"
        return
    step = Decimal(repr(attribute.resolution))
    if not step.is_finite() or step < 0:
        yield (*path, "resolution"), "must be 0 (publish the exact mean) or a finite number above 0"
    elif step != 0 and not _MIN_STEP <= step <= _MAX_STEP:
        yield (*path, "resolution"), "must be 0, or from 1e-15 to 1e15"
    else:
        bounds = [bound for bound in attribute.bounds or () if not isinstance(bound, str)]
        width = bounds[1] - bounds[0] if len(bounds) == 2 else math.nan  # noqa: PLR2004
        if math.isfinite(width) and step > width > 0:
            yield (*path, "resolution"), "is wider than the bounds, so all records would be equal; give a smaller step"


def _check_time(path: FieldPath, attribute: AttributeSection) -> Iterator[Finding]:
    resolution = attribute.resolution
    step = TimeStep.parse(resolution) if isinstance(resolution, str) else None
    if resolution is not None and step is None:
        yield (*path, "resolution"), f"must be the step of published times: {_STEPS}; or a number with s, min, h or day"
    elif attribute.unit == "days" and step is not None and not step.is_whole_days:
        yield (*path, "resolution"), "must be whole days, month or year with unit: days; give another unit, or day"
    if attribute.bounds is None:
        return
    bounds = [parse_time(bound, attribute.unit) for bound in attribute.bounds]
    if len(bounds) != 2 or bounds[0] is None or bounds[1] is None:  # noqa: PLR2004 - low and high
        form = (
            "in the form of ISO 8601, such as 2020-01-31 or 2020-01-31T12:00:00Z"
            if attribute.unit is None
            else f"as numbers in the unit {attribute.unit}"
        )
        yield (*path, "bounds"), f"must be two times from year 1 to 9999, {form}: [low, high]"
    elif not bounds[0] < bounds[1]:
        yield (*path, "bounds"), "low must be before high"
    elif step is not None and step.milliseconds > bounds[1] - bounds[0]:
        yield (*path, "resolution"), "is wider than the bounds, so all records would be equal; give a smaller step"


def check_order(path: FieldPath, order: list[str | int] | None, document: Document) -> Iterator[Finding]:
    """Check the categories of an ordinal attribute; ``path`` is that of the attribute."""
    path = (*path, "order")
    if order is None:
        yield path, "missing: scale ordinal needs its categories; give order: [lowest, ..., highest]"
        return
    texts = [str(item) for item in order]
    if len(texts) < 2:  # noqa: PLR2004
        yield path, "must name at least two categories"
    elif len(set(texts)) < len(texts):
        yield path, "names a category twice (a number and its text are one category); remove one"
    elif len({text.strip(BLANKS) for text in texts}) < len(texts):
        yield path, "names two categories that differ in blanks at the ends only, which cells do not keep; remove one"
    elif any(map(has_lone_surrogate, texts)):
        yield path, "contains a lone surrogate, which no message can contain; correct the name"
    elif any(map(is_long_category, texts)):
        yield path, f"names a category of more than {MAX_CATEGORY_BYTES:,} bytes as JSON; shorten it"
    elif not {text.strip(BLANKS) for text in texts}.isdisjoint(document.missing_texts):
        yield path, "names a text that means a missing value; remove it here, or from missing_values"


def _check_taxonomy(path: FieldPath, attribute: AttributeSection) -> Iterator[Finding]:
    if attribute.taxonomy is not None:
        return
    if attribute.publish in {"ancestor", "median"}:
        yield (*path, "publish"), f"{attribute.publish} needs a taxonomy; give taxonomy, or publish: mode"
    if attribute.unknown is not None:
        yield (*path, "unknown"), "only with a taxonomy, which says which values are known; give taxonomy, or remove it"


def check_missing(document: Document) -> Iterator[Finding]:
    """Check what happens to missing values."""
    for name, attribute in document.attributes.items():
        path = ("attributes", name)
        if attribute.role not in {"quasi_identifier", "steering"} or attribute.missing in {None, "quarantine"}:
            continue
        if attribute.missing == "mean" and attribute.scale == "nominal":
            yield (*path, "missing"), "scale nominal has no mean; use missing: group"


def check_missing_values(document: Document) -> Iterator[Finding]:
    """Check the texts that mean that a value is missing."""
    for text in document.missing_values or ():
        if has_lone_surrogate(text):
            yield ("missing_values",), "contains a lone surrogate, which no message can contain; correct the text"
        if text != text.strip(BLANKS):
            yield (
                ("missing_values",),
                "has a text with blanks or tabs at its ends, which are stripped from cells; remove the blanks",
            )


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
    scale, clip, integer, weight
        Of a quasi-identifier or a steering attribute, as in the policy. The weight of a steering attribute is that of
        section ``steering``. Values outside the bounds are moved to them if ``clip`` is true, else
        the record is quarantined.
    resolution : Decimal or None
        Of a quasi-identifier: the step of published values as set in the policy. None selects the default, which
        differs between streams and tables; `publication_step` resolves it.
    type : FieldType
        Of all other roles.
    source : Source
        The part of a message that the attribute is read from.
    publish_unchanged : bool
        Whether the policy accepts that a record can be found by this field. Required for role ``other``.
    normalize : tuple of str or None
        Of the subject: further steps by which spellings of one person become one text, without an order. None if the
        policy says nothing of them.
    order : tuple of str or int
        Of an ordinal attribute: the categories, lowest first.
    taxonomy : Taxonomy or None
        Of a nominal attribute; None if all categories are equally far from each other.
    publish : {"mode", "ancestor", "median"}
        Of a nominal attribute: what a cluster publishes. ``mode`` is its most frequent category. With a taxonomy also
        ``ancestor``, the lowest common ancestor, and ``median``, the lowest node above more than half of the members.
    unknown : {"root", "quarantine"}
        What happens to a category that the taxonomy lacks: it is a leaf of its own below the root, or its record is
        quarantined.
    unit : {"s", "ms", "us", "days"} or None
        Of a time: unit of epoch numbers; None if times are texts in the form of ISO 8601.
    time_step : TimeStep or None
        Of a time: the step of published values.
    missing : {"quarantine", "group", "mean"}
        What happens to a record without a value: it is quarantined; or missing is a value of its own; or the record
        takes the mean of its cluster.
    path : tuple of str
        Names from the outermost object of the message value to the field; one name for a field of the value itself.
        Empty if the attribute is not read from the value.
    to : tuple of str
        The same for the output; one name, that of the attribute, for a flat record.
    bounds : tuple of float or None
        Lowest and highest value as set in the policy; of a time in ms since 1970-01-01T00:00Z, of an ordinal attribute
        the first and the last rank. None if the policy says nothing, and for a nominal attribute.
    limits : tuple of float
        The bounds. Without bounds, a stream accepts the range in which float64 distinguishes all integers, and a table
        accepts every finite number.
    max_bytes : int
        Of a field of type ``json``: a longer one makes its record too large.
    protect : bool
        Of a confidential attribute: whether ``privacy.l``, ``privacy.t`` and ``privacy.max_value_share`` are limited to
        it and to the other attributes with this mark. `Policy.protected` says to which attributes they apply.
    has_scale : bool
        Of a confidential attribute: whether the policy declares its scale, order, taxonomy and bounds included.
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
        """Return the settings that concern the attribute's role, as plain JSON values."""
        if self.role not in {Role.QUASI_IDENTIFIER, Role.STEERING}:
            options = {
                "subject": self.subject,
                "normalize": list(self.normalize or ()),
                "publish_unchanged": self.publish_unchanged,
                "max_bytes": self.max_bytes if self.type == "json" else None,
            }
            content = {"role": self.role.value, "type": self.type, **self._places_as_dict()}
            content |= {name: option for name, option in options.items() if option}
            return content | self._protection_as_dict()
        content = {"role": self.role.value, **self._places_as_dict(), "scale": self.scale.value}
        content |= self._scale_as_dict(table=table)
        if self.role is Role.QUASI_IDENTIFIER:
            content["weight"] = self.weight
        if self.may_be_missing:
            content["missing"] = self.missing
        return content

    def _places_as_dict(self) -> dict[str, Any]:
        """Return where the attribute is read and written, without defaults: fingerprints of older policies stay."""
        places: dict[str, Any] = {}
        if self.source.part is not MessagePart.VALUE:
            places["from"] = str(self.source)
        elif self.path != (self.name,):
            places["from"] = ".".join(("value", *self.path))
        if self.to != (self.name,):
            places["to"] = ".".join(self.to)
        return places

    def _scale_as_dict(self, *, table: bool) -> dict[str, Any]:
        """Return the settings that concern the scale."""
        if self.scale is Scale.ORDINAL:
            return {"order": list(self.order)}
        if self.scale is Scale.NOMINAL:
            return self._nominal_as_dict()
        content: dict[str, Any] = {
            "bounds": None if self.bounds is None else [self._plain_bound(bound) for bound in self.bounds],
            "out_of_bounds": "clip" if self.clip else "quarantine",
        }
        if self.scale is Scale.NUMERIC:
            content["integer"] = self.integer
        elif self.unit is not None:
            content["unit"] = self.unit
        if self.role is Role.QUASI_IDENTIFIER:
            content["resolution"] = str(self.time_step or self.publication_step(table=table))
        return content

    def _protection_as_dict(self) -> dict[str, Any]:
        """Return how a confidential attribute is protected, without defaults."""
        content: dict[str, Any] = {"protect": True} if self.protect else {}
        if self.has_scale:
            content["scale"] = self.scale.value
        if self.order:
            content["order"] = list(self.order)
        if self.taxonomy is not None:
            content["taxonomy"] = self._taxonomy_as_dict(self.taxonomy)
        if self.bounds is not None:
            content["bounds"] = list(self.bounds)
        if self.reference is not None:
            content["reference"] = {"sha256": self.reference.digest, "values": len(self.reference.texts)}
        return content

    def _plain_bound(self, bound: float) -> str | float:
        return format_time(bound, self.unit) if self.scale is Scale.TIME else bound

    def _nominal_as_dict(self) -> dict[str, Any]:
        content: dict[str, Any] = {"publish": self.publish} if self.role is Role.QUASI_IDENTIFIER else {}
        if self.taxonomy is not None:
            content["taxonomy"] = self._taxonomy_as_dict(self.taxonomy)
            content["unknown"] = self.unknown
        return content

    @staticmethod
    def _taxonomy_as_dict(taxonomy: Taxonomy) -> dict[str, Any]:
        return {"sha256": taxonomy.digest, "leaves": len(taxonomy.paths), "levels": taxonomy.levels}


def resolve_attribute(
    name: str,
    section: AttributeSection,
    document: Document,
    taxonomy: Taxonomy | None = None,
    reference: Reference | None = None,
) -> Attribute:
    """Fill in the defaults of one attribute.

    Parameters
    ----------
    name : str
    section : AttributeSection
    document : Document
    taxonomy : Taxonomy, optional
        Of a nominal attribute.
    reference : Reference, optional
        Of a confidential attribute.
    """
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
        distance=resolve_distance(section, reference, is_stream=document.stream is not None),
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
