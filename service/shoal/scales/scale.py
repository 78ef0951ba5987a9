"""`AttributeScale`: what the scale of an attribute does with its values. Each scale is one module of this package.

A value is a float64: a number, a rank, the code of a category, or ms since 1970. A scale says how texts and JSON
values become such values (parse); how these become coordinates and codes, on which distances are computed (embed); what
a cluster publishes of its members (publish); how far that is from their values (loss); and what is wrong with a value
(explain).

The module of a scale has one subclass, ``class TimeScale(AttributeScale, scale=Scale.TIME)``, which registers itself.
The package imports the module. Nothing else names a scale.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np

from shoal.arrays import Float64Vector, Int64Matrix, Int64Vector
from shoal.policy import Attribute, Scale
from shoal.scales.reading import ScaleReader

__all__ = [
    "OUTSIDE_BOUNDS",
    "SCALES",
    "AttributeScale",
    "CategoryTexts",
    "ColumnNeed",
    "Publisher",
    "ScaleFault",
    "cluster_of_each",
    "remedies",
    "scale_of",
]

CategoryTexts: TypeAlias = Mapping[int, str]
"""Text of the JSON scalar of each category of an attribute, by its code."""


class ScaleFault(NamedTuple):
    """What is wrong with a value, in words without the value, and what to do about it."""

    reason: str
    remedy: str


class ColumnNeed(NamedTuple):
    """What a column of a typed format must hold, in words, and what to do else."""

    kind: Literal["numbers", "texts"]
    words: str
    remedy: str = ""


OUTSIDE_BOUNDS = ScaleFault("outside its bounds", "widen the bounds, or set out_of_bounds: clip")


class Publisher(ABC):
    """Computes what clusters publish of one attribute."""

    @abstractmethod
    def publish(self, values: Float64Vector, bounds: Int64Vector) -> tuple[list[str], Float64Vector]:
        """Return what G >= 1 clusters publish, as JSON scalars and as values of the scale.

        Cluster g is ``values[bounds[g]:bounds[g + 1]]``; it is not empty, and none of its values is missing. The result
        does not depend on the order of the members in their cluster.
        """

    def count(self, values: Float64Vector) -> None:  # noqa: B027 - most scales need no counts
        """Take note of all values (n,) of a table, before its clusters are published."""


class AttributeScale(ABC):
    """One attribute on its scale; ``tree`` and ``texts`` are the categories of an attribute that has codes.

    They are those of a `CategoryIndex`, of which the base class knows nothing.
    """

    is_coded: ClassVar[bool] = False
    """Whether values are codes, of which only equality counts. They have no coordinate."""
    has_categories: ClassVar[bool] = False
    """Whether a cluster publishes a category, not a number."""
    has_moments: ClassVar[bool] = False
    """Whether values have a mean and a variance."""
    has_trend: ClassVar[bool] = False
    """Whether values may grow with the offsets of a stream."""
    is_amount: ClassVar[bool] = False
    """Whether values are amounts, which can be added up and are published as JSON numbers."""
    faults: ClassVar[tuple[ScaleFault, ...]] = ()
    """What `explain` can return, besides `OUTSIDE_BOUNDS`."""

    def __init__(self, attribute: Attribute, tree: object = None, texts: CategoryTexts | None = None) -> None:  # noqa: ARG002
        self.attribute = attribute

    def __init_subclass__(cls, *, scale: Scale) -> None:
        """Register the class of a scale."""
        SCALES[scale] = cls

    # ---------------------------------------------------------------- parse

    @property
    def json_type(self) -> Any:  # noqa: ANN401 - a type or a union of types
        """The type that a value must have in JSON; a number is decoded as `NumberText` where its text decides."""
        return str | int | float | bool | None if self.attribute.may_be_missing else str | int | float | bool

    @property
    def column_need(self) -> ColumnNeed | None:
        """What a typed column must hold; None if values of any type may be on the scale."""
        return None

    @abstractmethod
    def reader(self, missing_values: Iterable[str], *, has_commas: bool = False) -> ScaleReader:
        """Return what converts values; ``missing_values`` are those of the policy."""

    # ---------------------------------------------------------------- embed

    @property
    def must_agree(self) -> bool:
        """Whether a cluster publishes a code only if all members have it."""
        return False

    def code_distances(self, apart: float, missing: float) -> Float64Vector:  # noqa: ARG002 - ``apart`` is for codes
        """Return the squared distance of two records in each column of `codes` in which they differ.

        ``apart`` is that of two categories, ``missing`` that of two records of which one lacks a number.
        """
        return np.full(1 if self.attribute.missing == "group" else 0, missing)

    def codes(self, values: Float64Vector) -> Int64Matrix:
        """Return the columns of codes (n, c): under ``missing: group`` one that tells whether the value is missing."""
        return np.isnan(values)[:, None].astype(np.int64)

    # ---------------------------------------------------------------- publish

    def grid_step(self, *, is_exact: bool) -> Decimal | None:  # noqa: ARG002
        """Return the step of published means, 0 for exact ones, if one grid can publish all such attributes at once.

        With ``is_exact`` the default is the exact mean, as in tables.
        """
        return None

    @property
    def smallest_step(self) -> float:
        """Difference of two neighbouring published values, in the unit of values; 0 if there is none."""
        return 0.0

    @abstractmethod
    def publisher(self, *, is_exact: bool, is_table: bool) -> Publisher:
        """Return what computes published values; ``is_table`` says that it sees all records of a table."""

    @property
    @abstractmethod
    def pattern(self) -> str:
        """Regular expression of the JSON scalars that a cluster may publish, without groups and without null."""

    @property
    @abstractmethod
    def published_types(self) -> set[type] | None:
        """Types of the scalars that a table publishes; None if they are those of the input."""

    @property
    def one_type(self) -> str:
        """What to do where published scalars have several types; {} is the place of the attribute in the policy."""
        return "give its values one type in the input"

    # ---------------------------------------------------------------- loss

    def distances(self, values: Float64Vector, published: Float64Vector) -> Float64Vector | None:  # noqa: ARG002
        """Return the distances (n,) from published values; None if they are differences over the range."""
        return None

    # ---------------------------------------------------------------- explain

    @property
    @abstractmethod
    def off_scale(self) -> ScaleFault:
        """What is wrong with a value that is not on the scale."""

    def explain(self, value: float) -> ScaleFault | None:
        """Return what is wrong with a value that is not missing; None if nothing is. Infinity is not on the scale."""
        if not math.isfinite(value):
            return self.off_scale
        low, high = self.attribute.limits
        return None if self.is_coded or self.attribute.clip or low <= value <= high else OUTSIDE_BOUNDS


SCALES: dict[Scale, type[AttributeScale]] = {}
"""The class of each scale."""


def scale_of(attribute: Attribute, tree: object = None, texts: CategoryTexts | None = None) -> AttributeScale:
    """Return an attribute on its scale."""
    return SCALES[attribute.scale](attribute, tree, texts)


def remedies() -> dict[str, str]:
    """Return what to do about each reason that `AttributeScale.explain` can return."""
    return dict([OUTSIDE_BOUNDS, *(fault for one in SCALES.values() for fault in one.faults)])


def cluster_of_each(bounds: Int64Vector) -> Int64Vector:
    """Return the number of the cluster of each member."""
    return np.arange(len(bounds) - 1).repeat(np.diff(bounds))
