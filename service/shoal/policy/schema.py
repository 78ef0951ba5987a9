"""The schema of a policy file: typed sections in which every field may be missing.

Only the type of each field is checked here, so that all faults of a file can be reported at once. `validation` checks
the rules that involve several fields, and `resolved` fills in the defaults.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from shoal.policy.attribute_section import (
    AttributeSection,
    EpochUnit,
    FieldType,
    Missing,
    NormalizeStep,
    Role,
    Scale,
)
from shoal.policy.kafka_section import KafkaSection, TopicPairSection
from shoal.policy.section import Number, Section, key

__all__ = [
    "AttributeSection",
    "CsvSection",
    "DialectSection",
    "DiversitySection",
    "Document",
    "EpochUnit",
    "FieldType",
    "KafkaSection",
    "Missing",
    "NormalizeStep",
    "PerSubjectSection",
    "PrivacySection",
    "Role",
    "Scale",
    "SteeringAttributeSection",
    "SteeringSection",
    "StreamSection",
    "TableSection",
    "TopicPairSection",
]

Encoding: TypeAlias = Literal[
    "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "iso-8859-15", "cp1250", "cp1252"
]


def _text_of_scalar(value: object) -> object:
    """Return the text of a number or a boolean, as JSON writes it; any other value as it is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, int | float) else value


MissingText: TypeAlias = Annotated[
    str, BeforeValidator(_text_of_scalar, json_schema_input_type=str | int | float | bool)
]
"""A text that means that a value is missing. A number or a boolean stands for its text."""


class PerSubjectSection(Section):
    """``privacy.per_subject``: how many records of one subject may be released per window."""

    max: int | None = key(
        "Of every window, at most so many records of one person are published.", required=True, example=3, minimum=1
    )
    window: int | None = key(
        "Length of a window in offsets of a partition. A restart reads up to one window again.",
        required=True,
        example=10_000,
        minimum=1,
        maximum=1_000_000,
    )


class DiversitySection(Section):
    """``privacy.l``: one of four forms of l-diversity. A number in its place is that of ``distinct``."""

    distinct: int | None = key("At least so many different values.", example=3, minimum=2)
    p_sensitive: int | None = key("Another name for `distinct`.", example=3, minimum=2)
    entropy: Number | None = key(
        "An entropy of the values of at least the logarithm of this number.", example=3, exclusiveMinimum=1
    )
    recursive: list[Number] | None = key(
        "The most frequent value is less than c times as frequent as the l-th and all rarer ones together.",
        values="`[c, l]`",
        example=[2, 3],
        minItems=2,
        maxItems=2,
    )


