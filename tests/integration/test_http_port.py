"""The HTTP port of a service that is set by the environment alone: TLS, a token, and the start of the input."""

from __future__ import annotations

import ssl
import time

import aiohttp
import pytest
from support.canaries import traces
from support.certificates import Authority
from support.kafka_broker import wait_until
from support.running import Process, Stage, sample

TOKEN = "xq7canary9z-0123456789abcdef"  # noqa: S105 - opens nothing


async def fetched(process: Process, context: ssl.SSLContext, path: str, token: str = "") -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"https://127.0.0.1:{await process.port()}{path}"
    async with aiohttp.ClientSession() as client, client.get(url, headers=headers, ssl=context) as answer:
        return answer.status, await answer.text()


async def test_the_environment_sets_the_start_and_secures_the_port(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(stage.folder / "authority")
    certificate, key = authority.issue("worker")
    (stage.folder / "token").write_text(TOKEN)
    (stage.folder / "token").chmod(0o600)
    context = authority.client_context()
    await stage.put(30)
    for name, value in {
        "SHOAL_FROM": "earliest",
        "SHOAL_HTTP": "127.0.0.1:0",
        "SHOAL_HTTP_CERTFILE": str(certificate),
        "SHOAL_HTTP_KEYFILE": str(key),
        "SHOAL_HTTP_TOKEN_FILE": str(stage.folder / "token"),
    }.items():
        monkeypatch.setenv(name, value)
    async with stage.command("run", name="secured") as process:

        async def has_read() -> bool:
            status, text = await fetched(process, context, "/metrics", TOKEN)
            return status == 200 and sample(text, "shoal_records_total", outcome="in") == 30

        async def is_ready() -> bool:
            return (await fetched(process, context, "/readyz"))[0] == 200

        await wait_until(has_read, 60, "the records in the metrics")
        await wait_until(is_ready, 60, "readiness")
        assert (await fetched(process, context, "/metrics"))[0] == 401
        metrics = (await fetched(process, context, "/metrics", TOKEN))[1]
        assert sample(metrics, "shoal_certificate_expiry_timestamp_seconds", certificate="http") > time.time()
        assert await process.terminated() == 0
    assert traces([TOKEN], {"said": process.said.encode(), "out": process.out.read_bytes()}) == []
