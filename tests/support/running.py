"""The service under test: in this process where a fault must be exact, as a process where its behaviour matters."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import GroupCoordinatorNotAvailableError, KafkaError
from aiokafka.structs import OffsetAndMetadata
from shoal.errors import InputError, PolicyError
from shoal.kafka import StartOptions, Worker, export_progress, import_progress, report_progress
from shoal.kafka.metadata import CommittedState, MetadataCipher
from shoal.observability import Health, Metrics
from shoal.policy import KafkaSection, Policy
from shoal.settings import kafka_settings
from support.forked import ForkedProcess, fork_program
from support.kafka_broker import (
    Message,
    Wanted,
    admin,
    create_topic,
    create_topics,
    forget_members,
    is_shown,
    produce,
    read_all,
    wait_until,
)

SHOAL = Path(sys.executable).with_name("shoal")
EARLIEST = StartOptions(reset="earliest")
SIDE = ("output", "quarantine", "clusters", "evidence")


@dataclass
class Stage:
    """Topics, a group, a policy, and the records put in so far."""

    bootstrap: str
    folder: Path
    topics: dict[str, str]
    document: dict[str, Any]
    serial: int = 0
    record_id_of: dict[int, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    async def create(
        cls, bootstrap: str, folder: Path, *, partitions: int = 1, configs: dict[str, str] | None = None, **changes: Any
    ) -> Stage:
        """Make the topics; ``changes`` go over the policy's sections."""
        wanted = [Wanted(partitions, configs), *(Wanted(partitions if name == "output" else 1) for name in SIDE)]
        topics = dict(zip(("input", *SIDE), await create_topics(bootstrap, wanted), strict=True))
        stage = cls.at(bootstrap, folder, topics, group=f"group-{uuid.uuid4().hex[:12]}", commit_interval_ms=50)
        document = stage.document
        for section, change in changes.items():
            document[section] = document.get(section, {}) | change if isinstance(change, dict) else change
        return stage

    @classmethod
    def at(cls, bootstrap: str, folder: Path, topics: dict[str, str] | None = None, **kafka: Any) -> Stage:
        """Return a stage with these topics, or with names of topics that are not created."""
        topics = topics or {"input": "in", "output": "out"}
        document: dict[str, Any] = {
            "attributes": {
                "who": {"role": "identifier", "subject": True},
                "age": {"role": "quasi_identifier", "scale": "numeric", "bounds": [0, 110], "integer": True},
                "serial": {"role": "confidential", "type": "integer"},
            },
            "privacy": {"k": 3},
            "stream": {"delta": 20},
            "kafka": {"group": "g", **topics, **kafka},
        }
        return cls(bootstrap, folder, topics, document)

    @property
    def group(self) -> str:
        return str(self.document["kafka"]["group"])

    def topic_partition(self, partition: int = 0, topic: str = "input") -> TopicPartition:
        return TopicPartition(self.topics[topic], partition)

    async def renew(self, role: str, partitions: int = 1, configs: dict[str, str] | None = None) -> str:
        """Give a role a new topic; the role `copy` is that of the copy of the progress."""
        topic = self.topics[role] = await create_topic(self.bootstrap, partitions, configs)
        self.document["kafka"]["progress_copy" if role == "copy" else role] = topic
        return topic

    def give_keys(self, *keys: str) -> None:
        """Give processes a file with these keys of the offset metadata, the first of which encrypts."""
        path = self.folder / "metadata.key"
        path.write_text("\n".join(keys))
        path.chmod(0o600)
        self.document["kafka"]["metadata_key_file"] = str(path)

    def policy_file(self) -> Path:
        path = self.folder / "policy.yaml"
        path.write_text(json.dumps(self.document))
        return path

    # ------------------------------------------------------------------ records

    def record(self, **changes: Any) -> bytes:
        """One more record, identified by its serial number."""
        number, self.serial = self.serial, self.serial + 1
        return json.dumps({"who": f"p{number}", "age": number * 31 % 111, "serial": number} | changes).encode()

    async def put(self, count: int, *partitions: int, **options: Any) -> list[tuple[int, int]]:
        """Append so many good records to each of these partitions, or to the first; return (partition, offset)s."""
        record_ids = []
        for partition in partitions or (0,):
            record_ids += await self.send([self.record() for _ in range(count)], partition, **options)
        return record_ids

    async def send(self, values: Sequence[bytes | None], partition: int = 0, **options: Any) -> list[tuple[int, int]]:
        """Append messages to a partition; return (partition, offset) of each, and remember those of records."""
        record_ids = await produce(self.bootstrap, self.topics["input"], values, partitions=partition, **options)
        for value, record_id in zip(values, record_ids, strict=True):
            with contextlib.suppress(ValueError, TypeError, KeyError):
                self.record_id_of[json.loads(value or b"")["serial"]] = record_id
        return record_ids

    async def read(self, topic: str = "output") -> list[Message]:
        return await read_all(self.bootstrap, self.topics[topic])

    async def read_topics(self) -> dict[str, list[Message]]:
        return {role: await self.read(role) for role in self.topics}

    async def objects(self, topic: str = "output") -> list[Any]:
        """Values of the messages of a topic, which are JSON."""
        return [json.loads(message.value or b"") for message in await self.read(topic)]

    async def serials(self) -> Counter[int]:
        """How often each record is in the output."""
        return Counter(row["serial"] for row in await self.objects())

    async def outcomes(self) -> Counter[tuple[int, int]]:
        """How often each offset of the input was released or referenced, as an outside reader sees it."""
        released = [self.record_id_of[row["serial"]] for row in await self.objects()]
        references = await self.objects("quarantine")
        return Counter([*released, *((one["partition"], one["offset"]) for one in references)])

    async def until_completed(self, record_ids: Iterable[tuple[int, int]], timeout_s: float = 30) -> None:
        """Wait until every record has an outcome, and check that none has two."""
        wanted = set(record_ids)

        async def are_completed() -> bool:
            return wanted <= set(await self.outcomes())

        await wait_until(are_completed, timeout_s, f"outcomes of {len(wanted)} records")
        assert [record_id for record_id, count in (await self.outcomes()).items() if count > 1] == []

    async def worked(
        self, count: int = 30, partitions: Sequence[int] = (0,), start: StartOptions = EARLIEST
    ) -> list[tuple[int, int]]:
        """Append records to each of these partitions, release some of them and hold the others."""
        record_ids = await self.put(count, *partitions)
        before = len(await self.read())
        async with self.run(start) as run:
            await run.until_read(len(record_ids))

            def are_released(count: int = count // 4) -> bool:
                released = [run.total("shoal_records_total", outcome="released", partition=str(p)) for p in partitions]
                return min(released) > count

            await run.until(are_released, "a release")
        assert before < len(await self.read()) < self.serial
        return record_ids

    # ------------------------------------------------------------------ progress

    async def report(self) -> list[dict[str, Any]]:
        return await report_progress(Policy.load(self.policy_file()), self.settings())

    async def export(self) -> str:
        return await export_progress(self.settings())

    async def bring_back(self, text: str) -> dict[str, list[int]]:
        return await import_progress(text, Policy.load(self.policy_file()), self.settings())

    async def committed(self, partition: int = 0) -> OffsetAndMetadata | None:
        tp = self.topic_partition(partition)

        async def fetched() -> list[OffsetAndMetadata | None]:
            try:
                return [(await client.list_consumer_group_offsets(self.group, partitions=[tp])).get(tp)]
            except GroupCoordinatorNotAvailableError:
                # A cluster without any group yet makes its coordinator now.
                return []

        async with admin(self.bootstrap) as client:
            (found,) = await wait_until(fetched, what="a coordinator")
        return None if found is None or found.offset < 0 else found

    async def progress(self, partition: int = 0) -> CommittedState:
        found = await self.committed(partition)
        assert found is not None
        seal = MetadataCipher.of(self.settings())
        return seal.decode(found.metadata, self.topics["input"], partition, found.offset)

    def member(self, *topics: str, **options: Any) -> AIOKafkaConsumer:
        """Return a client of another program that is in the group."""
        given = {"bootstrap_servers": self.bootstrap, "group_id": self.group, "enable_auto_commit": False}
        return AIOKafkaConsumer(*topics, **given, **options)

    async def commit(self, offset: int, metadata: str, partition: int = 0) -> None:
        """Commit for the group as another tool would."""
        async with self.member() as consumer:
            consumer.assign([self.topic_partition(partition)])
            await consumer.commit({self.topic_partition(partition): (offset, metadata)})

    # ------------------------------------------------------------------ the service

    async def refusal(self, start: StartOptions = EARLIEST, **kafka: Any) -> str:
        """Check that a start ends with exit code 2, commits nothing and prints no key; return its words."""
        before = await self.committed()
        with pytest.raises((InputError, PolicyError)) as caught:
            async with self.run(start, **kafka) as run:
                await run.ended()
        assert caught.value.exit_code == 2
        assert await self.committed() == before, "a refused start has committed"
        assert [key for key in self.keys() if key in str(caught.value)] == []
        return str(caught.value)

    def keys(self) -> list[str]:
        """Keys in files that processes of this stage were given."""
        return [key for path in self.folder.glob("*.key") for key in path.read_text().split() if key != "plain"]

    def run(self, start: StartOptions = EARLIEST, **kafka: Any) -> Run:
        """Return a service in this process, not started yet."""
        document = self.document | {"kafka": self.document["kafka"] | kafka}
        path = self.folder / f"policy-{uuid.uuid4().hex[:6]}.yaml"
        path.write_text(json.dumps(document))
        policy = Policy.load(path)
        settings = self.settings(policy)
        return Run(Worker(policy, settings, Metrics(str(settings.group)), Health(), start))

    async def started(self, start: StartOptions = EARLIEST, read: int = 0) -> None:
        """Start a worker and stop it when it is ready, or when it has read so many records."""
        async with self.run(start) as run:
            await (run.until_read(read) if read else run.until_ready())

    def settings(self, policy: Policy | None = None) -> KafkaSection:
        """Settings of a process of this stage, of this policy or the stage's."""
        policy = policy or Policy.load(self.policy_file())
        return kafka_settings(policy, {"SHOAL_KAFKA__BOOTSTRAP_SERVERS": self.bootstrap})

    async def drained(self, record_ids: Collection[tuple[int, int]] = ()) -> None:
        """Release or suppress all held records when no worker runs; each of these has one outcome then."""
        await forget_members(self.bootstrap, self.group)
        async with self.run(StartOptions(reset="earliest", drain=True)) as last:
            await last.ended()
        if record_ids:
            await self.until_completed(record_ids)

    def process(self, *arguments: str, name: str = "worker", **environment: str) -> Process:
        return self.command("run", *arguments, "--http", "127.0.0.1:0", name=name, **environment)

    def command(
        self,
        command: str,
        *arguments: str,
        name: str = "command",
        program: Sequence[str] = (str(SHOAL),),
        **environment: str,
    ) -> Process:
        """Start a command over the stage's policy; ``program`` stands for ``shoal``: a file, or an interpreter."""
        kafka = {"BOOTSTRAP_SERVERS": self.bootstrap} | environment
        given = {key: value for key, value in os.environ.items() if not key.startswith("SHOAL_KAFKA__")}
        out, log = self.folder / f"{name}.out", self.folder / f"{name}.log"
        given |= {f"SHOAL_KAFKA__{key}": value for key, value in kafka.items()}
        words = [command, str(self.policy_file()), "--log", "json", *arguments]
        log.touch()
        log_start = log.stat().st_size
        is_fresh = program[0] == sys.executable
        process = fork_program([*program[is_fresh:], *words], given, out, log, is_fresh=is_fresh)
        return Process(process, out, log, log_start)


@dataclass
class Run:
    """A service in this process, with its metrics and health; stopped at the end of the context."""

    service: Worker
    task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.task = asyncio.create_task(self.service.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stopped(12)
        assert self.task is not None
        if not self.task.cancelled() and isinstance(self.task.exception(), PolicyError):
            return  # nothing was sent, and a topic of the settings may not exist
        settings = self.service.settings
        topics = [str(topic) for name in SIDE if (topic := getattr(settings, name))]

        async def are_shown() -> bool:
            return await is_shown(str(settings.bootstrap_servers), *topics)

        with contextlib.suppress(TimeoutError, KafkaError):
            # Not cut off by a timeout: a client that is just starting leaves its first connection open then.
            await wait_until(are_shown, 2, "the last transaction")

    async def stopped(self, timeout_s: float) -> None:
        """Stop it, and raise what it ended with unless it had ended before."""
        self.service.stop()
        assert self.task is not None
        if not self.task.done():
            await self.ended(timeout_s)

    async def ended(self, timeout_s: float = 30) -> None:
        """Wait until it ends by itself, and raise what it ended with."""
        task = self.task
        assert task is not None

        async def is_done() -> bool:
            await asyncio.wait({task}, timeout=0.2)
            return task.done()

        await wait_until(is_done, timeout_s, "the end of the service")
        task.result()

    async def until_ready(self, timeout_s: float = 30) -> None:
        def is_ready() -> bool:
            assert self.task is not None
            if self.task.done():
                self.task.result()
            return self.service.health.ready

        await wait_until(is_ready, timeout_s, "readiness")

    async def until(self, condition: Callable[[], bool], what: str = "the condition", timeout_s: float = 30) -> None:
        """Wait for a condition for as long as the service runs."""

        def holds() -> bool:
            assert self.task is not None
            if self.task.done():
                self.task.result()
            return condition()

        await wait_until(holds, timeout_s, what)

    async def until_read(self, count: int) -> None:
        """Wait until so many records were read for the first time."""
        await self.until(lambda: self.total("shoal_records_total", outcome="in") >= count, f"{count} records read")

    @property
    def held(self) -> int:
        found = [one.value for one in self.samples("shoal_records_held")]
        return round(sum(found)) if found else -1

    def samples(self, name: str, **labels: str) -> list[Any]:
        return [
            one
            for family in self.service.metrics.registry.collect()
            for one in family.samples
            if one.name == name and labels.items() <= one.labels.items()
        ]

    def total(self, name: str, **labels: str) -> float:
        return float(sum(one.value for one in self.samples(name, **labels)))


def sample(text: str, name: str, **labels: str) -> float:
    from prometheus_client.parser import text_string_to_metric_families

    return sum(
        one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if one.name == name and labels.items() <= one.labels.items()
    )


def children_of(pid: int) -> list[int]:
    """Ids of the processes that a process has started and that run."""
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [child for path in found for child in map(int, path.read_text().split()) if is_running(child)]


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@dataclass
class Process:
    """A command as a process; killed by its id at the end of the context if it still runs."""

    process: ForkedProcess | subprocess.Popen[bytes]
    out: Path
    log: Path
    log_start: int

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def code(self) -> int | None:
        return self.process.poll()

    @property
    def said(self) -> str:
        """What it wrote on standard error."""
        with self.log.open("rb") as log:
            log.seek(self.log_start)
            return log.read().decode()

    def lines(self, event: str) -> list[dict[str, Any]]:
        """Log lines of an event; every line of the service's own is JSON."""
        parsed = [json.loads(line) for line in self.said.splitlines() if line.startswith("{")]
        return [line for line in parsed if line.get("event") == event]

    async def ended(self, timeout_s: float = 30) -> int:
        """Exit code, once there is one."""
        try:
            await wait_until(lambda: self.code is not None, timeout_s, "the end of the process")
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self.said[-2000:]}") from None
        assert self.code is not None
        return self.code

    async def terminated(self, timeout_s: float = 10) -> int:
        self.process.send_signal(signal.SIGTERM)
        return await self.ended(timeout_s)

    async def port(self) -> int:
        started = await wait_until(lambda: self.lines("started") or self.code is not None, 30, "the start")
        assert isinstance(started, list), self.said
        return int(started[0]["http_port"])

    async def get(self, path: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{await self.port()}{path}"
        try:
            async with aiohttp.ClientSession() as client, client.get(url) as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientConnectorError:
            raise AssertionError(f"no server listens; exit code {self.code}: {self.said[-2000:]}") from None

    async def until_ready(self, timeout_s: float = 30) -> None:
        async def is_ready() -> bool:
            assert self.code is None, self.said[-2000:]
            return (await self.get("/readyz"))[0] == 200

        await wait_until(is_ready, timeout_s, "readiness")
