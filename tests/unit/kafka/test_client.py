"""Kafka clients: their ids, their errors, and their cancellations."""

from __future__ import annotations

import asyncio
import gc
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka import errors as kafka_errors
from shoal.errors import BrokerError, BrokerUnavailableError, GuaranteeError, InputError
from shoal.kafka import client as connection
from shoal.kafka.aiokafka_compat import LostResponseError
from shoal.kafka.client import task_exception, to_shoal_error
from shoal.policy import KafkaSection

pytestmark = pytest.mark.unit


async def cancelled_from_within() -> None:
    """As the client does: it cancels what it waits for, and lets that out."""
    waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waited.cancel()
    await waited


async def test_a_task_told_to_stop_has_not_failed() -> None:
    task = asyncio.create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task_exception(task) is None


async def test_a_task_cancelled_by_the_client_has_failed_with_a_retriable_error() -> None:
    task = asyncio.create_task(cancelled_from_within())
    await asyncio.wait({task})
    error = task_exception(task)
    assert isinstance(error, asyncio.CancelledError)
    assert isinstance(to_shoal_error(error), BrokerUnavailableError)


async def test_a_task_that_ended_has_not_failed() -> None:
    task: asyncio.Task[Any] = asyncio.create_task(asyncio.sleep(0))
    await asyncio.wait({task})
    assert task_exception(task) is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (InputError("words of ours"), InputError),
        (kafka_errors.KafkaConnectionError("secret"), BrokerUnavailableError),
        (OSError(111, "secret"), BrokerUnavailableError),
        (KeyError("secret"), GuaranteeError),
    ],
)
def test_client_errors_become_shoal_errors_without_their_text(error: Exception, kind: type[Exception]) -> None:
    found = to_shoal_error(error)
    assert isinstance(found, kind)
    assert "secret" not in str(found)


def test_a_lost_response_is_explained_by_the_end_of_a_session_where_there_are_sessions() -> None:
    words = "a connection ended before the broker answered a request of a transaction: connecting again"
    plain = KafkaSection(security_protocol="SSL")
    assert str(to_shoal_error(LostResponseError(), plain)) == words
    with_sessions = to_shoal_error(LostResponseError(), KafkaSection(security_protocol="SASL_SSL"))
    assert isinstance(with_sessions, BrokerUnavailableError)
    assert str(with_sessions) == (
        f"{words} (a broker does so at the end of a session: when an OAuth token expires, or after "
        "connections.max.reauth.ms)"
    )


async def test_a_broker_that_does_not_listen_is_reported_with_a_remedy(unused_tcp_port: int) -> None:
    address = f"127.0.0.1:{unused_tcp_port}"
    remedy = "check that a broker listens there, and that kafka.bootstrap_servers names it"
    with pytest.raises(BrokerUnavailableError, match=remedy) as caught:
        async with connection.admin(KafkaSection(bootstrap_servers=address, group="g")):
            pass
    assert f"the broker at {address} cannot be reached" in str(caught.value)


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ("one.invalid:9092,two.invalid:9092", "looked up: one.invalid, two.invalid; check kafka.bootstrap_servers"),
        ("one.invalid:9092,real.invalid:9092", "^the broker refused the credentials: check kafka.security_protocol$"),
    ],
)
async def test_an_unknown_name_of_a_broker_is_named(hosts: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless another address says more."""

    async def connect(host: str, *_: object, **__: object) -> None:
        if host == "real.invalid":
            raise kafka_errors.SaslAuthenticationFailed("secret")
        raise socket.gaierror(-2, "Name or service not known")

    async def start(_: object) -> None:
        raise kafka_errors.KafkaConnectionError("secret")

    monkeypatch.setattr(connection, "create_conn", connect)
    monkeypatch.setattr("shoal.kafka.client.AIOKafkaAdminClient.start", start)
    with pytest.raises(BrokerError, match=words):
        async with connection.admin(KafkaSection(bootstrap_servers=hosts, group="g")):
            pass


def test_an_unexpected_error_is_reported_by_class_and_line() -> None:
    with pytest.raises(ValueError, match="secret") as caught:
        int("secret")
    assert "ValueError at test_client.py:" in str(to_shoal_error(caught.value))


async def test_a_client_that_cancels_its_own_stop_does_not_cancel_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rash:
        def __init__(self) -> None:
            self._conns = {1: self}
            self.closed = False

        async def stop(self) -> None:
            await cancelled_from_within()

        def close(self) -> None:
            self.closed = True

    rash = Rash()
    monkeypatch.setattr(connection, "_network", lambda client: client)
    task = asyncio.create_task(connection.stop(cast("Any", rash), 1))
    await task
    assert rash.closed, "what it had not closed is cut off"


async def test_each_client_has_an_id_that_names_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    class Client:
        client = SimpleNamespace(send=None)

        def __init__(self, **options: Any) -> None:
            made.append(options)

        async def start(self) -> None:
            pass

        close = start

    monkeypatch.setattr(connection, "AIOKafkaProducer", Client)
    monkeypatch.setattr(connection, "AIOKafkaAdminClient", Client)
    settings = KafkaSection(input="in", output="out", group="g")
    connection.producer(settings, 7, 1000)
    async with connection.admin(settings):
        pass
    assert [options["client_id"] for options in made] == ["shoal-g-7", "shoal-g-admin"]
    assert made[0]["transactional_id"] == "g-in-7"


async def test_a_client_that_was_fenced_leaves_no_error_that_asyncio_logs() -> None:
    """The transaction reports the error. The client sets it on each batch that was not sent, too."""
    logged: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
    client = AIOKafkaProducer(bootstrap_servers="127.0.0.1:1")
    accumulator = client._message_accumulator
    sent = await accumulator.add_batch(accumulator.create_builder(), TopicPartition("out", 0), 1)
    accumulator.fail_all(kafka_errors.ProducerFenced())
    with pytest.raises(kafka_errors.ProducerFenced):
        await sent
    await connection.stop(client, 1)
    del accumulator, client, sent
    gc.collect()
    await asyncio.sleep(0)
    assert logged == []
