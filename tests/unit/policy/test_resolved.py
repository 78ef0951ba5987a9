"""Defaults, scales, the fingerprint and the plain form of a resolved policy."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
from shoal.errors import PolicyError
from shoal.policy import Policy, Role
from support.policy_files import GOOD, load

pytestmark = pytest.mark.unit


def test_a_policy_is_resolved_with_its_defaults(tmp_path: Path) -> None:
    policy = load(GOOD, tmp_path)
    assert [a.name for a in policy.quasi_identifiers] == ["age", "income"]
    assert [a.name for a in policy.unchanged_fields] == ["diagnosis", "ward"]
    assert policy.subject is not None
    assert (policy.subject.name, policy.subject.role) == ("patient", Role.IDENTIFIER)
    assert (policy.k, policy.max_share, policy.position) == (10, 0.5, 0.0)
    assert policy.stream is not None
    assert (policy.stream.delta, policy.stream.rule, policy.stream.max_delay_s) == (100, "block", None)
    assert policy.quasi_identifiers[1].weight == 2.0


@pytest.mark.parametrize(
    ("k", "name", "rule", "reason"),
    [
        (6, "auto", "awo", "auto: awo below k = 7"),
        (7, "auto", "block", "auto: block from k = 7 on"),
        (7, "awo", "awo", ""),
    ],
)
def test_auto_is_resolved_by_k_and_only_the_resolved_rule_counts(
    tmp_path: Path, k: int, name: str, rule: str, reason: str
) -> None:
    def policy_of(written: str) -> Policy:
        text = "subject: every_record\nattributes: {age: {role: quasi_identifier, bounds: [0, 1]}}\n"
        text += f"privacy: {{k: {k}}}\nstream: {{delta: 50, rule: {written}}}\n"
        return load(text, tmp_path)

    stream = policy_of(name).require_stream()
    assert (stream.rule, stream.reason) == (rule, reason)
    assert policy_of(name).fingerprint == policy_of(rule).fingerprint


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
def test_the_publication_step_comes_from_the_policy_alone(about: str, expected: str, tmp_path: Path) -> None:
    policy = load(GOOD.replace("scale: numeric, bounds: [0, 110], integer: true", about), tmp_path)
    grid = policy.quasi_identifiers[0].publication_step()
    assert grid == Decimal(expected)
    assert "E" not in str(grid) or grid < Decimal("1e-6")
    assert policy.quasi_identifiers[0].publication_step(table=True) == (
        Decimal(expected) if "resolution" in about else 0
    )


def test_the_fingerprint_covers_what_affects_the_release_only(tmp_path: Path) -> None:
    def fingerprint(text: str) -> str:
        return load(text, tmp_path).fingerprint

    plain = fingerprint(GOOD)
    assert fingerprint(GOOD + "kafka: {input: a, output: b, group: c}\n") == plain
    assert fingerprint(GOOD + "# a remark\n") == plain
    assert fingerprint(GOOD.replace("bounds: [0, 110]", "bounds: [0.0, 110.0]")) == plain
    for old, new in [
        ("{k: 10}", "{k: 11}"),
        ("{k: 10}", "{k: 10, max_share: 0.4}"),
        ("{k: 10}", "{k: 10, per_subject: {max: 3, window: 1000}}"),
        ("{k: 10}", "{k: 10, min_population: 20}"),
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


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    secrets = "sasl_username: hunter1, sasl_password: hunter2"
    text = GOOD + f"kafka: {{input: a, output: b, group: c, {secrets}}}\n"
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


def test_an_attribute_may_treat_values_out_of_bounds_in_its_own_way(tmp_path: Path) -> None:
    text = GOOD.replace("integer: true", "integer: true, out_of_bounds: clip") + "out_of_bounds: quarantine\n"
    assert [a.clip for a in load(text, tmp_path).quasi_identifiers] == [True, False]


RECORDS = """\
attributes:
  patient: {role: identifier, subject: true, from: key}
  age: {role: quasi_identifier, bounds: [0, 110], integer: true, missing: mean}
  education: {role: quasi_identifier, scale: ordinal, order: [none, primary, 3], weight: 2}
  job: {role: quasi_identifier, scale: nominal, taxonomy: job.csv}
  sex: {role: quasi_identifier, scale: nominal, from: patient.sex, to: person.sex, missing: group}
  city: {role: quasi_identifier, scale: nominal, taxonomy: [Bern, Basel], publish: median, unknown: quarantine}
  seen: {role: quasi_identifier, scale: time, bounds: [2020-01-01, "2021-01-01T00:00:00+02:00"], resolution: 15min}
  left: {role: quasi_identifier, scale: time, unit: s, bounds: [0, 86400.0005]}
  ward: {role: steering, scale: nominal, from: value.visit.ward}
  note: {role: confidential, type: json, max_bytes: 500}
