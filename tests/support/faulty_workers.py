"""Workers as processes, killed on purpose, and checks that read only topics and logs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp
from aiokafka.errors import KafkaError
from shoal.audit import Verdict, verify
from shoal.policy import Policy
from support.canaries import traces
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
    wait_for,
    wait_until,
)
from support.running import SIDE

WORKER = Path(__file__).with_name("worker.py")
CANARY = "xq7canary9z"
"""Part of every subject and every malformed value; it must not be published."""


@dataclass
class Worker:
    """One process of the service; it restarts under the same name in the group."""

    name: str
    policy: Path
    bootstrap: str
    log: Path
    process: ForkedProcess | subprocess.Popen[bytes] | None = None
    plans: list[str] = field(default_factory=list)
    is_fresh: bool = False
    """Whether each start is a new interpreter, with a hash seed of its own."""
    unasked_count: int = 0
    """How many of its earlier processes ended by themselves."""
    is_terminated: bool = False
    """Whether the present process was told to stop while it ran."""

    def command(self, *extra: str, origin: bool = True) -> list[str]:
        command = [str(WORKER), "run", str(self.policy), "--log", "json"]
        return [*command, "--http", "127.0.0.1:0", *(("--from", "earliest") if origin else ()), *extra]

    def environment(self, die_at: str, instance: str | None = None, patience_s: str = "300") -> dict[str, str]:
        named = {} if instance == "" else {"SHOAL_KAFKA__INSTANCE_ID": instance or self.name}
        return {
            **os.environ,
            **named,
            "SHOAL_KAFKA__BOOTSTRAP_SERVERS": self.bootstrap,
            "SHOAL_KAFKA__SESSION_TIMEOUT_MS": "6000",
            "SHOAL_KAFKA__PATIENCE_S": patience_s,
            "DIE_AT": die_at,
        }

    def start(
        self, *extra: str, die_at: str = "", origin: bool = True, instance: str | None = None, patience_s: str = "300"
    ) -> None:
        self.unasked_count, self.is_terminated = self.gone, False
        self.plans.append(die_at)
        environment = self.environment(die_at, instance, patience_s)
        command = self.command(*extra, origin=origin)
        self.process = fork_program(command, environment, self.log, self.log, is_fresh=self.is_fresh)

    @property
    def code(self) -> int | None:
        """Exit code of its process; None without one that has ended."""
        return None if self.process is None else self.process.poll()

    @property
    def gone(self) -> int:
        """How often it ended by itself: neither killed nor terminated."""
        asked = {None, -signal.SIGKILL, *((0,) if self.is_terminated else ())}
        return self.unasked_count + (self.code not in asked)

    @property
    def is_dead(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait(30)

    def terminate(self) -> int:
        """Stop it as an operator does; return its exit code."""
        assert self.process is not None
        self.is_terminated = self.process.poll() is None
        self.signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(self.said[-2000:]) from error

    @property
    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    @property
    def memory_mb(self) -> float:
        assert self.process is not None
        (line,) = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())
        return int(line) * 1024 / 1e6

    @property
    def port(self) -> int:
        """Port of its HTTP server, as its log says; 0 before that."""
        return int([0, *re.findall(r'http_port(?:": |=)(\d+)', self.said)][-1])

    async def get(self, path: str) -> tuple[int, str]:
        """Return status and text of a page of its HTTP server."""
        port = await wait_until(lambda: self.port, 90, "the start")
        async with aiohttp.ClientSession() as client, client.get(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, await answer.text()

    async def metrics(self) -> str:
        return (await self.get("/metrics"))[1]

    @contextmanager
    def running(self, **options: Any) -> Iterator[None]:
        """Start it, and terminate it at the end of the block; it must exit with 0."""
        self.start(**options)
        try:
            yield
            assert self.terminate() == 0
        finally:
            self.kill()


@dataclass
class Deployment:
    """Topics, a policy file, and the records put in so far."""

    bootstrap: str
    folder: Path
    topics: dict[str, str]
    policy: Path
    k: int
    serial: int = 0
    is_ordered: bool = False
    is_fresh: bool = False
    """Whether each start of a worker is a new interpreter."""
    addresses: str = ""
    """Bootstrap addresses of the workers, if not those of the test."""
    known: dict[str, list[Message]] = field(default_factory=dict)
    """Committed messages that were read so far, by topic."""

    @classmethod
    async def create(
        cls,
        bootstrap: str,
        folder: Path,
        *,
        partitions: int,
        k: int = 5,
        delta: int = 100,
        privacy: Mapping[str, Any] | None = None,
        kafka: Mapping[str, Any] | None = None,
        configs: Mapping[str, Mapping[str, str]] | None = None,
        replicas: Mapping[str, Sequence[int]] | None = None,
        has_copy: bool = False,
        **stream: Any,
    ) -> Self:
        """Create topics, with configs and brokers by role; ``privacy``, ``kafka``, ``stream`` go into the policy."""
        wanted = []
        for name in ("input", *SIDE):
            count = partitions if name in {"input", "output"} else 2
            wanted.append(Wanted(count, (configs or {}).get(name), replicas=(replicas or {}).get(name, ())))
        topics = dict(zip(("input", *SIDE), await create_topics(bootstrap, wanted), strict=True))
        if has_copy:
            # Plans of `worker.py` do not count messages of topics with this name.
            name, compacted = f"copy-{topics['input']}", {"cleanup.policy": "compact"}
            topics["progress_copy"] = await create_topic(bootstrap, partitions, compacted, name)
        document: dict[str, Any] = {
            "attributes": {
                "who": {"role": "identifier", "subject": True},
                "age": {"role": "quasi_identifier", "scale": "numeric", "bounds": [0, 110], "integer": True},
                "income": {"role": "quasi_identifier", "scale": "numeric", "bounds": [0, 100000], "resolution": 50},
                "serial": {"role": "confidential", "type": "integer"},
            },
            "privacy": {"k": k, **(privacy or {})},
            "stream": {"delta": delta, **stream},
            "steering": {"position": 0.001},
            "kafka": {"group": f"group-{topics['input']}", **topics, **(kafka or {})},
        }
        policy = folder / "policy.yaml"
        policy.write_text(json.dumps(document))
        is_ordered = stream.get("release") == "ordered"
        return cls(bootstrap, folder, topics, policy, k, is_ordered=is_ordered)

    def worker(self, name: str) -> Worker:
        name, log = f"{self.topics['input']}-{name}", self.folder / f"{name}.log"
        return Worker(name, self.policy, self.addresses or self.bootstrap, log, is_fresh=self.is_fresh)

    def records(self, count: int) -> list[bytes | None]:
        """Return so many new records, one in fifty malformed; the serial number identifies each."""
        values: list[bytes | None] = []
        for number in range(self.serial, self.serial + count):
            record: dict[str, Any] = {
                "who": f"{CANARY} p{number * 7919 % 3001}",
                "age": number * 31 % 111,
                "income": number * 977 % 100_000,
                "serial": number,
            }
            if number % 50 == 7:
                record["age"] = f"unknown {CANARY}"
            values.append(json.dumps(record).encode())
        self.serial += count
        return values

    async def put(self, count: int, partitions: int) -> None:
        """Append so many records, each of them once, also if a broker is away meanwhile."""
        values, where = self.records(count), [number % partitions for number in range(count)]
        options: dict[str, Any] = {"linger_ms": 5, "max_batch_size": 1 << 18, "request_timeout_ms": 120_000}
        await produce(
            self.bootstrap, self.topics["input"], values, partitions=where, enable_idempotence=True, **options
        )

    async def read(self, topic: str) -> list[Message]:
        """Return the committed messages of a topic, or those of the last call if no broker answers."""
        known = self.known.get(topic, [])
        with contextlib.suppress(KafkaError):
            self.known[topic] = await read_all(self.bootstrap, topic, known=known)
        return self.known.get(topic, known)

    async def read_topics(self) -> dict[str, list[Message]]:
        """All committed messages by the role of their topic, read anew."""
        return {role: await read_all(self.bootstrap, topic) for role, topic in self.topics.items()}

    async def resolved(self) -> int:
        """How many records a reader of committed data can account for."""
        return len(await self.read(self.topics["output"])) + len(await self.read(self.topics["quarantine"]))

    async def wait_for(self, count: int, timeout_s: float = 90) -> None:
        await wait_for(self.resolved, lambda found: found >= count, timeout_s, f"{count} resolved records")

    async def settled(self, workers: Sequence[Worker]) -> None:
        """Stop every worker; a last worker releases all held records."""
        for worker in workers:
            worker.kill()
        await forget_members(self.bootstrap, json.loads(self.policy.read_text())["kafka"]["group"])
        last = Deployment.worker(self, "last")
        last.start("--drain")
        try:
            await wait_until(lambda: last.is_dead, 90, "the end of the last worker")
        except TimeoutError as error:
            raise AssertionError(last.said[-2000:]) from error
        finally:
            last.kill()
        assert last.code == 0, last.said[-2000:]
        shown = [self.topics[role] for role in SIDE if role in self.topics]
        await wait_until(lambda: is_shown(self.bootstrap, *shown), 30, "the last transaction")


@dataclass(frozen=True)
class Findings:
    """What a reader of the topics found after all records were completed."""

    records: int
    released: int
    referenced: int
    twice: int
    lost: int
    small_clusters: int
    clusters: int
    aborted_rows: int
    aborted_unlike_committed: int


async def judge(deployment: Deployment) -> Findings:
    """Compare input and output; only the topics are read."""
    read = await deployment.read_topics()
    record_id_of, person_of = {}, {}
    for message in read["input"]:
        record = json.loads(message.value or b"")
        record_id_of[record["serial"]] = (message.partition, message.offset)
        person_of[(message.partition, message.offset)] = record["who"]
    released = [(m.partition, record_id_of[json.loads(m.value or b"")["serial"]]) for m in read["output"]]
    assert all(partition == record_id[0] for partition, record_id in released), (
        "a record is on another partition of the output"
    )
    references = [json.loads(message.value or b"") for message in read["quarantine"]]
    outcomes = Counter([record_id for _, record_id in released] + [(r["partition"], r["offset"]) for r in references])
    rows = {record_id_of[json.loads(m.value or b"")["serial"]]: m for m in read["output"]}
    evidence = [json.loads(message.value or b"") for message in read["evidence"]]
    everything = await read_all(deployment.bootstrap, deployment.topics["output"], "read_uncommitted")
    committed = {(m.partition, m.offset) for m in read["output"]}
    aborted = [m for m in everything if (m.partition, m.offset) not in committed]
    bytes_of = {(m.partition, m.value) for m in read["output"]}
    return Findings(
        records=len(read["input"]),
        released=len(released),
        referenced=len(references),
        twice=sum(count - 1 for count in outcomes.values()),
        lost=len(set(record_id_of.values()) - set(outcomes)),
        small_clusters=sum(is_small(cluster, rows, person_of, deployment) for cluster in evidence),
        clusters=len(evidence),
        aborted_rows=len(aborted),
        aborted_unlike_committed=sum((m.partition, m.value) not in bytes_of for m in aborted),
    )


async def leaks(deployment: Deployment) -> list[str]:
    """Where a value is that must not be published: topics, logs of the workers, the group's metadata."""
    texts = {path.name: path.read_bytes() for path in deployment.folder.glob("*.log")}
    for name in {*deployment.topics} - {"input"}:
        messages = await read_all(deployment.bootstrap, deployment.topics[name], "read_uncommitted")
        texts[name] = repr(messages).encode()
    async with admin(deployment.bootstrap) as client:
        committed = await client.list_consumer_group_offsets(f"group-{deployment.topics['input']}")
    assert committed
    texts["metadata"] = repr(committed).encode()
    return traces([CANARY], texts)


