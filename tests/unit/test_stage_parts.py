"""Parts of the stage without a broker: what it refuses, what it takes for a record, how clusters pass over the desk."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import faust
import pytest
from faust.types import TP
from shoal.errors import ConfigError, GuaranteeError, InputError, PolicyError
from shoal.flow import Cluster as Decided
from shoal.kafka import WithdrawnError
from shoal.stage import anonymize
from shoal.stage.desk import Desk
from shoal.stage.host import READ_COMMITTED, Host
from shoal.stage.inflow import Arrived, Inflow
from shoal.stage.keeper import Keeper

CANARY = "xq7canary9z"
ATTRIBUTES = {
    "who": {"role": "identifier", "subject": True},
    "age": {"role": "quasi_identifier", "scale": "numeric", "bounds": [0, 110], "integer": True},
}


class Visit(faust.Record, serializer="json"):
    who: str
    age: int


def policy_file(folder: Path, **kafka: str) -> Path:
    path = folder / "policy.yaml"
    document = {"attributes": ATTRIBUTES, "privacy": {"k": 3}, "stream": {"delta": 20}, "kafka": kafka}
    path.write_text(json.dumps(document))
    return path


def app_of(folder: Path, **options: Any) -> faust.App:
    return faust.App("group", broker="kafka://one:1;kafka://two:2", datadir=str(folder), **options)


async def test_what_the_policy_leaves_out_is_the_apps(tmp_path: Path) -> None:
    app = app_of(tmp_path)
    clusters = anonymize(app.topic("visits", acks=False).stream(), policy_file(tmp_path), to=app.topic("out"))
    settings = clusters._plan.settings
    assert (settings.bootstrap_servers, settings.input, settings.group) == ("one:1,two:2", "visits", "group")
    assert settings.output == "out"


@pytest.mark.parametrize(
    ("kafka", "to", "field"),
    [({"group": "other"}, None, "group"), ({"input": "other"}, None, "input"), ({"output": "other"}, "out", "output")],
)
async def test_a_policy_of_another_app_is_refused(
    tmp_path: Path, kafka: dict[str, str], to: str | None, field: str
) -> None:
    stream = app_of(tmp_path).topic("visits", acks=False).stream()
    with pytest.raises(PolicyError, match=rf"kafka\.{field}: the app says"):
        anonymize(stream, policy_file(tmp_path, **kafka), to=to)


async def test_acks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="acks=False"):
        anonymize(app_of(tmp_path).topic("visits").stream(), policy_file(tmp_path))


async def test_acks_of_another_agent_are_refused(tmp_path: Path) -> None:
    app = app_of(tmp_path)
    app.topic("visits").stream()
    conductor: Any = app.topics
    await conductor._update_indices()
    with pytest.raises(ConfigError, match="another agent"):
        anonymize(app.topic("visits", acks=False).stream(), policy_file(tmp_path))


async def test_transactions_of_faust_are_refused(tmp_path: Path) -> None:
    app = app_of(tmp_path, processing_guarantee="exactly_once")
    with pytest.raises(ConfigError, match="at_least_once"):
        anonymize(app.topic("visits", acks=False).stream(), policy_file(tmp_path))


async def test_what_was_filtered_before_is_refused(tmp_path: Path) -> None:
    stream: Any = app_of(tmp_path).topic("visits", acks=False).stream()
    stream.filter(bool)
    with pytest.raises(ConfigError, match="as it is"):
        anonymize(stream, policy_file(tmp_path))


async def test_several_topics_channels_and_actors_are_refused(tmp_path: Path) -> None:
    app = app_of(tmp_path)
    for stream in (
        app.topic("one", "two", acks=False).stream(),
        app.topic(pattern="v.*", acks=False).stream(),
        app.channel().stream(),
        app.topic("visits", acks=False).stream(concurrency_index=1),
    ):
        with pytest.raises(ConfigError, match=re.compile("one topic|concurrency=1")):
            anonymize(stream, policy_file(tmp_path))


@pytest.mark.parametrize(
    ("serializer", "value", "raw", "read"),
    [
        ("json", Visit(who="a", age=1), b'{"who":"a",  "age":1}', b'{"who":"a",  "age":1}'),
        ("raw", b'{"who": 1}', b'{"who": 1}', b'{"who": 1}'),
        ("json", None, None, None),
        ("json", None, b"no json", b"no json"),
        ("json", {}, b'{"who":"a","__faust":{"ns":"x.Visit"}}', b'{"who":"a","__faust":{"ns":"x.Visit"}}'),
        ("yaml", Visit(who="a", age=1), b"\x80", b'{"who":"a","age":1}'),
        ("yaml", {"who": "a"}, b"\x80", b'{"who":"a"}'),
        ("yaml", object(), b"\x80", b"\x80"),
        ("yaml", None, b"\x80", b"\x80"),
    ],
)
async def test_the_bytes_of_the_topic_are_the_record(
    tmp_path: Path, serializer: str, value: Any, raw: bytes | None, read: bytes | None
) -> None:
    topic = app_of(tmp_path).topic("visits", acks=False, value_serializer=serializer)
    assert Host(topic.stream())._bytes(value, raw) == read


# ---------------------------------------------------------------- the app's consumer


class Consumer:
    """What the stage asks of the app's consumer; ``level`` is what its fetcher reads."""

    def __init__(self, level: object = 0) -> None:
        fetcher = SimpleNamespace(_isolation_level=level, _pending_tasks=set())
        self._thread = SimpleNamespace(_consumer=SimpleNamespace(_fetcher=fetcher))
        self._paused_partitions: set[TP] = set()
        self.did: list[tuple[str, Any]] = []

    def assignment(self) -> set[TP]:
        return {TP("visits", 0)}

    def pause_partitions(self, places: set[TP]) -> None:
        self.did.append(("pause", places))

    def resume_partitions(self, places: set[TP]) -> None:
        self.did.append(("resume", places))

    async def seek_wait(self, offsets: dict[TP, int]) -> None:
        self.did.append(("seek", offsets))


