"""The rules that involve more than one field of a policy.

Each check is a generator of (path of the field, message). A message names the fault and the remedy and never
contains an attribute value.

The rules for confidential attributes: l-diversity, t-closeness, the largest share of a value, and dependence.

The rules for single attributes: which fields fit which role, the subject, and the steering attributes.

Checks of the Kafka settings that need no broker and read no file.

`check_names` applies to the policy and to the merged settings of policy and environment. `check_connection` applies to
the merged settings only, because each may hold a part of them.

Faults that only follow from another fault: they are not reported beside it.

Resolve the stream rule ``auto``.

The rule is resolved from the policy alone, before the stream starts, so that a restarted stream uses the same rule.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from itertools import chain
from typing import Any, TypeAlias

from shoal.policy.attribute import (
    SCALE_FIELDS,
    check_missing,
    check_missing_values,
    check_numeric_bounds,
    check_order,
    check_scale,
)
from shoal.policy.diversity import resolve_diversity
from shoal.policy.document import FieldPath
from shoal.policy.folded_text import has_repeated_value
from shoal.policy.messages import check_dialects, check_messages, check_sources
from shoal.policy.schema import (
    AttributeSection,
    DiversitySection,
    Document,
    KafkaSection,
    PrivacySection,
    StreamSection,
)
from shoal.policy.taxonomy import Taxonomy
from shoal.policy.texts import has_lone_surrogate

__all__ = [
    "BLOCK_FROM_K",
    "MAX_DELTA",
    "RULES",
    "check_attributes",
    "check_confidential",
    "check_connection",
    "check_document",
    "check_leaves",
    "check_names",
    "check_normalize",
    "check_protection",
    "check_steering",
    "check_subject",
    "explain_rule",
    "is_follow_up",
    "is_number",
    "is_numeric_quasi_identifier",
    "missing_credentials",
    "resolve_rule",
]

Finding: TypeAlias = tuple[FieldPath, str]

_ALLOWED_FIELDS = ("scale", "bounds", "order", "taxonomy")
"""Fields of quasi-identifiers that a confidential attribute can have, too."""
_SCALE_OF = {"bounds": "numeric", "order": "ordinal", "taxonomy": "nominal"}
_TYPES_OF = {
    "numeric": {"integer", "number", "any", None},
    "ordinal": {"string", "integer", "number", "boolean", "any", None},
    "nominal": {"string", "integer", "number", "boolean", "any", "json", None},
}
"""The types of a confidential attribute for which a scale has a meaning."""
_MIN_DISTINCT = 2
_ROUNDING = 1e-9
"""Allowance for a share such as 0.3333333333 for a third."""


def check_confidential(path: FieldPath, attribute: AttributeSection, document: Document) -> Iterator[Finding]:
    """Check the fields of a confidential attribute that concern its scale."""
    scale = attribute.scale
    for name in SCALE_FIELDS:
        if getattr(attribute, name) is not None and name not in _ALLOWED_FIELDS:
            yield (*path, name), "only for a quasi_identifier; remove it, or change the role from confidential"
    if scale == "time":
        yield (
            (*path, "scale"),
            (
                "a confidential attribute has no scale time; give its times as numbers with scale: numeric, or use "
                "scale: nominal"
            ),
        )
        return
    yield from _check_scale(path, attribute)
    if scale == "ordinal":
        yield from check_order(path, attribute.order, document)
        if has_repeated_value(map(str, attribute.order or ()), attribute):
            yield (*path, "order"), "names a value twice, such as 1 and 1.0; remove one"
    yield from _check_bounds(path, attribute, document)


def _check_scale(path: FieldPath, attribute: AttributeSection) -> Iterator[Finding]:
    scale = attribute.scale
    for name, needed in _SCALE_OF.items():
        if getattr(attribute, name) is not None and scale != needed and (name, scale) != ("bounds", None):
            yield (*path, name), f"only for scale {needed}; remove it, or give scale: {needed}"
    if scale is not None and attribute.type not in _TYPES_OF[scale]:
        yield (*path, "scale"), f"has no meaning for type {attribute.type}; remove it, or change the type"
    if attribute.taxonomy is not None and attribute.type == "json":
        yield (*path, "taxonomy"), "type json has no names; remove it, or change the type"


def _check_bounds(path: FieldPath, attribute: AttributeSection, document: Document) -> Iterator[Finding]:
    if attribute.bounds is None:
        return
    if document.stream is None or document.steering.dependence == 0:
        yield (
            (*path, "bounds"),
            (
                "of a confidential attribute, only for steering.dependence in a stream, where they scale distances; "
                "remove it, or change the role from confidential"
            ),
        )
    elif attribute.type not in _TYPES_OF["numeric"]:
        yield (*path, "bounds"), f"only for numbers; remove it, or change the type from {attribute.type}"
    else:
        yield from check_numeric_bounds(path, attribute.bounds)


def check_leaves(document: Document, taxonomies: Mapping[str, Taxonomy]) -> Iterator[Finding]:
    """Check that no two leaves in the taxonomy of a confidential attribute mean the same value."""
    for name, taxonomy in taxonomies.items():
        attribute = document.attributes[name]
        if attribute.role == "confidential" and has_repeated_value(taxonomy.leaves, attribute):
            yield ("attributes", name, "taxonomy"), "names a value twice, such as 1 and 1.0; remove one"


def is_number(attribute: AttributeSection) -> bool:
    """Return whether a confidential attribute is declared as a number: its place in a distance has a meaning."""
    if attribute.scale is not None:
        return attribute.scale == "numeric"
    return attribute.type in {"integer", "number"} or attribute.bounds is not None


def check_protection(document: Document) -> Iterator[Finding]:
    """Check which confidential attributes are protected, and how."""
    privacy = document.privacy
    if privacy is not None:
        yield from _check_diversity(privacy.l, document)
        yield from _check_value_share(document)
        yield from _check_t(document)
    yield from _check_marks(document)
    yield from _check_dependence(document)


def _has_confidential(document: Document) -> bool:
    return any(attribute.role == "confidential" for attribute in document.attributes.values())


def _check_diversity(section: DiversitySection | None, document: Document) -> Iterator[Finding]:
    if section is None:
        return
    path = ("privacy", "l")
    given = [name for name in DiversitySection.model_fields if getattr(section, name) is not None]
    if len(given) != 1:
        yield path, "must be one of: an integer, {distinct: L}, {p_sensitive: L}, {entropy: L}, {recursive: [C, L]}"
        return
    (form,) = given
    yield from _check_form(path, form, getattr(section, form))
    if not _has_confidential(document):
        yield path, "no attribute is confidential, so there are no values to count; remove it"
    diversity, delta = resolve_diversity(section), _delta_of(document)
    if diversity is None:
        return
    if delta is not None and diversity.l > delta + 1:
        yield path, "must be at most delta + 1: the buffer never holds more records"
    for name, attribute in _protected(document):
        if (most := _most_values(attribute)) is not None and diversity.l > most:
            yield path, f"attributes.{name} has at most {most} values, a missing one included, so no cluster has l"


def _check_form(path: FieldPath, form: str, values: Any) -> Iterator[Finding]:  # noqa: ANN401 - as the form requires
    if form == "recursive":
        yield from _check_recursive(path, values)
    elif form == "entropy" and not (values > 1 and math.isfinite(values)):
        yield path, "must be a number above 1: l equally frequent values have the entropy log(l)"
    elif form != "entropy" and values < _MIN_DISTINCT:
        yield path, "must be at least 2: every cluster has one value"


def _most_values(attribute: AttributeSection) -> int | None:
    """Return how many different values an attribute can have, a missing one included; None without a limit.

    Only ``t`` rejects a value that is not in the order, so an order sets no limit.
    """
    return 3 if attribute.type == "boolean" else None


def _check_recursive(path: FieldPath, values: list[float]) -> Iterator[Finding]:
    if len(values) != 2:  # noqa: PLR2004 - c and l
        yield path, "must be two numbers: [c, l]"
    elif not (values[0] > 0 and math.isfinite(values[0])):
        yield path, "c, the first number, must be above 0"
    elif not (values[1] >= _MIN_DISTINCT and float(values[1]).is_integer()):
        yield path, "l, the second number, must be an integer of at least 2"


def _delta_of(document: Document) -> int | None:
    """Return the maximum delay in records; None for a table, or if it has a fault of its own."""
    delta = None if document.stream is None else document.stream.delta
    return delta if delta is not None and delta >= 1 else None


def _check_value_share(document: Document) -> Iterator[Finding]:
    share = None if document.privacy is None else document.privacy.max_value_share
    if share is None:
        return
    path = ("privacy", "max_value_share")
    if not 0 < share <= 1:
        yield path, "must be above 0 and at most 1"
    elif (delta := _delta_of(document)) is not None and share * (delta + 1) < 1:
        yield path, "must be at least 1 / (delta + 1): the buffer never holds more records"
    for name, attribute in _protected(document):
        if share > 0 and (most := _most_values(attribute)) is not None and share * most < 1 - _ROUNDING:
            why = f"attributes.{name} has at most {most} values, a missing one included, so one has a larger share"
            yield path, f"must be at least 1 / {most}: {why}"
    if not _has_confidential(document):
        yield path, "no attribute is confidential, so there are no values to count; remove it"


def _check_t(document: Document) -> Iterator[Finding]:
    t = None if document.privacy is None else document.privacy.t
    if t is None:
        return
    path = ("privacy", "t")
    if not 0 < t < 1:
        yield path, "must be above 0 and below 1: it is a distance between two distributions"
    if not _has_confidential(document):
        yield path, "no attribute is confidential, so there is no distribution to compare; remove it"
    if document.stream is None:
        return
    for name, attribute in _protected(document):
        if attribute.reference is None:
            yield (
                ("attributes", name, "reference"),
                (
                    "missing: in a stream, privacy.t compares each cluster with a distribution that the policy gives; "
                    "write one from a sample with shoal reference POLICY -i SAMPLE -o FILE, and name the file here"
                ),
            )


def _protected(document: Document) -> list[tuple[str, AttributeSection]]:
    """Return the protected attributes: the marked ones, or all confidential ones if none is marked."""
    confidential = [(name, a) for name, a in document.attributes.items() if a.role == "confidential"]
    return [(name, a) for name, a in confidential if a.protect] or confidential


def _check_marks(document: Document) -> Iterator[Finding]:
    """Check ``protect`` and ``reference``."""
    privacy = document.privacy
    has_t = privacy is not None and privacy.t is not None
    has_share = privacy is not None and privacy.max_value_share not in {None, 1}
    is_protecting = has_t or has_share or (privacy is not None and privacy.l is not None)
    protected = {name for name, _ in _protected(document)}
    for name, attribute in document.attributes.items():
        path = ("attributes", name)
        for field in ("protect", "reference"):
            if getattr(attribute, field) and attribute.role not in {"confidential", None}:
                yield (
                    (*path, field),
                    f"only for a confidential attribute; remove it, or change the role from {attribute.role}",
                )
        if attribute.role != "confidential":
            continue
        if attribute.protect and not is_protecting:
            yield (
                (*path, "protect"),
                "protects nothing without privacy.l, privacy.t or privacy.max_value_share; give one of them",
            )
        if attribute.reference is not None and not has_t:
            yield (
                (*path, "reference"),
                "only for privacy.t, which compares clusters with it; give privacy.t, or remove it",
            )
        elif attribute.reference is not None and name not in protected:
            yield (
                (*path, "reference"),
                "privacy.t applies to the attributes with protect: true; set it here, too, or remove the reference",
            )


def _check_dependence(document: Document) -> Iterator[Finding]:
    if document.steering.dependence == 0:
        return
    path = ("steering", "dependence")
    confidential = {name: a for name, a in document.attributes.items() if a.role == "confidential"}
    numeric = [a for a in confidential.values() if a.type in _TYPES_OF["numeric"] and a.scale in {"numeric", None}]
    if not 0 <= document.steering.dependence <= 1:
        yield path, "must be from 0 (only quasi-identifiers count) to 1 (only confidential attributes count)"
    if not numeric:
        yield path, "no confidential attribute is a number, so there is no dependence to preserve; set it to 0"
    if document.privacy is not None and document.privacy.t is not None:
        yield path, "conflicts with privacy.t, which separates equal confidential values; remove one of the two"
    if document.stream is None or not numeric:
        return
    without = [name for name, a in confidential.items() if is_number(a) and a.bounds is None]
    for name in without:
        yield (
            ("attributes", name, "bounds"),
            (
                "missing: steering.dependence in a stream needs the range of each confidential number, which is not "
                "known before the stream ends; give bounds: [low, high], which scale distances and change no value"
            ),
        )
    if not any(map(is_number, confidential.values())):
        yield (
            path,
            "no confidential attribute is declared as a number; in a stream give one bounds: [low, high]",
        )


MAX_JSON_BYTES = 1_000_000
"""Largest limit on a field of type ``json``. Kafka's own default limit on a message is of this size."""
MAX_WEIGHT = 1_000_000
"""Largest weight of an attribute. Sums of squared distances stay far below the largest float64."""
_CLUSTERED_FIELDS = (
    *("scale", "bounds", "out_of_bounds", "integer", "resolution", "weight", "order", "taxonomy", "publish"),
    *("unknown", "unit", "missing"),
)
"""Fields of quasi-identifiers and, in part, of steering attributes."""
_PUBLISHED_FIELDS = ("resolution", "publish", "to")
"""Fields that say how values are published."""


