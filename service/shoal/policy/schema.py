"""The schema of a policy file: typed sections in which every field may be missing.

Only the type of each field is checked here, so that all faults of a file can be reported at once. `validation` checks
the rules that involve several fields, and `resolved` fills in the defaults.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr
from pydantic_core import PydanticCustomError

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
Number: TypeAlias = float
Encoding: TypeAlias = Literal[
    "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "iso-8859-15", "cp1250", "cp1252"
]


def _text_of_scalar(value: object) -> object:
    """Return the text of a number or a boolean, as JSON writes it; any other value as it is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, int | float) else value


MissingText: TypeAlias = Annotated[str, BeforeValidator(_text_of_scalar)]
"""A text that means that a value is missing. A number or a boolean stands for its text."""


def _section_of_number(value: object) -> object:
    """Return ``privacy.l`` as a section: a number is that of distinct values."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"distinct": value}
    if value is None or isinstance(value, dict | DiversitySection):
        return value
    kind = "l"
    raise PydanticCustomError(kind, "of another type")


class Section(BaseModel):
    """A mapping of the file. Unknown keys are faults, and no value is converted to another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class AttributeSection(Section):
    """``attributes.NAME``: one declared field of the records."""

    role: Literal["identifier", "quasi_identifier", "confidential", "other", "steering"] | None = None
    subject: bool = False
    source: str = Field(default="value", alias="from")
    scale: Literal["numeric", "ordinal", "nominal", "time"] | None = None
    bounds: list[Number | str] | None = None
    out_of_bounds: Literal["clip", "quarantine"] | None = None
    integer: bool | None = None
    resolution: Number | str | None = None
    weight: Number | None = None
    order: list[str | int] | None = None
    taxonomy: str | dict[str, Any] | list[Any] | None = None
    publish: Literal["mode", "ancestor", "median"] | None = None
    unknown: Literal["root", "quarantine"] | None = None
    unit: EpochUnit | None = None
    missing: Missing | None = None
    to: str | None = None
    type: FieldType | None = None
    max_bytes: int | None = None
    normalize: list[NormalizeStep] | None = None
    publish_unchanged: bool = False
    protect: bool = False
    reference: str | None = None


class PerSubjectSection(Section):
    """``privacy.per_subject``: how many records of one subject may be released per window."""

    max: int | None = None
    window: int | None = None


class DiversitySection(Section):
    """``privacy.l``: one of four forms of l-diversity. A number in its place is that of ``distinct``."""

    distinct: int | None = None
    p_sensitive: int | None = None
    entropy: Number | None = None
    recursive: list[Number] | None = None


class PrivacySection(Section):
    """``privacy``: the minimum number of subjects in a cluster, and further privacy requirements."""

    k: int | None = None
    max_share: Number | None = None
    dominance: Number | None = None
    per_subject: PerSubjectSection | None = None
    min_population: int | None = None
    l: Annotated[DiversitySection | None, BeforeValidator(_section_of_number)] = None  # noqa: E741 - l-diversity
    max_value_share: Number | None = None
    t: Number | None = None


class StreamSection(Section):
    """``stream``: the maximum delay of a record, the rule that forms clusters, and the release order."""

    delta: int | None = None
    max_delay_s: Number | None = None
    rule: Literal["nearest", "greedy", "awo", "block", "auto"] = "auto"
    release: Literal["cluster", "ordered"] = "cluster"
    reveal_order: bool = False


class TableSection(Section):
    """``table``: what `shoal batch` may do with a finished table."""

    keep_order: bool = False


class SteeringAttributeSection(Section):
    """``steering.by``: an attribute of role ``steering``, and its weight."""

    attribute: str | None = None
    weight: Number | None = None


class SteeringSection(Section):
    """``steering``: how much clusters should preserve order and dependence, beside similarity."""

    position: Number | dict[str, Number] = 0.0
    dependence: Number = 0.0
    by: list[SteeringAttributeSection] | None = None


class TopicPairSection(Section):
    """``kafka.topics``: an input topic and its output topic."""

    input: str | None = None
    output: str | None = None


class KafkaSection(Section):
    """``kafka``: connection, topics, consumer group and timings. An environment variable overrides each field."""

    bootstrap_servers: str | None = None
    input: str | None = None
    output: str | None = None
    group: str | None = None
    quarantine: str | None = None
    clusters: str | None = None
    evidence: str | None = None
    progress_copy: str | None = Field(
        default=None,
        description="private compacted topic that holds a copy of the progress; a start without the group's takes it",
    )
    topics: list[TopicPairSection] | None = None
    instance_id: str | None = None
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = None
    sasl_username: SecretStr | None = Field(default=None, strict=False)
    sasl_username_file: str | None = None
    sasl_password: SecretStr | None = Field(default=None, strict=False)
    sasl_password_file: str | None = None
    sasl_oauth_token_file: str | None = None
    sasl_oauth_command: list[str] | None = None
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_password: SecretStr | None = Field(default=None, strict=False)
    ssl_password_file: str | None = None
    metadata_key: SecretStr | None = Field(default=None, strict=False)
    metadata_key_file: str | None = None
    commit_interval_ms: int = Field(default=200, ge=1, le=60_000)
    session_timeout_ms: int = Field(default=10_000, ge=1_000)
    transaction_timeout_ms: int = Field(default=60_000, ge=1_000)
    patience_s: Number = Field(default=300, ge=0)
    max_record_bytes: int = Field(default=900_000, ge=100)


class DialectSection(Section):
    """The dialect of a CSV file."""

    delimiter: Literal[",", ";", "\t", "tab", "|"] | None = None
    quote: Literal['"', "'"] | None = None
    escape: Literal["doubled", "backslash"] | None = None
    decimal: Literal[".", ","] | None = None
    encoding: Encoding | None = None
    line_end: Literal["lf", "crlf", "cr"] | None = None


class CsvSection(DialectSection):
    """``csv``: the dialect of the input, and of the output where section ``output`` does not override it.

    ``multiline`` allows cells that contain lines which would be valid records by themselves.
    """

    multiline: bool | None = None
    output: DialectSection | None = None


class Document(Section):
    """A policy file."""

    attributes: dict[str, AttributeSection] = Field(default_factory=dict)
    subject: Literal["every_record"] | None = None
    undeclared: Literal["quarantine", "drop"] = "quarantine"
    out_of_bounds: Literal["clip", "quarantine"] = "clip"
    missing_values: list[MissingText] | None = None
    unwrap: Literal["debezium", "connect", "cloudevents"] | None = None
    deletes: Literal["drop", "quarantine"] | None = None
    tombstones: Literal["drop", "quarantine"] | None = None
    privacy: PrivacySection | None = None
    stream: StreamSection | None = None
    table: TableSection = Field(default_factory=TableSection)
    steering: SteeringSection = Field(default_factory=SteeringSection)
    kafka: KafkaSection | None = None
    csv: CsvSection | None = None

    @property
    def missing_texts(self) -> list[str]:
        """Texts that mean that a value is missing; an empty one if the policy names none."""
        return [""] if self.missing_values is None else self.missing_values
