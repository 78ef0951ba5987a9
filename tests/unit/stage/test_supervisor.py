"""The supervisor ends an assignment before it begins the next one, and stops the app when the stage cannot go on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from shoal.errors import BrokerError
from shoal.kafka.transactions import ProcessCounts
from shoal.stage import anonymize, supervisor
from shoal.stage.supervisor import StageSupervisor
from support.faust_apps import FakeConsumer, adapter_of, app_in, policy_file


def supervisor_of(folder: Path, adapter: Any) -> StageSupervisor:
    clusters = anonymize(app_in(folder).topic("visits", acks=False).stream(), policy_file(folder))
    return StageSupervisor(clusters._context, adapter, None, publishes=False)


async def test_a_new_assignment_ends_the_partition_tasks_of_the_one_before(tmp_path: Path) -> None:
    adapter: Any = adapter_of(tmp_path, FakeConsumer())
    adapter.check_acks = lambda: None
    stage, order = supervisor_of(tmp_path, adapter), list[object]()

    async def end(_: float) -> bool:
        order.append(stage._assigned.is_set())
        return True

    stage._loop = cast("Any", SimpleNamespace(end=end))
    stage._assigned.set()
    await stage._begin_assignment({0, 1})
    assert order == [False], "the new assignment was announced before the tasks of the old one ended"
    assert stage._assigned.is_set()
    assert stage._context.health.restoring == {("visits", 0), ("visits", 1)}
    await stage._begin_assignment(set())
    assert stage._context.health.restoring == set(), "partitions that were not open are another worker's now"


@pytest.mark.parametrize("app_cluster", ["here", "there", None])
async def test_the_brokers_of_the_policy_must_be_those_of_the_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app_cluster: str | None
) -> None:
    is_same = app_cluster == "here"
    loops, errors = list[object](), list[BaseException]()

    class FakeLoop:
        def __init__(self, *_: object, **__: object) -> None:
            loops.append(self)

        async def run(self) -> None:
            stage._stopping.set()

    async def answer(cluster_id: str | None) -> str | None:
        return cluster_id

    async def stop_app(error: BaseException) -> None:
        errors.append(error)

    monkeypatch.setattr(supervisor, "ExternalLoop", FakeLoop)
    monkeypatch.setattr(supervisor, "broker_cluster_id", lambda _: answer(None if app_cluster is None else "here"))
    adapter = SimpleNamespace(rewind=None, stop_app=stop_app, cluster_id=lambda: answer(app_cluster))
    stage = supervisor_of(tmp_path, adapter)
    stage._partitions = {0}
    stage._assigned.set()
    await asyncio.wait_for(stage._supervise(stage._run()), 30)
    await asyncio.gather(*stage._tasks)
    assert len(loops) == is_same
    assert ["not the Kafka cluster of the app" in str(error) for error in errors] == [True] * (not is_same)


async def test_a_stage_that_fails_tells_of_how_many_records_the_outcome_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[object]()

    async def fail(*_: object) -> None:
        raise BrokerError("gone")

    def tell(counts: ProcessCounts) -> None:
        told.append(counts)

    monkeypatch.setattr(supervisor, "run_with_retries", fail)
    monkeypatch.setattr(ProcessCounts, "log_unconfirmed", tell)
    stage = supervisor_of(tmp_path, SimpleNamespace(rewind=None))
    with pytest.raises(BrokerError):
        await stage._run()
    assert told == [stage._context.counts]


async def test_kernels_are_compiled_once_the_start_of_the_stage_is_accepted(tmp_path: Path) -> None:
    finished: list[str] = []

    async def finish() -> None:
        finished.append("finished")

    stage = supervisor_of(tmp_path, SimpleNamespace(rewind=None))
    health = stage._context.health
    compiling = asyncio.create_task(stage._compile(cast("Any", SimpleNamespace(finish=finish))))
    await asyncio.sleep(0.01)
    assert finished == []
    health.joined = health.broker_reached = True
    await asyncio.wait_for(compiling, 30)
    assert finished == ["finished"]


@pytest.mark.parametrize("case", ["the app goes on", "the app stops"])
async def test_a_stage_without_an_iterating_task_stops_the_app_unless_it_stops_anyway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    is_stopping = case == "the app stops"
    monkeypatch.setattr(supervisor, "ABANDONED_S", 0.01)
    errors: list[BaseException] = []

    async def stop_app(error: BaseException) -> None:
        errors.append(error)

    stage = supervisor_of(tmp_path, SimpleNamespace(rewind=None, stop_app=stop_app, topic="visits"))
    stage.abandoned.set()
    if is_stopping:
        asyncio.get_running_loop().call_later(0.005, stage._stopping.set)
    await asyncio.wait_for(stage._supervise(stage._stop_app_when_abandoned()), 30)
    await asyncio.gather(*stage._tasks)
    assert ["has left the loop" in str(error) for error in errors] == [True] * (not is_stopping)
