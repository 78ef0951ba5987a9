"""The resolved policy: every default is filled in, and nothing changes it afterwards.

Sections of a resolved policy, and where it was read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import starmap
from pathlib import Path
from typing import Any, Literal, Self

from shoal.errors import Fault, PolicyError
from shoal.policy.attribute import Attribute, Reference, resolve_attribute
from shoal.policy.checks import check_document, check_leaves, explain_rule, is_follow_up, resolve_rule
from shoal.policy.diversity import Diversity, resolve_diversity
from shoal.policy.document import FieldPath, Lines, line_of, read_document
from shoal.policy.messages import CsvDialect, MessagePart, resolve_dialects
from shoal.policy.references import is_of_reference, read_references, without_references
from shoal.policy.schema import Document, KafkaSection, PerSubjectSection, PrivacySection, Role, StreamSection
from shoal.policy.taxonomy import Taxonomy, read_taxonomies, replace_taxonomies

__all__ = [
    "DEFAULT_MAX_VALUE_SHARE",
    "Origin",
    "PerSubject",
    "Policy",
    "Stream",
    "optional_float",
    "resolve_per_subject",
    "resolve_stream",
    "resolve_value_share",
    "shown_settings",
]

DEFAULT_MAX_VALUE_SHARE = 0.5
"""With distinct l-diversity, also in Python. Without a limit, sizes of clusters and suppressed records can reveal the
common value.
"""


@dataclass(frozen=True, slots=True)
class Stream:
    """The resolved section ``stream``.

    Attributes
    ----------
    delta : int
        Maximum delay in records.
    max_delay_s : float or None
        Maximum delay in seconds.
    rule : str
        The rule that forms clusters; never ``auto``.
    release : {"cluster", "ordered"}
        Whether whole clusters are released, or single records in the order of the input.
    reveal_order : bool
        For ordered release: whether each record keeps its own confidential values.
    reason : str
        Why ``auto`` selected the rule; empty if the policy names the rule. For information only.
    """

    delta: int
    max_delay_s: float | None
    rule: str
    release: Literal["cluster", "ordered"]
    reveal_order: bool = False
    reason: str = ""

    @property
    def is_ordered(self) -> bool:
        """Whether each record is released when its own delay has passed, in the order of the input."""
        return self.release == "ordered"


@dataclass(frozen=True, slots=True)
class PerSubject:
    """At most ``max`` records of one subject are released per window.

    Window j of a partition consists of its offsets from ``j * window`` to ``(j + 1) * window - 1``. In files, record
    numbers take the place of offsets.
    """

    max: int
    window: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a policy was read; only for messages.

    Attributes
    ----------
    source : str
        The file.
    lines : mapping
        Line (from 1) of each field, by path.
    """

    source: str
    lines: Mapping[FieldPath, int] = field(default_factory=dict)

    def line_of(self, path: FieldPath) -> int | None:
        """Return the line of a field, or of the nearest enclosing field that has a line."""
        return line_of(path, self.lines)


def resolve_stream(section: StreamSection | None, privacy: PrivacySection) -> Stream | None:
    """Return the section with its defaults; None without one."""
    if section is None or section.delta is None or privacy.k is None:
        return None
    options = {
        "protects_values": privacy.t is not None
        or resolve_diversity(privacy.l) is not None
        or resolve_value_share(privacy) is not None,
    }
    rule = resolve_rule(section.rule, privacy.k, **options)
    reason = explain_rule(section.rule, privacy.k, **options)
    limit = optional_float(section.max_delay_s)
    return Stream(section.delta, limit, rule, section.release, section.reveal_order, reason)


def resolve_value_share(privacy: PrivacySection) -> float | None:
    """Return the largest share of a confidential value; with distinct l-diversity, 0.5 is the default.

    Without l and t, a share of 1 is no limit, so that such a policy does not count as one that protects values.
    """
    diversity = resolve_diversity(privacy.l)
    if privacy.max_value_share == 1 and diversity is None and privacy.t is None:
        return None
    if privacy.max_value_share is None and diversity is not None and diversity.kind == "distinct":
        return DEFAULT_MAX_VALUE_SHARE
    return optional_float(privacy.max_value_share)


def optional_float(value: float | None) -> float | None:
    """Return a number as float; None stays."""
    return None if value is None else float(value)


def resolve_per_subject(section: PerSubjectSection | None) -> PerSubject | None:
    """Return the quota; None without a section."""
    if (
        section is None or section.max is None or section.window is None
    ):  # `check_document` reports an incomplete section
        return None
    return PerSubject(section.max, section.window)


