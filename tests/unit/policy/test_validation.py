"""Rules that involve more than one field of a policy; sources of attributes and CSV dialects."""

from __future__ import annotations

from pathlib import Path

import pytest
from shoal.policy import Policy
from support.policy_files import GOOD, SOURCES, faults, load, with_sources

pytestmark = pytest.mark.unit

FINGERPRINT = "3cdb1620e6121b08c006c600ed25575a999dca5dbb123f94231ca99ba682e27a"
"""Of the good policy, which leaves the key ``normalize`` at its default."""


def test_per_subject_needs_a_subject(tmp_path: Path) -> None:
    text = GOOD.replace(", subject: true", "").replace("{k: 10}", "{k: 10, per_subject: {max: 1, window: 9}}")
    assert list(faults(text + "subject: every_record\n", tmp_path)) == ["privacy.per_subject"]


def test_all_faults_are_reported_at_once_with_their_lines(tmp_path: Path) -> None:
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
  note: {role: confidential, bounds: [1, 0]}
  typo: {role: confidential, typ: string}
privacy: {k: 1, max_share: 2, l: 1, t: 0.1, max_value_share: 0}
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
        "attributes.job.taxonomy": 7,
        "attributes.free.resolution": 9,
        "attributes.ward.publish_unchanged": 10,
        "attributes.note.bounds": 11,
        "attributes.note.reference": 11,
        "attributes.typo.typ": 12,
        "attributes.typo.reference": 12,
        "privacy.k": 13,
        "privacy.max_share": 13,
        "privacy.l": 13,
        "privacy.max_value_share": 13,
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
        ("{delta: 100}", "{delta: 8}", "stream.delta", "k - 1"),
        ("{delta: 100}", "{}", "stream.delta", "missing"),
        ("bounds: [0, 110]", "bounds: [0, .inf]", "attributes.age.bounds.1", "finite"),
        ("resolution: 500", "resolution: 2000000", "attributes.income.resolution", "wider"),
        ("subject: true", "subject: true, publish_unchanged: true", "attributes.patient.publish_unchanged", "never"),
        ("integer: true", "integer: true, publish_unchanged: true", "attributes.age.publish_unchanged", "never"),
        ("integer: true", "integer: true, type: number", "attributes.age.type", "scale"),
        ("{k: 10}", "{k: 10, per_subject: {max: 2}}", "privacy.per_subject.window", "missing"),
        ("{k: 10}", "{k: 10, per_subject: {window: 2}}", "privacy.per_subject.max", "missing"),
        ("{k: 10}", "{k: 10, per_subject: {max: 9, window: 9}}", "privacy.per_subject.window", "longer"),
        ("{k: 10}", "{k: 10, per_subject: 3}", "privacy.per_subject", "{max: N, window: W}"),
        ("{k: 10}", "{k: 10, min_population: 9}", "privacy.min_population", "2k"),
        ("{k: 10}", "{k: 10, min_population: 101}", "privacy.min_population", "delta"),
        ("stream:", "steering: {position: {}}\nstream:", "steering.position.target_span", "missing"),
        ("stream:", "steering: {position: {target_span: .nan}}\nstream:", "steering.position.target_span", "finite"),
        ("stream: {delta: 100}", "steering: {position: {target_span: 5}}", "steering.position", "no order"),
        ("stream:", "steering: {scaling: ranges}\nstream:", "steering.scaling", "must be spreads or bounds"),
        ("stream: {delta: 100}", "steering: {scaling: bounds}", "steering.scaling", "only for streams"),
        ("fidential", "fidential, normalize: [nfkc]", "attributes.diagnosis.normalize", "only for the subject"),
        ("resolution: 500", "resolution: 1.0e-310", "attributes.income.resolution", ""),
        ("bounds: [0, 110]", "bounds: [0, 1.0e-300]", "attributes.age.bounds", ""),
        ("diagnosis", '"\\ud800"', "attributes.\ud800", ""),
    ],
)
def test_a_single_fault_is_reported_at_its_field(old: str, new: str, path: str, words: str, tmp_path: Path) -> None:
    assert old in GOOD
    found = faults(GOOD.replace(old, new, 1), tmp_path)
    assert list(found) == [path]
    assert words in found[path][1]


