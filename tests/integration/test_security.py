"""TLS, SASL and ACLs: the service at a broker that requires them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.certificates import Authority
from support.kafka_broker import create_topic, wait_until
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

PASSWORDS = {"PLAIN": "plain-secret", "SCRAM-SHA-256": "scram-secret-256", "SCRAM-SHA-512": "scram-secret-512"}
USERS = {"PLAIN": "plain", "SCRAM-SHA-256": "scram256", "SCRAM-SHA-512": "scram512"}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


async def keep_copy(stage: Stage) -> None:
    """Have the progress copied to a topic."""
    stage.topics["copy"] = await create_topic(stage.bootstrap, configs={"cleanup.policy": "compact"})
    stage.document["kafka"]["progress_copy"] = stage.topics["copy"]


async def releases(stage: Stage, environment: dict[str, str], *arguments: str) -> None:
    """Run a worker until all records have an outcome."""
    record_ids = await stage.put(60)
    async with stage.process("--from", "earliest", "--drain", *arguments, **environment) as process:
        assert await process.ended(60) == 0, process.said
    await stage.until_completed(record_ids)


# ---------------------------------------------------------------- mechanisms


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_passwords_over_tls_from_files(secured: SecuredBroker, tmp_path: Path, mechanism: str) -> None:
    stage = await granted_stage(secured, tmp_path, USERS[mechanism])
    secret = tmp_path / "password"
    secret.write_text(f"{PASSWORDS[mechanism]}\n")
    given = {"SASL_MECHANISM": mechanism, "SASL_USERNAME": USERS[mechanism], "SASL_PASSWORD_FILE": str(secret)}
    await releases(stage, secured_environment(secured, **given))


async def test_a_password_from_the_environment(secured: SecuredBroker, tmp_path: Path) -> None:
    stage = await granted_stage(secured, tmp_path, "plain")
    await releases(stage, secured_environment(secured, SASL_USERNAME="plain", SASL_PASSWORD="plain-secret"))  # noqa: S106 - of a test


async def test_tls_without_a_user(tmp_path: Path) -> None:
    with secured_broker(tmp_path / "broker", client_auth="none") as broker:
        stage = await Stage.create(broker.plain, tmp_path)
        await releases(stage, secured_environment(broker, "SSL"))


async def test_a_client_certificate_is_the_user(secured: SecuredBroker, tmp_path: Path) -> None:
    stage = await Stage.create(secured.plain, tmp_path)
    await keep_copy(stage)
    await secured.allow("worker", least_grants(stage).values())
    certificate, key = secured.authority.issue("worker")
    await releases(stage, secured_environment(secured, "SSL", SSL_CERTFILE=str(certificate), SSL_KEYFILE=str(key)))


@pytest.mark.parametrize("where", ["variable", "file"])
async def test_a_client_certificate_with_an_encrypted_key(secured: SecuredBroker, tmp_path: Path, where: str) -> None:
    stage = await granted_stage(secured, tmp_path, f"worker-{where}")
    certificate, key = secured.authority.issue(f"worker-{where}", password="key-secret")  # noqa: S106 - of a test
    secret = tmp_path / "password"
    secret.write_text("key-secret\n")
    given = {"SSL_PASSWORD": "key-secret"} if where == "variable" else {"SSL_PASSWORD_FILE": str(secret)}
    given |= {"SSL_CERTFILE": str(certificate), "SSL_KEYFILE": str(key)}
    await releases(stage, secured_environment(secured, "SSL", **given))


async def test_a_token_from_a_file(secured: SecuredBroker, tmp_path: Path) -> None:
    stage = await granted_stage(secured, tmp_path, "of-file")
    token = tmp_path / "token"
    token.write_text(unsigned_token("of-file"))
    await releases(stage, secured_environment(secured, SASL_MECHANISM="OAUTHBEARER", SASL_OAUTH_TOKEN_FILE=str(token)))


async def test_a_token_from_the_environment(secured: SecuredBroker, tmp_path: Path) -> None:
    stage = await granted_stage(secured, tmp_path, "of-variable")
    token = unsigned_token("of-variable")
    await releases(stage, secured_environment(secured, SASL_MECHANISM="OAUTHBEARER", SASL_OAUTH_TOKEN=token))


async def test_a_token_from_a_command(secured: SecuredBroker, tmp_path: Path) -> None:
    stage = await granted_stage(secured, tmp_path, "of-command")
    program = tmp_path / "token.py"
    program.write_text(f"print({unsigned_token('of-command')!r})")
    command = f'["{sys.executable}", "{program}"]'
    await releases(stage, secured_environment(secured, SASL_MECHANISM="OAUTHBEARER", SASL_OAUTH_COMMAND=command))


# ---------------------------------------------------------------- what is refused


WRONG: dict[str, tuple[dict[str, str], str]] = {
    "password": (
        {"SASL_USERNAME": "plain", "SASL_PASSWORD": "canary-of-a-password"},
        "the broker refused the credentials: check kafka.sasl_username, kafka.sasl_password",
    ),
    "user": (
        {"SASL_MECHANISM": "SCRAM-SHA-256", "SASL_USERNAME": "nobody", "SASL_PASSWORD": "canary-of-a-password"},
        "the broker refused the credentials: check kafka.sasl_username, kafka.sasl_password, kafka.sasl_mechanism",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
async def test_refused_credentials_end_the_worker_at_once(secured: SecuredBroker, tmp_path: Path, kind: str) -> None:
    stage = await granted_stage(secured, tmp_path, "plain")
    given, words = WRONG[kind]
    async with stage.process("--from", "earliest", **secured_environment(secured, **given)) as process:
        assert await process.ended(30) == 3
    (line,) = process.lines("giving up")
    assert line["reason"] == words
    assert "canary" not in process.said


@pytest.mark.parametrize(
    ("protocol", "listener"),
    [("PLAINTEXT", "SSL"), ("PLAINTEXT", "SASL_PLAINTEXT"), ("SSL", "PLAINTEXT"), ("SSL", "SASL_SSL")],
)
async def test_a_port_of_another_protocol_is_named_with_the_setting(
    secured: SecuredBroker, tmp_path: Path, protocol: str, listener: str
) -> None:
    stage = await granted_stage(secured, tmp_path, "plain")
    address = secured.addresses[listener]
    given = {"BOOTSTRAP_SERVERS": address, "SECURITY_PROTOCOL": protocol, "PATIENCE_S": "1"}
    given |= {"SSL_CAFILE": str(secured.authority.file)} if protocol == "SSL" else {}
    async with stage.process("--from", "earliest", **given) as process:
        assert await process.ended(60) == 3
    (line,) = process.lines("giving up")
    assert "kafka.security_protocol" in line["reason"], line
    assert "port" in line["reason"], line


async def test_a_port_without_sasl_ends_the_worker_at_once(secured: SecuredBroker, tmp_path: Path) -> None:
    stage = await granted_stage(secured, tmp_path, "plain")
    given = {"BOOTSTRAP_SERVERS": secured.plain, "SECURITY_PROTOCOL": "SASL_PLAINTEXT"}
    given |= {"SASL_USERNAME": "plain", "SASL_PASSWORD": "plain-secret"}
    async with stage.process("--from", "earliest", **given) as process:
        assert await process.ended(30) == 3
    (line,) = process.lines("giving up")
    expected = (
        f"the broker takes no SASL at {secured.plain}: check kafka.security_protocol, SASL_PLAINTEXT, and the port"
    )
    assert line["reason"] == expected


async def test_a_certificate_of_another_authority_is_not_trusted(secured: SecuredBroker, tmp_path: Path) -> None:
    stage = await granted_stage(secured, tmp_path, "plain")
    other = Authority(tmp_path / "other", "another authority")
    given = secured_environment(secured, SASL_USERNAME="plain", SASL_PASSWORD="plain-secret")  # noqa: S106 - of a test
    given |= {"SSL_CAFILE": str(other.file)}
    async with stage.process("--from", "earliest", **given) as process:
        assert await process.ended(60) == 3
    (line,) = process.lines("giving up")
    assert line["reason"].startswith("the certificate of the broker is not trusted (")
    assert "issuer" in line["reason"] or "self-signed" in line["reason"] or "signature" in line["reason"]
    assert "): check kafka.ssl_cafile" in line["reason"]


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


# ---------------------------------------------------------------- rotation


async def test_a_password_that_is_rotated_is_read_again(secured: SecuredBroker, tmp_path: Path) -> None:
    """The worker starts with an outdated file. It waits, reads the new one, and goes on."""
    stage = await granted_stage(secured, tmp_path, "plain")
    secret = tmp_path / "password"
    secret.write_text("outdated")
    record_ids = await stage.put(60)
    given = secured_environment(secured, SASL_USERNAME="plain", SASL_PASSWORD_FILE=str(secret))
    async with stage.process("--from", "earliest", **given) as process:

        def is_told() -> bool:
            return any("their files are read again" in line["reason"] for line in process.lines("consumer loop ended"))

        await wait_until(is_told, 60, "a refusal")
        secret.write_text("plain-secret")
        await wait_until(lambda: process.lines("partition opened"), 60, "the partition")
        assert await process.terminated() == 0
    await stage.drained(record_ids)


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


async def refusal(secured: SecuredBroker, stage: Stage, needed: dict[str, Grant]) -> str:
    """Start a worker with these permissions, which it must refuse; return what it says."""
    await secured.allow("plain", needed.values())
    given = secured_environment(secured, SASL_USERNAME="plain", SASL_PASSWORD="plain-secret")  # noqa: S106 - of a test
    async with stage.process("--from", "earliest", "--drain", **given) as process:
        assert await process.ended(60) == 2, process.said
    return process.said


@pytest.mark.parametrize("missing", MISSING)
async def test_one_acl_fewer_fails_with_its_name(secured: SecuredBroker, tmp_path: Path, missing: str) -> None:
    """Also where no record is published yet: a permission that is used later is missing at the start."""
    stage = await Stage.create(secured.plain, tmp_path)
    if missing.startswith("copy"):
        await keep_copy(stage)
    needed = least_grants(stage)
    del needed[missing]
    said = await refusal(secured, stage, needed)
    assert MISSING[missing].format(**stage.topics, group=stage.group) in said, said


async def test_all_missing_acls_are_named_at_once(secured: SecuredBroker, tmp_path: Path) -> None:
    stage = await Stage.create(secured.plain, tmp_path)
    needed = least_grants(stage)
    missing = (
        "group",
        "quarantine",
        "transactional ids",
        "output",
        "evidence",
        "clusters, to look for records of another group",
    )
    for name in missing:
        del needed[name]
    said = await refusal(secured, stage, needed)
    for name in missing:
        assert MISSING[name].format(**stage.topics, group=stage.group) in said, said


# ---------------------------------------------------------------- settings of topics and brokers


PLAIN = {"SASL_USERNAME": "plain", "SASL_PASSWORD": "plain-secret"}
NOT_CHECKED = (
    "settings of topics not checked: grant DESCRIBE_CONFIGS on these topics in the ACLs",
    "kafka.progress_copy not checked: its topic must have cleanup.policy compact, without delete",
    "settings of the broker not checked: grant DESCRIBE_CONFIGS on the cluster in the ACLs",
)


def optional_grants(stage: Stage) -> list[Grant]:
    """What docs/operate.md lists as optional."""
    written = [topic for role, topic in stage.topics.items() if role != "input"]
    of_topics = [Grant(TOPIC, topic, "DESCRIBE_CONFIGS") for topic in written]
    return [*of_topics, Grant(CLUSTER, "kafka-cluster", "DESCRIBE_CONFIGS")]


@pytest.mark.parametrize("is_granted", [False, True])
async def test_what_could_not_be_checked_is_named(secured: SecuredBroker, tmp_path: Path, *, is_granted: bool) -> None:
    stage = await Stage.create(secured.plain, tmp_path)
    await keep_copy(stage)
    await secured.allow("plain", [*least_grants(stage).values(), *(optional_grants(stage) if is_granted else [])])
    await stage.put(60)
    async with stage.process("--from", "earliest", "--drain", **secured_environment(secured, **PLAIN)) as process:
        assert await process.ended(60) == 0, process.said
    expected = 0 if is_granted else 1
    assert [len(process.lines(text)) for text in NOT_CHECKED] == [expected] * 3, process.said


@pytest.mark.parametrize("role", ["output", "evidence"])
@pytest.mark.parametrize("is_granted", [False, True])
async def test_a_compacted_topic_is_refused_with_and_without_sight_of_its_settings(
    secured: SecuredBroker, tmp_path: Path, role: str, *, is_granted: bool
) -> None:
    stage = await Stage.create(secured.plain, tmp_path)
    topic = stage.topics[role] = await create_topic(secured.plain, configs={"cleanup.policy": "compact"})
    stage.document["kafka"][role] = topic
    await secured.allow("plain", [*least_grants(stage).values(), *(optional_grants(stage) if is_granted else [])])
    await stage.put(60)
    async with stage.process("--from", "earliest", **secured_environment(secured, **PLAIN)) as process:
        assert await process.ended(60) == 2, process.said
    checked, met = f"topic {topic} is compacted: records without keys", f"topic {topic} refuses the messages: it is"
    assert ((checked in process.said), (met in process.said)) == (is_granted, not is_granted), process.said


async def test_a_copy_of_the_progress_that_does_not_keep_it_is_refused(secured: SecuredBroker, tmp_path: Path) -> None:
    stage = await Stage.create(secured.plain, tmp_path)
    stage.topics["copy"] = await create_topic(secured.plain, configs={"cleanup.policy": "delete"})
    stage.document["kafka"]["progress_copy"] = stage.topics["copy"]
    await secured.allow("plain", [*least_grants(stage).values(), *optional_grants(stage)])
    async with stage.process("--from", "earliest", **secured_environment(secured, **PLAIN)) as process:
        assert await process.ended(60) == 2, process.said
    assert f"topic {stage.topics['copy']} is not compacted only" in process.said
