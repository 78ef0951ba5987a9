"""Parsing of policy files."""

from __future__ import annotations

from pathlib import Path

import pytest
from shoal.errors import InputError, PolicyError
from shoal.policy import Policy
from support.policy_files import GOOD, faults, load

pytestmark = pytest.mark.unit


def test_toml_is_read_like_yaml(tmp_path: Path) -> None:
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
    ("text", "words"),
    [
        ("a: [", "not valid YAML"),
        ("", "must be a mapping"),
        ("- a", "must be a mapping"),
        ("attributes: {}\nattributes: {}", "occurs twice"),
        (GOOD.replace("income", "age"), "occurs twice"),
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


def test_yaml_words_and_dates_stay_text_as_names(tmp_path: Path) -> None:
    policy = load(GOOD.replace("diagnosis", "no").replace("ward", "'2020-01-01'"), tmp_path)
    assert [a.name for a in policy.unchanged_fields] == ["no", "2020-01-01"]


def test_repeated_keys_are_reported_with_all_other_faults(tmp_path: Path) -> None:
    found = faults(
        GOOD.replace("income", "age").replace("{k: 10}", "{k: 1}").replace("role: other", "role: nobody"), tmp_path
    )
    assert set(found) == {"attributes.age", "attributes.ward.role", "privacy.k"}


def test_merge_keys_and_aliases_are_read(tmp_path: Path) -> None:
    text = "attributes:\n  a: &b {role: quasi_identifier, bounds: [0, 1]}\n  b:\n    <<: *b\n    weight: 2\n  c: *b\n"
    policy = load(text + "subject: every_record\nprivacy: {k: 2}\nstream: {delta: 3}\n", tmp_path)
    assert [(a.name, a.weight) for a in policy.quasi_identifiers] == [("a", 1.0), ("b", 2.0), ("c", 1.0)]


@pytest.mark.parametrize("key", ["true", "null", "1", "1.50", "0x10", "2020-01-01"])
def test_names_that_are_not_text_are_refused(key: str, tmp_path: Path) -> None:
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
def test_hostile_files_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(PolicyError):
        load(text, tmp_path)
    with pytest.raises(PolicyError):
        load(text.replace("a: ", "a = "), tmp_path, "p.toml")
