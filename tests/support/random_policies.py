"""Random policies of streams, tables and topics as documents that the policy loader accepts, and values for them.

Attributes of every scale, some with missing or unusable values; limits of confidential values with a reference.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeAlias

from shoal.policy import Attribute, MessagePart, Policy, Role, Scale

Document: TypeAlias = dict[str, Any]
Kind: TypeAlias = Literal["stream", "table", "topic"]

START_MS = 1_700_000_000_000
"""Timestamp of the first message (ms since 1970)."""

_BOUNDS = ([0, 110], [0, 1000], [-50, 50], [0.5, 7.25], [-1000, 100_000], [0, 1])
_RESOLUTIONS = (0, 1, 0.5, 0.25, 2.5, 5, 0.001)
_TYPES = ("string", "integer", "number", "boolean", "any")
_RULES = ("nearest", "greedy", "awo", "block", "auto")
_DIALECTS: tuple[Document, ...] = (
    {"delimiter": ";", "decimal": ",", "line_end": "crlf", "output": {"delimiter": "|", "quote": "'", "decimal": "."}},
    {"delimiter": "tab", "escape": "backslash", "output": {"line_end": "crlf"}},
    {"quote": "'", "output": {"encoding": "utf-16-le", "line_end": "cr"}},
    {"encoding": "utf-16", "output": {"delimiter": ";", "encoding": "utf-8-sig", "decimal": ","}},
)


def random_document(random: Random, kind: Kind) -> Document:
    """Return a random policy. The loader refuses a few combinations; the caller then draws again."""
    k = random.choice((2, 2, 3, 3, 4, 5, 8))
    document: Document = {"attributes": _attributes(random, kind), "privacy": {"k": k} | _privacy(random, kind, k)}
    if not any(attribute.get("subject") for attribute in document["attributes"].values()):
        document["subject"] = "every_record"
    if random.random() < 0.3:
        document["undeclared"] = "drop"
    if random.random() < 0.2:
        document["out_of_bounds"] = "quarantine"
    if kind != "topic" and random.random() < 0.2:
        document["csv"] = random.choice(_DIALECTS)
    if kind == "table" and random.random() < 0.8:
        return document | ({"steering": {"dependence": 0.3}} if random.random() < 0.2 else {})
    return document | _stream_sections(random, document["privacy"])


def _stream_sections(random: Random, privacy: Document) -> Document:
    delta = privacy["k"] - 1 + random.choice((0, 1, 3, 8, 15, 40, 120))
    sections: Document = {"stream": _stream(random, delta)}
    if "min_population" in privacy:
        privacy["min_population"] = random.randint(privacy["k"], max(privacy["k"], delta))
    if random.random() < 0.4:
        position = random.choice((0.01, 0.5, {"target_span": 3.0}, {"target_span": 0.0}))
        sections["steering"] = {"position": position}
    return sections


def _attributes(random: Random, kind: Kind) -> Document:
    streams = kind != "table"
    made: list[tuple[str, Document]] = []
    if random.random() < 0.85:  # else every record is a person
        subject: Document = {"role": "identifier", "subject": True}
        if random.random() < 0.3:
            subject["type"] = random.choice(("string", "integer"))
        if streams and random.random() < 0.3:
            subject["from"] = random.choice(("key", "header:owner"))
        made.append(("who", subject))
    made += [
        (name, _quasi_identifier(random, streams=streams)) for name in ("age", "pay", "dose")[: random.randint(1, 3)]
    ]
    passthrough: list[tuple[str, Document]] = []
    if random.random() < 0.75:  # else nothing is published unchanged
        names = ("ill", "cost é")[: random.randint(1, 2)]
        passthrough += [(name, {"role": "confidential", "type": random.choice(_TYPES)}) for name in names]
        if random.random() < 0.4:
            passthrough.append(("ward", {"role": "other", "publish_unchanged": True, "type": random.choice(_TYPES)}))
    if random.random() < 0.3:
        made.append(("ticket", {"role": "identifier"}))
    if streams and random.random() < 0.15:
        bounds = [START_MS, START_MS + 60_000]
        made.append(("at", {"role": "quasi_identifier", "bounds": bounds, "resolution": 500, "from": "timestamp"}))
    made += passthrough
    random.shuffle(made)
    return dict(made)


def _quasi_identifier(random: Random, *, streams: bool) -> Document:
    attribute: Document = {"role": "quasi_identifier"}
    bounds = random.choice((*_BOUNDS, None))
    if bounds is not None:
        attribute["bounds"] = bounds
    if random.random() < 0.4:
        attribute["integer"] = True
    if random.random() < 0.5 or (bounds is None and streams and "integer" not in attribute):
        attribute["resolution"] = random.choice(_RESOLUTIONS)
    if random.random() < 0.2:
        attribute["weight"] = random.choice((0.25, 3.0))
    if random.random() < 0.2:
        attribute["out_of_bounds"] = random.choice(("clip", "quarantine"))
    return attribute


def _privacy(random: Random, kind: Kind, k: int) -> Document:
    options: Document = {}
    if random.random() < 0.3:
        options["max_share"] = random.choice((1, 1 / k, 0.5, 0.75))
    if random.random() < 0.2:
        options["per_subject"] = {"max": random.choice((1, 2, 5)), "window": random.choice((7, 25, 100))}
    if random.random() < 0.2:
        options["min_population"] = k + random.randint(0, 4)
    if kind == "table" and random.random() < 0.25:
        options["t"] = random.choice((0.1, 0.3, 0.6))
    return options


def _stream(random: Random, delta: int) -> Document:
    stream: Document = {"delta": delta, "rule": random.choice(_RULES), "release": random.choice(("cluster", "ordered"))}
    if random.random() < 0.25:
        stream["max_delay_s"] = random.choice((0.5, 3, 20))
    if stream["release"] == "ordered" and random.random() < 0.3:
        stream["reveal_order"] = True
    return stream


# ---------------------------------------------------------------- limits of confidential values

_LISTED: dict[str, tuple[Any, ...]] = {
    "any": ("A00", "B20", "é", " x", "1", "true", "it's", "-0", ""),
    "string": ("A00", "B20", "e\u0301", "x ", "1", "true", "a;b|c\td", ""),
    "boolean": ("true", "False", ""),
    "integer": ("0", "7", "-3", "50.0", "1e12", ""),
    "number": ("0.5", "-1.25", "40", "100", "1e22", ""),
}
"""Texts of a reference by type. Records have these values, and others."""
_TREE = {"all": {"letters": ["A00", "B20", "é"], "others": ["1", "true", "x"]}}


def with_protection(random: Random, document: Document, kind: Kind, folder: Path) -> Document:
    """Return a policy with one or more of ``l``, ``max_value_share`` and ``t``; write its reference to the folder."""
    document = deepcopy(document)
    kinds = [random.choice(tuple(_LISTED)) for _ in range(random.choice((1, 1, 2)))]
    names = [f"ill {number}" for number in range(len(kinds))]
    for name, type_ in zip(names, kinds, strict=True):
        document["attributes"][name] = {"role": "confidential", "type": type_, "protect": True}
    privacy = document["privacy"]
    privacy.pop("t", None)
    if random.random() < 0.6:
        privacy["l"] = random.choice((2, 2, 3, 2, {"entropy": 1.5}, {"entropy": 2.5}, {"recursive": [2, 2]}))
    if random.random() < 0.4 or "l" not in privacy:
        privacy["max_value_share"] = random.choice((0.4, 0.5, 0.7, 1))
    if random.random() < 0.5:
        privacy["t"] = random.choice((0.3, 0.5, 0.7))
        document.pop("steering", None)
        for name, type_ in zip(names, kinds, strict=True):
            if kind != "table" or random.random() < 0.5:
                document["attributes"][name] |= _compared(random, type_, folder / f"{name}.csv")
    return document


def _compared(random: Random, type_: str, path: Path) -> Document:
    """Write a reference; return it, and the scale by which values are compared with it."""
    listed = list(_LISTED[type_])
    if random.random() < 0.5:
        listed.remove("")
    weights = [random.randint(1, 9) for _ in listed]
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("value", "share"))
        rows.writerows((text, weight / sum(weights)) for text, weight in zip(listed, weights, strict=True))
    scales: tuple[Document, ...] = ({}, {})
    if type_ in {"any", "string"}:
        order = [text.strip() for text in listed if text]
        scales = (
            {},
            {"scale": "nominal"},
            {"scale": "nominal", "taxonomy": _TREE},
            {"scale": "ordinal", "order": order},
        )
    return {"reference": str(path), **random.choice(scales)}


# ---------------------------------------------------------------- further scales

_TEXTS = ("M", "F", "é", "e\u0301", 'a "b", c', "x;y|z\t,", "null", "true", "1", " ", "a", "a b", "\U0001f41f", "it's")
_TREES: tuple[Any, ...] = (
    {"heart": ["I21", "I50", "é"], "lung": {"J1": ["J18", "J19"], "J4": ["J45"]}, "1": ["1"]},
    {"any place": {"north": ["a", "b", "true"], "south": ["c"]}},
    ["M", "F", "é"],
    # Groups named like one of their leaves, like the root, and like a node of another level.
    {"all": {"Other": ["Other", "Amer"], "all": ["White", "Black"]}},
    {"a": {"a": {"d": ["z", "b"], "c": ["y"]}, "b": {"a": ["x", "c", "d"]}}},
)
_MISSING_TEXTS = (["?"], ["", "n/a"], ["?", "0", "1970-01-01"], ["", "99", "7", "300"], ["true", "50.0", "-1e0"])
"""With numbers and a truth value that attributes have as values."""
_MANY_BOUNDS = (["1969-03-01", "2021-07-15T12:30Z"],) * 2 + (["0001-01-01", "9999-12-31T23:59:59.999Z"],)
_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "days": 1 / 86_400}
_FIRST_SECONDS, _LAST_SECONDS = (-62_135_596_800, -62_100_000_000), (253_370_000_000, 253_402_300_799)
"""From 1970 to the years 1 and 9999."""
_STEPS = ("s", "15min", "h", "6h", "day", "2day", "month", "year")
_ORDERS = (["low", "mid", "high"], [1, 2, 3, 10], ["I", 2, "é", "true"])


def with_scales(random: Random, document: Document, kind: Kind) -> Document:
    """Return a policy with attributes of further scales, missing values, and nested fields."""
    document = deepcopy(document)
    is_stream = "stream" in document
    made = list(document["attributes"].items())
    if random.random() < 0.5:
        made = [(name, one) for name, one in made if one["role"] != "quasi_identifier" or name == "at"]
    kinds = random.sample((_nominal, _taxonomy, _ordinal, _time, _epoch), random.randint(1, 4))
    made += [(make.__name__[1:], make(random)) for make in kinds]
    random.shuffle(made)
    document["attributes"] = dict(made)
    if random.random() < 0.3:
        _add_steering(random, document)
    if random.random() < 0.7:
        _let_miss(random, document, is_stream=is_stream)
    if random.random() < 0.3:
        document["missing_values"] = random.choice(_MISSING_TEXTS)
    if random.random() < 0.2:
        document["attributes"]["notes"] = {"role": "confidential", "type": "json", "max_bytes": random.choice((20, 80))}
    if kind != "table" and random.random() < 0.4 and "csv" not in document:
        _nest(random, document)
    return document


def _nominal(_: Random) -> Document:
    return {"role": "quasi_identifier", "scale": "nominal"}


def _taxonomy(random: Random) -> Document:
    attribute = _nominal(random) | {"taxonomy": random.choice(_TREES), "unknown": random.choice(("root", "quarantine"))}
    return attribute | {"publish": random.choice(("mode", "ancestor", "median"))}


def _ordinal(random: Random) -> Document:
    return {"role": "quasi_identifier", "scale": "ordinal", "order": random.choice(_ORDERS)}


def _time(random: Random) -> Document:
    attribute = {"role": "quasi_identifier", "scale": "time", "resolution": random.choice(_STEPS)}
    return attribute | {"bounds": random.choice(_MANY_BOUNDS)}


def _epoch(random: Random) -> Document:
    unit = random.choice(tuple(_PER_SECOND))
    limits = random.choice(((-(10**7), 10**9),) * 2 + ((_FIRST_SECONDS[0], _LAST_SECONDS[0]),))
    bounds = [int(seconds * _PER_SECOND[unit]) for seconds in limits]
    attribute = _time(random) | {"unit": unit, "bounds": bounds, "out_of_bounds": random.choice(("clip", "quarantine"))}
    return attribute | ({"resolution": random.choice(("day", "7day", "month"))} if unit == "days" else {})


def _add_steering(random: Random, document: Document) -> None:
    make = random.choice((_nominal, _ordinal))
    document["attributes"]["zone"] = make(random) | {"role": "steering"}
    document.setdefault("steering", {})["by"] = [{"attribute": "zone", "weight": random.choice((0.2, 2.0))}]


def _let_miss(random: Random, document: Document, *, is_stream: bool) -> None:
    for attribute in document["attributes"].values():
        if attribute["role"] not in {"quasi_identifier", "steering"} or random.random() < 0.3:
            continue
        is_number = attribute.get("scale", "numeric") in {"numeric", "time"}
        if is_number and is_stream and "bounds" not in attribute:
            continue
        choices = ["group"] if attribute.get("scale") == "nominal" else ["group", "mean"]
        attribute["missing"] = random.choice(choices)


def _nest(random: Random, document: Document) -> None:
    """Put some fields inside objects, and records into envelopes."""
    for name, attribute in document["attributes"].items():
        if "from" not in attribute and random.random() < 0.5:
            attribute["from"] = random.choice((f"value.in.{name}", f"value.in.deep.{name}", f"{name}.value"))
        if attribute["role"] in {"quasi_identifier", "confidential"} and random.random() < 0.4:
            attribute["to"] = random.choice((f"out.{name}", f"out.deep.{name}", f"new {name}"))
    if random.random() < 0.5:
        document["unwrap"] = random.choice(("debezium", "connect", "cloudevents"))
        if document["unwrap"] == "debezium":
            document["deletes"] = random.choice(("drop", "quarantine"))
    document["tombstones"] = random.choice(("drop", "quarantine"))


# ---------------------------------------------------------------- values


def values_of(random: Random, policy: Policy, *, is_table: bool) -> dict[str, Callable[[], Any]]:
    """Return for each attribute of a scale what draws a value, of one type in a table; few are distinct."""
    found: dict[str, Callable[[], Any]] = {}
    for attribute in policy.attributes:
        is_clustered = attribute.role in {Role.QUASI_IDENTIFIER, Role.STEERING}
        if is_clustered and (attribute.scale is not Scale.NUMERIC or attribute.may_be_missing):
            found[attribute.name] = _generator(random, policy, attribute, is_table=is_table)
        if attribute.type == "json":
            found[attribute.name] = lambda: random.choice(
                (None, [], {"a": [1, 2.5, "é"]}, [1e22, {"b": None}], "x" * 25)
            )
    return found


def _generator(random: Random, policy: Policy, attribute: Attribute, *, is_table: bool) -> Callable[[], Any]:
    texts = random.sample(_TEXTS, random.randint(2, 5))
    domains: dict[Scale, list[Any]] = {
        Scale.NOMINAL: random.choice((texts, texts, [True, False], [1, 2, 300])),
        Scale.ORDINAL: list(attribute.order) if random.random() < 0.5 else list(map(str, attribute.order)),
        Scale.NUMERIC: [0, 1, 7, 19, 50],
        Scale.TIME: _times(random, attribute),
    }
    domain = domains[attribute.scale]
    if random.random() < 0.3 and attribute.scale is not Scale.TIME:
        numbers = [99, 50, -1] if attribute.scale is Scale.NUMERIC else [99, 7]
        domain = domain + [one for one in numbers if not is_table or isinstance(domain[0], int)]
    if attribute.taxonomy is not None:
        leaves = [path[0] for path in attribute.taxonomy.paths]
        domain = random.sample(leaves, random.randint(1, len(leaves))) + random.choice(([], ["?!"], ["north", "zzz"]))
    if is_table and len(set(map(type, domain))) > 1:
        domain = list(map(str, domain))
    is_text = all(isinstance(one, str) for one in domain)
    gaps = [None, None, *(policy.missing_values if is_text else ())]
    share = random.choice((0.0, 0.1, 0.6)) if attribute.may_be_missing else random.choice((0.0, 0.0, 0.03))

    def draw() -> Any:
        return random.choice(gaps) if random.random() < share else random.choice(domain)

    return draw


def _times(random: Random, attribute: Attribute) -> list[Any]:
    if attribute.source.part is MessagePart.TIMESTAMP:
        return [0]
    if attribute.unit is not None:
        size = _PER_SECOND[attribute.unit]
        low, high = random.choice(((-(10**7), 11 * 10**8),) * 2 + (_FIRST_SECONDS, _LAST_SECONDS))
        return [int(random.randint(low, high) * size) + random.choice((0, 0, 1)) for _ in range(9)]
    first, last = random.choice(((1968, 2022), (1968, 2022), (1, 3), (9997, 9999)))
    days = [f"{random.randint(first, last):04}-{random.randint(1, 12):02}-{random.randint(1, 28):02}" for _ in range(9)]
    zones = ("", "Z", "+02:00", "-0930")
    clocks = [f"{day}{random.choice('T ')}{random.randint(0, 23):02}:59:30.5{random.choice(zones)}" for day in days]
    return random.choice((days, clocks, days + clocks))


def value_of(random: Random, policy: Policy, record: Document) -> Any:
    """Return the message value of a record: its fields at their places, in the envelope of the policy."""
    declared = {a.name: a for a in policy.attributes}
    value: Document = {name: one for name, one in record.items() if name not in declared}
    for attribute in policy.value_attributes:
        if record[attribute.name] is None and attribute.may_be_missing and random.random() < 0.5:
            continue
        *above, last = attribute.path or (attribute.name,)
        inner = value
        for name in above:
            inner = inner.setdefault(name, {})
        inner[last] = record[attribute.name]
    if policy.unwrap is None:
        return None if policy.tombstones == "drop" and random.random() < 0.05 else value
    if policy.unwrap == "cloudevents":
        return {"specversion": "1.0", "type": "visit", "id": str(next(_NUMBERS)), "data": value}
    if policy.unwrap == "connect":
        return {"schema": {"type": "struct"}, "payload": value if random.random() < 0.95 else None}
    change = {"before": None, "after": value, "op": "c", "source": {"table": "visits"}}
    if random.random() < 0.1:
        change |= {"before": value, "after": None, "op": "d"}
    return {"schema": None, "payload": change} if random.random() < 0.5 else change


_NUMBERS = itertools.count()
