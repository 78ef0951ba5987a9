"""An address that never answers, beside one that does."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import pytest
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError, RequestTimedOutError
from aiokafka.protocol.admin import ApiVersionRequest
from aiokafka.protocol.group import JoinGroupRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest
from shoal.kafka import silent_addresses
from structlog.testing import capture_logs

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
        addresses.note_answer(GOOD)
        addresses.begin(HOLE, is_bootstrap=False)
        began_s = clock.now_s
        clock.now_s += 2.0
        addresses.note_silence(HOLE, began_s)


def limits(addresses: silent_addresses._Addresses) -> tuple[float | None, float | None, float | None]:
    """The limits of connecting, of an answer of any broker, and of one of this broker."""
    connect_s = addresses.connect_s(HOLE, is_bootstrap=False)
    return connect_s, addresses.answer_s(HOLE, is_for_any=True), addresses.answer_s(HOLE, is_for_any=False)


def test_an_address_is_given_more_time_at_each_attempt(addresses: silent_addresses._Addresses, clock: Clock) -> None:
    addresses.note_answer(GOOD)
    found = [limits(addresses)]
    for _ in range(4):
        fail(addresses, clock)
        found.append(limits(addresses))
        clock.now_s += 10.0
    assert found == [(2.0, 2.0, 5.0), (4.0, 4.0, 5.0), (8.0, 8.0, 8.0), (10.0, 16.0, 16.0), (10.0, 32.0, 32.0)]


def test_a_slow_broker_keeps_its_longer_limit_for_a_minute(
    addresses: silent_addresses._Addresses, clock: Clock
) -> None:
    fail(addresses, clock, 1)
    for _ in range(6):
        clock.now_s += 10.0
        addresses.note_answer(GOOD)
        addresses.note_answer(HOLE)
        assert limits(addresses) == (4.0, 4.0, 5.0)
        assert not addresses.is_left_out(HOLE)
    clock.now_s += 1.0
    addresses.note_answer(HOLE)
    assert limits(addresses) == (2.0, 2.0, 5.0)


def test_a_silent_address_is_left_out_for_ten_seconds(addresses: silent_addresses._Addresses, clock: Clock) -> None:
    fail(addresses, clock)
    clock.now_s += 9.9
    with pytest.raises(KafkaConnectionError):
        addresses.begin(HOLE, is_bootstrap=False)
    clock.now_s += 0.2
    addresses.begin(HOLE, is_bootstrap=False)
    with pytest.raises(KafkaConnectionError):
        addresses.begin(HOLE, is_bootstrap=False)  # while one client tries it, the others do not
    addresses.end(HOLE)  # as a refused connection does, which is no silence
    addresses.begin(HOLE, is_bootstrap=False)


def test_clients_that_fail_together_count_once(addresses: silent_addresses._Addresses, clock: Clock) -> None:
    addresses.note_answer(GOOD)
    clock.now_s += 2.0
    for _ in range(8):
        addresses.note_silence(HOLE, 100.0)
    assert limits(addresses) == (4.0, 4.0, 5.0)


def test_silence_and_its_end_are_told_once_each(addresses: silent_addresses._Addresses, clock: Clock) -> None:
    with capture_logs() as lines:
        for _ in range(2):
            fail(addresses, clock)
            clock.now_s += 10.1
            for _ in range(3):  # clients that connect one after the other
                addresses.begin(HOLE, is_bootstrap=False)
                addresses.note_answer(HOLE)
    silent = "a broker does not answer in time: others are used if there are any"
    assert [(one["event"], one["address"]) for one in lines] == [
        (silent, "127.0.0.1:1"),
        ("a broker answers again", "127.0.0.1:1"),
        (silent, "127.0.0.1:1"),
        ("a broker answers again", "127.0.0.1:1"),
    ]


def test_without_another_address_that_answers_the_time_is_that_of_the_client(
    addresses: silent_addresses._Addresses, clock: Clock
) -> None:
    addresses.note_silence(HOLE, clock.now_s)
    assert limits(addresses) == (None, None, None)
    addresses.begin(HOLE, is_bootstrap=False)
    addresses.note_answer(GOOD)
    assert limits(addresses) != (None, None, None)
    clock.now_s += 61.0  # the other has not answered lately
    assert limits(addresses) == (None, None, None)
    addresses.note_answer(GOOD)
    addresses.note_silence(GOOD, clock.now_s)
    assert limits(addresses) == (None, None, None)  # none of them answers


def test_a_start_tries_each_address_of_the_settings_briefly(
    addresses: silent_addresses._Addresses, clock: Clock
) -> None:
    assert silent_addresses.without_silent("127.0.0.1:1") == ["127.0.0.1:1"]
    assert addresses.connect_s(HOLE, is_bootstrap=True) is None
    both = "127.0.0.1:1,127.0.0.1:2"
    assert sorted(silent_addresses.without_silent(both)) == ["127.0.0.1:1", "127.0.0.1:2"]
    assert addresses.connect_s(HOLE, is_bootstrap=True) == 2.0
    assert addresses.connect_s(HOLE, is_bootstrap=False) is None
    addresses.note_silence(HOLE, clock.now_s)
    assert silent_addresses.without_silent(both) == ["127.0.0.1:2"]
    assert silent_addresses.without_silent("127.0.0.1:1") == ["127.0.0.1:1"]
    assert silent_addresses.without_silent("[::1]:9092") == ["[::1]:9092"]


# ---------------------------------------------------------------- sockets


async def test_a_connection_to_a_hole_fails_soon_and_then_at_once(
    addresses: silent_addresses._Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silent_addresses, "PATIENCE_S", 0.1)
    addresses.note_answer(GOOD)
    options: dict[str, Any] = {"client_id": "shoal-group", "request_timeout_ms": 40_000}
    with socket.create_server(("127.0.0.1", 0)) as listening:  # takes connections, and never answers
        port = listening.getsockname()[1]
        with pytest.raises(TimeoutError):
            await silent_addresses._create_conn("127.0.0.1", port, **options)
        with pytest.raises(KafkaConnectionError):
            await silent_addresses._create_conn("127.0.0.1", port, **options)
        await asyncio.sleep(0.01)  # its transport is closed


async def test_the_addresses_of_a_name_are_tried_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_versions(_: object) -> None: ...

    async def resolved(*_: object, **__: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", one.getsockname()) for one in (full, good)]

    monkeypatch.setattr(AIOKafkaConnection, "_do_version_lookup", no_versions)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolved)
    with socket.socket() as full, socket.create_server(("127.0.0.1", 0)) as good, socket.socket() as client:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        client.connect(full.getsockname())  # its queue is full: packets of others are dropped
        began_s = time.monotonic()
        connection = await silent_addresses._create_conn(
            "kafka.test", 9092, client_id="shoal-g", request_timeout_ms=5000
        )
        took_s, found = time.monotonic() - began_s, connection._writer.get_extra_info("peername")
        await connection.close()
        assert (found, took_s < 2.0) == (good.getsockname(), True)


async def test_other_clients_of_the_process_connect_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    async def create_conn(*given: object, **options: object) -> tuple[object, object]:
        return given, options

    monkeypatch.setattr(silent_addresses, "_create_conn_of_client", create_conn)
    found = await silent_addresses._create_conn("here", 1, client_id="aiokafka-0.13", request_timeout_ms=40_000)
    assert found == (("here", 1), {"client_id": "aiokafka-0.13", "request_timeout_ms": 40_000})


@pytest.mark.parametrize(
    ("request_", "limit_s"),
    [(MetadataRequest([]), 0.05), (OffsetRequest, 0.15), (JoinGroupRequest, None), (ApiVersionRequest(), None)],
)
async def test_a_request_has_a_limit_unless_its_answer_depends_on_other_members(
    addresses: silent_addresses._Addresses, monkeypatch: pytest.MonkeyPatch, request_: Any, limit_s: float | None
) -> None:
    request_ = object.__new__(request_) if isinstance(request_, type) else request_
    monkeypatch.setattr(silent_addresses, "PATIENCE_S", 0.05)
    monkeypatch.setattr(silent_addresses, "ANSWER_S", 0.15)
    monkeypatch.setattr(AIOKafkaConnection, "send", lambda *_: asyncio.get_running_loop().create_future())
    connection = silent_addresses._Connection("127.0.0.1", 1)
    addresses.note_answer(GOOD)
    answer = asyncio.ensure_future(connection.send(request_))
    began_s = time.monotonic()
    done, _ = await asyncio.wait({answer}, timeout=0.3)
    assert bool(done) == (limit_s is not None)
    answer.cancel()
    if limit_s is not None:
        assert time.monotonic() - began_s >= limit_s
        assert isinstance(answer.exception(), RequestTimedOutError)
    assert addresses.is_left_out(HOLE) == (limit_s is not None)


async def test_metadata_behind_other_requests_has_the_longer_limit(
    addresses: silent_addresses._Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AIOKafkaConnection, "send", lambda *_: asyncio.get_running_loop().create_future())
    given: list[bool] = []
    monkeypatch.setattr(addresses, "answer_s", lambda _, is_for_any: given.append(is_for_any))
    connection = silent_addresses._Connection("127.0.0.1", 1)
    for pending in (0, 1):
        connection._requests.extend(range(pending))
        answer = asyncio.ensure_future(connection.send(MetadataRequest([])))
        await asyncio.sleep(0)
        answer.cancel()
    connection._requests.clear()
    assert given == [True, False]
