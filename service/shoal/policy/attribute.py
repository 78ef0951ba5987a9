"""One declared field of the records, with every default filled in."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_DOWN, Decimal
from math import inf
from typing import Any, Literal

from shoal.policy.schema import AttributeSection, Document, FieldType, Missing, NormalizeStep, Role, Scale
from shoal.policy.taxonomy import Taxonomy
from shoal.policy.time_step import TimeStep
from shoal.policy.validation import MAX_EXACT_INTEGER
from shoal.policy.value_source import VALUE, MessagePart, Source

__all__ = ["Attribute", "resolve_attribute"]

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
    scale, bounds, clip, integer, weight
        Of a quasi-identifier, as in the policy. Values outside the bounds are moved to them if ``clip`` is true, else
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
    unit : {"s", "ms"} or None
        Of a time: unit of epoch numbers; None if times are texts in the form of ISO 8601.
    time_step : TimeStep or None
        Of a time: the step of published values.
    missing : {"quarantine", "group", "mean"}
        What happens to a record without a value: it is quarantined; or missing is a value of its own; or the record
        takes the mean of its cluster.
    path : tuple of str
        Names from the outermost object of the message value to the field; one name for a field of the value itself.
    to : tuple of str
        The same for the output; one name, that of the attribute, for a flat record.
    limits : tuple of float
        The bounds; of a time in ms since 1970, of an ordinal attribute the first and the last rank. Without bounds, a
        stream accepts the range in which float64 distinguishes all integers, and a table accepts every finite number.
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
    unit: Literal["s", "ms"] | None = None
    time_step: TimeStep | None = None
    missing: Missing = "quarantine"
    path: tuple[str, ...] = ()
    to: tuple[str, ...] = ()

    @property
    def is_nominal(self) -> bool:
        """Whether values are categories without an order."""
        return self.scale is Scale.NOMINAL

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
        # The default is left out, so that fingerprints of older policies stay the same.
        source = {} if self.source.part is MessagePart.VALUE else {"from": str(self.source)}
        if self.role is not Role.QUASI_IDENTIFIER:
            content: dict[str, Any] = {"role": self.role.value, "type": self.type, **source}
            if self.subject:
                content["subject"] = True
            if self.normalize:
                content["normalize"] = list(self.normalize)
            if self.publish_unchanged:
                content["publish_unchanged"] = True
            return content
        return {
            "role": self.role.value,
            **source,
            "scale": self.scale.value,
            "bounds": None if self.bounds is None else list(self.bounds),
            "out_of_bounds": "clip" if self.clip else "quarantine",
            "integer": self.integer,
            "resolution": str(self.publication_step(table=table)),
            "weight": self.weight,
        }


def resolve_attribute(name: str, section: AttributeSection, document: Document) -> Attribute:
    """Fill in the defaults of one attribute."""
    resolution = section.resolution
    bounds = None if section.bounds is None else (float(section.bounds[0]), float(section.bounds[1]))
    limit = inf if document.stream is None else float(MAX_EXACT_INTEGER)
    return Attribute(
        name=name,
        role=Role(section.role or ""),
        subject=section.subject,
        bounds=bounds,
        limits=bounds or (-limit, limit),
        clip=(section.out_of_bounds or document.out_of_bounds) == "clip",
        integer=bool(section.integer),
        resolution=None if resolution is None else _plain_decimal(Decimal(repr(resolution))),
        weight=1.0 if section.weight is None else float(section.weight),
        type=section.type or "any",
        source=Source.parse(section.source) or VALUE,
        publish_unchanged=section.publish_unchanged,
        # Sorted: the order of the steps is fixed, so the fingerprint must not depend on the order of the list.
        normalize=None if section.normalize is None else tuple(sorted(section.normalize)),
    )


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
