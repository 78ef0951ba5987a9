"""The JSON Schema of policies: it accepts what the loader accepts, and refuses unknown keys and words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator
from jsonschema import ValidationError as SchemaError
from shoal.policy.checks import check_document
from shoal.policy.document import parse_document
from shoal.policy.schema import Document, policy_schema, validate
from support.commands import run_command
from support.random_policies import Kind, random_document

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[3]
POLICIES = [
    path
    for folder in ("docs", "deploy", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*.yaml"))
    if "\nattributes:" in "\n" + path.read_text(encoding="utf-8")
]
PAGES = ["README.md", "docs/policy.md", "docs/protection.md", "docs/operate.md", "docs/files.md"]
BASE: dict[str, Any] = {
    "attributes": {"who": {"role": "identifier", "subject": True}, "age": {"role": "quasi_identifier"}},
    "privacy": {"k": 2},
}


@cache
def validator() -> Draft202012Validator:
    return Draft202012Validator(policy_schema())


def faults(document: object) -> list[str]:
    return [
        f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in validator().iter_errors(document)
    ]


def places(errors: Iterable[SchemaError]) -> Iterator[str]:
    """Paths of errors, and of what is wrong with each alternative."""
    for error in errors:
        yield ".".join(map(str, error.absolute_path))
        yield from places(error.context)


def test_the_command_prints_a_valid_schema() -> None:
    done = run_command("schema")
    schema = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, b"")
    assert schema == policy_schema()
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["required"] == ["attributes", "privacy"]


def test_the_policies_of_the_repository_are_valid() -> None:
    assert [path for path in POLICIES if faults(parse_document(path.read_text("utf-8"), str(path))[0])] == []
    assert len(POLICIES) > 5


@pytest.mark.parametrize("name", PAGES)
def test_the_examples_of_the_pages_are_valid(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    parts = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for part in parts:
        assert faults({**BASE, **parse_document(part, name)[0]}) == []
    assert parts


@pytest.mark.parametrize(
    "more",
    [
        {"privacy": {"k": 2, "l": None}},
        {"missing_values": ["", "?", 99, -1.5, True]},
        {"csv": {"delimiter": "\t", "output": {"delimiter": "tab"}}},
        {"kafka": {"topics": [{"input": "a", "output": "b"}], "sasl_password": "x", "sasl_oauth_command": ["a"]}},
        {"attributes": {"x": {"role": "quasi_identifier", "scale": "nominal", "taxonomy": {"a": ["b", 1], "c": None}}}},
        {"attributes": {"x": {"role": "quasi_identifier", "scale": "ordinal", "order": [1, 2, "x"]}}},
        {"attributes": {"x": {"role": "quasi_identifier", "scale": "time", "resolution": "15min"}}},
        {"attributes": {"x": {"role": "identifier", "from": "header:owner", "normalize": []}}},
        {"stream": None, "kafka": None},
    ],
)
def test_every_form_of_a_value_is_valid_where_the_loader_reads_it(more: dict[str, Any]) -> None:
    Document.model_validate(BASE | more)
    assert faults(BASE | more) == []


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ({"atributes": {}}, ""),
        ({"privacy": {"k": 2, "kk": 3}}, "privacy"),
        ({"privacy": {}}, "privacy"),
        ({"privacy": {"k": 2, "l": {"distinct": 3}}}, "privacy.l"),
        ({"stream": {"delta": 9, "rule": "best"}}, "stream.rule"),
        ({"steering": {"by": [{"attribute": "ward"}]}}, "steering.by"),
        ({"kafka": {"topics": [{"input": "a"}]}}, "kafka.topics"),
        ({"csv": {"output": {"multilin": True}}}, "csv.output"),
        ({"attributes": {}}, "attributes"),
        ({"attributes": {"x": {}}}, "attributes.x"),
        ({"attributes": {"x": {"role": "identifier", "source": "key"}}}, "attributes.x"),
    ],
)
def test_what_no_policy_may_say_is_not_valid(more: dict[str, Any], where: str) -> None:
    assert faults(BASE) == []
    found = list(places(validator().iter_errors(BASE | more)))
    assert where in found or any(name.startswith(f"{where}.") for name in found)


STREAM: dict[str, Any] = {
    "attributes": {
        "who": {"role": "identifier", "subject": True},
        "age": {"role": "quasi_identifier", "bounds": [0, 110], "weight": 1},
        "ill": {"role": "confidential", "type": "json", "max_bytes": 100, "scale": "nominal"},
        "ward": {"role": "steering", "scale": "nominal"},
    },
    "privacy": {"k": 5, "max_share": 0.5, "per_subject": {"max": 2, "window": 50}, "min_population": 9},
    "stream": {"delta": 100, "max_delay_s": 30},
    "steering": {"position": 0.1, "by": [{"attribute": "ward", "weight": 1}]},
}


def with_value(path: str, value: object) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(STREAM))
    *above, last = path.split(".")
    part: Any = document
    for step in above:
        part = part[int(step)] if isinstance(part, list) else part.setdefault(step, {})
    part[last] = value
    return document


def loader_faults(document: dict[str, Any]) -> list[str]:
    content, found = validate(Document, json.loads(json.dumps(document)))
    return [message for _, message in found] or [message for _, message in check_document(content)]


@pytest.mark.parametrize(
    ("path", "good", "bad"),
    [
        ("privacy.k", 2, 1),
        ("stream.delta", 10_000_000, 10_000_001),
        ("stream.max_delay_s", 1_000_000_000, 1_000_000_001),
        ("stream.max_delay_s", 0.001, 0),
        ("privacy.max_share", 1, 1.01),
        ("privacy.max_share", 0.2, 0),
        ("privacy.per_subject.window", 1_000_000, 1_000_001),
        ("privacy.per_subject.max", 1, 0),
        ("privacy.l", 2, 1),
        ("privacy.l", {"entropy": 1.01}, {"entropy": 1}),
        ("privacy.l", {"recursive": [2, 3]}, {"recursive": [2, 3, 4]}),
        ("privacy.max_value_share", 1, 1.01),
        ("privacy.max_value_share", 0.2, 0),
        ("attributes.age.weight", 1_000_000, 1_000_001),
        ("attributes.age.weight", 0.001, 0),
        ("attributes.age.bounds", [0, 1], [0, 1, 2]),
        ("attributes.ill.max_bytes", 1_000_000, 1_000_001),
        ("attributes.ill.max_bytes", 1, 0),
        ("attributes.who.normalize", ["nfkc", "spaces"], ["nfkc", "nfkc"]),
        ("steering.by.0.weight", 1_000_000, 1_000_001),
        ("steering.by.0.weight", 0.001, 0),
        ("steering.position", 0, -1),
        ("steering.position", {"target_span": 10_000_000}, {"target_span": 10_000_001}),
        ("steering.position", {"target_span": 0}, {"target_span": -1}),
        ("steering.dependence", 0, -0.1),
        ("kafka.commit_interval_ms", 60_000, 60_001),
    ],
)
def test_the_limits_are_those_of_the_loader(path: str, good: object, bad: object) -> None:
    assert loader_faults(with_value(path, good)) == []
    assert faults(with_value(path, good)) == []
    assert loader_faults(with_value(path, bad)) != []
    assert faults(with_value(path, bad)) != []


VALUES: tuple[Any, ...] = (
    *(None, True, "x", "", 0, -1, 2, 0.5, 1e12, [], [1], ["a", "b"], {}, {"a": 1}),
    {"entropy": 2},
    {"target_span": 1},
)


def changed(document: dict[str, Any], random: Random) -> dict[str, Any]:
    """Return a copy in which one value is another, or one key is new."""
    copy: dict[str, Any] = json.loads(json.dumps(document))
    places: list[tuple[Any, Any]] = []
    pending: list[Any] = [copy]
    while pending:
        part = pending.pop()
        for key, value in list(part.items() if isinstance(part, dict) else enumerate(part)):
            places.append((part, key))
            if isinstance(value, dict | list):
                pending.append(value)
    part, key = random.choice(places)
    if isinstance(part, dict) and random.random() < 0.1:
        key = random.choice(("unknown", "k", "weight", "missing", "l", "t"))
    part[key] = random.choice(VALUES)
    return copy


@pytest.mark.parametrize("kind", get_args(Kind))
def test_what_is_not_valid_is_refused_by_the_loader(kind: Kind) -> None:
    refused = accepted = 0
    for seed in range(1500):
        random = Random(seed)
        document = random_document(random, kind)
        document = changed(document, random) if seed % 20 else document
        told = loader_faults(document)
        assert not any("nput should" in sentence for sentence in told), "a sentence of the validator"
        if told:
            refused += 1
        else:
            accepted += 1
            assert faults(document) == [], document
    assert min(accepted, refused) > 50


def test_no_description_has_a_link_or_an_annotation() -> None:
    text = json.dumps(policy_schema())
    assert "](" not in text
    assert '"x-' not in text
    assert '"title"' not in text.replace('"title": "Shoal policy"', "", 1)
