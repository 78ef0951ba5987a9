"""The schema of a policy file: sections, keys, types, ranges and descriptions, each stated once.

pydantic checks types and ranges; `shoal schema` and docs/policy.md show them, and messages repeat them. A required key
may be missing, so that all other faults are found too: `missing_keys` finds it.

The description of a key is its only documentation. It is Markdown; links are relative to the folder ``docs``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from types import UnionType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    SecretStr,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

FieldPath: TypeAlias = tuple[str, ...]
Finding: TypeAlias = tuple[FieldPath, str]
"""The path of a field, and what is wrong with it."""
Number: TypeAlias = float

MAX_DELTA = 10_000_000
"""The buffer of ``delta`` records is allocated at the start. A larger value is most likely a mistake."""

MAX_HELD_BYTES = 64 << 20
"""Default of `stream.max_held_bytes`."""

SHOWN_DEFAULT = "x-default"
"""Annotation of a key: its default in words. The model's default of most keys is null, and `Policy` fills it in."""
_SHOWN_VALUES = "x-values"
"""Annotation of a key: its values in words, where the type does not tell them."""
REQUIRED_KEY = "x-required"
"""Annotation of a key without which its section is a fault: what to give."""
ONLY_ENVIRONMENT = "x-environment"
"""Annotation of a key that only the environment may set."""


