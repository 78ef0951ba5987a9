"""The HTTP port: TLS and token, rotation, faults at the start, and connections that send nothing or half a request."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from shoal.errors import ConfigError
from shoal.observability import Health, Metrics, http
from shoal.observability.http import serve
from shoal.observability.http_access import HttpAccess
from structlog.testing import capture_logs
from support.canaries import traces
from support.certificates import Authority

pytestmark = pytest.mark.unit

TOKEN = "xq7canary9z-0123456789abcdef"  # noqa: S105 - opens nothing
OTHER = "another-token-0123456789"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


async def status_of(port: int, path: str, token: str | None = None, authority: Authority | None = None) -> int:
    """Status of an answer to a new connection."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    context = None if authority is None else authority.client_context()
    url = f"{'http' if context is None else 'https'}://127.0.0.1:{port}{path}"
    async with aiohttp.ClientSession() as client, client.get(url, headers=headers, ssl=context or False) as answer:
        if answer.status == 401:
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert "shoal_" not in await answer.text()
        return answer.status


async def serial_of(port: int, authority: Authority, name: str | None = "localhost") -> int:
    """Serial number of the certificate that a new connection gets, with or without a server name in the handshake."""
    context = authority.client_context()
    # No name is sent for an address.
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname=name or "127.0.0.1", ssl_handshake_timeout=30
    )
    writer.write(b"GET /livez HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert (await reader.read()).endswith(b"alive\n")
    found = writer.get_extra_info("peercert")
    writer.close()
    await writer.wait_closed()
    return int(found["serialNumber"], 16)


def serial_in(path: Path) -> int:
    return x509.load_pem_x509_certificate(path.read_bytes()).serial_number


def serving(access: HttpAccess | None = None) -> AbstractAsyncContextManager[int]:
    return serve("127.0.0.1:0", Metrics(), Health(), access)


async def test_metrics_and_page_require_the_token_and_probes_do_not(tmp_path: Path) -> None:
    path = private(tmp_path / "token", f"{TOKEN}\n")
    for access in (HttpAccess(token=TOKEN), HttpAccess(token_file=str(path))):
        async with serving(access) as port:
            for page in ("/", "/metrics"):
                found = [await status_of(port, page, token) for token in (TOKEN, None, "", TOKEN[:-1], OTHER)]
                assert found == [200, 401, 401, 401, 401]
            assert await status_of(port, "/livez") == 200
            assert await status_of(port, "/readyz") == 503


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer   {TOKEN}", 200),
        (f"Basic {TOKEN}", 401),
        ("Bearer", 401),
        (f"Bearer {TOKEN} {TOKEN}", 401),
        (f"Bearer {TOKEN}\udcff", 401),
    ],
)
async def test_the_scheme_is_bearer(header: str, status: int) -> None:
    async with serving(HttpAccess(token=TOKEN)) as port:
        raw = f"GET /metrics HTTP/1.0\r\nHost: localhost\r\nAuthorization: {header}\r\n\r\n"
        assert await raw_status(port, raw.encode("utf-8", "surrogateescape")) == status


