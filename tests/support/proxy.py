"""A proxy in front of a broker that loses requests: it holds them back, and closes the client's connection."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import pytest

_to_broker: ContextVar[bool] = ContextVar("to_broker", default=False)
"""Whether a connection is the proxy's own, so that it goes to the broker."""


class Proxy:
    """Forwards requests, except those that `should_hold` chooses by their API key."""

    def __init__(self, broker: str) -> None:
        host, port = broker.split(":")
        self._broker = (host, int(port))
        self._held: list[tuple[bytes, asyncio.StreamWriter]] = []
        self._connections: set[asyncio.Task[None]] = set()
        self.should_hold: Callable[[int], bool] = lambda _: False

    @property
    def held(self) -> int:
        """How many requests are held back."""
        return len(self._held)

    def forward_held(self) -> None:
        """Send the requests that were held back to the broker; its responses are not read."""
        for request, writer in self._held:
            writer.write(request)
        self._held.clear()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection of a client in the background."""
        self._connections.add(asyncio.create_task(self._serve(reader, writer)))

    async def close(self) -> None:
        """Close all connections."""
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _to_broker.set(True)
        responses, requests = await asyncio.open_connection(*self._broker)
        _to_broker.set(False)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_copy(responses, writer))
                if not await self._forward(reader, requests):
                    writer.close()
        finally:
            for one in (requests, writer):
                one.close()
                with contextlib.suppress(ConnectionError):
                    await one.wait_closed()

    async def _forward(self, reader: asyncio.StreamReader, requests: asyncio.StreamWriter) -> bool:
        """Forward requests until the client closes its connection; return False if one was held back before."""
        # The client may close its connection at any time.
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = await _message(reader)
                if self.should_hold(struct.unpack(">h", request[4:6])[0]):
                    self._held.append((request, requests))
                    return False
                requests.write(request)
        requests.close()
        return True


async def _message(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(struct.unpack(">i", size)[0])


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            message = await _message(reader)
            if not writer.is_closing():
                writer.write(message)
    writer.close()


@contextlib.asynccontextmanager
async def proxied(broker: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Proxy]:
    """Let all connections to a broker from the running loop go through a proxy.

    A broker names its own address, so the clients are not given another one: their connections are redirected.
    """
    proxy, loop = Proxy(broker), asyncio.get_running_loop()
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connect: Callable[..., Awaitable[Any]] = loop.create_connection

    async def redirected(factory: Any, host: Any = None, to: Any = None, **options: Any) -> Any:
        at_broker = to == proxy._broker[1] and not _to_broker.get()
        return await connect(factory, host, port if at_broker else to, **options)

    monkeypatch.setattr(loop, "create_connection", redirected)
    try:
        yield proxy
    finally:
        monkeypatch.undo()
        server.close()
        await proxy.close()
