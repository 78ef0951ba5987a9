"""The matrix of the record: policies of streams and tables, and what is asked for with each.

Streams: every rule x release x option, each with one of the formats that the option allows, taken in turn, so that
each pair of rule, release, option and format that exists occurs. Tables: every algorithm x refinement x option, with
formats in turn; where a product costs more than it shows (annealing, exact choice), one or two cases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from golden.record.inputs import FIRST_MS

__all__ = ["Case", "batch_cases", "refused_policies", "stream_cases"]

Document = dict[str, Any]

RULES = ("nearest", "greedy", "awo", "block", "auto")
RELEASES = ("cluster", "ordered")
FIELDS = ("who", "age", "income", "code", "cost", "ward")
FORMS = ("jsonl", "csv", "messages")
WIDE = 1000
"""A delay (records) from which on held records are searched by an index."""


@dataclass(frozen=True)
class Case:
    """One command over one input, and `shoal verify` over its outputs.

    ``form`` and ``target`` are the input's and the output's format. ``shown``: the record holds outputs as text.
    """

    name: str
    document: Document
    form: str
    target: str
    count: int = 180
    arguments: tuple[str, ...] = ()
    fields: tuple[str, ...] = FIELDS
    broken: bool = False
    shown: bool = False


@dataclass(frozen=True)
class Option:
    """What a policy of a stream asks for beyond the plain one; sections are merged into the document."""

    name: str
    changes: Document = field(default_factory=dict)
    attributes: Document = field(default_factory=dict)
    forms: tuple[str, ...] = FORMS
    rules: tuple[str, ...] = RULES
    without: tuple[str, ...] = ()
    count: int = 180
    broken: bool = False


_AGE: Document = {"role": "quasi_identifier", "scale": "numeric", "bounds": [0, 110], "integer": True}
_INCOME: Document = {"role": "quasi_identifier", "scale": "numeric", "bounds": [0, 1000]}
_PLAIN: Document = {
    "attributes": {
        "who": {"role": "identifier", "subject": True},
        "age": _AGE,
        "income": _INCOME,
        "code": {"role": "confidential", "type": "string"},
        "cost": {"role": "confidential", "type": "number"},
        "ward": {"role": "other", "type": "string", "publish_unchanged": True},
    },
    "privacy": {"k": 3},
}
_SUBJECT: Document = {"role": "identifier", "subject": True}
_DIALECT: Document = {
    "delimiter": ";",
    "decimal": ",",
    "line_end": "crlf",
    "output": {"delimiter": "|", "quote": "'", "encoding": "latin-1", "decimal": "."},
}

OPTIONS = (
    Option("plain", broken=True),
    Option("per_subject", {"privacy": {"per_subject": {"max": 1, "window": 40}}}),
    Option("max_share", {"privacy": {"k": 4, "max_share": 0.25}}),
    Option("any_share", {"privacy": {"max_share": 1}}),
    Option("min_population", {"privacy": {"min_population": 9}}),
    Option("max_delay_s", {"stream": {"max_delay_s": 2}}),
    Option("position", {"steering": {"position": 0.01}}),
    Option("target_span", {"steering": {"position": {"target_span": 6}}}),
    Option("weights", attributes={"age": {"weight": 3}, "income": {"weight": 0.25}}),
    Option("learned", attributes={"age": _AGE | {"bounds": None}, "income": {"bounds": None, "resolution": 0.5}}),
    Option("learned_target", {"steering": {"position": {"target_span": 6}}}, {"age": {"bounds": None}}),
    Option("quarantine", {"out_of_bounds": "quarantine"}, broken=True),
    Option("exact_mean", attributes={"age": {"integer": False, "resolution": 0}, "income": {"resolution": 0}}),
    Option("coarse", attributes={"age": {"resolution": 5}, "income": {"resolution": 12.5}}),
    Option("large_k", {"privacy": {"k": 8}}),
    Option("undeclared_drop", {"undeclared": "drop"}, without=("ward", "cost")),
    Option("undeclared", without=("ward",), count=40, rules=("awo",)),
    Option("every_record", {"subject": "every_record"}, {"who": {"subject": False}}),
    Option("from_key", attributes={"who": _SUBJECT | {"from": "key"}}, forms=("messages",), broken=True),
    Option("from_header", attributes={"who": _SUBJECT | {"from": "header:owner"}}, forms=("messages",)),
    Option(
        "from_timestamp",
        attributes={"at": {"role": "quasi_identifier", "bounds": [FIRST_MS, FIRST_MS + 40_000], "from": "timestamp"}},
        forms=("messages",),
    ),
    Option("dialect", {"csv": _DIALECT}, forms=("csv",)),
    Option("wide", {"stream": {"delta": WIDE}}, count=1300),
)  # fmt: skip


def _document(option: Option, **stream: Any) -> Document:
    document: Document = deepcopy(_PLAIN)
    for name, changes in option.attributes.items():
        document["attributes"][name] = document["attributes"].get(name, {}) | changes
    for name in option.without:
        del document["attributes"][name]
    if stream:
        document["stream"] = dict(stream)
    for section, change in option.changes.items():
        document[section] = document.get(section, {}) | change if isinstance(change, dict) else change
    return _without_none(document)


def _without_none(document: Document) -> Document:
    kept = {name: value for name, value in document.items() if value is not None}
    return {name: _without_none(value) if isinstance(value, dict) else value for name, value in kept.items()}


def stream_cases() -> Iterator[Case]:
    """Yield the cases of `shoal pipe`."""
    for index, option in enumerate(OPTIONS):
        number = index + (index > 1)  # the numbers, and so the formats, from when there was another option
        for (place, rule), (turn, release) in product(enumerate(RULES), enumerate(RELEASES)):
            if rule not in option.rules or (option.name == "wide" and release == "ordered" and rule != "awo"):
                continue
            form = option.forms[(place + turn + number) % len(option.forms)]
            document = _document(option, delta=20, rule=rule, release=release)
            who = document["attributes"]["who"]
            if form == "messages":  # without an attribute of the envelope, lines would be read as records
                who.setdefault("from", "key")
            yield Case(
                name=f"pipe {option.name} {rule} {release} {form}",
                document=document,
                form=form,
                target=_target(form, place + number, option),
                count=option.count,
                fields=FIELDS[1:] if "from" in who else FIELDS,
                broken=option.broken,
                shown=(option.name, rule, release) in _SHOWN,
            )


_SHOWN = {("from_key", "nearest", "cluster"), ("plain", "auto", "ordered"), ("learned", "block", "cluster")}


def _target(form: str, turn: int, option: Option) -> str:
    """Return the output's format: the input's, and every fourth time the other one."""
    if form == "messages" or "csv" in option.changes or turn % 4:
        return "csv" if form == "csv" else "jsonl"
    return "jsonl" if form == "csv" else "csv"


# ---------------------------------------------------------------------- tables

TABLE_OPTIONS = (
    Option("plain"),
    Option("keep_order", {"table": {"keep_order": True}}),
    Option("per_subject", {"privacy": {"per_subject": {"max": 1, "window": 60}}}),
    Option("dependence", {"steering": {"dependence": 0.4}}),
    Option("max_share", {"privacy": {"k": 4, "max_share": 0.25}}),
    Option("min_population", {"privacy": {"min_population": 12}}),
    Option("every_record", {"subject": "every_record"}, {"who": {"subject": False}}),
    Option("no_bounds", attributes={"age": {"bounds": None}, "income": {"bounds": None}}),
    Option("resolution", attributes={"age": {"resolution": 1}, "income": {"resolution": 2.5, "weight": 2}}),
    Option("blocks"),
    Option("grid_of_stream", {"stream": {"delta": 20}}),
    Option("dialect", {"csv": _DIALECT}, forms=("csv",)),
    Option("refused_row", {"out_of_bounds": "quarantine"}),
    Option("closeness", {"privacy": {"t": 0.3}}),
)
TABLE_FORMS = ("csv", "jsonl", "parquet")
PARTITIONERS = ("auto", "md", "mdav", "vmdav", "hilbert", "genetic", "approximate")
_FEW = {"genetic": ("--param", "generations=300")}
_RUN_BY = {"blocks": ("--param", "blocks=2"), "keep_order": ("--keep-order",)}
_ONE_ATTRIBUTE: Document = {"income": {"role": "confidential", "type": "number", "scale": None, "bounds": None}}


def batch_cases() -> Iterator[Case]:
    """Yield the cases of `shoal batch`."""
    for (number, option), (place, algorithm) in product(enumerate(TABLE_OPTIONS), enumerate(PARTITIONERS)):
        refine = ("none", "descent")[(number + place) % 2]
        yield _table(option, algorithm, refine, number + place)
        if option.name in {"plain", "per_subject", "closeness", "dependence"}:
            yield _table(option, algorithm, ("descent", "none")[(number + place) % 2], number + place + 1)
    closeness = next(option for option in TABLE_OPTIONS if option.name == "closeness")
    for turn, (algorithm, refine) in enumerate(product(("strict", "steered"), ("none", "descent"))):
        yield _table(closeness, algorithm, refine, turn)
    single = Option("one_attribute", attributes=_ONE_ATTRIBUTE)
    for turn, (algorithm, refine) in enumerate(product(("optimal", "auto"), ("none", "descent"))):
        yield _table(single, algorithm, refine, turn)
    yield _table(TABLE_OPTIONS[0], "mdav", "anneal", 0, count=60)
    yield _table(TABLE_OPTIONS[2], "hilbert", "anneal", 1, count=60, seed=5)
    alone = Option("only_k", {"subject": "every_record", "privacy": {"max_share": 1}}, {"who": {"subject": False}})
    yield _table(alone, "mdav", "exact", 2, count=45)
    yield _table(TABLE_OPTIONS[0], "genetic", "none", 1, seed=3)


def _table(option: Option, algorithm: str, refine: str, turn: int, count: int = 150, seed: int = 0) -> Case:
    forms: Sequence[str] = option.forms if option.name == "dialect" else TABLE_FORMS
    form = forms[turn % len(forms)]
    target = form if option.name == "dialect" else TABLE_FORMS[(turn + (turn % 5 == 0)) % 3]
    given = (*_FEW.get(algorithm, ()), *_RUN_BY.get(option.name, ()), "--seed", str(seed))
    return Case(
        name=f"batch {option.name} {algorithm} {refine} {form} {target} n={count} seed={seed}",
        document=_document(option),
        form=form,
        target=target,
        count=count,
        arguments=("--algorithm", algorithm, "--refine", refine, *given),
        shown=(option.name, algorithm, refine) in {("plain", "mdav", "descent"), ("closeness", "strict", "none")},
    )


# ---------------------------------------------------------------------- refused


def refused_policies() -> Iterator[tuple[str, Document]]:
    """Yield policies that `shoal check` refuses; the record holds its exit code only."""
    stream = {"delta": 20}
    yield "no attributes", {"privacy": {"k": 3}}
    yield "no subject", _PLAIN | {"attributes": {"age": _AGE}}
    yield "k of 1", _PLAIN | {"privacy": {"k": 1}}
    yield "share below 1/k", _PLAIN | {"privacy": {"k": 3, "max_share": 0.2}}
    yield "l", _PLAIN | {"privacy": {"k": 3, "l": 2}}
    yield "t in a stream", _PLAIN | {"privacy": {"k": 3, "t": 0.2}, "stream": stream}
    yield "removed key", _PLAIN | {"privacy": {"k": 3, "dominance": 60}, "stream": stream}
    yield "delta below k", _PLAIN | {"stream": {"delta": 1}}
    yield "unknown key", _PLAIN | {"surprise": 1}
    yield (
        "nominal",
        _PLAIN | {"attributes": _PLAIN["attributes"] | {"code": {"role": "quasi_identifier", "scale": "nominal"}}},
    )
