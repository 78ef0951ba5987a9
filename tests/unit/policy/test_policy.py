"""Policies: everything that is read, every fault at once with its line, and what is resolved."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from shoal.errors import InputError, PolicyError
from shoal.policy import Policy, Role

pytestmark = pytest.mark.unit

GOOD = """\
attributes:
  patient: {role: identifier, subject: true}
  age: {role: quasi_identifier, scale: numeric, bounds: [0, 110], integer: true}
  income: {role: quasi_identifier, bounds: [0, 1000000], resolution: 500, weight: 2.0}
  diagnosis: {role: confidential, type: string}
  ward: {role: other, type: string, publish_unchanged: true}
privacy: {k: 10}
stream: {delta: 100}
"""


def load(text: str, folder: Path, name: str = "policy.yaml") -> Policy:
    path = folder / name
    path.write_text(text)
    return Policy.load(path)


def faults(text: str, folder: Path, name: str = "policy.yaml") -> dict[str, tuple[int | None, str]]:
    with pytest.raises(PolicyError) as caught:
        load(text, folder, name)
    return {".".join(fault.path): (fault.line, fault.message) for fault in caught.value.faults}


def test_a_policy_is_resolved_with_its_defaults(tmp_path: Path) -> None:
    policy = load(GOOD, tmp_path)
    assert [a.name for a in policy.quasi_identifiers] == ["age", "income"]
    assert [a.name for a in policy.passthrough] == ["diagnosis", "ward"]
    assert [a.name for a in policy.published] == ["age", "income", "diagnosis", "ward"]
    assert policy.subject is not None
    assert (policy.subject.name, policy.subject.role) == ("patient", Role.IDENTIFIER)
    assert (policy.k, policy.max_share, policy.position) == (10, 0.5, 0.0)
    assert policy.stream is not None
    assert (policy.stream.delta, policy.stream.rule, policy.stream.max_delay_s) == (100, "block", None)
    assert policy.quasi_identifiers[1].weight == 2.0


@pytest.mark.parametrize(
    ("k", "dominance", "name", "rule", "reason"),
    [
        (6, None, "auto", "awo", "auto: awo below k = 7"),
        (7, None, "auto", "block", "auto: block from k = 7 on"),
        (7, 10, "auto", "nearest", "auto: nearest, the only rule that keeps dominance"),
        (7, None, "awo", "awo", ""),
    ],
)
def test_auto_is_settled_by_k_and_what_it_stands_for_is_what_counts(
    tmp_path: Path, k: int, dominance: int | None, name: str, rule: str, reason: str
) -> None:
    def policy_of(written: str) -> Policy:
        option = "" if dominance is None else f", dominance: {dominance}"
        text = "subject: every_record\nattributes: {age: {role: quasi_identifier, bounds: [0, 1]}}\n"
        text += f"privacy: {{k: {k}{option}}}\nstream: {{delta: 50, rule: {written}}}\n"
        return load(text, tmp_path)

    stream = policy_of(name).require_stream()
    assert (stream.rule, stream.reason) == (rule, reason)
    assert policy_of(name).fingerprint == policy_of(rule).fingerprint


def test_options_are_resolved_and_change_the_fingerprint(tmp_path: Path) -> None:
    plain = load(GOOD, tmp_path)
    assert (plain.dominance, plain.per_subject, plain.min_population) == (None, None, None)
    assert plain.resolved()["privacy"] == {"k": 10, "max_share": 0.5}
    prints = {plain.fingerprint}
    for option, resolved in (
        ("dominance: 10", {"dominance": 10.0}),
        ("per_subject: {max: 3, window: 1000}", {"per_subject": {"max": 3, "window": 1000}}),
        ("min_population: 20", {"min_population": 20}),
    ):
        policy = load(GOOD.replace("{k: 10}", f"{{k: 10, {option}}}"), tmp_path)
        assert policy.resolved()["privacy"] == {"k": 10, "max_share": 0.5, **resolved}
        prints.add(policy.fingerprint)
    assert len(prints) == 4


def test_releases_of_a_subject_cannot_be_limited_where_there_is_none(tmp_path: Path) -> None:
    text = GOOD.replace(", subject: true", "").replace("{k: 10}", "{k: 10, per_subject: {max: 1, window: 9}}")
    found = faults(text + "subject: every_record\n", tmp_path)
    assert list(found) == ["privacy.per_subject"]
    assert "person of its own" in found["privacy.per_subject"][1]


def test_toml_says_the_same(tmp_path: Path) -> None:
    toml = """\
