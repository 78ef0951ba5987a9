"""Several input topics, each with its output, in one group of workers (``kafka.topics``)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from shoal.audit import verify
from shoal.errors import InputError, PolicyError
from shoal.kafka import StartOptions
from shoal.policy import Policy
from support.faulty_workers import export
from support.kafka_broker import Message, Wanted, create_topic, create_topics, produce, read_all, wait_for
from support.raw_log import delete_group
from support.running import EARLIEST, Stage
from support.topic_changes import delete_topic

K = 3
RecordId = tuple[str, int, int]
"""Input topic, partition and offset."""


@dataclass
class Pair:
    """An input with its output, and the records put in."""

    input: str
    output: str
    partitions: int
    people: dict[RecordId, str] = field(default_factory=dict)


@dataclass
class Service:
    """A stage with two pairs of topics of different sizes."""

    stage: Stage
    pairs: list[Pair]
    record_ids: dict[int, RecordId] = field(default_factory=dict)

    @classmethod
    async def create(cls, bootstrap: str, folder: Path, *, partitions: Sequence[int] = (3, 1), **kafka: Any) -> Service:
        stage = await Stage.create(bootstrap, folder, privacy={"k": K}, stream={"delta": 20}, kafka=kafka)
        pairs = []
        for count in partitions:
            source, output = await create_topics(bootstrap, [Wanted(count)] * 2)
            pairs.append(Pair(source, output, count))
        settings = stage.document["kafka"]
        del settings["input"], settings["output"]
        settings["topics"] = [{"input": pair.input, "output": pair.output} for pair in pairs]
        return cls(stage, pairs)

    async def put(self, pair: Pair, count: int) -> None:
        """Append records, of fewer people than records, to all partitions of an input; one in 40 is invalid."""
        first, stage = self.stage.serial, self.stage
        people = [f"p{(first + number) * 7 % 61}" for number in range(count)]
        ages = [{} if number % 40 else {"age": "unknown"} for number in range(count)]
        values = [stage.record(who=who, **age) for who, age in zip(people, ages, strict=True)]
        where = [number % pair.partitions for number in range(count)]
        sent = await produce(stage.bootstrap, pair.input, values, partitions=where)
        for number, (place, who) in enumerate(zip(sent, people, strict=True), first):
            self.record_ids[number] = (pair.input, *place)
            pair.people[self.record_ids[number]] = who

    async def read(self, topic: str) -> list[Message]:
        return await read_all(self.stage.bootstrap, topic)

    async def side(self, name: str, pair: Pair) -> list[dict[str, Any]]:
        """Messages of a side topic that name the input of a pair."""
        found = await self.stage.objects(name)
        return [one for one in found if one["topic"] == pair.input]

    async def outcomes(self) -> Counter[RecordId]:
        """How often each record was released or referenced; a row in the output of another pair fails."""
        found: Counter[RecordId] = Counter()
        for pair in self.pairs:
            for message in await self.read(pair.output):
                record_id = self.record_ids[json.loads(message.value or b"")["serial"]]
                assert record_id[:2] == (pair.input, message.partition)
                found[record_id] += 1
            found.update((pair.input, one["partition"], one["offset"]) for one in await self.side("quarantine", pair))
        return found

    async def until(self, count: int) -> None:
        """Wait until so many records have an outcome; up to 20 of each partition are held."""
        await wait_for(self.outcomes, lambda found: found.total() >= count, 60, f"{count} outcomes")


@pytest.fixture
async def service(bootstrap: str, tmp_path: Path) -> Service:
    return await Service.create(bootstrap, tmp_path)


async def test_two_workers_and_a_kill_release_each_record_once_in_its_own_output(
    bootstrap: str, tmp_path: Path
) -> None:
    service = await Service.create(bootstrap, tmp_path, session_timeout_ms=6000)
    for pair in service.pairs:
        await service.put(pair, 300)
    async with AsyncExitStack() as workers:
        arguments = ("--from", "earliest")
        first, second = [
            await workers.enter_async_context(service.stage.process(*arguments, name=name)) for name in ("one", "two")
        ]
        await service.until(300)
        first.kill()
        for pair in service.pairs:
            await service.put(pair, 300)
        again = await workers.enter_async_context(service.stage.process(*arguments, name="again"))
        await service.until(900)
        for pair in service.pairs:
            await service.put(pair, 100)
        await service.until(1250)
        opened = {line["topic"] for one in (second, again) for line in one.lines("partition opened")}
        assert opened == {pair.input for pair in service.pairs}
        assert await again.terminated() == 0
        assert await second.terminated() == 0
    await service.stage.drained()
    outcomes = await service.outcomes()
    assert outcomes == dict.fromkeys(chain.from_iterable(pair.people for pair in service.pairs), 1)
    assert len(outcomes) == 1400
    for pair in service.pairs:
        await check_clusters(service, pair)


async def test_one_copy_holds_the_progress_of_all_inputs(bootstrap: str, tmp_path: Path) -> None:
    copy = await create_topic(bootstrap, 3, {"cleanup.policy": "compact"})
    service = await Service.create(bootstrap, tmp_path, progress_copy=copy)
    for pair in service.pairs:
        await service.put(pair, 90)
    async with service.stage.run():
        await service.until(100)
    await delete_group(bootstrap, service.stage.group)
    async with service.stage.run(StartOptions(drain=True)) as last:
        await last.ended()
    outcomes = await service.outcomes()
    assert outcomes == dict.fromkeys(chain.from_iterable(pair.people for pair in service.pairs), 1)
    assert len(outcomes) == 180
    keys = {message.key: message.partition for message in await service.read(copy)}
    assert {tuple(json.loads(key or b""))[1:]: partition for key, partition in keys.items()} == {
        (pair.input, number): number for pair in service.pairs for number in range(pair.partitions)
    }


async def check_clusters(service: Service, pair: Pair) -> None:
    """See that an outside reader and the judge find clusters of at least k people within one input."""
    rows = {}
    for message in await service.read(pair.output):
        row = json.loads(message.value or b"")
        rows[service.record_ids[row["serial"]]] = row["age"]
    evidence = await service.side("evidence", pair)
    members = [(pair.input, one["partition"], offset) for one in evidence for offset in one["offsets"]]
    assert sorted(members) == sorted(rows)
    assert len(await service.side("clusters", pair)) == len(evidence)
    for one in evidence:
        cluster = [(pair.input, one["partition"], offset) for offset in one["offsets"]]
        assert len({pair.people[record_id] for record_id in cluster}) >= K
        assert len({rows[record_id] for record_id in cluster}) == 1
    read = {"input": await service.read(pair.input), "output": await service.read(pair.output)}
    read |= {role: await service.stage.read(role) for role in ("quarantine", "evidence")}
    files = export(service.stage.folder, read)
    policy = Policy.load(service.stage.policy_file())
    paths = (files["input"], files["output"], files["evidence"])
    verdict = await asyncio.to_thread(verify, policy, *paths, quarantine=files["quarantine"], input_topic=pair.input)
    assert verdict.exit_code == 0, verdict.text()


async def test_a_start_is_refused_for_each_pair_by_its_own_output(service: Service) -> None:
    first, second = service.pairs
    await produce(service.stage.bootstrap, second.output, [b"{}"], partitions=0)
    async with service.stage.run(EARLIEST) as run:
        with pytest.raises(InputError) as caught:
            await run.ended()
    assert str(caught.value).startswith(f"{second.input}-0: group {service.stage.group} has no committed offset, but ")
    assert f"{second.output}-0 holds records already" in str(caught.value)
    assert first.output not in str(caught.value)


async def test_one_recreated_input_ends_the_worker(service: Service) -> None:
    stage, (_, second) = service.stage, service.pairs
    async with stage.run(EARLIEST) as run:
        await run.until_ready()
        for pair in service.pairs:
            await service.put(pair, 60)
        await service.until(30)
        stage.topics["recreated"] = second.input
        await delete_topic(stage, "recreated")
        await create_topic(stage.bootstrap, name=second.input)
        with pytest.raises((InputError, PolicyError)) as caught:
            await run.ended()
        assert second.input in str(caught.value)


async def test_an_input_is_added_to_a_running_group(service: Service) -> None:
    stage, (first, second) = service.stage, service.pairs
    settings = stage.document["kafka"]
    both = settings.pop("topics")
    settings |= {"input": first.input, "output": first.output}
    await service.put(first, 120)
    async with stage.run(EARLIEST) as run:
        await run.until_read(120)
        await run.until(lambda: run.total("shoal_records_total", outcome="released") > 60)
    (evidence, *_) = await stage.objects("evidence")
    assert set(evidence) == {"partition", "cluster", "offsets", "policy"}
    del settings["input"], settings["output"]
    settings["topics"] = both
    await service.put(second, 60)
    await service.put(first, 60)
    await stage.drained()
    await check_progress(service)
    rows = [await service.read(pair.output) for pair in service.pairs]
    numbers = [[json.loads(message.value or b"")["serial"] for message in messages] for messages in rows]
    assert [len(found) == len(set(found)) > 40 for found in numbers] == [True, True]


async def check_progress(service: Service) -> None:
    """See that `shoal progress` names the input of each partition, and exports and imports all of them."""
    stage, file = service.stage, service.stage.folder / "progress.json"
    partitions = {pair.input: list(range(pair.partitions)) for pair in service.pairs}
    expected = [(topic, number, "ok", 0) for topic, numbers in partitions.items() for number in numbers]
    async with stage.command("progress", name="report") as process:
        assert await process.ended() == 0, process.said
        lines = [json.loads(line) for line in process.out.read_text().splitlines()]
    assert [(one["topic"], one["partition"], one["state"], one["held"]) for one in lines] == expected
    async with stage.command("progress", "--export", str(file), name="export") as process:
        assert await process.ended() == 0, process.said
    stage.document["kafka"]["group"] += "-again"
    async with stage.command("progress", "--import", str(file), name="import") as process:
        assert await process.ended() == 0, process.said
        assert json.loads(process.out.read_text()) == {"imported": partitions}
    exported = json.loads(file.read_text())
    first, second = exported["topics"]
    file.write_text(json.dumps({"group": exported["group"]} | first))
    async with stage.command("progress", "--import", str(file), name="one") as process:
        assert await process.ended() == 0, process.said
        assert json.loads(process.out.read_text()) == {"imported": {first["topic"]: partitions[first["topic"]]}}
    file.write_text(json.dumps(exported | {"topics": [first, second | {"topic": "other"}]}))
    async with stage.command("progress", "--import", str(file), name="other") as process:
        assert await process.ended() == 2
        assert "progress of another topic than kafka.topics" in process.said
