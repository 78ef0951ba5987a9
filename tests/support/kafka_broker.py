"""A real broker for tests, and the few things tests do with one: topics, messages in, messages out, waiting."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import inspect
import os
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypeVar, cast, overload

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from aiokafka.protocol.group import LeaveGroupRequest

LONGEST_EVALUATION_S = 2.0
"""Time that one evaluation of a condition counts for at most (s)."""

LOCAL = Path(__file__).resolve().parents[2] / "deploy" / "kafka" / "local.py"
Headers = Sequence[tuple[str, bytes]]
Isolation = Literal["read_committed", "read_uncommitted"]
Truth = TypeVar("Truth")
Value = TypeVar("Value")


class Message(NamedTuple):
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class Wanted(NamedTuple):
    """A topic to be created."""

    partitions: int = 1
    configs: Mapping[str, str] | None = None
    name: str | None = None
    replicas: Sequence[int] = ()


def load_local() -> ModuleType:
    name = "deploy_kafka_local"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, LOCAL)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@contextmanager
def broker() -> Iterator[str]:
    """Address of a broker: the one named by the environment, else the local one, started if it does not run."""
    given = os.environ.get("SHOAL_TEST_BROKER") or os.environ.get("SHOAL_KAFKA__BOOTSTRAP_SERVERS")
    if given:
        yield given
        return
    local = load_local()
    with local.borrowed(local.BUILD / "run") as bootstrap:
        yield bootstrap


@asynccontextmanager
async def admin(bootstrap: str) -> AsyncIterator[Any]:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def forget_members(bootstrap: str, group: str) -> None:
    """Remove killed members of a group, for which a drain would wait; a broker that cannot answer is left alone."""
    async with admin(bootstrap) as client:
        with contextlib.suppress(KafkaError):
            coordinator = await client.find_coordinator(group)
            (response,) = await client.describe_consumer_groups([group], coordinator)
            ((_, _, _, _, _, members, *_),) = response.groups
            for member, *_ in members:
                await client._send_request(LeaveGroupRequest(group, member), coordinator)


async def create_topic(
    bootstrap: str,
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
    name: str | None = None,
    replicas: Sequence[int] = (),
) -> str:
    """Create a topic with up to three replicas, or on these brokers, and wait until its partitions have leaders."""
    (topic,) = await create_topics(bootstrap, [Wanted(partitions, configs, name, replicas)])
    return topic


async def create_topics(bootstrap: str, wanted: Sequence[Wanted]) -> list[str]:
    """Create several topics in one request, and wait until all their partitions have leaders; return their names."""
    names = [one.name or f"test-{uuid.uuid4().hex[:12]}" for one in wanted]
    async with admin(bootstrap) as client:
        replicas = min(3, len(client._client.cluster.brokers()))
        new = []
        for name, one in zip(names, wanted, strict=True):
            configs = dict(one.configs or {})
            if one.replicas:
                assigned = {partition: list(one.replicas) for partition in range(one.partitions)}
                new.append(NewTopic(name, -1, -1, replica_assignments=assigned, topic_configs=configs))
            else:
                new.append(NewTopic(name, one.partitions, replicas, topic_configs=configs))
        answer = await client.create_topics(new)
        for error in answer.topic_errors:
            assert error[1] == 0, error

        async def are_led() -> bool:
            found = [one for topic in await client.describe_topics(names) for one in topic["partitions"]]
            led = [one for one in found if one["error_code"] == 0 and one["leader"] >= 0]
            return len(led) == sum(one.partitions for one in wanted)

        await wait_until(are_led)
    return names


async def produce(
    bootstrap: str,
    topic: str,
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Headers] | None = None,
    timestamps_ms: Sequence[int] | None = None,
    partitions: int | Sequence[int] | None = None,
    transactional_id: str | None = None,
    abort: bool = False,
    **options: Any,
) -> list[tuple[int, int]]:
    """Send messages in order, in a transaction if it has an id; return (partition, offset) of each."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id, **options) as producer:
        if transactional_id is not None:
            await producer.begin_transaction()
        sent = [
            await producer.send(
                topic,
                value,
                key=None if keys is None else keys[index],
                headers=None if headers is None else list(headers[index]),
                timestamp_ms=None if timestamps_ms is None else timestamps_ms[index],
                partition=partitions if partitions is None or isinstance(partitions, int) else partitions[index],
            )
            for index, value in enumerate(values)
        ]
        record_ids = [(one.partition, one.offset) for one in await asyncio.gather(*sent)]
        if transactional_id is not None:
            await (producer.abort_transaction() if abort else producer.commit_transaction())
    if transactional_id is not None:
        await wait_until(lambda: _have_markers(bootstrap, topic, record_ids), what="the end of the transaction")
    return record_ids


