"""The schema of a policy file: typed sections in which every field may be missing.

Only the type of each field is checked here, so that all faults of a file can be reported at once. `validation` checks
the rules that involve several fields, and `resolved` fills in the defaults.

The base of all sections of a policy file, and the description of their keys.

The description of a key is its only documentation: `docs/policy.md` and `shoal schema` are made of it. It is Markdown;
links are relative to the folder ``docs``.

The schema of section ``attributes``, and the words that it uses.

The schema of section ``kafka``: connection, topics, consumer group and timings.

The JSON Schema of a policy file, for editors: keys, types, limits, defaults and descriptions.

It accepts every policy that Shoal accepts. Rules that involve several keys are not in it: `shoal check` reports them.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr
from pydantic_core import PydanticCustomError

__all__ = [
    "ONLY_ENVIRONMENT",
    "REQUIRED_KEY",
    "SHOWN_DEFAULT",
    "SHOWN_VALUES",
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
    "Number",
    "PerSubjectSection",
    "PrivacySection",
    "Role",
    "Scale",
    "Section",
    "SteeringAttributeSection",
    "SteeringSection",
    "StreamSection",
    "TableSection",
    "TopicPairSection",
    "key",
    "policy_schema",
]

Number: TypeAlias = float

SHOWN_DEFAULT = "x-default"
"""Annotation of a key: its default in words. The model's default of most keys is null, and `resolved` fills it in."""
SHOWN_VALUES = "x-values"
"""Annotation of a key: its values in words, where the type does not tell them."""
REQUIRED_KEY = "x-required"
"""Annotation of a key without which its section is a fault."""
ONLY_ENVIRONMENT = "x-environment"
"""Annotation of a key that only the environment may set."""


