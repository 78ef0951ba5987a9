"""A broker of a test's own, which may be stopped and started again, also one with TLS, SASL and ACLs."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from aiokafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest
from support.certificates import Authority
from support.kafka_broker import admin, load_local, wait_until
from support.running import Stage

QUICK = ("broker.session.timeout.ms=1000", "broker.heartbeat.interval.ms=200")


@dataclass
class PrivateBroker:
    """A broker of a test's own, which may be paused, stopped, and started again where it was."""

    home: Path
    bootstrap: str
    pid: int

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def is_gone(self) -> bool:
        return load_local().running(self.home) is None

    async def start_again(self, *settings: str) -> None:
        """Start it with the same data on the same port, which the local broker itself never does."""
        await wait_until(self.is_gone, what="the end of the broker")

        def is_back() -> bool:
            # It ends at once if the port is that of a connection of another process at this moment.
            if self.is_gone():
                self.pid = load_local().again(self.home, (*QUICK, *settings)).pid
            return bool(load_local().answers(self.bootstrap))

        # Its former process is waited for as long as that.
        await wait_until(is_back, 60, "the broker")


@contextlib.contextmanager
def private_broker(home: Path, *settings: str) -> Iterator[PrivateBroker]:
    """Start a broker with its data in a folder, and stop it at the end, also while it is paused."""
    local = load_local()
    found = local.up(home, settings=settings)
    one = PrivateBroker(home, found.bootstrap, found.pid)
    try:
        yield one
    finally:
        with contextlib.suppress(ProcessLookupError):
            one.resume()
        one.stop(signal.SIGKILL)
        local.down(home)


# ---------------------------------------------------------------- TLS, SASL and ACLs

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
"""Resource types of Kafka's protocol."""
OPERATIONS = {"ALL": 2, "READ": 3, "WRITE": 4, "DESCRIBE": 8, "DESCRIBE_CONFIGS": 10}
LITERAL, PREFIXED = 3, 4
ALLOW = 3
PASSWORDS = {"plain": "plain-secret", "scram256": "scram-secret-256", "scram512": "scram-secret-512"}
JAAS = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Grant:
    """A user may do this with a resource, given by its name or by the start of its name."""

    kind: int
    name: str
    operation: str
    is_prefix: bool = False

    @property
    def pattern(self) -> int:
        return PREFIXED if self.is_prefix else LITERAL


@dataclass
class SecuredBroker:
    """The addresses of one broker by security protocol. The plain listener is for the superuser."""

    home: Path
    authority: Authority
    addresses: dict[str, str]

    @property
    def plain(self) -> str:
        return self.addresses["PLAINTEXT"]

    def process(self) -> PrivateBroker:
        """Return what stops the broker and starts it again."""
        broker = load_local().running(self.home / "run")
        assert broker is not None
        return PrivateBroker(self.home / "run", self.plain, broker.pid)

    async def allow(self, user: str, grants: Iterable[Grant]) -> None:
        """Replace all ACLs of a user by these."""
        principal = f"User:{user}"
        async with admin(self.plain) as client:
            node = client._client.get_random_node()
            everything = DeleteAclsRequest(1, None, 1, principal, None, 1, 1)
            deleted = await client._client.send(node, everything)
            assert all(one[0] == 0 for one in deleted.filter_responses), deleted
            for grant in grants:
                operation = OPERATIONS[grant.operation]
                request = CreateAclsRequest(grant.kind, grant.name, grant.pattern, principal, "*", operation, ALLOW)
                answer = await client._client.send(node, request)
                assert all(one[0] == 0 for one in answer.creation_responses), answer