async def raw_status(port: int, request: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    line = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return int(line.split()[1])


async def test_a_token_is_rotated_without_a_restart_and_without_a_refused_request(tmp_path: Path) -> None:
    path = private(tmp_path / "token", TOKEN)
    async with serving(HttpAccess(token_file=str(path))) as port:
        private(path, f"{TOKEN}\n{OTHER}\n")
        assert [await status_of(port, "/metrics", token) for token in (TOKEN, OTHER)] == [200, 200]
        private(path, OTHER)
        assert [await status_of(port, "/metrics", token) for token in (TOKEN, OTHER)] == [401, 200]


@pytest.mark.parametrize("content", ["", "short", None])
async def test_an_unusable_token_file_changes_nothing_and_is_reported_once(tmp_path: Path, content: str | None) -> None:
    path = private(tmp_path / "token", TOKEN)
    async with serving(HttpAccess(token_file=str(path))) as port:
        with capture_logs() as logs:
            path.unlink() if content is None else path.write_text(content)
            assert [await status_of(port, "/metrics", token) for token in (TOKEN, None, TOKEN)] == [200, 401, 200]
        (line,) = logs
        assert line["event"] == "token of the HTTP port not changed"
        assert line["reason"].startswith("--http-token-file (SHOAL_HTTP_TOKEN_FILE): ")
        assert not content or content not in str(line)


async def test_tls_with_a_token_and_the_expiry_of_its_certificate_as_a_metric(
    tmp_path: Path, authority: Authority
) -> None:
    certificate, key = authority.issue("with-token")
    path = private(tmp_path / "token", TOKEN)
    access, metrics = HttpAccess(str(certificate), str(key), token_file=str(path)), Metrics()
    async with serve("127.0.0.1:0", metrics, Health(), access) as port:
        found = metrics.registry.get_sample_value("shoal_certificate_expiry_timestamp_seconds", {"certificate": "http"})
        assert found == x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc.timestamp()
        assert [await status_of(port, "/metrics", token, authority) for token in (TOKEN, None)] == [200, 401]
        assert await status_of(port, "/livez", authority=authority) == 200
        with pytest.raises(aiohttp.ClientError):
            await status_of(port, "/livez")


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3", "TLSv1_1"])
async def test_tls_is_1_2_or_newer(authority: Authority, version: str) -> None:
    certificate, key = authority.issue(f"version-{version}")
    context = authority.client_context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1") if version == "TLSv1_1" else contextlib.nullcontext():
        context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    async with (
        serving(HttpAccess(str(certificate), str(key))) as port,
        aiohttp.ClientSession() as client,
    ):
        if version == "TLSv1_1":
            with pytest.raises(aiohttp.ClientError):
                await client.get(f"https://localhost:{port}/livez", ssl=context)
        else:
            async with client.get(f"https://localhost:{port}/livez", ssl=context) as answer:
                assert answer.status == 200


@pytest.mark.parametrize("name", ["localhost", None])
async def test_a_certificate_is_rotated_without_a_restart(authority: Authority, name: str | None) -> None:
    certificate, key = authority.issue(f"rotated-{name}")
    access = HttpAccess(certfile=str(certificate), keyfile=str(key))
    async with serving(access) as port:
        first = serial_in(certificate)
        assert await serial_of(port, authority, name) == first
        following = authority.issue(f"next-{name}")
        second = serial_in(following[0])
        with capture_logs() as logs:
            following[0].replace(certificate)  # the key is still that of the first certificate
            assert [await serial_of(port, authority, name) for _ in range(2)] == [first, first]
            following[1].replace(key)
            assert [await serial_of(port, authority, name) for _ in range(2)] == [second, second]
            key.unlink()
            assert [await serial_of(port, authority, name) for _ in range(2)] == [second, second]
        events = [line["event"] for line in logs]
        assert events == [
            "certificate of the HTTP port not changed",
            "certificate of the HTTP port changed",
            "certificate of the HTTP port not changed",
        ]
        assert second != first


async def test_an_encrypted_key_is_read_with_its_password(tmp_path: Path, authority: Authority) -> None:
    certificate, key = encrypted(authority, "encrypted")
    password = private(tmp_path / "password", "hunter2\n")
    for given in ({"key_password_file": str(password)}, {"key_password": "hunter2"}):
        access = HttpAccess(certfile=str(certificate), keyfile=str(key), **given)
        assert "hunter2" not in repr(access)
        async with serving(access) as port:
            assert await serial_of(port, authority) == serial_in(certificate)


def encrypted(authority: Authority, name: str) -> tuple[Path, Path]:
    certificate, plain = authority.issue(name)
    key = serialization.load_pem_private_key(plain.read_bytes(), None)
    form = serialization.BestAvailableEncryption(b"hunter2")
    plain.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, form))
    return certificate, plain


CERTFILE = "--http-certfile (SHOAL_HTTP_CERTFILE): "
KEYFILE = "--http-keyfile (SHOAL_HTTP_KEYFILE): "
PASSWORD = "--http-key-password-file (SHOAL_HTTP_KEY_PASSWORD_FILE): "  # noqa: S105 - the names of a setting
TOKEN_FILE = "--http-token-file (SHOAL_HTTP_TOKEN_FILE): "  # noqa: S105
PASSWORD_ITSELF = "SHOAL_HTTP_KEY_PASSWORD: "  # noqa: S105
CANARY = {"key_password": "canary"}

Files = Callable[[Authority, Path], dict[str, Any]]


