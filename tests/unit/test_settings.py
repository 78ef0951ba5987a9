"""Kafka settings: section kafka of the policy, overridden by environment variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from shoal.errors import PolicyError
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.settings import kafka_settings

pytestmark = pytest.mark.unit

KAFKA = {"bootstrap_servers": "a:1", "input": "in", "output": "out", "group": "g"}


def policy_file(folder: Path, kafka: dict[str, str]) -> Policy:
    """Load a policy with the section in lines 4 and after."""
    path = folder / "visits.yaml"
    lines = ["attributes: {x: {role: quasi_identifier, bounds: [0, 1]}}", "subject: every_record", "privacy: {k: 2}"]
    path.write_text("\n".join([*lines, "kafka:", *(f"  {name}: {value}" for name, value in kafka.items())]))
    return Policy.load(path)


def policy(kafka: dict[str, Any] | None) -> Policy:
    attributes = {"x": {"role": "quasi_identifier", "bounds": [0, 1]}}
    document = {"attributes": attributes, "subject": "every_record", "privacy": {"k": 2}, "kafka": kafka}
    return Policy.from_document(Document.model_validate(document))


def faults_of(
    kafka: dict[str, Any] | None, environment: dict[str, str], *, has_secrets: bool = True, no_topics: str = ""
) -> str:
    """Return why settings are refused; no value is in the text."""
    with pytest.raises(PolicyError) as caught:
        kafka_settings(policy(kafka), environment, has_secrets=has_secrets, no_topics=no_topics)
    assert "canary" not in str(caught.value)
    return str(caught.value)


def test_the_environment_overrides_the_policy_and_can_give_every_setting() -> None:
    named = {"SHOAL_KAFKA__BOOTSTRAP_SERVERS": "b:2", "SHOAL_KAFKA__SESSION_TIMEOUT_MS": "6000", "OTHER": "x"}
    settings = kafka_settings(policy(KAFKA), named)
    assert (settings.bootstrap_servers, settings.session_timeout_ms, settings.input) == ("b:2", 6000, "in")
    named = {f"SHOAL_KAFKA__{name.upper()}": value for name, value in KAFKA.items()}
    assert kafka_settings(policy(None), named).group == "g"


def test_all_missing_settings_are_reported_at_once() -> None:
    told = faults_of({"input": "in"}, {})
    assert told.startswith("settings: 3 faults\n")
    for name in ("bootstrap_servers", "output", "group"):
        assert f"kafka.{name}: missing; set it in the policy or as SHOAL_KAFKA__{name.upper()}" in told


TOPICS = {
    "bootstrap_servers": "a:1",
    "group": "g",
    "topics": [{"input": "a", "output": "a.k"}, {"input": "b", "output": "b.k"}],
}


def test_topics_from_the_environment_are_json() -> None:
    given = policy({"bootstrap_servers": "a:1", "group": "g"})
    settings = kafka_settings(given, {"SHOAL_KAFKA__TOPICS": '[{"input":"a","output":"b"}]'})
    assert [(pair.input, pair.output) for pair in settings.topics or []] == [("a", "b")]
    assert (settings.input, settings.output) == (None, None), "not required beside topics"
    later = {"SHOAL_KAFKA__TOPICS": '[{"input":"c","output":"d"}]'}
    assert [pair.input for pair in kafka_settings(policy(TOPICS), later).topics or []] == ["c"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("canary", 'SHOAL_KAFKA__TOPICS: must be a list in JSON: [{"input": "TOPIC", "output": "TOPIC"}]'),
        ('["canary"]', "SHOAL_KAFKA__TOPICS.0: must be a mapping"),
        ('[{"input":"a","ouput":"canary"}]', "SHOAL_KAFKA__TOPICS.0.ouput: unknown field; did you mean output?"),
    ],
)
def test_faulty_topics_from_the_environment_are_the_only_fault(text: str, fault: str) -> None:
    told = faults_of({"bootstrap_servers": "a:1", "group": "g"}, {"SHOAL_KAFKA__TOPICS": text})
    assert told == f"environment: 1 fault\n  {fault}"


def test_topics_are_refused_where_one_input_is_read() -> None:
    for given, environment in ((TOPICS, {}), (KAFKA, {"SHOAL_KAFKA__TOPICS": '[{"input":"a","output":"b"}]'})):
        assert "one is read" in faults_of(given, environment, no_topics="one is read")


def test_a_key_or_a_secret_that_only_the_environment_may_hold_is_refused_in_a_policy() -> None:
    for name in ("metadata_key", "metadata_key_file", "ssl_password", "sasl_oauth_token"):
        with pytest.raises(PolicyError) as caught:
            policy(KAFKA | {"security_protocol": "SASL_SSL", name: "ab" * 32})
        assert f"kafka.{name}: " in str(caught.value)
        assert "into a file" in str(caught.value)
        assert "abab" not in str(caught.value)


def test_secrets_from_the_environment_are_not_shown() -> None:
    given = policy(KAFKA | {"security_protocol": "SASL_SSL", "sasl_username": "u", "metadata_key_file": "/etc/key"})
    secrets = {"SHOAL_KAFKA__SASL_PASSWORD": "hunter2", "SHOAL_KAFKA__METADATA_KEY": "ab" * 32}
    settings = kafka_settings(given, secrets)
    assert settings.sasl_password is not None
    assert settings.metadata_key is not None
    found = settings.sasl_password.get_secret_value(), settings.metadata_key.get_secret_value()
    assert found == ("hunter2", "ab" * 32)
    assert "hunter2" not in repr(settings)
    assert "abab" not in repr(settings)
    assert given.resolved()["kafka"]["metadata_key_file"] == "/etc/key"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("sasl_username", "set SASL_SSL (or SASL_PLAINTEXT)"),
        ("sasl_password", "set SASL_SSL (or SASL_PLAINTEXT)"),
        ("ssl_cafile", "set SSL or SASL_SSL"),
        ("ssl_password", "set SSL or SASL_SSL"),
    ],
)
@pytest.mark.parametrize("has_secrets", [True, False])
def test_security_settings_without_a_protocol_are_refused(name: str, remedy: str, *, has_secrets: bool) -> None:
    given: list[tuple[dict[str, str], dict[str, str]]] = [(KAFKA, {f"SHOAL_KAFKA__{name.upper()}": "canary"})]
    if name != "ssl_password":  # only the environment may hold it
        given.append((KAFKA | {name: "canary"}, {}))
    for kafka, environment in given:
        told = faults_of(kafka, environment, has_secrets=has_secrets)
        place = f"SHOAL_KAFKA__{name.upper()}" if environment else f"kafka.{name}"
        assert f"{place}: has no effect without kafka.security_protocol" in told
        assert remedy in told
    named = {"SHOAL_KAFKA__SECURITY_PROTOCOL": "PLAINTEXT"}
    for kafka, environment in given:
        assert kafka_settings(policy(kafka), environment | named).security_protocol == "PLAINTEXT"


def test_sasl_without_credentials_names_the_fields() -> None:
    told = faults_of(KAFKA | {"security_protocol": "SASL_SSL"}, {})
    for name in ("sasl_username", "sasl_password"):
        assert f"kafka.{name}: missing: SASL_SSL needs it; set it as SHOAL_KAFKA__{name.upper()}" in told


def test_faults_name_the_variable_or_the_file_and_line(tmp_path: Path) -> None:
    given = policy_file(tmp_path, {"bootstrap_servers": "a:1", "input": "in", "ssl_cafile": "canary", "output": "out"})
    variables = {"SHOAL_KAFKA__PATIENCE_S": "canary", "SHOAL_KAFKA__OUTPUT": "in", "SHOAL_KAFKA__GROUP": ""}
    with pytest.raises(PolicyError) as caught:
        kafka_settings(given, variables)
    first, *others = str(caught.value).splitlines()
    assert first == f"{tmp_path / 'visits.yaml'}: 4 faults"
    assert sorted(line.strip().partition(":")[0] for line in others) == [
        "SHOAL_KAFKA__GROUP",
        "SHOAL_KAFKA__OUTPUT",
        "SHOAL_KAFKA__PATIENCE_S",
        "line 7",
    ]
    assert "line 7: kafka.ssl_cafile: has no effect without" in str(caught.value)
    assert "SHOAL_KAFKA__GROUP: is empty" in str(caught.value)
    assert "canary" not in str(caught.value)
    with pytest.raises(PolicyError, match=r"line 4: kafka\.output: missing; set it in the policy or as"):
        kafka_settings(policy_file(tmp_path, {"bootstrap_servers": "a:1", "input": "in", "group": "g"}), {})


@pytest.mark.parametrize("name", ["SECURITY_PROTOCOL", "SASL_MECHANISM", "QUARANTINE", "PATIENCE_S", "SASL_USERNAME"])
@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_variable_is_the_only_fault(name: str, text: str) -> None:
    secured = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", "ssl_cafile": "ca.pem"}
    variables = {"SHOAL_KAFKA__SASL_PASSWORD": "canary", "SHOAL_KAFKA__SASL_USERNAME": "u"}
    told = faults_of(KAFKA | secured, variables | {f"SHOAL_KAFKA__{name}": text})
    assert told == f"environment: 1 fault\n  SHOAL_KAFKA__{name}: is empty; give a value, or unset the variable"


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (
            {"sasl_password": "canary", "sasl_password_file": "f", "sasl_username": "u"},
            "kafka.sasl_password_file: is given besides kafka.sasl_password; remove one of the two",
        ),
        (
            {"sasl_username": "u", "sasl_password": "p", "sasl_oauth_token_file": "f"},
            "kafka.sasl_oauth_token_file: has no effect with kafka.sasl_mechanism PLAIN; remove it",
        ),
        (
            {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_file": "f", "sasl_password_file": "p"},
            "kafka.sasl_password_file: has no effect with kafka.sasl_mechanism OAUTHBEARER; remove it",
        ),
        (
            {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_file": "f", "sasl_oauth_command": ["x"]},
            "kafka.sasl_oauth_command: is given besides kafka.sasl_oauth_token_file; remove one of the two",
        ),
        (
            {"sasl_username": "u", "sasl_password": "p", "sasl_oauth_token": "canary"},
            "SHOAL_KAFKA__SASL_OAUTH_TOKEN: has no effect with kafka.sasl_mechanism PLAIN; remove it",
        ),
        ({"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_command": []}, "kafka.sasl_oauth_command: must be a list of a"),
        ({"sasl_mechanism": "OAUTHBEARER"}, "kafka.sasl_oauth_token_file: missing: SASL_SSL needs it; set it as"),
        (
            {"security_protocol": "SASL_PLAINTEXT", "ssl_cafile": "canary"},
            "kafka.ssl_cafile: has no effect with kafka.security_protocol SASL_PLAINTEXT; set ",
        ),
        ({"security_protocol": "SSL", "sasl_username": "canary"}, "kafka.sasl_username: has no effect with"),
        ({"security_protocol": "SSL", "ssl_keyfile": "canary"}, "kafka.ssl_keyfile: has no effect without"),
    ],
)
def test_security_settings_that_contradict_each_other_are_refused(given: dict[str, Any], fault: str) -> None:
    kafka = {name: value for name, value in given.items() if name != "sasl_oauth_token"}
    secret = {"SHOAL_KAFKA__SASL_OAUTH_TOKEN": given["sasl_oauth_token"]} if kafka != given else {}
    assert fault in faults_of(KAFKA | {"security_protocol": "SASL_SSL"} | kafka, secret)


@pytest.mark.parametrize(
    ("variables", "faults"),
    [
        (
            {"SESSION_TIMEOUT_MS": "canary-7", "PASWORD": "canary-8"},
            ["SESSION_TIMEOUT_MS: must be an integer", "PASWORD: unknown field"],
        ),
        ({"EVIDENCE": "out"}, ["EVIDENCE: is the same topic as kafka.output"]),
        ({"BOOTSTRAP_SERVERS": "canary", "OUTPUT": "my canary"}, ["BOOTSTRAP_SERVERS: ", "OUTPUT: "]),
    ],
)
def test_each_faulty_variable_is_named_without_its_value(variables: dict[str, str], faults: list[str]) -> None:
    told = faults_of(KAFKA, {f"SHOAL_KAFKA__{name}": value for name, value in variables.items()})
    first, *lines = sorted(told.splitlines(), key=lambda line: line.startswith(" "))
    assert first == f"environment: {len(faults)} fault{'s' if len(faults) > 1 else ''}"
    assert all(any(line.startswith(f"  SHOAL_KAFKA__{fault}") for line in lines) for fault in faults)


def test_the_command_for_a_token_is_a_list_in_json() -> None:
    named = {"SHOAL_KAFKA__SASL_OAUTH_COMMAND": '["print-token", "--audience", "kafka"]'}
    given = policy(KAFKA | {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"})
    assert kafka_settings(given, named).sasl_oauth_command == ["print-token", "--audience", "kafka"]
    with pytest.raises(PolicyError, match=r'must be a list in JSON: \["PROGRAM", "ARGUMENT"\]'):
        kafka_settings(given, {"SHOAL_KAFKA__SASL_OAUTH_COMMAND": "print-token"})