def check_attributes(document: Document) -> Iterator[Finding]:
    """Check role and fields of every attribute."""
    if not document.attributes:
        yield ("attributes",), "missing; declare every field of the input"
        return
    for name, attribute in document.attributes.items():
        path = ("attributes", name)
        if has_lone_surrogate(name):
            yield path, "contains a lone surrogate, which no message can contain; correct the name"
        if attribute.role is None:
            yield (*path, "role"), "missing; give identifier, quasi_identifier, confidential, other or steering"
        elif attribute.role in {"quasi_identifier", "steering"}:
            yield from _check_clustered(path, attribute, document)
        else:
            yield from _check_other_role(path, attribute, document)
    if all(attribute.role not in {"quasi_identifier", None} for attribute in document.attributes.values()):
        yield ("attributes",), "no attribute has the role quasi_identifier, so there is nothing to make k-anonymous"


def _check_clustered(path: FieldPath, attribute: AttributeSection, document: Document) -> Iterator[Finding]:
    """Check a quasi-identifier or a steering attribute."""
    role = attribute.role
    if attribute.type is not None:
        yield (*path, "type"), f"not allowed for role {role}, whose type follows from its scale; remove type"
    if attribute.max_bytes is not None:
        yield (*path, "max_bytes"), "only for a confidential attribute of type json; remove it"
    if attribute.publish_unchanged:
        yield (*path, "publish_unchanged"), f"an attribute of role {role} is never published unchanged; remove it"
    if role == "steering":
        yield from _check_unpublished(path, attribute)
    elif attribute.weight is not None and not _is_weight(attribute.weight):
        yield (*path, "weight"), f"must be above 0 and at most {MAX_WEIGHT:,}"
    yield from check_scale(path, attribute, document)


