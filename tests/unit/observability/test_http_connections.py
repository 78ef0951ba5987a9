"""Connections of the HTTP port that send nothing, or half a request; and more of them than there may be."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from shoal.observability import Health, Metrics, http
from shoal.observability.http import HttpAccess, serve
from structlog.testing import capture_logs
from support.certificates import Authority

pytestmark = pytest.mark.unit

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


@pytest.mark.parametrize("sends", [b"", b"GET /livez HTT", REQUEST[:-2]])
async def test_a_connection_without_a_complete_request_is_closed(sends: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_S", 0.5)
    async with (
        serve("127.0.0.1:0", Metrics(), Health(), dict) as port,
        connected(port, 1, sends) as (slow,),
        connected(port, 1) as (quick,),
    ):
        assert is_alive(await answer(quick))
        assert await is_closed(slow, 10)
        assert is_alive(await answer(quick)), "a connection that has sent a request stays open for the next one"


async def test_a_connection_without_a_tls_handshake_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_S", 0.5)
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    access, context = HttpAccess(str(certificate), str(key)), authority.client_context()
    async with (
        serve("127.0.0.1:0", Metrics(), Health(), dict, access=access) as port,
        connected(port, 1) as (silent,),
        connected(port, 1, context=context) as (idle,),
    ):
        assert await is_closed(silent, 10)
        assert await is_closed(idle, 10)
        async with connected(port, 1, context=context) as (quick,):
            assert is_alive(await answer(quick))


@pytest.mark.parametrize("sends", [b"", REQUEST])
async def test_idle_connections_keep_no_probe_out(sends: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest make room, also those that have had an answer and wait for another request."""
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 4)
    with capture_logs() as lines:
        async with serve("127.0.0.1:0", Metrics(), Health(), dict) as port, connected(port, 12, sends) as idle:
            for streams in idle if sends else []:
                with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                    await asyncio.wait_for(streams[0].readuntil(b"alive\n"), 10)
            async with connected(port, 1) as (probe,):
                assert is_alive(await answer(probe))
            assert all([await is_closed(streams, 10) for streams in idle[:9]])
            assert not await is_closed(idle[11], 0.1)
    (line,) = lines
    assert (line["log_level"], line["most"]) == ("warning", 4)
    assert "Restrict access to the port" in line["event"]


async def test_a_connection_that_is_being_answered_is_not_closed_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 1)
    may_answer, is_asked = asyncio.Event(), asyncio.Event()

    class Slow(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            http.mark_request(transport, is_answered=True)
            is_asked.set()
            self.answering = asyncio.get_running_loop().create_task(self.answer(transport))

        async def answer(self, transport: asyncio.BaseTransport) -> None:
            await may_answer.wait()
            assert isinstance(transport, asyncio.Transport)
            transport.write(b"x")

    connections = http.HttpConnections(Slow, None)
    port = await connections.listen("127.0.0.1", 0)
    try:
        async with connected(port, 1) as (first,):
            await is_asked.wait()
            async with connected(port, 1) as (second,):
                assert await is_closed(second, 10)
            may_answer.set()
            assert await asyncio.wait_for(first[0].readexactly(1), 10) == b"x"
    finally:
        await connections.stop_listening()
        await connections.close()


@pytest.mark.parametrize("is_alone", [False, True])
async def test_an_address_that_the_machine_does_not_have_is_left_out(
    monkeypatch: pytest.MonkeyPatch, *, is_alone: bool
) -> None:
    """In a container without IPv6, localhost may have such an address. 192.0.2.1 is that of no machine."""

    async def found(*_: object, **__: object) -> list[Any]:
        addresses = [("192.0.2.1", 0)] if is_alone else [("192.0.2.1", 0), ("127.0.0.1", 0)]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]

    connections = http.HttpConnections(asyncio.Protocol, None)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)
    try:
        if is_alone:
            with pytest.raises(OSError, match=r"192\.0\.2\.1|assign"):
                await connections.listen("localhost", 0)
        else:
            assert await connections.listen("localhost", 0) > 0
    finally:
        await connections.stop_listening()
