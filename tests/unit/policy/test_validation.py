"""Rules that involve more than one field of a policy."""

from __future__ import annotations

from pathlib import Path

import pytest
from shoal.errors import PolicyError
from shoal.policy import Policy
from support.policy_files import GOOD, faults, load

pytestmark = pytest.mark.unit

FINGERPRINT = "3cdb1620e6121b08c006c600ed25575a999dca5dbb123f94231ca99ba682e27a"
"""Of the good policy, which leaves the key ``normalize`` at its default."""


def test_per_subject_needs_a_subject(tmp_path: Path) -> None:
    text = GOOD.replace(", subject: true", "").replace("{k: 10}", "{k: 10, per_subject: {max: 1, window: 9}}")
    found = faults(text + "subject: every_record\n", tmp_path)
    assert list(found) == ["privacy.per_subject"]
    assert "every_record" in found["privacy.per_subject"][1]


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


def test_a_table_may_name_the_default_scaling(tmp_path: Path) -> None:
    table = GOOD.replace("stream: {delta: 100}\n", "")
    named = load(table + "steering: {scaling: spreads}\n", tmp_path)
    assert named.fingerprint == load(table, tmp_path).fingerprint


def test_a_policy_without_quasi_identifiers_is_refused(tmp_path: Path) -> None:
    lines = [line for line in GOOD.splitlines() if "quasi" not in line]
    assert "nothing to make" in faults("\n".join(lines), tmp_path)["attributes"][1]


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
def test_numbers_and_names_out_of_range_are_refused(old: str, new: str, tmp_path: Path) -> None:
    assert faults(GOOD.replace(old, new), tmp_path)


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


def test_normalize_of_another_attribute_than_the_subject_is_a_fault(tmp_path: Path) -> None:
    text = GOOD.replace("role: confidential", "role: confidential, normalize: [nfkc]")
    ((path, (_, message)),) = faults(text, tmp_path).items()
    assert path.endswith(".normalize")
    assert "only for the subject" in message


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
        ("a:1;b:2", "separate several addresses by commas"),
        ("a:1,b:2/x", "address 2 of 2 holds a blank, semicolon, bar or slash"),
        ("2001:db8::1", "has no port"),
        (":9092", "has no host"),
        ("kafka:no", "a number from 1 to 65535"),
        ("kafka:70000", "the address has an invalid port; after the colon give a number from 1 to 65535"),
        ("PLAINTEXT://kafka:9092", "has a scheme"),
    ],
)
def test_addresses_of_brokers_need_a_host_and_a_port(servers: str, words: str, tmp_path: Path) -> None:
    found = faults(GOOD + f"kafka: {{bootstrap_servers: '{servers}', input: a}}\n", tmp_path)
    assert list(found) == ["kafka.bootstrap_servers"]
    assert found["kafka.bootstrap_servers"][0] == 9
    assert words in found["kafka.bootstrap_servers"][1]


@pytest.mark.parametrize("servers", ["localhost:9092", "a.example:1, b-2.example:65535", "[::1]:9092", "10.0.0.1:9093"])
def test_addresses_with_a_port_are_accepted(servers: str, tmp_path: Path) -> None:
    assert load(GOOD + f"kafka: {{bootstrap_servers: '{servers}'}}\n", tmp_path).kafka is not None


@pytest.mark.parametrize("topic", ["a b", "a/b", "é", ".", "..", "a" * 250, "a:b"])
@pytest.mark.parametrize("field", ["input", "output", "quarantine", "clusters", "evidence"])
def test_names_that_kafka_refuses_for_topics_are_faults(field: str, topic: str, tmp_path: Path) -> None:
    found = faults(GOOD + f"kafka: {{{field}: '{topic}'}}\n", tmp_path)
    assert list(found) == [f"kafka.{field}"]
    assert "no name that Kafka allows for a topic" in found[f"kafka.{field}"][1]


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__share_group_state"])
def test_topics_of_kafka_itself_are_faults(topic: str, tmp_path: Path) -> None:
    found = faults(GOOD + f"kafka: {{input: a, output: {topic}}}\n", tmp_path)
    assert found == {"kafka.output": (9, "is a topic of Kafka itself; name a topic of your own")}


def test_topics_that_kafka_cannot_tell_apart_are_faults(tmp_path: Path) -> None:
    found = faults(GOOD + "kafka: {input: a.b, output: a_b, evidence: a_c, quarantine: a.b}\n", tmp_path)
    assert set(found) == {"kafka.output", "kafka.quarantine"}
    assert "differs from kafka.input in '.' and '_' only" in found["kafka.output"][1]
    assert "is the same topic as kafka.input" in found["kafka.quarantine"][1]
    found = faults(GOOD + "kafka: {input: a, evidence: b, progress_copy: b}\n", tmp_path)
    assert found == {"kafka.progress_copy": (9, "is the same topic as kafka.evidence; give each a topic of its own")}


@pytest.mark.parametrize("field", ["bootstrap_servers", "input", "output", "group", "evidence", "ssl_cafile"])
def test_an_empty_setting_is_reported_with_all_other_faults(field: str, tmp_path: Path) -> None:
    found = faults(GOOD.replace("k: 10", "k: 1") + f"kafka: {{{field}: ''}}\n", tmp_path)
    assert set(found) == {"privacy.k", f"kafka.{field}"}
    assert found[f"kafka.{field}"] == (9, "must not be empty; give a value or remove the field")


def test_every_faulty_address_is_reported(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(GOOD + "kafka: {bootstrap_servers: 'a, b:1, c:x'}\n")
    with pytest.raises(PolicyError) as caught:
        Policy.load(tmp_path / "two.yaml")
    assert [fault.message[:16] for fault in caught.value.faults] == ["address 1 of 3 h", "address 3 of 3 h"]


def test_names_that_kafka_allows_for_topics_are_accepted(tmp_path: Path) -> None:
    names = f"kafka: {{input: A.b_c-9, output: ..., evidence: {'a' * 249}}}\n"
    assert load(GOOD + names, tmp_path).kafka is not None


def test_a_refused_scale_is_never_answered_with_numeric(tmp_path: Path) -> None:
    for scale in ("categorical", "numerical"):
        found = faults(GOOD.replace("scale: numeric", f"scale: {scale}"), tmp_path)
        message = found["attributes.age.scale"][1]
        assert "identifier" in message
        assert "did you mean" not in message
        assert "must be numeric" not in message