[attributes]
patient = {role = "identifier", subject = true}
diagnosis = {role = "confidential", type = "string"}
[attributes.age]
role = "quasi_identifier"
bounds = [0, 110]
integer = true
[privacy]
k = 10
[stream]
delta = 100
"""
    assert load(toml, tmp_path, "p.toml").quasi_identifiers[0].bounds == (0.0, 110.0)
    found = faults(toml.replace("k = 10", "k = 1").replace("delta = 100", "delta = 'x'"), tmp_path, "p.toml")
    assert found["privacy.k"][0] == 9
    assert found["stream.delta"][0] == 11


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ("bounds: [0, 110], integer: true", "1"),
        ("bounds: [0, 110]", "0.5"),
        ("bounds: [0, 1000000]", "5000"),
        ("bounds: [-4, 5]", "0.02"),
        ("bounds: [0, 1]", "0.005"),
        ("bounds: [0, 0.003]", "0.00001"),
        ("bounds: [0, 200]", "1"),
        ("bounds: [0, 399]", "1"),
        ("bounds: [0, 110], resolution: 0", "0"),
        ("bounds: [0, 110], resolution: 0.25", "0.25"),
        ("bounds: [0, 1000], resolution: 500", "500"),
        ("bounds: [0, 1000], resolution: 1e2", "100"),
        ("bounds: [0, 110], integer: true, resolution: 0.5", "0.5"),
    ],
)
def test_the_grid_comes_from_the_policy_alone(about: str, expected: str, tmp_path: Path) -> None:
    policy = load(GOOD.replace("scale: numeric, bounds: [0, 110], integer: true", about), tmp_path)
    grid = policy.quasi_identifiers[0].publication_step()
    assert grid == Decimal(expected)
    assert "E" not in str(grid) or grid < Decimal("1e-6")
    assert policy.quasi_identifiers[0].publication_step(table=True) == (
        Decimal(expected) if "resolution" in about else 0
    )


def test_every_fault_is_told_at_once_with_its_line(tmp_path: Path) -> None:
    found = faults(
        """\
attributes:
  patient: {role: identifier, subject: true, from: body}
  other: {role: identifier, subject: true}
  age: {role: quasi_identifer, bounds: [0, 110]}
  income: {role: quasi_identifier, bounds: [10, 1], weight: -1, resolution: -5}
  school: {role: quasi_identifier, scale: ordinal, order: [a, b]}
  job: {role: quasi_identifier, scale: nominal, taxonomy: job.csv}
  seen: {role: quasi_identifier, scale: time, resolution: 15min}
  free: {role: quasi_identifier}
  ward: {role: other}
  note: {role: confidential, bounds: [0, 1]}
  typo: {role: confidential, typ: string}
privacy: {k: 1, max_share: 2, l: 3, t: 0.1}
stream:
  delta: 0
  rule: best
  reveal_order: true
  max_delay_s: -1
steering:
  position: {target_span: -20}
  dependence: 0.5