def of_pair(authority: Authority, **given: Any) -> dict[str, Any]:
    certificate, key = authority.issue("of-pair")
    return {"certfile": str(certificate), "keyfile": str(key)} | given


def of_other_key(authority: Authority, _: Path) -> dict[str, Any]:
    return of_pair(authority, keyfile=str(authority.issue("of-another")[1]))


def of_encrypted_key(authority: Authority, folder: Path, password: str | None = None) -> dict[str, Any]:
    certificate, key = encrypted(authority, "of-encrypted")
    given = {} if password is None else {"key_password_file": str(private(folder / "password", password))}
    return {"certfile": str(certificate), "keyfile": str(key)} | given


def pipe(folder: Path) -> str:
    os.mkfifo(folder / "pipe")
    return str(folder / "pipe")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda a, f: of_pair(a, certfile=pipe(f)), f"{CERTFILE}is a pipe"),
        (lambda a, f: of_pair(a, keyfile=pipe(f)), f"{KEYFILE}is a pipe"),
        (lambda _, f: {"token_file": pipe(f)}, f"{TOKEN_FILE}is a pipe"),
        (lambda a, f: of_pair(a, certfile=str(f / "absent")), f"{CERTFILE}the file cannot be read: No such file"),
        (lambda a, f: of_pair(a, certfile=str(f)), f"{CERTFILE}the file cannot be read: Is a directory"),
        (lambda a, _: of_pair(a, certfile="\0"), f"{CERTFILE}the file cannot be read: not the name of a file"),
        (lambda a, _: of_pair(a, keyfile=None), f"{KEYFILE}missing; give the private key of the certificate"),
        (lambda a, _: of_pair(a, certfile=None), f"{KEYFILE}has no effect without --http-certfile"),
        (lambda _, f: {"key_password_file": str(f)}, f"{PASSWORD}has no effect without --http-certfile"),
        (lambda _, __: CANARY, f"{PASSWORD_ITSELF}has no effect without --http-certfile"),
        (lambda a, f: of_pair(a, key_password_file=str(f), **CANARY), f"{PASSWORD_ITSELF}is given besides --http-key-"),
        (lambda a, f: of_encrypted_key(a, f) | CANARY, f"{KEYFILE}the key is encrypted; give its password in"),
        (of_other_key, f"{KEYFILE}the file holds no private key in PEM that fits the certificate; give the key"),
        (lambda a, f: of_pair(a, certfile=str(private(f / "c", "canary"))), f"{CERTFILE}the file holds no certificate"),
        (lambda a, f: of_encrypted_key(a, f, "wrong"), f"{KEYFILE}the key is encrypted; give its password in"),
        (lambda a, f: of_encrypted_key(a, f, ""), f"{PASSWORD}the file is empty"),
        (lambda _, f: {"token_file": str(private(f / "t", ""))}, f"{TOKEN_FILE}the file is empty"),
        (lambda _, f: {"token_file": str(private(f / "t", " \n\n"))}, f"{TOKEN_FILE}holds no token; give one"),
        (lambda _, f: {"token_file": str(private(f / "t", "canaryé01234"))}, f"{TOKEN_FILE}holds a character that no"),
        (lambda _, __: {"token": "canary-too-sho"}, "SHOAL_HTTP_TOKEN: holds a token with fewer than 16 characters"),
        (lambda _, f: {"token": TOKEN, "token_file": str(f)}, "SHOAL_HTTP_TOKEN: is given besides --http-token-file"),
    ],
)
async def test_what_cannot_be_used_is_refused_at_the_start(
    tmp_path: Path, authority: Authority, given: Files, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        async with serving(HttpAccess(**given(authority, tmp_path))):
            pass
    assert str(caught.value).startswith(message)
    assert "canary" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("address", ["127.0.0.2:0", "localhost:0", "[::1]:0", ":0", "0.0.0.0:0", "[::]:0"])
async def test_what_a_network_can_read_is_warned_of(authority: Authority, address: str) -> None:
    files = of_pair(authority)
    os.chmod(files["keyfile"], 0o600)  # noqa: PTH101 - a Path would be a blocking call to the linter
    for access, expected in (
        (
            HttpAccess(),
            "metrics and page can be read by other machines without a token; --http-token-file requires one",
        ),
        (
            HttpAccess(token=TOKEN),
            "the HTTP token crosses the network in plain text: use --http-certfile and --http-keyfile",
        ),
        (HttpAccess(**files, token=TOKEN), None),
    ):
        with capture_logs() as logs:
            async with serve(address, Metrics(), Health(), access=access):
                pass
        is_on_network = address in {"0.0.0.0:0", "[::]:0"}
        assert [line["event"] for line in logs] == ([expected] if expected and is_on_network else [])


async def test_a_secret_that_other_users_can_read_is_warned_of(tmp_path: Path) -> None:
    path = private(tmp_path / "token", TOKEN)
    path.chmod(0o644)
    with capture_logs() as logs:
        async with serving(HttpAccess(token_file=str(path))):
            pass
    assert [line["setting"] for line in logs] == ["--http-token-file (SHOAL_HTTP_TOKEN_FILE)"]


async def test_an_address_that_cannot_be_bound_is_named_with_the_reason() -> None:
    async with serving() as port:
        with pytest.raises(ConfigError) as caught:
            async with serve(f"127.0.0.1:{port}", Metrics(), Health()):
                pass
    assert str(caught.value) == f"--http (SHOAL_HTTP): 127.0.0.1:{port} cannot be bound: Address already in use"


async def test_no_answer_and_no_log_line_holds_a_token(tmp_path: Path) -> None:
    path = private(tmp_path / "token", TOKEN)
    access = HttpAccess(token_file=str(path))
    told: dict[str, bytes] = {"settings": repr(HttpAccess(token=TOKEN)).encode()}
    with capture_logs() as logs:
        async with (
            serve("0.0.0.0:0", Metrics(), Health(), access=access) as port,
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as client,
        ):
            for page in ("/", "/metrics", "/livez", "/readyz", "/absent"):
                async with client.get(f"http://127.0.0.1:{port}{page}") as answer:
                    told[page] = await answer.read() + str(answer.headers).encode()
            path.write_text(f"{TOKEN} é")
            async with client.get(f"http://127.0.0.1:{port}/metrics") as answer:
                assert answer.status == 200
    told["logs"] = str(logs).encode()
    assert traces([TOKEN], told) == []


# ---------------------------------------------------------------- connections

REQUEST = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def connected(
    port: int, count: int, sends: bytes = b"", context: ssl.SSLContext | None = None
) -> AsyncIterator[list[Streams]]:
    """Open so many connections, which all send the same; they are closed at the end."""
    opened = [await asyncio.open_connection("127.0.0.1", port, ssl=context) for _ in range(count)]
    try:
        for _, writer in opened:
            writer.write(sends)
        yield opened
    finally:
        for _, writer in opened:
            writer.transport.abort()


async def is_closed(streams: Streams, within_s: float) -> bool:
    """Return whether the other side closes a connection in time, without an answer."""
    try:
        return await asyncio.wait_for(streams[0].read(1), within_s) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


async def answer(streams: Streams) -> bytes:
    streams[1].write(REQUEST)
    head = await asyncio.wait_for(streams[0].readuntil(b"\r\n\r\n"), 10)
    return head + await asyncio.wait_for(streams[0].readexactly(6), 10)


def is_alive(text: bytes) -> bool:
    return text.startswith(b"HTTP/1.1 200 OK\r\n") and text.endswith(b"alive\n")


async def test_a_connection_without_a_tls_handshake_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "HANDSHAKE_S", 0.5)
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    access, context = HttpAccess(str(certificate), str(key)), authority.client_context()
    async with serving(access) as port, connected(port, 1) as (silent,):
        assert await is_closed(silent, 10)
        async with connected(port, 1, context=context) as (quick,):
            assert is_alive(await answer(quick))


@pytest.mark.parametrize("sends", [b"", b"GET /livez HTT", REQUEST])
async def test_idle_connections_keep_no_probe_out(sends: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest make room, also those that have had an answer and wait for another request."""
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 4)
    async with serving() as port, connected(port, 12, sends) as idle:
        for streams in idle if sends == REQUEST else []:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await asyncio.wait_for(streams[0].readuntil(b"alive\n"), 10)
        for _ in range(6):  # the last of those may have come in one go
            async with connected(port, 1) as (probe,):
                assert is_alive(await answer(probe))
        assert all([await is_closed(streams, 10) for streams in idle[:8]])
        assert not await is_closed(idle[11], 0.1)
