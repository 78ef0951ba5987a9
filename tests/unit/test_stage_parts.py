"""Parts of the stage without a broker: what it refuses, what it takes for a record, how clusters pass over the desk."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import faust
import pytest
from faust.types import TP
from shoal.errors import ConfigError, GuaranteeError, InputError, PolicyError
from shoal.kafka import HandoverCancelledError
from shoal.pipeline import DecidedCluster as Decided
from shoal.stage import anonymize
from shoal.stage import supervisor as keeper
from shoal.stage.anonymize import Clusters
from shoal.stage.faust_adapter import FaustAdapter, crash
from shoal.stage.handoff_queue import HandoffQueue
from shoal.stage.message_buffer import BufferedMessage, MessageBuffer
from shoal.stage.supervisor import StageSupervisor
from support.kafka_broker import wait_until

READ_COMMITTED = 1

CANARY = "xq7canary9z"
ATTRIBUTES = {
    "who": {"role": "identifier", "subject": True},
    "age": {"role": "quasi_identifier", "scale": "numeric", "bounds": [0, 110], "integer": True},
}


class Visit(faust.Record, serializer="json"):
    who: str
    age: int


class Stay(faust.Record):
    visit: Visit


def policy_file(folder: Path, release: str = "cluster", **kafka: str) -> Path:
    path = folder / "policy.yaml"
    stream = {"delta": 20, "release": release}
    document = {"attributes": ATTRIBUTES, "privacy": {"k": 3}, "stream": stream, "kafka": kafka}
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


async def test_an_agent_that_yields_is_told_to_send_instead(tmp_path: Path) -> None:
    app, policy = app_of(tmp_path), policy_file(tmp_path)

    @app.agent(app.topic("visits", acks=False))
    async def agent(stream: Any) -> AsyncIterator[int]:
        async for cluster in anonymize(stream, policy):
            yield cluster.size

    actor: Any = agent(index=None)
    with pytest.raises(ConfigError, match="must not yield"):
        await anext(actor.it)


@pytest.mark.parametrize("what", ["events", "items"])
async def test_what_is_no_stream_is_refused_and_ends_the_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    app, policy, crashes = app_of(tmp_path), policy_file(tmp_path), list[BaseException]()

    async def crash(error: BaseException) -> None:
        crashes.append(error)

    other = SimpleNamespace(app=SimpleNamespace(started=True, crash=crash))
    monkeypatch.setattr("shoal.stage.faust_adapter.current_agent", lambda: other)
    with pytest.raises(ConfigError, match=r"not its events\(\) or items\(\)"):
        anonymize(getattr(app.topic("visits", acks=False).stream(), what)(), policy)
    await asyncio.sleep(0)
    assert len(crashes) == 1, "Faust would start the agent again and again"


async def test_an_order_of_records_is_refused_where_nothing_is_published(tmp_path: Path) -> None:
    policy = policy_file(tmp_path, release="ordered")
    with pytest.raises(PolicyError, match=r"stream\.release: ordered"):
        anonymize(app_of(tmp_path).topic("visits", acks=False).stream(), policy)
    anonymize(app_of(tmp_path).topic("visits", acks=False).stream(), policy, to="out")


async def test_several_topics_channels_and_actors_are_refused(tmp_path: Path) -> None:
    app = app_of(tmp_path)
    for stream in (
        app.topic("one", "two", acks=False).stream(),
        app.topic(pattern="v.*", acks=False).stream(),
        app.channel().stream(),
        app.topic("visits", acks=False).stream(concurrency_index=1),
        app.topic("visits", acks=False).stream(active_partitions=set()),
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
        ("yaml", Stay(visit=Visit(who="a", age=1)), b"\x80", b'{"visit":{"who":"a","age":1}}'),
        ("yaml", {"who": "a"}, b"\x80", b'{"who":"a"}'),
        ("yaml", object(), b"\x80", b"\x80"),
        ("yaml", None, b"\x80", b"\x80"),
    ],
)
async def test_the_bytes_of_the_topic_are_the_record(
    tmp_path: Path, serializer: str, value: Any, raw: bytes | None, read: bytes | None
) -> None:
    topic = app_of(tmp_path).topic("visits", acks=False, value_serializer=serializer)
    assert FaustAdapter(topic.stream())._bytes(value, raw) == read


# ---------------------------------------------------------------- the app's consumer


class Consumer:
    """What the stage asks of the app's consumer; ``level`` is what its fetcher reads."""

    def __init__(self, level: object = 0, topics: tuple[str, ...] = ("visits",)) -> None:
        self._topics = topics
        fetcher = SimpleNamespace(_isolation_level=level, _pending_tasks=set())
        self._thread = SimpleNamespace(_consumer=SimpleNamespace(_fetcher=fetcher))
        self._paused_partitions: set[TP] = set()
        self.did: list[tuple[str, Any]] = []

    def assignment(self) -> set[TP]:
        return {TP(topic, 0) for topic in self._topics}

    def pause_partitions(self, places: set[TP]) -> None:
        self.did.append(("pause", places))

    def resume_partitions(self, places: set[TP]) -> None:
        self.did.append(("resume", places))

    async def seek_wait(self, offsets: dict[TP, int]) -> None:
        self.did.append(("seek", offsets))