kafka: {input: a, output: a, retries: 3}
extra: 1
""",
        tmp_path,
    )
    lines = {path: line for path, (line, _) in found.items()}
    assert lines == {
        "attributes.patient.from": 2,
        "attributes.other.subject": 3,
        "attributes.age.role": 4,
        "attributes.income.bounds": 5,
        "attributes.income.weight": 5,
        "attributes.income.resolution": 5,
        "attributes.school.scale": 6,
        "attributes.job.scale": 7,
        "attributes.seen.scale": 8,
        "attributes.free.resolution": 9,
        "attributes.ward.publish_unchanged": 10,
        "attributes.note.bounds": 11,
        "attributes.typo.typ": 12,
        "privacy.k": 13,
        "privacy.max_share": 13,
        "privacy.l": 13,
        "privacy.t": 13,
        "stream.delta": 15,
        "stream.rule": 16,
        "stream.reveal_order": 17,
        "stream.max_delay_s": 18,
        "steering.position.target_span": 20,
        "steering.dependence": 21,
        "kafka.output": 22,
        "kafka.retries": 22,
        "extra": 23,
    }
    later = {"scale", "l", "t", "dependence"}
    for path, (_, message) in found.items():
        if path.split(".")[-1] in later:
            assert message.startswith("not yet"), path


@pytest.mark.parametrize(("name", "value"), [("privacy.t", "1.5"), ("steering.dependence", "2")])
def test_what_a_stream_cannot_keep_is_told_with_all_else_that_is_wrong_with_it(
    name: str, value: str, tmp_path: Path
) -> None:
    section, _, field = name.partition(".")
    text = GOOD if section == "steering" else GOOD.replace("privacy: {k: 10", f"privacy: {{{field}: {value}, k: 10")
    text = text.replace("stream:", f"steering: {{{field}: {value}}}\nstream:") if section == "steering" else text
    with pytest.raises(PolicyError) as caught:
        load(text, tmp_path)
    told = [fault.message for fault in caught.value.faults if ".".join(fault.path) == name]
    assert any(message.startswith("not yet") for message in told)
    assert any(message.startswith("must be") for message in told)


@pytest.mark.parametrize(
    ("old", "new", "path", "words"),
    [
        (", subject: true", "", "attributes", "every_record"),
        ("privacy: {k: 10}\n", "privacy: {k: 10}\nsubject: every_record\n", "subject", "contradicts"),
        (
            "role: identifier, subject: true",
            "role: confidential, subject: true",
            "attributes.patient.subject",
            "identifier",
        ),
        ("privacy: {k: 10}\n", "", "privacy", "missing"),
        ("{k: 10}", "{max_share: 0.5}", "privacy.k", "missing"),
        ("{k: 10}", "{k: 10, max_share: 0.09}", "privacy.max_share", "1/k"),
        ("{k: 10}", "{k: true}", "privacy.k", "integer"),
        ("{k: 10}", "{k: '10'}", "privacy.k", "integer"),
        ("{delta: 100}", "{delta: 8}", "stream.delta", "k - 1"),
        ("{delta: 100}", "{}", "stream.delta", "missing"),
        ("bounds: [0, 110]", "bounds: [0]", "attributes.age.bounds", "low, high"),
        ("bounds: [0, 110]", "bounds: [0, .inf]", "attributes.age.bounds", "finite"),
        ("bounds: [0, 110]", "bounds: [0, .nan]", "attributes.age.bounds", "finite"),
        ("resolution: 500", "resolution: 2000000", "attributes.income.resolution", "wider"),
        ("resolution: 500", "resolution: .nan", "attributes.income.resolution", "finite"),
        ("weight: 2.0", "weight: 0", "attributes.income.weight", "above 0"),
        ("type: string}\n  ward", "type: text}\n  ward", "attributes.diagnosis.type", "string"),
        ("subject: true", "subject: true, publish_unchanged: true", "attributes.patient.publish_unchanged", "never"),
        ("integer: true", "integer: true, publish_unchanged: true", "attributes.age.publish_unchanged", "never"),
        ("integer: true", "integer: true, type: number", "attributes.age.type", "scale"),
        ("integer: true", "integer: true, order: [a]", "attributes.age.order", "ordinal"),
        ("{k: 10}", "{k: 10, per_subject: {max: 2}}", "privacy.per_subject.window", "missing"),
        ("{k: 10}", "{k: 10, per_subject: {window: 2}}", "privacy.per_subject.max", "missing"),
        ("{k: 10}", "{k: 10, per_subject: {max: 0, window: 9}}", "privacy.per_subject.max", "at least 1"),
        ("{k: 10}", "{k: 10, per_subject: {max: 9, window: 9}}", "privacy.per_subject.window", "longer"),
        ("{k: 10}", "{k: 10, per_subject: {max: 1, window: 1000001}}", "privacy.per_subject.window", "1000000"),
        ("{k: 10}", "{k: 10, per_subject: {max: 1, window: 1h}}", "privacy.per_subject.window", "integer"),
        ("{k: 10}", "{k: 10, per_subject: 3}", "privacy.per_subject", "mapping"),
        ("{k: 10}", "{k: 10, min_population: 9}", "privacy.min_population", "2k"),
        ("{k: 10}", "{k: 10, min_population: 101}", "privacy.min_population", "delta"),
        ("{k: 10}", "{k: 10, min_population: 20.5}", "privacy.min_population", "integer"),
        ("{k: 10}", "{k: 10, dominance: 0}", "privacy.dominance", "percentage"),
        ("{k: 10}", "{k: 10, dominance: 100}", "privacy.dominance", "percentage"),
        ("{k: 10}", "{k: 10, dominance: .nan}", "privacy.dominance", "percentage"),
        ("{k: 10}", "{k: 2, dominance: 10}", "privacy.dominance", "at least 3"),
        ("stream:", "steering: {position: -1}\nstream:", "steering.position", "0 or more"),
        ("stream:", "steering: {position: {span: 1}}\nstream:", "steering.position", "target_span"),
        ("stream:", "steering: {position: {}}\nstream:", "steering.position", "target_span"),
        ("stream:", "steering: {position: {target_span: .nan}}\nstream:", "steering.position.target_span", "from 0"),
        ("stream: {delta: 100}", "steering: {position: {target_span: 5}}", "steering.position", "no order"),
        ("stream:", "undeclared: pass\nstream:", "undeclared", "quarantine"),
    ],
)
def test_a_single_fault_is_named(old: str, new: str, path: str, words: str, tmp_path: Path) -> None:
    assert old in GOOD
    found = faults(GOOD.replace(old, new, 1), tmp_path)
    assert list(found) == [path]
    assert words in found[path][1]


def test_a_policy_without_quasi_identifiers_protects_nothing(tmp_path: Path) -> None:
    lines = [line for line in GOOD.splitlines() if "quasi" not in line]
    assert "nothing to make" in faults("\n".join(lines), tmp_path)["attributes"][1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "not valid YAML"),
        ("", "must be a mapping"),
        ("- a", "must be a mapping"),
        ("attributes: {}\nattributes: {}", "stands twice"),
        (GOOD.replace("income", "age"), "stands twice"),
        ("attributes: 3\nprivacy: {k: 3}\nsubject: every_record", "must be a mapping"),
    ],
)
def test_text_that_is_no_policy(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=words):
        load(text, tmp_path)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        Policy.load(tmp_path / "absent.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(PolicyError, match="UTF-8"):
        Policy.load(tmp_path / "bytes.yaml")


def test_words_stay_words(tmp_path: Path) -> None:
    policy = load(GOOD.replace("diagnosis", "no").replace("ward", "'2020-01-01'"), tmp_path)
    assert [a.name for a in policy.passthrough] == ["no", "2020-01-01"]


def test_the_fingerprint_covers_what_decides_and_nothing_else(tmp_path: Path) -> None:
    def fingerprint(text: str) -> str:
        return load(text, tmp_path).fingerprint

    plain = fingerprint(GOOD)
    assert fingerprint(GOOD + "kafka: {input: a, output: b, group: c}\n") == plain
    assert fingerprint(GOOD + "# a remark\n") == plain
    assert fingerprint(GOOD.replace("bounds: [0, 110]", "bounds: [0.0, 110.0]")) == plain
    for old, new in [
        ("{k: 10}", "{k: 11}"),
        ("{k: 10}", "{k: 10, max_share: 0.4}"),
        ("{delta: 100}", "{delta: 101}"),
        ("{delta: 100}", "{delta: 100, max_delay_s: 9}"),
        ("[0, 110]", "[0, 111]"),
        ("weight: 2.0", "weight: 3.0"),
        ("stream:", "steering: {position: 0.1}\nstream:"),
        ("stream:", "out_of_bounds: quarantine\nstream:"),
        ("diagnosis", "illness"),
    ]:
        assert fingerprint(GOOD.replace(old, new)) != plain, new
    swapped = GOOD.splitlines(keepends=True)
    swapped[2], swapped[3] = swapped[3], swapped[2]
    assert fingerprint("".join(swapped)) != plain, "the order of attributes is the output's order"


def test_secrets_do_not_show(tmp_path: Path) -> None:
    text = GOOD + "kafka: {input: a, output: b, group: c, sasl_password: hunter2, ssl_password: hunter3}\n"
    policy = load(text, tmp_path)
    assert "hunter" not in json.dumps(policy.resolved())
    assert "hunter" not in repr(policy)
    assert policy.kafka is not None
    assert policy.kafka.sasl_password is not None
    assert policy.kafka.sasl_password.get_secret_value() == "hunter2"


def test_a_table_needs_neither_stream_nor_bounds(tmp_path: Path) -> None:
    text = GOOD.replace("stream: {delta: 100}\n", "").replace("bounds: [0, 110], ", "")
    policy = load(text, tmp_path)
    assert policy.quasi_identifiers[0].bounds is None
    with pytest.raises(PolicyError, match="stream"):
        policy.require_stream()


def test_out_of_bounds_can_be_said_for_all_or_for_one(tmp_path: Path) -> None:
    policy = load(GOOD.replace("integer: true", "integer: true, out_of_bounds: quarantine"), tmp_path)
    assert [a.clip for a in policy.quasi_identifiers] == [False, True]
    policy = load(
        GOOD.replace("integer: true", "integer: true, out_of_bounds: clip") + "out_of_bounds: quarantine\n", tmp_path
    )
    assert [a.clip for a in policy.quasi_identifiers] == [True, False]


def resolved_example(tmp_path: Path) -> dict[str, Any]:
    return load(GOOD, tmp_path).resolved()


def test_what_is_resolved_is_plain(tmp_path: Path) -> None:
    assert json.loads(json.dumps(resolved_example(tmp_path)))["attributes"]["income"] == {
        "role": "quasi_identifier",
        "scale": "numeric",
        "bounds": [0.0, 1000000.0],
        "out_of_bounds": "clip",
        "integer": False,
        "resolution": "500",
        "weight": 2.0,
    }


def test_doubled_keys_are_told_with_all_other_faults(tmp_path: Path) -> None:
    found = faults(
        GOOD.replace("income", "age").replace("{k: 10}", "{k: 1}").replace("role: other", "role: nobody"), tmp_path
    )
    assert set(found) == {"attributes.age", "attributes.ward.role", "privacy.k"}


def test_merge_keys_and_aliases_are_read(tmp_path: Path) -> None:
    text = "attributes:\n  a: &b {role: quasi_identifier, bounds: [0, 1]}\n  b:\n    <<: *b\n    weight: 2\n  c: *b\n"
    policy = load(text + "subject: every_record\nprivacy: {k: 2}\nstream: {delta: 3}\n", tmp_path)
    assert [(a.name, a.weight) for a in policy.quasi_identifiers] == [("a", 1.0), ("b", 2.0), ("c", 1.0)]


@pytest.mark.parametrize("key", ["true", "null", "1", "1.50", "0x10", "2020-01-01"])
def test_names_that_are_no_text_are_refused(key: str, tmp_path: Path) -> None:
    assert "quotes" in faults(GOOD.replace("diagnosis", key), tmp_path)[f"attributes.{key}"][1]


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 5000 + "]" * 5000,
        "a: " + "9" * 5000,
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else '*a'] * 10)}]\n" for n in range(7)),
        "x" * (1 << 21),
    ],
)
def test_text_made_to_break_the_reader(text: str, tmp_path: Path) -> None:
    with pytest.raises(PolicyError):
        load(text, tmp_path)
    with pytest.raises(PolicyError):
        load(text.replace("a: ", "a = "), tmp_path, "p.toml")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{delta: 100}", "{delta: 1000000000000}"),
        ("{k: 10}", "{k: 100000000000000000000}"),
        ("resolution: 500", "resolution: 1.0e-310"),
        ("resolution: 500", "resolution: 1.0e+30"),
        ("bounds: [0, 110]", "bounds: [0, 1.0e-300]"),
        ("diagnosis", '"\\ud800"'),
    ],
)
def test_numbers_and_names_out_of_all_bounds_are_refused(old: str, new: str, tmp_path: Path) -> None:
    assert faults(GOOD.replace(old, new), tmp_path)


SOURCES = """\
attributes:
  patient: {{role: identifier, subject: true, from: key}}
  age: {{role: quasi_identifier, bounds: [0, 110], {age}}}
  ward: {{role: other, publish_unchanged: true, {ward}}}
