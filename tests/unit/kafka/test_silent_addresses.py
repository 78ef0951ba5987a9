"""An address that never answers, beside one that does."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.group import JoinGroupRequest
from aiokafka.protocol.metadata import MetadataRequest
from shoal.kafka import silent_addresses

pytestmark = pytest.mark.unit

HOLE, GOOD = ("127.0.0.1", 1), ("127.0.0.1", 2)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(silent_addresses, "time", clock)
    return clock


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> silent_addresses._Addresses:
    made = silent_addresses._Addresses()
    monkeypatch.setattr(silent_addresses, "_addresses", made)
    return made


def fail(addresses: silent_addresses._Addresses, clock: Clock, times: int = 1) -> None:
    for _ in range(times):
        addresses.begin(HOLE)
        began_s = clock.now_s
        clock.now_s += 2.0
        addresses.note_silence(HOLE, began_s)


def test_an_address_is_given_more_time_at_each_attempt(addresses: silent_addresses._Addresses, clock: Clock) -> None:
    addresses.known.update({HOLE, GOOD})
    found = []
    for _ in range(5):
        found.append(addresses.patience_s(HOLE))
        fail(addresses, clock)
        clock.now_s += 10.0
    assert found == [2.0, 4.0, 8.0, 10.0, 10.0]
    addresses.note_answer(HOLE)
    assert addresses.patience_s(HOLE) == 2.0


def test_a_silent_address_is_left_out_for_ten_seconds(addresses: silent_addresses._Addresses, clock: Clock) -> None:
    addresses.known.update({HOLE, GOOD})
    fail(addresses, clock)
    clock.now_s += 9.9
    with pytest.raises(KafkaConnectionError):
        addresses.begin(HOLE)
    clock.now_s += 0.2
    addresses.begin(HOLE)
    with pytest.raises(KafkaConnectionError):
        addresses.begin(HOLE)  # while one client tries it, the others do not


def test_clients_that_fail_together_count_once(addresses: silent_addresses._Addresses, clock: Clock) -> None:
    addresses.known.update({HOLE, GOOD})
    clock.now_s += 2.0
    for _ in range(8):
        addresses.note_silence(HOLE, 100.0)
    assert addresses.patience_s(HOLE) == 4.0


def test_the_only_address_has_the_time_of_the_client(addresses: silent_addresses._Addresses, clock: Clock) -> None:
    fail(addresses, clock, 3)
    assert addresses.patience_s(HOLE) is None
    addresses.begin(HOLE)
    addresses.known.add(GOOD)
    addresses.note_silence(GOOD, clock.now_s)
    assert addresses.patience_s(HOLE) is None  # none of them answers


def test_a_new_client_asks_silent_addresses_last(addresses: silent_addresses._Addresses, clock: Clock) -> None:
    both = "127.0.0.1:1,127.0.0.1:2"
    assert sorted(silent_addresses.without_silent(both)) == ["127.0.0.1:1", "127.0.0.1:2"]
    addresses.note_silence(HOLE, clock.now_s)
    assert silent_addresses.without_silent(both) == ["127.0.0.1:2"]
    assert silent_addresses.without_silent("127.0.0.1:1") == ["127.0.0.1:1"]
    assert silent_addresses.without_silent("[::1]:9092") == ["[::1]:9092"]


# ---------------------------------------------------------------- sockets


async def test_a_connection_to_a_hole_fails_soon_and_then_at_once(
    addresses: silent_addresses._Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silent_addresses, "PATIENCE_S", 0.1)
    addresses.known.add(GOOD)
    options: dict[str, Any] = {"client_id": "shoal-group", "request_timeout_ms": 40_000}
    with socket.create_server(("127.0.0.1", 0)) as listening:  # takes connections, and never answers
        port = listening.getsockname()[1]
        with pytest.raises(TimeoutError):
            await silent_addresses._create_conn("127.0.0.1", port, **options)
        with pytest.raises(KafkaConnectionError):
            await silent_addresses._create_conn("127.0.0.1", port, **options)
        await asyncio.sleep(0.01)  # its transport is closed


async def test_other_clients_of_the_process_connect_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    async def create_conn(*given: object, **options: object) -> tuple[object, object]:
        return given, options

    monkeypatch.setattr(silent_addresses, "_create_conn_of_client", create_conn)
    found = await silent_addresses._create_conn("here", 1, client_id="aiokafka-0.13", request_timeout_ms=40_000)
    assert found == (("here", 1), {"client_id": "aiokafka-0.13", "request_timeout_ms": 40_000})


@pytest.mark.parametrize(("request_", "is_limited"), [(MetadataRequest([]), True), (JoinGroupRequest, False)])
async def test_a_request_has_a_limit_unless_its_answer_depends_on_other_members(
    addresses: silent_addresses._Addresses, monkeypatch: pytest.MonkeyPatch, request_: Any, *, is_limited: bool
) -> None:
    if request_ is JoinGroupRequest:
        request_ = JoinGroupRequest.__new__(JoinGroupRequest)
    monkeypatch.setattr(silent_addresses, "PATIENCE_S", 0.05)
    monkeypatch.setattr(AIOKafkaConnection, "send", lambda *_: asyncio.get_running_loop().create_future())
    connection = silent_addresses._Connection("127.0.0.1", 1)
    addresses.known.update({HOLE, GOOD})
    answer = asyncio.ensure_future(connection.send(request_))
    await asyncio.sleep(0.2)
    assert answer.done() == is_limited
    answer.cancel()
    assert (HOLE in addresses.silent) == is_limited