DEFAULT_MAX_SHARE = 0.5


@dataclass(frozen=True)
class Policy:
    """A resolved policy. `load` and `from_document` check it, so that every instance is valid.

    Attributes
    ----------
    attributes : tuple of Attribute
        In the order of the policy.
    undeclared : {"quarantine", "drop"}
        What happens to a field that the policy does not declare: its record is quarantined, or the field is dropped.
    k : int
        Minimum number of distinct subjects in a cluster.
    max_share : float
        Maximum share of one subject in the records of a cluster.
    stream : Stream or None
        None for a policy of finished tables.
    position : float
        Weight of the position of a record; ignored if ``target_span`` is set.
    target_span : float or None
        Mean excess span to hold, in records.
    kafka : KafkaSection or None
    csv, csv_output : CsvDialect
    per_subject, min_population, t, dependence
        Options of the sections ``privacy`` and ``steering``; None or 0 if not set.
    scaling : {"spreads", "bounds"}
        How the distances of a stream are scaled (``steering.scaling``).
    diversity : Diversity or None
        l-diversity of each protected attribute (``privacy.l``).
    max_value_share : float or None
        Maximum share of one value of a protected attribute in the records of a cluster. 0.5 if the policy asks for
        distinct l-diversity and says nothing of it.
    missing_values : tuple of str
        Texts that mean that a value is missing, in cells and in JSON strings. JSON null always does.
    unwrap : {"debezium", "connect", "cloudevents"} or None
        The envelope that messages have.
    deletes, tombstones : {"drop", "quarantine"}
        What happens to messages that say that a row was deleted, and to messages without a value.
    keep_order : bool
        Whether the rows of a finished table may keep the order of the input (``table.keep_order``).
    origin : Origin or None
        The file; None for a policy that was made from a document.
    """

    attributes: tuple[Attribute, ...]
    undeclared: Literal["quarantine", "drop"]
    k: int
    max_share: float
    stream: Stream | None
    position: float
    kafka: KafkaSection | None
    csv: CsvDialect
    csv_output: CsvDialect
    per_subject: PerSubject | None = None
    min_population: int | None = None
    t: float | None = None
    diversity: Diversity | None = None
    max_value_share: float | None = None
    dependence: float = 0.0
    scaling: Literal["spreads", "bounds"] = "spreads"
    target_span: float | None = None
    keep_order: bool = False
    missing_values: tuple[str, ...] = ("",)
    unwrap: Literal["debezium", "connect", "cloudevents"] | None = None
    deletes: Literal["drop", "quarantine"] = "quarantine"
    tombstones: Literal["drop", "quarantine"] = "quarantine"
    origin: Origin | None = field(default=None, compare=False, repr=False)

    @classmethod
    def load(
        cls,
        path: str | Path,
        taxonomies: Mapping[str, str | Path] | None = None,
        *,
        needs_references: bool = True,
    ) -> Self:
        """Read, check and resolve a policy file: TOML if its suffix is ``.toml``, else YAML.

        Parameters
        ----------
        path : path
        taxonomies : mapping of str to path, optional
            Files of taxonomies by attribute, in place of those that the policy names.
        needs_references : bool
            Whether references are read, and must be there where the policy needs them. Without them a policy is good
            for writing them only.

        Raises
        ------
        PolicyError
            Lists every fault with its line.
        InputError
            The file cannot be read.
        """
        document, faults, lines = read_document(Path(path))
        document, unknown = replace_taxonomies(document, taxonomies or {})
        faults = [*faults, *starmap(Fault, unknown)]
        if not needs_references:
            document, faults = without_references(document), [f for f in faults if not is_of_reference(f.path)]
        policy = cls.from_document(document, faults, lines, str(path), needs_references=needs_references)
        return replace(policy, origin=Origin(str(path), lines))

    @classmethod
    def from_document(
        cls,
        document: Document,
        faults: list[Fault] | None = None,
        lines: Lines | None = None,
        source: str = "policy",
        *,
        needs_references: bool = True,
    ) -> Self:
        """Check and resolve a document.

        Parameters
        ----------
        document : Document
        faults : list of Fault, optional
            Those found while it was read.
        lines : dict, optional
            The line of each field.
        source : str
            Path of the policy file, which errors name. Taxonomies and references are read from its folder.
        needs_references : bool
            As in `load`.

        Raises
        ------
        PolicyError
            Lists every fault with its line.
        """
        found = list(faults or [])
        known = [fault.path for fault in found]
        taxonomies, wrong = read_taxonomies(document, Path(source).parent)
        references, misread = read_references(document, Path(source).parent)
        located = [*((f.path, f.message, f.place) for f in wrong), *((path, text, path) for path, text in misread)]
        found += [
            Fault(path, message, line_of(place, lines or {})) for path, message, place in located if path not in known
        ]
        for path, message in (*check_document(document), *check_leaves(document, taxonomies)):
            # A field with a schema fault was removed from the document.
            is_needed = needs_references or not is_of_reference(path)
            if is_needed and not any(is_follow_up(path, other) for other in known):
                found.append(Fault(path, message, line_of(path, lines or {})))
        if found:
            raise PolicyError(found, source)
        return cls._resolve(document, taxonomies, references)

    @classmethod
    def _resolve(
        cls, document: Document, taxonomies: Mapping[str, Taxonomy], references: Mapping[str, Reference]
    ) -> Self:
        privacy, position = document.privacy, document.steering.position
        if privacy is None or privacy.k is None:  # `check_document` reports this
            raise PolicyError([Fault((), "incomplete")])
        max_share = DEFAULT_MAX_SHARE if privacy.max_share is None else float(privacy.max_share)
        return cls(
            attributes=tuple(
                resolve_attribute(name, section, document, taxonomies.get(name), references.get(name))
                for name, section in document.attributes.items()
            ),
            undeclared=document.undeclared,
            k=privacy.k,
            max_share=max_share,
            stream=resolve_stream(document.stream, privacy),
            position=0.0 if isinstance(position, dict) else float(position),
            target_span=float(position["target_span"]) if isinstance(position, dict) else None,
            kafka=document.kafka,
            per_subject=resolve_per_subject(privacy.per_subject),
            min_population=privacy.min_population,
            t=optional_float(privacy.t),
            diversity=resolve_diversity(privacy.l),
            max_value_share=resolve_value_share(privacy),
            dependence=float(document.steering.dependence),
            scaling=document.steering.scaling,
            csv=resolve_dialects(document)[0],
            csv_output=resolve_dialects(document)[1],
            keep_order=document.table.keep_order,
            missing_values=tuple(document.missing_texts),
            unwrap=document.unwrap,
            deletes=document.deletes or "quarantine",
            tombstones=document.tombstones or "quarantine",
        )

    @cached_property
    def quasi_identifiers(self) -> tuple[Attribute, ...]:
        """The attributes that are made equal within a cluster, in the order of the policy."""
        return tuple(a for a in self.attributes if a.role is Role.QUASI_IDENTIFIER)

    @cached_property
    def steering_attributes(self) -> tuple[Attribute, ...]:
        """The attributes by which clusters are formed and that are not published, in the order of the policy."""
        return tuple(a for a in self.attributes if a.role is Role.STEERING)

    @cached_property
    def clustered(self) -> tuple[Attribute, ...]:
        """The attributes on which distances are computed: quasi-identifiers, then steering attributes.

        Each is a column of `Block.values`, in this order.
        """
        return self.quasi_identifiers + self.steering_attributes

    @cached_property
    def unchanged_fields(self) -> tuple[Attribute, ...]:
        """The attributes published unchanged (confidential and other), in the order of the policy."""
        return tuple(a for a in self.attributes if a.role in {Role.CONFIDENTIAL, Role.OTHER})

    @cached_property
    def confidential(self) -> tuple[Attribute, ...]:
        """The confidential attributes: published unchanged, and not to be inferred for a person."""
        return tuple(a for a in self.unchanged_fields if a.role is Role.CONFIDENTIAL)

    @cached_property
    def protected(self) -> tuple[Attribute, ...]:
        """The confidential attributes that l, t and the largest share of a value apply to, in the order of the policy.

        Those with ``protect: true``, or all of them if none has it. Empty if the policy sets none of the three.
        """
        if not self.protects_values:
            return ()
        return tuple(a for a in self.confidential if a.protect) or self.confidential

    @property
    def value_limits(self) -> tuple[str, ...]:
        """Names of the settings that limit the values of clusters, such as ``privacy.l``."""
        given = {"l": self.diversity, "max_value_share": self.max_value_share, "t": self.t}
        return tuple(f"privacy.{name}" for name, value in given.items() if value is not None)

    @property
    def protects_values(self) -> bool:
        """Whether clusters must keep l-diversity, t-closeness or a largest share of one confidential value."""
        return self.diversity is not None or self.t is not None or self.max_value_share is not None

    @cached_property
    def dependence_attributes(self) -> tuple[Attribute, ...]:
        """The confidential numbers that join the distance of a stream if dependence is preserved: those with bounds."""
        return tuple(a for a in self.confidential if a.bounds is not None)

    @cached_property
    def published(self) -> tuple[Attribute, ...]:
        """The attributes of the output, in its order."""
        return tuple(a for a in self.attributes if a.role not in {Role.IDENTIFIER, Role.STEERING})

    @cached_property
    def value_attributes(self) -> tuple[Attribute, ...]:
        """The attributes that are fields of the message value, in the order of the policy."""
        return tuple(a for a in self.attributes if a.source.part is MessagePart.VALUE)

    @cached_property
    def envelope_attributes(self) -> tuple[Attribute, ...]:
        """The attributes read from key, headers or timestamp of a message, in the order of the policy."""
        return tuple(a for a in self.attributes if a.source.part is not MessagePart.VALUE)

    @cached_property
    def subject(self) -> Attribute | None:
        """The attribute that identifies the person; None if every record belongs to a different person."""
        return next((a for a in self.attributes if a.subject), None)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 in hexadecimal of the resolved policy without the sections kafka and csv."""
        content = {key: value for key, value in self.resolved().items() if key not in {"kafka", "csv"}}
        return hashlib.sha256(json.dumps(content, ensure_ascii=True).encode()).hexdigest()

    def require_stream(self, source: str = "policy") -> Stream:
        """Return the stream section, which every command that processes a stream needs.

        Raises
        ------
        PolicyError
            The section is missing.
        """
        if self.stream is None:
            raise PolicyError([Fault(("stream",), "missing; a stream needs at least stream.delta")], source)
        return self.stream

    def resolved(self) -> dict[str, Any]:
        """Return every setting, including defaults, as plain JSON values. Secrets are left out."""
        content: dict[str, Any] = {
            "attributes": {a.name: a.as_dict(table=self.stream is None) for a in self.attributes},
            "undeclared": self.undeclared,
            "privacy": self._privacy(),
            "steering": {"position": self._position(), "dependence": self.dependence, "scaling": self.scaling},
        }
        content |= self._messages()
        if self.steering_attributes:
            content["steering"]["by"] = [{"attribute": a.name, "weight": a.weight} for a in self.steering_attributes]
        if self.subject is None:
            content["subject"] = "every_record"
        if self.stream is not None:
            content["stream"] = {
                "delta": self.stream.delta,
                "max_delay_s": self.stream.max_delay_s,
                "rule": self.stream.rule,
                "release": self.stream.release,
            }
            if self.stream.is_ordered:
                content["stream"]["reveal_order"] = self.stream.reveal_order
        if self.keep_order:
            # The default is left out, so that fingerprints of other policies stay the same.
            content["table"] = {"keep_order": True}
        if (self.csv, self.csv_output) != (CsvDialect(), CsvDialect()):
            content["csv"] = asdict(self.csv) | {"output": asdict(self.csv_output)}
        if self.kafka is not None:
            content["kafka"] = shown_settings(self.kafka)
        return content

    def _messages(self) -> dict[str, Any]:
        """Return what the policy says of messages and missing values, without defaults."""
        content: dict[str, Any] = {}
        if set(self.missing_values) != {""}:
            content["missing_values"] = sorted(set(self.missing_values))
        if self.unwrap is not None:
            content["unwrap"] = self.unwrap
        actions = {"deletes": self.deletes, "tombstones": self.tombstones}
        return content | {name: action for name, action in actions.items() if action != "quarantine"}

    def _position(self) -> float | dict[str, float]:
        return self.position if self.target_span is None else {"target_span": self.target_span}

    def _privacy(self) -> dict[str, Any]:
        """Return section ``privacy`` as plain values, without the options that are not set."""
        content: dict[str, Any] = {"k": self.k, "max_share": self.max_share}
        if self.per_subject is not None:
            content["per_subject"] = {"max": self.per_subject.max, "window": self.per_subject.window}
        if self.min_population is not None:
            content["min_population"] = self.min_population
        if self.diversity is not None:
            content["l"] = self.diversity.as_plain()
        if self.t is not None:
            content["t"] = self.t
        if self.max_value_share is not None:
            content["max_value_share"] = self.max_value_share
        return content


def shown_settings(kafka: KafkaSection) -> dict[str, Any]:
    """Return what is shown of the section: asterisks for secrets, and how many arguments a program has.

    An argument may be a secret.
    """
    content = kafka.model_dump(mode="json", exclude_none=True)
    if kafka.sasl_oauth_command:
        program, *arguments = kafka.sasl_oauth_command
        count = len(arguments)
        content["sasl_oauth_command"] = [program, f"({count} argument{'s' if count != 1 else ''})"]
    return content
