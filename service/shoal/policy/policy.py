"""The resolved policy: read, checked, every default filled in; nothing changes it afterwards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import chain, starmap
from pathlib import Path
from typing import Any, Literal, Self

from shoal.errors import Fault, PolicyError
from shoal.policy.attribute import Attribute, MessagePart, Reference, resolve_attribute
from shoal.policy.checks import check_document, check_leaves, is_follow_up
from shoal.policy.document import Lines, line_of, read_document
from shoal.policy.references import is_of_reference, read_references, without_references
from shoal.policy.schema import (
    MAX_HELD_BYTES,
    CsvSection,
    Document,
    FieldPath,
    KafkaSection,
    PrivacySection,
    Role,
    StreamSection,
    TargetSpanSection,
    validate,
)
from shoal.policy.taxonomy import Taxonomy, read_taxonomies, replace_taxonomies

DEFAULT_MAX_SHARE = 0.5
DEFAULT_MAX_VALUE_SHARE = 0.5
"""With distinct l-diversity, also in Python. Without a limit, sizes of clusters and suppressed records can reveal the
common value.
"""
RULES = ("nearest", "greedy", "awo", "block")
BLOCK_FROM_K = 7
"""From this k on, ``auto`` selects ``block``. Below it, ``awo`` loses less (docs/reports/benchmarks.md, ADR 14)."""
_LINE_ENDS = {"lf": "\n", "crlf": "\r\n", "cr": "\r"}


@dataclass(frozen=True)
class Policy:
    """A resolved policy. `load`, `from_document` and `from_mapping` check it, so that every instance is valid.

    Attributes
    ----------
    attributes : tuple of Attribute
        In the order of the policy.
    undeclared : {"quarantine", "drop"}
        A record with a field that the policy does not declare is quarantined, or the field is dropped.
    k : int
        Minimum number of distinct subjects in a cluster.
    max_share : float
        Maximum share of one subject in the records of a cluster.
    stream : Stream or None
        None for a policy of finished tables.
    position : float
        Weight of the position of a record; ignored if ``target_span`` is set.
    per_subject, min_population, t, diversity, dependence
        Options of the sections ``privacy`` and ``steering``; None or 0 if not set. ``diversity`` is ``privacy.l``.
    scaling : {"spreads", "bounds"}
        What distances of a stream are scaled by.
    max_value_share : float or None
        Maximum share of the people of a cluster who have one value of a protected attribute. 0.5 if the policy asks for
        distinct l-diversity and says nothing of it.
    target_span : float or None
        Mean excess span to hold, in records.
    keep_order : bool
        Whether the rows of a finished table may keep the order of the input.
    missing_values : tuple of str
        Texts that mean that a value is missing, in cells and in JSON strings. JSON null always does.
    unwrap : {"debezium", "connect", "cloudevents"} or None
        The envelope that messages have.
    skip : mapping of str to tuple of str
        Fields of the outermost object of a record, and the texts by which one of them says that it is no record.
    deletes, tombstones : {"drop", "quarantine"}
        What happens to messages that say that a row was deleted, and to messages without a value.
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
    skip: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    deletes: Literal["drop", "quarantine"] = "quarantine"
    tombstones: Literal["drop", "quarantine"] = "quarantine"
    origin: Origin | None = field(default=None, compare=False, repr=False)

    @classmethod
    def load(
        cls, path: str | Path, taxonomies: Mapping[str, str | Path] | None = None, *, needs_references: bool = True
    ) -> Self:
        """Read, check and resolve a policy file in YAML or JSON.

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
        tree, faults, lines = read_document(Path(path))
        document, misfits = validate(Document, tree)
        known = {fault.path for fault in faults}
        faults += [Fault(place, text, line_of(place, lines)) for place, text in misfits if place not in known]
        document, unknown = replace_taxonomies(document, taxonomies or {})
        faults += starmap(Fault, unknown)
        if not needs_references:
            document, faults = without_references(document), [f for f in faults if not is_of_reference(f.path)]
        policy = cls._checked(document, faults, lines, str(path), needs_references=needs_references)
        return replace(policy, origin=Origin(str(path), lines))

    @classmethod
    def from_document(cls, document: Document, source: str = "policy") -> Self:
        """Check and resolve a document.

        Parameters
        ----------
        document : Document
        source : str
            Path of the policy file, which errors name. Taxonomies and references are read from its folder.

        Raises
        ------
        PolicyError
            Lists every fault.
        """
        return cls._checked(document, [], {}, source)

    @classmethod
    def from_mapping(cls, content: Mapping[str, Any], source: str = "policy") -> Self:
        """Check and resolve the content of a policy file, given as plain values; errors as of `from_document`."""
        try:
            tree = json.loads(json.dumps(dict(content)))
        except (TypeError, ValueError):
            raise PolicyError([Fault((), "must be of mappings, lists, texts, numbers and booleans")], source) from None
        document, misfits = validate(Document, tree)
        return cls._checked(document, [Fault(path, text) for path, text in misfits], {}, source)

    @classmethod
    def _checked(
        cls, document: Document, faults: list[Fault], lines: Lines, source: str, *, needs_references: bool = True
    ) -> Self:
        """Return the policy of a document; ``faults`` are those found while it was read, whose fields it lacks."""
        known = [fault.path for fault in faults]
        taxonomies, wrong = read_taxonomies(document, Path(source).parent)
        references, misread = read_references(document, Path(source).parent)
        located = chain(wrong, ((path, message, path) for path, message in misread))
        faults += [Fault(path, message, line_of(place, lines)) for path, message, place in located if path not in known]
        for path, message in chain(check_document(document), check_leaves(document, taxonomies)):
            is_needed = needs_references or not is_of_reference(path)
            if is_needed and not any(is_follow_up(path, message, other) for other in known):
                faults.append(Fault(path, message, line_of(path, lines)))
        if faults:
            raise PolicyError(faults, source)
        return cls._resolved(document, taxonomies, references)

    @classmethod
    def _resolved(
        cls, document: Document, taxonomies: Mapping[str, Taxonomy], references: Mapping[str, Reference]
    ) -> Self:
        privacy, position = document.privacy, document.steering.position
        if privacy is None or privacy.k is None:  # `check_document` reports this
            raise PolicyError([Fault((), "incomplete")])
        quota, dialect = privacy.per_subject, _dialect(CsvDialect(), document.csv)
        return cls(
            attributes=tuple(
                resolve_attribute(name, section, document, taxonomies.get(name), references.get(name))
                for name, section in document.attributes.items()
            ),
            undeclared=document.undeclared,
            k=privacy.k,
            max_share=DEFAULT_MAX_SHARE if privacy.max_share is None else privacy.max_share,
            stream=_stream(document.stream, privacy, privacy.k),
            position=0.0 if isinstance(position, TargetSpanSection) else position,
            target_span=position.target_span if isinstance(position, TargetSpanSection) else None,
            kafka=document.kafka,
            per_subject=PerSubject(quota.max, quota.window) if quota and quota.max and quota.window else None,
            min_population=privacy.min_population,
            t=privacy.t,
            diversity=_diversity(privacy),
            max_value_share=_max_value_share(privacy),
            dependence=document.steering.dependence,
            scaling=document.steering.scaling,
            csv=dialect,
            csv_output=_dialect(dialect, None if document.csv is None else document.csv.output),
            keep_order=document.table.keep_order,
            missing_values=tuple(document.missing_texts),
            unwrap=document.unwrap,
            skip={name: tuple(texts) for name, texts in document.skip.items()},
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
        return bool(self.value_limits)

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
        """Return every setting, including defaults, as plain JSON values. Secrets are left out.

        Settings that are younger than the first fingerprints are left out at their default, so that those stay.
        """
        position = self.position if self.target_span is None else {"target_span": self.target_span}
        content: dict[str, Any] = {
            "attributes": {a.name: a.as_dict(table=self.stream is None) for a in self.attributes},
            "undeclared": self.undeclared,
            "privacy": self._privacy(),
            "steering": {"position": position, "dependence": self.dependence, "scaling": self.scaling},
        }
        texts = sorted(set(self.missing_values))
        content |= {} if texts == [""] else {"missing_values": texts}
        content |= {"skip": {name: sorted(texts) for name, texts in sorted(self.skip.items())}} if self.skip else {}
        content |= {} if self.unwrap is None else {"unwrap": self.unwrap}
        actions = {"deletes": self.deletes, "tombstones": self.tombstones}
        content |= {name: action for name, action in actions.items() if action != "quarantine"}
        if self.steering_attributes:
            content["steering"]["by"] = [{"attribute": a.name, "weight": a.weight} for a in self.steering_attributes]
        if self.subject is None:
            content["subject"] = "every_record"
        if self.stream is not None:
            names = ("delta", "max_delay_s", "rule", "release", *(("reveal_order",) if self.stream.is_ordered else ()))
            content["stream"] = {name: getattr(self.stream, name) for name in names}
            held = self.stream.max_held_bytes
            content["stream"] |= {} if held == MAX_HELD_BYTES else {"max_held_bytes": held}
        if self.keep_order:
            content["table"] = {"keep_order": True}
        if (self.csv, self.csv_output) != (CsvDialect(), CsvDialect()):
            content["csv"] = asdict(self.csv) | {"output": asdict(self.csv_output)}
        if self.kafka is not None:
            content["kafka"] = shown_settings(self.kafka)
        return content

    def _privacy(self) -> dict[str, Any]:
        options = {
            "per_subject": self.per_subject and asdict(self.per_subject),
            "min_population": self.min_population,
            "l": self.diversity and self.diversity.as_plain(),
            "t": self.t,
            "max_value_share": self.max_value_share,
        }
        given = {name: value for name, value in options.items() if value is not None}
        return {"k": self.k, "max_share": self.max_share, **given}


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
    max_held_bytes : int
        Largest size of what waiting records publish unchanged, in bytes.
    """

    delta: int
    max_delay_s: float | None
    rule: str
    release: Literal["cluster", "ordered"]
    reveal_order: bool = False
    reason: str = ""
    max_held_bytes: int = MAX_HELD_BYTES

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
class Diversity:
    """l-diversity of every protected attribute.

    Attributes
    ----------
    kind : {"distinct", "entropy", "recursive"}
        ``distinct``: at least l distinct values. ``entropy``: the entropy of the values, in nats, is at least log(l).
        ``recursive``: r_1 < c (r_l + ... + r_m), where r_1 >= ... >= r_m are the counts of the values.
    l : float
        A whole number for ``distinct`` and ``recursive``.
    c : float or None
        Of ``recursive`` only.

    References
    ----------
    Machanavajjhala et al., "l-Diversity: Privacy Beyond k-Anonymity", TKDD 1(1), 2007, definitions 4.1 and 4.2,
    doi:10.1145/1217299.1217302. ``distinct`` is also called p-sensitivity: Truta and Vinay, "Privacy Protection:
    p-Sensitive k-Anonymity Property", ICDE Workshops 2006, doi:10.1109/ICDEW.2006.116.
    """

    kind: Literal["distinct", "entropy", "recursive"]
    l: float  # noqa: E741 - the name of l-diversity's parameter
    c: float | None = None

    def as_plain(self) -> int | dict[str, Any]:
        """Return the value of ``privacy.l`` as plain JSON: a number for ``distinct``."""
        if self.kind == "distinct":
            return int(self.l)
        return {self.kind: self.l if self.c is None else [self.c, int(self.l)]}