def is_small(
    cluster: dict[str, Any],
    rows: dict[tuple[int, int], Message],
    people: dict[tuple[int, int], str],
    deployment: Deployment,
) -> bool:
    """Whether a cluster has fewer than k people, or members with different values or in disorder."""
    record_ids = [(cluster["partition"], offset) for offset in cluster["offsets"]]
    members = sorted((rows[record_id] for record_id in record_ids), key=lambda message: message.offset)
    looks = {tuple(json.loads(m.value or b"")[name] for name in ("age", "income")) for m in members}
    # With ordered release, `shoal verify` checks the order.
    together = deployment.is_ordered or members[-1].offset - members[0].offset == len(members) - 1
    in_order = [m.value for m in members] == sorted(m.value or b"" for m in members)
    return (
        len({people[record_id] for record_id in record_ids}) < deployment.k
        or len(looks) != 1
        or not together
        or not in_order
    )


def export(folder: Path, read: Mapping[str, Sequence[Message]], *envelope: str) -> dict[str, Path]:
    """Write the topics down as the judge reads them; ``envelope`` may be the timestamp of the input."""
    files = {role: folder / f"{role}.jsonl" for role in ("input", "output", "quarantine", "evidence")}
    for role, file in files.items():
        file.write_text("".join(f"{line_of(role, message, *envelope)}\n" for message in read[role]))
    return files


def line_of(role: str, message: Message, *envelope: str) -> str:
    """Return a message of an export; what is not UTF-8 stays broken."""
    value = None if message.value is None else message.value.decode(errors="surrogateescape")
    if role in {"quarantine", "evidence"}:
        return str(value)
    line: dict[str, Any] = {"partition": message.partition}
    if role == "input":
        parts = {"offset": message.offset, "timestamp": message.timestamp_ms}
        line |= {name: parts[name] for name in ("offset", *envelope)}
    return json.dumps(line | {"value": value})


def judged(policy: Path, files: Mapping[str, Path]) -> Verdict:
    """See that the judge of the product finds an export sound, with every record in it accounted for and none held."""
    verdict = verify(
        Policy.load(policy), files["input"], files["output"], files["evidence"], quarantine=files["quarantine"]
    )
    assert verdict.exit_code == 0, verdict.text()
    assert verdict.counts["held"] == 0
    return verdict