def host_of(folder: Path, consumer: Consumer) -> Host:
    host = Host(app_of(folder).topic("visits", acks=False).stream())
    host.app = SimpleNamespace(consumer=consumer, rebalancing=False, rebalancing_count=1)
    return host


@pytest.mark.parametrize("level", [None, "read_committed", 7])
async def test_a_client_that_cannot_be_told_to_read_committed_records_is_refused(tmp_path: Path, level: object) -> None:
    consumer = Consumer(level)
    with pytest.raises(ConfigError, match="cannot be told"):
        await host_of(tmp_path, consumer).read_committed()
    del consumer._thread._consumer._fetcher._isolation_level
    with pytest.raises(ConfigError, match="cannot be told"):
        await host_of(tmp_path, consumer).read_committed()


async def test_records_that_were_fetched_before_the_stage_began_are_in_doubt(tmp_path: Path) -> None:
    consumer = Consumer()
    host = host_of(tmp_path, consumer)
    assert await host.read_committed()
    assert consumer._thread._consumer._fetcher._isolation_level == READ_COMMITTED
    assert not await host.read_committed()


async def test_a_consumer_is_sent_back_unless_the_app_has_paused_it_or_rebalances(tmp_path: Path) -> None:
    consumer, place = Consumer(), TP("visits", 0)
    host = host_of(tmp_path, consumer)
    await host.rewind(0, 7)
    assert consumer.did == [("pause", {place}), ("seek", {place: 7}), ("resume", {place})]
    consumer.did.clear()
    # While it reads its tables again it keeps all partitions paused; resuming one would let records pass too early.
    consumer._paused_partitions.add(place)
    await host.rewind(0, 7)
    consumer._paused_partitions.clear()
    host.app.rebalancing = True
    await host.rewind(0, 7)
    await host.rewind(1, 7)
    assert consumer.did == []