@dataclass(frozen=True, slots=True)
class CsvDialect:
    r"""One CSV dialect. The default is RFC 4180 with ``\n`` as the line end.

    Attributes
    ----------
    delimiter, quote, decimal : str
        One character each.
    escape : {"doubled", "backslash"}
        How a quotation mark inside a quoted cell is written: twice, or after a backslash.
    encoding : str
        Name of a codec of the standard library.
    line_end : str
        The characters themselves.
    multiline : bool
        Whether a cell may contain lines that would be valid records by themselves.
    """

    delimiter: str = ","
    quote: str = '"'
    escape: str = "doubled"
    decimal: str = "."
    encoding: str = "utf-8"
    line_end: str = "\n"
    multiline: bool = False

    @property
    def reader_options(self) -> dict[str, Any]:
        """Arguments for `csv.reader`, for text in which quotation marks are doubled.

        The option ``escapechar`` of `csv.reader` is not used: it drops a backslash before any character, and a
        backslash at the end of a line continues the record on the next line.
        """
        return {"delimiter": self.delimiter, "quotechar": self.quote, "doublequote": True, "strict": True}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a policy was read, and the line (from 1) of each field; only for messages."""

    source: str
    lines: Lines

    def line_of(self, path: FieldPath) -> int | None:
        """Return the line of a field, or of the nearest enclosing field that has a line."""
        return line_of(path, self.lines)


def resolve_rule(name: str, k: int, *, protects_values: bool = False) -> str:
    """Return the rule for a value of ``stream.rule``, from the policy alone: a restarted stream uses the same rule.

    Rules that form one cluster at a time take the near records, until the held ones lack the values that l, t or shares
    of values need in the last clusters; ``block`` suppresses fewer.
    """
    if name != "auto":
        return name
    return "block" if protects_values or k >= BLOCK_FROM_K else "awo"


def shown_settings(kafka: KafkaSection) -> dict[str, Any]:
    """Return what is shown of the section: asterisks for secrets, and a count for arguments, which may be secrets."""
    content = kafka.model_dump(mode="json", exclude_none=True)
    if kafka.sasl_oauth_command:
        program, *arguments = kafka.sasl_oauth_command
        count = len(arguments)
        content["sasl_oauth_command"] = [program, f"({count} argument{'s' if count != 1 else ''})"]
    return content


def _stream(section: StreamSection | None, privacy: PrivacySection, k: int) -> Stream | None:
    if section is None or section.delta is None:
        return None
    protects_values = any(limit is not None for limit in (privacy.t, privacy.l, _max_value_share(privacy)))
    rule = resolve_rule(section.rule, k, protects_values=protects_values)
    if section.rule != "auto":
        reason = ""
    elif protects_values:
        reason = "auto: block, which suppresses the fewest records under l, t and shares of values"
    else:
        where = f"from k = {BLOCK_FROM_K} on" if k >= BLOCK_FROM_K else f"below k = {BLOCK_FROM_K}"
        reason = f"auto: {rule} {where}"
    return Stream(
        section.delta,
        section.max_delay_s,
        rule,
        section.release,
        section.reveal_order,
        reason,
        section.max_held_bytes,
    )


def _diversity(privacy: PrivacySection) -> Diversity | None:
    given = privacy.l
    if given is None:
        return None
    if isinstance(given, int):
        return Diversity("distinct", float(given))
    if given.recursive is not None:
        c, l = given.recursive  # noqa: E741 - of l-diversity
        return Diversity("recursive", l, c)
    return Diversity("entropy", given.entropy or 0.0)


def _max_value_share(privacy: PrivacySection) -> float | None:
    """Return the largest share of a confidential value; with distinct l-diversity, 0.5 is the default."""
    if privacy.max_value_share == 1 and privacy.l is None and privacy.t is None:
        return None  # no limit: the policy does not protect values
    if privacy.max_value_share is None and isinstance(privacy.l, int):
        return DEFAULT_MAX_VALUE_SHARE
    return privacy.max_value_share


def _dialect(inherited: CsvDialect, section: CsvSection | None) -> CsvDialect:
    """Return the dialect with the settings of a section."""
    if section is None:
        return inherited
    settings = section.model_dump(exclude_none=True, exclude={"output"})
    if "line_end" in settings:
        settings["line_end"] = _LINE_ENDS[settings["line_end"]]
    if settings.get("delimiter") == "tab":
        settings["delimiter"] = "\t"
    return replace(inherited, **settings)
