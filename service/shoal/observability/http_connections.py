"""The connections of the HTTP port: how many there may be, and how long one may take to send its first request.

Connections of idle or slow clients would otherwise use up the descriptors that the process needs for its brokers.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable

from shoal.observability.logs import logger

__all__ = ["HttpConnections", "mark_request"]

MAX_CONNECTIONS = 64
"""Far more than Prometheus, probes and readers of the status page open."""
REQUEST_S = 10.0
"""Time for the TLS handshake and the head of the first request (s)."""
BACKLOG = 128
PAUSE_S = 0.5
"""Pause after a connection could not be accepted (s): there may be no descriptor left."""

log = logger("http")


class HttpConnections:
    """Accepts connections and gives each to a handler.

    A connection that has sent no complete request after `REQUEST_S` is closed. If there are `MAX_CONNECTIONS`, a new
    one takes the place of the oldest that waits for a request, so that idle clients keep no probe out. It is refused
    if all others are being answered.

    Parameters
    ----------
    make_handler : callable
        Returns the protocol of a new connection.
    context : ssl.SSLContext or None
        For TLS; None for plain HTTP.
    """

    def __init__(self, make_handler: Callable[[], asyncio.Protocol], context: ssl.SSLContext | None) -> None:
        self._make_handler, self._context = make_handler, context
        self._listeners: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._open: dict[asyncio.Task[None], _Connection] = {}
        """The tasks that serve connections, oldest first."""
        self._has_warned = False

    async def listen(self, host: str, port: int) -> int:
        """Accept connections at every address of a host; return the port.

        Raises
        ------
        OSError
            The host is unknown, or an address of it cannot be bound.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        missing: int | None = None
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            try:
                listener = socket.create_server(address, family=family, backlog=BACKLOG)
            except OSError as error:
                # A name may have an address of IPv6 on a machine without it.
                missing = error.errno
                if missing not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                    raise
                continue
            listener.setblocking(False)
            self._listeners.append(listener)
        if missing is not None and not self._listeners:
            raise OSError(missing, os.strerror(missing))
        self._accepting = [asyncio.create_task(self._accept(listener)) for listener in self._listeners]
        return int(self._listeners[0].getsockname()[1])

    async def stop_listening(self) -> None:
        """Accept no more connections."""
        await _cancel(self._accepting)
        for listener in self._listeners:
            listener.close()

    async def close(self) -> None:
        """Cut off the connections that are still open."""
        await _cancel(list(self._open))

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(PAUSE_S)
                continue
            if len(self._open) >= MAX_CONNECTIONS and not await self._make_room():
                accepted.close()
                continue
            connection = _Connection(self._make_handler())
            serving = loop.create_task(self._serve(connection, accepted))
            self._open[serving] = connection
            serving.add_done_callback(self._open.pop)

    async def _make_room(self) -> bool:
        """Close the oldest connection that waits for a request; return False if there is none."""
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "too many connections to the HTTP port: the oldest that wait for a request are closed. Restrict access "
                "to the port",
                most=MAX_CONNECTIONS,
            )
        for serving, connection in self._open.items():
            if not connection.is_answered:
                await _cancel([serving])
                return True
        return False

    async def _serve(self, connection: _Connection, accepted: socket.socket) -> None:
        """Serve a connection until it is closed, by either side."""
        loop, is_tls = asyncio.get_running_loop(), self._context is not None
        try:
            async with asyncio.timeout(REQUEST_S):
                await loop.connect_accepted_socket(
                    lambda: connection,
                    accepted,
                    ssl=self._context,
                    ssl_handshake_timeout=REQUEST_S if is_tls else None,
                )
                await connection.has_request.wait()
            await connection.is_lost.wait()
        except OSError:
            pass  # the handshake failed, or there was no request in time (TimeoutError)
        finally:
            connection.cut_off()


class _Connection(asyncio.Protocol):
    """Passes everything on to the handler, and knows whether it answers a request."""

    def __init__(self, handler: asyncio.Protocol) -> None:
        self._handler = handler
        self._transport: asyncio.BaseTransport | None = None
        self.has_request, self.is_lost = asyncio.Event(), asyncio.Event()
        self.is_answered = False

    def cut_off(self) -> None:
        """Close the connection at once, also if the other side does not read."""
        if isinstance(self._transport, asyncio.Transport) and not self.is_lost.is_set():
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        return self._handler.eof_received()

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.has_request.set()
        self.is_lost.set()
        self._handler.connection_lost(exc)


def mark_request(transport: asyncio.BaseTransport | None, *, is_answered: bool) -> None:
    """Note that the connection of a transport has sent a complete request, and whether it is being answered."""
    connection = None if transport is None else transport.get_protocol()
    if isinstance(connection, _Connection):
        connection.is_answered = is_answered
        connection.has_request.set()


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
