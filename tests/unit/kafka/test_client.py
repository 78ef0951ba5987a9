"""Kafka clients: their ids and their first connection, their errors, and what is said of refusals."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.errors import KafkaTimeoutError
from shoal.errors import BrokerError, BrokerUnavailableError
from shoal.kafka import client, progress_copy, silent_addresses, start
from shoal.kafka.aiokafka_compat import LOST_RESPONSE
from shoal.kafka.client import (
    NotYetError,
    Operation,
    SharedReaders,
    asking,
    broker_error,
    connection_timeout_ms,
    fetching,
    join_refusals,
    leader_answer,
    log_bounds,
    shared_readers,
    task_exception,
    to_shoal_error,
)
from shoal.kafka.metadata import MetadataCipher
from shoal.kafka.progress_copy import ProgressCopy
from shoal.kafka.start import check_no_open_transaction
from shoal.policy import KafkaSection

pytestmark = pytest.mark.unit


async def cancelled_from_within() -> None:
    """As the client does: it cancels what it waits for, and lets that out."""
    waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waited.cancel()
    await waited


async def test_a_task_that_was_told_to_stop_has_not_failed() -> None:
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


def test_a_lost_response_is_explained_by_the_end_of_a_session_where_there_are_sessions() -> None:
    words = "a connection ended before the broker answered a request of a transaction: connecting again"
    plain = KafkaSection(security_protocol="SSL")
    lost = kafka_errors.KafkaError(LOST_RESPONSE)
    assert str(to_shoal_error(lost, plain)) == words
    with_sessions = to_shoal_error(lost, KafkaSection(security_protocol="SASL_SSL"))
    assert isinstance(with_sessions, BrokerUnavailableError)
    assert str(with_sessions) == (
        f"{words} (a broker does so at the end of a session: when an OAuth token expires, or after "
        "connections.max.reauth.ms)"
    )


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

    monkeypatch.setattr(client, "create_conn", connect)
    monkeypatch.setattr("shoal.kafka.client.AIOKafkaAdminClient.start", start)
    with pytest.raises(BrokerError, match=words):
        async with client.admin(KafkaSection(bootstrap_servers=hosts, group="g")):
            pass


def test_an_unexpected_error_is_reported_by_class_and_line() -> None:
    with pytest.raises(ValueError, match="secret") as caught:
        int("secret")
    assert "ValueError at test_client.py:" in str(to_shoal_error(caught.value))


@pytest.mark.parametrize("is_stuck", [False, True], ids=["cancels itself", "does not stop"])
async def test_a_client_that_cannot_stop_is_cut_off_and_does_not_cancel_the_caller(
    monkeypatch: pytest.MonkeyPatch,
    is_stuck: bool,  # noqa: FBT001
) -> None:
    class Client:
        def __init__(self) -> None:
            self._conns = {1: self}
            self._coordinator = self
            self._heartbeat_task = asyncio.create_task(asyncio.Event().wait())
            self.closed = False

        async def stop(self) -> None:
            await (asyncio.Event().wait() if is_stuck else cancelled_from_within())

        def close(self) -> None:
            self.closed = True

    stopped = Client()
    monkeypatch.setattr(client, "_network", lambda client: client)
    await asyncio.create_task(client.stop(cast("Any", stopped), 0.05))
    assert stopped.closed, "what it had not closed is cut off"
    await asyncio.wait({stopped._heartbeat_task}, timeout=5)
    assert stopped._heartbeat_task.cancelled()


async def test_a_client_that_was_fenced_leaves_no_error_that_asyncio_logs() -> None:
    """The transaction reports the error. The client sets it on each batch that was not sent, too."""
    logged: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
    producer = AIOKafkaProducer(bootstrap_servers="127.0.0.1:1")
    accumulator = producer._message_accumulator
    sent = await accumulator.add_batch(accumulator.create_builder(), TopicPartition("out", 0), 1)
    accumulator.fail_all(kafka_errors.ProducerFenced())
    with pytest.raises(kafka_errors.ProducerFenced):
        await sent
    await client.stop(producer, 1)
    del accumulator, producer, sent
    gc.collect()
    await asyncio.sleep(0)
    assert logged == []


# ---------------------------------------------------------------- the first connection


@pytest.mark.parametrize(
    ("servers", "patience_s", "timeout_ms"),
    [
        ("a:1", 300, 10_000),
        ("a:1", 4, 4000),
        ("a:1,b:1,c:1", 300, 10_000),
        ("a:1,b:1,c:1", 12, 4000),
        ("a:1,b:1,c:1", 2, 1000),
        ("a:1", 0, 1000),
    ],
)
def test_all_addresses_together_take_at_most_the_patience(servers: str, patience_s: float, timeout_ms: int) -> None:
    assert connection_timeout_ms(KafkaSection(bootstrap_servers=servers, patience_s=patience_s)) == timeout_ms


CLOSED = "connection to kafka:9093: check that this port is one for kafka.security_protocol"


@pytest.mark.parametrize(
    ("error", "settings", "kind", "words"),
    [
        (
            kafka_errors.UnsupportedSaslMechanismError("canary"),
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-256"},
            BrokerError,
            "the broker at kafka:9093 does not take SCRAM-SHA-256: set another kafka.sasl_mechanism",
        ),
        (
            kafka_errors.KafkaConnectionError("canary"),
            {},
            BrokerUnavailableError,
            f"the broker closed the {CLOSED} PLAINTEXT",
        ),
        (
            kafka_errors.KafkaConnectionError("canary"),
            {"security_protocol": "SSL"},
            BrokerUnavailableError,
            f"the broker closed the TLS {CLOSED} SSL, and whether it requires a client certificate, kafka.ssl_certfile",
        ),
    ],
)
def test_a_setting_that_the_broker_does_not_take_is_named_with_the_port(
    error: Exception, settings: dict[str, str], kind: type[BrokerError], words: str
) -> None:
    found = client.unfit_setting(error, KafkaSection.model_validate(settings), "kafka:9093")
    assert (type(found), str(found)) == (kind, words)
    assert client.unfit_setting(ConnectionRefusedError(), KafkaSection(), "kafka:9093") is None


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (10, "renew the certificate of the broker, or of the authority that signed it, and check this machine's clock"),
        (20, "check kafka.ssl_cafile, and that the certificate names the host in kafka.bootstrap_servers"),
    ],
)
def test_the_remedy_for_a_certificate_depends_on_what_is_wrong(code: int, remedy: str) -> None:
    error = ssl.SSLCertVerificationError()
    error.verify_code, error.verify_message = code, "words of OpenSSL"
    found = client.unfit_setting(error, KafkaSection(), "kafka:9093")
    assert str(found) == f"the certificate of the broker is not trusted (words of OpenSSL): {remedy}"


@pytest.mark.parametrize("is_hidden", [False, True])
def test_a_lack_of_file_descriptors_is_named_also_where_the_client_hides_it(
    is_hidden: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lack = OSError(errno.EMFILE, "words of the system")
    monkeypatch.setattr(silent_addresses._addresses, "without_descriptor_s", time.monotonic() if is_hidden else 0.0)
    monkeypatch.setattr(silent_addresses, "LEFT_OUT_S", 5.0)
    found = client.broker_error(kafka_errors.NodeNotReadyError() if is_hidden else lack)
    assert found.code == "descriptors"
    assert str(found).startswith("no file descriptor is left: raise the limit of open files, which is ")


# ---------------------------------------------------------------- permissions


SETTINGS = KafkaSection(input="in", output="out", evidence="proof", progress_copy="twin", group="g")
PAIRS = KafkaSection.model_validate(
    {
        "topics": [{"input": "in1", "output": "out1"}, {"input": "in2", "output": "out2"}],
        "evidence": "proof",
        "group": "g",
    }
)
TOPIC = kafka_errors.TopicAuthorizationFailedError
IDS = kafka_errors.TransactionalIdAuthorizationFailed


@pytest.mark.parametrize(
    ("error", "settings", "operation", "words"),
    [
        (TOPIC("out"), SETTINGS, "READ", "may not use topic out: grant READ on topic out in"),
        (TOPIC({"out"}), SETTINGS, "WRITE", "may not use topic out: grant WRITE on topic out in"),
        (TOPIC({"out", "proof"}), SETTINGS, "WRITE", "topic out, proof: grant WRITE on topics out, proof in"),
        # A producer only commits the offsets of its input.
        (TOPIC({"in", "twin"}), SETTINGS, "WRITE", "topic in, twin: grant READ on topic in and WRITE on topic twin in"),
        (TOPIC({"in2", "out2"}), PAIRS, "WRITE", "grant READ on topic in2 and WRITE on topic out2 in"),
        (TOPIC(), SETTINGS, "READ", "may not READ one of the topics in, out, proof, twin: grant READ on it in"),
        (TOPIC("other"), None, "WRITE", "may not WRITE one of the topics: grant WRITE on it in"),
        (kafka_errors.GroupAuthorizationFailedError(), SETTINGS, "WRITE", "use group g: grant READ on it in"),
        (kafka_errors.GroupAuthorizationFailedError("other"), None, "READ", "use the group: grant READ on it in"),
        (IDS("other"), SETTINGS, "WRITE", "transactional ids: grant WRITE on those with the prefix g-in- in"),
        (IDS(), PAIRS, "WRITE", "grant WRITE on those with the prefix g-in1- and g-in2- in"),
        (IDS(), None, "WRITE", "may not use its transactional ids: grant WRITE on those in"),
        (kafka_errors.ClusterAuthorizationFailedError(), SETTINGS, "WRITE", "grant IDEMPOTENT_WRITE on the cluster in"),
    ],
)
def test_a_refusal_names_the_resource_and_the_operation(
    error: Exception, settings: KafkaSection | None, operation: Operation, words: str
) -> None:
    refusal = broker_error(error, settings, operation)
    assert type(refusal) is BrokerError
    assert f"{words} the ACLs" in str(refusal)
    assert "other" not in str(refusal)


# ---------------------------------------------------------------- refusals of several partitions


def refused(topic: str, partition: int, words: str) -> tuple[TopicPartition, str]:
    return TopicPartition(topic, partition), f"{topic}-{partition}: {words}"


@pytest.mark.parametrize(
    ("refusals", "lines"),
    [
        ([refused("in", 3, "use --from")], ["in-3: use --from"]),
        (
            [refused("in", number, "use --from") for number in range(3)],
            ["in-0: use --from. The same holds for in-1, in-2"],
        ),
        (
            [refused("in", 0, "offset 17 of 20"), refused("in", 1, "offset 9 of 312")],
            ["in-0: offset 17 of 20. The same, with other offsets, holds for in-1"],
        ),
        (
            [
                refused("in1", 0, "lost"),
                refused("in1", 1, "use --from"),
                refused("in2", 0, "lost"),
                refused("in1", 2, "lost"),
            ],
            ["in1-0: lost. The same holds for in1-2", "in1-1: use --from", "in2-0: lost"],
        ),
    ],
    ids=["one", "the same text", "other offsets", "other texts and topics"],
)
def test_a_text_is_said_once_with_the_partitions_to_which_it_applies(
    refusals: list[tuple[TopicPartition, str]], lines: list[str]
) -> None:
    assert join_refusals(refusals).split("\n") == lines


@pytest.mark.parametrize(("count", "rest"), [(8, "in-6, in-7"), (9, "in-6, in-7 and 1 more"), (64, "in-7 and 56 more")])
def test_after_eight_partitions_the_others_are_counted(count: int, rest: str) -> None:
    found = join_refusals([refused("in", number, "use --from") for number in range(count)])
    assert found.count("in-") == 8
    assert found.endswith(rest)


# ---------------------------------------------------------------- leaders that do not answer


AWAY_SETTINGS = KafkaSection(input="in", output="out", group="g", progress_copy="copy")


class Silent:
    """A client whose leaders do not answer."""

    async def end_offsets(self, _: object) -> dict[TopicPartition, int]:
        await asyncio.Event().wait()
        raise AssertionError

    beginning_offsets = end_offsets


@asynccontextmanager
async def silent(*_: object, **__: object) -> AsyncIterator[Any]:
    yield Silent()


async def of_input() -> None:
    reader: Any = Silent()
    await log_bounds(reader, TopicPartition("in", 3))


async def of_output() -> None:
    await check_no_open_transaction(AWAY_SETTINGS, 3)


async def of_copy() -> None:
    await ProgressCopy(AWAY_SETTINGS, 3, MetadataCipher("g")).fetch()


@pytest.mark.parametrize(("ask", "name"), [(of_input, "in-3"), (of_output, "out-3"), (of_copy, "copy-3")])
async def test_a_leader_that_does_not_answer_is_not_waited_for_as_long_as_the_client_does(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Awaitable[None]], name: str
) -> None:
    monkeypatch.setattr(client, "ANSWER_S", 0.05)
    for module in (start, progress_copy):
        monkeypatch.setattr(module, "asking", silent)
    async with asyncio.timeout(5):
        with pytest.raises(NotYetError) as caught:
            await ask()
    assert str(caught.value) == f"{name}: no leader answers; look whether its broker runs and can be reached"


async def test_tasks_share_a_reader_of_each_isolation_level_and_without_sharing_each_opens_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    closed: list[str] = []

    @asynccontextmanager
    async def reading(_: object, isolation_level: str) -> AsyncIterator[str]:
        made.append(isolation_level)
        await asyncio.sleep(0)
        yield f"{isolation_level} {len(made)}"
        closed.append(isolation_level)

    async def ask(level: str) -> str:
        async with asking(AWAY_SETTINGS, level) as reader:
            return str(reader)

    async def ask_later() -> None:
        await asyncio.sleep(0.01)
        await ask("read_committed")

    levels = ["read_committed", "read_uncommitted"] * 2
    monkeypatch.setattr(client, "reading", reading)
    async with shared_readers():
        assert len(set(await asyncio.gather(*map(ask, levels)))) == 2
        assert (sorted(made), closed) == (levels[:2], [])
        with pytest.raises(BrokerError, match="grant READ on topic in "):
            async with asking(AWAY_SETTINGS):
                raise kafka_errors.TopicAuthorizationFailedError("in")
        later = asyncio.create_task(ask_later())
    assert sorted(closed) == levels[:2]
    await later
    assert (made.pop(), closed.pop()) == ("read_committed", "read_committed")
    await asyncio.gather(*map(ask, levels))
    assert (len(made), len(closed)) == (6, 6)


async def test_a_reader_that_cannot_be_opened_is_tried_once_for_all_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    @asynccontextmanager
    async def reading(_: object, isolation_level: str) -> AsyncIterator[str]:
        tried.append(isolation_level)
        await asyncio.sleep(0)
        if tried:
            raise kafka_errors.KafkaConnectionError
        yield ""

    async def ask() -> None:
        async with asking(AWAY_SETTINGS):
            pass

    monkeypatch.setattr(client, "reading", reading)
    async with shared_readers():
        failed = await asyncio.gather(*(ask() for _ in range(500)), return_exceptions=True)
        names = Counter(type(error).__name__ for error in failed)
        assert names == {"KafkaConnectionError": 1, "BrokerUnavailableError": 499}
    assert tried == ["read_committed"], "one after the other, each would wait for brokers that are silent"


class Fetching:
    """A reader that keeps what it is assigned, and what of it is paused."""

    def __init__(self) -> None:
        self.assigned: set[TopicPartition] = set()
        self.paused: set[TopicPartition] = set()
        self.is_closed = False

    def assignment(self) -> set[TopicPartition]:
        return self.assigned

    def pause(self, *partitions: TopicPartition) -> None:
        self.paused = set(partitions)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Fetching]:
    """Return the readers that `fetching` opens, all that there are in a test."""
    made: list[Fetching] = []

    @asynccontextmanager
    async def reading(_: object, **__: object) -> AsyncIterator[Fetching]:
        made.append(Fetching())
        yield (own := made[-1])
        own.is_closed = True

    async def stop(reader: Fetching, _: float) -> None:
        reader.is_closed = True

    monkeypatch.setattr(client, "reading", reading)
    monkeypatch.setattr(client, "stop", stop)
    return made


async def test_a_reader_that_fetches_serves_one_task_after_the_other_and_rests_paused(made: list[Fetching]) -> None:
    async def fetch(partition: int) -> None:
        async with fetching(AWAY_SETTINGS) as reader:
            assert not reader.is_closed
            reader.assigned = {TopicPartition("out", partition)}
            await asyncio.sleep(0.01)
            assert reader.assigned == {TopicPartition("out", partition)}, "no other task uses it meanwhile"

    shared = SharedReaders()
    async with shared_readers(shared):
        await fetch(0)
        assert made[0].paused == {TopicPartition("out", 0)}
        await fetch(1)
        assert len(made) == 1
        await asyncio.gather(fetch(2), fetch(3))
        assert len(made) == 2
        later = asyncio.create_task(fetch(4))
        async with shared_readers(shared):
            await fetch(5)
        assert not any(one.is_closed for one in made), "the outer context goes on"
        await later
        assert len(made) == 2
    assert all(one.is_closed for one in made)
    async with shared_readers(shared):
        await fetch(6)
    await fetch(7)
    assert (len(made), all(one.is_closed for one in made)) == (4, True)


async def test_few_readers_serve_many_tasks(made: list[Fetching]) -> None:
    async def fetch() -> None:
        async with fetching(AWAY_SETTINGS):
            await asyncio.sleep(0.001)

    async with shared_readers():
        await asyncio.gather(*(fetch() for _ in range(500)))
    assert len(made) == 8


async def test_a_reader_whose_task_has_failed_is_closed_and_not_used_again(made: list[Fetching]) -> None:
    async with shared_readers():
        with pytest.raises(BrokerError, match="grant READ on topic out"):
            async with fetching(AWAY_SETTINGS):
                raise kafka_errors.TopicAuthorizationFailedError("out")
        assert made[0].is_closed
        async with fetching(AWAY_SETTINGS) as reader:
            assert reader is made[1]


async def test_a_lack_of_file_descriptors_is_named_for_each_task_and_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def reading(_: object, isolation_level: str) -> AsyncIterator[str]:
        await asyncio.sleep(0)
        if isolation_level:
            raise kafka_errors.KafkaConnectionError
        yield ""

    async def ask() -> None:
        async with asking(AWAY_SETTINGS):
            pass

    monkeypatch.setattr(silent_addresses._addresses, "without_descriptor_s", time.monotonic())
    monkeypatch.setattr(client, "reading", reading)
    async with shared_readers():
        failed = await asyncio.gather(ask(), ask(), return_exceptions=True)
    error = failed[1]
    assert isinstance(error, BrokerUnavailableError)
    assert error.code == "descriptors"
    found = client.named(TopicPartition("in", 3), error)
    assert str(found).startswith("in-3: no file descriptor is left: raise the limit of open files, which is ")
    assert (found.code, found.brief[:29]) == ("descriptors", "no file descriptor is left: r")


async def test_a_client_that_has_waited_for_a_leader_itself_is_taken_for_the_same() -> None:
    with pytest.raises(NotYetError):
        async with leader_answer(TopicPartition("in", 3)):
            raise KafkaTimeoutError