def host_of(folder: Path, consumer: Consumer) -> FaustAdapter:
    host = FaustAdapter(app_of(folder).topic("visits", acks=False).stream())
    host.app = SimpleNamespace(consumer=consumer, rebalancing=False, rebalancing_count=1)
    return host


@pytest.mark.parametrize("level", [None, "read_committed", 7])
async def test_a_client_that_cannot_be_told_to_read_committed_records_is_refused(tmp_path: Path, level: object) -> None:
    consumer = Consumer(level)
    with pytest.raises(ConfigError, match="cannot be told"):
        await host_of(tmp_path, consumer).read_committed()
    consumer = Consumer()
    del consumer._thread._consumer._fetcher._pending_tasks
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
    assert await host.read_committed(), "an agent that failed and was started again would not know"
    again = host_of(tmp_path, consumer)
    assert not await again.read_committed(), "it was told before that app had anything"


async def test_what_one_stage_tells_the_consumer_leaves_the_topic_of_another_in_doubt(tmp_path: Path) -> None:
    consumer = Consumer(topics=("visits", "births"))
    first, late = host_of(tmp_path, consumer), host_of(tmp_path, consumer)
    other, late.topic = host_of(tmp_path, consumer), "births"
    late.app = other.app = first.app
    other.topic = "assigned later"
    assert await first.read_committed()
    assert await late.read_committed()
    assert not await other.read_committed()


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
    keeper, order = StageSupervisor(clusters._plan, host, None, publishes=False), list[object]()

    async def end(_: float) -> bool:
        order.append(keeper._assigned.is_set())
        return True

    keeper._hosted = cast("Any", SimpleNamespace(end=end))
    keeper._assigned.set()
    await keeper._accept({0, 1})
    assert order == [False], "its lanes go on with an assignment that is no more"
    assert keeper._assigned.is_set()


@pytest.mark.parametrize("app_cluster", ["here", "there", None])
async def test_the_brokers_of_the_policy_must_be_the_apps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app_cluster: str | None
) -> None:
    is_same = app_cluster == "here"
    clusters = anonymize(app_of(tmp_path).topic("visits", acks=False).stream(), policy_file(tmp_path))
    served, crashes = list[object](), list[BaseException]()

    class Served:
        def __init__(self, *_: object, **__: object) -> None:
            served.append(self)

        async def run(self) -> None:
            made._stopping.set()

    async def answer(name: str | None) -> str | None:
        return name

    async def crash(error: BaseException) -> None:
        crashes.append(error)

    monkeypatch.setattr(keeper, "precompile", lambda _: None)
    monkeypatch.setattr(keeper, "ExternalLoop", Served)
    monkeypatch.setattr(keeper, "broker_cluster_id", lambda _: answer(None if app_cluster is None else "here"))
    host: Any = SimpleNamespace(rewind=None, crash=crash, cluster=lambda: answer(app_cluster))
    made = StageSupervisor(clusters._plan, host, None, publishes=False)
    made._partitions = {0}
    made._assigned.set()
    await asyncio.wait_for(made._guarded(made._keep()), 30)
    await asyncio.gather(*made._tasks)
    assert len(served) == is_same
    assert ["not the cluster of the app" in str(error) for error in crashes] == [True] * (not is_same)