def _check_unpublished(path: FieldPath, attribute: AttributeSection) -> Iterator[Finding]:
    """Check a steering attribute: it is not published, and its weight is in another section."""
    for name in _PUBLISHED_FIELDS:
        if getattr(attribute, name) is not None:
            yield (*path, name), "an attribute of role steering is not published; remove it"
    if attribute.weight is not None:
        yield (*path, "weight"), "the weight of a steering attribute is given in steering.by; remove it here"


def _check_other_role(path: FieldPath, attribute: AttributeSection, document: Document) -> Iterator[Finding]:
    is_confidential = attribute.role == "confidential"
    for name in ("weight",) if is_confidential else _CLUSTERED_FIELDS:
        if getattr(attribute, name) is not None:
            yield (*path, name), f"only for a quasi_identifier; remove it, or change the role from {attribute.role}"
    if is_confidential:
        yield from check_confidential(path, attribute, document)
    if attribute.role == "other" and not attribute.publish_unchanged:
        yield (
            (*path, "publish_unchanged"),
            (
                "missing: role other publishes the field unchanged, and a person who knows its value can find the "
                "record; set publish_unchanged: true to accept this, or declare a quasi_identifier or an identifier"
            ),
        )
    if attribute.role == "identifier" and attribute.publish_unchanged:
        yield (*path, "publish_unchanged"), "an identifier is never published; remove it"
    if attribute.role == "identifier" and attribute.to is not None:
        yield (*path, "to"), "an identifier is never published; remove it"
    yield from _check_json(path, attribute)


