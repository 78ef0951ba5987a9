"""TLS, SASL and ACLs: the service at a broker that requires them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.certificates import Authority
from support.kafka_broker import wait_until
from support.running import Stage
from support.secured_broker import (
    CLUSTER,
    TOPIC,
    Grant,
    SecuredBroker,
    granted_stage,
    least_grants,
    secured_broker,
    secured_environment,
    unsigned_token,
)

pytestmark = pytest.mark.usefixtures("kernels")

COMPACTED = {"cleanup.policy": "compact"}
PLAIN = {"SASL_USERNAME": "plain", "SASL_PASSWORD": "plain-secret"}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


async def releases(stage: Stage, environment: dict[str, str], *arguments: str) -> None:
    """Run a worker until all records have an outcome."""
    record_ids = await stage.put(60)
    async with stage.process("--from", "earliest", "--drain", *arguments, **environment) as process:
        assert await process.ended(60) == 0, process.said
    await stage.until_completed(record_ids)


async def given_up(stage: Stage, environment: dict[str, str], within_s: float = 60) -> str:
    """Run a worker that gives up; return the reason."""
    async with stage.process("--from", "earliest", **environment) as process:
        assert await process.ended(within_s) == 3
    assert "canary" not in process.said
    (line,) = process.lines("giving up")
    return str(line["reason"])


# ---------------------------------------------------------------- mechanisms

OAUTH = {"SASL_MECHANISM": "OAUTHBEARER"}
WAYS: dict[str, tuple[str, dict[str, str], str]] = {
    "PLAIN": ("plain", {"SASL_USERNAME": "plain", "SASL_PASSWORD_FILE": "{file}"}, "plain-secret\n"),
    "SCRAM-SHA-256": (
        "scram256",
        {"SASL_MECHANISM": "SCRAM-SHA-256", "SASL_USERNAME": "scram256", "SASL_PASSWORD_FILE": "{file}"},
        "scram-secret-256\n",
    ),
    "SCRAM-SHA-512": (
        "scram512",
        {"SASL_MECHANISM": "SCRAM-SHA-512", "SASL_USERNAME": "scram512", "SASL_PASSWORD_FILE": "{file}"},
        "scram-secret-512\n",
    ),
    "a token in a file": ("of-file", OAUTH | {"SASL_OAUTH_TOKEN_FILE": "{file}"}, "{token}"),
    "a token in a variable": ("of-variable", OAUTH | {"SASL_OAUTH_TOKEN": "{token}"}, ""),
    "a token of a command": (
        "of-command",
        OAUTH | {"SASL_OAUTH_COMMAND": '["{python}", "{file}"]'},
        "print('{token}')",
    ),
}
"""User, environment, and content of the file."""


@pytest.mark.parametrize("way", WAYS)
async def test_a_worker_authenticates_over_tls(secured: SecuredBroker, tmp_path: Path, way: str) -> None:
    user, environment, content = WAYS[way]
    stage = await granted_stage(secured, tmp_path, user)
    words = {"file": str(tmp_path / "secret"), "token": unsigned_token(user), "python": sys.executable}
    (tmp_path / "secret").write_text(content.format(**words))
    given = {name: text.format(**words) for name, text in environment.items()}
    await releases(stage, secured_environment(secured, **given))


@pytest.mark.parametrize("password", ["none", "in a file"])
async def test_a_client_certificate_is_the_user(secured: SecuredBroker, tmp_path: Path, password: str) -> None:
    stage = await Stage.create(secured.plain, tmp_path)
    await stage.renew("copy", 1, COMPACTED)
    user, secret = f"worker-{password[-4:]}", tmp_path / "password"
    await secured.allow(user, least_grants(stage).values())
    certificate, key = secured.authority.issue(user, password=None if password == "none" else "key-secret")  # noqa: S105
    secret.write_text("key-secret\n")
    environment = {"SSL_CERTFILE": str(certificate), "SSL_KEYFILE": str(key)}
    environment |= {} if password == "none" else {"SSL_PASSWORD_FILE": str(secret)}  # noqa: S105
    await releases(stage, secured_environment(secured, "SSL", **environment))


# ---------------------------------------------------------------- what is refused

SECRET = {"SASL_PASSWORD": "canary-of-a-password"}
WRONG: dict[str, tuple[dict[str, str], str]] = {
    "password": (
        {"SASL_USERNAME": "plain"} | SECRET,
        "the broker refused the credentials: check kafka.sasl_username, kafka.sasl_password",
    ),
    "user": (
        {"SASL_MECHANISM": "SCRAM-SHA-256", "SASL_USERNAME": "nobody"} | SECRET,
        "the broker refused the credentials: check kafka.sasl_username, kafka.sasl_password, kafka.sasl_mechanism",
    ),
    "port": (
        PLAIN | {"BOOTSTRAP_SERVERS": "{plain}", "SECURITY_PROTOCOL": "SASL_PLAINTEXT"},
        "the broker takes no SASL at {plain}: check kafka.security_protocol, SASL_PLAINTEXT, and the port",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
async def test_refused_credentials_end_the_worker_at_once(secured: SecuredBroker, tmp_path: Path, kind: str) -> None:
    stage = await granted_stage(secured, tmp_path, "plain")
    environment, words = WRONG[kind]
    given = {name: text.format(plain=secured.plain) for name, text in environment.items()}
    listener = {} if kind == "port" else secured_environment(secured)
    assert await given_up(stage, listener | given, 30) == words.format(plain=secured.plain)


@pytest.mark.parametrize(
    ("protocol", "listener"),
    [("PLAINTEXT", "SSL"), ("PLAINTEXT", "SASL_PLAINTEXT"), ("SSL", "PLAINTEXT"), ("SSL", "SASL_SSL")],
)
async def test_a_port_of_another_protocol_is_named_with_the_setting(
    secured: SecuredBroker, tmp_path: Path, protocol: str, listener: str
) -> None:
    stage = await granted_stage(secured, tmp_path, "plain")
    given = {"BOOTSTRAP_SERVERS": secured.addresses[listener], "SECURITY_PROTOCOL": protocol, "PATIENCE_S": "1"}
    given |= {"SSL_CAFILE": str(secured.authority.file)} if protocol == "SSL" else {}
    reason = await given_up(stage, given)
    assert "kafka.security_protocol" in reason
    assert "port" in reason


async def test_a_certificate_of_another_authority_is_not_trusted(secured: SecuredBroker, tmp_path: Path) -> None:
    stage = await granted_stage(secured, tmp_path, "plain")
    other = Authority(tmp_path / "other", "another authority")
    reason = await given_up(stage, secured_environment(secured, **PLAIN) | {"SSL_CAFILE": str(other.file)})
    assert reason.startswith("the certificate of the broker is not trusted (")
    assert "issuer" in reason or "self-signed" in reason or "signature" in reason
    assert "): check kafka.ssl_cafile" in reason


async def test_a_worker_without_a_client_certificate_is_told(secured: SecuredBroker, tmp_path: Path) -> None:
    """The broker refuses it during the handshake, or closes the connection after it."""
    stage = await granted_stage(secured, tmp_path, "worker")
    async with stage.process("--from", "earliest", **secured_environment(secured, "SSL")) as process:

        def reasons() -> list[str]:
            return [line["reason"] for event in ("giving up", "consumer loop ended") for line in process.lines(event)]

        (reason, *_) = await wait_until(reasons, 60, "a refusal")
        assert "the TLS connection" in reason
        assert "kafka.ssl_certfile" in reason
        if process.code is None:
            await process.terminated()


# ---------------------------------------------------------------- ACLs


MISSING = {
    "group": "the principal may not use group {group}: grant READ on it in the ACLs",
    "input": "topic {input} does not exist or may not be seen; create it, or grant READ on it in the ACLs",
    "quarantine": "topic {quarantine} does not exist or may not be seen; create it, or grant WRITE on it in the ACLs",
    "transactional ids": "grant WRITE on those with the prefix {group}-{input}- in the ACLs",
    "output": "the principal may not use topic {output}: grant WRITE on topic {output} in the ACLs",
    "clusters": "the principal may not use topic {clusters}: grant WRITE on topic {clusters} in the ACLs",
    "evidence": "the principal may not use topic {evidence}: grant WRITE on topic {evidence} in the ACLs",
    "output, to look for records of another group": "grant READ on topic {output} in the ACLs",
    "clusters, to look for records of another group": "grant READ on topic {clusters} in the ACLs",
    "evidence, to look for records of another group": "grant READ on topic {evidence} in the ACLs",
    "copy of the progress": "the principal may not use topic {copy}: grant WRITE on topic {copy} in the ACLs",
    "copy of the progress, to look for it": "grant READ on topic {copy} in the ACLs",
}
AT_ONCE = [
    ["input"],
    [
        "group",
        "quarantine",
        "transactional ids",
        "output",
        "evidence",
        "clusters, to look for records of another group",
    ],
    [
        *("clusters", "copy of the progress"),
        *("output, to look for records of another group", "evidence, to look for records of another group"),
    ],
    ["copy of the progress, to look for it"],
]


def test_each_acl_is_missing_once() -> None:
    assert sorted(name for missing in AT_ONCE for name in missing) == sorted(MISSING)


@pytest.mark.parametrize("missing", AT_ONCE, ids=", ".join)
async def test_missing_acls_fail_with_their_names(secured: SecuredBroker, tmp_path: Path, missing: list[str]) -> None:
    """Also where no record is published yet: a permission that is used later is missing at the start."""
    stage = await Stage.create(secured.plain, tmp_path)
    if any(name.startswith("copy") for name in missing):
        await stage.renew("copy", 1, COMPACTED)
    needed = least_grants(stage)
    for name in missing:
        del needed[name]
    await secured.allow("plain", needed.values())
    async with stage.process("--from", "earliest", "--drain", **secured_environment(secured, **PLAIN)) as process:
        assert await process.ended(60) == 2, process.said
    for name in missing:
        assert MISSING[name].format(**stage.topics, group=stage.group) in process.said, process.said


# ---------------------------------------------------------------- settings of topics and brokers


def optional_grants(stage: Stage) -> list[Grant]:
    """What docs/operate.md lists as optional."""
    written = [topic for role, topic in stage.topics.items() if role != "input"]
    of_topics = [Grant(TOPIC, topic, "DESCRIBE_CONFIGS") for topic in written]
    return [*of_topics, Grant(CLUSTER, "kafka-cluster", "DESCRIBE_CONFIGS")]


@pytest.mark.parametrize(("role", "is_granted"), [("output", False), ("evidence", True)])
async def test_a_compacted_topic_is_refused_with_and_without_sight_of_its_settings(
    secured: SecuredBroker, tmp_path: Path, role: str, *, is_granted: bool
) -> None:
    stage = await Stage.create(secured.plain, tmp_path)
    topic = await stage.renew(role, 1, COMPACTED)
    await secured.allow("plain", [*least_grants(stage).values(), *(optional_grants(stage) if is_granted else [])])
    await stage.put(60)
    async with stage.process("--from", "earliest", **secured_environment(secured, **PLAIN)) as process:
        assert await process.ended(60) == 2, process.said
    checked, met = f"topic {topic} is compacted: records without keys", f"topic {topic} refuses the messages: it is"
    assert ((checked in process.said), (met in process.said)) == (is_granted, not is_granted), process.said