# ---------------------------------------------------------------- who asks


class Kept:
    """A keeper that hands out numbers."""

    made: list[Kept]

    def __init__(self, *_: object, **__: object) -> None:
        self.desk, self.left, self.goes_on, self.asked = self, asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.is_started, self.count = False, 0
        Kept.made.append(self)

    async def start(self) -> None:
        await self.goes_on.wait()
        self.is_started = True

    async def next(self) -> int:
        self.count += 1
        self.asked.set()
        return self.count


class Asked:
    """A stage with such keepers, and what it ended the app with."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        Kept.made = []
        self.app, self.policy = app_of(folder), policy_file(folder)
        self.crashes: list[BaseException] = []
        monkeypatch.setattr(sys.modules[Clusters.__module__], "StageSupervisor", Kept)
        monkeypatch.setattr(self.app, "crash", self._crash)

    async def _crash(self, error: BaseException) -> None:
        self.crashes.append(error)

    def clusters(self) -> Clusters:
        return anonymize(self.app.topic("visits", acks=False).stream(), self.policy)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(tmp_path, monkeypatch)


async def test_a_second_task_that_asks_is_refused_and_ends_the_app(asked: Asked) -> None:
    clusters, is_over = asked.clusters(), asyncio.Event()

    async def work() -> None:
        await anext(clusters)
        await is_over.wait()

    first = asyncio.create_task(work())
    await wait_until(lambda: bool(Kept.made), what="a keeper")
    Kept.made[0].goes_on.set()
    await Kept.made[0].asked.wait()
    second = asyncio.create_task(work())
    with pytest.raises(ConfigError, match="two tasks ask"):
        await second
    assert asked.crashes == [second.exception()]
    is_over.set()
    await first
    assert Kept.made[0].count == 1


async def test_a_task_for_each_question_is_no_second_customer(asked: Asked) -> None:
    clusters = asked.clusters()
    for number in range(3):
        question = asyncio.create_task(clusters.__anext__())
        await wait_until(lambda: bool(Kept.made), what="a keeper")
        Kept.made[0].goes_on.set()
        assert await question == number + 1  # type: ignore[comparison-overlap]
    assert asked.crashes == []


async def test_who_gives_up_waiting_for_the_first_cluster_may_ask_again(asked: Asked) -> None:
    clusters = asked.clusters()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await anext(clusters)
    (kept,) = Kept.made
    kept.goes_on.set()
    assert await anext(clusters) == 1  # type: ignore[comparison-overlap]
    assert kept.is_started
    assert len(Kept.made) == 1


async def test_a_second_stage_of_a_topic_is_refused_and_the_first_goes_on(asked: Asked) -> None:
    first = asked.clusters()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await anext(first)
    Kept.made[0].goes_on.set()
    await anext(first)

    async def other() -> None:
        await anext(asked.clusters())

    with pytest.raises(ConfigError, match="has a stage already"):
        await asyncio.create_task(other())
    assert await anext(first) == 2  # type: ignore[comparison-overlap]


async def test_nothing_begins_in_an_app_that_ends(asked: Asked) -> None:
    clusters = asked.clusters()
    await crash(asked.app, ConfigError("something"))
    # Faust starts the agent again, while the app ends: nobody would stop what it begins.
    with pytest.raises(StopAsyncIteration):
        await anext(clusters)
    assert Kept.made == []


@pytest.mark.parametrize("leaves", ["the loop", "by its end", "with an error"])
async def test_a_keeper_is_told_when_nobody_can_ask_any_more(asked: Asked, leaves: str) -> None:
    async def agent() -> None:
        async for _ in asked.clusters():
            if leaves == "with an error":
                raise RuntimeError
            if leaves == "by its end":
                return
            break
        gc.collect()
        await asyncio.sleep(60)

    task = asyncio.create_task(agent())
    await wait_until(lambda: bool(Kept.made), 5, "a keeper")
    assert not Kept.made[0].left.is_set()
    Kept.made[0].goes_on.set()
    await asyncio.wait_for(Kept.made[0].left.wait(), 5)
    assert Kept.made[0].asked.is_set()
    assert task.done() == (leaves != "the loop")
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.parametrize("goes_on", ["the app goes on", "the app ends"])
async def test_a_stage_that_nobody_asks_ends_the_app_unless_it_ends_anyway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_on: str
) -> None:
    is_stopping = goes_on == "the app ends"
    monkeypatch.setattr(keeper, "LEFT_S", 0.01)
    clusters = anonymize(app_of(tmp_path).topic("visits", acks=False).stream(), policy_file(tmp_path))
    crashes: list[BaseException] = []

    async def crash(error: BaseException) -> None:
        crashes.append(error)

    host: Any = SimpleNamespace(rewind=None, crash=crash, topic="visits")
    made = StageSupervisor(clusters._plan, host, None, publishes=False)
    made.left.set()
    if is_stopping:
        asyncio.get_running_loop().call_later(0.005, made._stopping.set)
    await asyncio.wait_for(made._guarded(made._watch()), 5)
    await asyncio.gather(*made._tasks)
    assert ["has left the loop" in str(error) for error in crashes] == [True] * (not is_stopping)


# ---------------------------------------------------------------- the desk


def decided(number: int) -> Decided:
    return Decided(number, [number, number + 1], [b'{"age":1}', b'{"age":2}'], ("1",), 2)


async def test_a_cluster_was_dealt_with_when_the_next_one_is_asked_for() -> None:
    desk = HandoffQueue()
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
    desk = HandoffQueue()
    first = asyncio.create_task(desk.hand(0, decided(0)))
    await desk.next()
    desk.withdraw()
    with pytest.raises(HandoverCancelledError):
        await first
    with pytest.raises(HandoverCancelledError):
        await desk.hand(0, decided(1))
    desk.reopen()
    again = asyncio.create_task(desk.hand(0, decided(0)))
    assert (await desk.next()).number == 0
    assert not again.done()
    again.cancel()


async def test_a_customer_is_let_go_with_the_first_error_or_without() -> None:
    desk = HandoffQueue()
    waiting = asyncio.create_task(desk.next())
    await asyncio.sleep(0)
    desk.close(GuaranteeError("first"))
    desk.close(InputError("second"))
    with pytest.raises(GuaranteeError, match="first"):
        await waiting
    ended = HandoffQueue()
    ended.close()
    with pytest.raises(StopAsyncIteration):
        await ended.next()


async def test_no_cluster_shows_its_rows_in_a_log() -> None:
    desk = HandoffQueue()
    task = asyncio.create_task(desk.hand(0, Decided(0, [0], [json.dumps({"note": CANARY}).encode()], ("1",), 1)))
    assert CANARY not in repr(await desk.next())
    task.cancel()


# ---------------------------------------------------------------- the inflow


async def test_whoever_brings_more_than_fits_waits() -> None:
    async def rewind(_: int, __: int) -> None:
        raise AssertionError

    inflow = MessageBuffer(rewind, limit=3)
    inflow.expect([0, 1])
    messages = [BufferedMessage(offset, 0, None, b"", ()) for offset in range(5)]

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