privacy: {{k: 3}}
"""


def with_sources(tmp_path: Path, age: str = "integer: true", ward: str = "type: any") -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(SOURCES.format(age=age, ward=ward))
    return path


def test_attributes_are_read_from_the_parts_of_a_message(tmp_path: Path) -> None:
    policy = Policy.load(with_sources(tmp_path, "from: 'header:age: of'", "from: timestamp"))
    assert [str(a.source) for a in policy.attributes] == ["key", "header:age: of", "timestamp"]
    assert [a.name for a in policy.envelope_attributes] == ["patient", "age", "ward"]
    assert policy.value_attributes == ()
    assert [about.get("from") for about in policy.resolved()["attributes"].values()] == [
        "key",
        "header:age: of",
        "timestamp",
    ]


def test_where_an_attribute_is_read_is_part_of_the_fingerprint(tmp_path: Path) -> None:
    usual = Policy.load(with_sources(tmp_path))
    assert usual.fingerprint == Policy.load(with_sources(tmp_path, "integer: true, from: value")).fingerprint
    assert usual.fingerprint != Policy.load(with_sources(tmp_path, "integer: true, from: timestamp")).fingerprint


@pytest.mark.parametrize(
    ("age", "ward", "path", "words"),
    [
        ("from: headers", "type: any", "attributes.age.from", "key, timestamp or header:NAME"),
        ("from: 'header:'", "type: any", "attributes.age.from", "key, timestamp or header:NAME"),
        ("from: 7", "type: any", "attributes.age.from", ""),
        ("from: key", "type: any", "attributes.age.from", "attributes.patient already"),
        ("from: 'header:a'", "from: 'header:a'", "attributes.ward.from", "attributes.age already"),
        ('from: "header:\\ud800"', "type: any", "attributes.age.from", "surrogate"),
        ("integer: true", "from: timestamp, type: string", "attributes.ward.type", "milliseconds"),
    ],
)
def test_places_that_cannot_be_read_are_refused(age: str, ward: str, path: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy.load(with_sources(tmp_path, age, ward))
    (fault,) = caught.value.faults
    assert (".".join(fault.path), fault.line) == (path, 3 if "age" in path else 4)
    assert words in fault.message


def test_a_timestamp_is_neither_a_person_nor_confidential(tmp_path: Path) -> None:
    text = SOURCES.replace("from: key", "from: timestamp").format(age="integer: true", ward="type: any")
    found = faults(text, tmp_path)
    assert set(found) == {"attributes.patient.from"}
    text = SOURCES.format(age="integer: true", ward="from: timestamp").replace(
        "role: other, publish_unchanged: true", "role: confidential"
    )
    found = faults(text, tmp_path)
    assert set(found) == {"attributes.ward.role"}
    assert "quasi_identifier" in found["attributes.ward.role"][1]


@pytest.mark.parametrize(
    ("text", "path", "line", "words"),
    [
        ("csv: {delimiter: '#'}", "csv.delimiter", 6, ""),
        ("csv: {encoding: utf-7}", "csv.encoding", 6, "cp1252"),
        ("csv:\n  decimal: ','", "csv.decimal", 7, "give another delimiter"),
        ("csv:\n  delimiter: ';'\n  decimal: ','\n  output: {delimiter: ','}", "csv.output.decimal", 9, "delimiter"),
        ("csv: {separator: ';'}", "csv.separator", 6, "unknown field"),
        ("csv: {output: {output: {}}}", "csv.output.output", 6, "unknown field"),
    ],
)
def test_a_dialect_that_cannot_be_is_refused(text: str, path: str, line: int, words: str, tmp_path: Path) -> None:
    found = faults(SOURCES.format(age="integer: true", ward="type: any") + text + "\n", tmp_path)
    assert {name: place for name, (place, _) in found.items()} == {path: line}
    assert words in found[path][1]


def test_the_output_is_written_as_the_input_is_unless_something_else_is_said(tmp_path: Path) -> None:
    path = with_sources(tmp_path)
    usual = Policy.load(path)
    text = "csv: {delimiter: tab, encoding: cp1252, line_end: crlf, output: {encoding: utf-8}}\n"
    path.write_text(path.read_text() + text)
    policy = Policy.load(path)
    assert (policy.csv.delimiter, policy.csv.encoding, policy.csv.line_end) == ("\t", "cp1252", "\r\n")
    assert (policy.csv_output.delimiter, policy.csv_output.encoding, policy.csv_output.line_end) == (
        "\t",
        "utf-8",
        "\r\n",
    )
    assert policy.fingerprint == usual.fingerprint
    assert policy.resolved()["csv"]["output"]["encoding"] == "utf-8"
    assert "csv" not in usual.resolved()