class Section(BaseModel):
    """A mapping of the file. Unknown keys are faults, and no value is converted to another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True, allow_inf_nan=False)


def key(
    meaning: str,
    *,
    default: object = None,
    shown: str | None = None,
    values: str | None = None,
    example: object = None,
    required: str | None = None,
    only_environment: bool = False,
    **options: Any,  # noqa: ANN401 - as for the field
) -> Any:  # noqa: ANN401 - a field of any type
    """Return a key of a section with its documentation; ``options`` are those of `pydantic.Field`.

    ``shown`` is the default in words if a later step fills it in, ``values`` the values in words if the type does
    not tell them, ``required`` what to give if the key is missing.
    """
    extra = {
        SHOWN_DEFAULT: shown,
        _SHOWN_VALUES: values,
        REQUIRED_KEY: required,
        ONLY_ENVIRONMENT: only_environment or None,
    }
    if "default_factory" not in options:
        options["default"] = default
    return Field(
        description=meaning,
        examples=None if example is None else [example],
        json_schema_extra={name: value for name, value in extra.items() if value is not None},
        **options,
    )


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


EpochUnit: TypeAlias = Literal["s", "ms", "us", "ns", "days", "years"]
FieldType: TypeAlias = Literal["string", "integer", "number", "boolean", "any", "json"]
Missing: TypeAlias = Literal["quarantine", "group", "mean"]
NormalizeStep: TypeAlias = Literal["nfkc", "casefold", "spaces", "invisible"]


_NOT_OF_FORM = PydanticCustomError("form", "the message is made of the description")
_UNIQUE = Field(json_schema_extra={"uniqueItems": True})
_PAIR = Field(json_schema_extra={"minItems": 2, "maxItems": 2})


def _distinct(items: list[NormalizeStep]) -> list[NormalizeStep]:
    if len(set(items)) < len(items):
        raise _NOT_OF_FORM
    return items


class AttributeSection(Section):
    """``attributes.NAME``: one declared field of the records."""

    role: Literal["identifier", "quasi_identifier", "confidential", "other", "steering"] | None = key(
        "How the field can reveal a person, and whether it is published ([roles](#attributes)).",
        required="give identifier, quasi_identifier, confidential, other or steering",
    )
    subject: bool = key(
        "This `identifier` names the person that k counts. Exactly one attribute does, unless the policy says "
        "`subject: every_record` ([subjects](#subjects)).",
        default=False,
    )
    source: str = key(
        "The [part of the message](files.md#where-an-attribute-is-read) that holds the value, or [the path to a "
        "field](#nested-fields-and-envelopes).",
        default="value",
        values="`value`, `key`, `header:NAME`, `timestamp` or a path",
        example="value.patient.birth_date",
        alias="from",
    )
    scale: Literal["numeric", "ordinal", "nominal", "time"] | None = key(
        "How values are compared: as numbers, as [categories with an order](#ordinal-categories-with-an-order), as "
        "[categories without an order](#nominal-categories-without-an-order), or as [times](#time). Of a "
        "`confidential` attribute, which has no `time`: how far two values are apart for `t`.",
        shown="`numeric`; by `type` for `confidential`",
    )
    bounds: list[Number | str] | None = key(
        "Lowest and highest value of a number (within ±2^53) or a time (written like values). They clip values. They "
        "scale distances with `steering.scaling: bounds`, and those of a steering attribute of a stream always. A "
        "`confidential` number has them for `steering.dependence` in a stream only, and its values stay as they are.",
        values="`[low, high]`",
        example=[0, 110],
        min_length=2,
        max_length=2,
    )
    out_of_bounds: Literal["clip", "quarantine"] | None = key(
        "Values outside the bounds: `clip` moves them to the bounds and counts them, `quarantine` rejects the record "
        "as `invalid`.",
        shown="the key of the top level",
    )
    integer: bool | None = key(
        "The numbers are whole. With a fractional `resolution`, published values are not; `shoal check` warns.",
        shown="`false`",
    )
    resolution: Number | str | None = key(
        "The step of published values. Of numbers: published means are multiples of it; 0 publishes the exact mean. Of "
        "times: `15min`, `h`, `day`, `month`, `year`, or a number with `s`, `min`, `h`, `day`.",
        shown="`day` for times; of numbers 0 in tables, in streams by `bounds`",
        values="number, or a step of time",
        example=500,
    )
    weight: Number | None = key(
        "Factor of the attribute in distances. An attribute with a larger weight loses less information.",
        shown="1.0",
        example=2.0,
        gt=0,
        le=1_000_000,
    )
    order: list[str | int] | None = key(
        "The categories of scale `ordinal`, lowest first. Required for this scale.",
        values="list of at least two texts or integers",
        example=["none", "primary", "secondary", "tertiary"],
        min_length=2,
    )
    taxonomy: str | dict[str, Any] | list[Any] | None = key(
        "A [taxonomy](#taxonomies) of scale `nominal`: a CSV file, relative to the folder of the policy, or a tree.",
        values="file, mapping or list",
        example="job.csv",
    )
    prefixes: list[int] | None = key(
        "A [taxonomy](#prefixes) of codes without a file: how many first characters the groups share, from the lowest "
        "group up.",
        values="list of integers",
        example=[3, 1],
        min_length=1,
        max_length=31,
    )
    publish: Literal["mode", "ancestor", "median"] | None = key(
        "What a cluster publishes of a [nominal](#nominal-categories-without-an-order) attribute. `ancestor` and "
        "`median` need a taxonomy or prefixes.",
        shown="`ancestor` with a taxonomy or prefixes, else `mode`",
    )
    unknown: Literal["root", "quarantine"] | None = key(
        "Values that the taxonomy lacks: `root` takes each as a leaf of its own below the root, `quarantine` rejects "
        "the record as `invalid`.",
        shown="`root`",
    )
    unit: EpochUnit | None = key(
        "For scale `time`: values are numbers since 1970-01-01T00:00Z in this unit; `years` are numbers of calendar "
        "years. Without it they are texts.",
        example="ms",
    )
    format: str | list[str] | None = key(
        "For scale `time`: the form of the texts, or a list of forms ([time](#time)); without it ISO 8601.",
        values="text or list of texts",
        example="%d/%m/%Y",
        min_length=1,
    )
    thousands: Literal[".", ",", "'", " "] | None = key(
        "For scale `numeric`: what may stand between groups of three digits ([written numbers](#written-numbers)).",
        example=".",
    )
    symbol: str | None = key(
        "For scale `numeric`: what may stand before or behind a number, such as `%` or `€` ([written "
        "numbers](#written-numbers)).",
        example="€",
        min_length=1,
        max_length=10,
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
        "What a value must be, where no scale says it; `any` takes the JSON scalar as it is. `json` is only for "
        "`confidential`: an object or a list is published whole, with everything in it.",
        shown="`any`",
        example="string",
    )
    max_bytes: int | None = key(
        "With `type: json`: a longer field makes its record `too_large`.",
        shown="10,000",
        example=2000,
        ge=1,
        le=1_000_000,
    )
    normalize: Annotated[list[NormalizeStep], AfterValidator(_distinct), _UNIQUE] | None = key(
        "Only at the subject: further steps that make one person of several spellings ([subjects](#subjects)).",
        shown="`[]`",
        values="list of `nfkc`, `casefold`, `spaces` and `invisible`, each once",
        example=["nfkc", "casefold", "spaces", "invisible"],
    )
    publish_unchanged: bool = key(
        "The field may identify records, and that is intended. Required for `other`. For `confidential` it turns the "
        "error of `shoal verify --strict` into a warning. `shoal check` warns of every such field.",
        default=False,
    )
    protect: bool = key(
        "`l`, `t` and `max_value_share` apply to the confidential attributes with this key, or to all if none has it "
        "([confidential values](protection.md)).",
        default=False,
    )
    reference: str | None = key(
        "CSV file (`value,share`) of the distribution that `t` compares with. Required in a stream with `t`; `shoal "
        "reference` writes one.",
        values="file",
        example="diagnosis.csv",
    )


Text: TypeAlias = Annotated[str, Field(min_length=1)]
_OWN_OUTPUT = "every input has an output of its own"


class TopicPairSection(Section):
    """``kafka.topics``: an input topic and its output topic."""

    input: Text | None = key("An input topic.", required=_OWN_OUTPUT, example="visits.north")
    output: Text | None = key("The output topic of this input.", required=_OWN_OUTPUT, example="visits.north.anonymous")


class KafkaSection(Section):
    """``kafka``: connection, topics, consumer group and timings. An environment variable overrides each field."""

    bootstrap_servers: Text | None = key(
        "Addresses of brokers, `HOST:PORT`, separated by commas.", shown="required", example="kafka-1:9093,kafka-2:9093"
    )
    input: Text | None = key(
        "The input topic. No two topics may be equal, or differ in `.` and `_` only.",
        shown="required, or `topics`",
        example="visits",
    )
    output: Text | None = key(
        "The output topic. It has at least as many partitions as the input.",
        shown="required, or `topics`",
        example="visits.anonymous",
    )
    group: Text | None = key("The consumer group.", shown="required", example="shoal-visits")
    quarantine: Text | None = key(
        "Topic for references (topic, partition, offset, reason) to all records that are not published. Side topics "
        "may have fewer partitions than the input.",
        example="visits.quarantine",
    )
    clusters: Text | None = key(
        "Topic for centroid, size and number of subjects of each cluster.", example="visits.clusters"
    )
    evidence: Text | None = key(
        "Topic for the offsets of each cluster's members, for `shoal verify`. Protect it like the input.",
        example="visits.evidence",
    )
    progress_copy: Text | None = key(
        "Private compacted topic that holds [a copy of the progress](operate.md#copy-of-the-progress).",
        example="visits.progress",
    )
    topics: list[TopicPairSection] | None = key(
        "Several inputs, each with an output of its own, in place of `input` and `output` "
        "([several topics](operate.md#several-topics)). In the environment it is JSON.",
        values="list of `{input: TOPIC, output: TOPIC}`",
        example=[{"input": "visits.north", "output": "visits.north.anonymous"}],
    )
    instance_id: Text | None = key(
        "Static membership (`group.instance.id`), different for each worker. A restart within the session timeout then "
        "causes no rebalance.",
        example="shoal-0",
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = key(
        "How the broker's listener is secured. Required with any `sasl_*` or `ssl_*` setting. `PLAINTEXT` by name "
        "switches all of them off; the other protocols refuse those that they do not use.",
        default="PLAINTEXT",
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = key(
        "How the worker authenticates itself. `PLAIN` sends the password as it is, so use it with `SASL_SSL` only.",
        shown="`PLAIN`",
    )
    sasl_username: SecretStr | None = key("User name. Required for SASL with a password.", strict=False)
    sasl_password: SecretStr | None = key(
        "Password. Required for SASL with a password. Put it into the environment or a file.", strict=False
    )
    sasl_password_file: Text | None = key(
        "File that holds the password instead.", values="file", example="/run/secrets/password"
    )
    sasl_oauth_token: SecretStr | None = key(
        "An OAuth token, for short runs: after it has expired, no connection is made. Only from the environment. This, "
        "the file or the command is required for `OAUTHBEARER`.",
        only_environment=True,
        strict=False,
    )
    sasl_oauth_token_file: Text | None = key(
        "File with an OAuth token, read for each connection.", values="file", example="/run/secrets/token"
    )
    sasl_oauth_command: list[str] | None = key(
        "Program and arguments that print an OAuth token, and nothing else. In the environment it is JSON.",
        values="list of texts",
        example=["/usr/local/bin/token", "--audience", "kafka"],
        repr=False,
    )
    ssl_cafile: Text | None = key(
        "File of the certificates that are trusted (PEM).",
        shown="the system's",
        values="file",
        example="/etc/shoal/ca.pem",
    )
    ssl_certfile: Text | None = key(
        "Client certificate (PEM), if the broker wants one.", values="file", example="/etc/shoal/client.pem"
    )
    ssl_keyfile: Text | None = key(
        "Private key of the client certificate (PEM).",
        shown="in `ssl_certfile`",
        values="file",
        example="/etc/shoal/client.key",
    )
    ssl_password: SecretStr | None = key(
        "Password of an encrypted private key. Only from the environment.", only_environment=True, strict=False
    )
    ssl_password_file: Text | None = key(
        "File that holds this password instead.", values="file", example="/run/secrets/key-password"
    )
    metadata_key: SecretStr | None = key(
        "The keys of the offset metadata themselves, in place of their file. Only from the environment.",
        only_environment=True,
        strict=False,
    )
    metadata_key_file: Text | None = key(
        "File of keys that encrypt the offset metadata ([keys](operate.md#keys)).",
        values="file",
        example="metadata.key",
    )
    commit_interval_ms: int = key("Time between the transactions of a partition.", default=200, ge=1, le=60_000)
    session_timeout_ms: int = key(
        "Session timeout of the consumer group: how long the partitions of a killed worker wait for the next one.",
        default=10_000,
        ge=1_000,
    )
    patience_s: Number = key(
        "How long to try again while the broker cannot be reached, or lets no transactions begin. Then the worker ends "
        "with exit code 3. A drain waits as long for a partition.",
        default=300,
        ge=0,
    )
    max_record_bytes: int = key("Longer records are `too_large`. This holds for files, too.", default=900_000, ge=100)


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
        "Of every window, at most so many records of one person are published.",
        required="give the maximum number of records of one subject released per window",
        example=3,
        ge=1,
    )
    window: int | None = key(
        "Length of a window in offsets of a partition. A restart reads up to one window again.",
        required="give the length of a window in records of a partition",
        example=10_000,
        ge=1,
        le=1_000_000,
    )


def _c_and_l(values: list[Number]) -> list[Number]:
    if len(values) != 2 or not (values[0] > 0 and values[1] >= 2 and float(values[1]).is_integer()):  # noqa: PLR2004
        raise _NOT_OF_FORM
    return values


def _kind(value: object) -> str:
    return "(section)" if isinstance(value, dict | Section) else "(number)"


_NUMBER, _SECTION = Tag("(number)"), Tag("(section)")
"""In locations, these names of types are not taken for keys."""
_NUMBER_OR_SECTION = Discriminator(_kind)


class DiversitySection(Section):
    """``privacy.l``: a form of l-diversity other than a number of different values. It has one of its keys."""

    entropy: Number | None = key("An entropy of the values of at least the logarithm of this number.", example=3, gt=1)
    recursive: Annotated[list[Number], AfterValidator(_c_and_l), _PAIR] | None = key(
        "The most frequent value is less than c times as frequent as the l-th and all rarer ones together.",
        values="`[c, l]`: c above 0, l an integer of at least 2",
        example=[2, 3],
    )

    @model_validator(mode="after")
    def _one_form(self) -> DiversitySection:
        if (self.entropy is None) == (self.recursive is None):
            raise _NOT_OF_FORM
        return self


_Diversity: TypeAlias = Annotated[
    Annotated[int, Field(ge=2), _NUMBER] | Annotated[DiversitySection, _SECTION], _NUMBER_OR_SECTION
]


class PrivacySection(Section):
    """``privacy``: the minimum number of subjects in a cluster, and further privacy requirements."""

    k: int | None = key(
        "Fewest different subjects in a cluster.",
        required="give the minimum number of distinct subjects in a cluster",
        example=10,
        ge=2,
        le=MAX_DELTA,
    )
    max_share: Number | None = key(
        "Largest share of one subject in the records of a cluster. At least 1/k.", shown="0.5", example=0.5, gt=0, le=1
    )
    per_subject: PerSubjectSection | None = key(
        "How many records of one person are published within a window ([ADR 6](adr/0006-subject-quota.md)).",
        shown="off",
        values="`{max: N, window: W}`",
        example={"max": 3, "window": 10_000},
    )
    min_population: int | None = key(
        "While fewer people wait, `max_delay_s` releases no record, and `--drain` and the end of a file suppress the "
        "rest. From k to δ; 2k is recommended.",
        shown="off",
        example=20,
        ge=2,
    )
    l: _Diversity | None = key(  # noqa: E741 - l-diversity
        "l-diversity of each protected attribute ([confidential values](protection.md#l-diversity)): a number of "
        "different values, or one of two other forms. Price: loss; in a stream, more records are suppressed.",
        shown="off",
        values="integer of at least 2, `{entropy: L}` or `{recursive: [C, L]}`",
        example=3,
    )
    max_value_share: Number | None = key(
        "Largest share of the people of a cluster who have one value of a protected attribute; 1 is no limit. Price as "
        "of `l`.",
        shown="0.5 with distinct `l`, else off",
        example=0.6,
        gt=0,
        le=1,
    )
    t: Number | None = key(
        "t-closeness of each protected attribute ([confidential values](protection.md#t-closeness)). A stream needs a "
        "`reference`. Price as of `l`, and more: a small `t` sets the size of clusters.",
        shown="off",
        example=0.2,
        gt=0,
        lt=1,
    )


class StreamSection(Section):
    """``stream``: the maximum delay of a record, the rule that forms clusters, and the release order."""

    delta: int | None = key(
        "δ, the largest delay in records: a record is released or suppressed at the latest when δ later records of its "
        "partition have arrived. Without later records it waits, unless `max_delay_s` is set. At least k − 1. The "
        "service allows about 20,000, and less with `release: ordered`.",
        required="give the maximum delay in records",
        example=100,
        ge=1,
        le=MAX_DELTA,
    )
    max_delay_s: Number | None = key(
        "Largest delay in seconds, by the timestamps of later records and, at an idle partition, by the clock. Files "
        "without `--follow` have no clock.",
        shown="none",
        example=30,
        gt=0,
        le=1_000_000_000,
    )
    max_held_bytes: int = key(
        "Largest size of what the records of a partition that wait publish unchanged, in bytes. Beyond it the oldest "
        "record is decided early. Bounds the memory of a worker where records are large. With `release: ordered`, "
        "decided records that wait for earlier ones are not counted.",
        default=MAX_HELD_BYTES,
        ge=1_000_000,
        le=1 << 40,
    )
    rule: Literal["nearest", "greedy", "awo", "block", "auto"] = key(
        "Which records form a cluster ([rules](rules.md)). `auto` chooses by k, `l` and `t`; `shoal check` tells.",
        default="auto",
    )
    release: Literal["cluster", "ordered"] = key(
        "`cluster`: a cluster is published whole. `ordered`: each record at its own expiry, in input order; until then "
        "fewer than k people of a cluster may be visible ([rules](rules.md#release)).",
        default="cluster",
    )
    reveal_order: bool = key(
        "Only with `ordered`: each record keeps its own confidential and other fields in its own row, whose position "
        "shows when it arrived.",
        default=False,
    )


class TableSection(Section):
    """``table``: what `shoal batch` may do with a finished table."""

    keep_order: bool = key(
        "Allows `shoal batch --keep-order`. A row number then identifies the record of a row, with its confidential "
        "values, for everyone who knows the order of the input. `shoal verify` accepts this order only with this key.",
        default=False,
    )


class SteeringAttributeSection(Section):
    """``steering.by``: an attribute of role ``steering``, and its weight."""

    attribute: str | None = key(
        "Name of an attribute of role `steering`.", required="name an attribute of role steering", example="ward"
    )
    weight: Number | None = key(
        "Its factor in distances. A larger weight costs more information about the quasi-identifiers.",
        required="give a number above 0",
        example=0.2,
        gt=0,
        le=1_000_000,
    )


class TargetSpanSection(Section):
    """``steering.position``: the mean excess span to hold, in place of a weight."""

    target_span: Number | None = key(
        "Mean excess span to hold, in records. The weight of the position follows it.",
        required="give the mean excess span to hold, in records",
        example=20,
        ge=0,
        le=MAX_DELTA,
    )


_Position: TypeAlias = Annotated[
    Annotated[Number, Field(ge=0), _NUMBER] | Annotated[TargetSpanSection, _SECTION], _NUMBER_OR_SECTION
]


class SteeringSection(Section):
    """``steering``: how much clusters should preserve order and dependence, beside similarity."""

    position: _Position = key(
        "Weight of the position of records: less reordering, more loss. Or the mean excess span to hold, in records; "
        "the weight then follows it ([steering](steering.md)).",
        default=0.0,
        values="number of at least 0, or `{target_span: S}`",
        example=0.01,
    )
    scaling: Literal["spreads", "bounds"] = key(
        "How numbers, ranks and times of a stream are scaled in distances: by spreads learned from published values "
        "or by their `bounds` ([steering](steering.md#scaling)). Tables use standard deviations.",
        default="spreads",
    )
    dependence: Number = key(
        "Weight of confidential numbers in distances ([tables](tables.md#dependence), "
        "[streams](steering.md#dependence)). In a stream they need `bounds`. Not with `t`.",
        default=0.0,
        example=0.5,
        ge=0,
        le=1,
    )
    by: list[SteeringAttributeSection] | None = key(
        "The [steering attributes](#steering-attributes) with their weights.",
        values="list of `{attribute: NAME, weight: W}`",
        example=[{"attribute": "ward", "weight": 0.2}],
    )


class CsvSection(Section):
    """``csv``: the dialect of the input, and of the output where section ``output`` does not override it."""

    delimiter: Literal[",", ";", "\t", "tab", "|"] | None = key("Separates the cells of a row.", shown="`,`")
    quote: Literal['"', "'"] | None = key("Stands around a cell that needs it.", shown='`"`')
    escape: Literal["doubled", "backslash"] | None = key(
        "How a quotation mark is written inside quotes: twice, or after a backslash.", shown="`doubled`"
    )
    decimal: Literal[".", ","] | None = key(
        "The decimal sign. With `,`, a cell with a point is no number.", shown="`.`"
    )
    encoding: Encoding | None = key("How characters are written as bytes.", shown="`utf-8`", example="cp1252")
    line_end: Literal["lf", "crlf", "cr"] | None = key(
        "Ends a row. LF and CRLF are both read unless it is `cr`.", shown="`lf`"
    )
    multiline: bool | None = key(
        "Cells may contain lines that would be valid records by themselves ([files](files.md#csv)).", shown="`false`"
    )
    output: CsvSection | None = key(
        "Where the output differs from the input: the keys above except `multiline`.",
        shown="as the input",
        example={"encoding": "utf-8"},
    )


class Document(Section):
    """A policy file."""

    attributes: dict[str, AttributeSection] = key(
        "The fields of a record, in the order of the output ([attributes](#attributes)). What happens to other "
        "fields: `undeclared`.",
        default_factory=dict,
        required="declare every field of the input",
        example={"age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True}},
        min_length=1,
    )
    subject: Literal["every_record"] | None = key(
        "Each record is a different person, [also one that is sent twice](#subjects). Without this key exactly one "
        "attribute has `subject: true`."
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
    skip: dict[str, list[MissingText]] = key(
        "What is no record: messages in which a field has one of these texts, as the test accounts of a shop, are "
        "dropped and counted. A field need not be declared.",
        default_factory=dict,
        shown="none",
        values="mapping of fields to lists of texts",
        example={"__deleted": ["true"]},
    )
    unwrap: Literal["debezium", "connect", "cloudevents"] | None = key(
        "The envelope of messages ([messages](#nested-fields-and-envelopes))."
    )
    deletes: Literal["drop", "quarantine"] | None = key(
        "With `unwrap: debezium`: messages that say that a row was deleted.", shown="`quarantine`"
    )
    tombstones: Literal["drop", "quarantine"] | None = key("Messages without a value.", shown="`quarantine`")
    privacy: PrivacySection | None = key(
        "How many people a cluster has, and further requirements ([privacy](#privacy)).",
        required="give at least privacy.k",
        example={"k": 10},
    )
    stream: StreamSection | None = key(
        "Delay, rule and release of a stream ([stream](#stream)). A table needs none.", example={"delta": 100}
    )
    table: TableSection = key(
        "What `shoal batch` may do with a finished table ([table](#table)).",
        default_factory=TableSection,
        shown="see below",
    )
    steering: SteeringSection = key(
        "Less reordering, preserved dependence, similar values ([steering](#steering)).",
        default_factory=SteeringSection,
        shown="see below",
    )
    kafka: KafkaSection | None = key(
        "Connection, topics and timings of the service ([kafka](#kafka)).",
        example={"input": "visits", "output": "visits.anonymous", "group": "shoal-visits"},
    )
    csv: CsvSection | None = key(
        "The dialect of CSV files ([csv](#csv)).", values="mapping", example={"delimiter": ";"}
    )

    @property
    def missing_texts(self) -> list[str]:
        """Texts that mean that a value is missing; an empty one if the policy names none."""
        return [""] if self.missing_values is None else self.missing_values


_Model = TypeVar("_Model", bound=BaseModel)


def validate(model: type[_Model], tree: dict[str, Any], *, strict: bool | None = None) -> tuple[_Model, list[Finding]]:
    """Return what fits the model, and one fault, without values or Python types, for each field that does not.

    Fields with faults are removed from ``tree`` until the rest is valid.
    """
    faults: dict[FieldPath, str] = {}
    while True:
        try:
            return model.model_validate(tree, strict=strict), list(faults.items())
        except ValidationError as error:
            kinds: dict[FieldPath, str] = {}
            for detail in error.errors(include_input=False, include_url=False):
                kinds.setdefault(_path_in(tree, tuple(map(str, detail["loc"]))), detail["type"])
            # Describe all faults before a field is removed: a description reads the fields of the file.
            found = {path: _describe(kind, path, model, tree) for path, kind in kinds.items()}
            # A section that lacks a removed field has no fault of its own.
            around = {known[:length] for known in faults for length in range(len(known) + 1)}
            faults |= {path: message for path, message in found.items() if path not in around}
            for path in found:
                _remove(tree, path)


def missing_keys(section: Section, path: FieldPath = ()) -> Iterator[Finding]:
    """Yield each required key that a section or a section in it lacks."""
    for name, field in type(section).model_fields.items():
        value, place = getattr(section, name), (*path, field.alias or name)
        if not value and value != 0 and (remedy := _annotations(field).get(REQUIRED_KEY)):
            yield place, f"missing; {remedy}"
        below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        parts = [(place, value), *((((*place, str(step))), part) for step, part in below)]
        for where, part in parts:
            if isinstance(part, Section):
                yield from missing_keys(part, where)


def did_you_mean(name: object, known: Sequence[str]) -> str:
    """Return a question that names the most similar known word; an empty text if none is similar."""
    spellings = {word.lower(): word for word in known}
    found = get_close_matches(name.lower(), spellings, 1) if isinstance(name, str) else []
    return f"did you mean {spellings[found[0]]}?" if found else ""


_WORDS: dict[object, str] = {
    str: "text",
    SecretStr: "text, secret",
    int: "integer",
    float: "number",
    bool: "`true` or `false`",
}


def values_in_words(field: FieldInfo) -> str:
    """Return what a key may hold, in Markdown."""
    words = _annotations(field).get(_SHOWN_VALUES) or " or ".join(dict.fromkeys(_words(field.annotation)))
    return str(words) + (_limits(field) if words in {"integer", "number"} else "")


def _words(annotation: object) -> Iterator[str]:
    for part in _alternatives(annotation):
        if get_origin(part) is Literal:
            yield ", ".join(f"`{json.dumps(word)[1:-1] if word == chr(9) else word}`" for word in get_args(part))
        elif get_origin(part) is list:
            yield f"list of {' and '.join(f'{word}s' for word in _words(get_args(part)[0]))}"
        elif get_origin(part) is dict or (isinstance(part, type) and issubclass(part, Section)):
            yield "mapping"
        elif part in _WORDS:
            yield _WORDS[part]


def _limits(field: FieldInfo) -> str:
    names = ("ge", "gt", "le", "lt")
    limits = {name: getattr(rule, name) for rule in field.metadata for name in names if hasattr(rule, name)}
    if limits.keys() == {"ge", "le"}:
        return f" from {limits['ge']:,} to {limits['le']:,}"
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    found = " and ".join(f"{words[name]} {limits[name]:,}" for name in names if name in limits)
    return f"{' of' if 'ge' in limits else ''} {found}" if found else ""


_SCALE = (
    "unknown scale; give numeric (numbers whose differences have a meaning), ordinal (categories with an order), "
    "nominal (categories without an order) or time; a field of another kind is an identifier, which leaves it out of "
    "the output"
)
_ARTICLE = re.compile("^(integer|number|list|mapping|file|path)|, secret$")
_OF_KIND = {
    "finite_number": "must be a finite number",
    "string_too_short": "must not be empty; give a value or remove the field",
}


_REMOVED = {
    "transaction_timeout_ms": "it is 60 s; remove it",
    "sasl_username_file": "a user name is no secret; give sasl_username, or SHOAL_KAFKA__SASL_USERNAME",
}


def _describe(kind: str, path: FieldPath, model: type[BaseModel], tree: object) -> str:
    """Return what a field must be, or what to do about it, for pydantic's name of a fault; values are not repeated."""
    if kind == "extra_forbidden":
        if path[-1] in _REMOVED:
            return f"no longer a field: {_REMOVED[str(path[-1])]}"
        hint = did_you_mean(path[-1], list(_keys_at(model, path[:-1])))
        return f"unknown field; {hint or 'remove it or check its spelling'}"
    if kind in _OF_KIND:
        return _OF_KIND[kind]
    field, annotation = _field_at(model, path)
    if kind == "literal_error":
        return _describe_word(path[-1], _value_at(tree, path), annotation)
    if kind == "too_short" and field is not None and (remedy := _annotations(field).get(REQUIRED_KEY)):
        return f"missing; {remedy}"
    words = [values_in_words(field)] if field is not None else list(dict.fromkeys(_words(annotation)))
    return f"must be {' or '.join(_ARTICLE.sub(_with_article, word) for word in words)}".replace("`", "")


