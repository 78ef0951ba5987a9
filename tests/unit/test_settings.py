"""Kafka settings: section kafka of the policy, overridden by environment variables."""

from __future__ import annotations

import pytest
from shoal.errors import PolicyError
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.settings import kafka_settings

pytestmark = pytest.mark.unit

KAFKA = {"bootstrap_servers": "a:1", "input": "in", "output": "out", "group": "g"}


def policy(kafka: dict[str, str] | None) -> Policy:
    return Policy.from_document(
        Document.model_validate(
            {
                "attributes": {"x": {"role": "quasi_identifier", "bounds": [0, 1]}},
                "subject": "every_record",
                "privacy": {"k": 2},
                "kafka": kafka,
            }
        )
    )


def test_the_environment_overrides_the_policy() -> None:
    settings = kafka_settings(
        policy(KAFKA),
        {"SHOAL_KAFKA__BOOTSTRAP_SERVERS": "b:2", "SHOAL_KAFKA__SESSION_TIMEOUT_MS": "6000", "OTHER": "x"},
    )
    assert settings.bootstrap_servers == "b:2"
    assert settings.session_timeout_ms == 6000
    assert settings.input == "in"


def test_every_setting_can_come_from_the_environment() -> None:
    named = {f"SHOAL_KAFKA__{name.upper()}": value for name, value in KAFKA.items()}
    assert kafka_settings(policy(None), named).group == "g"


def test_all_missing_settings_are_reported_at_once() -> None:
    with pytest.raises(PolicyError) as caught:
        kafka_settings(policy({"input": "in"}), {})
    assert {fault.path[-1] for fault in caught.value.faults} == {"bootstrap_servers", "output", "group"}
    assert "SHOAL_KAFKA__GROUP" in str(caught.value)


def test_an_invalid_variable_is_named_without_its_value() -> None:
    with pytest.raises(PolicyError) as caught:
        kafka_settings(
            policy(KAFKA), {"SHOAL_KAFKA__SESSION_TIMEOUT_MS": "canary-7", "SHOAL_KAFKA__PASWORD": "canary-8"}
        )
    text = str(caught.value)
    assert "SHOAL_KAFKA__SESSION_TIMEOUT_MS" in text
    assert "SHOAL_KAFKA__PASWORD" in text
    assert "canary" not in text


def test_topics_from_the_environment_must_differ() -> None:
    with pytest.raises(PolicyError, match="twice"):
        kafka_settings(policy(KAFKA), {"SHOAL_KAFKA__EVIDENCE": "out"})


def test_a_password_from_the_environment_is_not_shown() -> None:
    settings = kafka_settings(policy(KAFKA), {"SHOAL_KAFKA__SASL_PASSWORD": "hunter2"})
    assert settings.sasl_password is not None
    assert settings.sasl_password.get_secret_value() == "hunter2"
    assert "hunter2" not in repr(settings)


def test_a_key_in_a_policy_is_refused() -> None:
    for name in ("metadata_key", "metadata_key_file"):
        with pytest.raises(PolicyError) as caught:
            policy(KAFKA | {name: "ab" * 32})
        assert f"kafka.{name}: " in str(caught.value)
        assert "into a file" in str(caught.value)
        assert "abab" not in str(caught.value)


def test_a_key_from_the_environment_is_not_shown() -> None:
    given = policy(KAFKA | {"metadata_key_file": "/etc/key"})
    settings = kafka_settings(given, {"SHOAL_KAFKA__METADATA_KEY": "ab" * 32})
    assert settings.metadata_key is not None
    assert settings.metadata_key.get_secret_value() == "ab" * 32
    assert "abab" not in repr(settings)
    assert given.resolved()["kafka"]["metadata_key_file"] == "/etc/key"
