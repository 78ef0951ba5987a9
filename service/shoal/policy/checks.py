"""The rules that involve more than one key of a policy, or that no range expresses.

Each check yields the key and a message, which names the fault and the remedy, never a secret or a value of a record.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import chain
from typing import TypeAlias

from shoal.policy.attribute import (
    SCALE_RULES,
    TWICE,
    MessagePart,
    Source,
    check_number_bounds,
    path_of_source,
)
from shoal.policy.schema import (
    ONLY_ENVIRONMENT,
    AttributeSection,
    Document,
    FieldPath,
    Finding,
    KafkaSection,
    TargetSpanSection,
    did_you_mean,
    missing_keys,
)
from shoal.policy.taxonomy import Taxonomy
from shoal.policy.texts import BLANKS, has_lone_surrogate, has_repeated_value

_Found: TypeAlias = Iterator[tuple[str | FieldPath, str]]
"""A key, with dots between the names of sections, or its path; and what is wrong with it."""


def check_document(document: Document) -> Iterator[Finding]:
    """Yield every violated rule of a document whose single keys are well formed."""
    yield from missing_keys(document)
    for name, attribute in document.attributes.items():
        for key, message in _check_attribute(name, attribute, document):
            yield ("attributes", name, *(key if isinstance(key, tuple) else (key,))), message
    sections = chain(
        _check_attributes(document),
        _check_sources(document),
        _check_messages(document),
        _check_missing_values(document),
        _check_dialects(document),
        _check_subject(document),
        _check_privacy(document),
        _check_per_subject(document),
        _check_diversity(document),
        _check_value_share(document),
        _check_limits(document),
        _check_marks(document),
        _check_dependence(document),
        _check_stream(document),
        _check_steering(document),
        _check_kafka(document.kafka),
    )
    for key, message in sections:
        yield key if isinstance(key, tuple) else tuple(key.split(".")), message


def check_leaves(document: Document, taxonomies: Mapping[str, Taxonomy]) -> Iterator[Finding]:
    """Check that no two leaves in the taxonomy of a confidential attribute mean the same value."""
    for name, taxonomy in taxonomies.items():
        attribute = document.attributes[name]
        if attribute.role == "confidential" and has_repeated_value(taxonomy.leaves, attribute.type):
            yield ("attributes", name, "taxonomy"), TWICE


def is_follow_up(path: FieldPath, message: str, known: FieldPath) -> bool:
    """Return whether a fault at ``path`` may only show that the field ``known`` was removed for a fault of its own."""
    if path == ("attributes",):
        # They may lack an attribute, or the mark of the subject.
        return known in {path, ("subject",)} or (known[:1] == path and (len(known) == 2 or known[2:] == ("subject",)))  # noqa: PLR2004
    if path[: len(known)] == known or (path == known[: len(path)] and known[len(path)].isdigit()):
        return True
    if path[:-1] == known[:-1] and message.startswith("missing") and did_you_mean(known[-1], path[-1:]):
        return True
    if path[:1] != ("attributes",) or len(path) < 3:  # noqa: PLR2004
        return False
    if path[:2] == known[:2]:
        return len(known) > 2 and path[2] in _DEPENDENT.get(known[2], ())  # noqa: PLR2004
    return known[:2] in _NEEDED_BY.get(path[2], ())


# ---------------------------------------------------------------- attributes

_SCALES_OF = {
    key: [scale for scale, rules in SCALE_RULES.items() if key in rules.keys]
    for key in chain.from_iterable(rules.keys for rules in SCALE_RULES.values())
}
"""The scales for which a key of a quasi-identifier or a steering attribute has a meaning."""
_SCALE_OF = {rules.confidential_key: scale for scale, rules in SCALE_RULES.items() if rules.confidential_key}
"""The same for a confidential attribute."""
_CLUSTERED = ("quasi_identifier", "steering")
_QUASI = "only for a quasi_identifier; remove it, or change the role from {role}"
_UNSCALED = "an attribute of role {role} has neither a scale nor keys of one; remove it, or change the role"
_CONFIDENTIAL = "only for a confidential attribute; remove it, or change the role from {role}"
_OF_SCALE = "not allowed for role {role}, whose type follows from its scale; remove type"
_UNCHANGED = "an attribute of role {role} is never published unchanged; remove it"
_BY = "the weight of a steering attribute is given in steering.by; remove it here"
_NOT_ALLOWED = (
    (_CLUSTERED, ("type",), _OF_SCALE),
    (_CLUSTERED, ("publish_unchanged",), _UNCHANGED),
    (("steering",), ("resolution", "publish", "to"), "an attribute of role steering is not published; remove it"),
    (("steering",), ("weight",), _BY),
    (("identifier",), ("publish_unchanged", "to"), "an identifier is never published; remove it"),
    (("identifier", "other"), ("weight",), _QUASI),
    (("identifier", "other"), ("scale", *_SCALES_OF, "missing"), _UNSCALED),
    (("confidential",), ("weight", *(key for key in _SCALES_OF if key not in _SCALE_OF), "missing"), _QUASI),
    ((*_CLUSTERED, "identifier", "other"), ("protect", "reference"), _CONFIDENTIAL),
)
"""Roles, keys that attributes of these roles must not have, and what to do."""
_NUMBERS = SCALE_RULES["numeric"].types
_DEPENDENT = {
    "scale": (*_SCALES_OF, "missing", "reference"),
    "unit": ("bounds", "resolution", "format"),
    "resolution": ("format",),
    "type": ("scale", "reference"),
    "bounds": ("resolution",),
    "integer": ("resolution",),
}
"""The keys of an attribute that are checked by another key of it."""
_NEEDED_BY = {
    "protect": {("privacy",), ("privacy", "l"), ("privacy", "t"), ("privacy", "max_value_share")},
    "reference": {("privacy",), ("privacy", "t"), ("stream",)},
    "bounds": {("steering",), ("steering", "dependence"), ("stream",)},
}
"""The keys outside the attributes by which a key of a confidential attribute is checked."""
_NOT_UNCHANGED = (
    "missing: role other publishes the field unchanged, and a person who knows its value can find the record; set "
    "publish_unchanged: true to accept this, or declare a quasi_identifier or an identifier"
)


def _check_attribute(name: str, attribute: AttributeSection, document: Document) -> _Found:
    role = attribute.role
    if has_lone_surrogate(name):
        yield (), "contains a lone surrogate, which no message can contain; correct the name"
    for roles, keys, message in _NOT_ALLOWED:
        for key in keys if role in roles else ():
            if getattr(attribute, key) != AttributeSection.model_fields[key].default:
                yield key, message.format(role=role)
    if role == "other" and not attribute.publish_unchanged:
        yield "publish_unchanged", _NOT_UNCHANGED
    yield from _check_type(attribute)
    if role in _CLUSTERED:
        yield from _check_clustered(attribute, document)
    elif role == "confidential":
        yield from _check_confidential(attribute, document)


def _check_type(attribute: AttributeSection) -> _Found:
    """Check ``type`` and what depends on it."""
    kind = attribute.type
    if kind == "json" and attribute.role in {"identifier", "other"}:
        yield "type", "json is only for a confidential attribute; declare single fields inside it by their path"
    if attribute.max_bytes is not None and kind != "json":
        yield "max_bytes", "only for a confidential attribute of type json; remove it"
    if attribute.normalize is not None and not attribute.subject:
        yield "normalize", "only for the subject, whose spellings are counted as one person; remove it"
    elif attribute.normalize is not None and kind not in {"string", "any", None}:
        yield "normalize", f"only for a subject of type string or any; remove it, or change the type from {kind}"


def _check_clustered(attribute: AttributeSection, document: Document) -> _Found:
    """Check a quasi-identifier or a steering attribute."""
    decimal = (document.csv and document.csv.decimal) or "."
    if attribute.thousands == decimal:
        yield "thousands", f"is also the decimal sign; set csv: {{decimal: '{'.' if decimal == ',' else ','}'}}"
    scale = attribute.scale or "numeric"
    for key, scales in _SCALES_OF.items():
        if getattr(attribute, key) is not None and scale not in scales:
            yield key, f"only for scale {' or '.join(scales)}; remove it, or give scale: {scales[0]}"
    rules = SCALE_RULES[scale]
    yield from rules.check(attribute, document.missing_texts)
    if document.stream is None or attribute.bounds is not None or not rules.has_moments:
        return
    # A stream must know how to scale distances, and the step of what it publishes.
    if attribute.role == "steering":
        yield "bounds", "missing: a stream scales a steering attribute by its bounds; give bounds: [low, high]"
    elif document.steering.scaling == "bounds":
        yield "bounds", "missing: steering.scaling is bounds; give bounds: [low, high], or remove scaling"
    else:
        yield from rules.check_step(attribute)


# ---------------------------------------------------------------- confidential attributes


def _check_confidential(attribute: AttributeSection, document: Document) -> _Found:
    scale = attribute.scale
    rules = None if scale is None else SCALE_RULES[scale]
    if rules is not None and not rules.types:
        yield "scale", f"a confidential attribute has no scale {scale}; {rules.instead}"
        return
    for key, needed in _SCALE_OF.items():
        if getattr(attribute, key) is not None and scale != needed and (key, scale) != ("bounds", None):
            yield key, f"only for scale {needed}; remove it, or give scale: {needed}"
    if rules is not None and attribute.type not in rules.types:
        yield "scale", f"has no meaning for type {attribute.type}; remove it, or change the type"
    if attribute.taxonomy is not None and attribute.type == "json":
        yield "taxonomy", "type json has no names; remove it, or change the type"
    if rules is not None:
        yield from rules.check_confidential(attribute, document.missing_texts)
    if attribute.bounds is not None:
        yield from _check_confidential_bounds(attribute, document)


def _check_confidential_bounds(attribute: AttributeSection, document: Document) -> _Found:
    if document.stream is None or document.steering.dependence == 0:
        why = "of a confidential attribute, only for steering.dependence in a stream, where they scale distances"
        yield "bounds", f"{why}; remove it, or change the role from confidential"
    elif attribute.type not in _NUMBERS:
        yield "bounds", f"only for numbers; remove it, or change the type from {attribute.type}"
    else:
        yield from check_number_bounds(attribute)


def _check_marks(document: Document) -> _Found:
    """Check ``protect`` and ``reference`` of confidential attributes."""
    privacy, protected = document.privacy, dict(_protected(document))
    has_t = privacy is not None and privacy.t is not None
    has_limit = privacy is not None and (privacy.l is not None or privacy.max_value_share not in {None, 1})
    for name, attribute in document.attributes.items():
        if attribute.role != "confidential":
            continue
        if attribute.protect and not (has_t or has_limit):
            yield ("attributes", name, "protect"), _PROTECTS_NOTHING
        if fault := _fault_of_reference(attribute, document, has_t=has_t, is_protected=name in protected):
            yield ("attributes", name, "reference"), fault


def _fault_of_reference(attribute: AttributeSection, document: Document, *, has_t: bool, is_protected: bool) -> str:
    if attribute.reference is None:
        return _NO_REFERENCE if has_t and is_protected and document.stream is not None else ""
    if not has_t:
        return "only for privacy.t, which compares clusters with it; give privacy.t, or remove it"
    words = "privacy.t applies to the attributes with protect: true; set it here, too, or remove the reference"
    return "" if is_protected else words


_PROTECTS_NOTHING = "protects nothing without privacy.l, privacy.t or privacy.max_value_share; give one of them"
_NO_REFERENCE = (
    "missing: in a stream, privacy.t compares each cluster with a distribution that the policy gives; write one from a "
    "sample with shoal reference POLICY -i SAMPLE -o FILE, and name the file here"
)


def _protected(document: Document) -> list[tuple[str, AttributeSection]]:
    """Return the protected attributes: the marked ones, or all confidential ones if none is marked."""
    confidential = [(name, a) for name, a in document.attributes.items() if a.role == "confidential"]
    return [(name, a) for name, a in confidential if a.protect] or confidential


_MOST_TRUTH_VALUES = 3
"""True, false and a missing one. An order sets no limit: only ``t`` rejects a value that is not in it."""


def _boolean_names(document: Document) -> list[str]:
    """Return the names of the protected attributes that have few values."""
    return [name for name, attribute in _protected(document) if attribute.type == "boolean"]


def _check_diversity(document: Document) -> _Found:
    given = None if document.privacy is None else document.privacy.l
    if given is None:
        return
    least = given if isinstance(given, int) else given.entropy or (given.recursive or [0, 0])[1]
    if document.stream is not None and document.stream.delta is not None and least > document.stream.delta + 1:
        yield "privacy.l", "must be at most delta + 1: the buffer never holds more records"
    for name in _boolean_names(document) if least > _MOST_TRUTH_VALUES else ():
        yield "privacy.l", f"attributes.{name} has at most 3 values, a missing one included, so no cluster has l"


def _check_value_share(document: Document) -> _Found:
    share = None if document.privacy is None else document.privacy.max_value_share
    if share is None:
        return
    delta = None if document.stream is None else document.stream.delta
    if delta is not None and share * (delta + 1) < 1:
        yield "privacy.max_value_share", "must be at least 1 / (delta + 1): the buffer never holds more records"
    # A share such as 0.3333333333 is a third.
    for name in _boolean_names(document) if share * _MOST_TRUTH_VALUES < 1 - 1e-9 else ():
        why = f"attributes.{name} has at most 3 values, a missing one included, so one has a larger share"
        yield "privacy.max_value_share", f"must be at least 1 / 3: {why}"


def _check_limits(document: Document) -> _Found:
    """Check that there are confidential attributes if the policy limits their values."""
    if document.privacy is None or any(attribute.role == "confidential" for attribute in document.attributes.values()):
        return
    counted = "there are no values to count"
    for name, why in (("l", counted), ("max_value_share", counted), ("t", "there is no distribution to compare")):
        if getattr(document.privacy, name) is not None:
            yield f"privacy.{name}", f"no attribute is confidential, so {why}; remove it"


def _check_dependence(document: Document) -> _Found:
    path = "steering.dependence"
    if document.steering.dependence == 0:
        return
    if document.privacy is not None and document.privacy.t is not None:
        yield path, "conflicts with privacy.t, which separates equal confidential values; remove one of the two"
    confidential = {name: a for name, a in document.attributes.items() if a.role == "confidential"}
    if not any(a.type in _NUMBERS and a.scale in {"numeric", None} for a in confidential.values()):
        yield path, "no confidential attribute is a number, so there is no dependence to preserve; set it to 0"
    elif document.stream is not None:
        numbers = {name: a for name, a in confidential.items() if _is_declared_number(a)}
        for name in (name for name, attribute in numbers.items() if attribute.bounds is None):
            yield ("attributes", name, "bounds"), _NO_RANGE
        if not numbers:
            yield path, "no confidential attribute is declared as a number; in a stream give one bounds: [low, high]"


_NO_RANGE = (
    "missing: steering.dependence in a stream needs the range of each confidential number, which is not known before "
    "the stream ends; give bounds: [low, high], which scale distances and change no value"
)


def _is_declared_number(attribute: AttributeSection) -> bool:
    if attribute.scale is not None:
        return attribute.scale == "numeric"
    return attribute.type in {"integer", "number"} or attribute.bounds is not None


# ---------------------------------------------------------------- messages and files

_MAX_DEPTH = 20
"""Names in a path. No message needs more, and decoders recurse once per name."""
_NO_ITEMS = (
    "read the whole list as a confidential attribute of type json, or let the producer write the item into a field of "
    "its own"
)
_INDEX = re.compile(r"\[[^\]]*\]")
_TIMESTAMP = (
    "an exact timestamp identifies the record for a person who knows when it was sent; declare it as "
    "quasi_identifier, or set role: other with publish_unchanged: true to accept this"
)
_NO_SOURCE = "must be value, key, timestamp, header:NAME or the path to a field, such as value.patient.sex"


def _check_sources(document: Document) -> _Found:
    """Check the key ``from`` of every attribute."""
    readers: dict[Source, str] = {}
    for name, attribute in document.attributes.items():
        path, source = ("attributes", name, "from"), Source.parse(attribute.source)
        if source is None or source.part is MessagePart.VALUE:
            if fault := _fault_of_source(attribute.source):
                yield path, fault
            continue
        if has_lone_surrogate(source.header):
            yield path, "contains a lone surrogate, which no header name can contain; correct the name"
        # Two attributes from one source could publish with one role what the other role hides.
        if (first := readers.setdefault(source, name)) != name:
            yield path, f"is read by attributes.{first} already; remove one of the two attributes"
        if source.part is MessagePart.TIMESTAMP:
            yield from _check_timestamp(name, attribute)
    paths = [(name, path_of_source(name, attribute.source)) for name, attribute in document.attributes.items()]
    for name, other, is_same in _collisions([(name, path) for name, path in paths if path]):
        same = f"is read by attributes.{other} already; remove one of the two attributes"
        apart = f"is an object around the field of attributes.{other}, or inside its field; read only one of them"
        yield ("attributes", name, "from"), same if is_same else apart


def _fault_of_source(text: str) -> str:
    """Return what is wrong with a text that names no key, header or timestamp; empty for a field of the value."""
    first, dot, _ = text.partition(".")
    if text == MessagePart.VALUE:
        return ""
    if not text or text.startswith("header:"):
        return _NO_SOURCE
    if not dot:
        return f"{_NO_SOURCE}; give value.{text} for this field"
    if first in {MessagePart.KEY, MessagePart.HEADER, MessagePart.TIMESTAMP}:
        return f"a field inside the {first} is not read; for the field {first} of the value, start with value.{first}"
    return _fault_of_path(text, _NO_ITEMS)


def _fault_of_path(text: str, remedy_for_lists: str) -> str:
    """Return what is wrong with a dotted path, and the remedy; an empty text if it is valid."""
    names = text.split(".")
    if _INDEX.search(text) or any(name.isascii() and name.isdigit() for name in names):
        return f"names an item of a list; {remedy_for_lists}"
    if not all(name.strip() for name in names):
        return "has an empty name between two dots, at its start or at its end; remove a dot"
    if len(names) > _MAX_DEPTH:
        return f"has more than {_MAX_DEPTH} names; move the field further out"
    if has_lone_surrogate(text):
        return "contains a lone surrogate, which no message can contain; correct the name"
    return ""


def _collisions(paths: Iterable[tuple[str, FieldPath]]) -> Iterator[tuple[str, str, bool]]:
    """Yield each attribute with one before it whose field it has, contains or is inside; and whether both are equal."""
    fields: dict[FieldPath, str] = {}
    objects: dict[FieldPath, str] = {}
    for name, path in paths:
        outer = [path[:length] for length in range(1, len(path))]
        taken = next((place for place in (path, *outer) if place in fields), None)
        if taken is not None:
            yield name, fields[taken], taken == path
        elif path in objects:
            yield name, objects[path], False
        fields.setdefault(path, name)
        for prefix in outer:
            objects.setdefault(prefix, name)


def _check_timestamp(name: str, attribute: AttributeSection) -> _Found:
    path = ("attributes", name)
    if attribute.subject:
        yield (*path, "from"), "a timestamp does not identify a person; read the subject from value, key or a header"
    if attribute.role == "confidential":
        yield (*path, "role"), _TIMESTAMP
    if attribute.scale == "time" and attribute.unit != "ms":
        yield (*path, "unit"), "a timestamp is a number of milliseconds; give unit: ms"
    if attribute.type in {"string", "boolean"}:
        yield (*path, "type"), "a timestamp is a whole number of milliseconds; use integer, number or any"


def _check_messages(document: Document) -> _Found:
    """Check the envelope of messages, and that no two fields of the output are one, or one inside the other."""
    if document.deletes is not None and document.unwrap != "debezium":
        yield (
            "deletes",
            (
                "only with unwrap: debezium, whose messages say that a row was deleted; remove it; rows with a field "
                '__deleted are left out by skip: {__deleted: ["true"]}'
            ),
        )
    written: list[tuple[str, FieldPath]] = []
    for name, attribute in document.attributes.items():
        if attribute.role in {"identifier", "steering"}:
            continue
        fault = attribute.to is not None and _fault_of_path(
            attribute.to, "give a field of an object, because lists are not written"
        )
        if fault:
            yield ("attributes", name, "to"), fault
        else:
            written.append((name, (name,) if attribute.to is None else tuple(attribute.to.split("."))))
    # In formats without objects, the name of a column is the path with dots.
    columns: dict[str, tuple[str, FieldPath]] = {}
    for name, path in written:
        other, taken = columns.setdefault(".".join(path), (name, path))
        if taken != path:
            yield ("attributes", name, "to"), f"is the column of attributes.{other} in CSV, too; give it another field"
    for name, other, is_same in _collisions(written):
        same = f"is the field of attributes.{other} already; give one of the two another field"
        apart = f"is an object around the field of attributes.{other}, or inside its field; give it another field"
        yield ("attributes", name, "to"), same if is_same else apart


def _check_missing_values(document: Document) -> _Found:
    lists: list[tuple[FieldPath, list[str]]] = [(("missing_values",), document.missing_values or [])]
    lists += [(("skip", name), texts) for name, texts in document.skip.items()]
    for path, texts in lists:
        if path[0] == "skip" and not texts:
            yield path, "has no text; give the texts by which the field says that a message is no record"
        if any(map(has_lone_surrogate, texts)):
            yield path, "contains a lone surrogate, which no message can contain; correct the text"
        if any(text != text.strip(BLANKS) for text in texts):
            yield path, "has a text with blanks or tabs at its ends, which are stripped from cells; remove the blanks"


def _check_dialects(document: Document) -> _Found:
    """Check that no dialect uses one character both as delimiter and as decimal sign."""
    if document.csv is None:
        return
    delimiter, decimal = document.csv.delimiter or ",", document.csv.decimal or "."
    if delimiter == decimal:
        yield "csv.decimal", "is also the delimiter; give another delimiter, such as ';'"
    elif (output := document.csv.output) is not None:
        if (output.delimiter or delimiter) == (output.decimal or decimal):
            yield "csv.output.decimal", "is also the delimiter; give another delimiter, such as ';'"
        for key in ("multiline", "output"):
            if getattr(output, key) is not None:
                yield f"csv.output.{key}", "not allowed inside csv.output; remove it"


# ---------------------------------------------------------------- subject, privacy, stream and steering


def _check_attributes(document: Document) -> _Found:
    roles = {attribute.role for attribute in document.attributes.values()}
    if roles and roles.isdisjoint({"quasi_identifier", None}):
        yield "attributes", "no attribute has the role quasi_identifier, so there is nothing to make k-anonymous"


def _check_subject(document: Document) -> _Found:
    """Check that exactly one attribute is the subject, or that every record is a different person."""
    marked = [name for name, attribute in document.attributes.items() if attribute.subject]
    for name in marked:
        if document.attributes[name].role not in {"identifier", None}:
            yield ("attributes", name, "subject"), "the subject is never published; set its role to identifier"
    for name in marked[1:]:
        words = f"only one attribute can be the subject, and attributes.{marked[0]} is marked already; unmark one"
        yield ("attributes", name, "subject"), words
    if marked and document.subject == "every_record":
        yield "subject", f"every_record contradicts attributes.{marked[0]}.subject; remove one of the two"
    if document.attributes and not marked and document.subject is None:
        yield (
            "attributes",
            (
                "no subject: say who the person is: mark the attribute that identifies it with subject: true, or set "
                "subject: every_record at the top level if every record belongs to a different person"
            ),
        )


def _check_privacy(document: Document) -> _Found:
    privacy, stream = document.privacy, document.stream
    if privacy is None:
        return
    share, k, population = privacy.max_share, privacy.k, privacy.min_population
    if share is not None and k is not None and Decimal(repr(share)) * k < 1 and share < 1 / k:
        yield "privacy.max_share", "must be at least 1/k: in a cluster of k subjects at least one has this share"
    if population is not None and k is not None and population < k:
        words = "must be at least k (recommended: 2k); fewer than k subjects are never released"
        yield "privacy.min_population", words
    elif population is not None and stream is not None and stream.delta is not None and population > stream.delta:
        yield "privacy.min_population", "must be at most delta: the buffer never holds more subjects"


def _check_per_subject(document: Document) -> _Found:
    quota = None if document.privacy is None else document.privacy.per_subject
    if quota is not None and document.subject == "every_record":
        remedy = "mark the attribute that is the subject, or remove it"
        yield "privacy.per_subject", f"limits nothing with subject: every_record; {remedy}"
    if quota is not None and quota.max is not None and quota.window is not None and quota.max >= quota.window:
        yield "privacy.per_subject.window", "must be longer than max, or nothing is limited"


def _check_stream(document: Document) -> _Found:
    stream = document.stream
    if stream is None:
        if document.steering.scaling == "bounds":
            yield "steering.scaling", "only for streams; remove it, or add a stream section"
        if isinstance(document.steering.position, TargetSpanSection):
            yield "steering.position", "a table has no order to preserve; give a weight, or add a stream section"
        return
    k = None if document.privacy is None else document.privacy.k
    if k is not None and stream.delta is not None and stream.delta < k - 1:
        yield "stream.delta", "must be at least k - 1, or no cluster can reach k subjects"
    if stream.reveal_order and stream.release != "ordered":
        yield "stream.reveal_order", "only for release: ordered; remove it"


def _check_steering(document: Document) -> _Found:
    """Check that the attributes of role ``steering`` are those of ``steering.by``, each with a weight."""
    entries = document.steering.by or ()
    names = Counter(entry.attribute for entry in entries)
    for index, entry in enumerate(entries):
        name, path = entry.attribute, f"steering.by.{index}.attribute"
        if name is None:
            continue
        if name not in document.attributes:
            yield path, "is not declared; add it to attributes with role: steering"
        elif document.attributes[name].role not in {"steering", None}:
            yield path, f"attributes.{name} must have role: steering"
        elif names[name] > 1:
            yield path, "is listed twice; remove one"
    for name, attribute in document.attributes.items():
        if attribute.role == "steering" and name not in names:
            # The list has no line, and no fault of its own, if there is no section.
            has_section = "steering" in document.model_fields_set
            where = ("steering", "by") if has_section else ("attributes", name, "role")
            yield where, f"no weight of attributes.{name}; add {{attribute: {name}, weight: W}} to steering.by"


# ---------------------------------------------------------------- Kafka

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
_KEY_LIKE = re.compile(r"[0-9a-fA-F]{64}|[A-Za-z0-9+/_-]{43}=?")
"""32 bytes in hexadecimal or base64."""


def _check_kafka(kafka: KafkaSection | None) -> _Found:
    if kafka is None:
        return
    for name, field in KafkaSection.model_fields.items():
        annotations = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        if annotations.get(ONLY_ENVIRONMENT) and getattr(kafka, name) is not None:
            what = "a key" if name == "metadata_key" else "this secret"
            remedy = f"put it into a file and give its path in kafka.{name}_file"
            yield f"kafka.{name}", f"a policy must not contain {what}; {remedy}, or set {_ENVIRONMENT}{name.upper()}"
    if _KEY_LIKE.fullmatch(kafka.metadata_key_file or ""):
        yield "kafka.metadata_key_file", "looks like a key; put the key into a file and give its path here"
    yield from check_names(kafka)


def check_names(settings: KafkaSection) -> Iterator[Finding]:
    """Yield the faults of brokers' addresses and topics' names; values that are not given are left out."""
    servers = settings.bootstrap_servers.split(",") if settings.bootstrap_servers else []
    for number, server in enumerate(servers, 1):
        if fault := _fault_of_server(server.strip()):
            which = f"address {number} of {len(servers)}" if len(servers) > 1 else "the address"
            yield ("kafka", "bootstrap_servers"), f"{which} {fault}"
    if settings.topics == []:
        yield ("kafka", "topics"), "names no topic; give at least one {input, output}, or remove it"
    for name in ("input", "output") if settings.topics is not None else ():
        if getattr(settings, name):
            words = "contradicts kafka.topics, which names all inputs and outputs; remove one of the two"
            yield ("kafka", name), words
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


def check_connection(settings: KafkaSection, *, has_secrets: bool) -> Iterator[Finding]:
    """Yield the faults of security settings; without ``has_secrets``, credentials may be missing here."""
    faults = chain(_check_unused(settings), _check_alternatives(settings))
    yield from ((("kafka", name), message) for name, message in faults)
    for name in missing_credentials(settings) if has_secrets else ():
        words = f"missing: {settings.security_protocol} needs it; set it as {_ENVIRONMENT}{name.upper()}"
        yield ("kafka", name), words


def missing_credentials(settings: KafkaSection) -> list[str]:
    """Return the names of the SASL credentials that the security protocol needs and that are missing or empty."""
    if not settings.security_protocol.startswith("SASL"):
        return []
    if settings.sasl_mechanism == "OAUTHBEARER":
        return [] if any(getattr(settings, name) for name in _TOKENS) else ["sasl_oauth_token_file"]
    has_password = settings.sasl_password or settings.sasl_password_file
    given = {"sasl_username": settings.sasl_username, "sasl_password": has_password}
    return [name for name, value in given.items() if not value]


def _check_unused(settings: KafkaSection) -> Iterator[tuple[str, str]]:
    """Refuse security settings that the protocol does not use. PLAINTEXT by name switches all of them off."""
    protocol, is_named = settings.security_protocol, "security_protocol" in settings.model_fields_set
    if is_named and protocol == "PLAINTEXT":
        return
    used = {"sasl_": protocol.startswith("SASL"), "ssl_": protocol.endswith("SSL")}
    why = f"with kafka.security_protocol {protocol}" if is_named else "without kafka.security_protocol: the connection"
    why += "" if is_named else " would be plain text"
    for name in type(settings).model_fields:
        prefix = name.partition("_")[0] + "_"
        if not used.get(prefix, True) and getattr(settings, name) is not None:
            protocols = "SASL_SSL (or SASL_PLAINTEXT)" if prefix == "sasl_" else "SSL or SASL_SSL"
            yield name, f"has no effect {why}; set {protocols}"
    if used["ssl_"] and settings.ssl_certfile is None and settings.ssl_keyfile is not None:
        yield "ssl_keyfile", "has no effect without kafka.ssl_certfile; give the certificate too, or remove it"


def _check_alternatives(settings: KafkaSection) -> Iterator[tuple[str, str]]:
    """Refuse a secret that is given twice, and credentials that the SASL mechanism does not use."""
    for name in ("sasl_password", "ssl_password"):
        if getattr(settings, name) and getattr(settings, f"{name}_file"):
            yield f"{name}_file", f"is given besides kafka.{name}; remove one of the two"
    first, *others = [name for name in _TOKENS if getattr(settings, name)] or [""]
    for name in others:
        yield name, f"is given besides kafka.{first}; remove one of the two"
    command = settings.sasl_oauth_command
    if command is not None and (not command or "" in command):
        yield "sasl_oauth_command", "must be a list of a program and its arguments, without an empty one"
    if not settings.security_protocol.startswith("SASL"):
        return
    mechanism = settings.sasl_mechanism or "PLAIN"
    passwords = ("sasl_username", "sasl_password", "sasl_password_file")
    for name in _TOKENS if mechanism != "OAUTHBEARER" else passwords:
        if getattr(settings, name):
            yield name, f"has no effect with kafka.sasl_mechanism {mechanism}; remove it"
