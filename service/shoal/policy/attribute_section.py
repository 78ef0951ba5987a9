"""The schema of section ``attributes``, and the words that it uses."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, TypeAlias

from shoal.policy.section import Number, Section, key

__all__ = [
    "AttributeSection",
    "EpochUnit",
    "FieldType",
    "Missing",
    "NormalizeStep",
    "Role",
    "Scale",
]


class Role(StrEnum):
    """How a field can reveal a person, in the terms of statistical disclosure control."""

    IDENTIFIER = "identifier"
    QUASI_IDENTIFIER = "quasi_identifier"
    CONFIDENTIAL = "confidential"
    OTHER = "other"
    STEERING = "steering"


class Scale(StrEnum):
    """How the values of a quasi-identifier are compared."""

    NUMERIC = "numeric"
    ORDINAL = "ordinal"
    NOMINAL = "nominal"
    TIME = "time"


EpochUnit: TypeAlias = Literal["s", "ms", "us", "days"]
FieldType: TypeAlias = Literal["string", "integer", "number", "boolean", "any", "json"]
Missing: TypeAlias = Literal["quarantine", "group", "mean"]
NormalizeStep: TypeAlias = Literal["nfkc", "casefold", "spaces", "invisible"]


class AttributeSection(Section):
    """``attributes.NAME``: one declared field of the records."""

    role: Literal["identifier", "quasi_identifier", "confidential", "other", "steering"] | None = key(
        "How the field can reveal a person, and whether it is published ([roles](#attributes)).",
        required=True,
        example="quasi_identifier",
    )
    subject: bool = key(
        "This attribute names the person that k counts. Its role must be `identifier`. Exactly one attribute is the "
        "subject, unless the policy says `subject: every_record` ([subjects](#subjects)).",
        default=False,
    )
    source: str = key(
        "The part of the message that holds the value: `value`, `key`, `header:NAME` or `timestamp` "
        "([files and messages](files.md)), or [the path to a field](#nested-fields-and-envelopes).",
        default="value",
        values="`value`, `key`, `header:NAME`, `timestamp` or a path",
        example="value.patient.birth_date",
        options={"alias": "from"},
    )
    scale: Literal["numeric", "ordinal", "nominal", "time"] | None = key(
        "How values are compared: as numbers, as [categories with an order](#ordinal-categories-with-an-order), as "
        "[categories without an order](#nominal-categories-without-an-order), or as [times](#time). Of a "
        "`confidential` attribute: how far two values are apart for `t`; it has no scale `time`.",
        shown="`numeric`; by `type` for `confidential`",
        example="ordinal",
    )
    bounds: list[Number | str] | None = key(
        "Lowest and highest value of a number or a time. Numbers are within ±2^53, times are written like values. "
        "They clip values. Distances of a quasi-identifier are scaled by them only with `steering.scaling: bounds`; "
        "those of a steering attribute of a stream always, so that it needs them. Of a `confidential` number, only for "
        "`steering.dependence` in a stream: distances are scaled by them, and values stay as they are.",
        values="`[low, high]`",
        example=[0, 110],
        minItems=2,
        maxItems=2,
    )
    out_of_bounds: Literal["clip", "quarantine"] | None = key(
        "For numbers and times: what happens to values outside the bounds. `clip` moves them to the bounds and counts "
        "them, `quarantine` rejects the record as `invalid`.",
        shown="the key of the top level",
        example="quarantine",
    )
    integer: bool | None = key(
        "The numbers are whole. With a fractional `resolution`, published values are not; `shoal check` warns.",
        shown="`false`",
    )
    resolution: Number | str | None = key(
        "The step of published values. A number: published means are multiples of it; 0 publishes the exact mean, "
        "rounded once to float64. A time: `15min`, `h`, `day`, `month`, `year`, or a number with `s`, `min`, `h`, "
        "`day`.",
        shown="`day` for times; of numbers 0 in tables, in streams by `bounds`",
        values="number, or a step of time",
        example=500,
    )
    weight: Number | None = key(
        "Factor of the attribute in distances. An attribute with a larger weight loses less information. The weight of "
        "a steering attribute is in `steering.by`.",
        shown="1.0",
        example=2.0,
        exclusiveMinimum=0,
        maximum=1_000_000,
    )
    order: list[str | int] | None = key(
        "The categories of scale `ordinal`, lowest first. Required for this scale.",
        example=["none", "primary", "secondary", "tertiary"],
        minItems=2,
    )
    taxonomy: str | dict[str, Any] | list[Any] | None = key(
        "A [taxonomy](#taxonomies) of scale `nominal`: a CSV file, relative to the folder of the policy, or a tree.",
        values="file, mapping or list",
        example="job.csv",
    )
    publish: Literal["mode", "ancestor", "median"] | None = key(
        "What a cluster publishes of a [nominal](#nominal-categories-without-an-order) attribute. `ancestor` and "
        "`median` need a taxonomy.",
        shown="`ancestor` with a taxonomy, else `mode`",
        example="median",
    )
    unknown: Literal["root", "quarantine"] | None = key(
        "Values that the taxonomy lacks: `root` takes each as a leaf of its own below the root, `quarantine` rejects "
        "the record as `invalid`.",
        shown="`root`",
        example="quarantine",
    )
    unit: EpochUnit | None = key(
        "For scale `time`: values are numbers since 1970-01-01T00:00Z in this unit; without it they are texts.",
        example="ms",
    )
    missing: Missing | None = key(
        "Records without a value: `quarantine` rejects them as `invalid`, `group` takes missing as a category, `mean` "
        "places them in the middle ([missing values](#missing-values)).",
        shown="`quarantine`",
        example="group",
    )
    to: str | None = key(
        "Path of the field in the output. Not for `identifier` and `steering`, which are not published.",
        shown="the attribute's name",
        values="path",
        example="patient.born",
    )
    type: FieldType | None = key(
        "What a value must be; `any` takes the JSON scalar as it is. Not for quasi-identifiers and steering "
        "attributes, whose type follows from the scale. `json` is only for `confidential`: an object or a list is "
        "published whole, with everything in it.",
        shown="`any`",
        example="string",
    )
    max_bytes: int | None = key(
        "With `type: json`: a longer field makes its record `too_large`.",
        shown="10,000",
        example=2000,
        minimum=1,
        maximum=1_000_000,
    )
    normalize: list[NormalizeStep] | None = key(
        "Only at the subject: further steps that make one person of several spellings ([subjects](#subjects)).",
        shown="`[]`",
        example=["nfkc", "casefold", "spaces", "invisible"],
        uniqueItems=True,
    )
    publish_unchanged: bool = key(
        "The field may identify records, and that is intended. Required for `other`. For `confidential` it turns the "
        "error of `shoal verify --strict` into a warning. `shoal check` warns of every such field: with the published "
        "values and with each other, fields of few values single people out, too.",
        default=False,
    )
    protect: bool = key(
        "`l`, `t` and `max_value_share` apply to this confidential attribute and to others with this key; without any "
        "such key, to all confidential attributes ([confidential values](protection.md)).",
        default=False,
    )
    reference: str | None = key(
        "CSV file with the header `value,share`: the distribution of a confidential attribute that `t` compares with. "
        "Required in a stream with `t`; `shoal reference` writes one.",
        values="file",
        example="diagnosis.csv",
    )