def test_distances_are_scaled_by_bounds_only_if_every_number_and_time_has_bounds(tmp_path: Path) -> None:
    without = GOOD.replace("bounds: [0, 110], ", "").replace("bounds: [0, 1000000], ", "")
    seen = "  seen: {role: quasi_identifier, scale: time, resolution: day}\n"
    rank = "  rank: {role: quasi_identifier, scale: ordinal, order: [a, b]}\n"
    sex = "  sex: {role: quasi_identifier, scale: nominal}\n"
    text = without.replace("privacy:", f"{seen}{rank}{sex}privacy:") + "steering: {scaling: bounds}\n"
    message = "missing: steering.scaling is bounds; give bounds: [low, high], or remove scaling"
    expected = {"age": (3, message), "income": (4, message), "seen": (7, message)}
    assert faults(text, tmp_path) == {f"attributes.{name}.bounds": fault for name, fault in expected.items()}
    assert load(text.replace("scaling: bounds", "scaling: spreads"), tmp_path).scaling == "spreads"


def test_the_scaling_is_resolved_and_part_of_the_fingerprint(tmp_path: Path) -> None:
    plain = load(GOOD, tmp_path)
    by_bounds = load(GOOD + "steering: {scaling: bounds}\n", tmp_path)
    assert plain.resolved()["steering"] == {"position": 0.0, "dependence": 0.0, "scaling": "spreads"}
    assert by_bounds.resolved()["steering"]["scaling"] == by_bounds.scaling == "bounds"
    assert by_bounds.fingerprint != plain.fingerprint
    assert load(GOOD + "steering: {scaling: spreads}\n", tmp_path).fingerprint == FINGERPRINT


def test_a_policy_without_quasi_identifiers_is_refused(tmp_path: Path) -> None:
    lines = [line for line in GOOD.splitlines() if "quasi" not in line]
    assert "nothing to make" in faults("\n".join(lines), tmp_path)["attributes"][1]


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ("subject: true, type: integer, normalize: [spaces]", "type string or any"),
        ("subject: true, normalize: [spaces, nfkc, spaces]", "each once"),
        ("subject: true, normalize: [lower]", "nfkc, casefold, spaces or invisible"),
        ("subject: true, normalize: spaces", "list"),
    ],
)
def test_normalize_is_a_list_of_different_steps_for_a_textual_subject(tmp_path: Path, settings: str, word: str) -> None:
    found = faults(GOOD.replace("subject: true", settings), tmp_path)
    ((path, (_, message)),) = found.items()
    assert path.startswith("attributes.patient.normalize")
    assert word in message


def test_normalize_is_in_the_fingerprint_unless_it_is_left_at_its_default(tmp_path: Path) -> None:
    steps = ("", ", normalize: []", ", normalize: [nfkc, casefold]", ", normalize: [casefold, nfkc]")
    prints = [load(GOOD.replace("subject: true", f"subject: true{one}"), tmp_path).fingerprint for one in steps]
    assert prints[0] == prints[1] == FINGERPRINT
    assert prints[2] == prints[3] != prints[0]
    assert load(GOOD, tmp_path).resolved()["attributes"]["patient"] == {
        "role": "identifier",
        "type": "any",
        "subject": True,
    }


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        ("localhost", "has no port"),
        ("a:1,", "address 2 of 2 is empty; remove a comma"),
        ("", "must not be empty"),
        ("a:1,b:2/x", "address 2 of 2 holds a blank, semicolon, bar or slash"),
        ("2001:db8::1", "has no port"),
        (":9092", "has no host"),
        ("kafka:70000", "the address has an invalid port; after the colon give a number from 1 to 65535"),
        ("PLAINTEXT://kafka:9092", "has a scheme"),
    ],
)
def test_addresses_of_brokers_need_a_host_and_a_port(servers: str, words: str, tmp_path: Path) -> None:
    found = faults(GOOD + f"kafka: {{bootstrap_servers: '{servers}', input: a}}\n", tmp_path)
    assert list(found) == ["kafka.bootstrap_servers"]
    assert found["kafka.bootstrap_servers"][0] == 9
    assert words in found["kafka.bootstrap_servers"][1]


@pytest.mark.parametrize("topic", ["a b", "a/b", "é", ".", "..", "a" * 250, "a:b"])
@pytest.mark.parametrize("field", ["input", "output", "quarantine", "clusters", "evidence"])
def test_names_that_kafka_refuses_for_topics_are_faults(field: str, topic: str, tmp_path: Path) -> None:
    found = faults(GOOD + f"kafka: {{{field}: '{topic}'}}\n", tmp_path)
    assert list(found) == [f"kafka.{field}"]
    assert "no name that Kafka allows for a topic" in found[f"kafka.{field}"][1]


