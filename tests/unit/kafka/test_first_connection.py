"""The first connection to a broker: its time limit, and what is said when it fails."""

from __future__ import annotations

import socket
import ssl
import time
from typing import Any

import pytest
from aiokafka import errors as kafka_errors
from shoal.errors import BrokerError, BrokerUnavailableError
from shoal.kafka import client
from shoal.kafka import client as waiting_log
from shoal.kafka.client import connection_timeout_ms
from shoal.policy import KafkaSection

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("servers", "patience_s", "timeout_ms"),
    [
        ("a:1", 300, 10_000),
        ("a:1", 4, 4000),
        ("a:1,b:1,c:1", 300, 10_000),
        ("a:1,b:1,c:1", 12, 4000),
        ("a:1,b:1,c:1", 2, 1000),
        ("a:1", 0, 1000),
    ],
)
def test_all_addresses_together_take_at_most_the_patience(servers: str, patience_s: float, timeout_ms: int) -> None:
    assert connection_timeout_ms(KafkaSection(bootstrap_servers=servers, patience_s=patience_s)) == timeout_ms


async def test_a_broker_that_swallows_packets_is_given_up_after_the_time_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The operating system accepts connections that no process takes."""
    monkeypatch.setattr(waiting_log, "TELL_EVERY_S", 0.2)
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(
        waiting_log.log, "warning", lambda event, **fields: told.append({"event": event} | fields), raising=False
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        settings = KafkaSection(bootstrap_servers=address, group="g", patience_s=0)
        began_s = time.monotonic()
        with pytest.raises(BrokerUnavailableError, match="cannot be reached"):
            async with client.admin(settings):
                pass
    assert time.monotonic() - began_s < 10
    assert told[0]["event"] == "waiting for the broker"
    assert told[0]["broker"] == address


def refusal(error: BaseException, **settings: Any) -> BrokerError | None:
    return client._refusal_of(error, KafkaSection(**settings), "kafka:9093")


def test_a_mechanism_that_the_broker_does_not_offer_is_final() -> None:
    error = kafka_errors.UnsupportedSaslMechanismError("canary")
    found = refusal(error, security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-256")
    assert type(found) is BrokerError
    assert str(found) == "the broker at kafka:9093 does not take SCRAM-SHA-256: set another kafka.sasl_mechanism"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "connection to kafka:9093: check that this port is one for kafka.security_protocol PLAINTEXT"),
        (
            {"security_protocol": "SSL"},
            (
                "TLS connection to kafka:9093: check that this port is one for kafka.security_protocol SSL, and "
                "whether it requires a client certificate, kafka.ssl_certfile"
            ),
        ),
    ],
    ids=["plain text", "TLS"],
)
def test_a_connection_that_is_closed_names_protocol_and_port(settings: dict[str, str], words: str) -> None:
    found = refusal(kafka_errors.KafkaConnectionError("canary"), **settings)
    assert isinstance(found, BrokerUnavailableError)
    assert str(found) == f"the broker closed the {words}"


def test_an_address_without_a_broker_says_nothing_about_the_settings() -> None:
    assert refusal(ConnectionRefusedError()) is None


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (10, "renew the certificate of the broker, or of the authority that signed it, and check this machine's clock"),
        (20, "check kafka.ssl_cafile, and that the certificate names the host in kafka.bootstrap_servers"),
    ],
)
def test_the_remedy_for_a_certificate_depends_on_what_is_wrong(code: int, remedy: str) -> None:
    error = ssl.SSLCertVerificationError()
    error.verify_code, error.verify_message = code, "words of OpenSSL"
    assert str(refusal(error)) == f"the certificate of the broker is not trusted (words of OpenSSL): {remedy}"
