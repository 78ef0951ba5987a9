"""Which fields fit which scale and role, and what a policy may say of missing values and messages."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.policy_files import faults, load

pytestmark = pytest.mark.unit

GOOD = """\
attributes:
  age: {role: quasi_identifier, bounds: [0, 110], integer: true}
  school: {role: quasi_identifier, scale: ordinal, order: [none, 1]}
  job: {role: quasi_identifier, scale: nominal, taxonomy: [nurse, judge]}
  sex: {role: quasi_identifier, scale: nominal}
  seen: {role: quasi_identifier, scale: time, bounds: [2020-01-01, 2021-01-01]}
  ward: {role: steering, scale: nominal}
  note: {role: confidential, type: string}
subject: every_record
privacy: {k: 3}
stream: {delta: 100}
steering: {by: [{attribute: ward, weight: 0.2}]}
"""
BY = "{by: [{attribute: ward, weight: 0.2}]}"
LINES = {name: line for line, text in enumerate(GOOD.splitlines(), 1) for name in [text.split(":")[0].strip()]}


@pytest.mark.parametrize(
    ("old", "new", "path", "words"),
    [
        # scale and fields
        ("integer: true", "integer: true, order: [a, b]", "age.order", "only for scale ordinal"),
        ("integer: true", "integer: true, taxonomy: [a]", "age.taxonomy", "only for scale nominal"),
        ("integer: true", "integer: true, unknown: root", "age.unknown", "only for scale nominal"),
        ("integer: true", "integer: true, unit: s", "age.unit", "only for scale time"),
        ("integer: true", "resolution: day", "age.resolution", "scale: time"),
        ("integer: true", "integer: true, weight: 1.0e+200", "age.weight", "at most 1,000,000"),
        ("order: [none, 1]", "order: [a, b], bounds: [0, 1]", "school.bounds", "only for scale numeric or time"),
        ("[nurse, judge]", "[a], out_of_bounds: clip", "job.out_of_bounds", "only for scale numeric or time"),
        # ordinal
        (", order: [none, 1]", "", "school.order", "missing: scale ordinal needs its categories"),
        ("[none, 1]", "[none]", "school.order", "at least two"),
        ("[none, 1]", "[1, none, '1']", "school.order", "twice"),
        ("[none, 1]", "['', a]", "school.order", "missing value"),
        ("[none, 1]", "[a, 1.5]", "school.order.1", "must be text or an integer"),
        ("[none, 1]", '[a, "\\ud800"]', "school.order", "surrogate"),
        ("[none, 1]", f"[a, {'b' * 999}]", "school.order", "more than 1,000 bytes"),
        ("[none, 1]", "[a, b, ' a']", "school.order", "differ in blanks at the ends only"),
        # nominal
        ("scale: nominal}\n  seen", "scale: nominal, publish: ancestor}\n  seen", "sex.publish", "needs a taxonomy"),
        ("scale: nominal}\n  seen", "scale: nominal, publish: median}\n  seen", "sex.publish", "needs a taxonomy"),
        ("scale: nominal}\n  seen", "scale: nominal, unknown: root}\n  seen", "sex.unknown", "only with a taxonomy"),
        # time
        ("2021-01-01]", "2021-01-01], resolution: 2month", "seen.resolution", "15min, h, day, month or year"),
        ("2021-01-01]", "2021-01-01], resolution: 400day", "seen.resolution", "wider than the bounds"),
        ("2021-01-01]", "2019-01-01]", "seen.bounds", "low must be before high"),
        ("2021-01-01]", "2021-02-30]", "seen.bounds", "ISO 8601, such as 2020-01-31"),
        ("2021-01-01]", "2021-01-01, 2022-01-01]", "seen.bounds", "must be [low, high]"),
        ("2021-01-01]", "2021-01-01], unit: s", "seen.bounds", "numbers in the unit s"),
        ("[2020-01-01, 2021-01-01]", "[0, 1.0e+15], unit: s", "seen.bounds", "year 1 to 9999"),
        ("[2020-01-01, 2021-01-01]", "[0, .inf], unit: ms", "seen.bounds.1", "finite"),
        ("2021-01-01]", "2021-01-01], unit: min", "seen.unit", "must be s, ms, us, ns, days or years"),
        ("[2020-01-01, 2021-01-01]", "[0, 9], unit: days, resolution: 6h", "seen.resolution", "or day"),
        ("[2020-01-01, 2021-01-01]", "[0, 9], unit: days, resolution: 36h", "seen.resolution", "must be whole days"),
        ("[2020-01-01, 2021-01-01]", "[0, 2932897], unit: days", "seen.bounds", "numbers in the unit days"),
        ("[2020-01-01, 2021-01-01]", "[0, 3.0e+17], unit: us", "seen.bounds", "year 1 to 9999"),
        ("bounds: [2020-01-01, 2021-01-01]", "from: timestamp", "seen.unit", "unit: ms"),
        ("bounds: [2020-01-01, 2021-01-01]", "from: timestamp, unit: us", "seen.unit", "unit: ms"),
        # roles
        ("steering, scale: nominal", "steering, scale: nominal, weight: 2", "ward.weight", "given in steering.by"),
        ("steering, scale: nominal", "steering, bounds: [0, 1], resolution: 1", "ward.resolution", "not published"),
        ("confidential, type: string", "identifier, integer: false", "note.integer", "neither a scale nor keys"),
        ("confidential, type: string", "identifier, scale: nominal", "note.scale", "neither a scale nor keys"),
        ("confidential, type: string", "identifier, weight: 2", "note.weight", "only for a quasi_identifier"),
        ("steering, scale: nominal", "steering, scale: nominal, to: x", "ward.to", "not published"),
        ("steering, scale: nominal", "steering, scale: nominal, publish: mode", "ward.publish", "not published"),
        ("steering, scale: nominal", "steering, scale: nominal, type: any", "ward.type", "follows from its scale"),
        ("steering, scale: nominal", "steering, scale: ordinal", "ward.order", "missing"),
        ("steering, scale: nominal", "steering", "ward.bounds", "a stream scales a steering attribute by its bounds"),
        ("steering, scale: nominal", "steering, scale: time", "ward.bounds", "give bounds: [low, high]"),
        ("type: string", "type: string, missing: group", "note.missing", "only for a quasi_identifier"),
        ("type: string", "type: string, unit: s", "note.unit", "only for a quasi_identifier"),
        ("type: string", "type: string, max_bytes: 9", "note.max_bytes", "of type json"),
        ("confidential, type: string", "identifier, type: json", "note.type", "only for a confidential attribute"),
        ("confidential, type: string", "identifier, to: x", "note.to", "never published"),
        ("integer: true", "integer: true, max_bytes: 9", "age.max_bytes", "of type json"),
        # missing values
        ("scale: nominal}\n  seen", "scale: nominal, missing: mean}\n  seen", "sex.missing", "use missing: group"),
        # paths
        ("integer: true", "from: 'visits[0].code'", "age.from", "an item of a list; read the whole list"),
        ("integer: true", "from: visits.0.code", "age.from", "an item of a list; read the whole list"),
        ("integer: true", "from: value.visits.-", "", ""),
        ("integer: true", "from: patient..age", "age.from", "empty name"),
        ("integer: true", "from: .age", "age.from", "empty name"),
        ("integer: true", "from: key.age", "age.from", "start with value.key"),
        ("integer: true", f"from: {'a.' * 20}a", "age.from", "more than 20 names"),
        ("integer: true", "from: value.sex", "sex.from", "is read by attributes.age already"),
        ("integer: true", "from: sex.age", "sex.from", "an object around the field of attributes.age"),
        ("type: string", "type: json, from: value.age", "note.from", "is read by attributes.age already"),
        ("type: string", "type: json, from: value.age.x", "note.from", "inside its field"),
        ("integer: true", "to: sex", "sex.to", "is the field of attributes.age already"),
        ("integer: true", "to: sex.age", "sex.to", "an object around the field of attributes.age"),
        ("type: string", "to: age.note", "note.to", "inside its field"),
        ("integer: true", "to: ages.0", "age.to", "lists are not written"),
        ("integer: true", "to: ''", "age.to", "empty name"),
    ],
)
def test_a_fault_of_an_attribute_is_reported_at_its_field(
    old: str, new: str, path: str, words: str, tmp_path: Path
) -> None:
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    if not path:
        assert load(text, tmp_path).attributes[0].path == ("visits", "-")
        return
    found = faults(text, tmp_path)
    assert list(found) == [f"attributes.{path}"]
    ((line, message),) = found.values()
    assert line == LINES[path.split(".", maxsplit=1)[0]]
    assert words in message


def test_missing_numbers_and_times_of_a_stream_need_no_bounds(tmp_path: Path) -> None:
    text = GOOD.replace("bounds: [0, 110], integer: true", "integer: true, missing: group")
    policy = load(text.replace(", bounds: [2020-01-01, 2021-01-01]", ", missing: mean"), tmp_path)
    assert [(a.name, a.bounds, a.missing) for a in policy.clustered if a.name in {"age", "seen"}] == [
        ("age", None, "group"),
        ("seen", None, "mean"),
    ]


def test_two_fields_of_the_output_are_not_one_column(tmp_path: Path) -> None:
    text = GOOD.replace("type: string", "to: a.b").replace("subject:", "  a.b: {role: confidential}\nsubject:")
    assert faults(text, tmp_path) == {
        "attributes.a.b.to": (9, "is the column of attributes.note in CSV, too; give it another field")
    }


@pytest.mark.parametrize(
    ("old", "new", "path", "words"),
    [
        (BY, "{}", "steering.by", "add {attribute: ward, weight: W} to steering.by"),
        (f"steering: {BY}\n", "", "attributes.ward.role", "add {attribute: ward, weight: W} to steering.by"),
        ("weight: 0.2", "weight: .inf", "steering.by.0.weight", "finite"),
        (", weight: 0.2", "", "steering.by.0.weight", "missing"),
        ("attribute: ward, ", "weigh: 1, attribute: ward, ", "steering.by.0.weigh", "unknown field"),
        ("0.2}]", "0.2}, {attribute: absent, weight: 1}]", "steering.by.1.attribute", "not declared"),
        ("0.2}]", "0.2}, {attribute: age, weight: 1}]", "steering.by.1.attribute", "must have role: steering"),
        ("0.2}]", "0.2}, {weight: 1}]", "steering.by.1.attribute", "missing"),
        ("stream:", "deletes: drop\nstream:", "deletes", "only with unwrap: debezium"),
        ("stream:", "unwrap: connect\ndeletes: drop\nstream:", "deletes", "only with unwrap: debezium"),
        (
            "stream:",
            "missing_values: ['', ' ?']\nstream:",
            "missing_values",
            "has a text with blanks or tabs at its ends",
        ),
        ("stream:", "missing_values: ['?\t']\nstream:", "missing_values", "has a text with blanks or tabs at its ends"),
        ("stream:", 'missing_values: ["\\ud800"]\nstream:', "missing_values", "surrogate"),
    ],
)
def test_a_fault_of_a_section_is_reported_at_its_field(
    old: str, new: str, path: str, words: str, tmp_path: Path
) -> None:
    assert old in GOOD
    found = faults(GOOD.replace(old, new, 1), tmp_path)
    assert list(found) == [path]
    assert words in found[path][1]


SCALES = "must be numeric, ordinal, nominal or time; did you mean"


@pytest.mark.parametrize(
    ("old", "new", "path", "message"),
    [
        ("nominal, tax", "nominl, missing: group, publish: median, tax", "job.scale", f"{SCALES} nominal?"),
        ("time, bounds", "tiem, resolution: month, bounds", "seen.scale", f"{SCALES} time?"),
        ("ordinal", "ordnal", "school.scale", f"{SCALES} ordinal?"),
        (
            "[2020-01-01, 2021-01-01]",
            "[0, 9], unit: msec",
            "seen.unit",
            "must be s, ms, us, ns, days or years; did you mean ms?",
        ),
    ],
)
def test_a_misspelt_scale_or_unit_gives_no_other_faults(
    old: str, new: str, path: str, message: str, tmp_path: Path
) -> None:
    assert old in GOOD
    found = faults(GOOD.replace(old, new, 1), tmp_path)
    assert {key: text for key, (_, text) in found.items()} == {f"attributes.{path}": message}


def test_an_attribute_that_is_listed_twice_is_reported_at_both_places(tmp_path: Path) -> None:
    found = faults(GOOD.replace("0.2}]", "0.2}, {attribute: ward, weight: 1}]"), tmp_path)
    assert {path: message for path, (_, message) in found.items()} == {
        "steering.by.0.attribute": "is listed twice; remove one",
        "steering.by.1.attribute": "is listed twice; remove one",
    }


@pytest.mark.parametrize(
    ("topics", "path", "words"),
    [
        ("topics: []", "kafka.topics", "names no topic"),
        ("topics: [{input: a}]", "kafka.topics.0.output", "missing; every input has an output"),
        ("topics: [{input: a, output: b}, {output: c}]", "kafka.topics.1.input", "missing"),
        ("topics: [{input: a, output: b}, {input: a, output: c}]", "kafka.topics.1.input", "kafka.topics.0.input"),
        ("topics: [{input: a, output: b}, {input: c, output: b}]", "kafka.topics.1.output", "kafka.topics.0.output"),
        ("topics: [{input: a, output: b}, {input: b, output: c}]", "kafka.topics.1.input", "kafka.topics.0.output"),
        ("evidence: b, topics: [{input: a, output: b}]", "kafka.topics.0.output", "the same topic as kafka.evidence"),
        ("topics: [{input: 'a b', output: b}]", "kafka.topics.0.input", "no name that Kafka allows"),
        ("input: x, topics: [{input: a, output: b}]", "kafka.input", "contradicts kafka.topics"),
        ("output: x, topics: [{input: a, output: b}]", "kafka.output", "contradicts kafka.topics"),
        ("topics: [{input: a, outptu: b}]", "kafka.topics.0.outptu", "did you mean output?"),
        ("topics: {input: a}", "kafka.topics", "must be a list"),
    ],
)
def test_a_fault_of_several_topics_is_reported_at_its_entry(topics: str, path: str, words: str, tmp_path: Path) -> None:
    found = faults(GOOD + f"kafka: {{{topics}}}\n", tmp_path)
    assert list(found) == [path]
    assert found[path][0] == 13
    assert words in found[path][1]