async def test_what_is_on_its_way_gets_more_time_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host, waits = host_of(tmp_path, Consumer()), list[float]()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    for offset in [7] * 9 + [8]:
        await host.rewind(0, offset)
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 0.05]


async def test_a_new_assignment_ends_the_lanes_of_the_one_before(tmp_path: Path) -> None:
    stream = app_of(tmp_path).topic("visits", acks=False).stream()
    clusters = anonymize(stream, policy_file(tmp_path))
    host: Any = host_of(tmp_path, Consumer())
    host.check_acks = lambda: None
    keeper, order = Keeper(clusters._plan, host, None, publishes=False), list[object]()

    async def end(_: float) -> bool:
        order.append(keeper._assigned.is_set())
        return True

    keeper._hosted = cast("Any", SimpleNamespace(end=end))
    keeper._assigned.set()
    await keeper._accept({0, 1})
    assert order == [False], "its lanes go on with an assignment that is no more"
    assert keeper._assigned.is_set()


# ---------------------------------------------------------------- the desk


def decided(number: int) -> Decided:
    return Decided(number, [number, number + 1], [b'{"age":1}', b'{"age":2}'], ("1",), 2)


async def test_a_cluster_was_dealt_with_when_the_next_one_is_asked_for() -> None:
    desk = Desk()
    first = asyncio.create_task(desk.hand(3, decided(0)))
    cluster = await desk.next()
    assert (cluster.partition, cluster.number, cluster.size, cluster.subjects) == (3, 0, 2, 2)
    assert cluster.records == ({"age": 1}, {"age": 2})
    await asyncio.sleep(0)
    assert not first.done()
    second = asyncio.create_task(desk.hand(3, decided(1)))
    assert (await desk.next()).number == 1
    await first
    assert not second.done()
    second.cancel()


async def test_what_is_withdrawn_was_not_dealt_with_even_if_the_next_one_is_asked_for_later() -> None:
    desk = Desk()
    first = asyncio.create_task(desk.hand(0, decided(0)))
    await desk.next()
    desk.withdraw()
    with pytest.raises(WithdrawnError):
        await first
    with pytest.raises(WithdrawnError):
        await desk.hand(0, decided(1))
    desk.reopen()
    again = asyncio.create_task(desk.hand(0, decided(0)))
    assert (await desk.next()).number == 0
    assert not again.done()
    again.cancel()


async def test_a_customer_is_let_go_with_the_first_error_or_without() -> None:
    desk = Desk()
    waiting = asyncio.create_task(desk.next())
    await asyncio.sleep(0)
    desk.close(GuaranteeError("first"))
    desk.close(InputError("second"))
    with pytest.raises(GuaranteeError, match="first"):
        await waiting
    ended = Desk()
    ended.close()
    with pytest.raises(StopAsyncIteration):
        await ended.next()


async def test_no_cluster_shows_its_rows_in_a_log() -> None:
    desk = Desk()
    task = asyncio.create_task(desk.hand(0, Decided(0, [0], [json.dumps({"note": CANARY}).encode()], ("1",), 1)))
    assert CANARY not in repr(await desk.next())
    task.cancel()


# ---------------------------------------------------------------- the inflow


async def test_whoever_brings_more_than_fits_waits() -> None:
    async def rewind(_: int, __: int) -> None:
        raise AssertionError

    inflow = Inflow(rewind, limit=3)
    inflow.expect([0, 1])
    messages = [Arrived(offset, 0, None, b"", ()) for offset in range(5)]

    async def bring() -> None:
        for message in messages:
            await inflow.put(0, message)

    bringing = asyncio.create_task(bring())
    await inflow.wait(1)
    assert not bringing.done()
    assert inflow.take(0, 2) == messages[:2]
    await inflow.wait(1)
    assert inflow.take(0, 9) == messages[2:]
    assert bringing.done()
    await inflow.put(1, messages[0])
    inflow.expect([0])
    assert inflow.take(1, 9) == []