def unsigned_token(user: str, seconds: float = 3600.0) -> str:
    """Return a token that the broker takes for this user: it trusts unsigned tokens, as no real broker should."""

    def part(content: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()

    now = time.time()
    return f"{part({'alg': 'none'})}.{part({'sub': user, 'iat': now, 'exp': now + seconds})}."


def broker_settings(authority: Authority, session_ms: int = 0, client_auth: str = "required") -> Iterator[str]:
    """Yield lines of server.properties for TLS, SASL (again within ``session_ms``, 0: never) and ACLs."""
    certificate, key = authority.issue("broker")
    store = authority.folder / "broker-store.pem"
    store.write_bytes(key.read_bytes() + certificate.read_bytes())
    yield "ssl.keystore.type=PEM"
    yield f"ssl.keystore.location={store}"
    yield "ssl.truststore.type=PEM"
    yield f"ssl.truststore.location={authority.file}"
    yield f"listener.name.ssl.ssl.client.auth={client_auth}"
    yield "ssl.principal.mapping.rules=RULE:^CN=([^,]*).*$/$1/"
    yield "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    yield "super.users=User:ANONYMOUS"
    for protocol in ("sasl_ssl", "sasl_plaintext"):
        name = f"listener.name.{protocol}"
        yield f"{name}.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
        user = f'user_plain="{PASSWORDS["plain"]}"'
        yield f"{name}.plain.sasl.jaas.config={JAAS}.plain.PlainLoginModule required {user};"
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            yield f"{name}.{mechanism}.sasl.jaas.config={JAAS}.scram.ScramLoginModule required;"
        yield f"{name}.oauthbearer.sasl.jaas.config={JAAS}.oauthbearer.OAuthBearerLoginModule required;"
        for mechanism in ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer"):
            yield f"{name}.{mechanism}.connections.max.reauth.ms={session_ms}"


def _users() -> Iterator[str]:
    for bits in ("256", "512"):
        yield f"SCRAM-SHA-{bits}=[name=scram{bits},password={PASSWORDS[f'scram{bits}']}]"


@contextlib.contextmanager
def secured_broker(home: Path, session_ms: int = 0, client_auth: str = "required") -> Iterator[SecuredBroker]:
    """Start a broker with its data in a folder, and stop it at the end; options as for `broker_settings`."""
    local = load_local()
    authority = Authority(home / "certificates")
    local.up(
        home / "run",
        protocols=("SSL", "SASL_SSL", "SASL_PLAINTEXT"),
        settings=tuple(broker_settings(authority, session_ms, client_auth)),
        users=tuple(_users()),
    )
    try:
        yield SecuredBroker(home, authority, local.listeners(home / "run"))
    finally:
        local.down(home / "run")


def least_grants(stage: Stage) -> dict[str, Grant]:
    """The least a worker needs: what docs/operate.md lists."""
    topics, group = stage.topics, stage.group
    needed = {"group": Grant(GROUP, group, "READ"), "input": Grant(TOPIC, topics["input"], "READ")}
    needed |= {
        "output, to look for records of another group": Grant(TOPIC, topics["output"], "READ"),
        "transactional ids": Grant(TRANSACTIONAL_ID, f"{group}-{topics['input']}-", "WRITE", is_prefix=True),
    }
    for role in ("output", "quarantine", "clusters", "evidence"):
        needed[role] = Grant(TOPIC, topics[role], "WRITE")
    for role in ("clusters", "evidence"):
        needed[f"{role}, to look for records of another group"] = Grant(TOPIC, topics[role], "READ")
    if "copy" in topics:
        needed["copy of the progress"] = Grant(TOPIC, topics["copy"], "WRITE")
        needed["copy of the progress, to look for it"] = Grant(TOPIC, topics["copy"], "READ")
    return needed


async def granted_stage(secured: SecuredBroker, folder: Path, user: str) -> Stage:
    """Return a stage whose topics and group a user may use."""
    stage = await Stage.create(secured.plain, folder)
    await secured.allow(user, least_grants(stage).values())
    return stage


def secured_environment(secured: SecuredBroker, protocol: str = "SASL_SSL", **more: str) -> dict[str, str]:
    """Return the environment of a process that connects to the listener of a protocol."""
    given = {"BOOTSTRAP_SERVERS": secured.addresses[protocol], "SECURITY_PROTOCOL": protocol}
    return given | {"SSL_CAFILE": str(secured.authority.file)} | more
