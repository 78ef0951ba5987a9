"""The schema of section ``kafka``: connection, topics, consumer group and timings."""

from __future__ import annotations

from typing import Literal

from pydantic import SecretStr

from shoal.policy.section import Number, Section, key

__all__ = ["KafkaSection", "TopicPairSection"]

_CONVERTED = {"strict": False}
"""A text becomes a `SecretStr`."""


class TopicPairSection(Section):
    """``kafka.topics``: an input topic and its output topic."""

    input: str | None = key("An input topic.", required=True, example="visits.north")
    output: str | None = key("The output topic of this input.", required=True, example="visits.north.anonymous")


class KafkaSection(Section):
    """``kafka``: connection, topics, consumer group and timings. An environment variable overrides each field."""

    bootstrap_servers: str | None = key(
        "Addresses of brokers, `HOST:PORT`, separated by commas.",
        shown="required",
        example="kafka-1:9093,kafka-2:9093",
    )
    input: str | None = key(
        "The input topic. No two topics may be equal, or differ in `.` and `_` only.",
        shown="required, or `topics`",
        example="visits",
    )
    output: str | None = key(
        "The output topic. It has at least as many partitions as the input.",
        shown="required, or `topics`",
        example="visits.anonymous",
    )
    group: str | None = key("The consumer group.", shown="required", example="shoal-visits")
    quarantine: str | None = key(
        "Topic for references (topic, partition, offset, reason) to all records that are not published, also "
        "suppressed ones. This and the other side topics may have fewer partitions than the input.",
        example="visits.quarantine",
    )
    clusters: str | None = key(
        "Topic for centroid, size and number of subjects of each cluster.", example="visits.clusters"
    )
    evidence: str | None = key(
        "Topic for the offsets of each cluster's members, for `shoal verify`. Protect it like the input.",
        example="visits.evidence",
    )
    progress_copy: str | None = key(
        "Private compacted topic that holds [a copy of the progress](operate.md#copy-of-the-progress). A start takes "
        "it if the group has lost its own. Protect it like the input.",
        example="visits.progress",
    )
    topics: list[TopicPairSection] | None = key(
        "Several inputs, each with an output of its own, in place of `input` and `output` "
        "([several topics](operate.md#several-topics)). In the environment it is JSON.",
        values="list of `{input: TOPIC, output: TOPIC}`",
        example=[{"input": "visits.north", "output": "visits.north.anonymous"}],
    )
    instance_id: str | None = key(
        "Static membership (`group.instance.id`), different for each worker. A restart within the session timeout then "
        "causes no rebalance.",
        example="shoal-0",
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = key(
        "How the broker's listener is secured. Required with any `sasl_*` or `ssl_*` setting. `PLAINTEXT` by name "
        "switches all of them off, as for a test against a local broker; the other protocols refuse those that they do "
        "not use.",
        default="PLAINTEXT",
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = key(
        "How the worker authenticates itself. `PLAIN` sends the password as it is, so use it with `SASL_SSL` only.",
        shown="`PLAIN`",
        example="SCRAM-SHA-512",
    )
    sasl_username: SecretStr | None = key("User name. Required for SASL with a password.", options=_CONVERTED)
    sasl_username_file: str | None = key(
        "File that holds the user name instead.", values="file", example="/run/secrets/username"
    )
    sasl_password: SecretStr | None = key(
        "Password. Required for SASL with a password. Put it into the environment or a file.", options=_CONVERTED
    )
    sasl_password_file: str | None = key(
        "File that holds the password instead.", values="file", example="/run/secrets/password"
    )
    sasl_oauth_token: SecretStr | None = key(
        "An OAuth token that stays the same, for short runs: after it has expired, no connection is made. Put it into "
        "the environment. This, the file or the command is required for `OAUTHBEARER`.",
        options=_CONVERTED,
    )
    sasl_oauth_token_file: str | None = key(
        "File with an OAuth token, read for each connection.",
        values="file",
        example="/run/secrets/token",
    )
    sasl_oauth_command: list[str] | None = key(
        "Program and arguments that print an OAuth token, and nothing else. In the environment it is JSON.",
        values="list of texts",
        example=["/usr/local/bin/token", "--audience", "kafka"],
        options={"repr": False},
    )
    ssl_cafile: str | None = key(
        "File of the certificates that are trusted (PEM).",
        shown="the system's",
        values="file",
        example="/etc/shoal/ca.pem",
    )
    ssl_certfile: str | None = key(
        "Client certificate (PEM), if the broker wants one.", values="file", example="/etc/shoal/client.pem"
    )
    ssl_keyfile: str | None = key(
        "Private key of the client certificate (PEM).",
        shown="in `ssl_certfile`",
        values="file",
        example="/etc/shoal/client.key",
    )
    ssl_password: SecretStr | None = key("Password of an encrypted private key.", options=_CONVERTED)
    ssl_password_file: str | None = key(
        "File that holds this password instead.", values="file", example="/run/secrets/key-password"
    )
    metadata_key: SecretStr | None = key(
        "The keys of the offset metadata themselves, in place of their file. Only from the environment: a policy must "
        "not contain a key.",
        only_environment=True,
        options=_CONVERTED,
    )
    metadata_key_file: str | None = key(
        "File of keys that encrypt the offset metadata ([keys](operate.md#keys)).",
        values="file",
        example="metadata.key",
    )
    commit_interval_ms: int = key(
        "Time between the transactions of a partition.", default=200, options={"ge": 1, "le": 60_000}
    )
    session_timeout_ms: int = key(
        "Session timeout of the consumer group: how long the partitions of a killed worker wait for the next one.",
        default=10_000,
        options={"ge": 1_000},
    )
    transaction_timeout_ms: int = key(
        "Transaction timeout. The broker's `transaction.max.timeout.ms` must allow it.",
        default=60_000,
        options={"ge": 1_000},
    )
    patience_s: Number = key(
        "How long to try again while the broker cannot be reached, or lets no transactions begin. Then the worker ends "
        "with exit code 3. A drain waits as long for a partition whose leader is away, or that cannot be opened.",
        default=300,
        options={"ge": 0},
    )
    max_record_bytes: int = key(
        "Longer records are `too_large`. This holds for files, too.", default=900_000, options={"ge": 100}
    )
