"""A request of a transaction whose response is lost is not sent again: its first copy may come in the next one."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import pytest
from shoal.errors import BrokerUnavailableError
from shoal.kafka.checks import TopicLayout
from shoal.kafka.transactions import TransactionalProducer, TransactionBatch
from shoal.policy import Policy
from shoal.streams import DecidedCluster
from support.kafka_broker import wait_until
from support.running import Stage

REQUESTS = {"AddPartitionsToTxn": 24, "AddOffsetsToTxn": 25, "EndTxn": 26, "TxnOffsetCommit": 28}


# ---------------------------------------------------------------- a proxy that loses requests

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


@pytest.fixture
async def proxy(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Proxy]:
    """Redirect all connections of the running loop to the broker through a proxy: a broker names its own address."""
    proxy, loop = Proxy(bootstrap), asyncio.get_running_loop()
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


# ---------------------------------------------------------------- tests


def producer_of(stage: Stage) -> TransactionalProducer:
    layout = TopicLayout(dict.fromkeys(stage.topics.values(), 1))
    return TransactionalProducer(Policy.load(stage.policy_file()), stage.settings(), 0, layout)


def batch(text: str) -> TransactionBatch:
    rows = [text.encode(), text.encode()]
    return TransactionBatch([DecidedCluster(0, [0, 1], rows, ("9",), 2, "ab12")])


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_late_copy_of_a_request_does_not_change_the_next_transaction(
    name: str, stage: Stage, proxy: Proxy
) -> None:
    async with asyncio.timeout(60):
        first, second = producer_of(stage), producer_of(stage)
        await first.open()
        await first.publish_and_commit(batch("one"), 2, "", 1_000)
        proxy.should_hold = lambda key: key == REQUESTS[name] and not proxy.held
        with pytest.raises(BrokerUnavailableError):
            await first.publish_and_commit(batch("two"), 4, "", 1_000)
        assert proxy.held == 1
        proxy.should_hold = lambda _: False
        await first.close()
        await second.open()
        proxy.forward_held()
        await second.publish_and_commit(batch("three"), 6, "", 1_000)
        await second.publish_and_commit(batch("four"), 8, "", 1_000)
        await second.close()

    async def has_all() -> bool:  # a broker answers before the end of a transaction is in each log
        return len(await stage.read()) >= 6

    await wait_until(has_all, 20, "the rows of three transactions")
    rows = [message.value for message in await stage.read()]
    assert rows == [b"one", b"one", b"three", b"three", b"four", b"four"]
    found = await stage.committed()
    assert found is not None
    assert found.offset == 8