missing_values: ["", "?"]
unwrap: debezium
deletes: drop
tombstones: drop
steering: {by: [{attribute: ward, weight: 0.2}]}
privacy: {k: 3}
stream: {delta: 100}
"""
JOBS = """\
job;field;all
nurse;Health;Any
doctor;Health;Any
judge;Law;Any
"""


def records(folder: Path, text: str = RECORDS) -> Policy:
    (folder / "job.csv").write_text(JOBS)
    return load(text, folder)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("integer: true", "integer: true, missing: quarantine"),
        ("integer: true", "integer: true, from: value.age"),
        ("integer: true", "integer: true, from: value"),
        ("integer: true", "integer: true, to: age"),
        ("type: string}", "type: string, to: diagnosis}"),
        ("stream:", 'missing_values: [""]\nstream:'),
        ("stream:", "tombstones: quarantine\nunwrap: null\nstream:"),
        ("stream:", "steering: {by: []}\nstream:"),
        ("stream:", "kafka: {topics: [{input: a, output: b}]}\nstream:"),
    ],
)
def test_a_default_that_is_written_does_not_change_the_fingerprint(old: str, new: str, tmp_path: Path) -> None:
    assert old in GOOD
    recorded = "3cdb1620e6121b08c006c600ed25575a999dca5dbb123f94231ca99ba682e27a"
    assert load(GOOD, tmp_path).fingerprint == recorded
    assert load(GOOD.replace(old, new, 1), tmp_path).fingerprint == recorded


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("missing: mean", "missing: group"),
        (", missing: mean", ""),
        ("order: [none, primary, 3]", "order: [none, 3, primary]"),
        ("order: [none, primary, 3]", "order: [none, primary, '3']"),
        ("weight: 2", "weight: 3"),
        ("taxonomy: job.csv", "taxonomy: job.csv, publish: mode"),
        ("taxonomy: job.csv", "taxonomy: job.csv, unknown: quarantine"),
        ("from: patient.sex", "from: patient.gender"),
        ("to: person.sex", "to: sex"),
        ("[Bern, Basel]", "[Bern, Biel]"),
        ("publish: median", "publish: ancestor"),
        ("15min", "h"),
        ("2020-01-01,", "2020-01-02,"),
        ("scale: time, unit: s, bounds: [0, 86400.0005]", "scale: time, unit: ms, bounds: [0, 86400000]"),
        ("from: value.visit.ward", "from: value.visit.unit"),
        ("max_bytes: 500", "max_bytes: 501"),
        ('["", "?"]', '["", "-"]'),
        ("unwrap: debezium\ndeletes: drop\n", ""),
        ("deletes: drop\n", ""),
        ("tombstones: drop\n", ""),
        ("weight: 0.2", "weight: 0.3"),
    ],
)
def test_a_setting_that_affects_the_release_changes_the_fingerprint(old: str, new: str, tmp_path: Path) -> None:
    assert old in RECORDS
    assert records(tmp_path, RECORDS.replace(old, new, 1)).fingerprint != records(tmp_path).fingerprint


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("2020-01-01,", '"2020-01-01 01:00:00+01:00",'),
        ("86400.0005", "86400"),
        ("from: patient.sex", "from: value.patient.sex"),
        ('["", "?"]', '["?", "", "?"]'),
        ("max_bytes: 500", "max_bytes: 500, to: note"),
    ],
)
def test_another_spelling_does_not_change_the_fingerprint(old: str, new: str, tmp_path: Path) -> None:
    assert old in RECORDS
    assert records(tmp_path, RECORDS.replace(old, new, 1)).fingerprint == records(tmp_path).fingerprint


def test_scales_are_shown_as_plain_values_and_keep_their_fingerprint(tmp_path: Path) -> None:
    """With another fingerprint, each worker would say after an update that the policy has changed."""
    policy = records(tmp_path)
    assert policy.fingerprint == "d434937ecc381c2ababd1bffe72411d6acdafa1517d98756fa0e9c2ba135fbb7"
    shown = json.loads(json.dumps(policy.resolved()))["attributes"]
    assert shown["seen"] == {
        "role": "quasi_identifier",
        "scale": "time",
        "bounds": ["2020-01-01T00:00:00Z", "2020-12-31T22:00:00Z"],
        "out_of_bounds": "clip",
        "resolution": "15min",
        "weight": 1.0,
    }
    assert (shown["left"]["unit"], shown["left"]["bounds"]) == ("s", [0.0, 86400.0])
    assert (shown["job"]["publish"], shown["job"]["taxonomy"]["levels"], shown["job"]["unknown"]) == (
        "ancestor",
        2,
        "root",
    )