def _with_article(found: re.Match[str]) -> str:
    """Return a word with its article; nothing of the remark that a text is secret."""
    return f"{'an' if found[0] == 'integer' else 'a'} {found[0]}" if found[1] else ""


def _describe_word(key: str, value: object, annotation: object) -> str:
    words = [str(word) for part in _alternatives(annotation) for word in get_args(part)]
    hint = did_you_mean(value, words)
    if key == "scale" and hint in {"", "did you mean numeric?"}:
        # Words for categories, such as categorical, are similar to numeric.
        return _SCALE
    shown = [word if word.isalnum() or (word.isprintable() and len(word) > 1) else repr(word) for word in words]
    return f"must be {', '.join(shown[:-1])}{' or ' if shown[1:] else ''}{shown[-1]}" + (f"; {hint}" if hint else "")


def _annotations(field: FieldInfo) -> dict[str, Any]:
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def _alternatives(annotation: object) -> Iterator[object]:
    """Yield the types of which an annotation is one."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif origin in {Union, UnionType}:
        for part in get_args(annotation):
            yield from _alternatives(part)
    else:
        yield annotation


def _keys_at(model: type[BaseModel], path: FieldPath) -> dict[str, FieldInfo]:
    """Return the fields that the section at a path may have, by key."""
    for part in _alternatives(_field_at(model, path)[1]):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return {field.alias or name: field for name, field in part.model_fields.items()}
    return {}


def _field_at(model: type[BaseModel], path: FieldPath) -> tuple[FieldInfo | None, object]:
    """Return a field by its path, and its annotation; None for an entry of a list or a mapping."""
    if not path:
        return None, model
    if fields := _keys_at(model, path[:-1]):
        field = fields.get(path[-1])
        return field, None if field is None else field.annotation
    outer = _alternatives(_field_at(model, path[:-1])[1])
    return None, next((get_args(part)[-1] for part in outer if get_origin(part) in {dict, list}), None)


def _step(tree: object, step: str) -> tuple[object, ...]:
    """Return the part of a tree by a key or an index; nothing if it has none."""
    if isinstance(tree, Mapping) and step in tree:
        return (tree[step],)
    return (tree[int(step)],) if isinstance(tree, list) and step.isdigit() and int(step) < len(tree) else ()


def _path_in(tree: object, location: FieldPath) -> FieldPath:
    """Return pydantic's location without the names of types, which it gives for a field of several types."""
    path: list[str] = []
    for step in location:
        for part in _step(tree, step):
            tree = part
            path.append(step)
    return tuple(path)


def _value_at(tree: object, path: FieldPath) -> object:
    """Return the value of a field; None without one."""
    for step in path:
        tree = next(iter(_step(tree, step)), None)
    return tree


def _remove(tree: object, path: FieldPath) -> None:
    """Remove a field. For an item of a list, remove the whole list: a shorter list would mean something else."""
    if isinstance(_value_at(tree, path[:-1]), list):
        path = path[:-1]
    section = _value_at(tree, path[:-1])
    if isinstance(section, dict):
        section.pop(path[-1], None)


DIALECT = "https://json-schema.org/draft/2020-12/schema"
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_REFERENCE = re.compile(rf" \({_LINK.pattern}(?:, {_LINK.pattern})*\)")
"""Links in parentheses, which say where to read more."""
_VALUES = {"const", "default", "enum", "examples"}
"""Keywords that hold values of a policy."""
_DROPPED = {SHOWN_DEFAULT, _SHOWN_VALUES, REQUIRED_KEY, "title"}


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
