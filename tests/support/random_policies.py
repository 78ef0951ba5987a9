"""Random policies of streams, tables and topics, as documents that the policy loader accepts."""

from __future__ import annotations

from random import Random
from typing import Any, Literal, TypeAlias

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
