"""Checks of the Kafka settings that need no broker.

`check_names` applies to the policy and to the merged settings of policy and environment. `check_connection` applies to
the merged settings only, because each may hold a part of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from shoal.policy.loader import FieldPath
from shoal.policy.schema import KafkaSection

__all__ = ["TOPIC_FIELDS", "check_connection", "check_names"]

TOPIC_FIELDS = ("input", "output", "quarantine", "clusters", "evidence")
_ENVIRONMENT = "SHOAL_KAFKA__"
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""Names that Kafka allows for topics, besides "." and ".."."""
_MAX_PORT = 65_535


def check_names(settings: KafkaSection) -> Iterator[tuple[FieldPath, str]]:
    """Yield the faults of brokers' addresses and topics' names, as path and message."""
    if settings.bootstrap_servers is not None:
        path = ("kafka", "bootstrap_servers")
        for server in settings.bootstrap_servers.split(","):
            fault = _fault_of_server(server.strip())
            if fault:
                yield path, fault
                break
    for name in TOPIC_FIELDS:
        topic = getattr(settings, name)
        if topic and (topic in {".", ".."} or not _TOPIC.fullmatch(topic)):
            yield (
                ("kafka", name),
                "no name that Kafka allows for a topic; use 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'",
            )


def _fault_of_server(server: str) -> str:
    if "://" in server:
        return "an address has a scheme; give HOST:PORT, and the protocol as kafka.security_protocol"
    host, colon, port = server.rpartition(":")
    if not colon or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        return "an address has no port; give HOST:PORT[,HOST:PORT], for example localhost:9092 or [::1]:9092"
    if not host:
        return "an address has no host; give HOST:PORT[,HOST:PORT], for example localhost:9092"
    if not (port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= _MAX_PORT):
        return f"an address has no valid port; give HOST:PORT with a port from 1 to {_MAX_PORT}"
    return ""


def check_connection(settings: KafkaSection, *, has_secrets: bool) -> Iterator[tuple[FieldPath, str]]:
    """Yield the faults of the security settings, as path and message without a value.

    Parameters
    ----------
    settings : KafkaSection
        Policy and environment together.
    has_secrets : bool
        Whether the environment holds the credentials. `shoal check` may run where it does not.
    """
    yield from _check_unused(settings)
    if has_secrets and settings.security_protocol.startswith("SASL"):
        for name in ("sasl_username", "sasl_password"):
            secret = getattr(settings, name)
            if secret is None or not secret.get_secret_value():
                yield (
                    ("kafka", name),
                    f"missing: {settings.security_protocol} needs it; set it as {_ENVIRONMENT}{name.upper()}",
                )


def _check_unused(settings: KafkaSection) -> Iterator[tuple[FieldPath, str]]:
    """Refuse security settings that the protocol does not use: the client would connect without them.

    PLAINTEXT by name switches all of them off, as for a test against a broker on the same machine.
    """
    protocol, is_named = settings.security_protocol, "security_protocol" in settings.model_fields_set
    if is_named and protocol == "PLAINTEXT":
        return
    used = {"sasl_": protocol.startswith("SASL"), "ssl_": protocol.endswith("SSL")}
    for name in type(settings).model_fields:
        prefix = name.partition("_")[0] + "_"
        if used.get(prefix, True) or getattr(settings, name) is None:
            continue
        protocols = "SASL_SSL (or SASL_PLAINTEXT)" if prefix == "sasl_" else "SSL or SASL_SSL"
        reason = (
            f"with kafka.security_protocol {protocol}"
            if is_named
            else "without kafka.security_protocol: the connection would be plain text"
        )
        yield ("kafka", name), f"has no effect {reason}; set {protocols}"
