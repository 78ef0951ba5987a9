"""Parsing of policy files."""

from __future__ import annotations

from pathlib import Path

import pytest
from shoal.errors import InputError, PolicyError
from shoal.policy import Policy
from support.policy_files import GOOD, faults, load

pytestmark = pytest.mark.unit


def test_json_is_read_like_yaml(tmp_path: Path) -> None:
    text = """\
{
\t"attributes": {"age": {"role": "quasi_identifier", "bounds": [0, 110]}},
\t"subject": "every_record",
\t"privacy": {"k": 1}
}
"""
    assert load(text.replace('"k": 1', '"k": 2'), tmp_path, "p.json").quasi_identifiers[0].bounds == (0.0, 110.0)
    assert faults(text, tmp_path, "p.json") == {"privacy.k": (4, "must be an integer from 2 to 10,000,000")}
    named = load(text.replace("age", "\\ud83d\\ude00 a\\/b").replace('"k": 1', '"k": 2'), tmp_path, "p.json")
    assert named.attributes[0].name == "\U0001f600 a/b"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must be a mapping"),
        ("- a", "must be a mapping"),
        ("attributes: {}\nattributes: {}", "occurs twice"),
        ("attributes: 3\nprivacy: {k: 3}\nsubject: every_record", "must be a mapping"),
    ],
)
def test_invalid_text_is_refused(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=words):
        load(text, tmp_path)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        Policy.load(tmp_path / "absent.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(PolicyError, match="UTF-8"):
        Policy.load(tmp_path / "bytes.yaml")


def test_repeated_keys_are_reported_with_all_other_faults(tmp_path: Path) -> None:
    found = faults(
        GOOD.replace("income", "age").replace("{k: 10}", "{k: 1}").replace("role: other", "role: nobody"), tmp_path
    )
    assert set(found) == {"attributes.age", "attributes.ward.role", "privacy.k"}


def test_merge_keys_and_aliases_are_read(tmp_path: Path) -> None:
    text = "attributes:\n  a: &b {role: quasi_identifier, bounds: [0, 1]}\n  b:\n    <<: *b\n    weight: 2\n  c: *b\n"
    policy = load(text + "subject: every_record\nprivacy: {k: 2}\nstream: {delta: 3}\n", tmp_path)
    assert [(a.name, a.weight) for a in policy.quasi_identifiers] == [("a", 1.0), ("b", 2.0), ("c", 1.0)]


def test_yaml_words_stay_text_as_names(tmp_path: Path) -> None:
    assert load(GOOD.replace("diagnosis", "no"), tmp_path).confidential[0].name == "no"


@pytest.mark.parametrize("key", ["true", "null", "1", "1.50", "0x10", "2020-01-01"])
def test_names_that_are_not_text_are_refused(key: str, tmp_path: Path) -> None:
    assert "quotes" in faults(GOOD.replace("diagnosis", key), tmp_path)[f"attributes.{key}"][1]


ROLES = "identifier, quasi_identifier, confidential, other or steering"
ALIASES = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"b{n}: &b{n} [{', '.join([f'*b{n - 1}' if n else '*a'] * 10)}]\n" for n in range(4)
)
LONG_NUMBER = "a number of more than 4,300 digits; shorten it, or put it in quotes if it is a text"
CYCLE = "an alias (*name) refers to the value that it is part of; write the value instead"
MANY = "the file has more than 100,000 values; use fewer aliases (*name)"
DEEP = "nested too deeply; remove levels of [...] and {...}"


@pytest.mark.parametrize(
    ("name", "text", "path", "line", "message"),
    [
        ("p.yaml", "a:\n  b: [1, " + "9" * 4301 + "]", ("a", "b", "1"), 2, LONG_NUMBER),
        ("p.yaml", "a: &x\n  b: *x\n", ("a", "b"), 2, CYCLE),
        ("p.yaml", "a: &x [1, *x]\n", ("a", "1"), 1, CYCLE),
        ("p.yaml", ALIASES, ("b3", "7", "8", "8", "8", "9"), 1, MANY),
        ("p.yaml", "a: " + "[" * 900 + "]" * 900, (), None, DEEP),
        ("p.yaml", "x" * (1 << 21), (), None, "longer than 1048576 characters"),
        ("p.TOML", "[privacy]\nk = 3\n", (), None, "a policy is YAML or JSON, not TOML; write it as YAML"),
        ("p.yaml", "a: !!int x", (), None, "a value that does not have the form of its tag (!!name); remove the tag"),
    ],
    ids=range(8),
)
def test_what_exceeds_a_limit_is_named(
    name: str, text: str, path: tuple[str, ...], line: int | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(PolicyError) as caught:
        load(text, tmp_path, name)
    assert list(caught.value.faults) == [(path, message, line)]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("attributes: {patient: identifier, age: }\nprivacy: {k: 3}\n", {"attributes.patient", "attributes.age"}),
        ("attributes: {age: {role: quasi_identifier}}\nprivacy: {k: 3}\nsubject: every\n", {"subject"}),
    ],
)
def test_what_a_faulty_attribute_may_give_is_not_said_to_be_missing(text: str, paths: set[str], tmp_path: Path) -> None:
    assert set(faults(text, tmp_path)) == paths


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("a: [1\nb: 2", 2, "a list in [...] is not closed"),
        ("a: {b: 1", 1, "a mapping in {...} is not closed"),
        ("a:\n  b: 1\n c: 2\n", 3, "not indented like the lines of its section"),
        ("a:\n\tb: 1", 2, "a tab"),
        ("a: b: c", 1, "a second colon"),
        ("a: 'canary", 1, "a quotation mark or a bracket is not closed"),
        ("a: *canary", 1, "an alias (*name) without an anchor"),
        ("a: @canary", 1, "put the text in quotes"),
        ("a: [", 1, "a value is missing"),
        ("a: \x01", None, "a control character"),
    ],
)
def test_a_yaml_error_says_its_reason(text: str, line: int | None, reason: str, tmp_path: Path) -> None:
    with pytest.raises(PolicyError) as caught:
        load(text, tmp_path)
    ((_, message, found),) = caught.value.faults
    assert found == line
    assert message.startswith("not valid YAML: ")
    assert reason in message
    assert "canary" not in message