class Section(BaseModel):
    """A mapping of the file. Unknown keys are faults, and no value is converted to another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


def key(
    meaning: str,
    *,
    default: object = None,
    shown: str | None = None,
    values: str | None = None,
    example: object = None,
    required: bool = False,
    only_environment: bool = False,
    options: dict[str, Any] | None = None,
    **schema: Any,  # noqa: ANN401 - any JSON
) -> Any:  # noqa: ANN401 - a field of any type
    """Return a field of a section with its documentation.

    Parameters
    ----------
    meaning : str
        What the key does, in Markdown.
    default : object
        The default of the model.
    shown : str, optional
        The default in words, if a later step fills it in.
    values : str, optional
        The values in words, if the type does not tell them.
    example : object, optional
        A value as in a policy.
    required : bool
        Whether the section needs the key.
    only_environment : bool
        Whether a policy must not contain the key.
    options : dict, optional
        Further arguments of `pydantic.Field`, which check the value.
    **schema
        Keywords of JSON Schema for limits that `validation` checks, such as ``minimum``.
    """
    annotations: dict[str, Any] = {
        SHOWN_DEFAULT: shown,
        SHOWN_VALUES: values,
        REQUIRED_KEY: required or None,
        ONLY_ENVIRONMENT: only_environment or None,
    }
    extra = {name: value for name, value in (annotations | schema).items() if value is not None}
    examples = None if example is None else [example]
    return Field(default, description=meaning, examples=examples, json_schema_extra=extra, **(options or {}))


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


_CONVERTED = {"strict": False}
"""A text becomes a `SecretStr`."""


class TopicPairSection(Section):
    """``kafka.topics``: an input topic and its output topic."""

    input: str | None = key("An input topic.", required=True, example="visits.north")
    output: str | None = key("The output topic of this input.", required=True, example="visits.north.anonymous")


class KafkaSection(Section):
    """``kafka``: connection, topics, consumer group and timings. An environment variable overrides each field."""

    bootstrap_servers: str | None = key(
        "Addresses of brokers, `HOST:PORT`, separated by commas.",
        shown="required",
        example="kafka-1:9093,kafka-2:9093",
    )
    input: str | None = key(
        "The input topic. No two topics may be equal, or differ in `.` and `_` only.",
        shown="required, or `topics`",
        example="visits",
    )
    output: str | None = key(
        "The output topic. It has at least as many partitions as the input.",
        shown="required, or `topics`",
        example="visits.anonymous",
    )
    group: str | None = key("The consumer group.", shown="required", example="shoal-visits")
    quarantine: str | None = key(
        "Topic for references (topic, partition, offset, reason) to all records that are not published, also "
        "suppressed ones. This and the other side topics may have fewer partitions than the input.",
        example="visits.quarantine",
    )
    clusters: str | None = key(
        "Topic for centroid, size and number of subjects of each cluster.", example="visits.clusters"
    )
    evidence: str | None = key(
        "Topic for the offsets of each cluster's members, for `shoal verify`. Protect it like the input.",
        example="visits.evidence",
    )
    progress_copy: str | None = key(
        "Private compacted topic that holds [a copy of the progress](operate.md#copy-of-the-progress). A start takes "
        "it if the group has lost its own. Protect it like the input.",
        example="visits.progress",
    )
    topics: list[TopicPairSection] | None = key(
        "Several inputs, each with an output of its own, in place of `input` and `output` "
        "([several topics](operate.md#several-topics)). In the environment it is JSON.",
        values="list of `{input: TOPIC, output: TOPIC}`",
        example=[{"input": "visits.north", "output": "visits.north.anonymous"}],
    )
    instance_id: str | None = key(
        "Static membership (`group.instance.id`), different for each worker. A restart within the session timeout then "
        "causes no rebalance.",
        example="shoal-0",
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = key(
        "How the broker's listener is secured. Required with any `sasl_*` or `ssl_*` setting. `PLAINTEXT` by name "
        "switches all of them off, as for a test against a local broker; the other protocols refuse those that they do "
        "not use.",
        default="PLAINTEXT",
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = key(
        "How the worker authenticates itself. `PLAIN` sends the password as it is, so use it with `SASL_SSL` only.",
        shown="`PLAIN`",
        example="SCRAM-SHA-512",
    )
    sasl_username: SecretStr | None = key("User name. Required for SASL with a password.", options=_CONVERTED)
    sasl_username_file: str | None = key(
        "File that holds the user name instead.", values="file", example="/run/secrets/username"
    )
    sasl_password: SecretStr | None = key(
        "Password. Required for SASL with a password. Put it into the environment or a file.", options=_CONVERTED
    )
    sasl_password_file: str | None = key(
        "File that holds the password instead.", values="file", example="/run/secrets/password"
    )
    sasl_oauth_token: SecretStr | None = key(
        "An OAuth token that stays the same, for short runs: after it has expired, no connection is made. Put it into "
        "the environment. This, the file or the command is required for `OAUTHBEARER`.",
        options=_CONVERTED,
    )
    sasl_oauth_token_file: str | None = key(
        "File with an OAuth token, read for each connection.",
        values="file",
        example="/run/secrets/token",
    )
    sasl_oauth_command: list[str] | None = key(
        "Program and arguments that print an OAuth token, and nothing else. In the environment it is JSON.",
        values="list of texts",
        example=["/usr/local/bin/token", "--audience", "kafka"],
        options={"repr": False},
    )
    ssl_cafile: str | None = key(
        "File of the certificates that are trusted (PEM).",
        shown="the system's",
        values="file",
        example="/etc/shoal/ca.pem",
    )
    ssl_certfile: str | None = key(
        "Client certificate (PEM), if the broker wants one.", values="file", example="/etc/shoal/client.pem"
    )
    ssl_keyfile: str | None = key(
        "Private key of the client certificate (PEM).",
        shown="in `ssl_certfile`",
        values="file",
        example="/etc/shoal/client.key",
    )
    ssl_password: SecretStr | None = key("Password of an encrypted private key.", options=_CONVERTED)
    ssl_password_file: str | None = key(
        "File that holds this password instead.", values="file", example="/run/secrets/key-password"
    )
    metadata_key: SecretStr | None = key(
        "The keys of the offset metadata themselves, in place of their file. Only from the environment: a policy must "
        "not contain a key.",
        only_environment=True,
        options=_CONVERTED,
    )
    metadata_key_file: str | None = key(
        "File of keys that encrypt the offset metadata ([keys](operate.md#keys)).",
        values="file",
        example="metadata.key",
    )
    commit_interval_ms: int = key(
        "Time between the transactions of a partition.", default=200, options={"ge": 1, "le": 60_000}
    )
    session_timeout_ms: int = key(
        "Session timeout of the consumer group: how long the partitions of a killed worker wait for the next one.",
        default=10_000,
        options={"ge": 1_000},
    )
    transaction_timeout_ms: int = key(
        "Transaction timeout. The broker's `transaction.max.timeout.ms` must allow it.",
        default=60_000,
        options={"ge": 1_000},
    )
    patience_s: Number = key(
        "How long to try again while the broker cannot be reached, or lets no transactions begin. Then the worker ends "
        "with exit code 3. A drain waits as long for a partition whose leader is away, or that cannot be opened.",
        default=300,
        options={"ge": 0},
    )
    max_record_bytes: int = key(
        "Longer records are `too_large`. This holds for files, too.", default=900_000, options={"ge": 100}
    )


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
        "Which records form a cluster ([rules](rules.md)). `auto` chooses by k, `l` and `t`; `shoal check` tells.",
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


DIALECT = "https://json-schema.org/draft/2020-12/schema"
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_REFERENCE = re.compile(rf" \({_LINK.pattern}(?:, {_LINK.pattern})*\)")
"""Links in parentheses, which say where to read more."""
_VALUES = {"const", "default", "enum", "examples"}
"""Keywords that hold values of a policy."""
_DROPPED = {SHOWN_DEFAULT, SHOWN_VALUES, REQUIRED_KEY, "title"}


def policy_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a policy as plain JSON."""
    return {"$schema": DIALECT, "title": "Shoal policy", **_cleaned(Document.model_json_schema())}


def _cleaned(node: Any) -> Any:  # noqa: ANN401 - any part of a JSON document
    """Return a part of pydantic's schema without its titles and null defaults, with the annotations of keys applied."""
    if isinstance(node, list):
        return [_cleaned(item) for item in node]
    if not isinstance(node, dict):
        return node
    cleaned: dict[str, Any] = {}
    for name, value in node.items():
        if name in {"properties", "$defs"}:
            cleaned[name] = {key: _cleaned(part) for key, part in value.items() if not part.get(ONLY_ENVIRONMENT)}
        elif name == "description":
            cleaned[name] = _plain(value, node.get(SHOWN_DEFAULT))
        elif name not in _DROPPED and (name, value) != ("default", None):
            cleaned[name] = value if name in _VALUES else _cleaned(value)
    if required := [key for key, value in node.get("properties", {}).items() if value.get(REQUIRED_KEY)]:
        cleaned["required"] = required
    return cleaned


def _plain(description: str, default: str | None) -> str:
    """Return a description as one paragraph without links, and with the default in words."""
    text = " ".join(_LINK.sub(r"\1", _REFERENCE.sub("", description.replace("``", "`"))).split())
    return text if default is None or default.startswith("required") else f"{text} Default: {default}."
