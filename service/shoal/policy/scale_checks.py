"""The rules for the scale of an attribute: its bounds, resolution, order, taxonomy and missing values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import TypeAlias

from shoal.policy.category_limit import MAX_CATEGORY_BYTES, is_long_category
from shoal.policy.loader import FieldPath
from shoal.policy.schema import AttributeSection, Document
from shoal.policy.text_checks import BLANKS, has_lone_surrogate
from shoal.policy.time_step import TimeStep
from shoal.policy.time_text import parse_time

__all__ = [
    "MAX_EXACT_INTEGER",
    "SCALE_FIELDS",
    "check_missing",
    "check_missing_values",
    "check_numeric_bounds",
    "check_order",
    "check_scale",
]

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
    has_dominance = document.privacy is not None and document.privacy.dominance is not None
    for name, attribute in document.attributes.items():
        path = ("attributes", name)
        if attribute.role not in {"quasi_identifier", "steering"} or attribute.missing in {None, "quarantine"}:
            continue
        if attribute.missing == "mean" and attribute.scale == "nominal":
            yield (*path, "missing"), "scale nominal has no mean; use missing: group"
        if has_dominance and attribute.role == "quasi_identifier":
            yield (
                (*path, "missing"),
                "privacy.dominance needs a value in every record; use missing: quarantine, or remove dominance",
            )


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
