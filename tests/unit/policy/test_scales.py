"""Attributes that are not numbers: what a policy says of them, resolved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shoal.policy import MessagePart, Policy, Scale, TimeStep
from shoal.policy.texts import format_time, parse_time
from support.policy_files import GOOD, faults, load

pytestmark = pytest.mark.unit

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


def test_every_scale_is_resolved_with_its_defaults(tmp_path: Path) -> None:
    policy = records(tmp_path)
    found = {attribute.name: attribute for attribute in policy.attributes}
    assert [a.name for a in policy.clustered] == ["age", "education", "job", "sex", "city", "seen", "left", "ward"]
    assert [found[name].scale for name in ("age", "education", "job", "seen", "ward")] == [
        Scale.NUMERIC,
        Scale.ORDINAL,
        Scale.NOMINAL,
        Scale.TIME,
        Scale.NOMINAL,
    ]
    education, job, city = found["education"], found["job"], found["city"]
    assert (education.order, education.limits, education.weight) == (("none", "primary", 3), (0.0, 2.0), 2.0)
    assert job.taxonomy is not None
    assert job.taxonomy.root == "Any"
    assert job.taxonomy.paths == (("nurse", "Health"), ("doctor", "Health"), ("judge", "Law"))
    assert (job.publish, job.unknown) == ("ancestor", "root")
    assert (city.publish, city.unknown) == ("median", "quarantine")
    assert city.taxonomy is not None
    assert (city.taxonomy.root, city.taxonomy.levels) == ("*", 1)
    assert (found["sex"].publish, found["sex"].missing, found["age"].missing) == ("mode", "group", "mean")


def test_times_are_bounded_in_milliseconds(tmp_path: Path) -> None:
    found = {attribute.name: attribute for attribute in records(tmp_path).attributes}
    seen, left = found["seen"], found["left"]
    assert seen.limits == seen.bounds == (1577836800000.0, 1609452000000.0)
    assert (seen.time_step, seen.unit) == (TimeStep(15, "min"), None)
    assert left.limits == left.bounds == (0.0, 86400000.0)
    assert (left.time_step, left.unit) == (TimeStep(1, "day"), "s")


def test_fields_of_messages_are_resolved(tmp_path: Path) -> None:
    policy = records(tmp_path)
    found = {attribute.name: attribute for attribute in policy.attributes}
    assert (found["sex"].path, found["sex"].to) == (("patient", "sex"), ("person", "sex"))
    assert (found["ward"].path, found["ward"].weight) == (("visit", "ward"), 0.2)
    assert (found["age"].path, found["age"].to) == (("age",), ("age",))
    assert (found["patient"].path, found["patient"].source.part) == ((), MessagePart.KEY)
    assert (found["note"].type, found["note"].max_bytes) == ("json", 500)
    assert policy.missing_values == ("", "?")
    assert (policy.unwrap, policy.deletes, policy.tombstones) == ("debezium", "drop", "drop")


def test_a_date_is_no_number(tmp_path: Path) -> None:
    assert (
        faults(GOOD.replace("{k: 10}", "{k: 2020-01-01}"), tmp_path)["privacy.k"][1]
        == "must be an integer from 2 to 10,000,000"
    )


def test_a_policy_of_numbers_has_the_defaults_of_messages(tmp_path: Path) -> None:
    text = "subject: every_record\nattributes: {a.b: {role: quasi_identifier, bounds: [0, 1]}}\nprivacy: {k: 2}\n"
    policy = load(text, tmp_path)
    assert (policy.attributes[0].path, policy.attributes[0].to) == (("a.b",), ("a.b",))
    assert policy.missing_values == ("",)
    assert (policy.unwrap, policy.deletes, policy.tombstones) == (None, "quarantine", "quarantine")


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


def test_the_resolved_policy_shows_scales_as_plain_values(tmp_path: Path) -> None:
    resolved = json.loads(json.dumps(records(tmp_path).resolved()))
    attributes = resolved["attributes"]
    assert attributes["seen"] == {
        "role": "quasi_identifier",
        "scale": "time",
        "bounds": ["2020-01-01T00:00:00Z", "2020-12-31T22:00:00Z"],
        "out_of_bounds": "clip",
        "resolution": "15min",
        "weight": 1.0,
    }
    assert attributes["job"] == {
        "role": "quasi_identifier",
        "scale": "nominal",
        "publish": "ancestor",
        "taxonomy": {
            "sha256": "9b32db8775499f9c3829a1772398991d66c81a69298073bb726e528a293ab089",
            "leaves": 3,
            "levels": 2,
        },
        "unknown": "root",
        "weight": 1.0,
    }
    assert attributes["education"]["order"] == ["none", "primary", 3]
    assert (attributes["left"]["unit"], attributes["left"]["bounds"]) == ("s", [0.0, 86400.0])
    assert attributes["ward"] == {"role": "steering", "from": "value.visit.ward", "scale": "nominal"}
    assert (attributes["sex"]["from"], attributes["sex"]["to"]) == ("value.patient.sex", "person.sex")
    assert resolved["steering"]["by"] == [{"attribute": "ward", "weight": 0.2}]


@pytest.mark.parametrize(
    ("text", "unit", "milliseconds"),
    [
        ("1970-01-01", None, 0.0),
        ("2024-02-29T12:30:15.5Z", None, 1_709_209_815_500.0),
        ("2024-02-29 12:30:15.5+02:00", None, 1_709_202_615_500.0),
        ("1970-01-01T00:00:00.0005", None, 0.0),
        ("9999-12-31T23:59:59.999", None, 253_402_300_799_999.0),
        ("9999-12-31T23:59:59.9999", None, None),
        ("0001-01-01T00:00+01:00", None, None),
        ("2023-02-29", None, None),
        ("2023-01-01T24:00", None, None),
        ("2023-11-21Z", None, 1_700_524_800_000.0),
        ("2023-01-01+24:00", None, None),
        ("2023-1-1", None, None),
        ("\u0662023-01-01", None, None),
        (0, None, None),
        (1.0005, "s", 1000.0),
        (2.5, "ms", 2.0),
        (2500.0, "us", 2.0),
        (253_402_300_799_999_000.0, "us", 253_402_300_799_999.0),
        (3e17, "us", None),
        (19_682, "days", 1_700_524_800_000.0),
        (2_932_897, "days", None),
        (float("nan"), "s", None),
        (1e300, "s", None),
        ("0", "s", None),
    ],
)
def test_a_time_of_the_policy_is_read_to_the_millisecond(
    text: str | float, unit: str | None, milliseconds: float | None
) -> None:
    assert parse_time(text, unit) == milliseconds


@pytest.mark.parametrize(
    ("milliseconds", "unit", "text"),
    [
        (-62_135_596_800_000.0, None, "0001-01-01T00:00:00Z"),
        (253_402_300_799_999.0, None, "9999-12-31T23:59:59.999Z"),
        (-1.0, None, "1969-12-31T23:59:59.999Z"),
        (1500.0, "s", 1.5),
        (1500.0, "ms", 1500.0),
        (1500.0, "us", 1_500_000.0),
        (-43_200_000.0, "days", -0.5),
    ],
)
def test_a_time_is_shown_as_the_policy_writes_it(milliseconds: float, unit: str | None, text: str | float) -> None:
    assert format_time(milliseconds, unit) == text
    assert parse_time(text, unit) == milliseconds
