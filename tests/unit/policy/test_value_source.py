"""The part of a message that an attribute is read from."""

from __future__ import annotations

from pathlib import Path

import pytest
from shoal.errors import PolicyError
from shoal.policy import Policy
from support.policy_files import SOURCES, faults, with_sources

pytestmark = pytest.mark.unit


def test_attributes_can_be_read_from_every_message_part(tmp_path: Path) -> None:
    policy = Policy.load(with_sources(tmp_path, "from: 'header:age: of'", "from: timestamp"))
    assert [str(a.source) for a in policy.attributes] == ["key", "header:age: of", "timestamp"]
    assert [a.name for a in policy.envelope_attributes] == ["patient", "age", "ward"]
    assert policy.value_attributes == ()
    assert [about.get("from") for about in policy.resolved()["attributes"].values()] == [
        "key",
        "header:age: of",
        "timestamp",
    ]


def test_the_source_of_an_attribute_is_part_of_the_fingerprint(tmp_path: Path) -> None:
    usual = Policy.load(with_sources(tmp_path))
    assert usual.fingerprint == Policy.load(with_sources(tmp_path, "integer: true, from: value")).fingerprint
    assert usual.fingerprint != Policy.load(with_sources(tmp_path, "integer: true, from: timestamp")).fingerprint


@pytest.mark.parametrize(
    ("age", "ward", "path", "words"),
    [
        ("from: headers", "type: any", "attributes.age.from", "key, timestamp, header:NAME or the path"),
        ("from: seen_at", "type: any", "attributes.age.from", "; give value.seen_at for this field"),
        ("from: 'header:'", "type: any", "attributes.age.from", "key, timestamp, header:NAME or the path"),
        ("from: 7", "type: any", "attributes.age.from", ""),
        ("from: key", "type: any", "attributes.age.from", "attributes.patient already"),
        ("from: 'header:a'", "from: 'header:a'", "attributes.ward.from", "attributes.age already"),
        ('from: "header:\\ud800"', "type: any", "attributes.age.from", "surrogate"),
        ("integer: true", "from: timestamp, type: string", "attributes.ward.type", "milliseconds"),
    ],
)
def test_invalid_sources_are_refused(age: str, ward: str, path: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy.load(with_sources(tmp_path, age, ward))
    (fault,) = caught.value.faults
    assert (".".join(fault.path), fault.line) == (path, 3 if "age" in path else 4)
    assert words in fault.message


def test_a_timestamp_is_neither_subject_nor_confidential(tmp_path: Path) -> None:
    text = SOURCES.replace("from: key", "from: timestamp").format(age="integer: true", ward="type: any")
    found = faults(text, tmp_path)
    assert set(found) == {"attributes.patient.from"}
    text = SOURCES.format(age="integer: true", ward="from: timestamp").replace(
        "role: other, publish_unchanged: true", "role: confidential"
    )
    found = faults(text, tmp_path)
    assert set(found) == {"attributes.ward.role"}
    assert "quasi_identifier" in found["attributes.ward.role"][1]
