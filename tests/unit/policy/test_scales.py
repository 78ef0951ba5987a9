"""Attributes that are not numbers: what a policy says of them, resolved."""

from __future__ import annotations

from pathlib import Path

import pytest
from shoal.policy import MessagePart, Policy, Scale, TimeStep
from support.policy_files import load

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


def test_a_policy_of_numbers_has_the_defaults_of_messages(tmp_path: Path) -> None:
    text = "subject: every_record\nattributes: {a.b: {role: quasi_identifier, bounds: [0, 1]}}\nprivacy: {k: 2}\n"
    policy = load(text, tmp_path)
    assert (policy.attributes[0].path, policy.attributes[0].to) == (("a.b",), ("a.b",))
    assert policy.missing_values == ("",)
    assert (policy.unwrap, policy.deletes, policy.tombstones) == (None, "quarantine", "quarantine")
