"""Connections that do not wait long for an address that never answers, while another one answers.

A stopped machine, a paused broker or a firewall that drops packets takes a connection, or not even that,
and says nothing. The client waits 40 s for it, and connects to no other broker meanwhile. Here it waits 2 s, then
longer, up to 10 s. All clients of the process then leave the address out for 10 s. Where no other address is known, the
client waits as long as it does by itself.

It depends on internals of aiokafka: ``client.create_conn`` and `AIOKafkaConnection`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from aiokafka import client as aiokafka_client
from aiokafka import errors as kafka_errors
from aiokafka.conn import AIOKafkaConnection, CloseReason, collect_hosts
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.group import JoinGroupRequest, SyncGroupRequest
from aiokafka.protocol.metadata import MetadataRequest

from shoal.observability import logger

CLIENT_ID_PREFIX = "shoal-"
"""How the ids of Shoal's clients begin. Other clients of the process connect as before."""

PATIENCE_S, LONGEST_S = 2.0, 10.0
"""Time limit of a step of connecting (s), at first and after some failures; brokers far away or busy need longer."""

LEFT_OUT_S = 10.0
"""Time for which no client tries an address again that did not answer (s)."""

ANSWER_S = 5.0
"""Time limit of a request that only this broker can answer, as the leader of a partition can (s)."""

_FOR_ANY_BROKER = (MetadataRequest, FindCoordinatorRequest)
_WAIT_FOR_OTHERS = (JoinGroupRequest, SyncGroupRequest)
"""Requests that a broker answers when the other members of the group have sent theirs."""

Address = tuple[str, int]

log = logger("kafka")


@dataclass
class _Silence:
    """An address that did not answer: how often in a row, when last, and until when it is left out (s, monotonic)."""

    count: int = 0
    noted_s: float = 0.0
    until_s: float = 0.0


class _Addresses:
    """What this process knows of the addresses of brokers."""

    def __init__(self) -> None:
        self.known: set[Address] = set()
        self.silent: dict[Address, _Silence] = {}

    def has_other(self, address: Address) -> bool:
        """Return whether another address is known that has not been silent."""
        return any(other != address and other not in self.silent for other in self.known)

    def patience_s(self, address: Address) -> float | None:
        """Return the time limit for an address; None if the client's own holds, since there is no other address."""
        if not self.has_other(address):
            return None
        silence = self.silent.get(address)
        return PATIENCE_S if silence is None else min(LONGEST_S, PATIENCE_S * 2**silence.count)

    def begin(self, address: Address) -> None:
        """Note an attempt; KafkaConnectionError if the address is left out now, or another client tries it."""
        self.known.add(address)
        silence = self.silent.get(address)
        if silence is None or not self.has_other(address):
            return
        if time.monotonic() < silence.until_s:
            raise kafka_errors.KafkaConnectionError(f"{address[0]}:{address[1]} does not answer")
        silence.until_s = time.monotonic() + LONGEST_S

    def note_silence(self, address: Address, began_s: float) -> None:
        """Leave an address out for some time; attempts that several clients make at once count once."""
        has_other, silence = self.has_other(address), self.silent.setdefault(address, _Silence())
        if silence.count == 0 and has_other:
            log.warning("a broker does not answer: the others are used", address=f"{address[0]}:{address[1]}")
        if began_s >= silence.noted_s:
            silence.count += 1
        silence.noted_s = time.monotonic()
        silence.until_s = silence.noted_s + LEFT_OUT_S

    def note_answer(self, address: Address) -> None:
        """Use an address again."""
        if self.silent.pop(address, None) is not None:
            log.info("a broker answers again", address=f"{address[0]}:{address[1]}")


_addresses = _Addresses()


class _Connection(AIOKafkaConnection):  # type: ignore[misc] # the client has no types
    """A connection that is closed if its broker does not answer a request in time, while others answer."""

    def send(self, request: Any, expect_response: bool = True) -> Awaitable[Any]:  # noqa: FBT001, FBT002, ANN401 - the client's
        answer: Awaitable[Any] = super().send(request, expect_response)
        if not expect_response or isinstance(request, _WAIT_FOR_OTHERS):
            return answer
        return self._limited(answer, is_for_any=isinstance(request, _FOR_ANY_BROKER))

    async def _limited(self, answer: Awaitable[Any], *, is_for_any: bool) -> Any:  # noqa: ANN401 - the client has no types
        address, began_s = (self.host, self.port), time.monotonic()
        patience_s = _addresses.patience_s(address)
        if patience_s is not None and not is_for_any:
            patience_s = max(patience_s, ANSWER_S)
        try:
            async with asyncio.timeout(patience_s):
                return await answer
        except TimeoutError:
            _addresses.note_silence(address, began_s)
            self.close(reason=CloseReason.CONNECTION_TIMEOUT)
            raise


async def _create_conn(host: str, port: int, **options: Any) -> AIOKafkaConnection:  # noqa: ANN401 - the client's own
    if not options.get("client_id", "").startswith(CLIENT_ID_PREFIX):
        return await _create_conn_of_client(host, port, **options)
    address, began_s = (host, port), time.monotonic()
    _addresses.begin(address)
    timeout_ms, patience_s = options["request_timeout_ms"], _addresses.patience_s(address)
    if patience_s is not None:
        options["request_timeout_ms"] = min(timeout_ms, patience_s * 1000)
    connection = _Connection(host, port, **options)
    try:
        await connection.connect()
    except TimeoutError:
        _addresses.note_silence(address, began_s)
        raise
    connection._request_timeout = timeout_ms / 1000  # noqa: SLF001 - of all later requests
    _addresses.note_answer(address)
    return connection


_create_conn_of_client: Any = aiokafka_client.create_conn


def without_silent(bootstrap_servers: str) -> list[str]:
    """Return the addresses that a new client of Shoal asks first: all but the silent ones, or all if none is left.

    From then on Shoal's clients connect as the module says.
    """
    aiokafka_client.create_conn = _create_conn
    addresses = [(host, port) for host, port, _ in collect_hosts(bootstrap_servers)]
    _addresses.known.update(addresses)
    answering = [address for address in addresses if address not in _addresses.silent]
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in answering or addresses]