def _check_json(path: FieldPath, attribute: AttributeSection) -> Iterator[Finding]:
    """Check a field that may hold an object or a list."""
    if attribute.type == "json" and attribute.role != "confidential":
        yield (
            (*path, "type"),
            "json is only for a confidential attribute; declare single fields inside it by their path",
        )
    if attribute.max_bytes is None:
        return
    if attribute.type != "json":
        yield (*path, "max_bytes"), "only for a confidential attribute of type json; remove it"
    elif not 1 <= attribute.max_bytes <= MAX_JSON_BYTES:
        yield (*path, "max_bytes"), f"must be from 1 to {MAX_JSON_BYTES} bytes"


def check_subject(document: Document) -> Iterator[Finding]:
    """Check that exactly one attribute is the subject, or that every record is a different person."""
    marked = [name for name, attribute in document.attributes.items() if attribute.subject]
    for name in marked:
        if document.attributes[name].role not in {"identifier", None}:
            yield ("attributes", name, "subject"), "the subject is never published; set its role to identifier"
    if len(marked) > 1:
        for name in marked[1:]:
            yield (
                ("attributes", name, "subject"),
                f"only one attribute can be the subject, and attributes.{marked[0]} is marked already; unmark one",
            )
    if marked and document.subject == "every_record":
        yield ("subject",), f"every_record contradicts attributes.{marked[0]}.subject; remove one of the two"
    if not marked and document.subject is None:
        yield (
            ("attributes",),
            (
                "no subject: mark the attribute that identifies the person with subject: true, or set "
                "subject: every_record at the top level if every record belongs to a different person"
            ),
        )


def check_normalize(document: Document) -> Iterator[Finding]:
    """Check the steps by which spellings of one person become one text."""
    for name, attribute in document.attributes.items():
        path, steps = ("attributes", name, "normalize"), attribute.normalize
        if steps is None:
            continue
        if not attribute.subject:
            yield path, "only for the subject, whose spellings are counted as one person; remove it"
        elif attribute.type not in {"string", "any", None}:
            yield path, f"only for a subject of type string or any; remove it, or change the type from {attribute.type}"
        elif len(set(steps)) < len(steps):
            yield path, "names a step twice; remove one"


def check_steering(document: Document) -> Iterator[Finding]:
    """Check that the attributes of role ``steering`` are those of ``steering.by``, each with a weight."""
    path, entries = ("steering", "by"), document.steering.by or ()
    names = Counter(entry.attribute for entry in entries)
    for index, entry in enumerate(entries):
        place = (*path, str(index))
        if entry.weight is None:
            yield (*place, "weight"), "missing; give a number above 0"
        elif not _is_weight(entry.weight):
            yield (*place, "weight"), f"must be above 0 and at most {MAX_WEIGHT:,}"
        if fault := _fault_of_steering(entry.attribute, document, names):
            yield (*place, "attribute"), fault
    for name, attribute in document.attributes.items():
        if attribute.role == "steering" and name not in names:
            # The list has no line, and no fault of its own, if there is no section.
            where = path if "steering" in document.model_fields_set else ("attributes", name, "role")
            yield where, f"no weight of attributes.{name}; add {{attribute: {name}, weight: W}} to steering.by"


