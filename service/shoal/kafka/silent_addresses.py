"""Connections that do not wait long for an address that never answers, while another one answers.

A stopped machine, a paused broker or a firewall that drops packets takes a connection, or not even that, and says
nothing. The client waits 40 s for it, and connects to no other broker meanwhile. Here it waits 2 s for a connection and
5 s for an answer. All clients of the process then leave the address out for 10 s, and wait longer at the next attempt,
so that a slow broker is used. Where no other address has answered lately, the client waits as long as by itself.

A name may have several addresses, as that of a load balancer or of IPv4 and IPv6. They are tried side by side: the
client would wait at the first one for the whole time.

It depends on internals of aiokafka: ``client.create_conn`` and `AIOKafkaConnection`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from aiokafka import client as aiokafka_client
from aiokafka import errors as kafka_errors
from aiokafka.conn import AIOKafkaConnection, CloseReason, collect_hosts
from aiokafka.protocol.admin import ApiVersionRequest, SaslAuthenticateRequest, SaslHandShakeRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.group import JoinGroupRequest, SyncGroupRequest
from aiokafka.protocol.metadata import MetadataRequest

from shoal.observability import is_out_of_descriptors, logger

CLIENT_ID_PREFIX = "shoal-"
"""How the ids of Shoal's clients begin. Other clients of the process connect as before."""

PATIENCE_S, LONGEST_S = 2.0, 10.0
"""Time limit of a step of connecting (s), at first and after some failures; brokers far away or busy need longer."""

ANSWER_S = 5.0
"""Time limit of a request that only this broker can answer, as the leader of a partition can, at first (s)."""

LEFT_OUT_S = 10.0
"""Time for which no client tries an address again that did not answer (s)."""

RECENT_S = 60.0
"""Time for which an answer shows that an address can be used, and a failure that it needs more time (s)."""

NEXT_S = 0.25
"""Time after which the next address of a name is tried as well (s)."""

_FOR_ANY_BROKER = (MetadataRequest, FindCoordinatorRequest)
_WAIT_FOR_OTHERS = (JoinGroupRequest, SyncGroupRequest)
"""Requests that a broker answers when the other members of the group have sent theirs."""
_OF_CONNECTING = (ApiVersionRequest, SaslHandShakeRequest, SaslAuthenticateRequest)
"""Requests with which a connection begins; its own time limit holds."""
_WITHOUT_LIMIT = (*_WAIT_FOR_OTHERS, *_OF_CONNECTING)

Address = tuple[str, int]

log = logger("kafka")


@dataclass
class _Silence:
    """An address that did not answer: how often, when last, and until when it is left out (s, monotonic)."""

    count: int = 0
    is_told: bool = False
    noted_s: float = 0.0
    until_s: float = 0.0


class _Addresses:
    """What this process knows of the addresses of brokers."""

    def __init__(self) -> None:
        self.bootstrap: set[Address] = set()
        self.silent: dict[Address, _Silence] = {}
        self._answered_s: dict[Address, float] = {}
        self.without_descriptor_s = -math.inf  # when a connection was last not opened for want of a file descriptor

    def is_left_out(self, address: Address) -> bool:
        """Return whether an address did not answer, and is not to be tried now."""
        silence = self.silent.get(address)
        return silence is not None and time.monotonic() < silence.until_s

    def has_other(self, address: Address, *, is_bootstrap: bool = False) -> bool:
        """Return whether another address has answered lately, or may be tried in place of one of the settings."""
        since_s = time.monotonic() - RECENT_S
        others = {other for other, answered_s in self._answered_s.items() if answered_s > since_s}
        others |= self.bootstrap if is_bootstrap else set()
        return any(other != address and not self.is_left_out(other) for other in others)

    def connect_s(self, address: Address, *, is_bootstrap: bool) -> float | None:
        """Return the time limit of a step of connecting; None if the client's own holds."""
        return min(LONGEST_S, self._grown(address)) if self.has_other(address, is_bootstrap=is_bootstrap) else None

    def answer_s(self, address: Address, *, is_for_any: bool) -> float | None:
        """Return the time limit of an answer; None if the client's own holds."""
        if not self.has_other(address):
            return None
        return max(PATIENCE_S if is_for_any else ANSWER_S, self._grown(address))

    def _grown(self, address: Address) -> float:
        silence = self.silent.get(address)
        return PATIENCE_S if silence is None else PATIENCE_S * float(2**silence.count)

    def begin(self, address: Address, *, is_bootstrap: bool) -> None:
        """Note an attempt; KafkaConnectionError if the address is left out now, or another client tries it."""
        silence = self.silent.get(address)
        if silence is None or not self.has_other(address, is_bootstrap=is_bootstrap):
            return
        if self.is_left_out(address):
            raise kafka_errors.KafkaConnectionError(f"{address[0]}:{address[1]} does not answer")
        silence.until_s = time.monotonic() + LONGEST_S

    def end(self, address: Address) -> None:
        """Note that an attempt has ended with an answer, or with an error that is none of silence."""
        if (silence := self.silent.get(address)) is not None:
            silence.until_s = 0.0

    def note_silence(self, address: Address, began_s: float) -> None:
        """Leave an address out for some time; attempts that several clients make at once count once."""
        silence = self.silent.setdefault(address, _Silence())
        if not silence.is_told:
            silence.is_told, name = True, f"{address[0]}:{address[1]}"
            log.warning("a broker does not answer in time: others are used if there are any", address=name)
        if began_s >= silence.noted_s:
            silence.count += 1
        silence.noted_s = time.monotonic()
        silence.until_s = silence.noted_s + LEFT_OUT_S
        self._answered_s.pop(address, None)

    def note_answer(self, address: Address) -> None:
        """Use an address again; forget its failures when the last of them is long ago."""
        self._answered_s[address] = time.monotonic()
        if (silence := self.silent.get(address)) is None:
            return
        if silence.is_told:
            log.info("a broker answers again", address=f"{address[0]}:{address[1]}")
        silence.until_s, silence.is_told = 0.0, False
        if self._answered_s[address] - silence.noted_s > RECENT_S:
            del self.silent[address]


