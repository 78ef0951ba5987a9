"""Checks of the Kafka settings that need no broker and read no file.

`check_names` applies to the policy and to the merged settings of policy and environment. `check_connection` applies to
the merged settings only, because each may hold a part of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from shoal.policy.loader import FieldPath
from shoal.policy.schema import KafkaSection

__all__ = ["check_connection", "check_names", "missing_credentials"]

_TOPIC_FIELDS = ("input", "output", "quarantine", "clusters", "evidence", "progress_copy")
_ENVIRONMENT = "SHOAL_KAFKA__"
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""Names that Kafka allows for topics, besides "." and ".."."""
_TOPICS_OF_KAFKA = {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
_TOKENS = ("sasl_oauth_token", "sasl_oauth_token_file", "sasl_oauth_command")
"""Sources of an OAuth token, of which one is given."""
_MAX_PORT = 65_535
_SEPARATORS = re.compile(r"[\s;|/]")
"""Characters that separate addresses in lists of other programs; none occurs in an address."""


def check_names(settings: KafkaSection) -> Iterator[tuple[FieldPath, str]]:
    """Yield the faults of brokers' addresses and topics' names, as path and message; empty values are left out."""
    servers = settings.bootstrap_servers.split(",") if settings.bootstrap_servers else []
    for number, server in enumerate(servers, 1):
        if fault := _fault_of_server(server.strip()):
            which = f"address {number} of {len(servers)}" if len(servers) > 1 else "the address"
            yield ("kafka", "bootstrap_servers"), f"{which} {fault}"
    yield from _check_pairs(settings)
    fields: dict[str, str] = {}
    for path, topic in _topics_of(settings):
        if fault := _fault_of_topic(topic, fields):
            yield ("kafka", *path), fault
        fields.setdefault(topic, ".".join(path))


def _topics_of(settings: KafkaSection) -> Iterator[tuple[FieldPath, str]]:
    """Yield every topic that is set, with its field in section ``kafka``."""
    for name in _TOPIC_FIELDS:
        if topic := getattr(settings, name):
            yield (name,), topic
    for index, pair in enumerate(settings.topics or ()):
        for name in ("input", "output"):
            if topic := getattr(pair, name):
                yield ("topics", str(index), name), topic


def _check_pairs(settings: KafkaSection) -> Iterator[tuple[FieldPath, str]]:
    """Check the list of several inputs, each with an output of its own."""
    path = ("kafka", "topics")
    if settings.topics is None:
        return
    if not settings.topics:
        yield path, "names no topic; give at least one {input, output}, or remove it"
    for name in ("input", "output"):
        if getattr(settings, name):
            yield ("kafka", name), "contradicts kafka.topics, which names all inputs and outputs; remove one of the two"
    for index, pair in enumerate(settings.topics):
        for name in ("input", "output"):
            if not getattr(pair, name):
                yield (*path, str(index), name), "missing; every input has an output of its own"


def _fault_of_server(server: str) -> str:
    if not server:
        return "is empty; remove a comma, or give HOST:PORT"
    if "://" in server:
        return "has a scheme; give HOST:PORT, and the protocol as kafka.security_protocol"
    if _SEPARATORS.search(server):
        return "holds a blank, semicolon, bar or slash; give HOST:PORT, and separate several addresses by commas"
    return _fault_of_host_and_port(server)


def _fault_of_host_and_port(server: str) -> str:
    host, colon, port = server.rpartition(":")
    if not colon or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        return "has no port; give HOST:PORT, for example localhost:9092 or [::1]:9092"
    if not host:
        return "has no host; give HOST:PORT, for example localhost:9092"
    if not (port.isascii() and port.isdigit() and len(port) <= len(str(_MAX_PORT)) and 1 <= int(port) <= _MAX_PORT):
        return f"has an invalid port; after the colon give a number from 1 to {_MAX_PORT}"
    return ""


def _fault_of_topic(topic: str, fields: dict[str, str]) -> str:
    """Return what is wrong with a topic; ``fields`` holds the fields of the topics before it."""
    if topic in {".", ".."} or not _TOPIC.fullmatch(topic):
        return "no name that Kafka allows for a topic; use 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'"
    if topic in _TOPICS_OF_KAFKA:
        return "is a topic of Kafka itself; name a topic of your own"
    if topic in fields:
        return f"is the same topic as kafka.{fields[topic]}; give each a topic of its own"
    for other, name in fields.items():
        if topic.replace(".", "_") == other.replace(".", "_"):
            return f"differs from kafka.{name} in '.' and '_' only, which Kafka refuses for two topics; rename one"
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
    yield from _check_alternatives(settings)
    if has_secrets:
        for name in missing_credentials(settings):
            yield (
                ("kafka", name),
                f"missing: {settings.security_protocol} needs it; set it as {_ENVIRONMENT}{name.upper()}",
            )


def missing_credentials(settings: KafkaSection) -> list[str]:
    """Return the names of the SASL credentials that the security protocol needs and that are missing or empty."""
    if not settings.security_protocol.startswith("SASL"):
        return []
    if settings.sasl_mechanism == "OAUTHBEARER":
        return [] if any(getattr(settings, name) for name in _TOKENS) else ["sasl_oauth_token_file"]
    names = ("sasl_username", "sasl_password")
    return [name for name in names if not (getattr(settings, name) or getattr(settings, f"{name}_file"))]


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
    if used["ssl_"] and settings.ssl_certfile is None and settings.ssl_keyfile is not None:
        yield (
            ("kafka", "ssl_keyfile"),
            "has no effect without kafka.ssl_certfile; give the certificate too, or remove it",
        )


def _check_alternatives(settings: KafkaSection) -> Iterator[tuple[FieldPath, str]]:
    """Refuse a secret that is given twice, and credentials that the SASL mechanism does not use."""
    for name in ("sasl_username", "sasl_password", "ssl_password"):
        if getattr(settings, name) and getattr(settings, f"{name}_file"):
            yield ("kafka", f"{name}_file"), f"is given besides kafka.{name}; remove one of the two"
    first, *others = [name for name in _TOKENS if getattr(settings, name)] or [""]
    for name in others:
        yield ("kafka", name), f"is given besides kafka.{first}; remove one of the two"
    command = settings.sasl_oauth_command
    if command is not None and (not command or "" in command):
        yield ("kafka", "sasl_oauth_command"), "must be a list of a program and its arguments, without an empty one"
    if settings.security_protocol.startswith("SASL"):
        yield from _check_mechanism(settings)


def _check_mechanism(settings: KafkaSection) -> Iterator[tuple[FieldPath, str]]:
    """Refuse credentials that the SASL mechanism does not use."""
    mechanism = settings.sasl_mechanism or "PLAIN"
    passwords = ("sasl_username", "sasl_username_file", "sasl_password", "sasl_password_file")
    unused = _TOKENS if mechanism != "OAUTHBEARER" else passwords
    for name in unused:
        if getattr(settings, name):
            yield ("kafka", name), f"has no effect with kafka.sasl_mechanism {mechanism}; remove it"