@asynccontextmanager
async def open_transaction(
    bootstrap: str, topic: str, value: bytes, partition: int = 0, key: bytes | None = None
) -> AsyncIterator[None]:
    """Keep a transaction open that has sent one message; it is aborted at the end of the context."""
    transactional_id = f"open-{uuid.uuid4().hex[:12]}"
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, value, key=key, partition=partition)
        yield
        await producer.abort_transaction()


async def _have_markers(bootstrap: str, topic: str, record_ids: list[tuple[int, int]]) -> bool:
    """Whether an offset follows each message: Kafka acknowledges the end of a transaction before it can be seen."""
    ends = await end_offsets(bootstrap, topic, "read_uncommitted")
    return all(ends[partition] > offset + 1 for partition, offset in record_ids)


async def is_shown(bootstrap: str, *topics: str) -> bool:
    """Whether readers see all that was committed: Kafka acknowledges the end of a transaction a moment before."""
    return await _ends(bootstrap, topics, "read_committed") == await _ends(bootstrap, topics, "read_uncommitted")


async def end_offsets(bootstrap: str, topic: str, isolation: Isolation = "read_committed") -> dict[int, int]:
    """Where each partition ends for such a reader: last stable offset or high watermark."""
    return {one.partition: offset for one, offset in (await _ends(bootstrap, [topic], isolation)).items()}


async def _ends(bootstrap: str, topics: Sequence[str], isolation: Isolation) -> dict[TopicPartition, int]:
    async with _reading(bootstrap, isolation) as consumer:
        partitions = [one for topic in topics for one in await _partitions(consumer, topic)]
        return dict(await consumer.end_offsets(partitions))


@asynccontextmanager
async def _reading(bootstrap: str, isolation: Isolation) -> AsyncIterator[Any]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level=isolation, auto_offset_reset="earliest", fetch_max_wait_ms=50
    )
    try:
        await consumer.start()
        yield consumer
    finally:
        # Also where its start was cut off: what is left open fails whichever test runs when it is collected.
        await consumer.stop()


async def read_all(
    bootstrap: str, topic: str, isolation: Isolation = "read_committed", known: Sequence[Message] = ()
) -> list[Message]:
    """Read a topic to its present end, ordered by partition and offset; ``known`` messages are not read again."""
    async with _reading(bootstrap, isolation) as consumer:
        assigned = await _partitions(consumer, topic)
        consumer.assign(assigned)
        ends = await consumer.end_offsets(assigned)
        found = list(known)
        for partition, offset in {message.partition: message.offset for message in known}.items():
            consumer.seek(TopicPartition(topic, partition), offset + 1)
        while any([await consumer.position(one) < end for one, end in ends.items()]):
            for one, messages in (await consumer.getmany(timeout_ms=200)).items():
                found += [
                    Message(one.partition, m.offset, m.timestamp, m.key, m.value, tuple(m.headers))
                    for m in messages
                    if m.offset < ends[one]
                ]
    return sorted(found, key=lambda message: message[:2])


@overload
async def wait_until(
    condition: Callable[[], Awaitable[Truth]], timeout_s: float = 30.0, what: str = "the condition"
) -> Truth: ...


@overload
async def wait_until(condition: Callable[[], Truth], timeout_s: float = 30.0, what: str = "the condition") -> Truth: ...


async def wait_until(
    condition: Callable[[], Truth] | Callable[[], Awaitable[Truth]],
    timeout_s: float = 30.0,
    what: str = "the condition",
) -> Truth:
    """Wait until a condition (plain or async) is true; one evaluation counts as `LONGEST_EVALUATION_S` at most."""
    waited = 0.0
    while True:
        began = time.monotonic()
        said = condition()
        truth = await said if inspect.isawaitable(said) else said
        if truth:
            return cast("Truth", truth)
        if waited > timeout_s:
            raise TimeoutError(f"{what} did not come true within {timeout_s} s")
        await asyncio.sleep(min(0.2, max(0.03, waited / 4)))
        waited += min(LONGEST_EVALUATION_S, time.monotonic() - began)


async def wait_for(
    read: Callable[[], Awaitable[Value]], fits: Callable[[Value], bool], timeout_s: float = 30.0, what: str = "a value"
) -> None:
    async def is_so() -> bool:
        return fits(await read())

    await wait_until(is_so, timeout_s, what)


async def holds_for(condition: Callable[[], bool] | Callable[[], Awaitable[bool]], length_s: float) -> bool:
    """Return whether a condition (plain or async) is true now and at each look for so long; False at the first not."""
    end = time.monotonic() + length_s
    while True:
        is_last = time.monotonic() >= end
        said = condition()
        if not (await said if inspect.isawaitable(said) else said):
            return False
        if is_last:
            return True
        await asyncio.sleep(0.1)


async def _partitions(consumer: Any, topic: str) -> list[Any]:
    async def known() -> set[int]:
        await consumer._client.force_metadata_update()
        return set(consumer.partitions_for_topic(topic) or ())

    consumer._client.add_topic(topic)
    return [TopicPartition(topic, one) for one in sorted(await wait_until(known, what=f"topic {topic}"))]