_addresses = _Addresses()


class _SideBySide:
    """An event loop that connects to all addresses of a name, one after the other each `NEXT_S`; the first one wins."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._loop, name)

    async def create_connection(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - the loop's
        return await self._loop.create_connection(*arguments, happy_eyeballs_delay=NEXT_S, **options)


class _Connection(AIOKafkaConnection):  # type: ignore[misc] # the client has no types
    """A connection that is closed if its broker does not answer a request in time, while others answer."""

    def send(self, request: Any, expect_response: bool = True) -> Awaitable[Any]:  # noqa: FBT001, FBT002, ANN401 - the client's
        # An answer may be behind those of requests that were sent before.
        is_for_any = isinstance(request, _FOR_ANY_BROKER) and not self._requests
        answer: Awaitable[Any] = super().send(request, expect_response)
        if not expect_response or isinstance(request, _WITHOUT_LIMIT):
            return answer
        return self._limited(answer, is_for_any=is_for_any)

    async def _limited(self, answer: Awaitable[Any], *, is_for_any: bool) -> Any:  # noqa: ANN401 - the client has no types
        address, began_s = (self.host, self.port), time.monotonic()
        try:
            async with asyncio.timeout(_addresses.answer_s(address, is_for_any=is_for_any)):
                found = await answer
        except TimeoutError:
            _addresses.note_silence(address, began_s)
            self.close(reason=CloseReason.CONNECTION_TIMEOUT)
            # Not TimeoutError: the client would close what is then its connection to this broker, perhaps a new one.
            raise kafka_errors.RequestTimedOutError from None
        _addresses.note_answer(address)
        return found


async def _create_conn(host: str, port: int, **options: Any) -> AIOKafkaConnection:  # noqa: ANN401 - the client's own
    if not options.get("client_id", "").startswith(CLIENT_ID_PREFIX):
        return await _create_conn_of_client(host, port, **options)
    address, began_s, is_bootstrap = (host, port), time.monotonic(), "on_close" not in options
    _addresses.begin(address, is_bootstrap=is_bootstrap)
    timeout_ms, connect_s = options["request_timeout_ms"], _addresses.connect_s(address, is_bootstrap=is_bootstrap)
    if connect_s is not None:
        options["request_timeout_ms"] = min(timeout_ms, connect_s * 1000)
    connection = _Connection(host, port, **options)
    connection._loop = _SideBySide(connection._loop)  # noqa: SLF001 - the client passes no options
    try:
        await connection.connect()
    except TimeoutError:
        _addresses.note_silence(address, began_s)
        raise
    except BaseException as error:
        _addresses.end(address)
        if is_out_of_descriptors(error):
            # The client hides it.
            _addresses.without_descriptor_s = time.monotonic()
        raise
    connection._request_timeout = timeout_ms / 1000  # noqa: SLF001 - of all later requests
    _addresses.end(address)
    return connection


_create_conn_of_client: Any = aiokafka_client.create_conn


def lacked_descriptor() -> bool:
    """Return whether a connection was not opened lately because the process may open no more files."""
    return time.monotonic() - _addresses.without_descriptor_s < LEFT_OUT_S


def without_silent(bootstrap_servers: str) -> list[str]:
    """Return the addresses that a new client of Shoal asks first: all but the silent ones, or all if none is left.

    From then on Shoal's clients connect as the module says.
    """
    aiokafka_client.create_conn = _create_conn
    addresses = [(host, port) for host, port, _ in collect_hosts(bootstrap_servers)]
    _addresses.bootstrap.update(addresses)
    answering = [address for address in addresses if not _addresses.is_left_out(address)]
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in answering or addresses]
