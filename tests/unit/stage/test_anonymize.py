"""What `anonymize` refuses, and which tasks may iterate over its clusters."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from shoal.errors import ConfigError, PolicyError
from shoal.stage import anonymize
from shoal.stage.anonymize import Clusters
from shoal.stage.faust_adapter import stop_app
from support.faust_apps import app_in, policy_file
from support.kafka_broker import wait_until


async def test_settings_that_the_policy_leaves_out_are_the_apps(tmp_path: Path) -> None:
    app = app_in(tmp_path)
    clusters = anonymize(app.topic("visits", acks=False).stream(), policy_file(tmp_path), to=app.topic("out"))
    settings = clusters._context.settings
    assert (settings.bootstrap_servers, settings.input, settings.group) == ("one:1,two:2", "visits", "group")
    assert settings.output == "out"


@pytest.mark.parametrize(
    ("kafka", "to", "field"),
    [({"group": "other"}, None, "group"), ({"input": "other"}, None, "input"), ({"output": "other"}, "out", "output")],
)
async def test_a_policy_of_another_app_is_refused(
    tmp_path: Path, kafka: dict[str, str], to: str | None, field: str
) -> None:
    stream = app_in(tmp_path).topic("visits", acks=False).stream()
    with pytest.raises(PolicyError, match=rf"kafka\.{field}: the app says"):
        anonymize(stream, policy_file(tmp_path, **kafka), to=to)


async def test_several_inputs_are_refused(tmp_path: Path) -> None:
    stream = app_in(tmp_path).topic("visits", acks=False).stream()
    topics = [{"input": "visits", "output": "visits.anonymous"}]
    with pytest.raises(PolicyError) as caught:
        anonymize(stream, policy_file(tmp_path, topics=topics))
    (fault,) = caught.value.faults
    assert (fault.path, fault.message) == (
        ("kafka", "topics"),
        "a Faust stage reads one topic, that of its stream; remove kafka.topics, or use shoal run",
    )


def visits(app: Any, **options: Any) -> Any:
    return app.topic("visits", acks=False).stream(**options)


def filtered(app: Any) -> Any:
    stream = visits(app)
    stream.filter(bool)
    return stream


@pytest.mark.parametrize(
    ("options", "stream_of", "words"),
    [
        ({}, lambda app: app.topic("visits").stream(), "acks=False"),
        ({"processing_guarantee": "exactly_once"}, visits, "at_least_once"),
        ({}, filtered, "unchanged stream"),
        ({}, lambda app: app.topic("one", "two", acks=False).stream(), "one topic"),
        ({}, lambda app: app.topic(pattern="v.*", acks=False).stream(), "one topic"),
        ({}, lambda app: app.channel().stream(), "one topic"),
        ({}, lambda app: visits(app, concurrency_index=1), "concurrency=1"),
        ({}, lambda app: visits(app, active_partitions=set()), "concurrency=1"),
    ],
)
async def test_a_stream_that_a_stage_cannot_read_is_refused(
    tmp_path: Path, options: dict[str, str], stream_of: Callable[[Any], Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        anonymize(stream_of(app_in(tmp_path, **options)), policy_file(tmp_path))


async def test_a_topic_that_another_agent_reads_with_acks_is_refused(tmp_path: Path) -> None:
    app = app_in(tmp_path)
    app.topic("visits").stream()
    conductor: Any = app.topics
    await conductor._update_indices()
    with pytest.raises(ConfigError, match="another agent"):
        anonymize(app.topic("visits", acks=False).stream(), policy_file(tmp_path))


async def test_an_agent_that_yields_is_refused(tmp_path: Path) -> None:
    app, policy = app_in(tmp_path), policy_file(tmp_path)

    @app.agent(app.topic("visits", acks=False))
    async def agent(stream: Any) -> AsyncIterator[int]:
        async for cluster in anonymize(stream, policy):
            yield cluster.size

    actor: Any = agent(index=None)
    with pytest.raises(ConfigError, match="must not yield"):
        await anext(actor.it)


@pytest.mark.parametrize("method", ["events", "items"])
async def test_an_object_that_is_no_stream_is_refused_and_stops_the_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    app, policy, errors = app_in(tmp_path), policy_file(tmp_path), list[BaseException]()

    async def crash(error: BaseException) -> None:
        errors.append(error)

    other = SimpleNamespace(app=SimpleNamespace(started=True, crash=crash))
    monkeypatch.setattr("shoal.stage.faust_adapter.current_agent", lambda: other)
    with pytest.raises(ConfigError, match=r"not its events\(\) or items\(\)"):
        anonymize(getattr(app.topic("visits", acks=False).stream(), method)(), policy)
    await asyncio.sleep(0)
    assert len(errors) == 1, "Faust would start the agent again and again"


async def test_ordered_release_is_refused_without_an_output_topic(tmp_path: Path) -> None:
    policy = policy_file(tmp_path, release="ordered")
    with pytest.raises(PolicyError, match=r"stream\.release: ordered"):
        anonymize(app_in(tmp_path).topic("visits", acks=False).stream(), policy)
    anonymize(app_in(tmp_path).topic("visits", acks=False).stream(), policy, to="out")


# ---------------------------------------------------------------- which tasks may iterate


class FakeSupervisor:
    """A supervisor whose queue returns 1, 2, 3, ... instead of clusters."""

    made: list[FakeSupervisor]

    def __init__(self, *_: object, **__: object) -> None:
        self.queue, self.abandoned = self, asyncio.Event()
        self.may_start, self.was_asked = asyncio.Event(), asyncio.Event()
        self.is_started, self.count = False, 0
        FakeSupervisor.made.append(self)

    async def start(self) -> None:
        await self.may_start.wait()
        self.is_started = True

    async def next(self) -> int:
        self.count += 1
        self.was_asked.set()
        return self.count


class FakeStage:
    """An app whose stages have fake supervisors; ``errors`` are those that stopped the app."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        FakeSupervisor.made = []
        self.app, self.policy = app_in(folder), policy_file(folder)
        self.errors: list[BaseException] = []
        monkeypatch.setattr(sys.modules[Clusters.__module__], "StageSupervisor", FakeSupervisor)
        monkeypatch.setattr(self.app, "crash", self._crash)

    async def _crash(self, error: BaseException) -> None:
        self.errors.append(error)

    def clusters(self) -> Clusters:
        return anonymize(self.app.topic("visits", acks=False).stream(), self.policy)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeStage:
    return FakeStage(tmp_path, monkeypatch)