@pytest.mark.parametrize(
    ("before", "after", "path", "message"),
    [
        ("role: c", "rolle: c", "attributes.diagnosis.rolle", "unknown field; did you mean role?"),
        ("privacy:", "privcy: {}\nprivacy:", "privcy", "unknown field; did you mean privacy?"),
        (
            "privacy:",
            "kafka: {transaction_timeout_ms: 9000}\nprivacy:",
            "kafka.transaction_timeout_ms",
            "no longer a field: it is 60 s; remove it",
        ),
        ("privacy:", "zzz: {}\nprivacy:", "zzz", "unknown field; remove it or check its spelling"),
        ("{k: 10}", "{k: ten}", "privacy.k", "must be an integer from 2 to 10,000,000"),
        ("weight: 2.0", "weight: heavy", "attributes.income.weight", "must be a number above 0 and at most 1,000,000"),
        ("subject: true", "subject: maybe", "attributes.patient.subject", "must be true or false"),
        ("bounds: [0, 110]", "bounds: 9", "attributes.age.bounds", "must be [low, high]"),
        ("stream:", "steering: {dependence: x}\nstream:", "steering.dependence", "must be a number from 0 to 1"),
        ("stream:", "kafka: {patience_s: -1}\nstream:", "kafka.patience_s", "must be a number of at least 0"),
        ("fidential", "fidental", "attributes.diagnosis.role", f"must be {ROLES}; did you mean confidential?"),
        (
            "stream:",
            "kafka: {security_protocol: sasl-ssl}\nstream:",
            "kafka.security_protocol",
            "must be PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; did you mean SASL_SSL?",
        ),
        ("stream:", "csv: {decimal: x}\nstream:", "csv.decimal", "must be '.' or ','"),
    ],
)
def test_a_field_that_does_not_fit_is_answered_in_plain_words(
    before: str, after: str, path: str, message: str, tmp_path: Path
) -> None:
    assert faults(GOOD.replace(before, after, 1), tmp_path)[path][1] == message


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("[-999]", ("-999",)),
        ("['', 0999, 9.90, 1e3, True, NA]", ("", "0999", "9.90", "1e3", "True", "NA")),
        ("[2020-01-01]", ("2020-01-01",)),
    ],
)
def test_a_missing_value_keeps_its_text(text: str, texts: tuple[str, ...], tmp_path: Path) -> None:
    assert load(GOOD + f"missing_values: {text}\n", tmp_path).missing_values == texts


@pytest.mark.parametrize("text", ["[null]", "[[]]", "[{}]"])
def test_a_missing_value_is_a_text(text: str, tmp_path: Path) -> None:
    assert faults(GOOD + f"missing_values: {text}\n", tmp_path) == {"missing_values.0": (9, "must be text")}


@pytest.mark.parametrize(
    ("scale", "line"),
    [
        ("ordinal, order: [01, 02, 010]", 2),
        ("ordinal, order: [1, '02', 0x1F]", 2),
        ("nominal, taxonomy: {'0': {'01': [1067],\n    '02': [1069, +5]}}", 3),
        ("nominal, taxonomy: [1_000, 2]", 2),
    ],
)
def test_a_category_whose_text_yaml_would_change_needs_quotes(scale: str, line: int, tmp_path: Path) -> None:
    text = f"attributes:\n  zip: {{role: quasi_identifier, scale: {scale}}}\nsubject: every_record\nprivacy: {{k: 2}}\n"
    message = "has a number with another text than that of its value, such as 01 for 1; put it in quotes"
    field = "order" if "order" in scale else "taxonomy"
    assert faults(text, tmp_path) == {f"attributes.zip.{field}": (line, message)}