def _section_of_number(value: object) -> object:
    """Return ``privacy.l`` as a section: a number is that of distinct values."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"distinct": value}
    if value is None or isinstance(value, dict | DiversitySection):
        return value
    kind = "l"
    raise PydanticCustomError(kind, "of another type")


class PrivacySection(Section):
    """``privacy``: the minimum number of subjects in a cluster, and further privacy requirements."""

    k: int | None = key(
        "Fewest different subjects in a cluster.", required=True, example=10, minimum=2, maximum=10_000_000
    )
    max_share: Number | None = key(
        "Largest share of one subject in the records of a cluster. At least 1/k.",
        shown="0.5",
        example=0.5,
        exclusiveMinimum=0,
        maximum=1,
    )
    dominance: Number | None = key(
        "p in percent, for numeric quasi-identifiers of a stream. The largest contribution to a published mean cannot "
        "be computed within p %, not even by the second largest contributor "
        "([ADR 7](adr/0007-dominance-and-minimum-population.md)). It needs bounds and k ≥ 3. Price: extreme records "
        "wait for similar ones, or are suppressed.",
        shown="off",
        example=20,
        exclusiveMinimum=0,
        exclusiveMaximum=100,
    )
    per_subject: PerSubjectSection | None = key(
        "How many records of one person are published within a window ([ADR 6](adr/0006-subject-quota.md)). The others "
        "are suppressed.",
        shown="off",
        values="`{max: N, window: W}`",
        example={"max": 3, "window": 10_000},
    )
    min_population: int | None = key(
        "While fewer different people wait, no record is released by a clock (`max_delay_s`), by `--drain`, or at the "
        "end of a file. From k to δ; 2k is recommended. Price: `max_delay_s` is not enforced until enough people wait; "
        "a drain and the end of a file suppress the rest.",
        shown="off",
        example=20,
        minimum=2,
    )
    l: Annotated[  # noqa: E741 - l-diversity
        DiversitySection | None,
        BeforeValidator(_section_of_number, json_schema_input_type=int | DiversitySection | None),
    ] = key(
        "l-diversity of each protected attribute ([confidential values](protection.md#l-diversity)): a number of "
        "different values, or one of four forms. Price: loss; in a stream, more records are suppressed.",
        shown="off",
        values="integer of at least 2, or a mapping with one key",
        example=3,
        minimum=2,
    )
    max_value_share: Number | None = key(
        "Largest share of one value of a protected attribute in the records of a cluster; 1 is no limit. Price as of "
        "`l`.",
        shown="0.5 with distinct `l`, else off",
        example=0.6,
        exclusiveMinimum=0,
        maximum=1,
    )
    t: Number | None = key(
        "t-closeness of each protected attribute ([confidential values](protection.md#t-closeness)). A stream needs a "
        "`reference`. Price as of `l`, and more: a small `t` sets the size of clusters.",
        shown="off",
        example=0.2,
        exclusiveMinimum=0,
        exclusiveMaximum=1,
    )


class StreamSection(Section):
    """``stream``: the maximum delay of a record, the rule that forms clusters, and the release order."""

    delta: int | None = key(
        "δ, the largest delay in records: a record is released or suppressed at the latest when δ later records of its "
        "partition have arrived. Without later records it waits, unless `max_delay_s` is set. At least k − 1. The "
        "service allows about 20,200, and less with `release: ordered`; `shoal check` reports a larger one if the "
        "policy has a `kafka` section.",
        required=True,
        example=100,
        minimum=1,
        maximum=10_000_000,
    )
    max_delay_s: Number | None = key(
        "Largest delay in seconds. It is enforced by the timestamps of later records and, at an idle partition, by the "
        "clock from the read time on. Files without `--follow` have no clock.",
        shown="none",
        example=30,
        exclusiveMinimum=0,
        maximum=1_000_000_000,
    )
    rule: Literal["nearest", "greedy", "awo", "block", "auto"] = key(
        "Which records form a cluster ([rules](rules.md)). `auto` chooses by k and `dominance`; `shoal check` tells.",
        default="auto",
    )
    release: Literal["cluster", "ordered"] = key(
        "`cluster`: a cluster is published whole. `ordered`: each record is published at its own expiry, in input "
        "order. Until all its records are published, fewer than k people of a cluster may be visible "
        "([rules](rules.md#release)).",
        default="cluster",
    )
    reveal_order: bool = key(
        "Only with `ordered`: each record keeps its own confidential and other fields in its own row. The position of "
        "a row then shows when its record arrived.",
        default=False,
    )


class TableSection(Section):
    """``table``: what `shoal batch` may do with a finished table."""

    keep_order: bool = key(
        "Allows `shoal batch --keep-order`. A row number then identifies the record of a row, with its confidential "
        "values, for everyone who knows the order of the input. `shoal verify` accepts this order only with this key, "
        "which is part of the fingerprint.",
        default=False,
    )


class SteeringAttributeSection(Section):
    """``steering.by``: an attribute of role ``steering``, and its weight."""

    attribute: str | None = key("Name of an attribute of role `steering`.", required=True, example="ward")
    weight: Number | None = key(
        "Its factor in distances. A larger weight costs more information about the quasi-identifiers.",
        required=True,
        example=0.2,
        exclusiveMinimum=0,
        maximum=1_000_000,
    )


_TARGET_SPAN = {
    "type": "object",
    "properties": {"target_span": {"type": "number", "minimum": 0, "maximum": 10_000_000}},
    "required": ["target_span"],
    "additionalProperties": False,
}


class SteeringSection(Section):
    """``steering``: how much clusters should preserve order and dependence, beside similarity."""

    position: Number | dict[str, Number] = key(
        "Weight of the position of records: less reordering, more loss. Or the mean excess span to hold, in records; "
        "the weight then follows it ([steering](steering.md)).",
        default=0.0,
        values="number of at least 0, or `{target_span: S}`",
        example=0.01,
        anyOf=[{"type": "number", "minimum": 0}, _TARGET_SPAN],
    )
    scaling: Literal["spreads", "bounds"] = key(
        "How numbers, ranks and times of a stream are scaled in distances: by their spreads, which are learned from "
        "published values, or by their `bounds`, as in the literature ([steering](steering.md#scaling)). Tables use "
        "standard deviations.",
        default="spreads",
        example="bounds",
    )
    dependence: Number = key(
        "Weight of confidential numbers in distances ([tables](tables.md#dependence), "
        "[streams](steering.md#dependence)). In a stream they need `bounds`. Not with `t`.",
        default=0.0,
        example=0.5,
        minimum=0,
        maximum=1,
    )
    by: list[SteeringAttributeSection] | None = key(
        "The [steering attributes](#steering-attributes) with their weights.",
        values="list of `{attribute: NAME, weight: W}`",
        example=[{"attribute": "ward", "weight": 0.2}],
    )


class DialectSection(Section):
    """The dialect of a CSV file."""

    delimiter: Literal[",", ";", "\t", "tab", "|"] | None = key(
        "Separates the cells of a row.", shown="`,`", example=";"
    )
    quote: Literal['"', "'"] | None = key("Stands around a cell that needs it.", shown='`"`', example="'")
    escape: Literal["doubled", "backslash"] | None = key(
        "How a quotation mark is written inside quotes: twice, or after a backslash.",
        shown="`doubled`",
        example="backslash",
    )
    decimal: Literal[".", ","] | None = key(
        "The decimal sign. With `,`, a cell with a point is no number. There are no thousands separators.",
        shown="`.`",
        example=",",
    )
    encoding: Encoding | None = key("How characters are written as bytes.", shown="`utf-8`", example="cp1252")
    line_end: Literal["lf", "crlf", "cr"] | None = key(
        "Ends a row. LF and CRLF are both read unless it is `cr`.", shown="`lf`", example="crlf"
    )


class CsvSection(DialectSection):
    """``csv``: the dialect of the input, and of the output where section ``output`` does not override it."""

    multiline: bool | None = key(
        "Cells may contain lines that would be valid records by themselves ([files](files.md#csv)).", shown="`false`"
    )
    output: DialectSection | None = key(
        "Where the output differs from the input: the keys above except `multiline`.",
        shown="as the input",
        values="mapping",
        example={"encoding": "utf-8"},
    )


class Document(Section):
    """A policy file."""

    attributes: dict[str, AttributeSection] = Field(
        default_factory=dict,
        description="The fields of a record, in the order of the output ([attributes](#attributes)). What happens to "
        "other fields: `undeclared`.",
        examples=[{"age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True}}],
        json_schema_extra={"x-required": True, "x-values": "mapping", "minProperties": 1},
    )
    subject: Literal["every_record"] | None = key(
        "Each record is a different person, [also one that is sent twice](#subjects). Without this key exactly one "
        "attribute has `subject: true`.",
        example="every_record",
    )
    undeclared: Literal["quarantine", "drop"] = key(
        "Fields that are not declared: `quarantine` rejects the record as `invalid`, `drop` ignores the field.",
        default="quarantine",
    )
    out_of_bounds: Literal["clip", "quarantine"] = key(
        "Values outside the bounds, for all attributes: `clip` moves them to the bounds and counts them, `quarantine` "
        "rejects the record as `invalid`.",
        default="clip",
    )
    missing_values: list[MissingText] | None = key(
        "Texts that mean [that a value is missing](#missing-values), beside JSON null. A number or a boolean stands "
        "for its text.",
        shown='`[""]`',
        values="list of texts",
        example=["", "?"],
    )
    unwrap: Literal["debezium", "connect", "cloudevents"] | None = key(
        "The envelope of messages ([messages](#nested-fields-and-envelopes)).", example="debezium"
    )
    deletes: Literal["drop", "quarantine"] | None = key(
        "With `unwrap: debezium`: messages that say that a row was deleted.", shown="`quarantine`", example="drop"
    )
    tombstones: Literal["drop", "quarantine"] | None = key(
        "Messages without a value.", shown="`quarantine`", example="drop"
    )
    privacy: PrivacySection | None = key(
        "How many people a cluster has, and further requirements ([privacy](#privacy)).",
        required=True,
        values="mapping",
        example={"k": 10},
    )
    stream: StreamSection | None = key(
        "Delay, rule and release of a stream ([stream](#stream)). A table needs none.",
        values="mapping",
        example={"delta": 100},
    )
    table: TableSection = Field(
        default_factory=TableSection,
        description="What `shoal batch` may do with a finished table ([table](#table)).",
        json_schema_extra={"x-values": "mapping", "x-default": "see below"},
    )
    steering: SteeringSection = Field(
        default_factory=SteeringSection,
        description="Less reordering, preserved dependence, similar values ([steering](#steering)).",
        json_schema_extra={"x-values": "mapping", "x-default": "see below"},
    )
    kafka: KafkaSection | None = key(
        "Connection, topics and timings of the service ([kafka](#kafka)).",
        values="mapping",
        example={"input": "visits", "output": "visits.anonymous", "group": "shoal-visits"},
    )
    csv: CsvSection | None = key(
        "The dialect of CSV files ([csv](#csv)).", values="mapping", example={"delimiter": ";"}
    )

    @property
    def missing_texts(self) -> list[str]:
        """Texts that mean that a value is missing; an empty one if the policy names none."""
        return [""] if self.missing_values is None else self.missing_values
