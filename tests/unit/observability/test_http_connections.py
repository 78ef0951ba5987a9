"""Connections of the HTTP port that send nothing, or half a request."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from shoal.observability import Health, Metrics, http
from shoal.observability.http import HttpAccess, serve
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


async def test_a_connection_without_a_tls_handshake_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "HANDSHAKE_S", 0.5)
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    access, context = HttpAccess(str(certificate), str(key)), authority.client_context()
    async with serve("127.0.0.1:0", Metrics(), Health(), dict, access=access) as port, connected(port, 1) as (silent,):
        assert await is_closed(silent, 10)
        async with connected(port, 1, context=context) as (quick,):
            assert is_alive(await answer(quick))


@pytest.mark.parametrize("sends", [b"", b"GET /livez HTT", REQUEST])
async def test_idle_connections_keep_no_probe_out(sends: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest make room, also those that have had an answer and wait for another request."""
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 4)
    async with serve("127.0.0.1:0", Metrics(), Health(), dict) as port, connected(port, 12, sends) as idle:
        for streams in idle if sends == REQUEST else []:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await asyncio.wait_for(streams[0].readuntil(b"alive\n"), 10)
        for _ in range(6):  # the last of those may have come in one go
            async with connected(port, 1) as (probe,):
                assert is_alive(await answer(probe))
        assert all([await is_closed(streams, 10) for streams in idle[:8]])
        assert not await is_closed(idle[11], 0.1)
