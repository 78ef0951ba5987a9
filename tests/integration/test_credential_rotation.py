"""Credentials that are replaced while a worker runs: it takes the new ones, and each record has one outcome.

And a worker without any.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kafka_broker import wait_until
from support.running import Process, Stage
from support.secured_broker import SecuredBroker, granted_stage, secured_broker, secured_environment, unsigned_token

pytestmark = pytest.mark.usefixtures("kernels")

ROOT = Path(__file__).resolve().parents[2]
SESSION_MS = 6000
REPLACED = "a broker does not answer, and files with credentials have changed: connecting with the new ones"
SESSION_OVER = "connecting again (a broker does so at the end of a session: when an OAuth token expires, or after"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker that closes connections with SASL after some seconds, as the client does not authenticate again.

    Over TLS alone it asks for a certificate, and takes who has none for its superuser.
    """
    with secured_broker(tmp_path_factory.mktemp("secured"), SESSION_MS, "requested") as broker:
        yield broker


def change_password(secured: SecuredBroker, user: str, password: str) -> None:
    command = ["kafka-configs", "--bootstrap-server", secured.plain, "--alter", "--entity-type", "users"]
    command += ["--entity-name", user, "--add-config", f"SCRAM-SHA-512=[password={password}]"]
    subprocess.run(
        [sys.executable, str(ROOT / "deploy" / "kafka" / "tool.py"), *command], check=True, capture_output=True
    )


def reasons(process: Process) -> list[str]:
    assert process.code is None, process.said[-2000:]
    return [line["reason"] for line in process.lines("consumer loop ended")]


async def until_told(process: Process, words: str) -> None:
    await wait_until(lambda: any(words in reason for reason in reasons(process)), 60, words)


async def test_tls_without_a_user(secured: SecuredBroker, tmp_path: Path) -> None:
    stage = await Stage.create(secured.plain, tmp_path)
    record_ids = await stage.put(60)
    environment = secured_environment(secured, "SSL")
    async with stage.process("--from", "earliest", "--drain", **environment) as process:
        assert await process.ended(60) == 0, process.said
    await stage.until_completed(record_ids)


async def test_a_running_worker_takes_a_password_that_was_rotated(secured: SecuredBroker, tmp_path: Path) -> None:
    """The file is empty for a moment, as where it is not replaced in one step."""
    stage = await granted_stage(secured, tmp_path, "scram512")
    secret = tmp_path / "password"
    secret.write_text("scram-secret-512")
    given = {"SASL_MECHANISM": "SCRAM-SHA-512", "SASL_USERNAME": "scram512", "SASL_PASSWORD_FILE": str(secret)}
    async with stage.process("--from", "earliest", **secured_environment(secured, **given)) as process:
        await wait_until(lambda: process.lines("partition opened"), 60, "the partition")
        record_ids = await stage.put(60)
        await stage.until_completed(record_ids[:30])
        await asyncio.to_thread(change_password, secured, "scram512", "scram-secret-of-tomorrow")
        secret.write_text("")
        await until_told(process, REPLACED)
        await until_told(process, "kafka.sasl_password_file: the file is empty")
        secret.write_text("scram-secret-of-tomorrow")
        await process.until_ready(60)
        record_ids += await stage.put(60)
        await stage.until_completed(record_ids[:100])
        assert "scram-secret" not in process.said
        assert await process.terminated() == 0
    await stage.drained(record_ids)


async def test_a_running_worker_takes_a_certificate_that_was_renewed(secured: SecuredBroker, tmp_path: Path) -> None:
    """The broker restarts when the certificate of the first connections has expired."""
    stage = await granted_stage(secured, tmp_path, "worker")
    expires_s = time.time() + 20
    certificate, key = secured.authority.issue("worker", valid=dt.timedelta(seconds=20))
    given = {"SSL_CERTFILE": str(certificate), "SSL_KEYFILE": str(key)}
    async with stage.process("--from", "earliest", **secured_environment(secured, "SSL", **given)) as process:
        await wait_until(lambda: process.lines("partition opened"), 60, "the partition")
        record_ids = await stage.put(60)
        await stage.until_completed(record_ids[:30])
        secured.authority.issue("worker")
        await wait_until(lambda: time.time() > expires_s, 30, "the expiry")
        broker = secured.process()
        broker.stop()
        await broker.start_again()
        await wait_until(lambda: reasons(process), 60, "new clients")
        await process.until_ready(60)
        record_ids += await stage.put(60)
        await stage.until_completed(record_ids[:100])
        assert await process.terminated() == 0
    await stage.drained(record_ids)


async def test_a_worker_goes_on_when_the_broker_ends_the_sessions_of_its_tokens(
    secured: SecuredBroker, tmp_path: Path
) -> None:
    """The token is renewed all the time; the worker connects again when a session is over."""
    stage = await granted_stage(secured, tmp_path, "of-file")
    stage.document["kafka"]["instance_id"] = "one"
    token, renewed, record_ids = tmp_path / "token", tmp_path / "renewed", []
    token.write_text(unsigned_token("of-file", 12))
    given = {"SASL_MECHANISM": "OAUTHBEARER", "SASL_OAUTH_TOKEN_FILE": str(token)}
    async with stage.process("--from", "earliest", **secured_environment(secured, **given)) as process:

        async def has_connected_again() -> bool:
            renewed.write_text(unsigned_token("of-file", 12))
            renewed.replace(token)
            record_ids.extend(await stage.put(5))
            return sum(SESSION_OVER in reason for reason in reasons(process)) >= 3

        await wait_until(has_connected_again, 120, "three ends of sessions")
        assert await process.terminated() == 0
    await stage.drained(record_ids)