def _fault_of_steering(name: str | None, document: Document, names: Counter[str | None]) -> str:
    """Return what is wrong with the name of an entry of ``steering.by``; ``names`` counts those of all entries."""
    if name is None:
        return "missing; name an attribute of role steering"
    if name not in document.attributes:
        return "is not declared; add it to attributes with role: steering"
    if document.attributes[name].role not in {"steering", None}:
        return f"attributes.{name} must have role: steering"
    return "is listed twice; remove one" if names[name] > 1 else ""


def is_numeric_quasi_identifier(attribute: AttributeSection) -> bool:
    """Return whether an attribute is a published number."""
    return attribute.role == "quasi_identifier" and attribute.scale in {"numeric", None}


def _is_weight(weight: float) -> bool:
    return 0 < weight <= MAX_WEIGHT


_TOPIC_FIELDS = ("input", "output", "quarantine", "clusters", "evidence", "progress_copy")
_ENVIRONMENT = "SHOAL_KAFKA__"
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""Names that Kafka allows for topics, besides "." and ".."."""
_TOPICS_OF_KAFKA = {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
_TOKENS = ("sasl_oauth_token", "sasl_oauth_token_file", "sasl_oauth_command")
"""Sources of an OAuth token, of which one is given."""
_MAX_PORT = 65_535
_SEPARATORS = re.compile(r"[\s;|/]")
"""Characters that separate addresses in lists of other programs; none occurs in an address."""


def check_names(settings: KafkaSection) -> Iterator[tuple[FieldPath, str]]:
    """Yield the faults of brokers' addresses and topics' names, as path and message; empty values are left out."""
    servers = settings.bootstrap_servers.split(",") if settings.bootstrap_servers else []
    for number, server in enumerate(servers, 1):
        if fault := _fault_of_server(server.strip()):
            which = f"address {number} of {len(servers)}" if len(servers) > 1 else "the address"
            yield ("kafka", "bootstrap_servers"), f"{which} {fault}"
    yield from _check_pairs(settings)
    fields: dict[str, str] = {}
    for path, topic in _topics_of(settings):
        if fault := _fault_of_topic(topic, fields):
            yield ("kafka", *path), fault
        fields.setdefault(topic, ".".join(path))


def _topics_of(settings: KafkaSection) -> Iterator[tuple[FieldPath, str]]:
    """Yield every topic that is set, with its field in section ``kafka``."""
    for name in _TOPIC_FIELDS:
        if topic := getattr(settings, name):
            yield (name,), topic
    for index, pair in enumerate(settings.topics or ()):
        for name in ("input", "output"):
            if topic := getattr(pair, name):
                yield ("topics", str(index), name), topic


def _check_pairs(settings: KafkaSection) -> Iterator[tuple[FieldPath, str]]:
    """Check the list of several inputs, each with an output of its own."""
    path = ("kafka", "topics")
    if settings.topics is None:
        return
    if not settings.topics:
        yield path, "names no topic; give at least one {input, output}, or remove it"
    for name in ("input", "output"):
        if getattr(settings, name):
            yield ("kafka", name), "contradicts kafka.topics, which names all inputs and outputs; remove one of the two"
    for index, pair in enumerate(settings.topics):
        for name in ("input", "output"):
            if not getattr(pair, name):
                yield (*path, str(index), name), "missing; every input has an output of its own"


def _fault_of_server(server: str) -> str:
    if not server:
        return "is empty; remove a comma, or give HOST:PORT"
    if "://" in server:
        return "has a scheme; give HOST:PORT, and the protocol as kafka.security_protocol"
    if _SEPARATORS.search(server):
        return "holds a blank, semicolon, bar or slash; give HOST:PORT, and separate several addresses by commas"
    return _fault_of_host_and_port(server)


def _fault_of_host_and_port(server: str) -> str:
    host, colon, port = server.rpartition(":")
    if not colon or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        return "has no port; give HOST:PORT, for example localhost:9092 or [::1]:9092"
    if not host:
        return "has no host; give HOST:PORT, for example localhost:9092"
    if not (port.isascii() and port.isdigit() and len(port) <= len(str(_MAX_PORT)) and 1 <= int(port) <= _MAX_PORT):
        return f"has an invalid port; after the colon give a number from 1 to {_MAX_PORT}"
    return ""


def _fault_of_topic(topic: str, fields: dict[str, str]) -> str:
    """Return what is wrong with a topic; ``fields`` holds the fields of the topics before it."""
    if topic in {".", ".."} or not _TOPIC.fullmatch(topic):
        return "no name that Kafka allows for a topic; use 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'"
    if topic in _TOPICS_OF_KAFKA:
        return "is a topic of Kafka itself; name a topic of your own"
    if topic in fields:
        return f"is the same topic as kafka.{fields[topic]}; give each a topic of its own"
    for other, name in fields.items():
        if topic.replace(".", "_") == other.replace(".", "_"):
            return f"differs from kafka.{name} in '.' and '_' only, which Kafka refuses for two topics; rename one"
    return ""


def check_connection(settings: KafkaSection, *, has_secrets: bool) -> Iterator[tuple[FieldPath, str]]:
    """Yield the faults of the security settings, as path and message without a value.

    Parameters
    ----------
    settings : KafkaSection
        Policy and environment together.
    has_secrets : bool
        Whether the environment holds the credentials. `shoal check` may run where it does not.
    """
    yield from _check_unused(settings)
    yield from _check_alternatives(settings)
    if has_secrets:
        for name in missing_credentials(settings):
            yield (
                ("kafka", name),
                f"missing: {settings.security_protocol} needs it; set it as {_ENVIRONMENT}{name.upper()}",
            )


def missing_credentials(settings: KafkaSection) -> list[str]:
    """Return the names of the SASL credentials that the security protocol needs and that are missing or empty."""
    if not settings.security_protocol.startswith("SASL"):
        return []
    if settings.sasl_mechanism == "OAUTHBEARER":
        return [] if any(getattr(settings, name) for name in _TOKENS) else ["sasl_oauth_token_file"]
    names = ("sasl_username", "sasl_password")
    return [name for name in names if not (getattr(settings, name) or getattr(settings, f"{name}_file"))]


def _check_unused(settings: KafkaSection) -> Iterator[tuple[FieldPath, str]]:
    """Refuse security settings that the protocol does not use: the client would connect without them.

    PLAINTEXT by name switches all of them off, as for a test against a broker on the same machine.
    """
    protocol, is_named = settings.security_protocol, "security_protocol" in settings.model_fields_set
    if is_named and protocol == "PLAINTEXT":
        return
    used = {"sasl_": protocol.startswith("SASL"), "ssl_": protocol.endswith("SSL")}
    for name in type(settings).model_fields:
        prefix = name.partition("_")[0] + "_"
        if used.get(prefix, True) or getattr(settings, name) is None:
            continue
        protocols = "SASL_SSL (or SASL_PLAINTEXT)" if prefix == "sasl_" else "SSL or SASL_SSL"
        reason = (
            f"with kafka.security_protocol {protocol}"
            if is_named
            else "without kafka.security_protocol: the connection would be plain text"
        )
        yield ("kafka", name), f"has no effect {reason}; set {protocols}"
    if used["ssl_"] and settings.ssl_certfile is None and settings.ssl_keyfile is not None:
        yield (
            ("kafka", "ssl_keyfile"),
            "has no effect without kafka.ssl_certfile; give the certificate too, or remove it",
        )


def _check_alternatives(settings: KafkaSection) -> Iterator[tuple[FieldPath, str]]:
    """Refuse a secret that is given twice, and credentials that the SASL mechanism does not use."""
    for name in ("sasl_username", "sasl_password", "ssl_password"):
        if getattr(settings, name) and getattr(settings, f"{name}_file"):
            yield ("kafka", f"{name}_file"), f"is given besides kafka.{name}; remove one of the two"
    first, *others = [name for name in _TOKENS if getattr(settings, name)] or [""]
    for name in others:
        yield ("kafka", name), f"is given besides kafka.{first}; remove one of the two"
    command = settings.sasl_oauth_command
    if command is not None and (not command or "" in command):
        yield ("kafka", "sasl_oauth_command"), "must be a list of a program and its arguments, without an empty one"
    if settings.security_protocol.startswith("SASL"):
        yield from _check_mechanism(settings)


def _check_mechanism(settings: KafkaSection) -> Iterator[tuple[FieldPath, str]]:
    """Refuse credentials that the SASL mechanism does not use."""
    mechanism = settings.sasl_mechanism or "PLAIN"
    passwords = ("sasl_username", "sasl_username_file", "sasl_password", "sasl_password_file")
    unused = _TOKENS if mechanism != "OAUTHBEARER" else passwords
    for name in unused:
        if getattr(settings, name):
            yield ("kafka", name), f"has no effect with kafka.sasl_mechanism {mechanism}; remove it"


_DEPENDENT = {"scale": (*SCALE_FIELDS, "reference"), "unit": ("bounds", "resolution"), "type": ("scale", "reference")}
"""The fields of an attribute that are checked by another field of it."""
_NEEDED_BY = {
    "protect": {("privacy",), ("privacy", "l"), ("privacy", "t"), ("privacy", "max_value_share")},
    "reference": {("privacy",), ("privacy", "t"), ("stream",)},
    "bounds": {("steering",), ("steering", "dependence"), ("stream",)},
}
"""The fields outside the attributes by which a field of a confidential attribute is checked."""


def is_follow_up(path: FieldPath, known: FieldPath) -> bool:
    """Return whether a fault at ``path`` may only show that the field ``known`` was removed for a fault of its own."""
    return (
        _covers(path, known)
        or _depends(path, known)
        or _is_checked_outside(path, known)
        or _is_part(path, known)
        or _may_be_lacking(path, known)
    )


def _covers(path: FieldPath, known: FieldPath) -> bool:
    """Return whether a field with a fault is ``path``, contains it, or is in an item of its list."""
    return path[: len(known)] == known or (path == known[: len(path)] and known[len(path)].isdigit())


def _depends(path: FieldPath, known: FieldPath) -> bool:
    """Return whether ``known`` is a scale or a unit by which the field at ``path`` is checked."""
    if path[:1] != ("attributes",) or path[:2] != known[:2] or len(path) < 3 or len(known) != 3:  # noqa: PLR2004
        return False
    return path[2] in _DEPENDENT.get(known[2], ())


def _is_checked_outside(path: FieldPath, known: FieldPath) -> bool:
    """Return whether ``known`` is a field outside the attributes by which the field at ``path`` is checked."""
    return path[:1] == ("attributes",) and len(path) > 2 and known[:2] in _NEEDED_BY.get(path[2], ())  # noqa: PLR2004


def _is_part(path: FieldPath, known: FieldPath) -> bool:
    """Return whether ``known`` was the form of l-diversity in the section at ``path``."""
    return path == ("privacy", "l") == known[:2]


def _may_be_lacking(path: FieldPath, known: FieldPath) -> bool:
    """Return whether ``known`` may be what the attributes as a whole lack: an attribute, or the mark of the subject."""
    is_attribute = known[:1] == ("attributes",) and (len(known) == 2 or known[2:] == ("subject",))  # noqa: PLR2004
    return path == ("attributes",) and (is_attribute or known == ("subject",))


RULES = ("nearest", "greedy", "awo", "block")
BLOCK_FROM_K = 7
"""From this k on, ``auto`` selects ``block``. Below it, ``awo`` loses less (docs/reports/benchmarks.md, ADR 14)."""


def resolve_rule(name: str, k: int, *, protects_values: bool = False) -> str:
    """Return the rule for a value of ``stream.rule``. Any value other than ``auto`` is returned unchanged.

    Parameters
    ----------
    name : str
        Value of ``stream.rule``.
    k : int
        Minimum number of distinct subjects in a cluster.
    protects_values : bool
        Whether the policy has ``l``, ``t`` or a largest share of a value. Rules that form one cluster at a time take
        the near records, until the held ones lack the values that the last records need; ``block`` suppresses fewer.
    """
    if name != "auto":
        return name
    return "block" if protects_values or k >= BLOCK_FROM_K else "awo"


def explain_rule(name: str, k: int, *, protects_values: bool = False) -> str:
    """Return why ``auto`` selected its rule; an empty string if the policy names a rule. Parameters as above."""
    if name != "auto":
        return ""
    if protects_values:
        return "auto: block, which suppresses the fewest records under l, t and shares of values"
    where = f"from k = {BLOCK_FROM_K} on" if k >= BLOCK_FROM_K else f"below k = {BLOCK_FROM_K}"
    return f"auto: {resolve_rule(name, k)} {where}"


MAX_DELTA = 10_000_000
"""The buffer of ``delta`` records is allocated at the start. A larger value is most likely a mistake."""
MAX_WINDOW = 1_000_000
"""A restart reads the current window again and counts its subjects in memory."""
_MAX_DELAY_S = 1_000_000_000
"""About 30 years. Times in ms stay far within 64 bits."""
_KEY_LIKE = re.compile(r"[0-9a-fA-F]{64}|[A-Za-z0-9+/_-]{43}=?")
"""32 bytes in hexadecimal or base64."""


def check_document(document: Document) -> Iterator[Finding]:
    """Yield every violated rule of a document whose single fields are well formed, as path and message."""
    return chain(
        check_attributes(document),
        check_sources(document),
        check_messages(document),
        check_missing(document),
        check_missing_values(document),
        check_dialects(document),
        check_subject(document),
        check_normalize(document),
        _check_privacy(document.privacy),
        _check_per_subject(document),
        _check_min_population(document),
        check_protection(document),
        _check_stream(document),
        _check_scaling(document),
        _check_position(document),
        check_steering(document),
        _check_kafka(document.kafka),
    )


# ---------------------------------------------------------------- privacy


def _check_privacy(privacy: PrivacySection | None) -> Iterator[Finding]:
    if privacy is None:
        yield ("privacy",), "missing; give at least privacy.k"
        return
    if privacy.k is None:
        yield ("privacy", "k"), "missing; give the minimum number of distinct subjects in a cluster"
    elif not 2 <= privacy.k <= MAX_DELTA:  # noqa: PLR2004 - one subject alone is no cluster
        yield ("privacy", "k"), f"must be from 2 to {MAX_DELTA}"
    yield from _check_max_share(privacy.max_share, privacy.k)


def _check_max_share(max_share: float | None, k: int | None) -> Iterator[Finding]:
    path = ("privacy", "max_share")
    if max_share is None:
        return
    if not 0 < max_share <= 1:
        yield path, "must be above 0 and at most 1"
    elif k is not None and k >= 2 and Decimal(repr(max_share)) * k < 1 and max_share < 1 / k:  # noqa: PLR2004
        yield path, "must be at least 1/k: in a cluster of k subjects at least one has this share"


def _check_per_subject(document: Document) -> Iterator[Finding]:
    section = None if document.privacy is None else document.privacy.per_subject
    if section is None:
        return
    path = ("privacy", "per_subject")
    if document.subject == "every_record":
        yield path, "limits nothing with subject: every_record; mark the attribute that is the subject, or remove it"
    if section.max is None:
        yield (*path, "max"), "missing; give the maximum number of records of one subject released per window"
    elif section.max < 1:
        yield (*path, "max"), "must be at least 1"
    if section.window is None:
        yield (*path, "window"), "missing; give the length of a window in records of a partition"
    elif not 1 <= section.window <= MAX_WINDOW:
        yield (*path, "window"), f"must be from 1 to {MAX_WINDOW} records"
    elif section.max is not None and section.max >= section.window:
        yield (*path, "window"), "must be longer than max, or nothing is limited"


def _check_min_population(document: Document) -> Iterator[Finding]:
    privacy, stream = document.privacy, document.stream
    if privacy is None or privacy.min_population is None:
        return
    path = ("privacy", "min_population")
    if privacy.k is not None and privacy.min_population < privacy.k:
        yield path, "must be at least k (recommended: 2k); fewer than k subjects are never released"
    elif stream is not None and stream.delta is not None and privacy.min_population > stream.delta:
        yield path, "must be at most delta: the buffer never holds more subjects"


# ---------------------------------------------------------------- stream and steering


def _check_stream(document: Document) -> Iterator[Finding]:
    stream = document.stream
    if stream is None:
        return
    yield from _check_delay(stream, document.privacy)
    if stream.reveal_order and stream.release != "ordered":
        yield ("stream", "reveal_order"), "only for release: ordered; remove it"


def _check_scaling(document: Document) -> Iterator[Finding]:
    """Check that a stream knows how to scale distances in each attribute, and the step of what it publishes."""
    by_bounds = document.steering.scaling == "bounds"
    if document.stream is None:
        if by_bounds:
            yield ("steering", "scaling"), "only for streams; remove it, or add a stream section"
        return
    for name, attribute in document.attributes.items():
        is_unbounded = attribute.bounds is None and attribute.scale in {"numeric", "time", None}
        if is_unbounded and attribute.role == "steering":
            yield (
                ("attributes", name, "bounds"),
                "missing: a stream scales a steering attribute by its bounds; give bounds: [low, high]",
            )
        if is_unbounded and by_bounds and attribute.role == "quasi_identifier":
            yield (
                ("attributes", name, "bounds"),
                "missing: steering.scaling is bounds; give bounds: [low, high], or remove scaling",
            )
            continue
        has_step = attribute.bounds is not None or attribute.resolution is not None or attribute.integer
        if is_numeric_quasi_identifier(attribute) and not has_step:
            yield (
                ("attributes", name, "resolution"),
                (
                    "missing: a stream learns how far values are spread, but not the step of published values; give "
                    "resolution (0 publishes the exact mean), integer: true, or bounds: [low, high]"
                ),
            )


def _check_delay(stream: StreamSection, privacy: PrivacySection | None) -> Iterator[Finding]:
    if stream.delta is None:
        yield ("stream", "delta"), "missing; give the maximum delay in records"
    elif not 1 <= stream.delta <= MAX_DELTA:
        yield ("stream", "delta"), f"must be from 1 to {MAX_DELTA}"
    elif privacy is not None and privacy.k is not None and stream.delta < privacy.k - 1:
        yield ("stream", "delta"), "must be at least k - 1, or no cluster can reach k subjects"
    if stream.max_delay_s is not None and not 0 < stream.max_delay_s <= _MAX_DELAY_S:
        yield ("stream", "max_delay_s"), f"must be above 0 and at most {_MAX_DELAY_S} seconds"


def _check_position(document: Document) -> Iterator[Finding]:
    path, position = ("steering", "position"), document.steering.position
    if not isinstance(position, dict):
        if not (position >= 0 and math.isfinite(position)):
            yield path, "must be a finite weight, 0 or more"
    elif set(position) != {"target_span"}:
        yield path, "must be a weight, or {target_span: S} with the mean excess span to hold, in records"
    elif not 0 <= position["target_span"] <= MAX_DELTA:
        yield (*path, "target_span"), f"must be a number of records from 0 to {MAX_DELTA}"
    elif document.stream is None:
        yield path, "a table has no order to preserve; give a weight, or add a stream section"


# ---------------------------------------------------------------- Kafka


def _check_kafka(kafka: KafkaSection | None) -> Iterator[Finding]:
    if kafka is None:
        return
    if kafka.metadata_key is not None:
        yield (
            ("kafka", "metadata_key"),
            "a policy must not contain a key; put the key into a file and give its path in kafka.metadata_key_file",
        )
    if _KEY_LIKE.fullmatch(kafka.metadata_key_file or ""):
        yield ("kafka", "metadata_key_file"), "looks like a key; put the key into a file and give its path here"
    for name in KafkaSection.model_fields:
        if getattr(kafka, name) == "":
            yield ("kafka", name), "must not be empty; give a value or remove the field"
    yield from check_names(kafka)