def test_topics_that_kafka_cannot_tell_apart_are_faults(tmp_path: Path) -> None:
    found = faults(GOOD + "kafka: {input: a.b, output: a_b, evidence: a_c, quarantine: a.b}\n", tmp_path)
    assert set(found) == {"kafka.output", "kafka.quarantine"}
    assert "differs from kafka.input in '.' and '_' only" in found["kafka.output"][1]
    assert "is the same topic as kafka.input" in found["kafka.quarantine"][1]
    found = faults(GOOD + "kafka: {input: a, output: __consumer_offsets, evidence: b, progress_copy: b}\n", tmp_path)
    assert found == {
        "kafka.output": (9, "is a topic of Kafka itself; name a topic of your own"),
        "kafka.progress_copy": (9, "is the same topic as kafka.evidence; give each a topic of its own"),
    }


@pytest.mark.parametrize("field", ["bootstrap_servers", "input", "output", "group", "evidence", "ssl_cafile"])
def test_an_empty_setting_is_reported_with_all_other_faults(field: str, tmp_path: Path) -> None:
    found = faults(GOOD.replace("k: 10", "k: 1") + f"kafka: {{{field}: ''}}\n", tmp_path)
    assert set(found) == {"privacy.k", f"kafka.{field}"}
    assert found[f"kafka.{field}"] == (9, "must not be empty; give a value or remove the field")


def test_a_refused_scale_is_never_answered_with_numeric(tmp_path: Path) -> None:
    for scale in ("categorical", "numerical"):
        found = faults(GOOD.replace("scale: numeric", f"scale: {scale}"), tmp_path)
        message = found["attributes.age.scale"][1]
        assert "identifier" in message
        assert "did you mean" not in message
        assert "must be numeric" not in message


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
    ((found, (line, message)),) = faults(SOURCES.format(age=age, ward=ward), tmp_path).items()
    assert (found, line) == (path, 3 if "age" in path else 4)
    assert words in message


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


@pytest.mark.parametrize(
    ("text", "path", "line", "words"),
    [
        ("csv: {delimiter: '#'}", "csv.delimiter", 6, ""),
        ("csv: {encoding: utf-7}", "csv.encoding", 6, "cp1252"),
        ("csv:\n  decimal: ','", "csv.decimal", 7, "give another delimiter"),
        ("csv:\n  delimiter: ';'\n  decimal: ','\n  output: {delimiter: ','}", "csv.output.decimal", 9, "delimiter"),
        ("csv: {separator: ';'}", "csv.separator", 6, "unknown field"),
        ("csv: {output: {output: {}}}", "csv.output.output", 6, "not allowed inside csv.output; remove it"),
        ("csv: {output: {multiline: true}}", "csv.output.multiline", 6, "not allowed inside csv.output; remove it"),
    ],
)
def test_invalid_dialects_are_refused(text: str, path: str, line: int, words: str, tmp_path: Path) -> None:
    found = faults(SOURCES.format(age="integer: true", ward="type: any") + text + "\n", tmp_path)
    assert {name: place for name, (place, _) in found.items()} == {path: line}
    assert words in found[path][1]


def test_the_output_inherits_the_dialect_of_the_input(tmp_path: Path) -> None:
    usual = Policy.load(with_sources(tmp_path))
    dialect = "csv: {delimiter: tab, encoding: cp1252, line_end: crlf, output: {encoding: utf-8}}\n"
    policy = load(SOURCES.format(age="integer: true", ward="type: any") + dialect, tmp_path)
    assert (policy.csv.delimiter, policy.csv.encoding, policy.csv.line_end) == ("\t", "cp1252", "\r\n")
    output = policy.csv_output
    assert (output.delimiter, output.encoding, output.line_end) == ("\t", "utf-8", "\r\n")
    assert policy.fingerprint == usual.fingerprint
    assert policy.resolved()["csv"]["output"]["encoding"] == "utf-8"
    assert "csv" not in usual.resolved()


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__share_group_state"])
def test_topics_of_kafka_itself_are_faults(topic: str, tmp_path: Path) -> None:
    found = faults(GOOD + f"kafka: {{input: a, output: {topic}}}\n", tmp_path)
    assert found == {"kafka.output": (9, "is a topic of Kafka itself; name a topic of your own")}