async def test_a_second_task_that_asks_is_refused_and_stops_the_app(stage: FakeStage) -> None:
    clusters, is_over = stage.clusters(), asyncio.Event()

    async def work() -> None:
        await anext(clusters)
        await is_over.wait()

    first = asyncio.create_task(work())
    await wait_until(lambda: bool(FakeSupervisor.made), what="a supervisor")
    FakeSupervisor.made[0].may_start.set()
    await FakeSupervisor.made[0].was_asked.wait()
    second = asyncio.create_task(work())
    with pytest.raises(ConfigError, match="two tasks ask"):
        await second
    assert stage.errors == [second.exception()]
    is_over.set()
    await first
    assert FakeSupervisor.made[0].count == 1


async def test_a_new_task_for_each_request_is_allowed(stage: FakeStage) -> None:
    """As `asyncio.wait_for` makes one."""
    clusters = stage.clusters()
    for number in range(3):
        request = asyncio.create_task(clusters.__anext__())
        await wait_until(lambda: bool(FakeSupervisor.made), what="a supervisor")
        FakeSupervisor.made[0].may_start.set()
        assert await request == number + 1  # type: ignore[comparison-overlap]
    assert stage.errors == []


async def test_a_second_stage_of_a_topic_is_refused_and_the_first_goes_on(stage: FakeStage) -> None:
    first = stage.clusters()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await anext(first)
    FakeSupervisor.made[0].may_start.set()
    await anext(first)

    async def other() -> None:
        await anext(stage.clusters())

    with pytest.raises(ConfigError, match="has a stage already"):
        await asyncio.create_task(other())
    assert await anext(first) == 2  # type: ignore[comparison-overlap]


async def test_no_stage_starts_in_an_app_that_stops(stage: FakeStage) -> None:
    clusters = stage.clusters()
    await stop_app(stage.app, ConfigError("something"))
    # Faust restarts the agent while the app stops. A stage that starts then would never be stopped.
    with pytest.raises(StopAsyncIteration):
        await anext(clusters)
    assert FakeSupervisor.made == []
