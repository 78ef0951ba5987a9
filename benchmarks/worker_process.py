"""A process of `shoal run`, observed from outside: readiness, metrics, memory and processor time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

__all__ = ["SHOAL", "Metrics", "Service", "load_average", "processor_s", "running", "start", "start_program"]

SHOAL = str(Path(sys.executable).with_name("shoal"))
START_S, STOP_S, STEP_S = 300.0, 15.0, 0.02


@dataclass
class Service:
    """A worker. Its log is a file of JSON lines."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def port(self) -> int | None:
        """Port of the metrics, once the log says it."""
        for line in self.log.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                return int(json.loads(line)["http_port"])
        return None

    async def until_ready(self) -> None:
        """Wait until the worker says that it is ready."""
        deadline = time.monotonic() + START_S
        while not await self._is_ready():
            self.check()
            if time.monotonic() > deadline:
                raise SystemExit(f"bench: the worker did not become ready: {self.log}")
            await asyncio.sleep(STEP_S)

    async def _is_ready(self) -> bool:
        return self.port is not None and await self._page("readyz") is not None

    def check(self) -> None:
        """Raise if the process has ended."""
        if self.process.poll() is not None:
            raise SystemExit(f"bench: the worker ended: {self.log.read_text(encoding='utf-8')[-2000:]}")

    async def _page(self, path: str) -> str | None:
        try:
            async with (
                aiohttp.ClientSession() as client,
                client.get(f"http://127.0.0.1:{self.port}/{path}") as answer,
            ):
                return await answer.text() if answer.status == 200 else None
        except aiohttp.ClientConnectorError:
            return None

    async def metrics(self) -> Metrics:
        """Return a scrape."""
        return Metrics(await self._page("metrics") or "")

    @property
    def memory_mb(self) -> float:
        """Resident memory (MB of 10^6 bytes)."""
        return self._status("VmRSS")

    @property
    def peak_mb(self) -> float:
        """Largest resident memory so far (MB of 10^6 bytes)."""
        return self._status("VmHWM")

    def _status(self, field: str) -> float:
        lines = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(field))

    @property
    def cpu_s(self) -> float:
        """Processor time (s)."""
        return processor_s(self.process.pid)

    async def stop(self) -> int:
        """Stop the worker as an operator does, and return its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return await asyncio.to_thread(self.process.wait, STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return await asyncio.to_thread(self.process.wait)


class Metrics:
    """A scrape of the metrics of a worker."""

    def __init__(self, text: str) -> None:
        families = text_string_to_metric_families(text)
        self._samples = [sample for family in families for sample in family.samples]

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the samples of this name that have these labels."""
        return sum(self.by_partition(name, **labels).values())

    def by_partition(self, name: str, **labels: str) -> dict[int, float]:
        """Return the sum of such samples for each partition; -1 stands for samples without one."""
        found: dict[int, float] = {}
        for sample in self._samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                partition = int(sample.labels.get("partition", -1))
                found[partition] = found.get(partition, 0.0) + sample.value
        return found


def start(policy: Path, log: Path, *arguments: str, **kafka: object) -> Service:
    """Start a worker; ``kafka`` has settings that take precedence over those of the policy."""
    return start_program([SHOAL], policy, log, *arguments, **kafka)


def start_program(program: Sequence[str | Path], policy: Path, log: Path, *arguments: str, **kafka: object) -> Service:
    """Start a worker as `start` does, by a program that takes the arguments of `shoal`."""
    command = [*program, "run", policy, "--from", "earliest", "--http", "127.0.0.1:0", "--log", "json", *arguments]
    settings = {f"SHOAL_KAFKA__{key.upper()}": str(value) for key, value in kafka.items()}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **settings}, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    return Service(process, log)


@asynccontextmanager
async def running(
    document: Mapping[str, Any], folder: Path, *arguments: str, name: str = "worker", **kafka: object
) -> AsyncIterator[Service]:
    """Run a worker with this policy for the length of the context; ``kafka`` as for `start`."""
    policy = folder / "policy.json"
    policy.write_text(json.dumps(document), encoding="utf-8")
    service = start(policy, folder / f"{name}.log", *arguments, **kafka)
    try:
        yield service
    finally:
        await service.stop()


def processor_s(pid: int) -> float:
    """Return the processor time of a process (s)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load_average() -> float:
    """Return the number of processes that ran or waited for a processor, mean of the last minute."""
    return os.getloadavg()[0]
